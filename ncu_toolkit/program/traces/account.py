"""A step's wall time, split without rest: kernels by class, copies and sets that no kernel hides,
and idle time by what caused it.

Why the GPU idles is read from the call that queued the next work. A call that had ended when the
work before was done leaves only the GPU's own gap between two queued operations. A later one has
been late: by as long as a synchronization, a copy or an allocation held the host just before it,
and for the rest by the host's own work. What fills a gap need not cause it, so a call counts only
if it ended within the gap, on the thread that launched next or on that of the work before."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from ncu_toolkit.base.core.shares import grouped, summed
from ncu_toolkit.program.model import (
    OTHER_WORK_US,
    Account,
    AccountPart,
    Call,
    CallKind,
    GapCause,
    IdleGap,
    Op,
    Step,
    Trace,
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
LABELS: Final = {
    "copy": "Exposed copies",
    "set": "Setting memory",
    "idle: host late": "Idle: kernels launched late",
    "idle: host work": "Idle: host runs other code",
    "idle: sync": "Idle: host waits for the GPU",
    "idle: copy": "Idle: host in a copy call",
    "idle: allocation": "Idle: allocating or freeing memory",
    "idle: between": "Idle: gaps between queued kernels",
    "idle: unknown": "Idle: cause not recorded",
}


#: Operations of which all steps are accounted; of more, evenly spaced steps with so many.
_MOST_OPS: Final = 300_000


class _OfWindow(NamedTuple):
    """One step's time: nanoseconds that each of its `ops` alone accounts for, and its idle time."""

    ops: tuple[Op, ...]
    exclusive: list[float]
    gaps: list[IdleGap]


def account_of(step: Step) -> Account:
    """The parts of the mean step's wall time, in microseconds; they add up to it.

    Kernels that run at once share that time evenly, and take it from copies and sets beside them.
    Work that still runs when the step ends counts at its start, where the step before has left as
    much. Each class's time is the mean over all steps, spread over the typical step's work in
    proportion; of uneven or sampled steps the long gaps of all are listed, each with its part of a mean one.
    Takes about 1 s for 100 000 operations."""
    held = _Held(step.trace)
    every = -(-sum(w.last - w.first for w in step.windows) // _MOST_OPS) or 1
    places = sorted({*range(0, len(step.windows), every), step.typical})
    accounts = {at: _of_window(structs.replace(step, typical=at), held) for at in places}
    took = sum(step.windows[at].us for at in places) or 1.0
    part = step.wall_us / took  # of one window's time in the mean step
    classes = [kernel_class(shape) for shape in step.trace.shapes]

    def key_of(op: Op) -> str:
        return classes[op.shape].id if op.kind == "kernel" else op.kind

    means: defaultdict[str, float] = defaultdict(float)
    for one in accounts.values():
        for op, time in zip(one.ops, one.exclusive, strict=True):
            means[key_of(op)] += part * time / 1e3
        for gap in one.gaps:
            means[gap.key] += part * gap.us
    typical = accounts[step.typical]
    keys = [key_of(op) for op in typical.ops]
    timed = [*zip(keys, typical.exclusive, strict=True)]
    own = summed((key, time / 1e3) for key, time in timed)
    counts = Counter(key for key, time in timed if time or key not in ("copy", "set"))
    # of work that others hide in the typical step, how long it runs
    hidden = summed((x, op.us) for x, op in zip(keys, typical.ops, strict=True) if not own[x])
    exclusive_us = tuple(
        means[key] * (time / 1e3 / own[key] if own[key] else op.us / (hidden[key] or 1.0))
        for key, op, time in zip(keys, typical.ops, typical.exclusive, strict=True)
    )
    gaps = _mean_gaps(step, accounts, part, means)
    counts.update(gap.key for gap in gaps)
    labels = LABELS | {each.id: each.label for each in classes}
    parts = (AccountPart(key, labels[key], means[key], counts[key]) for key in {**means, **counts})
    ordered = tuple(sorted(parts, key=lambda part: (-part.us, part.key)))
    return Account(step.wall_us, ordered, gaps, exclusive_us)


def _mean_gaps(
    step: Step, accounts: Mapping[int, _OfWindow], part: float, means: Mapping[str, float]
) -> tuple[IdleGap, ...]:
    """The gaps of the mean step: of the typical step, each stretched to the mean of its cause; of
    uneven steps, and where stacks were sampled (one step has few), only the short ones, and the long
    ones of all steps. A cause that the typical step lacks has its gaps in other steps."""
    typical, every = accounts[step.typical], step.uneven or bool(step.trace.samples)
    split = {at: _by_length(one.gaps) if every else (one.gaps, []) for at, one in accounts.items()}
    few, _ = split[step.typical]
    own = summed((gap.key, gap.us) for gap in few)
    listed: list[IdleGap] = []
    left = dict(means)
    for at, (short, long) in split.items():
        for gap in [*long, *(gap for gap in short if not own[gap.key])]:
            before = _alike(typical.ops, accounts[at].ops, gap.before)
            listed.append(structs.replace(gap, before=before, part=part))
            left[gap.key] -= listed[-1].us
    for gap in few:
        if own[gap.key]:
            listed.append(structs.replace(gap, part=max(0.0, left[gap.key]) / own[gap.key]))
    return tuple(sorted(listed, key=lambda gap: gap.start))


def _by_length(gaps: Sequence[IdleGap]) -> tuple[list[IdleGap], list[IdleGap]]:
    """Gaps of short idle times, and of those in which the host did more than launch. Pieces of one
    idle time stay together."""
    short: list[IdleGap] = []
    long: list[IdleGap] = []
    first = 0
    for at, gap in enumerate(gaps):
        goes_on = at + 1 < len(gaps) and gaps[at + 1].start == gap.end
        if not goes_on:
            whole = gap.end - gaps[first].start
            (long if whole >= OTHER_WORK_US * 1e3 else short).extend(gaps[first : at + 1])
            first = at + 1
    return short, long


def _alike(typical: Sequence[Op], ops: Sequence[Op], at: int) -> int:
    """The place in the typical step of the work at a place of another step: of the same kind, as
    near as there is; else -1."""
    if at < 0 or not ops:
        return -1
    op, near = ops[at], at * len(typical) // len(ops)
    kind = op.kind, op.shape, op.path
    same = [i for i, each in enumerate(typical) if (each.kind, each.shape, each.path) == kind]
    return min(same, key=lambda i: abs(i - near), default=-1)


def _of_window(step: Step, held: "_Held") -> _OfWindow:
    """The typical step's work and idle time."""
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
    return _OfWindow(ops, exclusive, [*_gaps(step, ops, idle, held)])


def _gaps(
    step: Step, ops: tuple[Op, ...], idle: list[tuple[int, int, int, int]], held: "_Held"
) -> Iterator[IdleGap]:
    """Idle time with its causes. `idle` has begin and end from the start of the step, and the
    places of the work before and after."""
    calls, window = step.trace.calls, step.window
    of_step = (step.process, step.device)
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
        threads = {(call.process, call.thread)}
        if last >= 0 and ops[last].call >= 0:
            threads.add((call.process, calls[ops[last].call].thread))
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
    """Calls that may hold the host, by process and thread, in the order in which they ended."""

    def __init__(self, trace: Trace) -> None:
        self.reads = {op.call for op in trace.ops if op.path == "DtoH"}
        least = {"copy": _QUEUED_NS, "set": _QUEUED_NS}  # a shorter one only queued its work
        able = (x for x in enumerate(trace.calls) if x[1].kind in _HOLDS)
        held = [x for x in able if x[1].end - x[1].start > least.get(x[1].kind, -1)]
        held.sort(key=lambda each: each[1].end)
        self.threads = grouped(held, lambda each: (each[1].process, each[1].thread))

    def pieces(
        self, threads: set[tuple[int, int]], call: Call, low: int, high: int
    ) -> Iterator[tuple[GapCause, int, int]]:
        """The idle time from `low` to `high` before `call`, as cause, place of the call that
        explains it (-1 for `call`) and end, in order."""
        found = []
        for thread in threads:
            held = self.threads.get(thread, [])
            for place, by in held[bisect_right(held, low, key=lambda each: each[1].end) :]:
                if by.end > call.start:
                    break
                found.append((by.start, by.end, place, by.kind))
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
