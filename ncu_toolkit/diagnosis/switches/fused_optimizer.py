"""One kernel for an optimizer's whole update, in place of several for each tensor. Optimizers without
a fused form stay as they are, and so do those whose gradients a GradScaler of one's own unscales.

Source: PyTorch documentation, "torch.optim": fused is faster than foreach, and foreach than the loop."""

from __future__ import annotations

from typing import Any

TITLE = "The optimizer's fused form"
CAUSES = ("optimizer-launches", "launch-bound", "small-ops-loop")
CLASSES = ("optimizer",)
NEEDS = "optimizer of PyTorch that has a fused form"
GROUP = "optimizer"
DIFFERS = "Sums of an update are rounded in another order."
TOLERANCE = 1e-3
KEEP = {"torch": "fused=True where the optimizer is made"}
_HAVE_IT = ("Adam", "AdamW", "SGD", "Adagrad")


def hook(torch: Any, thrown: Any) -> None:
    def change(arguments: dict[str, Any]) -> bool:
        if arguments.get("fused"):
            thrown.cannot("the program's optimizer is fused already")
            return False
        arguments.update(fused=True, foreach=None)
        return True

    for name in _HAVE_IT:
        thrown.on_construction(getattr(torch.optim, name), change, keep="params")


HOOKS = {"torch": hook}
