"""Idle time of the GPU by what the host does in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, Literal

from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import OTHER_WORK_US, Call, Op
from ncu_toolkit.program.rules._facts import StepFacts

#: Bytes a second.
STAGED: Final = Threshold(
    3e9, "a thread of the host copies 5 to 15 GB/s: what takes longer is more than a copy"
)
#: Microseconds.
OTHER_WORK: Final = Threshold(
    OTHER_WORK_US,
    "a framework takes 10 to 50 us for an operator, and up to 100 while it is recorded: a longer pause is other work",
)

#: Bytes.
FEW: Final = Threshold(
    4096.0,
    "a copy takes 1 to 2 us whatever it holds, and a link of 10 GB/s adds less than half of one for so little",
)
#: Microseconds.
BRIEF: Final = Threshold(2.5, "what a copy of so few bytes takes, where its size is not recorded")


@dataclass(frozen=True)
class Away:
    """Time in which the GPU idles and the host does other work, from `start` to `end`, where it makes
    the call `back`, on the thread of `launch`, which ends the idle time. `gaps` are the pieces of the account that it is in: without
    this work, the time that a synchronisation held the host before would not matter either."""

    gaps: tuple[int, ...]
    start: int
    end: int
    launch: Call
    back: Call
    part: float = 1.0
    """How much of it a mean step has (`IdleGap.part`)."""

    @property
    def us(self) -> float:
        return self.part * (self.end - self.start) / 1e3


def launched_late(s: StepFacts, most: Threshold) -> list[int]:
    """Gaps shorter than `most` (OTHER_WORK) that end with a launch which came late."""
    late = sorted({*s.idle("host late"), *waits(s, "launch")})
    lengths = {at: (s.gaps[at].end - s.gaps[at].start) / 1e3 for at in late}
    return [at for at in late if lengths[at] < most.value and at not in s.claimed]


def copied(op: Op) -> Literal["bulk", "read", "launch"]:
    """What work is as a copy: "bulk" between host and device, a "read" of a few bytes, whose wait
    costs, or a "launch": what is within the GPU, or a few bytes for it, costs the host as much."""
    if op.us < BRIEF.value if op.size is None else op.size <= FEW.value:
        return "read" if op.path == "DtoH" else "launch"
    return "bulk" if op.path in ("HtoD", "DtoH") else "launch"


def waits(s: StepFacts, of: Literal["bulk", "read", "launch"]) -> list[int]:
    """Gaps in which a copy's call held the host, by what it copied."""
    queued = {op.call: op for op in s.ops if op.kind == "copy"}
    gaps = [(at, s.gaps[at]) for at in s.idle("copy")]
    return [at for at, gap in gaps if copied(queued.get(gap.call, s.ops[gap.before])) == of]


def staged(s: StepFacts, each: Away) -> bool:
    """Whether XLA spent the time on the host's side of the copies that follow: it copies arrays of
    NumPy into pinned memory, on the host, before it copies them to the GPU."""
    at = s.gaps[each.gaps[-1]].before
    if s.framework != "xla" or at < 0:
        return False
    to_device = takewhile(lambda op: op.kind != "kernel", s.ops[at:])
    size = sum(op.size or 0 for op in to_device if op.path == "HtoD")
    return size >= STAGED.value * each.us / 1e6


def away(s: StepFacts) -> Iterator[Away]:
    """Time of OTHER_WORK or more in which the GPU idles and no call of CUDA holds the host."""
    calls, gaps = s.trace.calls, s.gaps
    first = 0
    for at, gap in enumerate(gaps):
        if at and (gap.start != gaps[at - 1].end or gap.before != gaps[at - 1].before):
            first = at
        after = gaps[at + 1] if at + 1 < len(gaps) else None
        # A copy that ends the idle time has a piece for itself, from its call to its start.
        goes_on = (
            after is not None
            and after.start == gap.end
            and after.before == gap.before
            and after.call != gap.call
        )
        if goes_on or gap.cause != "host late" or not 0 <= gap.call < len(calls):
            continue
        launch = calls[gap.call]
        pieces = tuple(i for i in range(first, at + 1) if gaps[i].cause in ("host late", "sync"))
        held = {calls[gaps[i].call] for i in range(first, at) if gaps[i].call >= 0}
        free = gaps[first].start
        for call in (*sorted(held, key=lambda call: call.start), launch):
            if call.start - free >= OTHER_WORK.value * 1e3:
                yield Away(pieces, free, call.start, launch, call, gap.part)
            free = max(free, call.end)
