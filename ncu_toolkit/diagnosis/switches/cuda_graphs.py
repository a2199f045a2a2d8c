"""CUDA graphs of the model's passes, by torch.compile in the mode "reduce-overhead": the host launches
one graph in place of hundreds of kernels. PyTorch leaves graphs out where they are not safe (changing
shapes, work on the CPU, inputs that are written), and warns of it.

Source: PyTorch documentation, "torch.compile" (mode="reduce-overhead") and "CUDAGraph Trees"."""

from typing import Any

TITLE = "CUDA graphs of the compiled model"
CAUSES = ("launch-bound", "small-ops-loop")
NEEDS = "module of PyTorch on the GPU that is not compiled"
GROUP = "compile"
DIFFERS = "Fused operators round less often, and dropout draws other numbers. Outputs of one call are overwritten by the next."
TOLERANCE = 1e-3
KEEP = {"torch": 'model.compile(mode="reduce-overhead")'}


def hook(torch: Any, thrown: Any) -> None:
    def visit(module: Any) -> None:
        if getattr(module, "_compiled_call_impl", None) is None and not hasattr(
            module, "_orig_mod"
        ):
            module.compile(mode="reduce-overhead")
            thrown.applied()

    thrown.on_models(torch, visit)


HOOKS = {"torch": hook}
