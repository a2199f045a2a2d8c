"""The recording holds one first pass, and most of it is start-up.

What it is
The first time that a program does something, memory is allocated, code of kernels is loaded, libraries
make handles and streams, and cuDNN tries algorithms. None of that comes again in a later pass.

Why it costs time
The GPU is idle meanwhile, for milliseconds where the work takes microseconds.

How to confirm
Few launches are of a kernel that ran before. A second pass in the same process takes a fraction of
the time.

What to change
Nothing, if the program goes on: run a few warm-up passes before those that are timed or recorded. If the first
answer is what counts, do the start-up before it is asked for: a pass over an input of the same shape.

When the advice is wrong
The program is a single pass by nature, such as a command-line tool: start-up is its cost.

Source
CUDA C++ Programming Guide, "Lazy Loading"; PyTorch documentation, "torch.backends.cudnn.benchmark".
"""

from collections import defaultdict
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Edit
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact
from ncu_toolkit.program.rules._host import OTHER_WORK
from ncu_toolkit.program.traces.account import LABELS

TITLE: Final = "One first pass: start-up, no steady step"
NEW: Final = Threshold(0.25, "of its launches are the first of their kernel: of a program that repeats, few are")  # fmt: skip
IDLE: Final = Threshold(0.5, "of the run: where the GPU works for most of it, its work counts")
_CODE: Final = "loading modules"
_LOADS: Final = "first launches of {} (code is loaded, libraries are set up)"
_TRIES: Final = "choosing algorithms of convolutions (waits and copies there)"
_ADVICE: Final = (
    "Run the pass several times in one process and record that: what is left then is the program's step.",
    "If the first answer is what counts: run a pass over an input of the same shape before it is asked for.",
)
_TRIED: Final = (
    "Algorithms are chosen again for each new shape: torch.backends.cudnn.benchmark = False, or keep shapes the same.",
)


def find(s: StepFacts) -> StepOutcome:
    if missing := s.lacks("wall time", "host calls"):
        return s.abstain("The trace does not show what the host did.", *missing)
    if s.steady:
        return s.ruled_out("It is not a first pass alone.")
    launched = (at for at, launch in enumerate(s.launches) if launch is not None)
    first = {places[0] for places in grouped(launched, s.kernel).values()}
    new = len(first) / max(1, s.step.launches)
    idle = s.idle_us(range(len(s.gaps)))
    evidence = (
        fact("first_launches", "First launches", new, "fraction", f"Part of the {s.word}'s launches that are the first of their kernel.", NEW),
        s.part("idle", "GPU idle", idle, "in which the GPU does nothing.", IDLE),
    )  # fmt: skip
    if new < NEW.value or not s.worth(idle, IDLE):
        return s.ruled_out("It is not a first pass alone.", *evidence)
    late = s.idle("host late")
    called = [at for at in late if s.gaps[at].call >= 0]
    code = {at for at in called if s.trace.calls[s.gaps[at].call].kind == "load"}
    long = {at for at in late if s.gaps[at].us >= OTHER_WORK.value}
    away = s.idle_us(long - code)
    if away > idle / 2:
        pauses = "The GPU is idle in a few long pauses, which have a cause of theirs."
        return s.ruled_out(pauses, *evidence)
    loaded = set[int]()
    spent: dict[str, float] = defaultdict(float)
    chains = s.within([s.call(gap.before) for gap in s.gaps])
    for at, (gap, chain) in enumerate(zip(s.gaps, chains, strict=True)):
        # the rest in the account's words, so that both agree
        kind = _CODE if at in code else LABELS[gap.key].removeprefix("Idle: ")
        if gap.cause in ("sync", "copy") and any("convolution" in name for name in chain):
            kind = _TRIES
        elif gap.cause == "host late" and gap.before in first and at not in code | long:
            kind = _LOADS
            loaded.add(gap.before)
        spent[kind] += gap.us
    kernel = units.counted(len(loaded), "kernel")
    kinds = sorted(filter(lambda kind: s.worth(spent[kind]), spent), key=lambda kind: -spent[kind])
    shares = [f"{units.duration(spent[kind])} {kind.format(kernel)}" for kind in kinds]
    allocations = sum(call.kind in ("allocate", "free") for call in s.calls)
    return s.finding(
        f"Nothing repeats, and {units.percent(new, 2)} of {units.counted(s.step.launches, 'launch')} are the first of their kernel. "
        f"The GPU is idle for {s.of_step(idle)}: {units.listed(shares)}.",
        "medium",
        Edit(graphed=frozenset(range(len(s.ops))), moved=s.ending(range(len(s.gaps))), waits=s.made("allocate", "free", "load", "sync", "copy")),
        gaps=range(len(s.gaps)),
        evidence=evidence,
        arithmetic=f"{units.counted(allocations, 'call')} that allocate or free, {units.counted(len(first), 'kernel')} launched for the "
        "first time: a later pass does neither.",
        advice=(*_ADVICE, *_TRIED * (_TRIES in spent and s.framework == "torch")),
    )  # fmt: skip
