"""What a rung did to the one before it: the code difference, which waits and traffic moved,
predicted against achieved."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.tables import Cell, Table, missing, number, text
from ncu_toolkit.base.document.views import Fact, Fold
from ncu_toolkit.kernel.diagnosis.compare import stall_cycles
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.diagnosis.steps import StepExplanation
from ncu_toolkit.kernel.diagnosis.time_model import NOISE
from ncu_toolkit.kernel.explain.differences import diff
from ncu_toolkit.kernel.explain.sections import by_fact, cause, cause_cell, change
from ncu_toolkit.kernel.pages.book import Entry, achieved
from ncu_toolkit.kernel.pages.columns import NOT_TIMED, rung_link

#: Figures whose change a step's table shows, where both sides have them.
_MOVED: Final = (
    "instructions", "issue_active", "eligible_warps", "registers_per_thread", "theoretical_occupancy", "achieved_occupancy",
    "ld_sectors_per_request", "shared_wavefronts", "shared_conflict_excess", "l1_global_bytes", "l2_bytes", "dram_bytes",
    "fma_pipe_active", "tensor_pipe_active", "lanes_predicated_on", "local_sectors",
)  # fmt: skip
#: Changes below this are within what two profiles of one kernel differ by.
_UNCHANGED: Final = 0.02
#: A stall reason appears among what moved when it changes by this many cycles per instruction and
#: by this share of itself.
_STALL_CYCLES: Final = 0.1
_STALL_SHARE: Final = 0.1


def step_fold(entry: Entry) -> Fold | None:
    """The step from the rung that `entry` is compared with; None for the first rung or where that
    one is not in the run."""
    before = entry.before
    if before is None or entry.info is None:
        return None
    step = explained(before, entry)
    facts, moved = tuple(_facts(before, entry, step)), _moved(before, entry)
    speedup, difference = facts[0].cell, _difference(before, entry)
    gain = "not timed" if speedup.missing else speedup.text
    parts: list[tuple[str, Any]] = [
        ("compared", (rung_link(before), visible(entry.info.idea))),
        ("facts", facts),
    ]
    if step and step.text:
        parts.append(("list", tuple(map(visible, step.text))))
    parts += [("diff", difference)] if difference else []
    parts += [("table", moved)] if moved else []
    line = f"{gain}, compared with {visible(before.label)}"
    return Fold("step", "What changed", line, tuple(parts), spoils=True)


def explained(before: Entry, entry: Entry) -> StepExplanation | None:
    """The diagnosis' own account of the step, from all launches of both rungs; None where one was
    not profiled."""
    if before.main is None or entry.main is None or entry.info is None:
        return None
    return StepExplanation(
        before.launches, entry.launches, entry.info.removes, entry.book.diagnosis, entry.kind
    )


def _facts(before: Entry, entry: Entry, step: StepExplanation | None) -> Iterator[Fact]:
    """The step's one speedup, what it is meant to remove, and what was predicted of that."""
    got, clock = (step.speedup, step.clock) if step else (achieved(before, entry), "timed")
    yield Fact("Achieved speedup", _achieved(got, clock))
    removes = entry.info.removes if entry.info else ""
    if not removes:
        words = {
            "regression": "nothing, it shows a regression",
            "planted": "nothing, it has a planted defect",
        }
        none = missing("the header names no bottleneck that this step removes")
        yield Fact("Removes", text(words[entry.kind]) if entry.kind in words else none)
        return
    rule = load_rules().get(removes)
    yield Fact("Aims at the roof" if rule and rule.ROOF else "Meant to remove", cause_cell(removes))
    if step is None or step.expected is None:
        shown = f"the profile of {before.label} does not show"
        if step is None:
            why = "one of the two rungs was not profiled at this size"
        elif step.rank:
            why = f"{shown} how much {cause(removes)} costs"
        else:
            why = f"{shown} {cause(removes)}"
        yield Fact("Predicted speedup", missing(why))
        return
    how = f"from the profile of {visible(before.label)}, if only this is fixed; the finding has rank {step.rank}"
    alone = f"{units.ratio(step.expected)} if only this is fixed"
    yield Fact("Predicted speedup", Cell(alone, step.expected, how))
    if got:
        off = abs((1 - 1 / step.expected) - (1 - 1 / got)) * 100
        points = f"{units.significant(off, 2)} points"
        how = "difference of predicted and achieved time saved, in points of the earlier time"
        slower = missing("the step is slower, so no saving was achieved")
        yield Fact("Prediction off by", Cell(points, off, how) if got >= 1 else slower)


def _achieved(speedup: float | None, clock: str) -> Cell:
    if speedup is None:
        return missing(NOT_TIMED)
    how = (
        "unprofiled medians"
        if clock == "timed"
        else "profiled times of all launches, because one of the two was not timed"
    )
    words = units.ratio(speedup) if speedup >= 1 else units.faster(speedup)
    return Cell(
        f"{words} ({clock})",
        speedup,
        f"{how}, this rung compared with the one before",
        tone="bad" if speedup < 1 - NOISE else "",
    )


def _moved(before: Entry, entry: Entry) -> Table | None:
    then, now = before.main, entry.main
    if then is None or now is None:
        return None
    sides = {visible(before.label): then, visible(entry.label): now}
    figures = by_fact("moved", "What changed", _MOVED, sides, unchanged=_UNCHANGED)
    stalls = tuple(
        (
            text(f"Stall: {each.name.removeprefix('stall_').replace('_', ' ')}"),
            number(each.before, each.unit),
            number(each.after, each.unit),
            change(each.before, each.after),
        )
        for each in sorted(stall_cycles(then, now), key=lambda each: -abs(each.moved))
        if abs(each.moved)
        >= max(_STALL_CYCLES, _STALL_SHARE * max(each.before or 0.0, each.after or 0.0))
    )
    rows = (*figures.rows, *stalls)
    return replace(figures, rows=rows) if rows else None


def _difference(before: Entry, entry: Entry) -> tuple[tuple[str, str], ...]:
    """The device code's difference as (kind, line); folded to a few lines of context."""
    if before.info is None or entry.info is None or not before.info.code or not entry.info.code:
        return ()
    found = diff(before.info.code.splitlines(), entry.info.code.splitlines())
    return tuple((mark or " ", text) for mark, _, text in found)
