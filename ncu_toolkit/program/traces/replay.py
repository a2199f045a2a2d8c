"""What a step would take with a change: the recorded step, replayed.

A step is what its host does, call by call, and what its GPU does, queue by queue. Calls of threads
that take turns (autograd's with the program's) are one sequence; a thread beside it follows the call
that it began after. An operation begins once it is queued, the one before it in its stream has ended,
and what it waited for on other streams has ended; a call that waits returns after the operation that
it waited for. The step is repeated until it is steady, so that a host that is ahead stays ahead.

The times between two calls and of each operation are the recorded ones, without what recording costs.
The way of a launch to an idle GPU, and the time between two queued operations, are the trace's usual
ones, so that a step that is replayed unchanged need not take what was recorded: `Replay.error` says how
far it is off."""

import statistics
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import sub
from typing import Final, NamedTuple

from msgspec import structs

from ncu_toolkit.program.model import OTHER_WORK_US, Account, Call, Edit, Op, Step, StepTimes
from ncu_toolkit.program.traces.classes import kernel_class

#: Calls and operations that are replayed at most, and fewest and most repeats of the step.
_MOST: Final = 24_000
_REPEATS: Final = (2, 8)
#: Nanoseconds. A call that takes longer waits, where an operation ended within it.
_WAITS_NS: Final = 5_000
#: An operation that began so much later than what is known to hold it waited for something else.
_LATE_NS: Final = 2_000
#: An operation was queued in time if that was so long before the one before it ended.
_HELD_NS: Final = 5_000
#: A call returns within this time after what it waits for, and an operation begins.
_NEAR_NS: Final = 50_000
#: What a launch takes on the GPU at least (`FLOOR_US` of the time model is that of a kernel).
_LEAST_NS: Final = 1_000
#: Launches that a GPU takes ahead (1,024): from half of them on, a launch that takes long waits for room.
_AHEAD: Final = 512
#: Part of a thread's calls that begin within calls of the main one from which it runs alongside it.
_BESIDE: Final = 0.1
#: Nanoseconds that recording costs a call, and more for each that Python makes: medians of 3 native
#: programs and of 54 in Python. The second is of samples and lines, so that it is spread by time.
RECORDED: Final = (1_300, 2_000)
#: Calls that a CUDA graph does not do without.
_STAYS: Final = ("allocate", "free", "load")


#: Place of an operation, how many steps before, and nanoseconds from its end to the call's return.
_Wait = tuple[int, int, int]


class _Played(NamedTuple):
    """A step as it was replayed: its length once it is steady, and of its last repeat when operations
    and calls begin and end, in nanoseconds."""

    edit: Edit
    length: float
    starts: Sequence[float]
    ends: Sequence[float]
    called: Sequence[float]
    returned: Sequence[float]


class Replay:
    """A step that can be replayed with changes. Takes about 0.1 s for 10,000 operations, and as much
    for each change."""

    def __init__(self, step: Step, account: Account) -> None:
        self.step, self.ops, self.wall_us = step, step.ops, account.wall_us
        self.origin, self.length = step.window.start, step.window.end - step.window.start
        self.calls, pause = _calls(step)
        place = {at: i for i, (at, _) in enumerate(self.calls)}
        self.call_of = [place.get(op.call, -1) for op in self.ops]
        self.queued: list[list[int]] = [[] for _ in (*self.calls, None)]
        """Operations of each call; of no known one at the end."""
        for at, call in enumerate(self.call_of):
            self.queued[call].append(at)
        self.order = [*self.queued[-1], *(at for each in self.queued[:-1] for at in each)]
        self.rank = {at: n for n, at in enumerate(self.order)}
        self.starts = sorted(op.start - self.origin for op in self.ops)
        self.ends = sorted((op.end - self.origin, at) for at, op in enumerate(self.ops))
        self._learn(step)
        self._operations()
        self._host(pause)
        self._mean(account)
        self.repeats = _MOST // max(1, len(self.calls) + len(self.ops))
        self.repeats = min(_REPEATS[1], max(_REPEATS[0], self.repeats))
        self.begin = 0
        if step.how == "whole" and self.calls:  # it is not repeated
            self.repeats, self.before[0] = 1, 0
            self.begin = self.calls[0][1].start - self.origin
        self._played: dict[frozenset[int], tuple[tuple[Edit, ...], _Played]] = {}
        recorded = self._play(Edit()).length / 1e3
        self.error = abs(recorded / self.wall_us - 1) if self.wall_us else 0.0
        """How far the step that is replayed unchanged is off the mean step, as a part (0-1) of it."""
        ours = step.trace.source.startswith("ncu-toolkit")
        for i in range(len(self.calls)):
            self.before[i] = max(0, self.before[i] - max(0, RECORDED[0] - self.took[i]))
            self.took[i] = max(0, self.took[i] - RECORDED[0])
        spread = RECORDED[1] * sum(ours and each.line >= 0 for _, each in self.calls)
        short = sum(ns for ns in (*self.before, *self.took) if ns < OTHER_WORK_US * 1e3)
        left = max(0.0, 1 - spread / short) if short else 0.0
        for each in (self.before, self.took):
            each[:] = [int(ns * left) if ns < OTHER_WORK_US * 1e3 else ns for ns in each]
        self.unchanged = self.with_edits().length
        """Nanoseconds of the step without what recording costs."""

    def saved_us(self, *edits: Edit | None) -> float:
        """What changes, all made at once, save of the mean step, in microseconds."""
        if not self.unchanged:
            return 0.0
        return self.wall_us * max(0.0, 1 - self.with_edits(*edits).length / self.unchanged)

    def with_edits(self, *edits: Edit | None) -> _Played:
        """The step replayed with changes, all made at once; the same ones are replayed once."""
        made = tuple(filter(None, edits))
        key = frozenset(map(id, made))
        if key not in self._played:  # which keeps the changes, so that no other has their ids
            self._played[key] = made, self._play(Edit.joined(made))
        return self._played[key][1]

    def times(self, *edits: Edit | None) -> StepTimes:
        """The mean step in time with changes, all made at once."""
        played = self.with_edits(*edits)
        length, scale = played.length or 1.0, self.wall_us / (self.unchanged or 1.0)
        begin = ahead = 0.0
        if self.step.how != "whole" and self.ops:  # the first work begins when it was recorded
            other = played.edit.drops | played.edit.beside
            first = next((at for at in range(len(self.ops)) if at not in other), 0)
            begin = ahead = played.starts[first] - (self.ops[0].start - self.origin)
            if self.calls and begin - played.called[0] > length:  # it queues later steps
                ahead = played.called[0]
        rows: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
        for origin, spans in ((ahead, self._host_spans(played)), (begin, self._spans(played))):
            for row, start, end, kind in spans:
                if end <= start:
                    continue
                inside = (start - origin) % length
                until = inside + min(end - start, length)
                rows[row].append((inside * scale, min(until, length) * scale, kind))
                if until > length:
                    rows[row].append((0.0, (until - length) * scale, kind))
        return StepTimes(length * scale, dict(rows))

    def _host_spans(self, played: _Played) -> Iterator[tuple[str, float, float, str]]:
        before, took, _, idle = self._edited(played.edit)
        threads = [*dict.fromkeys((call.process, call.thread) for _, call in self.calls)]
        for i, (_, call) in enumerate(self.calls):
            start, end = played.called[i], played.returned[i]
            row, pause = "host", before[i] + idle[i]
            if self.side[i]:
                row = f"host thread {1 + threads.index((call.process, call.thread))}"
            else:
                long = pause >= OTHER_WORK_US * 1e3
                yield row, start - pause, start, "host-work" if long else "host-launch"
            ready = min(end, start + took[i])
            yield row, start, ready, "host-launch"
            yield row, ready, end, "host-wait"

    def _spans(self, played: _Played) -> Iterator[tuple[str, float, float, str]]:
        kinds = [kernel_class(shape).id for shape in self.step.trace.shapes]
        several = len({op.queue for op in self.ops}) > 1
        gpus = len({op.device for op in self.ops}) > 1
        for at, op in enumerate(self.ops):
            row = f"stream {op.stream}" if several else "GPU"
            row = f"GPU {op.device}, {row}" if gpus else row
            row = f"new stream {op.path}".strip() if at in played.edit.beside else row
            kind = kinds[op.shape] if op.kind == "kernel" else op.kind
            if at not in played.edit.drops:
                yield row, played.starts[at], played.ends[at], kind

    # What holds what

    def _learn(self, step: Step) -> None:
        """What launches take to an idle GPU, and the GPU between queued operations (in a graph, and
        else), from steps around the typical one."""
        trace, window = step.trace, step.window
        near = max(0, _MOST - (window.last - window.first)) // 2
        low = max(step.windows[0].first, window.first - near)
        ops = trace.ops[low : min(step.windows[-1].last, window.last + near)]
        ways: dict[str, list[int]] = defaultdict(list)
        between: dict[tuple[str, bool], list[int]] = defaultdict(list)
        for op, ended in zip(ops, _previous(ops, 0), strict=True):
            if op.call < 0:
                continue
            call = trace.calls[op.call]
            if 0 < ended < min(call.end, op.start - _LATE_NS) and op.start < call.start + _NEAR_NS:
                ways[op.kind].append(op.start - call.start)
            if call.start + 2 * _HELD_NS < ended <= op.start < ended + 2 * _HELD_NS:
                between[op.kind, op.node > 0].append(op.start - ended)
        every = [way for each in ways.values() for way in each] or [2 * _HELD_NS]
        kinds = {(op.kind, op.node > 0) for op in self.ops}
        self.way = {kind: _usual(ways[kind] or every) for kind, _ in kinds}
        self.between = {kind: _usual(between[kind] or [1_000]) for kind in kinds}

    def _operations(self) -> None:
        """Of each operation the pause after the one before it in its stream, what it waits for on
        another stream, and how much later than all that is known to hold it it begins."""
        ops, previous = self.ops, _previous([self.ops[at] for at in self.order], self.length)
        self.pauses = [0.0] * len(ops)
        """Below 0 where operations overlap."""
        self.after: list[tuple[int, int]] = [(-1, 0)] * len(ops)
        """The place of the operation on another stream, or -1, and the rest in nanoseconds."""
        for at, before in zip(self.order, previous, strict=True):
            op, call = ops[at], self.call_of[at]
            pause = self.between[op.kind, op.node > 0]
            self.pauses[at] = pause if op.start >= before else op.start - before
            bound = before + self.pauses[at]
            if call >= 0:
                bound = max(bound, self.calls[call][1].start + self.way[op.kind])
            if op.start - bound <= _LATE_NS:
                continue
            self.after[at] = -1, int(op.start - bound)
            last = bisect_right(self.ends, (op.start - self.origin, len(ops))) - 1
            by = self.ends[last][1] if last >= 0 else -1
            other = by >= 0 and ops[by].stream != op.stream and ops[by].end > bound
            if other and op.start - ops[by].end < _NEAR_NS:
                self.after[at] = by, op.start - ops[by].end

    def _host(self, pause: int) -> None:
        """Of each call the host's time before it, its own, and what it waits for. `pause` is from the
        last call of a step to the first of the next."""
        calls = self.calls
        main = _main(calls)
        self.side = [(call.process, call.thread) not in main for _, call in calls]
        self.before, self.took = [0] * len(calls), [call.end - call.start for _, call in calls]
        last, until = calls[0][1].start if calls else 0, 0
        for i, (_, call) in enumerate(calls):
            if self.side[i]:
                self.before[i] = max(0, call.start - last)
            else:
                self.before[i] = max(0, call.start - until) if i else pause
                last, until = call.start, max(until, call.end)
        self.waits = [self._wait(i) for i in range(len(calls))]
        launches = [self.took[i] for i, (_, call) in enumerate(calls) if call.kind == "launch"]
        for i in range(len(calls)):
            if self._full(i):
                self.took[i] = min(self.took[i], int(statistics.median(launches or [0])))
        # a host that is ahead takes no longer than the step on average
        both = zip(self.before, self.took, self.side, strict=True)
        period = sum(before + took for before, took, side in both if not side)
        if period > self.length:
            self.before = [ns * self.length // period for ns in self.before]
            self.took = [ns * self.length // period for ns in self.took]

    def _wait(self, i: int) -> _Wait | None:
        """What a call waits for: a copy for itself, a synchronisation for what ended last before it
        returns, even if that was before it began: it will wait if the host comes earlier. What it takes
        is then without the wait."""
        ops, call = self.ops, self.calls[i][1]
        quick = min(self.took[i], _WAITS_NS)
        if call.kind == "copy":
            at = next((at for at in reversed(self.queued[i]) if ops[at].end <= call.end), -1)
            if at < 0 or self.took[i] <= _WAITS_NS:
                return None
            self.took[i] = quick
            return at, 0, call.end - ops[at].end
        if not ops or not (call.kind == "sync" or (call.kind == "free" and quick == _WAITS_NS)):
            return None
        steps, inside = divmod(call.end - self.origin, self.length)
        at = bisect_right(self.ends, (inside, len(ops))) - 1
        if at < 0:
            at, steps = len(ops) - 1, steps - 1
        ended, by = self.ends[at]
        ended += steps * self.length + self.origin
        if steps > 0 or (steps == 0 and self.call_of[by] > i):
            return None
        if ended <= call.start:
            return by, -steps, quick
        self.took[i] = quick
        return by, -steps, call.end - ended

    def _full(self, i: int) -> bool:
        """Whether a launch, of a function of the host too, or a set may wait for room in the queue."""
        queued = next((each for each in self.queued[i::-1] if each), None)
        if self.calls[i][1].kind not in ("launch", "graph", "set", "other") or not queued:
            return False
        steps, inside = divmod(self.calls[i][1].end - self.origin, self.length)
        started = steps * len(self.ops) + bisect_right(self.starts, inside)
        return self.took[i] > _WAITS_NS and self.rank[queued[0]] >= started + _AHEAD

    def _mean(self, account: Account) -> None:
        """What the mean step takes more than the typical one: each operation, the host before each
        call, and calls for which the GPU waits in other steps only."""
        gaps = [
            (gap, (gap.end - gap.start) * (self.origin <= gap.start < self.origin + self.length))
            for gap in account.gaps
        ]
        longer = 1e3 * sum(account.exclusive_us) / (self.length - sum(ns for _, ns in gaps) or 1)
        self.lasts = [(op.end - op.start) * longer for op in self.ops]
        self.more = [0.0] * len(self.calls)
        self.idle: dict[int, list[tuple[float, int, bool]]] = defaultdict(list)
        """Of such calls for how long, the call in `Trace.calls` that is the cause, and whether the
        host did more than launch."""
        own: dict[int, int] = defaultdict(int)
        for gap, ns in gaps:
            own[gap.before] = max(own[gap.before], ns)
        for gap, ns in gaps if self.calls else ():
            call = max(0, self.call_of[gap.before]) if gap.before >= 0 else 0
            if gap.cause == "between":
                continue
            if gap.before < 0 or gap.end - gap.start <= 2 * own[gap.before]:
                self.more[call] += gap.us * 1e3 - ns
            else:
                long = gap.end - gap.start >= OTHER_WORK_US * 1e3
                self.idle[call].append((gap.us * 1e3, gap.call, long))

    # Replaying

    def _play(self, edit: Edit) -> _Played:
        ops = self.ops
        lasts = [
            max(min(ns, _LEAST_NS), ns * edit.keeps.get(at, 1.0))
            for at, ns in enumerate(self.lasts)
        ]
        streams: list[tuple[object, ...]] = [op.queue for op in ops]
        pauses, after = [*self.pauses], [*self.after]
        for at in edit.beside:
            streams[at] = (ops[at].path,)
        for at in edit.graphed:
            pauses[at] = min(0.0, pauses[at])
            after[at] = after[at][0], after[at][1] * (after[at][0] >= 0)
        free: dict[tuple[object, ...], float] = {}
        last = float(self.begin)

        def run(queued: Iterable[int], call: float | None, ended: list[float], held: float) -> None:
            nonlocal last
            for at in queued:
                if at in edit.drops:
                    continue
                by, rest = after[at]
                start = max(held, free.get(streams[at], 0.0) + pauses[at])
                if call is not None:
                    start = max(start, call + self.way[ops[at].kind])
                if by < 0:
                    start += rest
                elif by not in edit.drops and by not in edit.beside:
                    start = max(start, ended[by] + rest)
                free[streams[at]] = ended[at] = start + lasts[at]
                last = max(last, ended[at])

        before, took, waits, idle = self._edited(edit)
        history: list[list[float]] = []
        done: list[float] = []
        clock = began = last
        called, returned = [0.0] * len(waits), [0.0] * len(waits)
        for repeat in range(self.repeats):
            ended = [0.0] * len(ops)
            history.append(ended)
            run(self.queued[-1], None, ended, 0.0)
            for i, wait in enumerate(waits):
                held = last + idle[i] if idle[i] else 0.0
                start = (began if self.side[i] else clock) + before[i] + idle[i]
                run(self.queued[i], start, ended, held)
                end = start + took[i]
                if wait is not None:
                    by, steps, rest = wait
                    if steps <= repeat and by not in edit.drops:
                        end = max(end, history[repeat - steps][by] + rest)
                called[i], returned[i] = start, end
                if not self.side[i]:
                    began, clock = start, max(clock, end)
            done.append(max(ended, default=0.0) or clock)
        half = len(done) // 2
        length = (done[-1] - done[half - 1]) / (len(done) - half) if half else max(*done, clock)
        times = map(sub, ended, lasts), ended, called, returned
        return _Played(edit, length, *(array("d", each) for each in times))

    def _edited(
        self, edit: Edit
    ) -> tuple[list[float], list[float], list[_Wait | None], list[float]]:
        """The host's time before each call, the call's own, what it waits for, and for how long the GPU
        waits for it, with a change."""
        before = [max(0.0, a + b) for a, b in zip(self.before, self.more, strict=True)]
        took, waits, idle = [*map(float, self.took)], [*self.waits], [0.0] * len(self.calls)
        gone = quick = moved = False
        places = range(len(self.calls) - 1, -1, -1)
        first = next((i for i in reversed(places) if self.queued[i]), 0)
        for i in (first, *places) if places else ():  # the next step follows the last call
            at, call = self.calls[i]
            if mine := self.queued[i]:
                gone = edit.drops.issuperset(mine)
                quick = gone or edit.graphed.issuperset(mine)
                moved = not edit.moved.isdisjoint(mine)
            if self.side[i]:
                continue
            if moved if before[i] >= OTHER_WORK_US * 1e3 else quick:
                before[i] = 0.0
            idle[i] = 0.0
            for ns, cause, long in self.idle.get(i, ()):
                if not moved and cause not in edit.waits and (long or not quick):
                    idle[i] += ns
            if at in edit.waits or (gone and mine):
                waits[i] = None
                took[i] = min(took[i], _WAITS_NS) if mine else 0.0
            stays = (call.kind in _STAYS and not gone) or took[i] >= OTHER_WORK_US * 1e3
            if quick and not stays and waits[i] is None:
                took[i] = 0.0
        return before, took, waits, idle


def _usual(times: Sequence[int]) -> float:
    """The mean without what takes so much longer than the median that it waited for something."""
    most = statistics.median(times) + _LATE_NS
    return statistics.fmean(ns for ns in times if ns <= most)


def _previous(ops: Sequence[Op], length: int) -> list[int]:
    """When the operation before each in its stream ended; before the first, that of the step before,
    which took `length`, or 0."""
    last, ended = {op.queue: op.end - length for op in ops if length}, []
    for op in ops:
        ended.append(last.get(op.queue, 0))
        last[op.queue] = op.end
    return ended


def _calls(step: Step) -> tuple[list[tuple[int, Call]], int]:
    """The calls of one step of the host, with their places in `Trace.calls`: from the first that
    queued its work up to the first that queued the next step's; and the nanoseconds from the last of
    them to that one. Where no step is beside it, that is what the host did before its first call."""
    calls, window = step.trace.calls, step.window
    used = sorted({op.call for op in step.ops if op.call >= 0})
    if not used:
        return [], 0
    begin, until, alone = calls[used[0]].start, window.end, True
    for at in (step.typical - 1, step.typical + 1):
        if not 0 <= at < len(step.windows):
            continue
        other = step.windows[at]
        theirs = [op.call for op in structs.replace(step, typical=at).ops if op.call >= 0]
        if other.start == window.end:
            alone = False
            until = min((calls[call].start for call in theirs if call > used[0]), default=until)
        elif other.end == window.start and window is step.windows[-1]:
            alone = False
            first = min((calls[call].start for call in theirs if call < used[0]), default=begin)
            until = 2 * begin - first
    threads = {(calls[at].process, calls[at].thread) for at in used}
    found = [
        (at, call)
        for at, call in enumerate(calls[used[0] :], used[0])
        if (at <= used[-1] or call.start < until) and (call.process, call.thread) in threads
    ]
    last = max(call.end for _, call in found)
    return found, max(0, begin - window.start if alone else until - last)


def _main(calls: Sequence[tuple[int, Call]]) -> set[tuple[int, int]]:
    """The threads whose calls are one sequence: the one that makes most, and those that take turns
    with it."""
    many = Counter((call.process, call.thread) for _, call in calls)
    found: set[tuple[int, int]] = set()
    for thread, count in many.most_common():
        until, inside = 0, 0
        for _, call in calls:
            here = call.process, call.thread
            if here in found:
                until = max(until, call.end)
            elif here == thread:
                inside += call.start < until
        if inside <= _BESIDE * count:
            found.add(thread)
    return found
