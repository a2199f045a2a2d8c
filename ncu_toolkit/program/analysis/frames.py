"""A program's kernels as a tidy pandas table."""

from collections.abc import Iterable
from typing import Final

import pandas

from ncu_toolkit.kernel.analysis.frames import frame
from ncu_toolkit.program.explain.program import StepKernel

#: Columns that the table has, whatever a step holds.
STEP_KERNELS: Final = (
    "kernel", "class", "grid", "block", "launches", "time_us", "share", "line", "bottleneck"
)  # fmt: skip


def step_frame(kernels: Iterable[StepKernel]) -> pandas.DataFrame:
    """One row a kernel of a program's step."""
    rows = [
        {
            "kernel": each.launch.kernel,
            "class": each.kind,
            "grid": "x".join(map(str, each.launch.grid or ())),
            "block": "x".join(map(str, each.launch.block or ())),
            "launches": each.launches,
            "time_us": each.us,
            "share": each.share,
            "line": each.line,
            "bottleneck": each.verdict.primary.bottleneck if each.verdict else "",
        }
        for each in kernels
    ]
    return frame(rows, STEP_KERNELS)
