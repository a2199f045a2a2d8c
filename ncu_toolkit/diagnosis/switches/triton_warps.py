"""Warps of a block of Triton's kernels; 4 is Triton's default. The best number differs by kernel:
name one by --kernel.

Source: Triton documentation, triton.Config."""

from typing import Any

TITLE = "Warps of a Triton kernel"
CAUSES = ("low-occupancy", "memory-latency", "local-memory-traffic")
NEEDS = "Triton kernel of that name"
GROUP = "triton-warps"
DIFFERS = "Sums of a block are added in another order."
TOLERANCE = 1e-3
VALUES = ("2", "8")
KEEP = {"triton": "num_warps={} where the kernel is launched"}


def hook(triton: Any, thrown: Any) -> None:
    thrown.on_launches(triton.runtime.jit.JITFunction, "num_warps")


HOOKS = {"triton": hook}
