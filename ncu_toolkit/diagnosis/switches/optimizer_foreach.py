"""The optimizer's foreach form: each operation of the update once for many tensors. It is PyTorch's
default on GPUs, so it gains only where the program asks for the loop. It takes memory of the size of
the parameters for a moment.

Source: PyTorch documentation, "torch.optim"."""

from __future__ import annotations

from typing import Any

TITLE = "The optimizer's foreach form"
CAUSES = ("optimizer-launches",)
CLASSES = ("optimizer",)
NEEDS = "optimizer of PyTorch that asks for the loop over tensors"
GROUP = "optimizer"
DIFFERS = "Nothing but the order of rounding."
TOLERANCE = 1e-3
KEEP = {"torch": "foreach=True where the optimizer is made"}


def hook(torch: Any, thrown: Any) -> None:
    def change(arguments: dict[str, Any]) -> bool:
        if arguments.get("foreach") is not False or arguments.get("fused"):
            return False
        arguments["foreach"] = True
        return True

    for name in ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta"):  # fmt: skip
        if hasattr(torch.optim, name):
            thrown.on_construction(getattr(torch.optim, name), change, keep="params")


HOOKS = {"torch": hook}
