"""The calibration as a table: each pair, what the slow kernel's profile predicted, and what the
fast one brought; text and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ncu_toolkit.diagnosis.calibrate import Calibration, Guess, Outcome, Score

HEADINGS: Final = (
    "family", "slow", "fast", "size", "cause that the step removes", "rank", "predicted %", "achieved %", "off by", "ncu rank", "ncu %", "ncu off by",
)  # fmt: skip
_LEFT: Final = 5


def rows(outcomes: Iterable[Outcome]) -> list[tuple[str, ...]]:
    """One row of HEADINGS a pair. Percentages are of time saved; what stands in parentheses is not
    judged."""
    return [
        (
            o.pair.family, o.pair.before, o.pair.after, o.pair.size, o.pair.cause, _rank(o, o.ours), _saved(o.ours), f"{o.pair.achieved * 100:.1f}",
            _error(o, o.ours), _rank(o, o.ncu), _saved(o.ncu), _error(o, o.ncu),
        )
        for o in outcomes
    ]  # fmt: skip


def _rank(outcome: Outcome, guess: Guess | None) -> str:
    if guess is None:
        return ""
    text = str(guess.rank) if guess.rank else "none"
    return text if outcome.ranked else f"({text})"


def _saved(guess: Guess | None) -> str:
    return "" if guess is None else "none" if guess.saved is None else f"{guess.saved * 100:.1f}"


def _error(outcome: Outcome, guess: Guess | None) -> str:
    if guess is None:
        return ""
    text = f"{outcome.error(guess):.1f}"
    return text if outcome.counts else f"({text})"


SUMMARY: Final = (
    "",
    "cases",
    "ranked",
    "cause first",
    "among first two",
    "median error, points",
    "worst error, points",
    "skill",
    "Spearman",
    "in the 80% interval",
    "interval's width",
)


def summary(scores: Iterable[tuple[str, Score]]) -> list[tuple[str, ...]]:
    """One row of SUMMARY a score."""
    return [
        (
            name, str(s.cases), str(s.ranked), _part(s.first, s.ranked), _part(s.first_two, s.ranked),
            "" if s.median_error is None else f"{s.median_error:.1f}", "" if s.worst_error is None else f"{s.worst_error:.1f}",
            _number(s.skill), _number(s.spearman), "" if s.coverage is None else f"{s.coverage:.0%}", "" if s.width is None else f"{s.width:.2f}×",
        )
        for name, s in scores
    ]  # fmt: skip


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _part(number: int, of: int) -> str:
    return f"{number} ({number / of:.0%})" if of else ""


def scores(found: Calibration) -> list[tuple[str, Score]]:
    return [
        ("ncu-toolkit", found.ours),
        ("Nsight Compute", found.ncu),
        ("two thresholds", found.thresholds),
        ("best constant", found.constant),
    ]


def markdown(headings: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> str:
    rule = "|" + "---|" * left + "---:|" * (len(headings) - left)
    return "\n".join(
        [f"| {' | '.join(headings)} |", rule, *(f"| {' | '.join(line)} |" for line in lines), ""]
    )


def text(found: Calibration) -> str:
    """Both tables in columns of spaces."""
    return f"{_aligned(HEADINGS, rows(found.outcomes), _LEFT)}\n{_aligned(SUMMARY, summary(scores(found)), 1)}"


def document(found: Calibration) -> str:
    """Both tables as Markdown."""
    return f"{markdown(SUMMARY, summary(scores(found)))}\n{markdown(HEADINGS, rows(found.outcomes), _LEFT)}"


def _aligned(headings: Sequence[str], lines: Sequence[Sequence[str]], left: int) -> str:
    widths = [max(len(line[i]) for line in (headings, *lines)) for i in range(len(headings))]
    shown = (
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (headings, *lines)
    )
    return "\n".join(shown) + "\n"
