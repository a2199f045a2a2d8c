"""What costs a job of several ranks: a rank that the others wait for, and traffic by its kind."""

import re
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from ncu_toolkit.base.core import units
from ncu_toolkit.program.model import ProgramDiagnosis, Step, StepFinding, Trace
from ncu_toolkit.program.rules._tables import tables
from ncu_toolkit.program.traces.classes import collectives, kernel_class
from ncu_toolkit.program.traces.ranks import WORTH, Job, RankRow

#: An all-reduce of whole numbers: of gradients there is none.
_WHOLE_NUMBERS: Final = re.compile(r"AllReduce\w*_(?:[iu](?:8|32|64)|u?int\w*)(?:_|\b)")
#: All-reduces of a step, each with less traffic than this many microseconds, of buckets too small: what
#: one takes that moves nothing is 10 to 40 µs.
_MANY, _TINY_US = 30, 60.0
#: Of windows with an all-reduce, and of launches that two ranks have in common, this part is all.
_ALIKE = 0.9
#: Of fewer steps nobody can say that chance made a rank late.
_STEPS: Final = 5
#: A rank's host is slower where its median launch takes this many times as long as another's. Of nine
#: pairs of ranks on one H200 host, eight differ by up to 1.14 and one, of which a rank is late, by 1.26.
_SLOWER: Final = 1.2
#: A cause of the host explains why a rank is late if it takes this part of what its GPU idles longer. Of
#: 20 recorded jobs of two ranks, planted slow loaders take 82 to 97 %, and what two healthy jobs have 48
#: and 57 %: their hosts launch alike, and chance decides which one is behind.
_EXPLAINS: Final = 0.7


def diagnosed(job: Job, judge: Callable[[RankRow], ProgramDiagnosis]) -> Job:
    """With findings between ranks. `judge` tells what costs one rank's step."""
    latest, other = job.latest, job.usual
    usual = judge(other)
    found, shown = _of_exchanges(job, usual), [(other.rank, usual)]
    if latest is not None:
        theirs = judge(latest)
        more, idle = latest.compute_us - other.compute_us, latest.idle_us - other.idle_us
        host, explains = _host(theirs, usual, idle) if more <= idle else (None, True)
        shown.insert(0, (latest.rank, theirs))
        slower = 0.0
        if host is not None and not explains and job.steps >= _STEPS:
            slower = _slower(theirs.step, usual.step)
            # where all launch as much, chance decides who is last
            if slower and host.rule == "launch-bound":
                text = f"On rank {latest.rank}, with as many launches as the others: {host.summary}"
                found.append(msgspec.structs.replace(host, summary=text))
        if not 0 < slower <= _SLOWER:
            found.append(_late(job, latest, theirs, usual, host, slower))
    found.sort(key=lambda each: -each.ceiling_us)
    return replace(job, findings=tuple(found), shown=tuple(shown))


def _host(
    theirs: ProgramDiagnosis, usual: ProgramDiagnosis, idle_us: float
) -> tuple[StepFinding | None, bool]:
    """What the late rank's GPU idles for longer, and whether that explains `idle_us`."""
    there = {each.rule: each.ceiling_us for each in usual.costly}
    longer = [
        (each.ceiling_us - there.get(each.rule, 0.0), each) for each in theirs.costly if each.gaps
    ]
    us, host = max(longer, key=lambda each: each[0], default=(0.0, None))
    return host, host is not None and host.rule != "launch-bound" and us >= _EXPLAINS * idle_us


def _slower(theirs: Step, usual: Step) -> float:
    """How many times as long the late rank's host takes for a launch as a usual rank's, by the
    median; 0 where they do not launch as much."""
    counts, medians = [], []
    for step in (theirs, usual):
        begin, end = step.windows[0].start, step.windows[-1].end
        calls = [call.end - call.start for call in step.trace.calls if call.kind == "launch" and begin <= call.start < end]  # fmt: skip
        counts.append(len(calls) / len(step.windows))
        medians.append(statistics.median(calls or [0]))
    as_many = abs(counts[0] - counts[1]) <= (1 - _ALIKE) / 2 * counts[1]
    return medians[0] / medians[1] if as_many and medians[1] else 0.0


def _late(
    job: Job, late: RankRow, theirs: ProgramDiagnosis, usual: ProgramDiagnosis, host: StepFinding | None, slower: float,
) -> StepFinding:  # fmt: skip
    """The rank for which the others wait, with what it does longer than a usual one."""
    other = job.usual
    more, idle = late.compute_us - other.compute_us, late.idle_us - other.idle_us
    where: tuple[str, ...] = ()
    advice: list[str] = []
    if earlier := late.begins_us > 0.5 * late.caused_us and job.steps == 1:
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
    if slower:
        cause += (
            f" Its host takes {slower:.2g} times as long for a launch as that of rank {other.rank}."
        )
        advice.append(
            "Bind each process to other cores, of the NUMA node of its GPU (numactl), and look for what else runs on them."
        )
    elif host is not None:
        cause += f" More than on rank {other.rank}: {host.title.partition(' (')[0]}. {host.summary}"
        where, advice = host.where, [*advice, *host.advice[: 3 - len(advice)]]
    kind = job.exchanges[0].kind  # what is waited in most
    if kind == "all-to-all":
        advice = [*advice[:2], *tables().collectives[kind]]
    return StepFinding(
        rule="late-rank", title=f"Rank {late.rank} is late, and the others wait for it",
        summary=f"It is last at {late.last} of {units.counted(job.in_step, 'collective')}, {units.duration(late.late_us)} after the"
                f" median of the others on average. {cause}",
        confidence="low" if earlier else "high" if job.error_us < 0.1 * late.caused_us else "medium",
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


def _of_exchanges(job: Job, usual: ProgramDiagnosis) -> list[StepFinding]:
    """What costs traffic, by kind: what the program does wrong before what overlap would hide."""
    step, found = usual.step, list[StepFinding]()
    passes = _passes(step)
    for each in job.exchanges:
        kind, hidden = each.kind, each.all_traffic_us - each.exposed_us
        what = units.counted(round(each.count), kind)
        part = max(0.0, hidden) / each.all_traffic_us if each.all_traffic_us else 0.0
        summary = (
            f"{what} a step, {units.duration(each.traffic_us)} of traffic each (median);"
            f" other work hides {units.percent(part, 2)} of it."
        )
        title, advice = f"Exposed {kind}s", tables().collectives.get(kind, ())
        saved, certain, before = each.exposed_us, False, list[str]()
        if kind == "all-reduce" and passes > 1:
            # hidden traffic goes too: it takes SMs and bandwidth from the work alongside it
            saved = (1 - 1 / passes) * each.all_traffic_us
            title = f"Gradients are exchanged in each of {passes} passes that accumulate"
            advice = (
                "Run all but the last pass inside `with model.no_sync():`; with accelerate, inside `accelerator.accumulate(model)`.",
            )
        elif kind == "all-reduce" and each.count >= _MANY and each.traffic_us < _TINY_US:
            title, certain = "Gradients are exchanged in buckets that are too small", True
            advice = (
                "Leave bucket_cap_mb at its default of 25 MB, or raise it: each all-reduce has its own latency.",
            )
        elif kind == "all-reduce" and _unused(step):
            title, certain = "DDP looks for unused parameters in each step", True
            advice = (
                "Leave find_unused_parameters=True out; where parameters are unused, static_graph=True or taking them out of the model does it once.",
            )
            summary += " One of them is of whole numbers: the map of used parameters. The host also walks the graph of each pass for it."
            sync = _reads_map(usual)
            if sync is not None:
                summary += f" Then DDP reads the map back: {sync.summary}"
                saved, before = max(saved, sync.ceiling_us), [sync.rule]
        elif kind == "broadcast" and each.count >= 1:
            title = f"{what[:1].upper()}{what[1:]} in each step"
        elif saved < WORTH * job.step_us:
            continue
        if certain or saved >= 0.01 * job.step_us:
            found.append(StepFinding(
                rule=f"exposed-{kind.replace(' ', '-')}", title=title, summary=summary, confidence="medium", ceiling_us=saved, advice=advice,
                before=tuple(before),
            ))  # fmt: skip
    return found


def _unused(step: Step) -> bool:
    """Whether the step has an all-reduce of integers among others."""
    shapes, reduces = step.trace.shapes, _all_reduces(step.trace)
    names = [shapes[op.shape].kernel for op in step.ops if op.kind == "kernel" and op.shape in reduces]  # fmt: skip
    names = [name for name in names if "nccl" in name.lower()]
    whole = sum(bool(_WHOLE_NUMBERS.search(name)) for name in names)
    return 0 < whole < len(names)


def _all_reduces(trace: Trace) -> set[int]:
    """All-reduces by their places in `Trace.shapes`."""
    return {i for i, kind in collectives(trace).items() if kind == "all-reduce"}


def _reads_map(usual: ProgramDiagnosis) -> StepFinding | None:
    """The rank's finding of synchronisations, if the thread that starts all-reduces copies to the
    host: DDP's hooks run in autograd's thread, and a program reads its loss in another."""
    trace = usual.step.trace
    calls = [(op, trace.calls[op.call]) for op in usual.step.ops if op.call >= 0]
    reduces = _all_reduces(trace)
    starts = {call.thread for op, call in calls if op.kind == "kernel" and op.shape in reduces}
    if not any(op.path == "DtoH" and call.thread in starts for op, call in calls):
        return None
    return next((each for each in usual.costly if each.rule == "host-sync"), None)


def _passes(step: Step) -> int:
    """Passes of forward and backward work that an optimizer's step follows, each with an all-reduce:
    those of gradients that accumulate and are exchanged each time; 1 where there is one. Of one pass,
    much work is done once, such as that of a head and a loss; of several, each kernel runs in each."""
    classes = [kernel_class(shape).id for shape in step.trace.shapes]
    exchanged = _all_reduces(step.trace)
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
    work = Counter(i for i in kernels if classes[i] not in ("collective", "optimizer", "fill"))
    many = sorted(work.values())[len(work) // 10] if work else 1
    mark = next((shape for shape, count in work.items() if count == many), None)
    seen, passed = set[int](), 0  # between which two of a kernel of each pass all-reduces start
    for each in kernels:
        passed += each == mark
        if each in exchanged:
            seen.add(passed % many)
    return many if mark is not None and len(seen) == many else 1
