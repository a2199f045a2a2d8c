"""The step of a program: what its author marked, else what repeats, else all of it.

A step is a stretch of time: it begins with its first work and lasts until the next step's first
work begins, so that idle time belongs to it. Of several processes or GPUs, the one with the most
kernel time has the step.

Repetition is searched for in the order in which the host queued the work, where the trace knows it:
streams that run side by side change the order of starts, not of calls."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.model.profile import Launch
from ncu_toolkit.program.model import Mark, Step, Trace, Window
from ncu_toolkit.program.traces.builder import MODULE
from ncu_toolkit.program.traces.classes import collectives, kernel_class
from ncu_toolkit.program.traces.marks import range_name

Array = np.ndarray[Any, Any]
#: Part of a step's work that must be that of the step after it.
ALIKE: Final = 0.95
#: Loops make up a run if one pass of each leaves less than this part of the work.
MOST_KEPT: Final = 0.8
#: Steps with loops of varying length in them are so many more than the alike groups of them.
FINER: Final = 1.3
#: Fewest repeats that make a step.
REPEATS: Final = 3
#: Part of the kernel time that the steps must hold; less is enough at the end of the run.
MOST: Final = 0.5
AT_END: Final = 0.3
#: Part of the operations whose calls are known from which the order of calls is that of the work.
KNOWN: Final = 0.9
#: Between two loadings of modules less is enough, where nothing else repeats, and this many times.
AFTER_LOADS: Final = 0.1
OFTEN: Final = 5
#: Passes of at least this many nanoseconds, that many times as many in each repeat as there are repeats,
#: are the step: 96 tokens of one of six requests, but not 400 sweeps of one of 15 time steps, of 41 us
#: each. Of 139 traces it changes the step of one, `hf_generate`.
FAR_MORE: Final = 10
OWN_TIME: Final = 1_000_000
#: Bytes of a number that the host reads. When it does so, every fifth step for a log, tells of no step.
NUMBER: Final = 8
#: Steps take this many times their median on average where some hold what others do not.
UNEVEN: Final = 1.5
#: Kernels by name alone, whatever their grids, make a step if it has as many different ones.
LEAST_NAMES: Final = 5
#: A window that shares less of its kernels' names with the others does other work.
SAME_WORK: Final = 0.7
#: Of the same kernels, steps differ by less than this factor in number; two that are not told apart by more.
VARIED: Final = 1.5
#: A window in which modules are loaded, as in few, is left out if it takes this many times the median.
SLOWED: Final = 1.2
#: The first step prepares (memory, compilers) if it takes this many times the median.
FIRST: Final = 3.0
#: A whole run begins after the loading of modules that leaves this part of the kernel time.
LEFT: Final = 0.8
#: Part of the kernel time in calls of modules from which their number is that of passes: the
#: forward part of training, at least.
INMODULES: Final = 0.2
#: Part of the kernel time of passes from which what is between them is more than a log's.
LOG_TIME: Final = 0.02
#: Part of the kernel time after what repeats, and of its launches that have other kernels or grids,
#: from which it is work of the same pass.
OTHER_TIME: Final = 0.05
OTHER_WORK: Final = 0.2
#: Steps on either side of the one of median time that may stand for it, by which part they may differ, and
#: by which part their hosts' time may from the median of theirs.
NEAR, AS_LONG, USUAL = 10, 0.01, 0.1
#: Numbers in names of ranges, and names of parts of a step.
_NUMBER: Final = re.compile(r"\d+")
_PARTS: Final = re.compile(r"layer|block|attn|attention|mlp|expert", re.IGNORECASE)
#: XLA's ranges but those of an execution, XlaModule:#hlo_module=jit_f,program_id=7#, are its compiler's.
_XLA_COMPILES: Final = re.compile(r"Xla(?!Module:)")


def find_step(trace: Trace, named: str = "the trace") -> Step:
    """The step of a program.

    Marks of kind "step" come first, then an NVTX range that repeats at least 3 times and holds most
    of the kernel time, then the shortest sequence of kernels and copies that repeats at least 3
    times, 95 % alike, over most of the kernel time: with equal grids, else by name alone. Else it
    is the whole run without the loading of modules at its start. Without their marks, each of 13
    public traces had the step that its marks give; of 650 shuffled ones, one had a step. Takes
    about 1 s for a million operations, 5 s where nothing repeats.

    Raises InputProblem for a trace without kernels, which the message calls `named`."""
    if not any(op.kind == "kernel" for op in trace.ops):
        raise InputProblem(
            f"{named} has no kernel",
            "Record the program while it uses the GPU, with CUDA among what is traced",
        )
    return _Run(trace).step()


Repeat = tuple[int, "Array", int]
"""How many operations repeat, when each step of them begins, and when the last one ends."""


class _Run:
    """The work of the process and GPU that has the most kernel time, as arrays."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        ops = trace.ops

        def column(name: str, of: Sequence[Any] = ops) -> Array:
            return np.fromiter(map(operator.attrgetter(name), of), np.int64, len(of))

        start, end, code = column("start"), column("end"), column("shape")
        kernel = np.fromiter((op.kind == "kernel" for op in ops), bool, len(ops))
        codes: dict[str, int] = {}
        for i in np.flatnonzero(~kernel):  # copies and sets, by direction
            code[i] = -1 - codes.setdefault(ops[i].path or ops[i].kind, len(codes))
        self.to_device = -1 - codes["HtoD"] if "HtoD" in codes else None
        reads = (op.path == "DtoH" and 0 < (op.size or 0) <= NUMBER for op in ops)
        read = np.fromiter(reads, bool, len(ops))
        # a collective waits for others: how long says nothing of where the work is
        alone = kernel & ~np.isin(code, [*collectives(trace)])
        time = np.where(alone if alone.any() else kernel, end - start, 0)
        process, device = column("process"), column("device")
        places, where = np.unique(process << 16 | device, return_inverse=True)
        most = np.flatnonzero(where == np.argmax(np.bincount(where, time)))
        self.process, self.device = int(process[most[0]]), int(device[most[0]])
        processes, devices = len(np.unique(places >> 16)), len(np.unique(device))
        self.others = [units.counted(processes, "process")] * (processes > 1)
        self.others += [units.counted(devices, "GPU")] * (devices > 1)
        self.starts, self.start, self.end = start, start[most], end[most]
        self.code, self.time, self.kernel = code[most], time[most], kernel[most]
        self.call, self.stream = column("call")[most], column("stream")[most]
        self.number = read[most]
        streams, on = np.unique(self.stream, return_inverse=True)
        self.main = self.stream == streams[np.argmax(np.bincount(on, self.time))]
        known = self.call >= 0
        # what the GPU began before any work whose call is known was queued before the recording began
        early = np.cumsum(known) == 0
        self.known = bool(known.any() and known[~early].mean() > KNOWN)
        self.queued = self.start.copy()
        self.queued[known] = column("start", trace.calls)[self.call[known]]
        if self.known:
            self.queued[~known] = -1
        # kernels that XLA times while it compiles belong to no step
        xla = [mark for mark in trace.marks if trace.names[mark.name].startswith("XlaCompile:")]
        self.step_work = self._inside(xla) < 0 if xla else np.ones_like(known)
        if self.step_work.any():
            self.time[~self.step_work] = 0

    def step(self) -> Step:
        if steps := self._groups("step"):
            return self._of_marks(steps[0], "Step: as the program marks it")
        ranges = self._groups("range")
        repeat = self._repeats() or self._between_loads()
        for marks in ranges:
            names = {self.trace.names[mark.name] for mark in marks}
            # a range that repeats within the step is no step, nor is one that holds many
            if repeat is None or abs(self._repeats_in(marks, repeat) / len(repeat[1]) - 1) < 0.2:
                if len(names) > 1 and _PARTS.search(min(names)):
                    return self._whole()  # layer 0, layer 1, ...: of one pass
                name = min(names) if len(names) == 1 else _NUMBER.sub("N", min(names))
                return self._of_marks(marks, f'Step: the NVTX range "{range_name(name)}"')
        if repeat is None:
            return self._whole()
        period, times, stop = repeat
        passes, held = self._modules()
        if held > INMODULES and len(passes) < 0.6 * len(times):  # what repeats are layers of them
            if len(passes) < REPEATS or held < MOST:
                return self._whole()
            name = self.trace.names[passes[0].name].removeprefix(MODULE)
            return self._of_marks(passes, f"Step: a call of the module {name}")
        if self._goes_on(int(times[0]), stop):
            return self._whole()
        # what repeats are nodes of a graph
        if (graphs := self._graphs(int(times[0]))) and len(graphs) < 0.6 * len(times):
            return self._of_marks(graphs, "Step: a launch of a CUDA graph")
        text = self._repeat(period, int(times[-2]), int(times[-1]))
        step = self._step(times, stop, "repeats", text)
        return step if len(step.windows) >= 5 or step.spread <= 1 else self._whole()

    def _passes(self, repeat: Repeat) -> Repeat:
        """What repeats, or its inner passes where it is hardly more than those: 40 frames and a value
        that is read for a log are no step, nor are 2,000 iterations, each of which reads a value, of
        one of three solutions, nor 96 tokens of a request. Twelve layers and a head are, or 400 sweeps
        and a residual. Passes are searched for by kernels too: an attention's grid grows with its cache."""
        _, times, stop = repeat
        order = self.order
        starts = self.start[order]
        if len(times) < 2 or (np.diff(starts) < 0).any():  # streams side by side
            return repeat
        bounds = np.searchsorted(starts, [*times, stop])
        begin, end = bounds[-3:-1]
        time, number = self.time[order], self.number[order]
        reads, whole = int(number[begin:end].sum()), time[begin:end].sum()
        for of, least in self._codes():
            turns = [0, (end - begin) // 2]  # it may begin in the middle of a request
            for turn in turns:
                low, high = begin + turn, end + turn
                code = of[order[low:high]]
                inner = _stretch(code, time[low:high])
                if not inner or len(np.unique(code[inner[1] : inner[1] + inner[0]])) < least:
                    continue
                length, first, last = inner
                if len(turns) < 4:  # then as the passes found begin or end
                    turns.append((turn + (first if first >= length else last)) % (end - begin))
                many = (last - first) // length
                beside = end - begin - many * length
                in_passes = time[low + first : low + first + many * length].sum()
                logs = 0 < reads < many / 2
                tokens = many > FAR_MORE * len(times) and times[-1] - times[-2] >= OWN_TIME * many
                solves = reads >= many / 2 and (len(times) < OFTEN or tokens)
                if (
                    many >= OFTEN
                    and (logs or solves)
                    and beside < max(LEAST_NAMES + reads, tokens * 2 * length)
                    and in_passes >= (1 - LOG_TIME) * whole
                ):
                    firsts = bounds + turn + first
                    ends = np.minimum(firsts[1:], bounds[-1])[:, None]
                    begins = firsts[:-1, None] + length * np.arange(many)
                    return length, starts[begins[begins + length <= ends]], stop
        return repeat

    @cached_property
    def order(self) -> Array:
        """Places of all work in the order in which it was queued, where that is known."""
        order = np.argsort(self.call if self.known else self.start, kind="stable")
        return order[self.step_work[order]]

    @cached_property
    def loaded(self) -> list[int]:
        """When the process had loaded modules."""
        loads = (call for call in self.trace.calls if call.kind == "load")
        return [call.end for call in loads if call.process == self.process]

    def _repeat(self, period: int, begin: int, end: int) -> str:
        """What repeats, and what repeats in it from `begin` to `end`: frames of a batch, layers."""
        at = (self.start >= begin) & (self.start < end)
        text = f"Step: {units.counted(period, 'GPU operation')} (kernels, copies, memsets)"
        code, time, start = self.code[at], self.time[at], self.start[at]
        inner = _stretch(code, time)
        if inner and time[inner[1] : inner[2]].sum() >= ALIKE * time.sum():
            length, first, last = inner
            passes = (last - first) // length
            each = (start[first + (passes - 1) * length] - start[first]) / (passes - 1) / 1e3
            text += (
                f"; inner loop: {units.counted(passes, 'iteration')} of {units.count(length)} such operations, "
                f"{units.duration(float(each))} each iteration"
            )
        return text

    # ---- marks

    def _groups(self, kind: str) -> list[list[Mark]]:
        """Marks of a kind by thread and name without numbers (iteration 7), those with the most
        kernel time first; ranges only where they can be steps."""
        names = [_NUMBER.sub("N", name) if kind == "range" else "" for name in self.trace.names]
        groups: dict[tuple[int, str], list[Mark]] = {}
        for mark in self.trace.marks:
            if names[mark.name].startswith(MODULE) or _XLA_COMPILES.match(names[mark.name]):
                continue
            if mark.kind == kind and mark.process == self.process:
                group = groups.setdefault((mark.thread, names[mark.name]), [])
                if not group or mark.start >= group[-1].end:
                    group.append(mark)
        able = [group for group in groups.values() if kind == "step" or len(group) >= REPEATS]
        able.sort(key=lambda group: -sum(mark.end - mark.start for mark in group))
        found = []
        for group in able[:32]:
            inside = self._inside(group)
            held = self.time[inside >= 0].sum() / max(int(self.time.sum()), 1)
            if held >= (MOST if kind == "range" else 1e-9):
                found.append((-round(float(held), 2), len(group), group))
        return [group for _, _, group in sorted(found, key=lambda each: each[:2])]

    def _repeats_in(self, marks: Sequence[Mark], repeat: Repeat) -> int:
        """How many marks have work while operations repeat."""
        inside = self._inside(marks)[(self.start >= repeat[1][0]) & (self.start < repeat[2])]
        return len(np.unique(inside[inside >= 0]))

    def _goes_on(self, begin: int, stop: int) -> bool:
        """Whether other work follows what repeats, in a trace of PyTorch's profiler or in a report.
        Their users surround steps, or one pass: layers that repeat, and then a head. Traces of whole
        programs have other phases after their steps."""
        if self.trace.timed and not self.trace.source.startswith("PyTorch"):
            return False
        after = self.kernel & (self.start >= stop)
        within = self.kernel & (self.start >= begin) & (self.start < stop)
        new = ~np.isin(self.code[after], self.code[within])
        late = self.time[after].sum() > OTHER_TIME * self.time.sum()
        return bool(late and new.sum() > OTHER_WORK * len(new))

    def _between_loads(self) -> Repeat | None:
        """What repeats between two loadings of modules, or after the last, where most of the time
        between loadings is spent and all was compiled and tuned, and is nearly all work there: else
        it may be layers of the last pass."""
        loads = np.sort(self.loaded)
        if not len(loads) or not self.known:
            return None
        after = np.searchsorted(loads, self.queued)
        held = np.bincount(after, self.time)
        held[0] = 0  # nothing was loaded yet
        most = int(np.argmax(held))
        if held[most] < AFTER_LOADS * self.time.sum():
            return None
        low, high = np.append(loads, np.iinfo(np.int64).max)[most - 1 : most + 1]
        ops, calls = self.trace.ops, self.trace.calls
        ops = tuple(op for op in ops if op.call < 0 or low < calls[op.call].start <= high)
        rest = _Run(msgspec.structs.replace(self.trace, ops=ops))
        own = (rest.process, rest.device) == (self.process, self.device)
        found = rest._repeats() if own else None
        if found is None or len(found[1]) < OFTEN:
            return None
        within = self.time[(self.start >= found[1][0]) & (self.start < found[2])].sum()
        return found if within >= ALIKE * rest.time.sum() else None

    def _graphs(self, since: int) -> list[Mark]:
        """Launches of CUDA graphs that repeat, several where a step launches several; none where
        they hold less than half of the kernel time from `since` on."""
        calls = self.trace.calls
        launched = np.array([call.kind == "graph" for call in calls], bool)
        later = (self.call >= 0) & (self.start >= since)
        at = np.flatnonzero(later)[launched[self.call[later]]] if len(calls) else []
        if len(at) == 0 or self.time[at].sum() < MOST * self.time[self.start >= since].sum():
            return []
        at = at[np.argsort(self.call[at], kind="stable")]
        made, first = np.unique(self.call[at], return_index=True)
        kinds: dict[bytes, int] = {}
        parts = np.split(self.code[at], first[1:])
        code = np.array([kinds.setdefault(part.tobytes(), len(kinds)) for part in parts])
        found = _stretch(code, np.add.reduceat(self.time[at], first))
        period, begin, end = found or (1, 0, len(made))
        ends = ((made[i], made[i + period - 1]) for i in range(begin, end - period + 1, period))
        times = ((calls[one].start, calls[other].end) for one, other in ends)
        return [Mark(*each, "range", 0, process=self.process) for each in times]

    def _modules(self) -> tuple[list[Mark], float]:
        """Calls of PyTorch's modules that no other module made, on the thread with most of them,
        and the part of the kernel time that they queued."""
        outermost: dict[int, list[Mark]] = {}
        for mark in self.trace.marks:
            if self.trace.names[mark.name].startswith(MODULE) and mark.process == self.process:
                calls = outermost.setdefault(mark.thread, [])
                if not calls or mark.start >= calls[-1].end:
                    calls.append(mark)
        calls = max(outermost.values(), key=len, default=[])
        if not calls:
            return [], 0.0
        held = self.time[self._inside(calls) >= 0].sum()
        return calls, float(held / max(int(self.time.sum()), 1))

    def _inside(self, marks: Sequence[Mark]) -> Array:
        """For each operation the mark in which the host queued it, -1 for none."""
        starts, ends = np.array([(mark.start, mark.end) for mark in marks]).T
        at = np.searchsorted(starts, self.queued, "right") - 1
        return np.where((at >= 0) & (self.queued <= ends[at]), at, -1)

    def _of_marks(self, marks: Sequence[Mark], text: str) -> Step:
        """Steps from mark to mark. One begins as the host passes its mark, or once the work queued
        before is done, but no later than its own first work; the last ends with its mark and work."""
        inside = self._inside(marks)
        main = np.flatnonzero((inside >= 0) & self.main)
        main = main if len(main) else np.flatnonzero(inside >= 0)
        place, first = np.unique(inside[main], return_index=True)
        own = self.start[main][first]
        by_queue = np.argsort(self.queued, kind="stable")
        done = np.append(0, np.maximum.accumulate(self.end[by_queue]))
        marked = np.array([marks[at].start for at in place])
        before = done[np.searchsorted(self.queued[by_queue], marked)]
        if np.count_nonzero(before > marked) > len(marked) / 2:  # the host is ahead of the GPU
            marked[0] = own[0]  # what the GPU did before may not be recorded
        last = inside == inside[main].max()
        stop = max(int(self.end[last].max()), marks[int(place[-1])].end)
        return self._step(np.minimum(own, np.maximum(marked, before)), stop, "marked", text)

    # ---- repetition

    def _repeats(self) -> Repeat | None:
        """How many operations repeat, when each step of them begins, and when the last one ends;
        None where nothing repeats."""
        found = self._repeated(~self.number)
        if found and self.number.any():
            took = np.diff(found[1])
            # where the host's reading sets steps apart, but for one or two, it tells of them
            if len(took) and took[took <= np.percentile(took, 95)].mean() > UNEVEN * np.median(
                took
            ):
                return self._repeated(np.ones_like(self.number)) or found
        varied = self._varied(~self.number)
        if varied and (found is None or len(varied[1]) > FINER * len(found[1])):
            return varied
        return found and self._passes(found)

    def _repeated(self, counted: Array) -> Repeat | None:
        """What repeats of the operations that are `counted`."""
        orders = [self.order] if self.known else []
        by_time = np.flatnonzero(self.main & self.step_work)
        orders += [by_time] if not (self.known and self.main.all()) else []
        orders = [order[counted[order]] for order in orders]
        for of, least in self._codes():
            for order in orders:
                code = of[order]
                found = _stretch(code, self.time[order])
                if not found or len(np.unique(code[found[1] : found[1] + found[0]])) < least:
                    continue
                begins = self._begins(order, code, *found)
                apart = np.diff(begins)  # as many by chance, but elsewhere, begin no steps
                if not len(apart) or abs(np.median(apart) - found[0]) > 0.25 * found[0]:
                    continue
                times = self.start[order][self._on_main(order, begins)]
                sizes = np.diff(np.searchsorted(self.start, times))
                usual = found[0] if len(order) == len(self.start) else np.median(sizes)
                # steps that run side by side, on streams in turn, are none by time
                if np.count_nonzero(np.abs(sizes - usual) <= 0.25 * usual) >= 0.6 * len(sizes):
                    last = self.end[order][begins[-1] : begins[-1] + found[0]]
                    return found[0], np.maximum.accumulate(times), int(last.max())
        return None

    def _varied(self, counted: Array) -> Repeat | None:
        """What repeats once loops in it count as one pass of theirs: steps that hold 31 cells, then
        28. None where no loop is in it, or where one pass of a loop is all that is left of a step."""
        order = self.order[counted[self.order]]
        for of, _ in self._codes():
            kept = _one_pass(of[order], self.time[order])
            if len(kept) > MOST_KEPT * len(order):
                continue
            code = of[order][kept]
            found = _stretch(code, np.add.reduceat(self.time[order], kept))
            if found and len(np.unique(code[found[1] : found[1] + found[0]])) >= LEAST_NAMES:
                begins = self._begins(order[kept], code, *found)
                times = np.maximum.accumulate(self.start[order][kept][begins])
                ends = np.append(kept, len(order))[np.minimum(begins[-1] + found[0], len(kept))]
                last = self.end[order][kept[begins[-1]] : ends]
                return len(order) // len(times), times, int(last.max())
        return None

    def _codes(self) -> Iterator[tuple[Array, int]]:
        """Numbers by which operations are alike, the strictest first, and how many different ones a
        step has at least: kernels with their grids, kernels, and classes of kernels, since a library
        takes another kernel for a product as a cache grows."""
        yield self.code, 1
        yield self._numbered(operator.attrgetter("kernel")), LEAST_NAMES
        yield self._numbered(lambda launch: kernel_class(launch).id), LEAST_NAMES

    def _numbered(self, name: Callable[[Launch], str]) -> Array:
        """For each operation a number for a name of its launch."""
        names: dict[str, int] = {}
        of = [names.setdefault(name(each), len(names)) for each in self.trace.shapes]
        return np.where(self.kernel, np.array([*of, 0])[self.code * self.kernel], self.code)

    def _on_main(self, order: Array, begins: Array) -> Array:
        """Each step's first work on the main stream: what is copied ahead is of the step before."""
        on_main = np.append(np.flatnonzero(self.main[order]), len(order))
        at = on_main[np.searchsorted(on_main, begins)]
        return np.where(at < np.append(begins[1:], len(order)), at, begins)

    def _begins(self, order: Array, code: Array, period: int, first: int, last: int) -> Array:
        """Places in `order` at which steps begin."""
        begin = first
        while begin + period < last and code[begin] != code[begin + period]:
            begin += 1
        begin += self._phase(order, period, begin, last)
        expected = (last - begin) / period
        for offset in range(min(period, 64)):  # the first few operations that occur once a step
            hits = np.arange(begin + offset, last)
            for length in range(min(period, 256)):
                hits = hits[hits + length < len(code)]
                hits = hits[code[hits + length] == code[begin + offset + length]]
                if len(hits) <= 1.1 * expected:
                    break
            if 0.9 * expected - 1 <= len(hits) <= 1.1 * expected:
                hits = hits - offset
                break
        else:
            hits = np.arange(begin, last - period + 1, period)
        return hits[hits + round(ALIKE * period) <= len(code)]

    def _phase(self, order: Array, period: int, begin: int, last: int) -> int:
        """How far into the repetition a step begins: at the first copy of its data to the GPU, or
        after the longest idle time, where there is one; else where the repetition began."""
        repeats = (last - begin) // period
        rows = begin + np.arange(repeats * period).reshape(repeats, period)
        copies = np.flatnonzero(self.code[order][rows[0]] == self.to_device)
        if self.to_device is not None and len(copies):
            before = np.diff(copies, prepend=copies[-1] - period)
            return int(copies[int(np.argmax(before))])
        starts = self.start[order]
        busy = np.maximum.accumulate(self.end[order])
        idle = np.median((starts[1:] - busy[:-1])[np.maximum(rows - 1, 0)], axis=0)
        longest = int(np.argmax(idle))
        return longest if idle[longest] > max(3e3, 3 * np.median(idle)) else 0

    # ---- windows

    def _step(self, times: Array, stop: int, how: Any, text: str) -> Step:
        """The step whose windows begin at `times`; the last one ends at `stop`."""
        times = np.unique(times)
        first = np.searchsorted(self.starts, times)
        end = int(np.searchsorted(self.starts, max(stop, int(times[-1]) + 1)))
        bounds = pairwise(zip(times.tolist(), first.tolist(), strict=True))
        windows = [Window(start, until, low, high) for (start, low), (until, high) in bounds]
        # of the last the idle time is not known
        if len(windows) < REPEATS and (stop > times[-1] or not windows):
            last = int(times[-1])
            windows.append(Window(last, max(stop, last + 1), int(first[-1]), end))
        kept, left = self._steady(windows)
        ends = int(self.end.max())
        covered = sum(each.end - each.start for each in kept)
        if windows[-1].end < stop:  # the last step, of which the idle time is not known
            covered += stop - windows[-1].end
        if (after := ends - stop) > OTHER_TIME * (ends - times[0]):
            left.append(f"{units.duration(after / 1e3)} after the last step")
        took = np.array([window.us for window in kept])
        low, high = np.percentile(took, (10, 90))
        middle = float(np.median(took))
        which = f"; of {' and '.join(self.others)}, this is where the kernels take most time"
        text += f"{'; left out: ' * bool(left)}{units.listed(left)}{which * bool(self.others)}."
        return Step(
            trace=self.trace,
            windows=tuple(kept),
            typical=self._typical(kept, took),
            how=how,
            description=text,
            covered=covered / max(ends - kept[0].start, covered, 1),
            rest=tuple(left),
            spread=float(high - low) / 2 / middle if middle else 0.0,
            process=self.process if self.others else None,
            device=self.device if self.others else None,
        )

    def _typical(self, windows: Sequence[Window], took: Array) -> int:
        """The step of median time, or one with as much work and nearly that time in which the host's time
        between calls is near its median. While the GPU is behind, no step's time shows what the host took."""
        order = np.argsort(took, kind="stable")
        middle = (len(order) - 1) // 2
        near = order[max(0, middle - NEAR) : middle + NEAR + 1]
        sizes = [windows[at].last - windows[at].first for at in near]
        host = np.zeros(len(near))
        for i, at in enumerate(near):
            ops = self.trace.ops[windows[at].first : windows[at].last]
            if used := [op.call for op in ops if op.call >= 0]:
                calls = self.trace.calls[min(used) : max(used) + 1]
                inside = sum(call.end - call.start for call in calls)
                host[i] = calls[-1].end - calls[0].start - inside
        away = np.abs(took[near] / took[order[middle]] - 1)
        usual = np.abs(host - np.median(host)) <= USUAL * np.median(host)
        fit = usual & (away <= AS_LONG) & (np.array(sizes) == sizes[min(middle, NEAR)])
        return int(near[np.argmin(np.where(fit, away, 1.0))] if fit.any() else order[middle])

    def _steady(self, windows: list[Window]) -> tuple[list[Window], list[str]]:
        """The windows without those that clearly do other work, and what those are."""
        name = self._numbered(operator.attrgetter("function"))
        name -= name.min()
        most = int(name.max()) + 1
        start, name = self.start[self.step_work], name[self.step_work]
        lows = np.searchsorted(start, [window.start for window in windows])
        highs = np.searchsorted(start, [window.end for window in windows])
        sizes = highs - lows
        usual = int(np.argsort(sizes, kind="stable")[(len(sizes) - 1) // 2])
        own = np.bincount(name[lows[usual] : highs[usual]], minlength=most)
        same = sizes == sizes[usual]
        for i in np.flatnonzero(~same)[:5000]:
            count = np.bincount(name[lows[i] : highs[i]], minlength=most)
            same[i] = np.minimum(count, own).sum() >= SAME_WORK * max(sizes[i], sizes[usual])
            if ((count > 0) == (own > 0)).all():  # a loop in it has more or fewer passes
                same[i] |= sizes[usual] < VARIED * sizes[i] < VARIED**2 * sizes[usual]
        if same.sum() * 2 < len(windows):
            same[:] = True
        left = []

        def leave(out: Sequence[bool], many: str, *words: str) -> list[Window]:
            """The windows without some, whose time is stated."""
            took = sum(window.us for window, each in zip(windows, out, strict=True) if each)
            left.append(f"{units.counted(sum(out), *words)} {many} ({units.duration(took)})")
            return [window for window, each in zip(windows, out, strict=True) if not each]

        if not same.all():
            windows = leave([not each for each in same], "with other work", "stretch")
        took = np.array([window.us for window in windows])
        loads = np.sort([call.start for call in self.trace.calls if call.kind == "load"])
        ends = np.array([(window.start, window.end) for window in windows])
        loading = np.diff(np.searchsorted(loads, ends), axis=1)[:, 0] > 0
        usual_us = float(np.median(took))
        slow = loading & (took > SLOWED * usual_us)
        if slow.any() and loading.mean() <= MOST:  # where most load, loading is a part of the step
            windows = leave(slow.tolist(), "that took long and loaded modules", "step")
        if len(windows) >= REPEATS and windows[0].us > FIRST * usual_us:
            times = units.significant(windows.pop(0).us / usual_us, 2)
            left.append(f"the first step, which took {times} times as long")
        return windows, left

    def _whole(self) -> Step:
        """The run without what came before the last loading of a module that leaves most of it: of its
        kernels' time, and half of all work: copies of the input come before the first module."""
        work = self.end - self.start
        left, all_left = (np.cumsum(each[::-1])[::-1] for each in (self.time, work))
        first = 0
        for at in np.searchsorted(self.queued, self.loaded) if self.known else ():
            enough = at < len(work) and left[at] >= LEFT * left[0]
            if enough and all_left[at] >= MOST * all_left[0]:
                first = max(first, int(at))
        run = "run" if self.trace.timed else "report"
        text = f"No part of the {run} repeats, so this is the whole {run}"
        if first:
            took = units.duration(float(work[:first].sum()) / 1e3)
            text += f" after the first {units.counted(first, 'operation')} ({took}), which loaded modules"
        return self._step(self.start[first : first + 1], int(self.end.max()), "whole", text)


def _stretch(code: Array, time: Array) -> tuple[int, int, int] | None:
    """The period of a sequence and the stretch, as first and last place, in which it repeats.

    The period that holds the most time wins; of equals, the shortest that has no more than twice
    the differences of the best."""
    count = len(code)
    total = np.concatenate(([0], np.cumsum(time)))
    found = []
    for period in _lags(code):
        stretch = _verified(code, total, period)
        if stretch:
            found.append((period, *stretch))
            if found[-1][3] >= 0.99 * total[-1] and not found[-1][4]:
                break
    if not found:
        return None
    top = max(found, key=lambda each: each[3])
    best, slack = top[3], (1 - ALIKE) * top[0] + 1
    # as much as the best, or less at the edges alone, where a multiple may differ in more operations
    near = [
        each
        for each in found
        if each[3] >= ALIKE * best
        or (top[0] % each[0] == 0 and max(each[1] - top[1], top[2] - each[2]) <= slack)
    ]
    fewest = min(each[4] for each in near)
    period, first, last, held, _ = next(each for each in near if each[4] <= 2 * fewest + 2)
    rest = total[-1] - total[last]
    if held >= MOST * total[-1] or (held >= AT_END * total[-1] and rest <= 0.05 * total[-1]):
        return period, first, last
    for low, high in ((0, first), (last, count)):  # another phase of the program may hold more
        if held < total[high] - total[low] >= MOST * total[-1]:
            part = _stretch(code[low:high], time[low:high])
            if part and total[low + part[2]] - total[low + part[1]] >= MOST * total[-1]:
                return part[0], low + part[1], low + part[2]
    return None


def _one_pass(code: Array, time: Array) -> Array:
    """Places of a sequence without all but the first pass of each loop in it, innermost loops first:
    of "abcabcabcd" those of "abcd". A loop that holds most of the time is that of the steps, and
    stays."""
    kept: Array = np.arange(len(code))
    total = np.concatenate(([0], np.cumsum(time)))
    for period in sorted({*range(1, 9), *_lags(code)}):
        now = code[kept]
        if len(now) < REPEATS * period:
            break
        equal = now[:-period] == now[period:]
        edges = np.flatnonzero(np.diff(equal, prepend=False, append=False))
        lows, highs = edges[::2], edges[1::2]  # equal to what comes `period` later
        loops = highs - lows >= (REPEATS - 1) * period
        ends = np.append(kept, len(code))[highs + period]
        if (total[ends] - total[kept[lows]])[loops].max(initial=0) >= MOST * total[-1]:
            break
        out = np.zeros(len(now) + 1, np.int64)
        np.add.at(out, lows[loops] + period, 1)
        np.add.at(out, highs[loops] + period, -1)
        kept = kept[np.cumsum(out)[:-1] == 0]
    return kept


def _lags(code: Array) -> list[int]:
    """Distances at which a sequence may repeat, ascending: peaks of its autocorrelation, with a
    random point of the unit circle for each symbol, whose product with its conjugate is 1 for
    equal symbols and 0 on average for others."""
    count = len(code)
    most = count // REPEATS
    if most < 1:
        return []
    least = count + most + 2
    size = min(odd << (-(-least // odd) - 1).bit_length() for odd in (1, 3, 5))
    random, power = np.random.default_rng(0), np.zeros(size)
    for _ in range(2):
        points = np.exp(2j * np.pi * random.random(int(code.max() - code.min()) + 1))
        power = power + np.abs(np.fft.fft(points[code - code.min()], size)) ** 2
    alike = np.fft.ifft(power)[: most + 2].real / (2.0 * (count - np.arange(most + 2)))
    before = np.concatenate(([-1.0], alike[1:-2]))
    peaks = 1 + np.flatnonzero(alike[1:-1] >= np.maximum(before, alike[2:]) - 1e-9)
    ranked = peaks[np.argsort(-alike[peaks], kind="stable")][:32]
    near = peaks[alike[peaks] >= alike[peaks].max(initial=-1.0) - 0.1][:64]
    halves = peaks[np.isin(2 * peaks, ranked)]  # other work may repeat after two steps alone
    return sorted({1, *map(int, ranked), *map(int, near), *map(int, halves)})


def _verified(code: Array, total: Array, period: int) -> tuple[int, int, int, int] | None:
    """Where a sequence repeats with `period`: first and last place, the time between them, and how
    many operations differ; None where it repeats fewer than 3 times.

    Each window of one period must be 95 % equal to the next. An operation in between that shifts
    the rest (a log every 40 steps) breaks it only if it is more than 5 % of the period, and of no
    multiple of a shorter one: 5 of 80 equal layers, with a few operations after the last, are no
    step. Nor is it one step that goes on if other work repeats afterwards: 14 launches of one kernel
    and 13 of another are no steps of one launch."""
    equal = code[:-period] == code[period:]
    sums = np.concatenate(([0], np.cumsum(equal)))
    good = sums[period:] - sums[:-period] >= ALIKE * period
    edges = np.flatnonzero(np.diff(good, prepend=False, append=False))
    lows, highs = edges[::2], edges[1::2] - 1  # the first and last window of each good run
    if not len(lows):
        return None
    other = np.zeros(len(lows) - 1, bool)
    if ALIKE * period > period - 1:  # windows do not differ at all, so a sum tells their work
        values = np.random.default_rng(0).integers(1 << 40, size=int(code.max() - code.min()) + 1)
        work = np.concatenate(([0], np.cumsum(values[code - code.min()])))
        work = work[period:] - work[:-period]
        other = work[lows[1:]] != work[highs[:-1]]
    longest = np.argmax(highs - lows)
    middle = int(lows[longest] + highs[longest]) // 2
    least = _shortest(code[middle : middle + period])
    apart = other | (
        lows[1:] - highs[:-1] > (3 - ALIKE - 0.1) * period + 1 if least == period else lows[1:] > 0
    )
    begins = np.concatenate(([0], 1 + np.flatnonzero(apart)))
    ends = np.append(begins[1:], len(lows)) - 1
    held = total[highs[ends] + 2 * period] - total[lows[begins]]
    held[np.maximum.reduceat(highs - lows, begins) < period * (REPEATS - 2)] = 0
    best = int(np.argmax(held))
    if not held[best]:
        return None
    runs = slice(begins[best], ends[best] + 1)
    margin = 2 * (period - round(ALIKE * period))  # twice, since some are equal by chance
    low, high = lows[runs] + margin, np.maximum(highs[runs] + period - margin, lows[runs] + margin)
    differ = int((high - low - (sums[high] - sums[low])).sum())
    return int(lows[begins[best]]), int(highs[ends[best]]) + 2 * period, int(held[best]), differ


def _shortest(code: Array) -> int:
    """The shortest length by whose repetition a sequence is made, in the main; its own if none."""
    count = len(code)
    for length in map(int, 1 + np.flatnonzero(count % np.arange(1, count) == 0)):
        if np.count_nonzero(code[:-length] == code[length:]) >= ALIKE * (count - length):
            return length
    return count
