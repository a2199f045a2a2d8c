"""Batches of PyTorch's DataLoader in pinned memory, copied to the GPU without waiting. A program that
writes into a batch after it sent it to the GPU computes with wrong data; few do.

Source: PyTorch documentation, "A guide on good usage of non_blocking and pin_memory()"."""

from __future__ import annotations

from typing import Any

TITLE = "Batches in pinned memory, copied asynchronously"
CAUSES = ("host-copy",)
NEEDS = "DataLoader that does not pin its batches"
DIFFERS = "Nothing, unless the program writes into a batch while it is copied."
TOLERANCE = 0.0
KEEP = {"torch": "DataLoader(..., pin_memory=True), and batch.to(device, non_blocking=True)"}


def hook(torch: Any, thrown: Any) -> None:
    def change(arguments: dict[str, Any]) -> bool:
        if arguments.get("pin_memory"):
            return False
        arguments["pin_memory"] = True
        return True

    thrown.on_construction(torch.utils.data.DataLoader, change)
    for name in ("cuda", "to"):
        _without_waiting(torch.Tensor, name)


def _without_waiting(tensor: Any, name: str) -> None:
    """Copies of pinned tensors to the GPU do not wait; the other way they have to."""
    copy = getattr(tensor, name)

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if not self.is_cuda and "non_blocking" not in named and self.is_pinned():
            where = arguments[0] if arguments else named.get("device", "cuda")
            plain = len(arguments) < 2 and (name == "cuda" or "cuda" in str(where))
            if plain and not hasattr(where, "is_cuda"):
                named["non_blocking"] = True
        return copy(self, *arguments, **named)

    setattr(tensor, name, call)


HOOKS = {"torch": hook}
