"""Idle time of the GPU by what the host does in it."""

from __future__ import annotations

from typing import Final

from ncu_toolkit.diagnosis.program_rules._facts import StepFacts
from ncu_toolkit.diagnosis.thresholds import Threshold

#: Microseconds.
OTHER_WORK: Final = Threshold(
    200.0,
    "a framework takes 10 to 50 us for an operator, and up to 100 while it is recorded: a longer pause is other work",
)


def other_work(s: StepFacts, at: int) -> bool:
    """Whether the host did something else for most of a gap that a late launch ended: it began the
    launch OTHER_WORK after the gap had begun."""
    gap, calls = s.gaps[at], s.trace.calls
    known = 0 <= gap.call < len(calls)
    return (calls[gap.call].start - gap.start if known else gap.us * 1e3) >= OTHER_WORK.value * 1e3
