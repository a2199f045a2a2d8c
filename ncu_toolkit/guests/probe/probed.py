"""What a probe found, as an answer: the same cards as a report's, with what was measured instead of
counters."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.card import Card, kernel_label, kernel_name, whole_percent
from ncu_toolkit.base.document.tables import Spec, Table, table
from ncu_toolkit.base.document.views import Answer, Kind, Whole, answer
from ncu_toolkit.base.model import Diagnosis
from ncu_toolkit.base.model.trace import Gap, KernelTimes, KernelTrace
from ncu_toolkit.kernel.diagnosis.figures import small
from ncu_toolkit.kernel.diagnosis.regime import Probe, agrees, fill_of, profile_of
from ncu_toolkit.kernel.diagnosis.rules import StaticFinding, load_rules, title
from ncu_toolkit.kernel.diagnosis.static import KernelAnalysis
from ncu_toolkit.kernel.explain.code import places
from ncu_toolkit.kernel.explain.verdict import card as card_of_launch

#: Part of the time that the GPU may be without a kernel before that is worth a sentence.
_IDLE: Final = 0.1
_UNKNOWN: Final = "Its time and shape alone do not show what limits it."
_BASIS: Final = "Measured without counters"


@dataclass(frozen=True)
class Probed:
    """What a probe says of one kernel, with its code where that could be read."""

    diagnosis: Diagnosis
    regime: Probe | None = None
    """What the experiments say; None without any."""
    code: KernelAnalysis | None = None


def card(kernel: KernelTrace, trace: KernelTimes, found: Probed, then: str = "") -> Card:
    """The card of a traced kernel. `then` is the command to run next."""
    shown = card_of_launch(profile_of(kernel, trace.device), found.diagnosis)
    unknown, cause = shown.state == "unknown", _cause(found)
    summary, advice = shown.summary, shown.do
    if unknown:
        summary, advice = _UNKNOWN, ()
    if cause is not None:
        named = f" Its code shows {small(title(cause.bottleneck))}: {small(cause.summary)}"
        summary, advice = summary + visible(named), (visible(cause.advice),)
    return replace(
        shown, kernel=kernel_label(kernel.launch.function, kernel.launch.kernel),
        shape=", ".join(filter(None, [shown.shape, *_fill(kernel, trace)])), summary=summary,
        where=tuple(places(found.code, cause, {})) if found.code is not None else (), do=advice,
        expect="" if unknown else shown.expect, missing=_basis(found), next=then,
    )  # fmt: skip


def _cause(found: Probed) -> StaticFinding | None:
    """What the code shows that fits the verdict; anything it shows where there is no verdict."""
    if found.code is None or found.diagnosis.primary.good:
        return None
    fits = [
        each
        for each in found.code.findings
        if found.regime is None or agrees(load_rules()[each.bottleneck], found.regime.first)
    ]
    return next(iter(fits), None)


def _basis(found: Probed) -> str:
    if found.regime is not None:
        return f"{_BASIS}: bars show how far its time follows each unit under pressure."
    return f"{_BASIS}: by time and shape{', and its code' if found.code is not None else ''}."


def _fill(kernel: KernelTrace, trace: KernelTimes) -> list[str]:
    fill = fill_of(kernel, trace.device)
    if fill is None:
        return []
    parts = [f"theoretical occupancy {whole_percent(fill.fraction)}"]
    if kernel.launch.blocks and trace.device.sm_count and fill.active_blocks:
        waves = fill.waves(kernel.launch.blocks, trace.device.sm_count)
        parts.append(f"{units.significant(waves)} waves")
    return parts


def answer_of(
    trace: KernelTimes,
    verdicts: Sequence[Probed],
    *,
    top: int,
    then: str = "",
    notes: Sequence[str] = (),
) -> Answer:
    """The answer to a traced program.

    Args:
        verdicts: one for each of the trace's first kernels; more are not shown.
    """
    kinds = [
        Kind(
            card(kernel, trace, found, then),
            kernel.launches,
            kernel.total_us,
            agreeing=kernel.launches,
        )
        for kernel, found in zip(trace.kernels, verdicts, strict=False)
    ]
    whole = Whole(
        sum(kernel.launches for kernel in trace.kernels),
        len(trace.kernels),
        sum(kernel.total_us for kernel in trace.kernels),
    )
    shown = answer(kinds, (*trace.notes, *notes), top=top, whole=whole)
    tables = [_gaps(trace.gaps)] if _idle(trace) >= _IDLE and trace.gaps else []
    return replace(shown, points=_points(trace), tables=tuple(tables), next=then)


def _idle(trace: KernelTimes) -> float:
    return 1 - trace.busy_us / trace.span_us if trace.span_us else 0.0


def _points(trace: KernelTimes) -> tuple[str, ...]:
    if trace.launches < 2:
        return ()
    span = units.duration(trace.span_us)
    busy = f"A kernel ran in {whole_percent(1 - _idle(trace))} of the {span} from the first launch to the last."
    if trace.gap_us is None or trace.gap_us <= 0:
        return (busy,)
    return (busy, f"The median gap between two kernels is {units.duration(trace.gap_us)}.")


def _gaps(gaps: Sequence[Gap]) -> Table:
    columns: tuple[Spec[Gap], ...] = (
        Spec("after", cell=lambda gap: kernel_name(gap.after), numeric=False, code=True),
        Spec("before", cell=lambda gap: kernel_name(gap.before), numeric=False, code=True),
        Spec("times", cell=lambda gap: str(gap.times)),
        Spec("idle", cell=lambda gap: units.duration(gap.total_us)),
    )
    return table("Where the GPU ran no kernel", columns, gaps)
