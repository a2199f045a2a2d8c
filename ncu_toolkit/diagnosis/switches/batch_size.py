"""Batches of PyTorch's DataLoader so many times larger: each launch does more work. The time of a
sample is compared. Training takes another path with it, so learning rates have to follow.

Source: NVIDIA, "Deep Learning Performance Guide": batch size and efficiency."""

from __future__ import annotations

from typing import Any

TITLE = "A larger batch"
CAUSES = ("idle-streams", "launch-bound")
NEEDS = "DataLoader with a batch size"
DIFFERS = "The program does other steps: what it prints is not compared."
TOLERANCE = float("inf")
VALUES = ("2",)
KEEP = {"torch": "DataLoader(..., batch_size=) times {}"}


def hook(torch: Any, thrown: Any) -> None:
    def change(arguments: dict[str, Any]) -> bool:
        size = arguments.get("batch_size", 1)
        if not size or arguments.get("batch_sampler") is not None:
            return False
        arguments["batch_size"] = size * int(thrown.value)
        return True

    thrown.on_construction(torch.utils.data.DataLoader, change)


HOOKS = {"torch": hook}
