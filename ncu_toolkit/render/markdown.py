"""A run as Markdown, fit for a pull request: the same view as the pages, with nothing in it read as
markup."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ncu_toolkit.core import safe
from ncu_toolkit.render.text import LADDER_COLUMNS, LAUNCH_COLUMNS, worded
from ncu_toolkit.render.views import Cell, RunView, Table

#: Most rows of launches.
ROWS = 20


def document(view: RunView, rows: int = ROWS) -> str:
    """The run as Markdown with a final newline. `rows` bounds the table of launches; what is left
    out is counted."""
    return "\n".join(_lines(view, rows)).rstrip() + "\n"


def _lines(view: RunView, rows: int) -> Iterator[str]:
    yield f"# {safe.markdown(view.title)}"
    yield ""
    if view.sentence:
        yield from (safe.markdown(view.sentence), "")
    yield from (
        f"- {safe.markdown(fact.label)}: {safe.markdown(fact.cell.text)}" for fact in view.facts
    )
    yield ""
    for family in view.families:
        yield from (f"## {safe.markdown(family.title)}", "", safe.markdown(family.sentence), "")
        for panel in family.panels:
            yield from (f"### Size {safe.markdown(panel.label)}", "")
            yield from table_lines(panel.table, LADDER_COLUMNS)
            yield ""
    if view.launches:
        yield from ("## Launches", "")
        yield from table_lines(view.launches, LAUNCH_COLUMNS, rows)
        yield ""
    if view.skipped:
        yield from ("## Not collected", "")
        yield from table_lines(view.skipped, ("what", "why"))


def table_lines(table: Table, keys: Collection[str], rows: int | None = None) -> Iterator[str]:
    """The named columns of a table as a pipe table, with a line for the rows left out."""
    chosen = [index for index, column in enumerate(table.columns) if column.key in keys]
    yield "| " + " | ".join(safe.markdown(table.columns[index].label) for index in chosen) + " |"
    yield (
        "|" + "|".join("---:" if table.columns[index].numeric else "---" for index in chosen) + "|"
    )
    for row in table.rows[:rows]:
        yield (
            "| "
            + " | ".join(_cell(row[index], table.columns[index].key) for index in chosen)
            + " |"
        )
    if rows is not None and len(table.rows) > rows:
        yield from ("", f"{len(table.rows) - rows} more in the report.")


def _cell(cell: Cell, key: str) -> str:
    shown = (
        safe.markdown_code(cell.text)
        if cell.code and not cell.missing
        else safe.markdown(worded(cell, key))
    )
    return " ".join([shown, *(f"({safe.markdown(mark)})" for mark, _ in cell.badges)])
