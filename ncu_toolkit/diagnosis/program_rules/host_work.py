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

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis.program_rules._facts import StepFacts, StepOutcome, fact
from ncu_toolkit.diagnosis.program_rules._host import OTHER_WORK, other_work

ID: Final = "host-work"
TITLE: Final = "The GPU waits for other work of the host"
SWITCH: Final = ""


def find(s: StepFacts) -> StepOutcome:
    if missing := s.lacks("wall time", "host calls"):
        return s.abstain("The trace does not tell what the host did.", *missing)
    if not s.steady:
        return s.abstain(
            "No step was found, so that the program's start cannot be told from its work.", "step"
        )
    late = [at for at in s.idle("host late") if other_work(s, at)]
    us = s.idle_us(late)
    longest = max((s.gaps[at].us for at in late), default=0.0)
    evidence = (
        s.part(
            "idle_long",
            "Idle in long pieces",
            us,
            "Part of the step in which the GPU waited for a launch that came late by hundreds of microseconds.",
        ),
        fact(
            "idle_longest", "Longest piece", longest, "us", "The longest of them.", ">=", OTHER_WORK
        ),
    )
    if not s.worth(us):
        return s.ruled_out("The host is never away for long.", *evidence)
    return s.finding(
        f"The GPU is idle for {s.of_step(us)} in {units.counted(len(late), 'long piece')}, while the host does something other than launching.",
        "medium",
        us,
        gaps=late,
        evidence=evidence,
        arithmetic=(
            f"{units.counted(len(late), 'piece')} of idle time add up to {units.duration(us)}, the longest {units.duration(longest)}.",
        ),
        advice=s.advice(
            "Do this work on another thread, or prepare the next step while the GPU computes this one.",
            torch=(
                "If it is the data: DataLoader(num_workers=..., pin_memory=True, persistent_workers=True), so that batches are ready.",
                "If it is something else: log and save less often, or on another thread.",
            ),
        ),
    )
