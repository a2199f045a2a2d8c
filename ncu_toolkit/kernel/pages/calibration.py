"""The calibration as tables: each pair, what the slow kernel's profile predicted, and what the fast
one achieved, as a table and a chart of a run."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.tables import (
    Cell,
    Spec,
    Table,
    Tone,
    missing,
    number,
    plain_table,
    table,
    text,
)
from ncu_toolkit.base.document.views import Chart, shown_size
from ncu_toolkit.kernel.diagnosis import calibrate
from ncu_toolkit.kernel.explain.sections import cause, cause_cell, verdict_cell
from ncu_toolkit.kernel.pages import charts
from ncu_toolkit.kernel.pages.book import Book, Entry

#: Why a case is in parentheses (calibrate.Judged).
UNJUDGED: Final = "not scored: not the largest size of this ladder, or a step that saves no more time than the profiler's noise"
UNRANKED: Final = "its rank is not scored, because another step from the same kernel gains more"
NOT_NAMED: Final = "the cause was not found, so this counts as a prediction of 0"


class _Case(NamedTuple):
    """One step, and the rung that it leads to."""

    case: calibrate.Judged
    entry: Entry


def calibration(book: Book) -> Table | None:
    """Each step that removes a bottleneck: what the slow rung's profile alone predicted, ours and
    Nsight Compute's, and what was achieved. What is in parentheses is not judged."""
    outcomes = calibrate.judged(
        calibrate.pairs([book.run], list(book.rungs.values())), book.diagnosis
    )
    if not outcomes:
        return None
    entries = {
        (e.family, e.rung, e.variant.size, e.variant.dtype): e for e in book.entries if e.main
    }
    cases = [
        _Case(each, entries[pair.family, pair.after, pair.size, pair.dtype])
        for each in outcomes
        for pair in [each.pair]
    ]
    title = "Predicted gains and what the next rung achieved"
    shown = table(title, _COLUMNS, cases, _judged(outcomes), "calibration")
    return replace(shown, sortable=True)


def _step(of: _Case) -> Cell:
    before = of.entry.before or of.entry
    return text(f"{before.label} → {of.entry.label}", href=of.entry.page)


def _found_at(of: _Case) -> Cell:
    rank = of.case.ours.rank
    words = f"rank {rank}" if rank else "not found"
    if not of.case.ranked:
        why = UNRANKED if of.case.counts else UNJUDGED
        return Cell(f"({words})", rank, why, tone="muted")
    verdict = of.entry.book.diagnosis(of.case.pair.main).primary.bottleneck
    tone: Tone = "good" if rank == 1 else "" if rank else "bad"
    return Cell(words, rank, f"the verdict was {cause(verdict)}", tone=tone)


def _predicted(of: _Case) -> Cell:
    saved = of.case.ours.saved
    if saved is None:
        return missing(NOT_NAMED)
    return Cell(units.ratio(1 / (1 - saved)), 1 / (1 - saved), "if only this is fixed")


def _achieved(of: _Case) -> Cell:
    speedup = 1 / (1 - of.case.pair.achieved)
    clock = "profiled" if of.case.pair.clock == "profiler" else "timed"
    words = units.ratio(speedup) if speedup >= 1 else units.faster(speedup)
    return Cell(f"{words} ({clock})", speedup)


def _off_by(of: _Case) -> Cell:
    if of.case.pair.achieved < 0:
        return missing("the step is slower, so no saving was achieved")
    points = of.case.error(of.case.ours)
    if of.case.counts:
        return number(points, "")
    return Cell(f"({units.significant(points)})", points, UNJUDGED, tone="muted")


def _ncu_top(of: _Case) -> Cell:
    estimates = calibrate.ncu_estimates(of.case.pair.main)
    if not estimates or not estimates[0].speedup:
        return missing("this profile lacks the metrics for Nsight Compute's own estimates")
    top, saved = estimates[0], estimates[0].speedup / 100
    name = visible(top.title or top.rule, 60)
    return Cell(f"{name} {units.percent(saved)}", saved, visible(top.text, 500))


_COLUMNS: Final[tuple[Spec[_Case], ...]] = (
    Spec("step", "Step", "from the slower rung to the next one", numeric=False, cell=_step),
    Spec("size", "Size", "of the problem", numeric=False, cell=lambda of: text(f"{shown_size(of.case.pair.size)} {of.case.pair.dtype}")),
    Spec("removes", "Removes", "the cause that the step's header says it removes", numeric=False, cell=lambda of: cause_cell(of.case.pair.cause)),
    Spec("rank", "Found at", "rank of that cause among the findings on the slower rung", cell=_found_at),
    Spec("verdict", "Verdict", "the verdict on the slower rung", numeric=False, cell=lambda of: verdict_cell(of.entry.book.card(of.case.pair.main))),
    Spec("predicted", "Predicted", "the speedup if only this is fixed, from the slower rung's profile", cell=_predicted),
    Spec("achieved", "Achieved", "speedup of the next rung, timed or profiled", cell=_achieved),
    Spec("error", "Off by, points", "difference of the two, as shares of the earlier time", cell=_off_by),
    Spec("ncu", "Nsight Compute's top", "the largest estimate of Nsight Compute's own rules on the slower rung", numeric=False, cell=_ncu_top),
)  # fmt: skip


def _judged(outcomes: Sequence[calibrate.Judged]) -> str:
    score = calibrate.score((outcome, outcome.ours) for outcome in outcomes)
    note = f"{score.cases} of {len(outcomes)} steps are scored: those that save time at the largest size of their ladder"
    if score.cases:
        note += f". {score.ranked} of them are scored by rank: of several steps from one kernel, the one that gains most"
    note += ". Values in parentheses are not scored."
    if score.ranked:
        note += f" The declared cause ranks first in {score.first} of {score.ranked} cases, first or second in {score.first_two}."
    if score.median_error is not None and score.worst_error is not None:
        middle, worst = (units.significant(e, 2) for e in (score.median_error, score.worst_error))
        note += (
            f" The median error of the predicted saving is {middle} points, the largest {worst}."
        )
    return f"{note} Gains are profiled where both rungs are one launch, else timed. Each step's page shows its timed speedup."


def predictions(judged: Table) -> Chart | None:
    """The steps of a calibration as a picture: predicted against achieved gain."""
    at = {column.key: place for place, column in enumerate(judged.columns)}
    guesses, links, rows = [], {}, []
    for row in judged.rows:
        step, size, guess, got = (row[at[key]] for key in ("step", "size", "predicted", "achieved"))
        if not isinstance(guess.value, float) or not isinstance(got.value, float):
            continue
        label = f"{step.text}, {size.text}"
        words = f"predicted {guess.text}, achieved {got.text}"
        scored = row[at["error"]].tone != "muted" and not row[at["error"]].missing
        guesses.append((label, guess.value, got.value, scored, words))
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
