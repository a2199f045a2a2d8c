"""A step's wall time, split without rest: kernels by class, copies and sets that no kernel hides,
and idle time by what caused it.

Why the GPU idles is read from the call that queued the next work. A call that had ended when the
work before was done leaves only the GPU's own gap between two queued operations. A later one has
been late: by as long as a synchronization, a copy or an allocation held the host just before it,
and for the rest by the host's own work. What fills a gap need not cause it, so a call counts only
if it ended within the gap, on the thread that launched next or on that of the work before."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Final

from ncu_toolkit.program.model import (
    Account,
    AccountPart,
    Call,
    CallKind,
    GapCause,
    IdleGap,
    Op,
    Step,
)
from ncu_toolkit.program.traces.classes import kernel_class

#: A gap's rest of less is not told apart from what held the host: what a launch and its way to an
#: idle GPU take, in nanoseconds, and as part of the gap.
_SMALL_NS: Final = 10_000
_SMALL_PART: Final = 0.2
#: A copy's call that takes longer waits for the copy: queuing one takes 3 to 8 µs.
_QUEUED_NS: Final = 12_000
#: A GPU takes 1 to 6 µs between queued operations (the 5th to 95th percentile of the traces that
#: others publish). After more, the trace lacks what it waited for, or lacks operations.
_BETWEEN_NS: Final = 20_000
_HOLDS: Final[Mapping[CallKind, GapCause]] = {
    "sync": "sync",
    "copy": "copy",
    "set": "host late",
    "allocate": "allocation",
    "free": "allocation",
    "load": "host late",
}
_LABELS: Final = {
    "copy": "Copies that no kernel hides",
    "set": "Setting memory",
    "idle: host late": "Idle: the host launches late",
    "idle: host work": "Idle: the host does other work",
    "idle: sync": "Idle: the host waited for the GPU",
    "idle: copy": "Idle: the host waited for a copy",
    "idle: allocation": "Idle: memory is allocated or freed",
    "idle: between": "Idle: between queued kernels",
    "idle: unknown": "Idle: cause not recorded",
}


def account_of(step: Step) -> Account:
    """The parts of the typical step's wall time, in microseconds; they add up to it.

    Kernels that run at once share that time evenly, and take it from copies and sets beside them.
    Work that still runs when the step ends counts at its start, where the step before has left as
    much. Takes about 1 s for 100 000 operations."""
    ops, window = step.ops, step.window
    length = window.end - window.start
    events: list[tuple[int, int, int]] = []
    for place, op in enumerate(ops):
        start, end = op.start - window.start, min(op.end, op.start + length) - window.start
        for low, high in ((start, min(end, length)), (0, end - length)):
            if high > low:
                events += ((low, 1, place), (high, 0, place))
    events.sort()
    kernel = [op.kind == "kernel" for op in ops]
    exclusive, entered = [0.0] * len(ops), [0.0] * len(ops)
    active, clock = [0, 0], [0.0, 0.0]  # of copies and sets, and of kernels
    idle: list[tuple[int, int, int, int]] = []
    at, before = 0, -1
    for now, begins, place in events:
        which = kernel[place]
        if now > at:
            if active[1] or active[0]:
                clock[bool(active[1])] += (now - at) / (active[1] or active[0])
            else:
                idle.append((at, now, before, place))
            at = now
        if begins:
            active[which] += 1
            entered[place] = clock[which]
        else:
            active[which] -= 1
            exclusive[place] += clock[which] - entered[place]
            before = place
    if at < length:
        idle.append((at, length, before, len(ops)))
    gaps = tuple(_gaps(step, ops, idle))
    exclusive_us = tuple(value / 1e3 for value in exclusive)
    return Account(window.us, _parts(step, ops, exclusive_us, gaps), gaps, exclusive_us)


def _parts(
    step: Step, ops: tuple[Op, ...], us: tuple[float, ...], gaps: tuple[IdleGap, ...]
) -> tuple[AccountPart, ...]:
    classes = [kernel_class(shape) for shape in step.trace.shapes]
    labels = _LABELS | {each.id: each.label for each in classes}
    sums: dict[str, tuple[float, int]] = {}
    for op, time in zip(ops, us, strict=True):
        key = classes[op.shape].id if op.kind == "kernel" else op.kind
        if time or op.kind == "kernel":
            before, count = sums.get(key, (0.0, 0))
            sums[key] = before + time, count + 1
    for gap in gaps:
        before, count = sums.get(gap.key, (0.0, 0))
        sums[gap.key] = before + gap.us, count + 1
    parts = (AccountPart(key, labels[key], time, count) for key, (time, count) in sums.items())
    return tuple(sorted(parts, key=lambda part: (-part.us, part.key)))


def _gaps(
    step: Step, ops: tuple[Op, ...], idle: list[tuple[int, int, int, int]]
) -> Iterator[IdleGap]:
    """Idle time with its causes. `idle` has begin and end from the start of the step, and the
    places of the work before and after."""
    calls, window = step.trace.calls, step.window
    of_step = (step.process, step.device)
    held = _Held(step, ops)
    blind = not {"wall time", "host calls"}.isdisjoint(step.trace.lacks)
    for begin, end, last, place in idle:
        low, high = window.start + begin, window.start + end
        if place < len(ops):
            after = ops[place]
        else:  # the next step's first work ends it
            following = step.trace.ops[window.last :]
            mine = (op for op in following if of_step in ((None, None), (op.process, op.device)))
            after = next(mine, ops[0])
            place = 0
        if after.call < 0 or blind:
            yield IdleGap(low, high, "unknown", place)
            continue
        call = calls[after.call]
        if call.end <= low or (after.path == "DtoH" and call.start < low):
            if high - low > _BETWEEN_NS:
                yield IdleGap(low, high, "unknown", place)
            else:
                yield IdleGap(low, high, "between", place, after.call)
            continue
        threads = {call.thread}
        if last >= 0 and ops[last].call >= 0:
            threads.add(calls[ops[last].call].thread)
        # what was ready for long before it began waited for something that is not the host
        waited = after.kind == "kernel" and high - call.end > _BETWEEN_NS
        rest_from = high
        if after.kind == "copy" or waited:
            rest_from = min(max(call.end if waited else call.start, low), high)
        for cause, by, until in held.pieces(threads, call, low, rest_from):
            yield IdleGap(low, until, cause, place, by if by >= 0 else after.call)
            low = until
        if low < high:
            by = -1 if waited else after.call
            yield IdleGap(low, high, "unknown" if waited else "copy", place, by)


class _Held:
    """Calls that may hold the host in a step, by thread, in the order in which they ended."""

    def __init__(self, step: Step, ops: tuple[Op, ...]) -> None:
        self.reads = {op.call for op in ops if op.path == "DtoH"}
        self.threads: dict[int, list[tuple[int, int, Call]]] = {}
        process = ops[0].process
        window = step.window
        for place, call in enumerate(step.trace.calls):
            if call.kind in _HOLDS and call.end > window.start and call.process == process:
                if call.start >= window.end:
                    break
                if call.kind not in ("copy", "set") or call.end - call.start > _QUEUED_NS:
                    self.threads.setdefault(call.thread, []).append((call.end, place, call))
        for each in self.threads.values():
            each.sort(key=lambda held: held[:2])

    def pieces(
        self, threads: set[int], call: Call, low: int, high: int
    ) -> Iterator[tuple[GapCause, int, int]]:
        """The idle time from `low` to `high` before `call`, as cause, place of the call that
        explains it (-1 for `call`) and end, in order."""
        found = []
        for thread in threads:
            held = self.threads.get(thread, [])
            for end, place, by in held[bisect_right(held, low, key=lambda each: each[0]) :]:
                if end > call.start:
                    break
                found.append((by.start, end, place, by.kind))
        pieces: list[tuple[GapCause, int, int]] = []
        left, until = high - low, 0
        for start, end, place, kind in sorted(found):
            took = min(left, end - max(start, until))
            if took > 0:
                cause = "sync" if place in self.reads else _HOLDS[kind]
                pieces.append((cause, place, took))
                left, until = left - took, end
        if pieces and left <= max(_SMALL_NS, _SMALL_PART * (high - low)):
            most = max(range(len(pieces)), key=lambda i: pieces[i][2])
            cause, place, took = pieces[most]
            pieces[most] = cause, place, took + left
            left = 0
        if left > 0:
            pieces.append(("host late", -1, left))
        for cause, place, took in pieces:
            low += took
            yield cause, place, low
