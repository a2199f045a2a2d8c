"""A step as its rules ask it. Work is named by its place in `Step.ops`, a gap by its place in
`Account.gaps`. All facts are computed once, when first asked for; times are microseconds."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Final, Literal

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.shares import grouped, summed
from ncu_toolkit.base.model import Device, Evidence, Launch, NoFinding, Profile
from ncu_toolkit.kernel.diagnosis import kernel
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.kernel.diagnosis.time_model import FLOOR_US
from ncu_toolkit.program.model import (
    OTHER_WORK_US,
    Account,
    Call,
    CallKind,
    Edit,
    GapCause,
    Lack,
    Mark,
    Op,
    PythonFrame,
    Sample,
    Step,
    StepFinding,
)
from ncu_toolkit.program.rules._tables import tables
from ncu_toolkit.program.traces.classes import arithmetic, kernel_class, operation
from ncu_toolkit.program.traces.marks import marks_around
from ncu_toolkit.program.traces.replay import Replay

#: A cause that would save less of the step is not worth a finding.
WORTH: Final = Threshold(0.03, "steps of one program differ by 1 to 3% of their time, so that less cannot be seen")  # fmt: skip
KERNELS_TOO: Final = Threshold(0.2, "where kernels of a chain take less, launching is what costs, and a CUDA graph does as well")  # fmt: skip
#: Bytes.
FEW: Final = Threshold(
    4096.0,
    "a copy takes 1 to 2 us whatever it holds, and a link of 10 GB/s adds less than half of one for so little",
)
#: Lines named with a finding.
_LINES: Final = 3
Confidence = Literal["high", "medium", "low"]
StepOutcome = StepFinding | NoFinding
Framework = Literal["torch", "xla", "cupy", "numba", ""]
#: The range that PyTorch opens for an optimizer's update.
_OPTIMIZER: Final = "Optimizer.step"
#: Operators that run what torch.compile made, and kernels of TorchInductor.
_COMPILED: Final = re.compile(
    r"^(?:CompiledFunction|CompiledFxGraph|## Call CompiledFxGraph|Torch-Compiled Region|triton_(?:poi|red|per|for)_fused)"
)


#: Where PyTorch's DataLoader waits for its workers: functions, and the range around it.
_LOADER_WAITS: Final = re.compile(r"(^|\.)(_get_data|_try_get_data)$")
LOADER_RANGE: Final = re.compile(r"DataLoader\b.*__next__")
#: Kinds of calls that the host takes for itself.
_ALONE: Final = ("load", "graph", "other")


class StepFacts:
    """The typical step of a program, and the account of its time."""

    def __init__(
        self, step: Step, account: Account, profiles: Mapping[int, Profile | None] = {}
    ) -> None:
        #: What a report's counters say of a kernel, by its place in `Trace.shapes`.
        self.profiles = profiles
        self.step, self.account, self.trace = step, account, step.trace
        self.ops: tuple[Op, ...] = step.ops
        self.gaps = account.gaps
        self.wall_us, self.share = account.wall_us, account.share
        self.word = step.word
        #: Gaps that another finding has: of launches that it would merge, of copies that it counts, of
        #: a loader, or other code, that would be as late if the host had not waited for the GPU before.
        self.claimed: frozenset[int] = frozenset(self._starved())
        #: Ids of switches that rules saw to be of no use in this program.
        self.useless: set[str] = set()

    # What the trace holds

    def lacks(self, *names: Lack) -> tuple[str, ...]:
        """Those of `names` that the trace lacks."""
        return tuple(name for name in names if name in self.trace.lacks)

    @property
    def steady(self) -> bool:
        """Whether the step is one of several alike, not the whole run with its start."""
        return self.step.how != "whole"

    @cached_property
    def device(self) -> Device | None:
        """The GPU with most of the step's work; None where the trace names none."""
        places = Counter(op.device for op in self.ops).most_common(1)
        return self.trace.devices[places[0][0]] if places and self.trace.devices else None

    # Work

    @cached_property
    def launches(self) -> tuple[Launch | None, ...]:
        """The kernel of each op; None for copies and sets."""
        shapes = self.trace.shapes
        return tuple(shapes[op.shape] if op.kind == "kernel" else None for op in self.ops)

    def kernel(self, at: int) -> str:
        """The name of an op's kernel; "" of copies and sets."""
        launch = self.launches[at]
        return launch.kernel if launch else ""

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The id of each op's kernel class (`program/traces/classes.py`); of others their kind."""
        of = [kernel_class(shape).id for shape in self.trace.shapes]
        return tuple(of[op.shape] if op.kind == "kernel" else op.kind for op in self.ops)

    @cached_property
    def arithmetic(self) -> tuple[str, ...]:
        """The arithmetic that each op's name proves; "" where it proves none."""
        return tuple(arithmetic(launch.kernel) if launch else "" for launch in self.launches)

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """What each kernel computes, in a word (`operation`), by its name, else by its innermost operator
        that says so; "" where nothing tells."""
        plain = ([x.partition("(")[0].partition("[")[0] for x in chain] for chain in self.operators)
        named = ((self.kernel(at), *reversed(chain)) for at, chain in enumerate(plain))
        return tuple(next(filter(None, map(operation, names)), "") for names in named)

    @cached_property
    def queues(self) -> tuple[tuple[int, ...], ...]:
        """Work of each stream in the order in which it ran."""
        found = grouped(range(len(self.ops)), lambda at: self.ops[at].queue)
        return tuple(map(tuple, found.values()))

    def us(self, places: Iterable[int]) -> float:
        """Wall time that work alone accounts for."""
        return sum(self.account.exclusive_us[at] for at in places)

    def moved(self, places: Iterable[int]) -> int | None:
        """Bytes of copies; None where those of one are not recorded."""
        sizes = [self.ops[at].size for at in places]
        return None if None in sizes else sum(filter(None, sizes))

    def of_class(self, *names: str) -> list[int]:
        return [at for at, name in enumerate(self.classes) if name in names]

    # Idle time

    def idle(self, *causes: GapCause) -> list[int]:
        return [at for at, gap in enumerate(self.gaps) if gap.cause in causes]

    def _starved(self) -> Iterator[int]:
        """Long gaps after a synchronisation in most of which the host waits for workers of PyTorch's
        DataLoader, or runs code before the next call with what it copied back."""
        stacks = self.stacks(
            lambda x: x.file.endswith("dataloader.py") and _LOADER_WAITS.search(x.function)
        )
        names = {i for i, name in enumerate(self.trace.names) if LOADER_RANGE.search(name)}
        names = {i for i in names if "MultiProcess" in self.trace.names[i]}
        known: list[Mark | Sample] = [x for x in self.trace.samples if x.stack in stacks]
        known = known or [mark for mark in self.trace.marks if mark.name in names]
        read = {x.call for x in self.trace.ops if x.path == "DtoH" and (x.size or 0) > FEW.value}
        for at in self.idle("sync"):
            gap = self.gaps[at]
            inside = sum(max(0, min(x.end, gap.end) - max(x.start, gap.start)) for x in known)
            if gap.call in read:
                inside += gap.end - max(gap.start, self.trace.calls[gap.call].end)
            length = gap.end - gap.start
            if length >= OTHER_WORK_US * 1e3 and inside >= length / 2:
                yield at

    def idle_us(self, places: Iterable[int]) -> float:
        return sum(self.gaps[at].us for at in places)

    def idle_times(self, places: Iterable[int]) -> int:
        """How many times the GPU fell idle there: a gap in `gaps` may be a piece of one."""
        ends = {gap.end for gap in self.gaps}
        numbers = [*accumulate(gap.start not in ends for gap in self.gaps)]
        return len({numbers[at] for at in places})

    # The host

    def call(self, at: int) -> Call | None:
        """The call that queued an op, if known."""
        place = self.ops[at].call if 0 <= at < len(self.ops) else -1
        return self.trace.calls[place] if place >= 0 else None

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Calls that began in the step."""
        window = self.step.window
        return tuple(c for c in self.trace.calls if window.start <= c.start < window.end)

    def name(self, call: Call) -> str:
        return self.trace.names[call.name]

    @cached_property
    def operators(self) -> tuple[tuple[str, ...], ...]:
        """The framework's operators, outermost first, in which each op was queued."""
        return self.within([self.call(at) for at in range(len(self.ops))])

    def operator(self, at: int) -> str:
        """The innermost operator of PyTorch in which an op was queued, without its shapes; "" if
        unknown."""
        names = (name for name in reversed(self.operators[at]) if name.startswith("aten::"))
        return next(names, "").partition(" ")[0].partition("(")[0].partition("[")[0]

    def within(self, calls: Sequence[Call | None]) -> tuple[tuple[str, ...], ...]:
        """The operators, outermost first, that were open on a call's thread as it began."""
        chains = marks_around(calls, self._operator_marks)
        return tuple(tuple(self.trace.names[mark.name] for mark in chain) for chain in chains)

    @cached_property
    def _operator_marks(self) -> list[Mark]:
        marks, names = self.trace.marks, self.trace.names
        return [m for m in marks if m.kind == "operator" or names[m.name].startswith(_OPTIMIZER)]

    @cached_property
    def ranges(self) -> dict[tuple[int, int], list[Mark | Call]]:
        """Of each thread of a process, by start: operators, ranges, and long calls of CUDA that wait
        for no work of the GPU (loading code, making a graph)."""
        marks = (mark for mark in self.trace.marks if mark.kind != "step")
        long = (call for call in self.trace.calls if call.kind in _ALONE)
        calls = (call for call in long if call.end - call.start >= OTHER_WORK_US * 1e3)
        ranges: list[Mark | Call] = [*marks, *calls]
        ranges.sort(key=lambda each: (each.start, -each.end))
        return grouped(ranges, lambda each: (each.process, each.thread))

    @cached_property
    def samples(self) -> dict[tuple[int, int], list[Sample]]:
        """Python's stacks of each thread of a process, by their start."""
        return grouped(self.trace.samples, lambda each: (each.process, each.thread))

    def stacks(self, wanted: Callable[[PythonFrame], object]) -> set[int]:
        """Stacks with such a function, by their places in `Trace.stacks`."""
        own = {at for at, frame in enumerate(self.trace.frames) if wanted(frame)}
        return {at for at, stack in enumerate(self.trace.stacks) if not own.isdisjoint(stack)}

    def where(self, places: Iterable[int]) -> tuple[str, ...]:
        """The user's lines that queued work, those with most time first."""
        return self.lines((self.call(at), self.account.exclusive_us[at]) for at in places)

    def waited(self, gaps: Iterable[int]) -> tuple[str, ...]:
        """The user's lines of the calls that explain gaps, or else of the work that ended them,
        those with most idle time first."""
        calls = self.trace.calls
        return self.lines(
            (calls[gap.call] if gap.call >= 0 else self.call(gap.before), gap.us)
            for gap in (self.gaps[at] for at in gaps)
        )

    def lines(self, timed: Iterable[tuple[Call | None, float]]) -> tuple[str, ...]:
        """The user's lines of calls with their time, those with most of it first."""
        time = summed((call.line, us) for call, us in timed if call and call.line >= 0)
        lines = sorted(time, key=lambda line: -time[line])
        return tuple(self.trace.lines[line] for line in lines[:_LINES])

    # Who made it

    @cached_property
    def framework(self) -> Framework:
        """The framework that launched most of the step's kernels: its own kernels prove it, or
        operators that the trace names."""
        made = Counter(kernel.made_by(launch.kernel) for launch in self.launches if launch)
        for name in ("torch", "xla", "cupy", "numba"):
            if made[name]:
                return name
        outer = (chain[0] for chain in self.operators if chain)
        torch = any(name.startswith(("aten::", "autograd::", "torch")) for name in outer)
        return "torch" if torch else ""

    @cached_property
    def compiled(self) -> bool:
        """Whether code of torch.compile runs in the step, by its operators and kernels."""
        names = {name for chain in self.operators for name in chain}
        names |= {launch.function for launch in self.launches if launch}
        return any(map(_COMPILED.search, names))

    def advice(
        self, cause: str, torch: Sequence[str] | None = None, **words: str
    ) -> tuple[str, ...]:
        """What to do about a cause in the step's framework, else in CUDA C++: lines of
        data/libraries.toml with `words` in them, unless those for `torch` are given."""
        if self.framework == "torch" and torch is not None:
            return tuple(torch)
        known = tables().frameworks[cause]
        compiled = self.framework == "torch" and "compiled" in known and self.compiled
        lines = known.get("compiled" if compiled else self.framework, known.get("", ()))
        return tuple(line.format(**words) for line in lines)

    # Changes

    @cached_property
    def replay(self) -> Replay:
        return Replay(self.step, self.account)

    def faster(self, ops: Iterable[int], part: float = 0.0) -> Edit:
        """Work that takes this part (0-1) of its time, at another rate or with fewer bytes."""
        return Edit(keeps=dict.fromkeys(ops, part))

    def longest(self, places: Iterable[int]) -> float:
        """Microseconds of the longest of some operations."""
        return max(map(self.account.exclusive_us.__getitem__, places))

    def merged(
        self, groups: Iterable[Sequence[int]], us: Iterable[float] = (), most: bool = True
    ) -> Edit:
        """Of each group one launch that takes this many microseconds, or as long as its longest, as a
        pass over the data does. Unless launches are `most` of what groups cost, only their kernels'
        time is saved where that is little of the step: launching is what costs then, and a CUDA graph
        does as well."""
        groups = [*groups]
        times = [*us] or [*map(self.longest, groups)]
        places = [at for group in groups for at in group]
        if not most and not self.worth(whole := self.us(places), KERNELS_TOO):
            return self.faster(places, sum(times) / whole if whole else 1.0)
        firsts = {group[0]: time for group, time in zip(groups, times, strict=True)}
        exclusive = self.account.exclusive_us
        keeps = {at: us / (exclusive[at] or self.ops[at].us or 1.0) for at, us in firsts.items()}
        return Edit(keeps=keeps, drops=frozenset(places) - firsts.keys())

    def moving(self, ops: Iterable[int], part: float) -> float:
        """What one launch takes that moves this part (0-1) of the bytes of all of `ops`, in
        microseconds: each takes `FLOOR_US` without any."""
        times = map(self.account.exclusive_us.__getitem__, ops)
        return FLOOR_US + part * sum(max(0.0, us - FLOOR_US) for us in times)

    def filled(self, at: int) -> float:
        """The part (0-1) of the SMs for which a launch has a block, 1 where that is not known; a copy
        needs none."""
        launch, sms = self.launches[at], self.device.sm_count if self.device else 0
        if launch and launch.blocks and sms:
            return min(1.0, launch.blocks / sms)
        return float(launch is not None)

    def alongside(self, ops: Sequence[int], period: int = 1) -> float:
        """What passes of `period` launches each take side by side on all SMs, in microseconds: the
        longest of each of a pass's launches takes its time all the same."""
        us = self.account.exclusive_us
        longest = (max(us[at] for at in ops[i::period]) for i in range(period))
        return max(sum(us[at] * self.filled(at) for at in ops), sum(longest))

    def left(self, edit: Edit, ops: Iterable[int]) -> float:
        """What work takes after a change, in microseconds."""
        kept = (at for at in ops if at not in edit.drops)
        return sum(self.account.exclusive_us[at] * edit.keeps.get(at, 1.0) for at in kept)

    def made(self, *kinds: CallKind) -> frozenset[int]:
        """The host's calls of these kinds, by their places in `Trace.calls`."""
        return frozenset(at for at, call in self.replay.calls if call.kind in kinds)

    def queuing(self, ops: Iterable[int]) -> frozenset[int]:
        """The calls that queued work, by their places in `Trace.calls`."""
        return frozenset(self.ops[at].call for at in ops)

    def ending(self, gaps: Iterable[int]) -> frozenset[int]:
        """The work that ended gaps."""
        return frozenset(self.gaps[at].before for at in gaps if self.gaps[at].before >= 0)

    # Outcomes

    def finding(
        self,
        summary: str,
        confidence: Confidence,
        edit: Edit,
        *,
        ops: Iterable[int] = (),
        gaps: Iterable[int] = (),
        evidence: Sequence[Evidence] = (),
        arithmetic: str | Sequence[str] = (),
        advice: Sequence[str] = (),
        title: str = "",
        rule: str = "",
        where: tuple[str, ...] = (),
    ) -> StepFinding:
        """A finding of the rule that asks (`program/diagnosis.py` adds its name and its
        title, unless others are given). `edit`: the change of the step that its fix is. Of a whole run, whose start is in it, none is "high"."""
        ops, gaps = tuple(ops), tuple(gaps)
        if not self.steady and confidence == "high":
            confidence = "medium"
        saved, took, left = self.replay.saved_us(edit), self.us(ops), self.left(edit, ops)
        stays = f"Of {units.duration(took)} in {'these launches' if len(ops) > 1 else 'it'} {units.duration(left)} stay."
        now, then = units.duration(self.wall_us), units.duration(self.wall_us - saved)
        replayed = f"Replayed with that, the {self.word} takes {then} instead of {now}."
        return StepFinding(
            rule=rule,
            title=title,
            summary=summary,
            confidence=confidence,
            ceiling_us=saved,
            frees_us=took - left,
            edit=edit,
            ops=ops,
            gaps=gaps,
            evidence=tuple(evidence),
            arithmetic=(
                *filter(None, (arithmetic,) if isinstance(arithmetic, str) else arithmetic),
                *[stays] * (0 < left < took),
                *[replayed] * (self.trace.timed and saved > 0),
            ),
            advice=tuple(advice),
            where=where or self.where(ops) or self.waited(gaps),
        )

    def ruled_out(self, reason: str, *evidence: Evidence) -> NoFinding:
        return NoFinding("", "ruled out", reason, evidence)

    def abstain(self, reason: str, *missing: str) -> NoFinding:
        return NoFinding("", "abstained", reason, (), missing)

    def ruled_out_by_grids(self, reason: str, *evidence: Evidence) -> NoFinding:
        """As `ruled_out`; abstains where kernels of a share worth a finding have no grid recorded."""
        shapes = enumerate(self.launches)
        us = self.us(at for at, launch in shapes if launch is not None and not launch.blocks)
        if not self.worth(us):
            return self.ruled_out(reason, *evidence)
        return self.abstain(
            f"The trace does not hold the grids of kernels that take {self.of_step(us)}.", "grid"
        )

    def worth(self, us: float, limit: Threshold = WORTH) -> bool:
        return self.share(us) >= limit.value

    def of_step(self, us: float) -> str:
        """`12.5 ms (27 % of the step)`."""
        whole = f"the {self.word}" if self.trace.timed else "kernel time"
        return f"{units.duration(us)} ({units.percent(self.share(us), 2)} of {whole})"

    def part(
        self, metric: str, label: str, us: float, meaning: str, limit: Threshold | None = WORTH
    ) -> Evidence:
        """A time as part of the step's, as evidence with the limit that it must reach. `meaning`: which
        part, as "in copies."."""
        text = f"Part of the {self.word} {meaning}"
        return fact(metric, label, self.share(us), "fraction", text, limit)


def fact(
    metric: str, label: str, value: float, unit: str, meaning: str, limit: Threshold | None = None
) -> Evidence:
    """A figure of the step as evidence, with the limit that it should reach only where it does."""
    figure = Evidence(metric, label, float(value), unit, meaning)
    if limit is None:
        return figure
    stated = replace(figure, threshold=limit.value, comparison=">=", source=limit.source)
    return stated if stated.holds else figure
