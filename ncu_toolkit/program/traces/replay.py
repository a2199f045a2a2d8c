"""What a step would take with a change: the recorded step, replayed.

A step is what its host does, call by call, and what its GPU does, queue by queue. Calls of threads
that take turns (autograd's with the program's) are one sequence; a thread beside it follows the call
that it began after. An operation begins once it is queued, the one before it in its stream has ended,
and what it waited for on other streams has ended; a call that waits returns after the operation that
it waited for. The step is repeated until it is steady, so that a host that is ahead stays ahead.

The times between two calls and of each operation are the recorded ones. The way of a launch to an idle
GPU, and the time between two queued operations, are the trace's medians, so that a step that is replayed
unchanged need not take what was recorded: `Replay.error` says how far it is off."""

import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import structs

from ncu_toolkit.program.model import OTHER_WORK_US, Account, Call, Edit, Op, Step

#: Calls and operations that are replayed at most, and fewest and most repeats of the step.
_MOST: Final = 60_000
_REPEATS: Final = (3, 8)
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
#: Part of a thread's calls that begin within calls of the main one from which it runs beside it.
_BESIDE: Final = 0.1
#: Nanoseconds that recording costs a call, and one whose line was looked up.
RECORDED: Final = (1_300, 4_800)
#: Calls that a CUDA graph does not do without.
_STAYS: Final = ("allocate", "free", "load")
_WAITING: Final = ("sync", "copy", "free", "launch", "graph")


class Replay:
    """A step that can be replayed with changes."""

    def __init__(self, step: Step, account: Account) -> None:
        self.ops, self.account, self.length = step.ops, account, step.window.end - step.window.start
        self.origin = step.window.start
        self.calls, self.pause = _calls(step)
        place = {at: i for i, (at, _) in enumerate(self.calls)}
        self.queued: list[list[int]] = [[] for _ in self.calls]
        """Operations of each call."""
        self.alone: list[int] = []
        """Operations whose call is not known."""
        self.call_of = [place.get(op.call, -1) for op in self.ops]
        for at, call in enumerate(self.call_of):
            (self.queued[call] if call >= 0 else self.alone).append(at)
        self.order = [*self.alone, *(at for each in self.queued for at in each)]
        self.starts = sorted(op.start - self.origin for op in self.ops)
        self.ends = sorted((op.end - self.origin, at) for at, op in enumerate(self.ops))
        more = sum(account.exclusive_us) * 1e3 / (_busy(self.ops) or 1)
        #: Nanoseconds that each operation takes in the mean step.
        self.lasts = [(op.end - op.start) * more for op in self.ops]
        self._operations(step)
        self._host()
        size = len(self.calls) + len(self.ops)
        self.repeats = min(_REPEATS[1], max(_REPEATS[0], _MOST // max(size, 1)))
        self.begin = 0
        if step.how == "whole":  # it is not repeated
            self.repeats, self.before[:1] = 1, [0] * bool(self.calls)
            self.begin = self.calls[0][1].start - self.origin if self.calls else 0
        recorded = self._period(Edit())
        self.error = abs(recorded / 1e3 / account.wall_us - 1) if account.wall_us else 0.0
        """How far the step that is replayed unchanged is off the mean step, as a part (0-1) of it."""
        self._undistort(step)
        self.unchanged = self._period(Edit())

    def saved_us(self, *edits: Edit | None) -> float:
        """What changes, all made at once, save of the mean step, in microseconds."""
        if not self.unchanged:
            return 0.0
        left = self._period(Edit.joined(filter(None, edits))) / self.unchanged
        return self.account.wall_us * max(0.0, 1 - left)

    def _undistort(self, step: Step) -> None:
        """Take out what recording costs the host."""
        if not step.trace.source.startswith("ncu-toolkit"):
            return
        for i, (_, call) in enumerate(self.calls):
            cost = RECORDED[call.line >= 0]
            left = max(0, self.took[i] - cost)
            self.before[i] = max(0, self.before[i] - max(0, cost - self.took[i]))
            self.took[i] = left

    # What holds what

    def _operations(self, step: Step) -> None:
        """Of each operation what it waits for on another stream, and how much later than all that is
        known to hold it it begins."""
        ops, previous = self.ops, _previous([self.ops[at] for at in self.order], self.length)
        previous = [ended for _, ended in sorted(zip(self.order, previous, strict=True))]
        self._learn(step)
        #: Between each operation and the one before it in its stream; below 0 where they overlap.
        self.pauses = [
            min(self.between[op.kind, op.node > 0], op.start - before)
            if op.start < before
            else self.between[op.kind, op.node > 0]
            for op, before in zip(ops, previous, strict=True)
        ]
        self.after: list[tuple[int, int]] = [(-1, 0)] * len(ops)
        """The place of the operation on another stream, or -1, and the rest in nanoseconds."""
        for at, (before, call) in enumerate(zip(previous, self.call_of, strict=True)):
            op = ops[at]
            bound = before + self.pauses[at]
            if call >= 0:
                bound = max(bound, self.calls[call][1].start + self.way[op.kind])
            if op.start - bound > _LATE_NS:
                last = bisect_right(self.ends, (op.start - self.origin, len(ops))) - 1
                by = self.ends[last][1] if last >= 0 else -1
                other = by >= 0 and ops[by].stream != op.stream and ops[by].end > bound
                if other and op.start - ops[by].end < _NEAR_NS:
                    self.after[at] = by, op.start - ops[by].end
                else:
                    self.after[at] = -1, int(op.start - bound)

    def _learn(self, step: Step) -> None:
        """What launches take to an idle GPU, and the GPU between queued operations, from steps around
        the typical one."""
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
        kinds = ("kernel", "copy", "set")
        self.way = {kind: _usual(ways[kind] or every) for kind in kinds}
        self.between = {
            (kind, node): _usual(between[kind, node] or [1_000])
            for kind in kinds
            for node in (False, True)
        }

    def _host(self) -> None:
        """Of each call the host's time before it, its own, and the operation that it waits for, with
        the time from there to its return."""
        ops, calls = self.ops, self.calls
        places = {at: n for n, at in enumerate(self.order)}
        launches = [c.end - c.start for _, c in calls if c.kind == "launch"]
        usual = int(statistics.median(launches)) if launches else 0
        main = _main(calls)
        self.side = [(call.process, call.thread) not in main for _, call in calls]
        self.before = [0] * len(calls)
        self.took = [call.end - call.start for _, call in calls]
        self.waits: list[tuple[int, int, int] | None] = [None] * len(calls)
        """Place of the operation, how many steps before, and nanoseconds to the return."""
        last: Call | None = None
        until = calls[0][1].start if calls else 0
        for i, (_, call) in enumerate(calls):
            if self.side[i] and last is not None:
                self.before[i] = call.start - last.start
            else:
                self.before[i] = max(0, call.start - until)
                last, until = call, max(until, call.end)
            if self.took[i] <= _WAITS_NS or call.kind not in _WAITING:
                continue
            steps, inside = divmod(call.end - self.origin, self.length)
            if call.kind in ("launch", "graph"):
                if self.queued[i]:
                    started = steps * len(ops) + bisect_right(self.starts, inside)
                    if places[self.queued[i][0]] - started >= _AHEAD:
                        self.took[i] = min(self.took[i], usual)
                continue
            if call.kind == "copy":  # for itself, if at all
                mine = [at for at in self.queued[i] if ops[at].end <= call.end]
                if mine:
                    self.waits[i] = mine[-1], 0, call.end - ops[mine[-1]].end
                continue
            at = bisect_right(self.ends, (inside, len(ops))) - 1
            if at < 0:
                at, steps = len(ops) - 1, steps - 1
            ended, by = self.ends[at]
            ended += steps * self.length + self.origin
            ahead = self.call_of[by] > i and steps >= 0
            if steps <= 0 and not ahead and call.start < ended:
                self.waits[i] = by, -steps, call.end - ended
        if calls:  # from the last call of a step to the first of the next
            self.before[0] += self.pause
        # a host that is ahead takes no longer than the step on average
        period = sum(self.before) + sum(self.took)
        if period > self.length and not any(self.waits):
            slower = self.length / period
            self.before = [int(ns * slower) for ns in self.before]
            self.took = [int(ns * slower) for ns in self.took]
        self.more = [0.0] * len(calls)
        """What the mean step has more of the host's time than the typical one, before each call."""
        self.idle: list[tuple[int, float, int]] = []
        """Calls for which the GPU of the mean step waits and the typical step's does not, for how long,
        and the call in `Trace.calls` that is the cause."""
        gaps = [
            (gap, self.origin <= gap.start < self.origin + self.length, max(0, self.call_of[gap.before]))
            for gap in self.account.gaps
            if gap.cause != "between" and calls
        ]
        typical: dict[int, int] = defaultdict(int)
        for gap, inside, call in gaps:
            typical[call] = max(typical[call], (gap.end - gap.start) * inside)
        for gap, inside, call in gaps:
            length = gap.end - gap.start
            if gap.before < 0 or length <= 2 * typical[call]:
                self.more[call] += gap.us * 1e3 - length * inside
            else:
                self.idle.append((call, gap.us * 1e3, gap.call))

    # Replaying

    def _period(self, edit: Edit) -> float:
        """The length of a step with a change, in nanoseconds, once it is steady."""
        if not self.ops:
            return 0.0
        ops, calls, done = self.ops, self.calls, []
        gone = [at in edit.drops for at in range(len(ops))]
        lasts = [
            max(min(us, _LEAST_NS), us * edit.keeps.get(at, 1.0)) for at, us in enumerate(self.lasts)
        ]
        streams = [
            (op.path, -1, -1) if at in edit.beside else _stream(op) for at, op in enumerate(ops)
        ]
        pauses = [
            min(0.0, pause) if at in edit.graphed else pause for at, pause in enumerate(self.pauses)
        ]
        before, took, waits, idle = self._edited(edit)
        history: list[list[float]] = []
        free: dict[tuple[object, ...], float] = {}
        clock = began = last = float(self.begin)
        for repeat in range(self.repeats):
            ended = [0.0] * len(ops)
            history.append(ended)

            def begin(at: int, earliest: float, ended: list[float] = ended) -> None:
                nonlocal last
                if gone[at]:
                    return
                by, rest = self.after[at]
                start = max(earliest, free.get(streams[at], 0.0) + pauses[at])
                if by < 0:
                    start += rest * (at not in edit.graphed)
                elif not gone[by] and by not in edit.beside:
                    start = max(start, ended[by] + rest)
                free[streams[at]] = ended[at] = start + lasts[at]
                last = max(last, ended[at])

            for at in self.alone:
                begin(at, 0.0)
            for i in range(len(calls)):
                start = (began if self.side[i] else clock) + before[i]
                held = last + idle[i] if idle[i] else 0.0
                start += idle[i]
                for at in self.queued[i]:
                    begin(at, max(held, start + self.way[ops[at].kind]))
                end = start + took[i]
                wait = waits[i]
                if wait is not None:
                    by, steps, rest = wait
                    if steps <= repeat and not gone[by]:
                        end = max(start + _WAITS_NS, history[repeat - steps][by] + rest)
                    else:
                        end = start + min(took[i], _WAITS_NS)
                if not self.side[i]:
                    began, clock = start, max(clock, end)
            done.append(max(ended) or clock)
        if len(done) == 1:
            return max(done[0], clock)
        half = len(done) // 2
        return (done[-1] - done[half - 1]) / (len(done) - half)

    def _edited(
        self, edit: Edit
    ) -> tuple[list[float], list[float], list[tuple[int, int, int] | None], list[float]]:
        """The host's time before each call, the call's own, what it waits for, and for how long the GPU
        waits for it, with a change."""
        idle = [0.0] * len(self.calls)
        for i, ns, cause in self.idle:
            idle[i] += ns * (cause not in edit.waits)
        before = [max(0.0, a + b) for a, b in zip(self.before, self.more, strict=True)]
        took: list[float] = [*self.took]
        waits = [*self.waits]
        gone = quick = moved = False
        first = next((i for i, mine in enumerate(self.queued) if mine), 0)
        for i in (first, *range(len(self.calls) - 1, -1, -1)):  # the next step follows the last call
            if mine := self.queued[i]:
                gone = edit.drops.issuperset(mine)
                quick = gone or edit.graphed.issuperset(mine)
                moved = not edit.moved.isdisjoint(mine)
            if self.side[i]:
                continue
            at, call = self.calls[i]
            if moved or (quick and before[i] < OTHER_WORK_US * 1e3):
                before[i] = idle[i] = 0.0
            if at in edit.waits or (gone and mine):
                waits[i] = None
                took[i] = min(took[i], _WAITS_NS) if mine else 0.0
            stays = not gone and call.kind in _STAYS
            if quick and not stays and waits[i] is None and took[i] < OTHER_WORK_US * 1e3:
                took[i] = 0.0
        return before, took, waits, idle


def _stream(op: Op) -> tuple[int, int, int]:
    return op.process, op.device, op.stream


def _usual(times: Sequence[int]) -> float:
    """The mean without what takes so much longer than the median that it waited for something."""
    most = statistics.median(times) + _LATE_NS
    return statistics.fmean(ns for ns in times if ns <= most)


def _previous(ops: Sequence[Op], length: int) -> list[int]:
    """When the operation before each in its stream ended; before the first, that of the step before,
    which took `length`, or 0."""
    last: dict[tuple[int, int, int], int] = {}
    for op in ops if length else ():
        last[_stream(op)] = op.end - length
    ended = []
    for op in ops:
        ended.append(last.get(_stream(op), 0))
        last[_stream(op)] = op.end
    return ended


def _busy(ops: Iterable[Op]) -> int:
    """Nanoseconds in which any of them runs."""
    until = total = 0
    for op in ops:
        total += max(0, op.end - max(op.start, until))
        until = max(until, op.end)
    return total


def _calls(step: Step) -> tuple[list[tuple[int, Call]], int]:
    """The calls of one step of the host, with their places in `Trace.calls`: from the first that
    queued its work up to the first that queued the next step's; and the nanoseconds from the last of
    them to that one. Where no step is beside it, that is what the host did before its first call."""
    calls, window = step.trace.calls, step.window
    used = sorted({op.call for op in step.ops if 0 <= op.call < len(calls)})
    if not used:
        return [], 0
    begin, last, until = calls[used[0]].start, calls[used[-1]].end, window.end
    beside = {at: step.windows[at] for at in (step.typical - 1, step.typical + 1) if 0 <= at < len(step.windows)}
    for at, other in beside.items():
        theirs = [op.call for op in structs.replace(step, typical=at).ops if op.call >= 0]
        if other.start == window.end:
            until = min((calls[call].start for call in theirs if call > used[0]), default=until)
        elif other.end == window.start and window is step.windows[-1]:
            until = 2 * begin - min((calls[call].start for call in theirs if call < used[0]), default=begin)
    threads = {(calls[at].process, calls[at].thread) for at in used}
    found = []
    for at in range(used[0], len(calls)):
        call = calls[at]
        if at > used[-1] and call.start >= until:
            break
        if (call.process, call.thread) in threads:
            found.append((at, call))
            last = max(last, call.end)
    alone = not any(each.start == window.end or each.end == window.start for each in beside.values())
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
