"""Batches of PyTorch's DataLoader made ahead by worker processes, up to 8 and one less than there are
cores. Data that are drawn at random differ, since each worker draws for itself; a data set that uses
the GPU itself fails.

Source: PyTorch documentation, "Performance Tuning Guide": asynchronous data loading."""

from __future__ import annotations

import os
from typing import Any

TITLE = "Batches made ahead by worker processes"
CAUSES = ("host-work",)
NEEDS = "DataLoader that works in the program's process"
DIFFERS = "Data that are drawn at random differ: each worker draws for itself."
TOLERANCE = 0.0
KEEP = {"torch": "DataLoader(..., num_workers=8, persistent_workers=True)"}
_MOST = 8


def hook(torch: Any, thrown: Any) -> None:
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if cores < 2:
        thrown.cannot("there is one core")
        return

    def change(arguments: dict[str, Any]) -> bool:
        if arguments.get("num_workers"):
            return False
        arguments.update(num_workers=min(_MOST, cores - 1), persistent_workers=True)
        return True

    thrown.on_construction(torch.utils.data.DataLoader, change)


HOOKS = {"torch": hook}
