"""Ranks of one job: their collectives joined by process group and order, clocks aligned on them, and
the wall time of each rank's step split into compute, traffic, waiting for others and idle time.

A collective ends on all its ranks at about the same time, so its ends align the ranks' clocks. From
when a rank's kernel starts until the last rank's does, it waits; from then on there is traffic. What
other work hides counts as that work. Times are in microseconds, on clocks in nanoseconds."""

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy

from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.program.model import Op, ProgramDiagnosis, Step, StepFinding, Trace
from ncu_toolkit.program.traces.classes import collectives, exchange_kind

Array = numpy.ndarray[Any, Any]

#: Their ends differ between ranks: some need not wait for the others.
_ONE_SIDED: Final = ("broadcast", "send and receive", "collective")
#: Ranks that come to a collective within this many nanoseconds come at once.
_AT_ONCE_NS: Final = 20_000
#: Collectives from which a clock's drift is fitted, and by which counts of two ranks may differ.
_DRIFT, _SHIFTS = 20, 64
#: Clocks drift by less: crystals are good to 1e-4.
_MOST_DRIFT: Final = 1e-3
#: Part of the step (0-1) from which waiting for one rank, or traffic, is worth a card.
WORTH: Final = 0.03
#: The late rank makes the others wait this many times as long as the next one does.
_LATER: Final = 2.0


@dataclass(frozen=True)
class Timeline:
    """What is kept of a rank's trace, nanoseconds: small enough for a job of 64."""

    path: str
    rank: int
    gpu: str
    program: str
    how: str
    windows: Array
    """Start and end of each steady step, a row each."""
    compute: Array
    """Start and end of stretches with other work than collectives."""
    times: Array
    """Start and end of each collective, by start."""
    kinds: tuple[str, ...]
    groups: tuple[str, ...]
    sizes: Array
    """Bytes of each one's message (`Op.size`); NaN if unknown."""


@dataclass(frozen=True)
class RankRow:
    """The mean step of a rank; the last four add up to the step."""

    rank: int
    path: str
    gpu: str
    step_us: float
    compute_us: float
    traffic_us: float
    """Collectives with nothing beside them, from when all ranks are there."""
    waiting_us: float
    """The same until the last rank is there."""
    idle_us: float
    last: int
    """Collectives of a step, of those joined, at which it is the last."""
    late_us: float
    """By how much after the median of the others it comes to those, on average."""
    caused_us: float
    """What the median of the others waits for it in a step, with nothing beside."""
    begins_us: float
    """By how much later than the median rank its steps begin."""


@dataclass(frozen=True)
class Exchange:
    """The collectives of one kind in a step, as the mean over ranks."""

    kind: str
    count: float
    traffic_us: float
    """Of one, the median."""
    waiting_us: float
    """Of all, hidden or not, as the next."""
    all_traffic_us: float
    exposed_us: float
    """Traffic of all with nothing beside."""
    size: float | None = None
    """Bytes of one's message, the median; None if unknown."""
    bandwidth: float | None = None
    """Bytes a second of all: bus bandwidth as nccl-tests counts it, once all ranks are there."""


@dataclass(frozen=True)
class Job:
    """All ranks of a job. `path` is the folder or the trace that holds them."""

    path: str
    rows: tuple[RankRow, ...]
    exchanges: tuple[Exchange, ...]
    joined: int
    """Collectives that were joined over ranks, in all."""
    in_step: int
    """The same in a step."""
    error_us: float
    """By how much the ends of nine of ten collectives differ at most once clocks are aligned."""
    steps: int
    program: str = ""
    findings: tuple[StepFinding, ...] = ()
    """Between ranks, what saves most first."""
    shown: tuple[tuple[int, ProgramDiagnosis], ...] = field(default=(), repr=False)
    """The late rank, where there is one, and a usual one, each with what costs its step."""

    @property
    def step_us(self) -> float:
        return max(row.step_us for row in self.rows)

    @cached_property
    def latest(self) -> RankRow | None:
        """The rank for which the others wait, by whatever chance."""
        first, *others = sorted(self.rows, key=lambda row: -row.caused_us)
        enough = first.caused_us >= WORTH * self.step_us
        next_us = others[0].caused_us if others else 0.0
        return first if enough and first.caused_us >= _LATER * next_us else None

    @property
    def late(self) -> RankRow | None:
        """The same, where something about that rank is why."""
        return self.latest if any(each.rule == "late-rank" for each in self.findings) else None

    @property
    def usual(self) -> RankRow:
        """A rank that is not late: the one of median compute."""
        rest = [row for row in self.rows if row is not self.latest]
        return sorted(rest, key=lambda row: row.compute_us)[len(rest) // 2]


def split(trace: Trace) -> list[Trace]:
    """A trace of several processes that exchange data, a trace a process; the whole where there is
    one. Ranks are numbered by GPU, as torchrun and mpirun hand them out."""
    ours = collectives(trace)
    devices = {op.process: op.device for op in trace.ops if op.shape in ours}
    if len(devices) < 2:
        return [trace]
    order = sorted(devices, key=lambda each: (trace.devices[devices[each]].index, each))
    return [_of_process(trace, process, rank) for rank, process in enumerate(order)]


def _of_process(trace: Trace, process: int, rank: int) -> Trace:
    kept = [i for i, call in enumerate(trace.calls) if call.process == process]
    place = {old: new for new, old in enumerate(kept)}
    ops = [op for op in trace.ops if op.process == process]
    used = sorted({op.device for op in ops})
    where = {old: new for new, old in enumerate(used)}
    return msgspec.structs.replace(
        trace, rank=rank, devices=tuple(trace.devices[each] for each in used),
        ops=tuple(msgspec.structs.replace(op, call=place.get(op.call, -1), device=where[op.device]) for op in ops),
        calls=tuple(trace.calls[i] for i in kept),
        marks=tuple(mark for mark in trace.marks if mark.process == process),
        samples=tuple(each for each in trace.samples if each.process == process),
        notes=tuple(note for note in trace.notes if "processes" not in note),
    )  # fmt: skip


def timeline(step: Step, path: str) -> Timeline:
    """What is kept of a rank."""
    trace = step.trace
    named, others, ours = collectives(trace), list[Op](), list[Op]()
    for op in trace.ops:
        (ours if op.shape in named else others).append(op)
    ranges = sorted(
        (mark.start, mark.end, mark.thread, trace.names[mark.name])
        for mark in trace.marks
        if mark.kind == "range" and trace.names[mark.name].startswith("nccl")
    )
    starts = [each[0] for each in ranges]
    streams = {each: i for i, each in enumerate(dict.fromkeys(op.stream for op in ours))}
    kinds = []
    for op in ours:
        kind = named[op.shape]
        if kind == "all-to-all" and ranges and op.call >= 0:  # NCCL's kernel only says SendRecv
            call = trace.calls[op.call]
            around = ranges[bisect_right(starts, call.start) - 1]
            if around[0] <= call.start <= around[1] and around[2] == call.thread:
                kind = exchange_kind(around[3])
        kinds.append(kind)
    device = trace.devices[step.device or 0].name
    return Timeline(
        path, trace.rank, device, trace.program, step.how,
        numpy.array([(w.start, w.end) for w in step.windows], "f8"),
        union([(op.start, op.end) for op in others]),
        numpy.array([(op.start, op.end) for op in ours], "f8").reshape(-1, 2), tuple(kinds),
        tuple(op.group or f"stream {streams[op.stream]}" for op in ours),
        numpy.array([math.nan if op.size is None else op.size for op in ours], "f8"),
    )  # fmt: skip


def union(stretches: Any) -> Array:
    """Stretches, a start and an end each, as disjoint ones, in order."""
    pairs = numpy.array(stretches, "f8").reshape(-1, 2)
    pairs = pairs[pairs[:, 1] > pairs[:, 0]]
    if not len(pairs):
        return pairs
    pairs = pairs[numpy.argsort(pairs[:, 0], kind="stable")]
    until = numpy.maximum.accumulate(pairs[:, 1])
    first = numpy.flatnonzero(numpy.append(True, pairs[1:, 0] > until[:-1]))
    return numpy.stack((pairs[first, 0], until[numpy.append(first[1:] - 1, len(pairs) - 1)]), 1)


def _within(pairs: Array, windows: Array) -> float:
    """Time of disjoint stretches within windows."""
    if not len(pairs):
        return 0.0
    before = numpy.concatenate(([0.0], numpy.cumsum(pairs[:, 1] - pairs[:, 0])))

    def until(times: Array) -> Array:
        at = numpy.searchsorted(pairs[:, 0], times, "right") - 1
        inside = numpy.clip(times - pairs[at, 0], 0, pairs[at, 1] - pairs[at, 0])
        return numpy.where(at < 0, 0.0, before[numpy.maximum(at, 0)] + inside)

    return float((until(windows[:, 1]) - until(windows[:, 0])).sum())


#: One collective on several ranks: its kind, and its place in each rank's `times`.
_Joined = tuple[str, dict[int, int]]


def _join(lines: Sequence[Timeline]) -> list[_Joined]:
    """The collectives of each process group, the first of each rank with each other and so on; where
    one rank has more of them, from where their ends agree best."""
    members: defaultdict[str, dict[int, list[int]]] = defaultdict(dict)
    for rank, line in enumerate(lines):
        for i, group in enumerate(line.groups):
            members[group].setdefault(rank, []).append(i)
    found = []
    for of_rank in members.values():
        short, least = min(of_rank.items(), key=lambda each: len(each[1]))
        ends = lines[short].times[least, 1]
        for rank, places in of_rank.items():
            spare = min(len(places) - len(least), _SHIFTS)
            theirs = lines[rank].times[places, 1]
            spreads = [numpy.std(theirs[s : s + len(least)] - ends) for s in range(spare + 1)]
            shift = int(numpy.argmin(spreads))
            of_rank[rank] = places[shift : shift + len(least)]
        if len(of_rank) > 1:
            first = next(iter(of_rank))
            found += [
                (lines[first].kinds[of_rank[first][i]], {r: p[i] for r, p in of_rank.items()})
                for i in range(len(least))
            ]  # fmt: skip
    return found


def _aligned(
    lines: Sequence[Timeline], joined: Sequence[_Joined]
) -> tuple[list[Timeline], float] | None:
    """The ranks on the clock of the first, and by how much ends differ (nanoseconds); None where
    some rank shares no collective with the others."""
    done, error = {0: lines[0]}, 0.0
    both = [at for kind, at in joined if kind not in _ONE_SIDED] or [at for _, at in joined]
    while len(done) < len(lines):
        pairs: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        for at in both:
            known = next((rank for rank in at if rank in done), None)
            if known is not None:
                end = done[known].times[at[known], 1]
                for rank, i in at.items():
                    if rank not in done:
                        pairs[rank].append((lines[rank].times[i, 1], end))
        if not pairs:
            return None
        for rank, ends in pairs.items():
            theirs, ours = numpy.array(ends).T
            differ = ours - theirs
            drift, by = 0.0, float(numpy.median(differ))
            if len(ends) >= _DRIFT:
                middle = theirs.mean()
                drift, by = map(float, numpy.polyfit(theirs - middle, differ, 1))
                by -= drift * middle
            if abs(drift) > _MOST_DRIFT:
                return None
            error = max(error, float(numpy.quantile(abs(differ - by - drift * theirs), 0.9)))
            parts = {name: getattr(lines[rank], name) for name in ("windows", "compute", "times")}
            moved = {name: times + by + drift * times for name, times in parts.items()}
            done[rank] = replace(lines[rank], **moved)
    return [done[rank] for rank in range(len(lines))], error


def job_of(lines: Sequence[Timeline], path: str) -> Job | None:
    """The job whose ranks these are; None where their collectives cannot be joined: these are
    their own programs then."""
    known = [line.rank for line in lines]
    if len(lines) < 2 or any(not len(line.times) for line in lines):
        return None
    if len(set(known)) < len(known):
        if set(known) != {-1}:
            return None  # the same rank twice: two jobs, or two cycles of one
        lines = [replace(line, rank=rank) for rank, line in enumerate(lines)]
    lines = sorted(lines, key=lambda line: line.rank)
    joined = _join(lines)
    aligned = _aligned(lines, joined)
    if aligned is None:
        return None
    lines, error = aligned
    # one set of steps for all, where some rank's were found another way
    found = [(line.how, len(line.windows)) for line in lines]
    usual = Counter(found).most_common(1)[0][0]
    windows = lines[found.index(usual)].windows
    lines = [x if found[i] == usual else replace(x, windows=windows) for i, x in enumerate(lines)]
    lengths = numpy.median(windows[:, 1] - windows[:, 0])
    if error > 0.2 * lengths:
        return None
    return _account(lines, joined, error, path)


@dataclass
class _Waits:
    """What comes of comparing when ranks come to each collective; times in nanoseconds."""

    waits: list[Array]
    """Of each rank, how long it waits in each of its collectives."""
    shared: list[tuple[str, float, float, float, float]] = field(default_factory=list)
    """Of each that was joined within the steps: kind, waiting and traffic, the mean of its ranks, the
    bytes of its message and those that a link moves for it."""
    behind: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Of a rank, by how much after the median of the others it came where it was the last."""
    caused: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    """What the median of the others waited for it."""


def _compare(lines: Sequence[Timeline], joined: Sequence[_Joined], error: float) -> _Waits:
    found = _Waits([numpy.zeros(len(line.times)) for line in lines])
    low, high = lines[0].windows[0, 0] - error, lines[0].windows[-1, 1] + error
    for kind, at in joined:
        places = list(at.items())
        times = numpy.array([lines[rank].times[i] for rank, i in places])
        latest = int(numpy.argmax(times[:, 0]))
        wait = numpy.clip(numpy.minimum(times[latest, 0], times[:, 1]) - times[:, 0], 0, None)
        for (rank, i), waited in zip(places, wait, strict=True):
            found.waits[rank][i] = waited
        if not low <= times[latest, 1] <= high:
            continue
        traffic = float((times[:, 1] - times[:, 0] - wait).mean())
        size = float(numpy.median([lines[rank].sizes[i] for rank, i in places]))
        moved = size * _moved(kind, len(places))
        found.shared.append((kind, float(wait.mean()), traffic, size, moved))
        behind = times[latest, 0] - float(numpy.median(numpy.delete(times[:, 0], latest)))
        rank = places[latest][0]
        if behind > max(2 * error, _AT_ONCE_NS):
            found.behind[rank].append(float(behind))
        if behind > error:
            found.caused[rank] += float(numpy.median(numpy.delete(wait, latest)))
    return found


def _moved(kind: str, ranks: int) -> float:
    """What a link moves of a message, a factor (nccl-tests, on its performance); the message of an
    all-gather or reduce-scatter is one rank's part."""
    whole = {"all-reduce": 2 * (ranks - 1) / ranks, "all-to-all": (ranks - 1) / ranks}
    return {**whole, "all-gather": ranks - 1.0, "reduce-scatter": ranks - 1.0}.get(kind, 1.0)


def _account(lines: Sequence[Timeline], joined: Sequence[_Joined], error: float, path: str) -> Job:
    """Rows of the ranks and what is exchanged, on one clock."""
    steps, compared = len(lines[0].windows), _compare(lines, joined, error)
    begins = numpy.array([line.windows[:, 0].mean() for line in lines]) / 1e3
    rows, waits = list[RankRow](), 0.0
    exposed: defaultdict[str, float] = defaultdict(float)
    for i, line in enumerate(lines):
        start, scale = line.times[:, 0], 1 / (1e3 * len(line.windows))
        waited = numpy.stack((start, start + compared.waits[i]), 1)
        busy = numpy.concatenate((line.compute, waited))
        compute = _within(line.compute, line.windows)
        with_waits = _within(union(busy), line.windows)
        with_all = _within(union(numpy.concatenate((busy, line.times))), line.windows)
        wall = float((line.windows[:, 1] - line.windows[:, 0]).sum())
        waits += _within(union(waited), line.windows) * scale
        for kind in {*line.kinds}:
            chosen = numpy.array([each == kind for each in line.kinds])
            alone = union(numpy.concatenate((busy, line.times[chosen])))
            exposed[kind] += (_within(alone, line.windows) - with_waits) * scale / len(lines)
        behind = compared.behind[i]
        rows.append(RankRow(
            line.rank, line.path, line.gpu, wall * scale, compute * scale, (with_all - with_waits) * scale,
            (with_waits - compute) * scale, (wall - with_all) * scale, round(len(behind) / steps),
            sum(behind) / max(1, len(behind)) / 1e3, compared.caused[i] / steps / 1e3, float(begins[i] - numpy.median(begins)),
        ))  # fmt: skip
    # of what the others wait, other work hides some
    part = sum(row.waiting_us for row in rows) / waits if waits else 0.0
    rows = [replace(row, caused_us=row.caused_us * part) for row in rows]
    exchanges = []
    for kind, shared in grouped(compared.shared, lambda each: each[0]).items():
        wait, traffic, size, moved = numpy.array([each[1:] for each in shared]).T
        known = numpy.isfinite(size) & (traffic > 0)
        took = float(traffic[known].sum()) / 1e9
        exchanges.append(Exchange(
            kind, len(wait) / steps, float(numpy.median(traffic)) / 1e3, float(wait.sum()) / steps / 1e3,
            float(traffic.sum()) / steps / 1e3, exposed[kind],
            float(numpy.median(size[known])) if took else None, float(moved[known].sum()) / took if took else None,
        ))  # fmt: skip
    exchanges.sort(key=lambda each: (-each.exposed_us - each.waiting_us, each.kind))
    return Job(
        path, tuple(rows), tuple(exchanges), len(joined), round(len(compared.shared) / steps), error / 1e3, steps,
        next((line.program for line in lines if line.program), ""),
    )  # fmt: skip
