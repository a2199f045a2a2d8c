"""Advice by the functions of libraries that a trace names."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import PythonFrame, StepFinding
from ncu_toolkit.program.rules import _host
from ncu_toolkit.program.rules._facts import StepFacts
from ncu_toolkit.program.rules._tables import Words, tables

DEAR: Final = Threshold(0.2, "a fifth of a worker: without it, four workers do as much as five")
#: Functions with a line of advice each.
_LINES: Final = 2
#: The rule whose findings have advice for their own stacks.
HOST_WORK: Final = "host-work"
#: Of the time that the host is away, in functions of a library.
OF_IT: Final = Threshold(0.1, "what takes less of it is not worth a line of advice")


@lru_cache(maxsize=1 << 16)
def _fits(module: str, frame: PythonFrame) -> bool:
    return re.match(module, f"{_host.module_of(frame)}: {frame.function}") is not None


def _called(words: Words, frames: Sequence[PythonFrame]) -> bool:
    there = any(_fits(words.module, frame) for frame in frames)
    return there and any(words.needs in _host.module_of(frame) for frame in frames)


def for_stacks(s: StepFacts, cause: str, stacks: Mapping[int, float]) -> tuple[Words, ...]:
    """Advice for a cause whose time has these stacks."""
    trace, whole = s.trace, sum(stacks.values())
    known = {at: [trace.frames[i] for i in trace.stacks[at]] for at in stacks}
    return tuple(
        words
        for words in tables().words
        if cause in words.causes
        and sum(us for at, us in stacks.items() if _called(words, known[at])) > OF_IT.value * whole
    )


def dear(ran: Sequence[_host.HostTime], us: float, of: str, otherwise: str = "") -> tuple[str, ...]:
    """Advice for the functions with most of a time, at most two: how a loader does with less of them,
    or `otherwise`."""
    advice = []
    for each in ran[:_LINES]:
        own = (
            w.advice for w in tables().words if "loader" in w.causes and _called(w, (each.frame,))
        )
        if each.us >= DEAR.value * us and (how := next(own, otherwise)):
            share = f"{_host.function_of(each.frame)} is {units.percent(each.us / us, 2)} {of}"
            advice.append(f"{share}: {how}")
    return tuple(advice)


def of_library(s: StepFacts, finding: StepFinding) -> StepFinding:
    """With advice for the libraries whose functions the trace names; findings of idle time have it
    from their own stacks."""
    own = [w for w in tables().words if finding.rule in w.causes and _called(w, s.trace.frames)]
    if not own or finding.rule == HOST_WORK or finding.good:
        return finding
    advice = (*(words.advice for words in own), *finding.advice)
    return msgspec.structs.replace(finding, advice=advice)


def long_waits(s: StepFacts, shown: Iterable[StepFinding]) -> Iterator[str]:
    """What the host does while the GPU of a run without a step waits for long. How much of that is the
    program's start is not known, so it is no gain."""
    if s.steady or s.lacks("wall time", "host calls"):
        return
    explained = {at for finding in shown for at in finding.gaps}
    late = [x for x in _host.away(s) if not _host.staged(s, x) and explained.isdisjoint(x.gaps)]
    us = sum(each.us for each in late)
    if not s.worth(us):
        return
    stacks = _host.stacks_during(s, late)
    if sum(stacks.values()) >= _host.MOST.value * us:
        doing = f"spends {_host.listed(_host.functions_of(s, stacks), sum(stacks.values()))}"
    elif doing := _host.range_words(_host.ranges_during(s, late), us):
        doing = f"is in {doing}"
    if doing:
        yield f"During {units.counted(len(late), 'long wait')} of the GPU, {units.duration(us)}, the host {doing}."
