"""What a rung did to the one before it: the code difference, which waits and traffic moved,
predicted against achieved."""

from __future__ import annotations

from typing import Any, Final

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import visible
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.compare import Launches
from ncu_toolkit.diagnosis.rules import load_rules
from ncu_toolkit.diagnosis.steps import StepExplanation, explain_step
from ncu_toolkit.diagnosis.time_model import NOISE
from ncu_toolkit.document.views import (
    Cell,
    Fact,
    Fold,
    Table,
    missing,
    number,
    plain_table,
    text,
)
from ncu_toolkit.explain.differences import diff
from ncu_toolkit.model import Profile
from ncu_toolkit.pages.book import Book, Entry, achieved
from ncu_toolkit.pages.columns import NOT_TIMED, cause, cause_cell, rung_link

#: Figures whose change a step's table shows, where both sides have them.
_MOVED: Final = (
    "instructions",
    "issue_active",
    "eligible_warps",
    "registers_per_thread",
    "theoretical_occupancy",
    "achieved_occupancy",
    "ld_sectors_per_request",
    "shared_wavefronts",
    "shared_conflict_excess",
    "l1_global_bytes",
    "l2_bytes",
    "dram_bytes",
    "fma_pipe_active",
    "tensor_pipe_active",
    "lanes_predicated_on",
    "local_sectors",
)
#: Changes below this are within what two profiles of one kernel differ by.
_UNCHANGED: Final = 0.02
#: A stall reason appears among what moved when it changes by this many cycles per instruction and
#: by this share of itself.
_STALL_CYCLES: Final = 0.1
_STALL_SHARE: Final = 0.1


def step_fold(book: Book, entry: Entry) -> Fold | None:
    """The step from the rung that `entry` is compared with; None for the first rung or where that
    one is not in the run."""
    before = entry.before
    if before is None or entry.info is None:
        return None
    step = explained(book, before, entry)
    facts, moved = _facts(book, before, entry, step), _moved(before, entry)
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


def explained(book: Book, before: Entry, entry: Entry) -> StepExplanation | None:
    """The diagnosis' own account of the step, from all launches of both rungs; None where one was
    not profiled."""
    assert entry.info is not None
    if before.main is None or entry.main is None:
        return None
    return explain_step(
        _launches(before), _launches(entry), entry.info.removes, book.diagnosis, entry.kind
    )


def _launches(entry: Entry) -> Launches:
    return Launches(
        entry.profiles, entry.timing.median_us if entry.timing else None, visible(entry.label)
    )


def _facts(
    book: Book, before: Entry, entry: Entry, step: StepExplanation | None
) -> tuple[Fact, ...]:
    """The step's one speedup, what it is meant to remove, and what was predicted of that."""
    assert entry.info is not None
    got, clock = (step.speedup, step.clock) if step else (achieved(before, entry), "timed")
    facts = [Fact("Achieved speedup", _achieved(got, clock))]
    removes = entry.info.removes
    if not removes:
        words = {
            "regression": "nothing, it shows a regression",
            "planted": "nothing, it has a planted defect",
        }
        none = missing("the header names no bottleneck that this step removes")
        return (*facts, Fact("Removes", text(words[entry.kind]) if entry.kind in words else none))
    rule = load_rules().get(removes)
    aim = "Aims at the roof" if rule and rule.ROOF else "Meant to remove"
    facts.append(Fact(aim, cause_cell(removes)))
    if step is None or step.expected is None:
        why = (
            "one of the two rungs was not profiled at this size"
            if step is None
            else f"the profile of {before.label} does not show how much {cause(removes)} costs"
            if step.rank
            else f"the profile of {before.label} does not show {cause(removes)}"
        )
        return (*facts, Fact("Predicted speedup", missing(why)))
    how = f"from the profile of {visible(before.label)}, if only this is fixed; the finding has rank {step.rank}"
    facts.append(
        Fact(
            "Predicted speedup",
            Cell(f"{units.ratio(step.expected)} if only this is fixed", step.expected, how),
        )
    )
    if got:
        off = abs((1 - 1 / step.expected) - (1 - 1 / got)) * 100
        points = f"{units.significant(off, 2)} points"
        how = "difference of predicted and achieved time saved, in points of the earlier time"
        slower = missing("the step is slower, so no saving was achieved")
        facts.append(Fact("Prediction off by", Cell(points, off, how) if got >= 1 else slower))
    return tuple(facts)


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
    rows: list[list[Cell]] = []
    for name in _MOVED:
        old, new = figures.value(then, name), figures.value(now, name)
        if (
            old is not None
            and new is not None
            and abs(new - old) > _UNCHANGED * max(abs(old), abs(new))
        ):
            unit, label, meaning = figures.describe(name)
            rows.append(
                [text(label, meaning), number(old, unit), number(new, unit), _change(old, new)]
            )
    rows.extend(_stalls_moved(then, now))
    return (
        plain_table(
            "moved",
            "What changed",
            ["Figure", visible(before.label), visible(entry.label), "Change"],
            rows,
            numeric=(1, 2, 3),
        )
        if rows
        else None
    )


def _stalls_moved(then: Profile, now: Profile) -> list[list[Cell]]:
    if then.stalls is None or now.stalls is None:
        return []
    found = []
    for reason in dict.fromkeys(
        [name for name, _ in then.stalls.reasons] + [name for name, _ in now.stalls.reasons]
    ):
        old, new = then.stalls.cycles(reason), now.stalls.cycles(reason)
        if abs(new - old) >= max(_STALL_CYCLES, _STALL_SHARE * max(old, new)):
            found.append(
                (
                    abs(new - old),
                    [
                        text(f"Stall: {reason.replace('_', ' ')}"),
                        number(old, "cycles/inst"),
                        number(new, "cycles/inst"),
                        _change(old, new),
                    ],
                )
            )
    return [row for _, row in sorted(found, key=lambda pair: -pair[0])]


def _change(old: float, new: float) -> Cell:
    if old == new:
        return Cell("=", 1.0, "unchanged", tone="muted")
    if not old:
        return Cell("new", None, "none before")
    if not new:
        return Cell("gone", 0.0, "none now")
    return number(new / old, "ratio")


def _difference(before: Entry, entry: Entry) -> tuple[tuple[str, str], ...]:
    """The device code's difference as (kind, line); folded to a few lines of context."""
    if before.info is None or entry.info is None or not before.info.code or not entry.info.code:
        return ()
    found = diff(before.info.code.splitlines(), entry.info.code.splitlines())
    return tuple((mark or " ", text) for mark, _, text in found)
