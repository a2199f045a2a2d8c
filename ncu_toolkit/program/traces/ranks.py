"""Ranks of one job: their collectives joined by process group and order, clocks aligned on them, and
the wall time of each rank's step split into compute, traffic, waiting for others and idle time.

A collective ends on all its ranks at about the same time, so its ends align the ranks' clocks. From
when a rank's kernel starts until the last rank's does, it waits; from then on there is traffic. What
other work hides counts as that work. Times are in microseconds, on clocks in nanoseconds."""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy

from ncu_toolkit.base.core import units
from ncu_toolkit.program.model import Op, ProgramDiagnosis, Step, StepFinding, Trace
from ncu_toolkit.program.traces.classes import kernel_class

Array = numpy.ndarray[Any, Any]

#: Kinds of collectives by NCCL's names of kernels and by PyTorch's of ranges, in the order tried.
_KINDS: Final = (
    ("all-to-all", r"alltoall"),
    ("all-reduce", r"allreduce"),
    ("reduce-scatter", r"reducescatter"),
    ("all-gather", r"allgather"),
    ("broadcast", r"broadcast"),
    ("all-to-all", r"sendrecv"),
    ("send and receive", r"(send|recv)"),
)
#: Their ends differ between ranks: some need not wait for the others.
_ONE_SIDED: Final = ("broadcast", "send and receive", "collective")
#: An all-reduce of whole numbers: of gradients there is none.
_WHOLE_NUMBERS: Final = re.compile(r"AllReduce\w*_(?:[iu](?:8|32|64)|u?int\w*)(?:_|\b)")
#: Ranks that come to a collective within so many nanoseconds come at once.
_AT_ONCE_NS: Final = 20_000
#: Collectives from which a clock's drift is fitted, and by which counts of two ranks may differ.
_DRIFT: Final = 20
#: Clocks drift by less: crystals are good to 1e-4.
_MOST_DRIFT: Final = 1e-3
_SHIFTS: Final = 64
#: Part of the step (0-1) from which waiting for one rank, or traffic, is worth a card.
_WORTH: Final = 0.03
#: The late rank makes the others wait so many times as long as the next one does.
_LATER: Final = 2.0
#: All-reduces of a pass, each with less traffic than so many microseconds, of buckets too small: what
#: one takes that moves nothing is 10 to 40 µs.
_MANY, _TINY_US = 30, 60.0
#: Passes of a step are alike in this part of their kernels, and have so many at least.
_ALIKE, _LEAST_WORK = 0.9, 6


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
    def late(self) -> RankRow | None:
        """The rank for which the others wait."""
        first, *others = sorted(self.rows, key=lambda row: -row.caused_us)
        enough = first.caused_us >= _WORTH * self.step_us
        next_us = others[0].caused_us if others else 0.0
        return first if enough and first.caused_us >= _LATER * next_us else None

    @property
    def usual(self) -> RankRow:
        """A rank that is not late: the one of median compute."""
        rest = [row for row in self.rows if row is not self.late]
        return sorted(rest, key=lambda row: row.compute_us)[len(rest) // 2]


def kind_of(name: str) -> str:
    """The kind of a collective by the name of its kernel or range."""
    plain = re.sub(r"[^a-z]", "", name.lower().partition("(")[0])
    return next((kind for kind, pattern in _KINDS if re.search(pattern, plain)), "collective")


def split(trace: Trace) -> list[Trace]:
    """A trace of several processes that exchange data, a trace a process; the whole where there is
    one. Ranks are numbered by GPU, as torchrun and mpirun hand them out."""
    waits = {i for i, shape in enumerate(trace.shapes) if kernel_class(shape).id == "collective"}
    devices = {op.process: op.device for op in trace.ops if op.shape in waits}
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
    waits = [kernel_class(shape).id == "collective" for shape in trace.shapes]
    others, ours = list[Op](), list[Op]()
    for op in trace.ops:
        (ours if op.kind == "kernel" and waits[op.shape] else others).append(op)
    ranges = sorted(
        (mark.start, mark.end, mark.thread, trace.names[mark.name])
        for mark in trace.marks
        if mark.kind == "range" and trace.names[mark.name].startswith("nccl")
    )
    starts = [each[0] for each in ranges]
    named = {i: kind_of(shape.kernel) for i, shape in enumerate(trace.shapes) if waits[i]}
    streams = {each: i for i, each in enumerate(dict.fromkeys(op.stream for op in ours))}
    kinds = []
    for op in ours:
        kind = named[op.shape]
        if kind == "all-to-all" and ranges and op.call >= 0:  # NCCL's kernel only says SendRecv
            call = trace.calls[op.call]
            around = ranges[bisect_right(starts, call.start) - 1]
            if around[0] <= call.start <= around[1] and around[2] == call.thread:
                kind = kind_of(around[3])
        kinds.append(kind)
    device = trace.devices[step.device or 0].name
    return Timeline(
        path, trace.rank, device, trace.program, step.how,
        numpy.array([(w.start, w.end) for w in step.windows], "f8"),
        _union(_pairs(others)), _pairs(ours), tuple(kinds),
        tuple(op.group or f"stream {streams[op.stream]}" for op in ours),
    )  # fmt: skip


def _pairs(ops: Sequence[Op]) -> Array:
    return numpy.array([(op.start, op.end) for op in ops], "f8").reshape(-1, 2)


def _union(pairs: Array) -> Array:
    """Stretches as disjoint ones, in order."""
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


@dataclass
class _Joined:
    """One collective on several ranks: its place in each rank's `times`."""

    kind: str
    at: dict[int, int]


def _join(lines: Sequence[Timeline]) -> list[_Joined]:
    """The collectives of each process group, the first of each rank with each other and so on; where
    one rank has more of them, from where their ends agree best."""
    members: defaultdict[str, dict[int, list[int]]] = defaultdict(dict)
    for rank, line in enumerate(lines):
        for i, group in enumerate(line.groups):
            members[group].setdefault(rank, []).append(i)
    found = []
    for of_rank in members.values():
        least = min(of_rank.values(), key=len)
        short = next(rank for rank, places in of_rank.items() if places is least)
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
                _Joined(lines[first].kinds[of_rank[first][i]], {r: p[i] for r, p in of_rank.items()})
                for i in range(len(least))
            ]  # fmt: skip
    return found


def _aligned(
    lines: Sequence[Timeline], joined: Sequence[_Joined]
) -> tuple[list[Timeline], float] | None:
    """The ranks on the clock of the first, and by how much ends differ (nanoseconds); None where
    some rank shares no collective with the others."""
    done, error = {0: lines[0]}, 0.0
    both = [each for each in joined if each.kind not in _ONE_SIDED] or joined
    while len(done) < len(lines):
        pairs: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        for each in both:
            known = next((rank for rank in each.at if rank in done), None)
            if known is not None:
                end = done[known].times[each.at[known], 1]
                for rank, i in each.at.items():
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

            def moved(times: Array, by: float = by, drift: float = drift) -> Array:
                return times + by + drift * times

            line = lines[rank]
            done[rank] = replace(
                line, windows=moved(line.windows), compute=moved(line.compute), times=moved(line.times)
            )  # fmt: skip
    return [done[rank] for rank in range(len(lines))], error


def job_of(lines: Sequence[Timeline], path: str) -> Job | None:
    """The job whose ranks these are; None where their collectives cannot be joined: these are
    programs of their own then."""
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
    usual = Counter((line.how, len(line.windows)) for line in lines).most_common(1)[0][0]
    model = next(line for line in lines if (line.how, len(line.windows)) == usual)
    lines = [
        line if (line.how, len(line.windows)) == usual else replace(line, windows=model.windows)
        for line in lines
    ]
    lengths = numpy.median(model.windows[:, 1] - model.windows[:, 0])
    if error > 0.2 * lengths:
        return None
    return _account(lines, joined, error, path)


@dataclass
class _Waits:
    """What comes of comparing when ranks come to each collective; times in nanoseconds."""

    waits: list[Array]
    """Of each rank, how long it waits in each of its collectives."""
    shared: list[tuple[str, float, float]] = field(default_factory=list)
    """Of each that was joined within the steps: kind, waiting and traffic, the mean of its ranks."""
    behind: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Of a rank, by how much after the median of the others it came where it was the last."""
    caused: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    """What the median of the others waited for it."""


def _compare(lines: Sequence[Timeline], joined: Sequence[_Joined], error: float) -> _Waits:
    found = _Waits([numpy.zeros(len(line.times)) for line in lines])
    low, high = lines[0].windows[0, 0] - error, lines[0].windows[-1, 1] + error
    for each in joined:
        places = list(each.at.items())
        times = numpy.array([lines[rank].times[i] for rank, i in places])
        latest = int(numpy.argmax(times[:, 0]))
        wait = numpy.clip(numpy.minimum(times[latest, 0], times[:, 1]) - times[:, 0], 0, None)
        for (rank, i), waited in zip(places, wait, strict=True):
            found.waits[rank][i] = waited
        if not low <= times[latest, 1] <= high:
            continue
        traffic = float((times[:, 1] - times[:, 0] - wait).mean())
        found.shared.append((each.kind, float(wait.mean()), traffic))
        behind = times[latest, 0] - float(numpy.median(numpy.delete(times[:, 0], latest)))
        rank = places[latest][0]
        if behind > max(2 * error, _AT_ONCE_NS):
            found.behind[rank].append(float(behind))
        if behind > error:
            found.caused[rank] += float(numpy.median(numpy.delete(wait, latest)))
    return found


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
        with_waits = _within(_union(busy), line.windows)
        with_all = _within(_union(numpy.concatenate((busy, line.times))), line.windows)
        wall = float((line.windows[:, 1] - line.windows[:, 0]).sum())
        waits += _within(_union(waited), line.windows) * scale
        for kind in {*line.kinds}:
            chosen = numpy.array([each == kind for each in line.kinds])
            alone = _union(numpy.concatenate((busy, line.times[chosen])))
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
    for kind in {kind for kind, _, _ in compared.shared}:
        wait, traffic = numpy.array([each[1:] for each in compared.shared if each[0] == kind]).T / 1e3  # fmt: skip
        exchanges.append(Exchange(
            kind, len(wait) / steps, float(numpy.median(traffic)), float(wait.sum()) / steps,
            float(traffic.sum()) / steps, exposed[kind],
        ))  # fmt: skip
    exchanges.sort(key=lambda each: (-each.exposed_us - each.waiting_us, each.kind))
    return Job(
        path, tuple(rows), tuple(exchanges), len(joined), round(len(compared.shared) / steps), error / 1e3, steps,
        next((line.program for line in lines if line.program), ""),
    )  # fmt: skip


# ---- what costs the job


def diagnosed(job: Job, judge: Callable[[RankRow], ProgramDiagnosis]) -> Job:
    """With findings between ranks. `judge` tells what costs one rank's step."""
    late = job.late
    usual = job.usual, judge(job.usual)
    found = list(_of_exchanges(job, usual[1].step))
    shown = [(usual[0].rank, usual[1])]
    if late is not None:
        theirs = judge(late)
        found.append(_late(job, late, theirs, usual[1]))
        shown.insert(0, (late.rank, theirs))
    found.sort(key=lambda each: -each.ceiling_us)
    return replace(job, findings=tuple(found), shown=tuple(shown))


def _late(
    job: Job, late: RankRow, theirs: ProgramDiagnosis, usual: ProgramDiagnosis
) -> StepFinding:
    """The rank for which the others wait, with what it does longer than a usual one."""
    other = job.usual
    more = late.compute_us - other.compute_us
    idle = late.idle_us - other.idle_us
    where: tuple[str, ...] = ()
    advice: list[str] = []
    if late.begins_us > 0.5 * late.caused_us and job.steps == 1:
        cause = f"It begins its step {units.duration(late.begins_us)} after the median rank: the cause lies before what was recorded."
        advice.append("Record several steps of all ranks: what makes it late then lies in them.")
    elif more > max(idle, 0.0):
        grown = _grown(theirs, usual)
        names = units.listed([f"{name} (+{units.duration(us)})" for name, us in grown[:2]])
        cause = f"It computes {units.duration(more)} longer{': ' + names if names else ''}."
        advice.append(
            "Give all ranks batches that take as long: bucket by length, split by tokens and not by samples."
        )
    else:
        cause = f"Its GPU idles {units.duration(max(idle, 0.0))} longer."
    there = {each.rule: each.ceiling_us for each in usual.costly}
    hosts = [each for each in theirs.costly if each.gaps]
    host = max(hosts, key=lambda each: each.ceiling_us - there.get(each.rule, 0.0), default=None)
    if host is not None and (idle >= more or job.steps == 1):
        cause += f" On it: {host.title[:1].lower()}{host.title[1:]}. {host.summary}"
        where, advice = host.where, [*advice, *host.advice[: 3 - len(advice)]]
    kind = job.exchanges[0].kind  # what is waited in most
    if kind == "all-to-all":
        advice = [*advice[:2], *ADVICE[kind]]
    return StepFinding(
        rule="late-rank", title=f"Rank {late.rank} is late, and the others wait for it",
        summary=f"It is last at {late.last} of {units.counted(job.in_step, 'collective')}, {units.duration(late.late_us)} after the"
                f" median of the others on average. {cause}",
        confidence="high" if job.error_us < 0.1 * late.caused_us else "medium",
        ceiling_us=late.caused_us, advice=tuple(advice), where=where,
    )  # fmt: skip


def _grown(theirs: ProgramDiagnosis, usual: ProgramDiagnosis) -> list[tuple[str, float]]:
    """Classes of work that take longer on one rank than on another, by how much."""
    there = {part.label: part.us for part in usual.account.parts}
    grown = [
        (part.label[:1].lower() + part.label[1:], part.us - there.get(part.label, 0.0))
        for part in theirs.account.parts
        if part.key != "collective" and not part.key.startswith("idle")
    ]
    return sorted((each for each in grown if each[1] > 0), key=lambda each: -each[1])


#: What to do about traffic that nothing hides, by kind.
ADVICE: Final[Mapping[str, tuple[str, ...]]] = {
    "all-reduce": (
        "Let DDP overlap it with the backward pass: bucket_cap_mb, static_graph=True, gradient_as_bucket_view=True.",
        "Exchange gradients in BF16: register_comm_hook(None, default_hooks.bf16_compress_hook).",
    ),
    "all-gather": (
        "Prefetch the next layer's parameters: forward_prefetch=True, backward_prefetch=BACKWARD_PRE; FSDP2: set_modules_to_forward_prefetch.",
        "Gather less: reshard_after_forward=False, or shard within a host alone (HYBRID_SHARD).",
    ),
    "reduce-scatter": (
        "Let it overlap with the backward pass: backward_prefetch=BACKWARD_PRE, and wrap each layer for itself, so that there is work beside it.",
        "Scatter less often: no_sync() while gradients accumulate (FSDP2: set_requires_gradient_sync(False)), at the cost of memory.",
    ),
    "all-to-all": (
        "Balance it: tables or experts such that all ranks send and compute as much (a planner of sharding, a capacity factor).",
        "Pipeline it: split the batch in two, and exchange one half while the other computes; start the next batch's input exchange early.",
    ),
    "broadcast": (
        "Broadcast what changes only: parameters once at the start (DDP does), buffers with broadcast_buffers=False where ranks need not share them.",
    ),
    "send and receive": ("Fill the pipeline: more micro-batches, or an interleaved schedule.",),
}  # fmt: skip


def _of_exchanges(job: Job, step: Step) -> list[StepFinding]:
    """What costs traffic, by kind: what the program does wrong before what overlap would hide."""
    passes, found = _passes(step), []
    for each in job.exchanges:
        kind, hidden = each.kind, each.all_traffic_us - each.exposed_us
        what = units.counted(round(each.count), kind)
        part = max(0.0, hidden) / each.all_traffic_us if each.all_traffic_us else 0.0
        summary = (
            f"{what} a step, {units.duration(each.traffic_us)} of traffic each (median);"
            f" other work hides {units.percent(part, 2)} of it."
        )
        title, advice = f"Traffic of {kind}s that nothing hides", ADVICE.get(kind, ())
        saved = each.exposed_us
        if kind == "all-reduce" and passes > 1:
            saved *= 1 - 1 / passes
            title = f"Gradients are exchanged in each of {passes} passes that accumulate"
            advice = (
                "Run all but the last pass in with model.no_sync():; with accelerate, in accelerator.accumulate(model).",
            )
        elif kind == "all-reduce" and each.count >= _MANY and each.traffic_us < _TINY_US:
            title = "Gradients are exchanged in buckets that are too small"
            advice = (
                "Leave bucket_cap_mb at its default of 25 MB, or raise it: each all-reduce has a latency of its own.",
            )
        elif kind == "all-reduce" and _unused(step):
            title = "DDP looks for unused parameters in each step"
            advice = (
                "Leave find_unused_parameters=True out; where parameters are unused, static_graph=True or taking them out of the model does it once.",
            )
            summary += " One of them is of whole numbers: the map of used parameters."
        elif kind == "broadcast" and each.count >= 1:
            title = f"{what[:1].upper()}{what[1:]} in each step"
        elif saved < _WORTH * job.step_us:
            continue
        if saved >= 0.01 * job.step_us:
            found.append(StepFinding(
                rule=f"exposed-{kind.replace(' ', '-')}", title=title, summary=summary, confidence="medium", ceiling_us=saved, advice=advice,
            ))  # fmt: skip
    return found


def _unused(step: Step) -> bool:
    """Whether an all-reduce of whole numbers stands in the step beside others."""
    shapes = step.trace.shapes
    names = [shapes[op.shape].kernel for op in step.ops if op.kind == "kernel"]
    reduces = [name for name in names if kind_of(name) == "all-reduce" and "nccl" in name.lower()]
    whole = sum(bool(_WHOLE_NUMBERS.search(name)) for name in reduces)
    return 0 < whole < len(reduces)


def _passes(step: Step) -> int:
    """Passes of forward and backward work that an optimizer's step follows, each with an all-reduce:
    those of gradients that accumulate and are exchanged each time; 1 where there is one."""
    classes = [kernel_class(shape).id for shape in step.trace.shapes]
    exchanged = {i for i, shape in enumerate(step.trace.shapes) if classes[i] == "collective" and kind_of(shape.kernel) == "all-reduce"}  # fmt: skip
    kernels = [op.shape for op in step.ops if op.kind == "kernel"]
    if "optimizer" not in classes or not exchanged:
        return 1  # layers of inference that are split over ranks are alike too
    updates = both = 0  # where the step that was found is a pass
    for window in step.windows:
        of_window = {op.shape for op in step.trace.ops[window.first : window.last] if op.kind == "kernel"}  # fmt: skip
        updates += any(classes[i] == "optimizer" for i in of_window)
        both += not exchanged.isdisjoint(of_window)
    if 0 < updates <= len(step.windows) / 2 and both >= _ALIKE * len(step.windows):
        return round(len(step.windows) / updates)
    work = [i for i in kernels if classes[i] not in ("collective", "optimizer", "fill")]
    for many in range(16, 1, -1):
        size = len(work) // many
        pieces = [Counter(work[i * size : (i + 1) * size]) for i in range(many)]
        if size < _LEAST_WORK or any((pieces[0] & x).total() < _ALIKE * size for x in pieces):
            continue
        seen, worked = set[int](), 0  # pieces with an all-reduce
        for each in kernels:
            if each in exchanged:
                seen.add(min(many - 1, max(0, worked - 1) // size))
            else:
                worked += classes[each] not in ("collective", "optimizer", "fill")
        if len(seen) == many:
            return many
    return 1
