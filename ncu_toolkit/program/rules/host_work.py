"""The GPU waits while the host does work of its own.

What it is
Between two launches the host does something else for hundreds of microseconds: it loads and prepares
data, computes in Python, compiles kernels for a new shape, writes a log, or waits for other processes.

Why it costs time
Nothing is queued meanwhile, so that the GPU is idle for as long.

How to confirm
The idle time is in few, long pieces, each ended by a launch that began late, and the host made no
call of CUDA in most of it. Where the trace holds Python's stacks (`ncu-toolkit profile`, or
torch.profiler with with_stack=True) the functions are named, else the ranges that the program marked.

What to change
Prepare the next step while the GPU computes this one: worker processes and prefetching for data, work
on another thread, less often for logs and checkpoints. Pad inputs to a few shapes, so that nothing is
compiled again. A loader is a pipeline: its workers together must deliver batches as fast as the step
takes them, so count both before adding workers, and look at what one worker spends its time on.

When the advice is wrong
The first step after a checkpoint or an evaluation waits once. A server without requests is idle.

Source
PyTorch documentation, "Performance Tuning Guide": asynchronous data loading.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise, starmap
from typing import Final

import msgspec

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Frame, StepFinding
from ncu_toolkit.program.rules import _words
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact
from ncu_toolkit.program.rules._host import (
    MOST,
    OTHER_WORK,
    Away,
    HostTime,
    away,
    copied,
    function_of,
    functions_of,
    listed,
    module_of,
    range_of,
    ranges_during,
    stacks_during,
    stacks_in,
    staged,
)

TITLE: Final = "The GPU waits for other work of the host"
AGAIN: Final = "Code is compiled again and again"
LOADER: Final = "The GPU waits for the DataLoader"
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
_LOOK: Final = "A profiler of Python (py-spy record, cProfile) shows what: loading data, logging, saving, garbage collection, computing."
_IF_LOADER: Final = "If a DataLoader makes the batches: num_workers=..., pin_memory=True."
_ALONE: Final = "Make batches in other processes: DataLoader(num_workers={}, pin_memory=True, persistent_workers=True)."
_MORE: Final = "More workers (num_workers=...), as long as there are cores for them: `ncu-toolkit profile` shows how busy they are, and with what."
_CHEAPER: Final = "Or less work in each: transforms on the GPU for the whole batch, decoded or smaller files, collating arrays, not rows."
_IF_FEW: Final = "pin_memory=True and persistent_workers=True with it."
_KEEP: Final = "Keep the workers from epoch to epoch: DataLoader(..., persistent_workers=True)."
_PIN: Final = "The thread that pins batches is busy: return fewer, larger tensors, or pinned ones, or leave out pin_memory=True."
_BETWEEN: Final = (
    "What is slow is between them and the step: a batch in transit (return few tensors, of narrow types), or too few batches ahead "
    "(prefetch_factor=4)."
)
_SHOWN: Final = 10
_OTHER: Final = (
    "Compute whole arrays at once where Python loops, or on the GPU. Else do this work less often, on another thread, or for the "
    "next step while the GPU computes this one."
)
#: PyTorch's loader in the program, and in a worker process.
_IN_LOADER: Final = "torch/utils/data/dataloader"
_IN_WORKER: Final = "torch/utils/data/_utils/worker"
_FETCH: Final = "torch/utils/data/_utils/fetch"
_PINNING: Final = "torch/utils/data/_utils/pin_memory"
_NEXT: Final = re.compile(r"DataLoader\b.*__next__")
#: Functions of the loader that start and end its workers.
_STARTS: Final = re.compile(r"(.*\.)?(__init__|_get_iterator|_shutdown_workers|_reset)$")
BUSY: Final = Threshold(
    0.7, "a worker that waits for a third of its time is not what others wait for"
)
DEAR: Final = Threshold(0.2, "a fifth of a worker: without it, four workers do as much as five")


def find(s: StepFacts) -> StepOutcome:
    if missing := s.lacks("wall time", "host calls"):
        return s.abstain("The trace does not show what the host did.", *missing)
    late = [each for each in away(s) if not staged(s, each)]
    loads = _loads(s)
    s.useless.update(("loader-workers",) if loads else ("loader-workers", "batch-size"))
    ranges = ranges_during(s, late)
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
    name, inside = range_of(ranges, us)
    stacks = stacks_during(s, late)
    ran = functions_of(s, stacks)
    told = listed(ran, sum(stacks.values())) if sum(stacks.values()) >= MOST.value * us else ""
    loading = _Loading(s, stacks, name, inside, us)
    lines = tuple(dict.fromkeys(each.line for each in ran[:1] if told and each.line))
    lines = lines or places(s, late)
    title = ""
    if s.framework in ("torch", "") and loading.us >= MOST.value * us:
        title, (doing, advice) = LOADER, loading.answer()
        s.useless -= set() if loading.by_workers else {"loader-workers"}
    else:
        most = inside >= MOST.value * us
        between = f", after {' and before '.join(lines)}" * (len(lines) > 1)
        doing = (
            f"while the host is in {name}"
            if most
            else "while the host does something other than launching"
        )
        doing = f"{doing}{between}." if not told else f"while the host runs {told}."
        advice = _advice(s, late, us, name if most else "", loads, told)
    words = _words.for_stacks(s, "host-work", stacks)
    general = advice[1:] if title and any(each.needs for each in words) else advice
    advice = (*(each.advice for each in words), *general)
    some = units.counted(len(late), "long piece")
    found = s.finding(
        f"The GPU is idle for {s.of_step(us)} in {some}, {doing}",
        "high" if told or inside >= MOST.value * us else "medium",
        us,
        gaps=gaps,
        evidence=evidence,
        arithmetic=(
            f"{units.counted(len(late), 'piece')} of idle time add up to {units.duration(us)}, the longest {units.duration(longest)}.",
            *(f"{each.words(sum(stacks.values()))}: {units.duration(each.us)}." for each in ran[:_SHOWN] if told),
        ),
        advice=advice,
    )  # fmt: skip
    return msgspec.structs.replace(found, title=title, where=lines or found.where)


def _advice(
    s: StepFacts, late: Sequence[Away], us: float, name: str, loads: bool, told: str
) -> tuple[str, ...]:
    """What to do about work of the host that is no loader's. `name`: the range that most of it is in."""
    operator = name.partition(" ")[0]
    # work that ends with a copy to the GPU has made what is copied
    ends = [(s.ops[s.gaps[each.gaps[-1]].before], each.us) for each in late]
    made = sum(us for op, us in ends if op.path == "HtoD" and copied(op) == "bulk")
    if operator.startswith("aten::"):
        return (f'{operator} computes on the host: create the tensor on the GPU, device="cuda".',)
    advice = (_LOOK, _OTHER)[bool(told) or not s.framework :]
    if not told and not name and s.framework == "torch" and made >= MOST.value * us:
        s.useless -= {"loader-workers"} if loads else set()
        return (_ALONE.format("..."), _MORE) if loads else (*advice, _IF_LOADER)
    return advice


class _Loading:
    """Time in which the program waits for PyTorch's DataLoader, by Python's stacks, or by the range
    that PyTorch opens around it."""

    def __init__(
        self, s: StepFacts, stacks: Mapping[int, float], name: str, inside: float, us: float
    ) -> None:
        self.s = s
        self.own = {at: us for at, us in stacks.items() if self._in(at, _IN_LOADER)}
        self.us, self.range = sum(self.own.values()), ""
        if self.us < MOST.value * us and "dataloader" in name.lower():
            self.us, self.range = inside, name
        fetched = sum(us for at, us in self.own.items() if self._in(at, _FETCH))
        self.alone = "SingleProcess" in name or fetched >= MOST.value * self.us > 0.0
        """Whether the program makes its batches itself, without workers."""
        self.by_workers = not self.alone and (bool(self.own) or "MultiProcess" in name)

    def _frames(self, stack: int) -> list[Frame]:
        return [self.s.trace.frames[at] for at in self.s.trace.stacks[stack]]

    def _in(self, stack: int, module: str) -> bool:
        return any(module_of(frame) == module for frame in self._frames(stack))

    def answer(self) -> tuple[str, tuple[str, ...]]:
        """What the host does, for a sentence, and what to do."""
        s, ran, whole_us = self.s, functions_of(self.s, self.own), sum(self.own.values())
        told = f": {listed(ran, whole_us)}" * bool(ran)
        batches = self._batches()
        now_us, step_us = s.wall_us / batches, max(s.wall_us - self.us, 0.0) / batches
        if self.alone:
            needed = max(2, math.ceil(self.us / batches / step_us)) if step_us else "..."
            pace = f"Making a batch takes {units.duration(self.us / batches)}, the rest of the step {units.duration(step_us)}"
            advice = (_ALONE.format(needed), *self._dear(ran, whole_us, "of the time for a batch"))
            return f"while the program makes the batches itself{told}. {pace}.", advice
        starting = sum(us for at, us in self.own.items() if self._starts(at))
        if starting >= MOST.value * self.us:
            return f"while the DataLoader starts or ends its workers{told}.", (_KEEP,)
        waits = "for the workers of the DataLoader" if self.by_workers else f"in {self.range}"
        waits = f"while the program waits {waits}. It gets {_rate(now_us)} batches/s, and could take {_rate(step_us)}."
        if workers := self._workers():
            return self._pipeline(workers, waits, now_us, step_us)
        if self.by_workers:
            return waits, (_MORE, _CHEAPER, _IF_FEW)
        return waits, (_ALONE.format("..."), _MORE, _CHEAPER)

    def _starts(self, stack: int) -> bool:
        """Whether the loader starts or ends its workers."""
        frames = self._frames(stack)
        return any(module_of(x) == _IN_LOADER and _STARTS.match(x.function) for x in frames)

    def _pipeline(
        self, workers: Sequence[Mapping[int, float]], waits: str, now_us: float, step_us: float
    ) -> tuple[str, tuple[str, ...]]:
        """The same where the workers' own stacks are known."""
        working: dict[int, float] = defaultdict(float)
        seen = sum(us for each in workers for us in each.values())
        for each in workers:
            for stack, us in each.items():
                if not self._waits(stack):
                    working[stack] += us
        total = sum(working.values())
        busy, many = total / (seen or 1.0), len(workers)
        ran = functions_of(self.s, working)
        how = (
            f"{units.counted(many, 'worker')}, {units.percent(busy, 2)} busy: {listed(ran, total)}"
        )
        if busy < BUSY.value:
            pins = self._pins()
            advice = _PIN if pins else _BETWEEN
            return f"{waits} But the workers wait, too ({how}).", (advice, _IF_FEW)
        needed = math.ceil(many * busy * now_us / step_us) if step_us else 0
        more = f"num_workers={needed}" if needed > many else "num_workers=..."
        first = f"{more} (now {many}), with as many cores: {many} workers make {_rate(now_us)} batches/s, the step could take {_rate(step_us)}."
        return f"{waits} ({how}.)", (first, *self._dear(ran, total, "of a worker"))

    def _dear(self, ran: Sequence[HostTime], us: float, of: str) -> tuple[str, ...]:
        """What to do about the dearest functions, the user's transforms first."""
        advice = []
        for each in ran:
            if each.us >= DEAR.value * us:
                share = f"{function_of(each.frame)} is {units.percent(each.us / us, 2)} {of}"
                advice.append(f"{share}: {_words.for_function(each.frame)}")
        return tuple(advice[:2])

    def _waits(self, stack: int) -> bool:
        """Whether a worker waits for something to do: it takes from its queue of indices."""
        frames = self._frames(stack)
        modules = [*map(module_of, frames)]
        inner = modules[len(modules) - modules[::-1].index(_IN_WORKER) :]
        return not inner or (
            inner[0] == "multiprocessing/queues" and frames[-len(inner)].function.endswith("get")
        )

    def _workers(self) -> list[dict[int, float]]:
        """The stacks of each worker, over all steps."""
        windows = self.s.step.windows
        times = [(each.start, each.end, 1e-3) for each in windows]
        each_thread = (stacks_in(samples, times) for samples in self.s.samples.values())
        return [
            stacks for stacks in each_thread
            if any(self._in(at, _IN_WORKER) for at in stacks) and all(self._in(at, _IN_WORKER) for at in stacks)
        ]  # fmt: skip

    def _pins(self) -> bool:
        """Whether the thread that pins batches is busy with it."""
        for samples in self.s.samples.values():
            own = [x for x in samples if self._in(x.stack, _PINNING)]
            busy = [
                x for x in own if any(f.function == "pin_memory" for f in self._frames(x.stack))
            ]
            if sum(x.us for x in busy) > BUSY.value * sum(x.us for x in own):
                return True
        return False

    def _batches(self) -> int:
        """Batches that a step takes, by PyTorch's ranges around each; 1 where there are none."""
        trace, windows = self.s.trace, self.s.step.windows
        names = {at for at, name in enumerate(trace.names) if _NEXT.search(name)}
        marks = [mark.start for mark in trace.marks if mark.name in names]
        count = bisect_left(marks, windows[-1].end) - bisect_left(marks, windows[0].start)
        return max(1, round(count / len(windows)))


def _rate(us: float) -> str:
    """Batches a second, by the microseconds of one."""
    return units.significant(1e6 / us, 2) if us else "more"


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
        or _by_xla(ranges_during(s, [each]))
    ]
    gaps = sorted({at for each in own for at in each.gaps})
    us = min(sum(each.us for each in own), s.idle_us(gaps))
    most = MOST.value if s.steady else 1.0
    if sum(starmap(loaded, times)) < most * len(times) or not s.worth(us):
        return None
    named = ranges_during(s, own)
    modules = [
        name for name in sorted(named, key=lambda name: -named[name][0]) if name[:3] == "Xla"
    ]
    module = next(filter(None, map(_MODULE.search, modules)), None)
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


def _by_xla(ranges: Mapping[str, tuple[float, float]]) -> bool:
    """Whether the range with most of a time is XLA's."""
    return max(ranges, key=lambda name: ranges[name], default="").startswith("Xla")
