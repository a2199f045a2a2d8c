"""A run for a terminal: its ladders at their main size, and the answer to other launches."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ncu_toolkit.document import views
from ncu_toolkit.document.answer import CARDS, Kind, answer
from ncu_toolkit.explain.verdict import card as card_of
from ncu_toolkit.model import Profile
from ncu_toolkit.model.run import Run
from ncu_toolkit.pages.book import Book
from ncu_toolkit.pages.html import book_for
from ncu_toolkit.pages.run_view import run_summary
from ncu_toolkit.render.text import AnswerText, Fitted

#: Columns of a ladder's table that fit a terminal.
LADDER_COLUMNS = (
    "rung",
    "time",
    "rate",
    "baseline",
    "registers",
    "achieved_occupancy",
    "stall",
    "bottleneck",
    "predicted",
)


def summary(run: Run, *, book: Book | None = None, cards: Sequence[str] = ()) -> RenderableType:
    """The run as a rich renderable: its ladders at their main size with the cards of the rungs in
    `cards`, and the answer to other launches."""
    book = book or book_for(run)
    view = run_summary(book)
    parts: list[RenderableType] = [Text(view.title, style="bold")]
    for family in view.families:
        parts.extend(_family(book, family))
    for profile in _named(book, cards):
        parts += [Text(), AnswerText(answer([Kind(card_of(profile, book.diagnosis(profile)))]))]
    if view.answer:
        parts += [Text(), AnswerText(view.answer)]
    if view.skipped:
        parts.append(Text("Not collected:", style="bold"))
        parts.extend(
            Text(f"  {what.text}: {why.text}", style="dim", overflow="ellipsis", no_wrap=True)
            for what, why in view.skipped.rows
        )
    return Group(*parts)


def _named(book: Book, names: Sequence[str]) -> list[Profile]:
    """The profiles of the named rungs at their ladder's main size, at most CARDS."""
    found = [
        entry.main
        for entry in book.entries
        if entry.rung in names
        and entry.main
        and entry.variant == book.primary(entry.family).variant
    ]
    return found[:CARDS]


def _family(book: Book, family: views.FamilyView) -> list[RenderableType]:
    first = book.primary(family.name).key
    panel = next(panel for panel in family.panels if panel.key == first)
    return [
        Text(),
        Text(family.title, style="bold"),
        Text(family.sentence),
        Fitted(panel.table.only(lambda _, column: column.key in LADDER_COLUMNS)),
    ]
