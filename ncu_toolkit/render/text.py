"""A run in the terminal: one screen of what matters, from the same view as the pages.

Every text is a `Text`, so nothing in a report is read as markup.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ncu_toolkit.model.run import Run
from ncu_toolkit.render.book import Book
from ncu_toolkit.render.family_view import primary, variant_label
from ncu_toolkit.render.fitted import Column, Fitted
from ncu_toolkit.render.html import book_for
from ncu_toolkit.render.run_view import run_summary
from ncu_toolkit.render.views import Cell, FamilyView, Table

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
LAUNCH_COLUMNS = ("kernel", "launches", "time", "share", "median", "bottleneck", "predicted")
#: Which column is left out first on a narrow terminal, and which then.
_GIVES_WAY = {
    key: order
    for order, key in enumerate(
        (
            "registers",
            "achieved_occupancy",
            "stall",
            "median",
            "share",
            "baseline",
            "launches",
            "rate",
            "predicted",
        ),
        1,
    )
}
#: Most rows of launches.
ROWS = 20
_STYLES = {"good": "green", "bad": "red", "warn": "yellow", "muted": "dim", "": ""}


def summary(run: Run, *, book: Book | None = None, rows: int = ROWS) -> RenderableType:
    """The run as a rich renderable: its ladders at their main size, and other launches ranked by
    time (at most `rows`)."""
    book = book or book_for(run)
    view = run_summary(book)
    parts: list[RenderableType] = [Text(view.title, style="bold")]
    if view.sentence:
        parts.append(Text(view.sentence))
    for family in view.families:
        parts.extend(_family(book, family))
    if view.launches:
        parts.append(fitted_table(view.launches, LAUNCH_COLUMNS, rows))
    if view.skipped:
        parts.append(Text("Not collected:", style="bold"))
        parts.extend(
            Text(f"  {what.text}: {why.text}", style="dim", overflow="ellipsis", no_wrap=True)
            for what, why in view.skipped.rows
        )
    return Group(*parts)


def _family(book: Book, family: FamilyView) -> list[RenderableType]:
    first = primary(book, family.name)
    many = len({variant.dtype for variant in book.families[family.name]}) > 1
    panel = next(panel for panel in family.panels if panel.label == variant_label(first, many))
    return [
        Text(),
        Text(family.title, style="bold"),
        Text(family.sentence),
        fitted_table(panel.table, LADDER_COLUMNS, len(panel.table.rows)),
    ]


def fitted_table(table: Table, keys: tuple[str, ...], rows: int) -> Fitted:
    """The named columns of a table; says how many rows are left out, and which columns where the
    terminal is narrow."""
    left = len(table.rows) - rows
    chosen = [index for index, column in enumerate(table.columns) if column.key in keys]
    columns = []
    for index in chosen:
        column = table.columns[index]
        columns.append(Column(column.label, column.numeric, _GIVES_WAY.get(column.key, 0)))
    cells = [
        [_cell(row[index], table.columns[index].key) for index in chosen]
        for row in table.rows[:rows]
    ]
    return Fitted(
        columns,
        cells,
        title=table.caption,
        caption=f"{left} more in the report" if left > 0 else "",
    )


def _cell(cell: Cell, key: str) -> Text:
    marks = "".join(
        f" [{mark}]"
        for mark, _ in cell.badges
        if mark in ("planted", "regression", "baseline", "roof")
    )
    return Text(worded(cell, key) + marks, style=_STYLES[cell.tone])


def worded(cell: Cell, key: str) -> str:
    """A cell's text where nothing can be pointed at: why there is no prediction for a launch is
    said in place of `n/a`, as `analyze` says it."""
    if not cell.missing or key != "predicted" or cell.title.startswith("no rung"):
        return cell.text
    return (
        "at its roof"
        if cell.title.startswith("at its roof")
        else "none predicted"
        if cell.title.startswith("this report")
        else cell.text
    )
