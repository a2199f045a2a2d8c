"""The launches of a step that are worth profiling."""

from __future__ import annotations

from dataclasses import dataclass

from ncu_toolkit.model.program import Account, Step


@dataclass(frozen=True)
class LaunchGroup:
    """Launches of one kernel with one grid and block in the typical step."""

    shape: int
    """Its place in `Trace.shapes`."""
    ops: tuple[int, ...]
    """Places in `Step.ops`."""
    us: float
    """Wall time that they alone account for."""
    share: float
    """Part of the step's wall time, 0-1."""


def groups(step: Step, account: Account) -> tuple[LaunchGroup, ...]:
    """The launches of the typical step by kernel, grid and block, most time first."""
    return ()
