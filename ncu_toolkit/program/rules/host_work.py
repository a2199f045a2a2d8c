"""The GPU waits while the host does work of its own.

What it is
Between two launches the host does something else for hundreds of microseconds: it loads and prepares
data, computes in Python, compiles kernels for a new shape, writes a log, or waits for other processes.

Why it costs time
Nothing is queued meanwhile, so that the GPU is idle for as long.

How to confirm
The idle time is in few, long pieces, each ended by a launch that began late, and the host made no
call of CUDA in most of it. A sampling profiler of the host (py-spy, perf) shows what it did.

What to change
Prepare the next step while the GPU computes this one: worker processes and prefetching for data, work
on another thread, less often for logs and checkpoints. Pad inputs to a few shapes, so that nothing is
compiled again.

When the advice is wrong
The first step after a checkpoint or an evaluation waits once. A server without requests is idle.

Source
PyTorch documentation, "Performance Tuning Guide": asynchronous data loading.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise, starmap
from typing import Final

import msgspec

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import StepFinding
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact
from ncu_toolkit.program.rules._host import OTHER_WORK, Away, away, copied, staged

TITLE: Final = "The GPU waits for other work of the host"
AGAIN: Final = "Code is compiled again and again"
#: Marks of XLA: XlaCompile:#module=jit_train_step#.
_MODULE: Final = re.compile(r"^Xla\w+:#(?:.*,)?module=(?:jit_)?(\w+)")
#: What to do where it is compiled anew, by framework.
_ANEW: Final[dict[str, tuple[str, ...]]] = {
    "": ("Compile once, before the loop, and pass as arguments what differs from step to step.",),
    "xla": ("Give a jitted function one shape, or a few: pad the batches to them. Each new shape compiles anew.",
            "Call jax.jit once, outside of the loop. JAX_LOG_COMPILES=1 in the environment names what is compiled."),
    "torch": ("New shapes make libraries load or build other kernels: pad inputs to one shape, or a few.",),
    "compiled": ("Each new shape may compile anew: pad inputs to one shape or a few, or torch.compile(model, dynamic=True).",
                 "TORCH_LOGS=recompiles in the environment tells why."),
    "cupy": ("Make kernels (RawKernel, cupy.fuse) once, outside of the loop, and pass numbers as arguments, not in the source.",),
    "numba": ("Decorate kernels once, outside of the loop, and call them with arguments of one type.",),
}  # fmt: skip
_LOADER: Final = (
    "Prepare batches in other processes: DataLoader(num_workers=..., pin_memory=True, persistent_workers=True).",
    "If it does so already: more workers, or move the preparation (augmentation, decoding) to the GPU.",
)
_LOOK: Final = "A profiler of Python (py-spy record, cProfile) shows what: loading data, logging, saving, garbage collection, computing."
_IF_LOADER: Final = "If a DataLoader makes the batches: num_workers=..., pin_memory=True."
_OTHER: Final = (
    "Compute whole arrays at once where Python loops, or on the GPU. Else do this work less often, on another thread, or for the "
    "next step while the GPU computes this one."
)
MOST: Final = Threshold(0.5, "what fills half of the time is more of it than all else together")


def find(s: StepFacts) -> StepOutcome:
    if missing := s.lacks("wall time", "host calls"):
        return s.abstain("The trace does not show what the host did.", *missing)
    late = [each for each in away(s) if not staged(s, each)]
    loads = _loads(s)
    s.useless.update(("loader-workers",) if loads else ("loader-workers", "batch-size"))
    if late and (compiled := compiles(s, late)):
        return compiled
    if not s.steady:
        return s.abstain("No step was found: the program's start is in the run too.", "step")
    gaps = sorted({at for each in late for at in each.gaps})
    us = min(sum(each.us for each in late), s.idle_us(gaps))
    longest = max((each.us for each in late), default=0.0)
    evidence = (
        s.part("idle_long", "Idle in long pieces", us,
               f"Part of the {s.word} in which the GPU waited for a launch that came late by hundreds of microseconds."),
        fact("idle_longest", "Longest piece", longest, "us", "The longest of them.", OTHER_WORK),
    )  # fmt: skip
    if not s.worth(us):
        return s.ruled_out("The host is never away for long.", *evidence)
    name, inside = during(s, late)
    most = inside >= MOST.value * us
    doing = f"is in {name}" if most else "does something other than launching"
    operator = name.partition(" ")[0]
    # work that ends with a copy to the GPU has made what is copied
    ends = [(s.ops[s.gaps[each.gaps[-1]].before], each.us) for each in late]
    made = sum(us for op, us in ends if op.path == "HtoD" and copied(op) == "bulk")
    advice = (_LOOK, _OTHER)[not s.framework :]
    if "dataloader" in name.lower() if most else made >= MOST.value * us:
        s.useless -= {"loader-workers"} if loads else set()
        if s.framework == "torch":
            advice = _LOADER if loads else (*advice, _IF_LOADER)
    elif most and operator.startswith("aten::"):
        advice = (f'{operator} computes on the host: create the tensor on the GPU, device="cuda".',)
    lines = places(s, late)
    between = f", after {' and before '.join(lines)}" * (len(lines) > 1)
    found = s.finding(
        f"The GPU is idle for {s.of_step(us)} in {units.counted(len(late), 'long piece')}, while the host {doing}{between}.",
        "high" if most else "medium",
        us,
        gaps=gaps,
        evidence=evidence,
        arithmetic=f"{units.counted(len(late), 'piece')} of idle time add up to {units.duration(us)}, the longest {units.duration(longest)}.",
        advice=advice,
    )
    return msgspec.structs.replace(found, where=lines or found.where)


def _loads(s: StepFacts) -> bool:
    """Whether PyTorch's DataLoader is seen: by its ranges, or by its thread, which only pins memory."""
    threads: dict[tuple[int, int], set[str]] = defaultdict(set)
    for call in s.trace.calls:
        threads[call.process, call.thread].add(s.name(call))
    pins = any(all("HostAlloc" in name for name in names) for names in threads.values())
    return pins or any("dataloader" in name.lower() for name in s.trace.names)


def places(s: StepFacts, late: Sequence[Away]) -> tuple[str, ...]:
    """The lines between which the host did the longest piece of that work: of the last call before it
    on its thread that has one, and of the call that it came back to."""
    most = max(late, key=lambda each: each.us)
    thread, calls = (most.back.process, most.back.thread), s.trace.calls
    upto = bisect_right(calls, most.start, key=lambda call: call.start)
    own = (c for c in reversed(calls[:upto]) if (c.process, c.thread) == thread and c.line >= 0)
    before = s.lines([(next(own, None), 1.0)])
    back = s.lines((each.back, each.us) for each in (most, *late))
    return tuple(dict.fromkeys((*before, *back)))[:2]


def compiles(s: StepFacts, late: Sequence[Away]) -> StepFinding | None:
    """Idle time that ends once code was loaded, if loading goes on: in half of the steps, or in each
    quarter of a run's work. Libraries load at first use, which is over after the first steps."""
    loads = [call.start for call in s.trace.calls if call.kind == "load"]

    def loaded(start: int, end: int) -> bool:
        return bisect_right(loads, end) > bisect_right(loads, start)

    times: list[tuple[int, int]] = [(window.start, window.end) for window in s.step.windows]
    if not s.steady:
        times = [*pairwise(s.ops[i * (len(s.ops) - 1) // 4].start for i in range(5))]
    own = [
        each
        for each in late
        if loaded(s.gaps[each.gaps[0]].start, each.launch.start)
        or during(s, [each])[0].startswith("Xla")
    ]
    gaps = sorted({at for each in own for at in each.gaps})
    us = min(sum(each.us for each in own), s.idle_us(gaps))
    most = MOST.value if s.steady else 1.0
    if sum(starmap(loaded, times)) < most * len(times) or not s.worth(us):
        return None
    module = _MODULE.search(during(s, own)[0])
    what = f" {module[1]}" if module else ""
    meaning = f"Part of the {s.word} in which the GPU waited and code was loaded."
    found = s.finding(
        f"The GPU is idle for {s.of_step(us)} in {units.counted(len(own), 'piece')}, until the program has compiled{what} and loaded the code. "
        f"That goes on {'from step to step' if s.steady else 'to the end of the run'}.",
        "high",
        us,
        gaps=gaps,
        evidence=(s.part("idle_compiling", "Idle until code was loaded", us, meaning),),
        advice=s.advice(**_ANEW),
    )
    where = s.lines((each.back, each.us) for each in own)
    return msgspec.structs.replace(found, title=AGAIN, where=where or found.where)


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
