"""Predictions and what the next rung achieved, as a table of a run: the cases and the
judgement of `ncu-toolkit calibrate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import visible
from ncu_toolkit.diagnosis.calibrate import Calibration, Outcome, calibrate, ncu_estimates, pairs
from ncu_toolkit.document.views import (
    Cell,
    Chart,
    Column,
    Table,
    missing,
    number,
    plain_table,
    shown_size,
    text,
)
from ncu_toolkit.model import Profile
from ncu_toolkit.pages import charts
from ncu_toolkit.pages.book import Book, Entry
from ncu_toolkit.pages.columns import cause, cause_cell, verdict_cell


def calibration(book: Book) -> Table | None:
    """Each step that removes a bottleneck: what the slow rung's profile alone predicted, ours and
    Nsight Compute's, and what was achieved.

    Cases, judgement and errors are those of `ncu-toolkit calibrate` on this run, so that both count
    the same."""
    found = calibrate(pairs([book.run], list(book.rungs.values())), book.diagnosis)
    if not found.outcomes:
        return None
    entries = {
        (e.family, e.rung, e.variant.size, e.variant.dtype): e for e in book.entries if e.main
    }
    labels = (
        "Step",
        "Size",
        "Removes",
        "Found at",
        "Verdict",
        "Predicted",
        "Achieved",
        "Off by, points",
        "Nsight Compute's top",
    )
    keys = ("step", "size", "removes", "rank", "verdict", "predicted", "achieved", "error", "ncu")
    titles = (
        "from the slower rung to the next one", "of the problem", "the cause that the step's header says it removes",
        "rank of that cause among the findings on the slower rung", "the verdict on the slower rung",
        "the speedup if only this is fixed, from the slower rung's profile", "speedup of the next rung, timed or profiled",
        "difference of the two, as shares of the earlier time", "the largest estimate of Nsight Compute's own rules on the slower rung",
    )  # fmt: skip
    numeric = ("rank", "predicted", "achieved", "error")
    columns = tuple(
        Column(key, label, title, "", key in numeric)
        for key, label, title in zip(keys, labels, titles, strict=True)
    )
    rows = tuple(_calibrated(book, entries, outcome) for outcome in found.outcomes)
    return Table(
        "calibration",
        "Predicted gains and what the next rung achieved",
        columns,
        rows,
        sortable=True,
        note=_judged(found),
    )


def predictions(table: Table) -> Chart | None:
    """The steps of a calibration as a picture: predicted against achieved gain."""
    at = {column.key: place for place, column in enumerate(table.columns)}
    guesses, links, rows = [], {}, []
    for row in table.rows:
        step, size, guess, got = (row[at[key]] for key in ("step", "size", "predicted", "achieved"))
        if not isinstance(guess.value, float) or not isinstance(got.value, float):
            continue
        label = f"{step.text}, {size.text}"
        words = f"predicted {guess.text}, achieved {got.text}"
        judged = row[at["error"]].tone != "muted" and not row[at["error"]].missing
        guesses.append(charts.Guess(label, guess.value, got.value, judged, words))
        links[label] = step.href
        rows.append([step, size, guess, got])
    if not guesses:
        return None
    figure = charts.predictions(guesses)
    return Chart(
        "predictions",
        "Predicted against achieved",
        (
            "Each point is a step. It shows the gain predicted from the slower kernel's profile and the gain achieved. Choose a "
            "point to open its rung."
        ),
        figure,
        plain_table(
            "predictions-data",
            "Predicted and achieved gain",
            ["Step", "Size", "Predicted", "Achieved"],
            rows,
            numeric=(2, 3),
        ),
        wide=True,
        links=links,
    )


def _calibrated(
    book: Book, entries: Mapping[tuple[str, str, str, str], Entry], outcome: Outcome
) -> tuple[Cell, ...]:
    """One row. What is in parentheses is not judged."""
    pair, guess = outcome.pair, outcome.ours
    entry = entries[pair.family, pair.after, pair.size, pair.dtype]
    before = entry.before or entry
    slow = max(
        pair.profiles,
        key=lambda profile: (
            (profile.duration_us or 0.0) * (profile.context.repeat if profile.context else 1)
        ),
    )
    verdict = book.diagnosis(slow)
    speedup = 1 / (1 - pair.achieved)
    clock = "profiled" if pair.clock == "profiler" else "timed"
    error: Cell = missing("the step is slower, so no saving was achieved")
    if pair.achieved >= 0:
        points = outcome.error(guess)
        error = (
            number(points, "")
            if outcome.counts
            else Cell(f"({units.significant(points)})", points, UNJUDGED, tone="muted")
        )
    return (
        text(f"{before.label} → {entry.label}", href=entry.page),
        text(f"{shown_size(pair.size)} {pair.dtype}"),
        cause_cell(pair.cause),
        _rank(outcome, f"the verdict was {cause(verdict.primary.bottleneck)}"),
        verdict_cell(book, slow),
        Cell(units.ratio(1 / (1 - guess.saved)), 1 / (1 - guess.saved), "if only this is fixed")
        if guess.saved is not None
        else missing(NOT_NAMED),
        Cell(
            f"{units.ratio(speedup) if speedup >= 1 else units.faster(speedup)} ({clock})", speedup
        ),
        error,
        _ncu_top(slow),
    )


def _rank(outcome: Outcome, verdict: str) -> Cell:
    rank = outcome.ours.rank
    words = f"rank {rank}" if rank else "not found"
    if not outcome.ranked:
        return Cell(f"({words})", rank, UNRANKED if outcome.counts else UNJUDGED, tone="muted")
    return Cell(words, rank, verdict, tone="good" if rank == 1 else "" if rank else "bad")


#: Why a case stands in parentheses (calibrate.Outcome).
UNJUDGED: Final = "not scored: not the largest size of this ladder, or a step that saves no more time than the profiler's noise"
UNRANKED: Final = "its rank is not scored, because another step from the same kernel gains more"
NOT_NAMED: Final = "the cause was not found, so this counts as a prediction of 0"


def _judged(found: Calibration) -> str:
    score = found.ours
    note = (
        f"{score.cases} of {len(found.outcomes)} steps are scored: those that save time at the largest size of their ladder"
        + (
            f". {score.ranked} of them are scored by rank: of several steps from one kernel, the one that gains most"
            if score.cases
            else ""
        )
        + ". Values in parentheses are not scored."
    )
    if score.ranked:
        note += f" The declared cause ranks first in {score.first} of {score.ranked} cases, first or second in {score.first_two}."
    if score.median_error is not None and score.worst_error is not None:
        middle, worst = (
            units.significant(score.median_error, 2),
            units.significant(score.worst_error, 2),
        )
        note += (
            f" The median error of the predicted saving is {middle} points, the largest {worst}."
        )
    return f"{note} Gains are profiled where both rungs are one launch, else timed. Each step's page shows its timed speedup."


def _ncu_top(profile: Profile) -> Cell:
    estimates = ncu_estimates(profile)
    if not estimates or not estimates[0].speedup:
        return missing("this profile lacks the metrics for Nsight Compute's own estimates")
    top = estimates[0]
    return Cell(
        f"{visible(top.title or top.rule, 60)} {units.percent((top.speedup or 0.0) / 100)}",
        (top.speedup or 0.0) / 100,
        visible(top.text, 500),
    )
