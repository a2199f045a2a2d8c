"""A comparison as text, Markdown and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from ncu_toolkit import __version__
from ncu_toolkit.analysis.gate import TIME, Comparison, Difference, Pair
from ncu_toolkit.core import units
from ncu_toolkit.core.safe import markdown, markdown_code, visible
from ncu_toolkit.diagnosis import compare, figures
from ncu_toolkit.render.fitted import Column, Fitted
from ncu_toolkit.render.words import counted

VERSION: Final = 1
HEADINGS: Final = ("kernel", "old", "new", "change", "noise", "bottleneck")
_NAME: Final = 60
#: Which column is left out first on a narrow terminal, and which then.
_GIVES_WAY: Final = {"bottleneck": 1, "noise": 2, "old": 3}
#: Pairs of one problem that are named.
_NAMED: Final = 3


def rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """A row for each pair: name, old and new time, change, noise, and what the bottleneck
    became."""
    return [_row(pair) for pair in _ordered(comparison)]


def _ordered(comparison: Comparison) -> list[Pair]:
    return sorted(comparison.pairs, key=lambda pair: -abs(_moved(pair)))


def _moved(pair: Pair) -> float:
    found = pair.difference(TIME)
    return found.new - found.old if found else math.inf


def _row(pair: Pair) -> tuple[str, ...]:
    name = visible(pair.name, _NAME)
    found = pair.difference(TIME)
    if pair.problem or found is None:
        return (
            name,
            "",
            "",
            "not comparable",
            "",
            "",
        )  # why stands below: a sentence would take the figures' place
    old, new = pair.old.bottleneck, pair.new.bottleneck
    return (
        name,
        units.duration(found.old),
        units.duration(found.new),
        percent(found.change),
        _noise(found),
        old if old == new else f"{old} → {new}",
    )


def percent(change: float | None) -> str:
    """A relative change with its sign."""
    if change is None:
        return units.NOT_AVAILABLE
    return f"{'+' if change > 0 else ''}{units.percent(change)}"


def _noise(found: Difference) -> str:
    return (
        f"± {units.percent(found.noise / found.old, 2)}"
        if found.noise and found.old
        else "not known"
        if not found.noise
        else ""
    )


def _said(comparison: Comparison) -> Iterable[str]:
    for failure in comparison.failures:
        parts = "; ".join(
            f"{visible(_label(d.figure))} {_value(d, d.old)} → {_value(d, d.new)} ({percent(d.change)})"
            for d in failure.differences
        )
        yield f"regression: {visible(failure.pair.name, _NAME)}: {visible(failure.gate)}: {parts}"
    for reason in comparison.undecided:
        yield f"not decided: {visible(reason)}"
    for problem in dict.fromkeys(pair.problem for pair in comparison.pairs if pair.problem):
        names = [visible(pair.name, _NAME) for pair in comparison.pairs if pair.problem == problem]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"not comparable: {', '.join(names[:_NAMED])}{more}: {visible(problem)}"
    for which, alone in (("old", comparison.only_old), ("new", comparison.only_new)):
        if alone:
            shown = ", ".join(visible(name, 40) for name in alone[:5])
            yield f"only in the {which}: {shown}{f' and {len(alone) - 5} more' if len(alone) > 5 else ''}"
    yield from (visible(remark) for remark in comparison.remarks)


def _label(figure: str) -> str:
    return "time" if figure == TIME else figures.describe(figure)[1].lower()


def _value(found: Difference, value: float) -> str:
    return units.quantity(
        value, "us" if found.figure == TIME else figures.describe(found.figure)[0]
    )


def verdict(comparison: Comparison) -> str:
    """One line: whether the gates hold."""
    if not comparison.pairs:
        return "Nothing to compare: no kernel is in both."
    if comparison.failures:
        return f"{counted(len(comparison.failures), 'regression')}."
    if comparison.compared < len(comparison.pairs):
        told = (
            f"{comparison.compared} of {counted(len(comparison.pairs), 'kernel')} could be compared"
        )
    else:
        told = f"{counted(len(comparison.pairs), 'kernel')} compared"
    if not comparison.gates:
        return f"{told}; no --fail-on was given."
    return f"{told}: {'no regression' if comparison.comparable else 'no regression in what could be compared'}."


def explanation(comparison: Comparison) -> tuple[str, ...]:
    """What the pair whose time moved most owes that to, where both sides have a profile of it."""
    for pair in _ordered(comparison):
        before, after = pair.old.representative, pair.new.representative
        if not pair.problem and before is not None and after is not None:
            return (
                f"{pair.name}:",
                *compare.compare(before, after).text,
                *compare.comparability(before, after),
            )
    return ()


def text(comparison: Comparison) -> RenderableType:
    """For a terminal."""
    columns = [
        Column(heading, heading not in ("kernel", "bottleneck"), _GIVES_WAY.get(heading, 0))
        for heading in HEADINGS
    ]
    drawn = Fitted(columns, [[Text(cell) for cell in row] for row in rows(comparison)])
    lines = [Text(), *(Text(visible(line)) for line in explanation(comparison))]
    marks = [
        Text(line, style="red" if line.startswith("regression") else "yellow")
        for line in _said(comparison)
    ]
    return Stack(
        *([drawn] if comparison.pairs else []),
        *lines,
        *marks,
        Text(verdict(comparison), style="bold"),
    )


def markdown_text(comparison: Comparison) -> str:
    """For a pull request."""
    lines = [f"**{markdown(verdict(comparison))}**", ""]
    if comparison.pairs:
        lines += ["| " + " | ".join(HEADINGS) + " |", "|---|---:|---:|---:|---:|---|"]
        lines += [
            "| " + " | ".join((markdown_code(row[0]), *(markdown(cell) for cell in row[1:]))) + " |"
            for row in rows(comparison)
        ]
        lines.append("")
    notes = [*_said(comparison), *explanation(comparison)]
    lines += [f"- {markdown(note)}" for note in notes]
    return "\n".join(lines).rstrip() + "\n"


def document(comparison: Comparison) -> str:
    """As JSON with a final newline."""
    return json.dumps(plain(comparison), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def plain(comparison: Comparison) -> dict[str, Any]:
    return {
        "schema": "ncu-toolkit/comparison",
        "version": VERSION,
        "tool_version": __version__,
        "gates": list(comparison.gates),
        "passed": not comparison.failures and comparison.comparable,
        "compared": comparison.compared,
        "pairs": [_plain_pair(pair) for pair in _ordered(comparison)],
        "regressions": [
            {
                "gate": f.gate,
                "kernel": visible(f.pair.name),
                "differences": [_plain_difference(d) for d in f.differences],
            }
            for f in comparison.failures
        ],
        "undecided": [visible(reason) for reason in comparison.undecided],
        "only_old": [visible(name) for name in comparison.only_old],
        "only_new": [visible(name) for name in comparison.only_new],
        "remarks": [visible(remark) for remark in comparison.remarks],
    }


def _plain_pair(pair: Pair) -> dict[str, Any]:
    found = pair.difference(TIME)
    return {
        "kernel": visible(pair.name),
        "problem": visible(pair.problem) or None,
        "time": _plain_difference(found) if found else None,
        "launches": [len(pair.old.times_us), len(pair.new.times_us)],
        "bottleneck": [pair.old.bottleneck or None, pair.new.bottleneck or None],
    }


def _plain_difference(found: Difference) -> dict[str, Any]:
    certain = found.certain_change
    return {
        "figure": found.figure,
        "unit": "us" if found.figure == TIME else figures.describe(found.figure)[0],
        "old": found.old,
        "new": found.new,
        "change": found.change,
        "noise": found.noise,
        "certain_change": certain if math.isfinite(certain) else None,
    }
