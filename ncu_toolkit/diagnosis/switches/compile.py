"""torch.compile of the modules that the program calls: operators are fused, and the host launches
less. The first steps compile, for a minute or more. Code that Dynamo cannot follow breaks the graph
and gains less; shapes that change compile again.

Source: PyTorch documentation, "torch.compile" and nn.Module.compile."""

from typing import Any

TITLE = "torch.compile of the model"
CAUSES = ("spelled-out", "unfused-chain", "small-ops-loop", "launch-bound", "layout-copies", "unfused-attention")  # fmt: skip
NEEDS = "module of PyTorch on the GPU that is not compiled"
GROUP = "compile"
DIFFERS = "Fused operators round less often, and dropout draws other numbers."
TOLERANCE = 1e-3
KEEP = {"torch": "model.compile()"}


def hook(torch: Any, thrown: Any) -> None:
    def visit(module: Any) -> None:
        if getattr(module, "_compiled_call_impl", None) is None and not hasattr(
            module, "_orig_mod"
        ):
            module.compile()
            thrown.applied()

    thrown.on_models(torch, visit)


HOOKS = {"torch": hook}
