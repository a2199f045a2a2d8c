"""What costs a job of several ranks: a rank that the others wait for, and traffic by its kind."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.program.model import ProgramDiagnosis, Step, StepFinding
from ncu_toolkit.program.rules._words import ADVICE
from ncu_toolkit.program.traces.classes import exchange_kind, kernel_class
from ncu_toolkit.program.traces.ranks import WORTH, Job, RankRow

#: An all-reduce of whole numbers: of gradients there is none.
_WHOLE_NUMBERS: Final = re.compile(r"AllReduce\w*_(?:[iu](?:8|32|64)|u?int\w*)(?:_|\b)")
#: All-reduces of a step, each with less traffic than so many microseconds, of buckets too small: what
#: one takes that moves nothing is 10 to 40 µs.
_MANY, _TINY_US = 30, 60.0
#: Passes of a step are alike in this part of their kernels, and have so many at least.
_ALIKE, _LEAST_WORK = 0.9, 6


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
        elif saved < WORTH * job.step_us:
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
    reduces = [
        name for name in names if exchange_kind(name) == "all-reduce" and "nccl" in name.lower()
    ]
    whole = sum(bool(_WHOLE_NUMBERS.search(name)) for name in reduces)
    return 0 < whole < len(reduces)


def _passes(step: Step) -> int:
    """Passes of forward and backward work that an optimizer's step follows, each with an all-reduce:
    those of gradients that accumulate and are exchanged each time; 1 where there is one."""
    classes = [kernel_class(shape).id for shape in step.trace.shapes]
    exchanged = {
        i for i, shape in enumerate(step.trace.shapes)
        if classes[i] == "collective" and exchange_kind(shape.kernel) == "all-reduce"
    }  # fmt: skip
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
