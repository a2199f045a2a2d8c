"""Idle time of the GPU by what the host does in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ncu_toolkit.diagnosis.program_rules._facts import StepFacts
from ncu_toolkit.diagnosis.thresholds import Threshold
from ncu_toolkit.model.program import Call

#: Microseconds.
OTHER_WORK: Final = Threshold(
    200.0,
    "a framework takes 10 to 50 us for an operator, and up to 100 while it is recorded: a longer pause is other work",
)


@dataclass(frozen=True)
class Away:
    """Idle time in which the host did other work, from `start` until it began `launch`. `gaps` are
    the pieces of the account that it is in: without this work, the time that a synchronisation held
    the host before would not matter either."""

    gaps: tuple[int, ...]
    start: int
    launch: Call

    @property
    def us(self) -> float:
        return (self.launch.start - self.start) / 1e3


def away(s: StepFacts) -> Iterator[Away]:
    """Idle time of OTHER_WORK or more between the last call that held the host and the launch that
    ended the idle time."""
    calls, gaps = s.trace.calls, s.gaps
    first = 0
    for at, gap in enumerate(gaps):
        if at and (gap.start != gaps[at - 1].end or gap.before != gaps[at - 1].before):
            first = at
        if gap.cause != "host late" or not 0 <= gap.call < len(calls):
            continue
        pieces = range(first, at + 1)
        held = [
            calls[gaps[i].call].end
            for i in pieces
            if gaps[i].cause in ("sync", "copy", "allocation") and gaps[i].call >= 0
        ]
        found = Away(
            tuple(i for i in pieces if gaps[i].cause != "allocation"),
            max([gaps[first].start, *held]),
            calls[gap.call],
        )
        if found.us >= OTHER_WORK.value:
            yield found
