"""Tables for terminals of any width: names are cut and whole columns left out before a figure loses
a digit or its unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

#: A name is cut down to this many columns before another column is left out.
SHORTEST: Final = 16
_GAP: Final = 2


@dataclass(frozen=True)
class Column:
    """A column: its heading, on which side it is set, and where it stands in the order in which
    columns are left out (0 for never). A text may be cut down to `shortest` columns (0 for not at
    all) once no other column can be left out."""

    heading: str
    numeric: bool = True
    gives_way: int = 0
    shortest: int = 0


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

    def chosen(self, width: int) -> dict[int, int]:
        """The places of the columns that are shown at a width, and how wide each is then."""
        wide = [
            max([len(column.heading), *(row[i].cell_len for row in self._rows)])
            for i, column in enumerate(self._columns)
        ]
        shown = dict(enumerate(wide))
        going = sorted(
            (i for i in shown if self._columns[i].gives_way),
            key=lambda i: self._columns[i].gives_way,
        )
        least = min(wide[0], SHORTEST)
        while sum(shown.values()) - shown[0] + least + _GAP * (len(shown) - 1) > width and going:
            del shown[going.pop(0)]
        over = sum(shown.values()) + _GAP * (len(shown) - 1) - width
        for i, shortest in ((0, least), *((i, self._columns[i].shortest) for i in shown)):
            if over > 0 and shortest:
                cut = min(over, max(0, shown[i] - shortest))
                shown[i] -= cut
                over -= cut
        if over > 0:
            shown[0] = max(SHORTEST // 2, shown[0] - over)
        return shown

    def lines(self, width: int) -> list[Text]:
        """The table's lines at a width, with its title, what was left out and its caption."""
        shown = self.chosen(width)
        found = [Text(self._title, style="italic")] if self._title else []
        headings = [Text(column.heading, style="dim") for column in self._columns]
        found += [self._line(row, shown) for row in (headings, *self._rows)]
        left_out = [column.heading for i, column in enumerate(self._columns) if i not in shown]
        if left_out:
            found.append(Text(f"left out at this width: {', '.join(left_out)}", style="dim"))
        if self._caption:
            found.append(Text(self._caption, style="dim italic"))
        return found

    def _line(self, row: Sequence[Text], shown: dict[int, int]) -> Text:
        line = Text(no_wrap=True)
        for at, (i, wide) in enumerate(shown.items()):
            cell = row[i].copy()
            cell.truncate(wide, overflow="ellipsis")
            space = Text(" " * (wide - cell.cell_len))
            line += Text(" " * _GAP if at else "")
            line += space + cell if self._columns[i].numeric else cell + space
        line.rstrip()
        return line

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.lines(options.max_width)
