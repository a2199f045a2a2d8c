"""Stages of Triton's software pipeline, for loops with products: how many loads are under way. More
stages take more shared memory, and too many do not fit.

Source: Triton documentation, triton.Config."""

from typing import Any

TITLE = "Pipeline stages of a Triton kernel"
CAUSES = ("memory-latency",)
NEEDS = "Triton kernel of that name"
GROUP = "triton-stages"
DIFFERS = "Nothing."
TOLERANCE = 1e-6
VALUES = ("2", "4")
KEEP = {"triton": "num_stages={} where the kernel is launched"}


def hook(triton: Any, thrown: Any) -> None:
    thrown.on_launches(triton.runtime.jit.JITFunction, "num_stages")


HOOKS = {"triton": hook}
