"""The GPU waits while the host does work of its own.

What it is
Between two launches the host does something else for hundreds of microseconds: it loads and prepares
data, computes in Python, writes a log, or waits for other processes.

Why it costs time
Nothing is queued meanwhile, so that the GPU is idle for as long.

How to confirm
The idle time is in few, long pieces, each ended by a launch that began late, and the host made no
call of CUDA in most of it. A sampling profiler of the host (py-spy, perf) shows what it did.

What to change
Prepare the next step while the GPU computes this one: worker processes and prefetching for data, work
on another thread, less often for logs and checkpoints.

When the advice is wrong
The first step after a checkpoint or an evaluation waits once. A server without requests is idle.

Source
PyTorch documentation, "Performance Tuning Guide": asynchronous data loading.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis.program_rules._facts import StepFacts, StepOutcome, fact
from ncu_toolkit.diagnosis.program_rules._host import OTHER_WORK, Away, away, staged
from ncu_toolkit.diagnosis.thresholds import Threshold

TITLE: Final = "The GPU waits for other work of the host"
MOST: Final = Threshold(0.5, "what fills half of the time is more of it than all else together")


def find(s: StepFacts) -> StepOutcome:
    if missing := s.lacks("wall time", "host calls"):
        return s.abstain("The trace does not show what the host did.", *missing)
    if not s.steady:
        return s.abstain("No step was found: the program's start is in the run too.", "step")
    late = [each for each in away(s) if not staged(s, each)]
    gaps = sorted({at for each in late for at in each.gaps})
    us = min(sum(each.us for each in late), s.idle_us(gaps))
    longest = max((each.us for each in late), default=0.0)
    evidence = (
        s.part(
            "idle_long",
            "Idle in long pieces",
            us,
            f"Part of the {s.word} in which the GPU waited for a launch that came late by hundreds of microseconds.",
        ),
        fact(
            "idle_longest", "Longest piece", longest, "us", "The longest of them.", ">=", OTHER_WORK
        ),
    )
    if not s.worth(us):
        return s.ruled_out("The host is never away for long.", *evidence)
    name, inside = during(s, late)
    most = inside >= MOST.value * us
    doing = f"is in {name}" if most else "does something other than launching"
    operator = name.partition(" ")[0]
    data = most and "dataloader" in name.lower()
    loader = "DataLoader(num_workers=..., pin_memory=True, persistent_workers=True) prepares batches in other processes."
    found = s.finding(
        f"The GPU is idle for {s.of_step(us)} in {units.counted(len(late), 'long piece')}, while the host {doing}.",
        "high" if most else "medium",
        us,
        gaps=gaps,
        evidence=evidence,
        arithmetic=(
            f"{units.counted(len(late), 'piece')} of idle time add up to {units.duration(us)}, the longest {units.duration(longest)}.",
        ),
        advice=s.advice(
            "Do this work on another thread, or prepare the next step while the GPU computes this one.",
            torch=(loader,)
            if data
            else (f'{operator} computes on the host: create the tensor on the GPU, device="cuda".',)
            if most and operator.startswith("aten::")
            else (
                f"If it is the data: {loader}",
                "Else log and save less often, or on another thread.",
            ),
        ),
    )
    # the line that the host came back to is next to what it did
    back = s.lines((each.back, each.us) for each in late)
    return msgspec.structs.replace(found, where=back or found.where)


def during(s: StepFacts, late: Sequence[Away]) -> tuple[str, float]:
    """What the host did for most of that time by the marks of the program, and for how long: those
    that ended in it, of the launch's thread, without those in others."""
    time: dict[str, float] = defaultdict(float)
    for each in late:
        marks = s.marks_by_end.get((each.launch.process, each.launch.thread), [])
        first = bisect_right(marks, each.start, key=lambda mark: mark.end)
        last = bisect_right(marks, each.end, key=lambda mark: mark.end)
        until = each.start
        for mark in sorted(marks[first:last], key=lambda mark: (mark.start, -mark.end)):
            if mark.end > until:
                time[s.trace.names[mark.name]] += (mark.end - max(mark.start, until)) / 1e3
                until = mark.end
    return max(time.items(), key=lambda each: each[1], default=("", 0.0))
