"""Convolutions on data with the channels last, the order that tensor cores take: cuDNN need not turn
it round. Only 4-dimensional inputs of modules with convolutions are turned. Operators without a form
for this order turn it back, and then nothing is gained.

Source: PyTorch documentation, "Channels Last Memory Format in PyTorch"."""

from typing import Any

TITLE = "Images with the channels last"
CAUSES = ("layout-copies",)
CLASSES = ("convolution",)
NEEDS = "module with 2-dimensional convolutions on the GPU"
DIFFERS = "Other algorithms add in another order."
TOLERANCE = 1e-2
KEEP = {"torch": "model.to(memory_format=torch.channels_last), and the same of its inputs"}


def hook(torch: Any, thrown: Any) -> None:
    def visit(module: Any) -> None:
        if not any(isinstance(each, torch.nn.Conv2d) for each in module.modules()):
            return
        module.to(memory_format=torch.channels_last)

        def turned(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.dim() == 4:
                return value.contiguous(memory_format=torch.channels_last)
            return value

        forward = module.forward
        module.forward = lambda *arguments, **named: forward(
            *map(turned, arguments), **{name: turned(value) for name, value in named.items()}
        )
        thrown.applied()

    thrown.on_models(torch, visit)


HOOKS = {"torch": hook}
