"""BF16 for the model's forward pass, as torch.autocast chooses operators, and for its backward pass
with it: tensor cores at full rate, and half the bytes. Weights and the optimizer stay in FP32.
Training that diverges in BF16 is rare; evaluate before you keep it.

Source: PyTorch documentation, "Automatic Mixed Precision"."""

from typing import Any

TITLE = "BF16 by automatic mixed precision"
CAUSES = ("fp32-matmul", "tensor-core-unused")
LEAST_CC = (8, 0)
NEEDS = "FP32 module of PyTorch on the GPU"
GROUP = "precision"
DIFFERS = "Products and convolutions compute with 7 bits of mantissa."
TOLERANCE = 5e-2
KEEP = {"torch": 'with torch.autocast("cuda", dtype=torch.bfloat16): around the forward pass'}


def hook(torch: Any, thrown: Any) -> None:
    def visit(module: Any) -> None:
        if not any(each.dtype == torch.float32 for each in module.parameters()):
            return
        if torch.is_autocast_enabled():
            thrown.cannot("the program uses automatic mixed precision already")
            return
        forward = module.forward

        def cast(*arguments: Any, **named: Any) -> Any:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return forward(*arguments, **named)

        module.forward = cast
        thrown.applied()

    thrown.on_models(torch, visit)


HOOKS = {"torch": hook}
