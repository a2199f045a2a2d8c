"""A program's kernels, and what changed in its step, as tidy pandas tables."""

from collections.abc import Iterable
from typing import Final

import pandas

from ncu_toolkit.kernel.analysis.frames import frame
from ncu_toolkit.program.analysis.changes import StepChange
from ncu_toolkit.program.explain.program import StepKernel

#: Columns that the table has, whatever a step holds.
STEP_KERNELS: Final = (
    "kernel", "class", "grid", "block", "launches", "time_us", "share", "line", "bottleneck"
)  # fmt: skip
CHANGES: Final = ("step", "part", "old_us", "new_us", "change_us")


def changes_frame(steps: Iterable[StepChange]) -> pandas.DataFrame:
    """One row a part of the account of each step, what changed most first."""
    both = ((each.pair.name, part) for each in steps for part in each.parts)
    rows = ((name, x.label, x.old_us, x.new_us, x.us) for name, x in both)
    return frame([dict(zip(CHANGES, row, strict=True)) for row in rows], CHANGES)


def step_frame(kernels: Iterable[StepKernel]) -> pandas.DataFrame:
    """One row a kernel of a program's step."""
    rows = []
    for each in kernels:
        launch, verdict = each.launch, each.verdict
        sizes = ("x".join(map(str, size or ())) for size in (launch.grid, launch.block))
        cause = verdict.primary.bottleneck if verdict else ""
        figures = each.launches, each.us, each.share, each.line, cause
        row = launch.kernel, each.kind, *sizes, *figures
        rows.append(dict(zip(STEP_KERNELS, row, strict=True)))
    return frame(rows, STEP_KERNELS)
