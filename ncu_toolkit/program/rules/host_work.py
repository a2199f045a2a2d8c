"""The GPU waits while the host does other work.

What it is
Between two launches the host does something else for hundreds of microseconds: it loads and prepares
data, computes in Python, compiles kernels for a new shape, writes a log, or waits for other processes.

Why it costs time
Nothing is queued meanwhile, so the GPU is idle just as long.

How to confirm
The idle time is in few, long gaps, each ended by a launch that began late, and the host made no
CUDA call in most of it. Where the trace holds Python's stacks (`ncu-toolkit profile`, or
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

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, starmap
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.program.model import Edit, StepFinding
from ncu_toolkit.program.rules import _host, _words
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact
from ncu_toolkit.program.rules._host import ALL, MOST, OTHER_WORK
from ncu_toolkit.program.rules._loader import ALONE, IF_SO, Loader

TITLE: Final = "CPU-bound (the GPU waits for Python or other host code)"
AGAIN: Final = "Code is compiled again and again"
LOADER: Final = "The GPU waits for the DataLoader"
ALSO_CALLED: Final = (AGAIN, LOADER)
#: Part of the time (0-1) from which a function, or a loader, has advice of its own.
_DEAR: Final = 0.2
#: Marks of XLA: XlaCompile:#module=jit_train_step#.
_MODULE: Final = re.compile(r"^Xla\w+:#(?:.*,)?module=(?:jit|pmap)_(\w+)")
#: Where JAX compiles.
_COMPILER: Final = re.compile(r"\bjax[/\\]_src[/\\]compiler\.py$")
_LOOK: Final = "A profiler of Python (py-spy record, cProfile) shows what: loading data, logging, saving, garbage collection, computing."
_NAMES: Final = (
    "`ncu-toolkit profile -- PROGRAM`, or torch.profiler with with_stack=True, names the functions."
)
_IF_LOADER: Final = "If a DataLoader makes the batches: num_workers=..., pin_memory=True."
_SHOWN: Final = 10
_OTHER: Final = (
    "Replace loops in Python by operations on whole arrays, or do this work on the GPU. Else do it less often, on another thread, or for "
    "the next step while the GPU computes this one."
)


def find(s: StepFacts) -> StepOutcome:
    if missing := s.lacks("wall time", "host calls"):
        return s.abstain("The trace does not show what the host did.", *missing)
    late = [each for each in _host.away(s) if not _host.staged(s, each)]
    loads = _loads(s)
    s.useless.update(("loader-workers",) if loads else ("loader-workers", "batch-size"))
    if late and (compiled := compiles(s, late)):
        return compiled
    late = [] if _host.dispatching(s) else late
    if not s.steady:
        return s.abstain("No step was found: the program's start is in the run too.", "step")
    gaps = sorted({at for each in late for at in each.gaps})
    us = min(sum(each.us for each in late), s.idle_us(gaps))
    longest = max((each.end - each.start for each in late), default=0) / 1e3
    evidence = (
        s.part("idle_long", "Idle in long gaps", us, "in which the GPU waited for a launch that came late by hundreds of microseconds."),
        fact("idle_longest", "Longest gap", longest, "us", "The longest of them.", OTHER_WORK),
    )  # fmt: skip
    if not s.worth(us):
        return s.ruled_out("The host never stops launching for long.", *evidence)
    edit = Edit(moved=s.ending(gaps))
    doing = _Doing(s, late, us, edit, loads)
    several, steps = units.counted(len(late), "long gap"), _in_steps(s, late)
    several = f"the mean step ({several}{steps})" if steps else several
    return s.finding(
        f"The GPU is idle for {s.of_step(us)} in {several}, {doing.words}",
        "high" if doing.sure else "medium",
        edit,
        gaps=gaps,
        evidence=evidence,
        arithmetic=(f"{units.counted(len(late), 'gap')} add up to {units.duration(us)}, the longest {units.duration(longest)}.", *doing.rows),
        advice=doing.advice,
        title=doing.title,
        where=doing.lines,
    )  # fmt: skip


class _Doing:
    """What the host does in idle time of `us` microseconds: by Python's stacks where there are enough,
    else by the ranges that cover it."""

    def __init__(
        self, s: StepFacts, late: Sequence[_host.Away], us: float, edit: Edit, loads: bool
    ) -> None:
        ranges = _host.ranges_during(s, late)
        name, inside = _host.range_of(ranges, us)
        most, stacks = inside >= MOST.value * us, _host.stacks_during(s, late)
        ran, seen_us = _host.functions_of(s, stacks), sum(stacks.values())
        named = _host.listed(ran, seen_us) if seen_us >= MOST.value * us else ""
        self.title = ""
        self.sure = bool(named) or (most and inside >= ALL.value * ranges[name][1])
        self.rows = tuple(
            f"{x.words(seen_us)}: {units.duration(x.us)}." for x in ran[:_SHOWN] if named
        )
        self.lines = tuple(each.line for each in ran[:1] if named and each.line) or places(s, late)
        words = _words.for_stacks(s, "host-work", stacks)
        loader = Loader(s, stacks, name, inside, edit)
        if loader.us >= MOST.value * us:
            self.title, (self.words, advice) = LOADER, loader.answer()
            self.sure = True
            s.useless -= set() if loader.by_workers else {"loader-workers"}
            advice = advice[loader.alone and any(each.needs for each in words) :]
        elif named:
            caller, place = ran[0].line, _host.place_of(ran[0].frame)
            called = _host.function_of(ran[0].frame)
            calls = f" {caller} calls {called}." * (caller not in ("", place))
            self.words = f"of which the host spends {named}.{calls}"
            several = loader.alone_advice() * (loader.us >= _DEAR * us)
            advice = (*several, *_words.dear(ran, seen_us, "of that"), _OTHER)
        else:
            between = f", between the calls at {' and '.join(self.lines)}" * (len(self.lines) > 1)
            self.words = f"while the host {f'is in {_host.range_words(ranges, us)}' if most else 'runs other code'}{between}."
            advice = _advice(s, late, us, name if most else "", loads)
        own = (each.advice.replace("{workers}", loader.needed) for each in words)
        self.advice = (*own, *advice)


def _advice(
    s: StepFacts, late: Sequence[_host.Away], us: float, name: str, loads: bool
) -> tuple[str, ...]:
    """What to do about work of the host whose functions are not known. `name`: the range that most is in."""
    operator = name.partition(" ")[0]
    # work that ends with a copy to the GPU has made what is copied
    ends = [(s.ops[s.gaps[each.gaps[-1]].before], each.us) for each in late]
    made = sum(us for op, us in ends if op.path == "HtoD" and _host.copied(op) == "bulk")
    if operator.startswith("aten::"):
        return (f'{operator} computes on the host: create the tensor on the GPU, device="cuda".',)
    look = _LOOK if s.trace.source.startswith("ncu-toolkit") else _NAMES
    advice = (look, _OTHER)[not s.framework :]
    if not name and s.framework == "torch" and made >= MOST.value * us:
        s.useless -= {"loader-workers"} if loads else set()
        return (ALONE.format("..."), IF_SO) if loads else (*advice, _IF_LOADER)
    return advice


def _loads(s: StepFacts) -> bool:
    """Whether PyTorch's DataLoader is seen: by its ranges, or by its thread, which only pins memory."""
    threads = grouped(s.trace.calls, lambda call: (call.process, call.thread)).values()
    pins = any(all("HostAlloc" in s.name(call) for call in calls) for calls in threads)
    return pins or any("dataloader" in name.lower() for name in s.trace.names)


def places(s: StepFacts, late: Sequence[_host.Away]) -> tuple[str, ...]:
    """The lines between which the host did the longest piece of that work: of the last call before it
    on its thread that has one, and of the call that it came back to."""
    most = max(late, key=lambda each: each.us)
    thread, calls = (most.back.process, most.back.thread), s.trace.calls
    upto = bisect_right(calls, most.start, key=lambda call: call.start)
    own = (c for c in reversed(calls[:upto]) if (c.process, c.thread) == thread and c.line >= 0)
    before = s.lines([(next(own, None), 1.0)])
    back = s.lines((each.back, each.us) for each in (most, *late))
    return tuple(dict.fromkeys((*before, *back)))[:2]


def _in_steps(s: StepFacts, late: Sequence[_host.Away]) -> str:
    """What follows their number where they are not of one step."""
    one = all(s.step.window.start <= each.start < s.step.window.end for each in late)
    return "" if one else f" in {len(s.step.windows)} steps"


def compiles(s: StepFacts, late: Sequence[_host.Away]) -> StepFinding | None:
    """Idle time that ends once code was loaded, if loading goes on: in half of the steps, or in each
    quarter of a run's work. Libraries load at first use, which is over after the first steps."""
    loads = [call.start for call in s.trace.calls if call.kind == "load"]

    def loaded(start: int, end: int) -> bool:
        return bisect_right(loads, end) > bisect_right(loads, start)

    times: list[tuple[int, int]] = [(window.start, window.end) for window in s.step.windows]
    if not s.steady:
        times = [*pairwise(s.ops[i * (len(s.ops) - 1) // 4].start for i in range(5))]
    if sum(starmap(loaded, times)) < (MOST.value if s.steady else 1.0) * len(times):
        return None
    # XLA tunes kernels on the GPU before it loads their code
    in_jax = s.stacks(lambda frame: _COMPILER.search(frame.file))

    def compiling(each: _host.Away) -> bool:
        if loaded(s.gaps[each.gaps[0]].start, each.launch.start):
            return True
        near, stacks = _host.ranges_during(s, [each]), _host.stacks_during(s, [each])
        of_xla = max(near, key=near.__getitem__, default="").startswith("Xla")
        return of_xla or sum(us * (at in in_jax) for at, us in stacks.items()) > each.us / 2

    own = [*filter(compiling, late)]
    gaps = sorted({at for each in own for at in each.gaps})
    us = min(sum(each.us for each in own), s.idle_us(gaps))
    least = MOST.value * sum(each.us for each in late) if _host.dispatching(s) else 0.0
    if not s.worth(us) or us < least:
        return None
    modules = Counter[str]()
    for mark in s.trace.marks:
        if mark.end > times[0][0] and (module := _MODULE.search(s.trace.names[mark.name])):
            modules[module[1]] += mark.end - mark.start
    what = "".join(f" {name}" for name, _ in modules.most_common(1))
    several, meaning = _in_steps(s, own), "in which the GPU waited and code was loaded."
    return s.finding(
        f"The GPU is idle for {s.of_step(us)} while the program compiles{what} or loads code ({units.counted(len(own), 'gap')}{several}). "
        f"That goes on {'from step to step' if s.steady else 'to the end of the run'}.",
        "high",
        Edit(moved=s.ending(gaps)),
        gaps=gaps,
        evidence=(s.part("idle_compiling", "Idle until code was loaded", us, meaning),),
        advice=s.advice("host-work compiles"),
        title=AGAIN,
        where=s.lines((each.back, each.us) for each in own),
    )
