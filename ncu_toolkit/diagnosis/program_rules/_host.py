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
    """Whether the host did something else for most of a gap that ended with a late launch: from the
    start of the gap, or the end of the call that explains it, it made no launch for OTHER_WORK."""
    gap = s.gaps[at]
    call, calls = s.call(gap.before), s.trace.calls
    if call is None:
        return gap.us >= OTHER_WORK.value
    since = max(gap.start, calls[gap.call].end if 0 <= gap.call < len(calls) else 0)
    return (call.start - since) / 1e3 >= OTHER_WORK.value
