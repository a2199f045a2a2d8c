"""GPU memory is allocated or freed in each step.

What it is
`cudaMalloc` takes tens of microseconds to milliseconds; `cudaFree` waits for all work of the GPU first.
Frameworks keep what they have freed and ask the driver only where that does not fit.

Why it costs time
The host launches nothing while it allocates, and after `cudaFree` the queue is empty.

How to confirm
Steady steps contain calls that allocate or free, and idle time follows them.

What to change
Allocate once and reuse the memory, or use `cudaMallocAsync` with a pool. In PyTorch, calls in steady
steps mean that the cache is full or fragmented: smaller peaks, or expandable segments.

When the advice is wrong
The first steps allocate in every program.

Source
CUDA C++ Programming Guide, "Stream Ordered Memory Allocator"; PyTorch documentation, "CUDA semantics:
Memory management".
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Edit
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact

TITLE: Final = "Memory allocated in the step"
STEADY: Final = Threshold(8.0, "the first steps fill the caches of frameworks: fewer steps than that may all be first ones")  # fmt: skip


def find(s: StepFacts) -> StepOutcome:
    if missing := s.lacks("wall time", "host calls"):
        return s.abstain("The trace does not hold the calls that allocate memory.", *missing)
    if not s.steady:
        return s.abstain(
            "No step was found: allocations of the program's start are in the run too.", "step"
        )
    calls = [call for call in s.calls if call.kind in ("allocate", "free")]
    gaps = s.idle("allocation")
    us = s.idle_us(gaps)
    evidence = (
        s.part("idle_allocation", "Idle while memory is allocated", us, "in which the GPU waited for a call that allocates or frees memory."),
        fact("allocations", "Calls", len(calls), "count", f"Calls in the {s.word} that allocate or free memory of the GPU."),
    )  # fmt: skip
    if not s.worth(us):
        return s.ruled_out("Steady steps allocate no memory, or nothing waits for it.", *evidence)
    names = sorted({name for call in calls if (name := s.name(call))})
    return s.finding(
        f"Each step calls {' and '.join(names[:3])} {units.counted(len(calls), 'time')}. The GPU is idle for {s.of_step(us)} during these calls.",
        "high" if len(s.step.windows) >= STEADY.value else "low",
        Edit(waits=s.made("allocate", "free")),
        gaps=gaps,
        evidence=evidence,
        advice=s.advice("allocation-in-step"),
    )
