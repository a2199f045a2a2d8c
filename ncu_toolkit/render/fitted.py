"""Tables for terminals of any width: names are cut and whole columns left out before a figure loses
a digit or its unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

#: A name is cut down to this many columns before another column is left out.
SHORTEST: Final = 16
_GAP: Final = 2


@dataclass(frozen=True)
class Column:
    """A column: its heading, on which side it is set, and where it stands in the order in which
    columns are left out (0 for never)."""

    heading: str
    numeric: bool = True
    gives_way: int = 0


class Fitted:
    """A table for whatever width it is printed at. The first column holds names.

    Args:
        columns: at least one.
        rows: as many cells each.
        title, caption: lines above and below; nothing where empty.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Sequence[Sequence[Text]],
        *,
        title: str = "",
        caption: str = "",
    ) -> None:
        self._columns, self._rows, self._title, self._caption = columns, rows, title, caption

    def chosen(self, width: int) -> tuple[list[int], int]:
        """The places of the columns that are shown at a width, and how wide names may be."""
        wide = [
            max([len(column.heading), *(row[i].cell_len for row in self._rows)])
            for i, column in enumerate(self._columns)
        ]
        shown = list(range(len(self._columns)))
        going = sorted(
            (i for i in shown if self._columns[i].gives_way),
            key=lambda i: self._columns[i].gives_way,
        )
        while True:
            room = width - sum(wide[i] + _GAP for i in shown[1:])
            if room >= min(wide[0], SHORTEST) or not going:
                return shown, min(wide[0], max(room, SHORTEST // 2))
            shown.remove(going.pop(0))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown, room = self.chosen(options.max_width)
        drawn = RichTable(
            title=Text(self._title) if self._title else None,
            title_justify="left",
            box=None,
            pad_edge=False,
            header_style="dim",
        )
        for i in shown:
            column = self._columns[i]
            drawn.add_column(
                Text(column.heading),
                no_wrap=True,
                overflow="ellipsis",
                justify="right" if column.numeric else "left",
            )
            if column.numeric:
                drawn.columns[-1].min_width = max(
                    [len(column.heading), *(row[i].cell_len for row in self._rows)]
                )
        for row in self._rows:
            drawn.add_row(*self._cells(row, shown, room))
        yield drawn
        left_out = [column.heading for i, column in enumerate(self._columns) if i not in shown]
        if left_out:
            yield Text(f"left out at this width: {', '.join(left_out)}", style="dim")
        if self._caption:
            yield Text(self._caption, style="dim italic")

    @staticmethod
    def _cells(row: Sequence[Text], shown: Sequence[int], room: int) -> Iterator[Text]:
        for i in shown:
            cell = row[i].copy()
            if i == 0:
                cell.truncate(room, overflow="ellipsis")
            yield cell
