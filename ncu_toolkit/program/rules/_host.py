"""Idle time of the GPU by what the host does in it."""

import re
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Final, Literal

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.cache import remembered
from ncu_toolkit.base.core.shares import grouped, summed
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import OTHER_WORK_US, Call, Mark, Op, PythonFrame, Sample
from ncu_toolkit.program.rules._facts import FEW, StepFacts
from ncu_toolkit.program.traces.builder import INSTALLED, own_code

#: Bytes per second.
STAGED: Final = Threshold(3e9, "a thread of the host copies 5 to 15 GB/s: what takes longer is more than a copy")  # fmt: skip
#: Microseconds.
OTHER_WORK: Final = Threshold(
    OTHER_WORK_US,
    "a framework takes 10 to 50 us for an operator, and up to 100 while it is recorded: a longer pause is other work",
)

#: Microseconds.
BRIEF: Final = Threshold(2.5, "what a copy of so few bytes takes, where its size is not recorded")
ALL: Final = Threshold(0.8, "a range of which a fifth is elsewhere says where the host is, not what it waits for")  # fmt: skip
MOST: Final = Threshold(0.5, "what fills half of the time is more of it than all else together")
#: Of a range's name: microseconds of a time, and how long the range itself lasts.
Ranges = Mapping[str, tuple[float, float]]
#: Functions that a sentence names, and the least part (0-1) of the time that one has.
_NAMED: Final = 3
_LEAST: Final = 0.05
#: Characters of a range's name.
_LONGEST: Final = 80
#: Python code that runs what others gave it, as `module: function`: loaders, containers of modules and
#: of transforms, training loops. A person changes what they run.
_PASSES: Final = re.compile(
    r"torch/utils/data/(dataloader|dataset|_utils/(fetch|worker|pin_memory)): |torch/nn/modules/(module|container): "
    r"|torch/(_dynamo|_compile|overrides|utils/(_contextlib|_device|_python_dispatch|hooks)|autograd/(grad_mode|function|graph))\b"
    r"|torch/optim/(optimizer|lr_scheduler): |torchvision/datasets/\w+: .*__getitem__$"
    r"|torchvision/transforms/(v2/_container: |transforms: (Compose\.|RandomApply\.)?__call__$)|tqdm/\w+: .*__iter__$"
    r"|(lightning|pytorch_lightning|lightning_fabric)/(.*/)?(loops|trainer|strategies|plugins|utilities|wrappers)\b"
    r"|transformers/(trainer: |pipelines/|\w*processing_utils|models/.*processing_\w+: .*(__call__|preprocess)$|utils/generic: )"
    r"|accelerate/"
)
#: What wraps a function of a library, by its name.
_WRAPS: Final = re.compile(
    r"(.*\.)?(wrapper|wrapped|inner|decorator|decorate_context|_fn|__torch_function__|<\w+>)$"
)
#: Parts of a function that were functions themselves before Python 3.12.
_INNER: Final = re.compile(r"<(\w*comp|genexpr|lambda)>$")
#: Modules of the standard library that run what they are given.
_GLUE: Final = frozenset(
    ("contextlib", "functools", "threading", "multiprocessing", "concurrent", "runpy", "importlib", "queue", "selectors", "asyncio", "abc")
)  # fmt: skip


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


@dataclass(frozen=True)
class HostTime:
    """A function that the host ran, with all that it called, for `us` microseconds."""

    frame: PythonFrame
    us: float
    mostly: str = ""
    """The function of another package in it that takes at least half of that."""
    line: str = ""
    """The user's line that called it."""

    def words(self, whole_us: float) -> str:
        """`86 % in scipy.ndimage.zoom (_interpolation.py:739)`."""
        mostly = f"; mostly {self.mostly}" * bool(self.mostly)
        return f"{units.percent(self.us / whole_us, 2)} in {function_of(self.frame)} ({place_of(self.frame)}{mostly})"


ALONE: Final = Threshold(2 / 3, "a module of a whole step has several kernels of each kind, with numbers")  # fmt: skip
_SOME: Final = 16  #: Launches, of which that part says something.
_OF_XLA: Final = re.compile(r"fusion|^wrapped_")
_OF_JAX: Final = re.compile(r"(?:^|[/\\])jax[/\\]")


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
    """Whether the host spent the time on its own side of copies to the GPU: XLA copies arrays of NumPy
    into pinned memory first, PyTorch converts a tensor at the line that copies it (`x.type_as(y)`)."""
    at, frames, stacks = s.gaps[each.gaps[-1]].before, s.trace.frames, s.trace.stacks
    if s.framework != "xla" or at < 0:
        copies = (i for i, op in enumerate(s.ops) if op.path == "HtoD" and copied(op) == "bulk")
        lines, ran = s.where(copies), stacks_during(s, [each]).items()
        own = (us for x, us in ran for i in stacks[x][-1:] if place_of(frames[i]) in lines)
        return sum(own) > MOST.value * each.us
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
        after = gaps[min(at + 1, len(gaps) - 1)]  # the last is itself
        # A copy that ends the idle time has a piece for itself, from its call to its start.
        starved = gap.cause == "sync" and at in s.claimed
        ends = after.call == gap.call or (starved and after.cause == "copy")
        goes_on = (after.start, after.before) == (gap.end, gap.before) and not ends
        if goes_on or not (gap.cause == "host late" or starved) or gap.call < 0:
            continue
        launch = calls[gap.call]
        if starved:  # by the first work that the waiting thread queues then
            thread = launch.process, launch.thread
            then = (c for c in calls[gap.call + 1 :] if (c.process, c.thread) == thread)
            launch = next((c for c in then if c.kind in ("launch", "copy", "set", "graph")), launch)
        pieces = tuple(i for i in range(first, at + 1) if gaps[i].cause in ("host late", "sync"))
        held = {calls[gaps[i].call] for i in range(first, at + starved) if gaps[i].call >= 0}
        free = gaps[first].start
        for call in (*sorted(held, key=lambda call: call.start), launch):
            if call.start - free >= OTHER_WORK.value * 1e3:
                yield Away(pieces, free, call.start, launch, call, gap.part)
            free = max(free, call.end)


# What the host runs meanwhile


def stacks_in(
    samples: Sequence[Sample], times: Iterable[tuple[int, int, float]]
) -> dict[int, float]:
    """The microseconds of each stack of one thread in times, which have start, end and the
    microseconds that a nanosecond counts for."""
    found: dict[int, float] = defaultdict(float)
    for start, end, weight in times:
        first = bisect_right(samples, start, key=lambda each: each.end)
        last = bisect_left(samples, end, key=lambda each: each.start)
        for sample in samples[first:last]:
            inside = min(sample.end, end) - max(sample.start, start)
            found[sample.stack] += inside * weight
    return found


def stacks_during(s: StepFacts, late: Iterable[Away]) -> dict[int, float]:
    """The microseconds of each stack that the host ran in that time: on the thread that launches then,
    or, where that is none of Python's (autograd's), on the thread of its process that ran most."""
    found: list[dict[int, float]] = []
    for each in late if s.samples else ():
        time = ((each.start, each.end, each.part / 1e3),)
        own = stacks_in(s.samples.get((each.launch.process, each.launch.thread), ()), time)
        if sum(own.values()) < MOST.value * each.us:
            others = (x for (process, _), x in s.samples.items() if process == each.launch.process)
            seen = (stacks_in(each, time) for each in others)
            own = max(seen, key=lambda stacks: sum(stacks.values()), default={})
        found.append(own)
    return summed(pair for stacks in found for pair in stacks.items())


def eager(s: StepFacts) -> bool:
    """Whether JAX runs operator by operator. XLA numbers the kernels of a module that are of one kind
    (`loop_add_fusion_3`); an operator alone is a module with one kernel, which has no number."""
    names = [launch.function for launch in s.launches if launch]
    alone = sum(_OF_XLA.search(name) is not None and not name[-1].isdigit() for name in names)
    return s.framework == "xla" and alone >= max(_SOME, ALONE.value * len(names))


@remembered(4)
def dispatching(s: StepFacts) -> list[Away]:
    """Long pieces of idle time in which JAX itself traces and dispatches operators, outside of
    jax.jit, by most of the stacks seen then. None where the program's own code runs."""
    late = [each for each in away(s) if not staged(s, each)] if eager(s) else []
    ran = functions_of(s, stacks_during(s, late))
    of_jax = sum(each.us for each in ran if _OF_JAX.search(each.frame.file))
    return late if of_jax > MOST.value * sum(each.us for each in late) else []


def functions_of(s: StepFacts, stacks: Mapping[int, float]) -> list[HostTime]:
    """What stacks are named for, those with most time first; `_place_of_name` says how a function is
    chosen."""
    trace, found = s.trace, []
    known = (([trace.frames[at] for at in trace.stacks[x]], us) for x, us in stacks.items())
    named = [(frames, _place_of_name(frames), us) for frames, us in known if frames]
    for group in grouped(named, lambda x: (x[0][x[1]].function, x[0][x[1]].file)).values():
        us = sum(each for _, _, each in group)
        shown = summed((frames[at], time) for frames, at, time in group)
        callers = ([x for x in frames[:at] if own_code(x.file)] for frames, at, _ in group)
        called = (place_of(own[-1]) if own else "" for own in callers)
        lines = summed(zip(called, (time for _, _, time in group), strict=True))
        most, line = max(shown, key=shown.__getitem__), max(lines, key=lines.__getitem__)
        found.append(HostTime(most, us, _mostly(group, us), line))
    return sorted(found, key=lambda each: -each.us)


def _place_of_name(frames: Sequence[PythonFrame]) -> int:
    """The place of the function that a stack is named for: what a person would change or call less.

    That is the library's function which the innermost code of the user's calls, or code that only
    runs what it was given (_PASSES): `ColorJitter.forward` of a list of transforms, not the helper in
    which it spends its time, and not the `main` that all time is in. What the standard library does
    counts for who calls it, unless that is the user. Without such a function it is the user's own
    innermost, and so is a function that the user's transform or dataset calls: `random_elastic`, not
    the `numpy.roll` in it. A loader that waits for its workers is named itself, a module of PyTorch's for its caller."""
    kinds = [*map(_kind, frames)]
    last = max((i for i, kind in enumerate(kinds) if kind in ("own", "passes")), default=-1)
    outer = max(last, 0)
    while outer and kinds[outer - 1] == "own" and _INNER.search(frames[outer].function):
        outer -= 1
    if outer > 1 and kinds[outer - 1] == kinds[last] == "own" and "passes" in kinds[:outer]:
        return outer
    wanted = ("library", "standard") if last >= 0 and kinds[last] == "own" else ("library",)
    inside = [i for i in range(last + 1, len(frames)) if kinds[i] in wanted]
    inside = [i for i in inside if not _WRAPS.match(frames[i].function)] or inside
    if inside:
        return inside[0]
    if last < 0:
        return 0
    if kinds[last] == "passes" and _parts(frames[last].file)[0] == "torch":
        while outer and _parts(frames[outer - 1].file)[0] == "torch":
            outer -= 1
        if outer and not module_of(frames[outer]).startswith("torch/utils/data"):
            outer -= 1
    return outer


def _mostly(group: Sequence[tuple[list[PythonFrame], int, float]], us: float) -> str:
    """The innermost function that a library calls of another one and that has at least half of the
    time; empty where there is none."""
    time: dict[PythonFrame, float] = defaultdict(float)
    depth: dict[PythonFrame, int] = {}
    for frames, at, each in group:
        package = _parts(frames[at].file)[0]
        for i in range(at + 1, len(frames)):
            if _kind(frames[i]) in ("library", "own"):
                parts = _parts(frames[i].file)
                if parts[0] != package and frames[i] not in frames[at:i]:
                    time[frames[i]] += each
                    depth[frames[i]] = max(depth.get(frames[i], 0), i)
                package = parts[0]
    able = [frame for frame in time if time[frame] >= MOST.value * us]
    inner = max(able, key=depth.__getitem__, default=None)
    return f"{function_of(inner)}, {place_of(inner)}" if inner else ""


@lru_cache(maxsize=1 << 14)
def _kind(frame: PythonFrame) -> Literal["own", "passes", "library", "standard", "glue"]:
    parts = _parts(frame.file)
    standard = parts[0] in sys.stdlib_module_names
    if own_code(frame.file):
        return "own"
    if standard or frame.file.startswith("<"):
        return "glue" if parts[0] in _GLUE or frame.file.startswith("<") else "standard"
    passes = _PASSES.match(f"{'/'.join(parts)}: {frame.function}")
    return "passes" if passes else "library"


@lru_cache(maxsize=1 << 14)
def _parts(file: str) -> tuple[str, ...]:
    """Package, folders and module of a file: `("torch", "optim", "adam")`."""
    return tuple(re.split(r"[/\\]", INSTALLED.sub("", file).removesuffix(".py")))


def module_of(frame: PythonFrame) -> str:
    """`torch/optim/adam`."""
    return "/".join(_parts(frame.file))


def function_of(frame: PythonFrame) -> str:
    """`torch.nn.utils.clip_grad_norm_`, `augment` of the user's own: its module is in `place_of`."""
    if own_code(frame.file):
        return frame.function.replace("<module>", "the program")
    *folders, module = _parts(frame.file)
    names = [name for name in folders if not name.startswith("_")] or [module]
    if len(names) > 3:
        names = [names[0], names[-1]]
    return f"{'.'.join(names)}.{frame.function}".replace("<module>", "import")


def place_of(frame: PythonFrame) -> str:
    """`train.py:33`."""
    name = re.split(r"[/\\]", frame.file)[-1]
    return f"{name}:{frame.line}" if frame.line else name


def listed(times: Sequence[HostTime], whole_us: float) -> str:
    """The functions with most of a time, in words; empty where none has enough of it."""
    worth = [each for each in times[:_NAMED] if each.us >= _LEAST * whole_us]
    return units.listed([each.words(whole_us) for each in worth])


def ranges_during(s: StepFacts, late: Iterable[Away]) -> dict[str, tuple[float, float]]:
    """What the program named of that time, by its operators and ranges, and long calls of CUDA, on
    the thread that launches then: microseconds of the time, and how long the ranges themselves last.

    Ranges that are in it for less than half of their time explain none of it, unless they end there:
    of those only what is in it counts. Nor do ranges around a whole step, and an operator that goes
    on, which makes the launch that ends the time."""
    inside: dict[Mark | Call, tuple[int, float]] = {}
    ends: set[Mark | Call] = set()
    opened: dict[tuple[int, int], tuple[int, list[Mark | Call]]] = {}
    late = sorted(late, key=lambda each: each.start)
    typical = s.step.window
    alone = all(typical.start <= each.start < typical.end for each in late)
    low, high = (typical.start, typical.end) if alone else (0, s.step.windows[-1].end)
    for each in late:
        thread = each.launch.process, each.launch.thread
        marks = s.ranges.get(thread, [])
        following, before = opened.get(thread, (0, []))
        upto = bisect_right(marks, each.end - 1, key=lambda mark: mark.start)
        around = [mark for mark in (*before, *marks[following:upto]) if mark.end > each.start]
        opened[thread] = max(following, upto), around
        for mark in around:
            length = min(mark.end, each.end) - max(mark.start, each.start)
            before_ns, before_us = inside.get(mark, (0, 0.0))
            inside[mark] = before_ns + length, before_us + length * each.part / 1e3
            if each.start < mark.end <= each.end:
                ends.add(mark)
    found: dict[str, tuple[float, float]] = {}
    within: dict[str, Mark | Call] = {}
    for mark in sorted(inside, key=lambda mark: (mark.start, -mark.end)):
        name = s.trace.names[mark.name]
        outer = within.get(name)
        if outer and outer.thread == mark.thread and mark.end <= outer.end:
            continue  # a function that calls itself
        ns, more = inside[mark]
        length = ns if mark in ends else max(ns, min(mark.end, high) - max(mark.start, low))
        goes_on = isinstance(mark, Mark) and mark.kind == "operator" and mark not in ends
        everything = mark.start <= typical.start and mark.end >= typical.end
        if ns >= MOST.value * length and not goes_on and not everything:
            us, whole = found.get(name, (0.0, 0.0))
            found[name], within[name] = (us + more, whole + length / 1e3), mark
    return found


def range_of(found: Ranges, us: float) -> tuple[str, float]:
    """The most particular range that has at least half of a time, and for how long: the one that
    lasts shortest. Where none has, the one with most."""
    able = {name: each for name, each in found.items() if each[0] >= MOST.value * us}
    if able:
        name = min(able, key=lambda name: able[name][1])
        return name, able[name][0]
    name = max(found, key=lambda name: found[name][0], default="")
    return name, found.get(name, (0.0, 0.0))[0]


def range_words(found: Ranges, us: float) -> str:
    """The range with most of a time and the most particular one in it; empty where none has half."""
    name = max(found, key=lambda name: (found[name][0], found[name][1]), default="")
    inner, inside = range_of(found, us)
    if inside < MOST.value * us:
        return ""
    outer = f"{_cut(name)} ({units.duration(found[name][0])})"
    return outer if inner == name else f"{outer}, mostly {_cut(inner)}"


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
