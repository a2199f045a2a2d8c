"""What a rung did to the one before it: the code difference, which waits and traffic moved, predicted against achieved."""

from __future__ import annotations

import difflib
from typing import Final

from ncu_toolkit import derived, units
from ncu_toolkit.model import Profile
from ncu_toolkit.render.book import Book, Entry
from ncu_toolkit.render.columns import NOT_TIMED, achieved, predicted
from ncu_toolkit.render.safe import visible
from ncu_toolkit.render.views import Cell, Fact, StepView, Table, missing, number, plain_table, text
from ncu_toolkit.steps import explain_step

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
#: A stall reason appears among what moved when it changes by this many cycles per instruction and by this share of itself.
_STALL_CYCLES: Final = 0.1
_STALL_SHARE: Final = 0.1
_CONTEXT_LINES: Final = 3
_LONGEST_DIFF: Final = 600


def step_view(book: Book, entry: Entry) -> StepView | None:
    """The step from the rung that `entry` is compared with; None for the first rung or where that one is not in the run."""
    before = book.before(entry)
    if before is None or entry.info is None:
        return None
    main = before.main
    link = Cell(
        visible(before.label),
        visible(before.label),
        visible(before.info.title) if before.info else "",
        f"{book.slugs[id(main)]}.html" if main else "",
    )
    return StepView(
        link,
        visible(entry.info.idea),
        _explained(book, before, entry),
        _facts(book, before, entry),
        _moved(before, entry),
        _difference(before, entry),
    )


def _explained(book: Book, before: Entry, entry: Entry) -> tuple[str, ...]:
    """The diagnosis' own account of the step, from the two profiles. Its times are those under the profiler."""
    assert entry.info is not None
    if before.main is None or entry.main is None:
        return ()
    return tuple(visible(line) for line in explain_step(before.main, entry.main, entry.info.removes, book.diagnosis).text)


def _facts(book: Book, before: Entry, entry: Entry) -> tuple[Fact, ...]:
    assert entry.info is not None
    got = achieved(before, entry)
    facts = [Fact("Achieved speedup", number(got, "ratio", NOT_TIMED, title="unprofiled medians, this rung against the one before"))]
    removes = entry.info.removes
    if not removes:
        return (*facts, Fact("Removes", missing("the header names no bottleneck that this step removes")))
    facts.append(Fact("Meant to remove", text(removes, code=True)))
    guess = predicted(book, before, removes)
    if guess is None:
        facts.append(
            Fact(
                "Predicted speedup",
                missing(f"the profile of {before.label} alone does not show {removes}" if before.main else "the rung before was not profiled"),
            )
        )
        return tuple(facts)
    speedup, rank = guess
    facts.append(
        Fact(
            "Predicted speedup",
            Cell(f"≤ {units.ratio(speedup)}", speedup, f"bound from the profile of {visible(before.label)} alone; cause found at rank {rank}"),
        )
    )
    if got:
        off = abs((1 - 1 / speedup) - (1 - 1 / got)) * 100
        facts.append(
            Fact(
                "Prediction off by",
                Cell(
                    f"{units.significant(off, 2)} points",
                    off,
                    "difference of the predicted and the achieved time saved, in points of the time before",
                ),
            )
        )
    return tuple(facts)


def _moved(before: Entry, entry: Entry) -> Table | None:
    then, now = before.main, entry.main
    if then is None or now is None:
        return None
    rows: list[list[Cell]] = []
    for name in _MOVED:
        old, new = derived.value(then, name), derived.value(now, name)
        if old is not None and new is not None and abs(new - old) > _UNCHANGED * max(abs(old), abs(new)):
            unit, label, meaning = derived.describe(name)
            rows.append([text(label, meaning), number(old, unit), number(new, unit), _change(old, new)])
    rows.extend(_stalls_moved(then, now))
    return (
        plain_table("moved", "What moved", ["Figure", visible(before.label), visible(entry.label), "Change"], rows, numeric=(1, 2, 3))
        if rows
        else None
    )


def _stalls_moved(then: Profile, now: Profile) -> list[list[Cell]]:
    if then.stalls is None or now.stalls is None:
        return []
    found = []
    for reason in dict.fromkeys([name for name, _ in then.stalls.reasons] + [name for name, _ in now.stalls.reasons]):
        old, new = then.stalls.cycles(reason), now.stalls.cycles(reason)
        if abs(new - old) >= max(_STALL_CYCLES, _STALL_SHARE * max(old, new)):
            found.append(
                (
                    abs(new - old),
                    [text(f"Stall: {reason.replace('_', ' ')}"), number(old, "cycles/inst"), number(new, "cycles/inst"), _change(old, new)],
                )
            )
    return [row for _, row in sorted(found, key=lambda pair: -pair[0])]


def _change(old: float, new: float) -> Cell:
    if old == new:
        return Cell("=", 1.0, "unchanged", tone="muted")
    if not old:
        return Cell("new", None, "there was none before")
    if not new:
        return Cell("gone", 0.0, "there is none now")
    return number(new / old, "ratio")


def _difference(before: Entry, entry: Entry) -> tuple[tuple[str, str], ...]:
    """The device code's difference as (kind, line); folded to a few lines of context."""
    if before.info is None or entry.info is None or not before.info.code or not entry.info.code:
        return ()
    old, new = before.info.code.splitlines(), entry.info.code.splitlines()
    lines = []
    for line in difflib.unified_diff(old, new, n=_CONTEXT_LINES, lineterm=""):
        if line.startswith(("---", "+++")):
            continue
        lines.append((line[:1], visible(line if line.startswith("@") else line[1:], 400, keep="\t")))
    if len(lines) > _LONGEST_DIFF:
        lines = [*lines[:_LONGEST_DIFF], ("@", f"… {len(lines) - _LONGEST_DIFF} more lines")]
    return tuple(lines)
