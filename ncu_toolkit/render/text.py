"""A run in the terminal: one screen of what matters, from the same view as the pages.

Every text is a `Text`, so nothing in a report is read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ncu_toolkit.diagnosis.rules import bottleneck_ids, title
from ncu_toolkit.explain.answer import CARDS, Kind, answer
from ncu_toolkit.explain.verdict import card
from ncu_toolkit.model import Profile
from ncu_toolkit.model.run import Run
from ncu_toolkit.render.book import Book
from ncu_toolkit.render.card import AnswerText
from ncu_toolkit.render.family_view import primary, variant_label
from ncu_toolkit.render.fitted import Column, Fitted
from ncu_toolkit.render.html import book_for
from ncu_toolkit.render.run_view import run_summary
from ncu_toolkit.render.views import Cell, FamilyView, Table
from ncu_toolkit.render.views import Column as TableColumn

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
#: Which column is left out first on a narrow terminal, and which then.
_GIVES_WAY = {
    key: order
    for order, key in enumerate(
        (
            "registers",
            "achieved_occupancy",
            "stall",
            "baseline",
            "rate",
        ),
        1,
    )
}
_STYLES = {"good": "green", "bad": "red", "warn": "yellow", "muted": "dim", "": ""}


def summary(run: Run, *, book: Book | None = None, cards: Sequence[str] = ()) -> RenderableType:
    """The run as a rich renderable: its ladders at their main size with the cards of the rungs in
    `cards`, and the answer to other launches."""
    book = book or book_for(run)
    view = run_summary(book)
    parts: list[RenderableType] = [Text(view.title, style="bold")]
    for family in view.families:
        parts.extend(_family(book, family))
    for profile in _named(book, cards):
        parts += [Text(), AnswerText(answer([Kind(card(profile, book.diagnosis(profile)))]))]
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
        if entry.rung in names and entry.main and entry.variant == primary(book, entry.family)
    ]
    return found[:CARDS]


def _family(book: Book, family: FamilyView) -> list[RenderableType]:
    first = primary(book, family.name)
    many = len({variant.dtype for variant in book.families[family.name]}) > 1
    panel = next(panel for panel in family.panels if panel.label == variant_label(first, many))
    return [
        Text(),
        Text(family.title, style="bold"),
        Text(family.sentence),
        fitted_table(panel.table, LADDER_COLUMNS),
    ]


def fitted_table(table: Table, keys: tuple[str, ...]) -> Fitted:
    """The named columns of a table; says which are left out where the terminal is narrow."""
    chosen = [index for index, column in enumerate(table.columns) if column.key in keys]
    columns = []
    for index in chosen:
        column = table.columns[index]
        columns.append(
            Column(column.label, column.numeric, _GIVES_WAY.get(column.key, 0), _shortest(column))
        )
    cells = [
        [_cell(row[index], table.columns[index].key) for index in chosen] for row in table.rows
    ]
    return Fitted(columns, cells, title=table.caption)


def _shortest(column: TableColumn) -> int:
    return 16 if column.key == "bottleneck" else 0


def _cell(cell: Cell, key: str) -> Text:
    marks = "".join(
        f" [{mark}]"
        for mark, _ in cell.badges
        if mark in ("planted", "regression", "baseline", "roof")
    )
    return Text(worded(cell, key) + marks, style=_STYLES[cell.tone])


def worded(cell: Cell, key: str) -> str:
    """A cell's text where nothing can be pointed at: a bottleneck's title for its id, and why there
    is no prediction."""
    if key == "bottleneck" and cell.text in bottleneck_ids():
        return title(cell.text)
    if key == "predicted" and cell.missing and cell.title.startswith("at its roof"):
        return "at its roof"
    return cell.text
