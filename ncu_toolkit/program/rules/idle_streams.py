"""Grids that fill a small part of the GPU leave the rest of it idle.

What it is
A launch with fewer blocks than half of the SMs leaves most of the GPU idle. On one stream the next one
waits for it, even if it does not depend on it.

Why it costs time
The time of the launches adds up, while most SMs have nothing to do.

How to confirm
Launches with few blocks take a large part of the step, and no other work runs alongside them.

What to change
Split the work of each launch into more blocks, or give it more work: a larger batch, or requests
served together. Launch independent work on several streams, or capture it in a graph whose branches run
side by side. Long launches of the author's own kernels are reported as those kernels' own bottleneck (grid-too-small).

When the advice is wrong
The work of a launch cannot be split, and each needs the result of the one before, which no trace
shows. Then only more work for each launch helps.

Source
CUDA C++ Best Practices Guide, "Occupancy" (more blocks than SMs); CUDA C++ Programming Guide,
"Concurrent Kernel Execution".
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.kernel import authored, made_by
from ncu_toolkit.kernel.diagnosis.rules import title
from ncu_toolkit.kernel.diagnosis.rules.grid_too_small import CALL, split
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Edit
from ncu_toolkit.program.rules import _patterns
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact

#: The cause of a step of one launch, or of the author's own kernels: what counters call it.
GRID: Final = "grid-too-small"
#: Causes that many small calls of a library have, of which it could make one.
SMALL: Final = (GRID, "launch-overhead")
TITLE: Final = "Grids that do not fill the GPU"
FILLS: Final = Threshold(0.5, "two grids that each fill half of the SMs could run side by side")
LONG: Final = Threshold(10.0, "us: a shorter launch takes as long to start and end, however many blocks it has, but not in a CUDA graph")  # fmt: skip
SHARE: Final = Threshold(0.2, "every program has some small launches: reductions' ends, parameters of small layers")  # fmt: skip
OWN: Final = Threshold(0.8, "with most of what all SMs at work would save, the author's grids are the first to change")  # fmt: skip


def find(s: StepFacts) -> StepOutcome:
    if missing := s.lacks("wall time"):
        return s.abstain("What ran side by side is not known.", *missing)
    sms = s.device.sm_count if s.device else 0
    if not sms:
        return s.abstain("The number of the GPU's SMs is not known.", "device")
    few = _patterns.small(s, FILLS.value)
    small = {at: x for at, x in few.items() if s.ops[at].us >= LONG.value or s.ops[at].node > 0}
    us = s.us(small)
    evidence = (
        s.part("small_grids", "In small grids", us, "in launches of fewer blocks than half of the SMs, running alone.", SHARE),
        fact("small_launches", "Such launches", len(small), "count", "Launches of so few blocks."),
    )  # fmt: skip
    if not s.worth(us, SHARE):
        return s.ruled_out_by_grids(
            f"Launches that fill less than half of the GPU take little of the {s.word}.", *evidence
        )
    # nothing in the step could run alongside its only launch; an author's own are split, down to the
    # time that a launch takes anyway
    alone = sum(launch is not None for launch in s.launches) == 1
    authors = [at for at in small if alone or authored(small[at].kernel)]
    edit = Edit(keeps={at: s.filled(at) for at in small})
    least = sum(s.us([at]) - max(s.left(edit, [at]), LONG.value * (not alone)) for at in authors)
    grid = least >= OWN.value * (us - s.left(edit, small))
    work = authors if grid else [*small]
    us, blocks = s.us(work), {small[at].blocks or 0 for at in work}
    most = "at most " * (len(blocks) > 1) + units.counted(max(blocks), "block")
    work.sort(key=s.account.exclusive_us.__getitem__, reverse=True)
    first = small[work[0]]
    triton = s.framework == "torch" and first.kernel.isidentifier()
    names = units.shortlist([*dict.fromkeys(small[at].function for at in work)], 1)
    return s.finding(
        f"{units.counted(len(work), 'launch')} of {most} for {sms} SMs: {s.of_step(us)}. The other SMs are idle meanwhile.",
        "medium" if grid else "low",
        Edit(keeps={at: edit.keeps[at] for at in work}),
        ops=sorted(work),
        evidence=evidence,
        arithmetic="The same blocks take their part of the SMs, with a block on each.",
        advice=CALL.get(made_by(first.kernel) or "cuda", split(first, sms, triton))
        if grid
        else s.advice("idle-streams"),
        rule=GRID * grid,
        title=f"{title(GRID)} in {names}" * grid,
    )
