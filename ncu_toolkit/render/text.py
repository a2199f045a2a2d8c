"""A run in the terminal: one screen of what matters, from the same view as the pages.

Every text is a `Text`, so nothing in a report is read as markup.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from ncu_toolkit.render.book import Book
from ncu_toolkit.render.family_view import primary, variant_label
from ncu_toolkit.render.html import book_for
from ncu_toolkit.render.run_view import run_summary
from ncu_toolkit.render.views import Cell, FamilyView, Table
from ncu_toolkit.runs import Run

#: Columns of a ladder's table that fit a terminal.
LADDER_COLUMNS = ("rung", "time", "rate", "baseline", "registers", "achieved_occupancy", "stall", "bottleneck", "predicted")
LAUNCH_COLUMNS = ("kernel", "launches", "time", "share", "median", "bottleneck", "predicted")
#: Most rows of launches.
ROWS = 20
_STYLES = {"good": "green", "bad": "red", "warn": "yellow", "muted": "dim", "": ""}


def summary(run: Run, *, book: Book | None = None, rows: int = ROWS) -> RenderableType:
    """The run as a rich renderable: its ladders at their main size, and other launches ranked by time (at most `rows`)."""
    book = book or book_for(run)
    view = run_summary(book)
    parts: list[RenderableType] = [Text(view.title, style="bold")]
    if view.sentence:
        parts.append(Text(view.sentence))
    for family in view.families:
        parts.extend(_family(book, family))
    if view.launches:
        parts.append(rich_table(view.launches, LAUNCH_COLUMNS, rows))
    if view.skipped:
        parts.append(Text("Not collected:", style="bold"))
        parts.extend(Text(f"  {what.text}: {why.text}", style="dim", overflow="ellipsis", no_wrap=True) for what, why in view.skipped.rows)
    return Group(*parts)


def _family(book: Book, family: FamilyView) -> list[RenderableType]:
    first = primary(book, family.name)
    many = len({variant.dtype for variant in book.families[family.name]}) > 1
    panel = next(panel for panel in family.panels if panel.label == variant_label(first, many))
    return [Text(), Text(family.title, style="bold"), Text(family.sentence), rich_table(panel.table, LADDER_COLUMNS, len(panel.table.rows))]


def rich_table(table: Table, keys: tuple[str, ...], rows: int) -> RichTable:
    """The named columns of a table; says how many rows are left out."""
    left = len(table.rows) - rows
    drawn = RichTable(
        title=Text(table.caption),
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="dim",
        caption=Text(f"{left} more in the report") if left > 0 else None,
        caption_justify="left",
    )
    chosen = [index for index, column in enumerate(table.columns) if column.key in keys]
    for index in chosen:
        column = table.columns[index]
        drawn.add_column(Text(column.label), justify="right" if column.numeric else "left", no_wrap=True, overflow="ellipsis")
    for row in table.rows[:rows]:
        drawn.add_row(*(_cell(row[index]) for index in chosen))
    return drawn


def _cell(cell: Cell) -> Text:
    marks = "".join(f" [{mark}]" for mark, _ in cell.badges if mark in ("planted", "regression", "baseline", "roof"))
    return Text(cell.text + marks, style=_STYLES[cell.tone])
