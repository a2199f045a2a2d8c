"""All ranks of a job as one answer: what the others wait for, what is exchanged, and a row a rank."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.units import counted, duration
from ncu_toolkit.base.document.card import Card, UnitBar, whole_percent
from ncu_toolkit.base.document.tables import Cell, Spec, Table, table
from ncu_toolkit.base.document.views import CARDS, Answer
from ncu_toolkit.base.hardware.specs import nvlink
from ncu_toolkit.program.explain import program
from ncu_toolkit.program.model import ProgramDiagnosis, StepFinding
from ncu_toolkit.program.traces.ranks import Exchange, Job, RankRow

#: Rows of a job's table; of more ranks, the late ones and those that wait most are shown.
_ROWS: Final = 16
#: Microseconds from which a time is worth a figure.
_LEAST_US: Final = 0.1


def job_answer(job: Job, *, cards: int = CARDS, next_command: str = "") -> Answer:
    """The answer to a job of several ranks."""
    rank, usual = job.shown[-1]
    account = structs.replace(usual.account, wall_us=job.step_us)
    usual = structs.replace(usual, account=account)
    # what a usual rank's own step loses, as all do; traffic is judged over the ranks
    covered = {"exposed-collectives"}.union(*({each.rule, *each.before} for each in job.findings))
    own = [each for each in usual.costly if each.rule not in covered]
    shown = [_card(job, usual, each) for each in job.findings[:cards]]
    if own and own[0].ceiling_us > max([each.ceiling_us for each in job.findings], default=0.0):
        first, *own = own
        card = program.of_step_finding(usual, first).cards[0]
        summary = f"On rank {rank}, as on the others: {card.summary}"
        shown = [replace(card, where=card.where[:2], summary=summary), *shown[: cards - 1]]
    elif not shown:
        shown = [Card(
            state="roof", bottleneck="ranks", title="Nothing to gain between the ranks", gain="nothing to gain", confidence="high",
            summary="No rank is late, and other work hides the collectives, or they take little of the step.",
        )]  # fmt: skip
    own.sort(key=lambda each: -each.ceiling_us)
    then = tuple(
        (f"{visible(each.title).partition(' (the GPU')[0]}, on all ranks", program.saving(each, usual), *each.where[:1])
        for each in own[: max(0, cards - len(shown))]
    )  # fmt: skip
    mean = [sum(getattr(row, name) for row in job.rows) / len(job.rows) for name in _PARTS]
    whole = sum(mean) or 1.0
    parts = zip(_PARTS.values(), mean, strict=True)
    bars = tuple(UnitBar(label, label, None, busy=us / whole) for label, us in parts)
    shown[0] = replace(
        shown[0], bars=bars, of="where the mean rank's step goes", then=then, next=next_command
    )
    clocks = f"The clocks are aligned on the ends of {counted(job.joined, 'collective')}; 90 % of them agree within {duration(job.error_us)}."
    return Answer(
        headline(job), cards=tuple(shown), points=(clocks,), tables=(_ranks(job), _exchanges(job)),
    )  # fmt: skip


#: The parts of a rank's step.
_PARTS: Final = {
    "compute_us": "compute", "traffic_us": "exposed traffic", "waiting_us": "waiting for others", "idle_us": "idle",
}  # fmt: skip


def headline(job: Job) -> str:
    """`train.py · 8 ranks · step of 24.1 ms (20 seen) · NVIDIA H200 · rank 7 is late`."""
    gpus = list(dict.fromkeys(row.gpu for row in job.rows))
    late = f"rank {job.late.rank} is late" if job.late else "no rank is late"
    step = f"step of {duration(job.step_us)} ({job.steps} seen)"
    ranks = counted(len(job.rows), "rank")
    return " · ".join(visible(each) for each in (job.program, ranks, step, gpus[0], late) if each)


def _card(job: Job, usual: ProgramDiagnosis, finding: StepFinding) -> Card:
    of_late = finding.rule in ("late-rank", "launch-bound")
    lines = program.where(job.shown[0][1], finding, 2) if of_late else ()
    return Card(
        state="slow", bottleneck=finding.rule, title=visible(finding.title),
        gain=program.saving(finding, usual), confidence=finding.confidence, summary=visible(finding.summary),
        where=lines, do=program.steps_of(finding),
    )  # fmt: skip


def _time(us: float) -> str:
    return duration(us) if us >= _LEAST_US else "–"


def _ranks(job: Job) -> Table:
    rows = sorted(job.rows, key=lambda row: -row.caused_us - row.waiting_us)[:_ROWS]
    rows.sort(key=lambda row: row.rank)

    def time(name: str) -> Spec[RankRow]:
        return Spec(_PARTS[name], cell=lambda row: _time(getattr(row, name)))

    specs: Sequence[Spec[RankRow]] = (
        Spec("rank", cell=lambda row: Cell(str(row.rank), tone="bad" if row is job.late else ""), name=True),
        Spec("step", cell=lambda row: duration(row.step_us)),
        *map(time, _PARTS),
        Spec("waited for", cell=lambda row: _time(row.caused_us)),
        Spec("last", cell=lambda row: f"{row.last} of {job.in_step}"),
    )  # fmt: skip
    left = len(job.rows) - len(rows)
    note = f"{counted(left, 'rank')} that wait least, and are waited for least, are left out."
    return table("Ranks, a mean step", specs, rows, note * bool(left))


def _exchanges(job: Job) -> Table:
    link = nvlink(job.rows[0].gpu)
    specs: list[Spec[Exchange]] = [
        Spec("collective", cell=lambda row: row.kind, numeric=False, name=True),
        Spec("a step", cell=lambda row: units.significant(row.count, 3)),
        Spec("traffic of one", cell=lambda row: duration(row.traffic_us)),
        Spec("traffic", cell=lambda row: duration(row.all_traffic_us)),
        Spec("hidden", cell=lambda row: whole_percent(max(0.0, 1 - row.exposed_us / row.all_traffic_us)) if row.all_traffic_us else ""),
        Spec("waiting", cell=lambda row: _time(row.waiting_us)),
    ]  # fmt: skip
    note = ""

    def reached(row: Exchange) -> str:
        of_link = f" ({whole_percent(row.bandwidth / link)})" if row.bandwidth and link else ""
        return units.si(row.bandwidth, "B/s") + of_link if row.bandwidth else "–"

    if any(row.bandwidth for row in job.exchanges):
        specs[2:2] = [
            Spec("message", cell=lambda row: units.si(row.size, "B") if row.size else "–")
        ]
        specs.append(Spec("bus bandwidth", cell=reached))
        note = "Bus bandwidth as nccl-tests counts it, from when all ranks are there."
        if link:
            note += f" NVLink's data sheet: {units.si(link, 'B/s')} each way, where all GPUs are in one host."
    return table("Collectives, mean of the ranks", specs, job.exchanges, note)
