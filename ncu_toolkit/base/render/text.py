"""Answers for a terminal of any width.

Nothing is computed here. Every text is a `Text`, so nothing in a report is read as markup."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ncu_toolkit.base.core import units
from ncu_toolkit.base.document.card import (
    Card,
    CodeLine,
    Strip,
    UnitBar,
    Wait,
    cut_apart,
    in_the_middle,
    whole_percent,
)
from ncu_toolkit.base.document.tables import Cell, Table
from ncu_toolkit.base.document.views import TONES, Answer, Listing, RunView, Trend

#: Columns of text that goes to no terminal, and the most that a card takes of a wide one.
WIDTH: Final = 100
_WIDEST: Final = 110
#: Least columns of one of two cards that are set side by side, and the gap between them.
_BESIDE: Final = 74
_BETWEEN: Final = 3
#: Columns of a bar, and what it is cut to so that waiting still fits next to it.
_BARS: Final = (20, 12)
_LABEL: Final = 8
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
#: Columns from which on a card shows its step before and after a fix.
_STRIP: Final = 80
#: The part of a bar beyond what the unit's work needs.
_LIGHTER: Final = "▒"
#: A name is cut down to this many columns before another column is left out.
SHORTEST: Final = 16
_GAP: Final = 2
#: Lines of a listing that a terminal shows.
_LISTED: Final = 24
_STYLES: Final = {
    "good": "green", "bad": "red", "warn": "yellow", "muted": "dim", "strong": "bold", "": ""
}  # fmt: skip
#: Columns of a ladder's table that fit a terminal.
_LADDER: Final = frozenset(
    {"rung", "time", "rate", "baseline", "registers", "achieved_occupancy", "stall", "bottleneck", "predicted"}
)  # fmt: skip
#: Badges of a cell that a terminal shows.
_BADGES: Final = ("planted", "regression", "baseline", "roof")
_MARKS: Final = {"+": "green", "-": "red", "@": "cyan", "*": "bold"}
#: What a terminal without UTF-8 shows instead: of the text itself, and of what its layout adds.
_ASCII: Final = str.maketrans(
    {"·": "-", "×": "x", "÷": "/", "µ": "u", "…": "...", "–": "-", "→": "->", "≥": ">=", "≤": "<=",
     "’": "'", "±": "+-", **dict(zip("▁▂▃▄▅▆▇█", "_.-~=+*#", strict=True))}
)  # fmt: skip
_DRAWN: Final = str.maketrans("…·◀─│×µ▁▂▃▄▅▆▇█", "~-<-|xu_.-~=+*#")


class AnswerText:
    """An answer for a terminal of any width. Names are shortened first; the gain is never left
    out. ASCII alone where the terminal has no UTF-8."""

    def __init__(self, shown: Answer) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, narrow = options.max_width, options.ascii_only
        yield from lines(self._shown, width, ascii_only=narrow, links=console.is_terminal)


class AnswersText:
    """Answers one below the other."""

    def __init__(self, shown: Sequence[Answer]) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for at, each in enumerate(self._shown):
            if at:
                yield Text()
            yield AnswerText(each)


class RunText:
    """A run for a terminal: its ladders at their main size, the cards of some rungs, and the answer
    to other launches."""

    def __init__(self, view: RunView, cards: Sequence[Card] = ()) -> None:
        self._view, self._cards = view, cards

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self._view.title, style="bold")
        for family in self._view.families:
            table = next(panel.table for panel in family.panels if panel.key == family.first)
            yield from (Text(), Text(family.title, style="bold"), Text(family.sentence))
            yield Fitted(table.only(lambda _, column: column.key in _LADDER))
        for card in self._cards:
            yield from (Text(), AnswerText(Answer("", cards=(card,))))
        if self._view.answer:
            yield from (Text(), AnswerText(self._view.answer))
        if self._view.skipped:
            yield Text("Not collected:", style="bold")
            for what, why in self._view.skipped.rows:
                line = f"  {what.text}: {why.text}"
                yield Text(line, style="dim", overflow="ellipsis", no_wrap=True)


def plain_text(shown: Answer | Card, width: int = WIDTH) -> str:
    """As a terminal of `width` columns shows it, without colour; no newline at the end."""
    found = card_lines(shown, width) if isinstance(shown, Card) else lines(shown, width)
    return "\n".join(line.plain.rstrip() for line in found)


def lines(
    shown: Answer, width: int, *, ascii_only: bool = False, links: bool = False
) -> Iterator[Text]:
    """The lines of an answer, none wider than `width` but for commands, which have to be copied."""
    if not ascii_only:
        yield from _lines(shown, width, ascii_only, links)
        return
    for line in _lines(_in_ascii(shown), width, ascii_only, links):
        line.plain = line.plain.translate(_DRAWN)
        yield line


def _in_ascii(value: Any) -> Any:
    """An answer, or a part of one, with ASCII for what a terminal without UTF-8 cannot show."""
    if isinstance(value, str):
        return value.translate(_ASCII).encode("ascii", "backslashreplace").decode()
    if isinstance(value, tuple):
        return tuple(map(_in_ascii, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _in_ascii(getattr(value, f.name)) for f in fields(value)})
    return value


def _lines(shown: Answer, width: int, ascii_only: bool, links: bool) -> Iterator[Text]:
    if shown.headline:
        yield from _wrapped(Text(shown.headline, style="bold"), width)
        if shown != Answer(shown.headline, next=shown.next):
            yield Text()
    if shown.kernels:
        yield from Fitted(shown.kernels).lines(width)
        if shown.rest:
            yield from _wrapped(Text(shown.rest, style="dim"), width)
        yield Text()
    points = [line for point in shown.points for line in _wrapped(Text(point), width)]
    if shown.kernels and points:
        yield from (*points, Text())
    yield from _cards(shown, width, ascii_only, links)
    if not shown.kernels:
        yield from (Text() for _ in points[:1] if shown.cards)
        yield from points
    if len(shown.trends) == 1:
        yield from _trend(shown.trends[0], width)
    for at, each in enumerate(shown.tables):
        if at or shown.cards or shown.points or len(shown.trends) == 1:
            yield Text()
        yield from Fitted(each).lines(width)
    for listing in shown.code:
        yield from (Text(), *_listing(listing, width))
    before = shown.cards or shown.tables or shown.code or shown.trends
    if (shown.notes or shown.verdict) and (before or (shown.points and not shown.kernels)):
        yield Text()
    for note in shown.notes:
        yield from _wrapped(Text(note, style="yellow"), width)
    if shown.verdict:
        yield from _wrapped(Text(shown.verdict, style="bold"), width)


def _trend(shown: Trend, width: int) -> Iterator[Text]:
    """The first time, bars, the last time; of many runs the last that fit."""
    times = [point.value for point in shown.points]
    if len(times) < 2:
        return
    first, last = units.duration(times[0]), units.duration(times[-1])
    bars = units.sparkline(times[-max(2, width - len(first) - len(last) - 2) :])
    yield Text(f"{first} {bars} {last}", no_wrap=True)


def _cards(shown: Answer, width: int, ascii_only: bool, links: bool) -> Iterator[Text]:
    """Cards one below the other; those of a comparison side by side where they fit."""
    half = (width - _BETWEEN) // 2
    if len(shown.cards) == len(shown.labels) == 2 and half >= _BESIDE:
        half = min(half, _WIDEST)
        sides = [
            [Text(label, style="bold underline"), *card_lines(card, half, ascii_only, links)]
            for label, card in zip(shown.labels, shown.cards, strict=True)
        ]
        for one, other in zip_longest(*sides, fillvalue=Text()):
            left = one.copy()
            left.truncate(half, overflow="ellipsis", pad=True)
            yield left + Text(" │ ", style="dim") + other
        return
    for rank, card in enumerate(shown.cards):
        if rank:
            yield from (Text(), Text("─" * min(width, _WIDEST), "dim"))
        if shown.labels:
            yield Text(shown.labels[rank], style="bold underline")
        yield from card_lines(card, width, ascii_only, links)


def _listing(listing: Listing, width: int) -> Iterator[Text]:
    yield from _wrapped(Text(listing.title, style="italic"), width)
    wide = max((len(note) for _, note, _ in listing.lines), default=0)
    marked = any(mark for mark, _, _ in listing.lines)
    for mark, note, text in listing.lines[:_LISTED]:
        head = f"{'' if mark == '@' else mark:1} " if marked else ""
        line = Text(head, style=_MARKS.get(mark, ""), no_wrap=True)
        line += Text(f"{note:>{wide}}  " if wide else "", style="dim")
        line += Text(text.expandtabs(4), style=_MARKS.get(mark, ""))
        line.truncate(width, overflow="ellipsis")
        yield line
    left = len(listing.lines) - _LISTED
    if left > 0:
        yield Text(f"{left} more lines; --format html shows all.", style="dim")


def _text(cell: Cell) -> Text:
    """A cell and its badges, of which a terminal shows a few."""
    marks = (f" [{mark}]" for mark, _ in cell.badges if mark in _BADGES)
    return Text((cell.plain or cell.text) + "".join(marks), style=_STYLES[cell.tone])


class Fitted:
    """A table for whatever width it is printed at: columns that say nothing go first, then names are
    cut and whole columns left out before a figure loses a digit or its unit."""

    def __init__(self, shown: Table) -> None:
        self._silent = shown.silent - {0}
        self._title, self._note, self._columns = shown.caption, shown.note, shown.columns
        self._rows = [[_text(cell) for cell in row] for row in shown.rows]

    def chosen(self, width: int) -> dict[int, int]:
        """The places of the columns that are shown at a width, and how wide each is then."""
        wide = [
            max([len(column.label), *(row[i].cell_len for row in self._rows)])
            for i, column in enumerate(self._columns)
        ]
        shown = dict(enumerate(wide))
        going = sorted(
            (i for i in shown if self._columns[i].gives_way),
            key=lambda i: self._columns[i].gives_way,
        )
        least = min(wide[0], self._columns[0].shortest or SHORTEST)

        def needed() -> int:
            """The width once all is cut that is cut before the next column is left out."""
            last = self._columns[going[0]].shortest if going else 0
            cut = [
                (least if last or not going else max(least, min(size, 2 * SHORTEST)))
                if i == 0
                else min(size, self._columns[i].shortest or size)
                if last or (self._columns[i].gives_way and self._columns[i].code)
                else size
                for i, size in shown.items()
            ]
            return sum(cut) + _GAP * (len(shown) - 1)

        if needed() > width:  # nothing is lost
            going = [at for at in going if at not in self._silent]
            shown = {at: size for at, size in shown.items() if at not in self._silent}
        while going and needed() > width:
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
        """The table's lines at a width, with its title, what was left out and its note."""
        shown = self.chosen(width)
        found = _wrapped(Text(self._title, style="italic"), width) if self._title else []
        headings = [Text(column.label, style="dim") for column in self._columns]
        found += [self._line(row, shown) for row in (headings, *self._cut(shown))]
        left_out = [
            column.label
            for i, column in enumerate(self._columns)
            if i not in shown and i not in self._silent
        ]
        if left_out:
            left = f"columns hidden at this width: {', '.join(left_out)}"
            found += _wrapped(Text(left, style="dim"), width)
        if self._note:
            found += _wrapped(Text(self._note, style="dim italic"), width)
        return found

    def _cut(self, shown: dict[int, int]) -> list[list[Text]]:
        """The rows with names of kernels cut to their columns."""
        rows = [[cell.copy() for cell in row] for row in self._rows]
        for i, wide in shown.items():
            if self._columns[i].name:
                names = cut_apart([row[i].plain for row in rows], wide)
                for row, name in zip(rows, names, strict=True):
                    row[i].plain = name
        return rows

    def _line(self, row: Sequence[Text], shown: dict[int, int]) -> Text:
        line = Text(no_wrap=True)
        for at, (i, wide) in enumerate(shown.items()):
            cell = row[i].copy()
            if self._columns[i].code and " " not in cell.plain:  # names differ at their ends
                cell.plain = in_the_middle(cell.plain, wide)
            cell.truncate(wide, overflow="ellipsis")
            space = Text(" " * (wide - cell.cell_len))
            line += Text(" " * _GAP if at else "")
            line += space + cell if self._columns[i].numeric else cell + space
        line.rstrip()
        return line

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.lines(options.max_width)


def card_lines(
    card: Card, width: int, ascii_only: bool = False, links: bool = False
) -> Iterator[Text]:
    """The lines of one card."""
    width = min(width, _WIDEST)
    if card.head:
        yield from (*_head(card, width), Text())
    yield from _verdict(card, width)
    yield from _wrapped(Text(card.summary), width)
    if card.bars or card.waits:
        yield Text()
        if card.of != Card.of:
            yield Text(card.of, style="dim")
        yield from _figures(card, width, ascii_only)
    if card.strip and width >= _STRIP:
        yield from (Text(), *_strip(card.strip, width))
    yield Text()
    labels = ("hottest", "cause") if card.waits and len(card.where) > 1 else ("where", "and")
    for at, place in enumerate(card.where):
        yield from _place(labels[min(at, 1)], place, width, links)
    if card.called:
        yield from _labelled("launch", Text(card.called), width)
    several = len(card.do) > 1
    for number, step in enumerate(card.do, 1):
        text = Text(f"{number}. {step}" if several else step)
        yield from _labelled("do" if number == 1 else "", text, width, 3 * several)
    if card.tested:
        yield from _labelled("tested", Text(card.tested), width)
    for at, line in enumerate(_columns(card.then, width - _LABEL)):
        yield from _labelled("" if at else "also", line, width)
    for label, note in card.remarks:
        yield from _labelled(label, Text(note, style="yellow" if label == "note" else ""), width)
    if 0 < len(card.explained) <= width - _LABEL:
        parts = ("more".ljust(_LABEL), "dim"), (card.explained, "")
        yield Text.assemble(*parts, no_wrap=True, overflow="ignore")
    if card.next:
        parts = ("next".ljust(_LABEL), "dim"), (card.next, "bold")
        yield Text.assemble(*parts, no_wrap=True, overflow="ignore")


def _head(card: Card, width: int) -> Iterator[Text]:
    """Kernel, time, GPU, shape and file on one line, or two; the name gives way first."""
    name, *rest = card.head
    second = [part for part in (card.shape, card.file) if part]
    whole = " · ".join(rest)
    if len(name) + 3 + len(whole) > width:
        whole = " · ".join(part for part in rest if part not in second)
    else:
        second = []
    kept = Text.assemble((name, "bold"))
    kept.truncate(max(12, width - len(whole) - 3), overflow="ellipsis")
    yield from _wrapped(kept + Text(f" · {whole}" if whole else "", style=""), width)
    if second:
        yield from _wrapped(Text(" · ".join(second), style="dim"), width)


def _verdict(card: Card, width: int) -> Iterator[Text]:
    title = Text.assemble((card.title, f"bold {_STYLES[TONES[card.state]]}"))
    gain = _gain(card, card.gain)
    if gain.cell_len > width:
        gain = _gain(card, card.point)
    space = width - title.cell_len - gain.cell_len
    if space >= 2:
        yield title + Text(" " * space) + gain
    else:
        yield from _wrapped(title, width)
        yield from _wrapped(gain, width)


def _gain(card: Card, words: str) -> Text:
    sure = f" · {card.sureness}" if card.sureness else ""
    return Text.assemble((words, "bold"), (sure, "dim"))


def _figures(card: Card, width: int, ascii_only: bool) -> Iterator[Text]:
    """Bars on the left, waiting on the right; one below the other where that is too wide."""
    right = _waits(card.waits)
    wide = max((line.cell_len for line in right), default=0)
    for cells in _BARS:
        left = _bars(card.bars, cells, ascii_only)
        at = max((line.cell_len for line in left), default=0) + 3
        if left and right and at + wide <= width:
            yield from _beside(left, right, at)
            break
    else:
        taken = max((line.cell_len for line in _bars(card.bars, 0, ascii_only)), default=0)
        yield from _bars(card.bars, max(4, min(_BARS[0], width - taken)), ascii_only)
        yield from (Text("  ") + line for line in right)
    for text in (_legend(card.bars, ascii_only), card.basis, card.room):
        if text:
            yield from (Text("  ") + line for line in _wrapped(Text(text, style="dim"), width - 2))


def _legend(bars: Sequence[UnitBar], ascii_only: bool) -> str:
    """What the two tones of the bars mean; empty where there is one."""
    if not any(bar.beyond for bar in bars):
        return ""
    lost = "-" if ascii_only else _LIGHTER
    return f"{lost} busy for longer than the work needs at peak rate (if that is known)   %: the whole bar"


def _strip(shown: Strip, width: int) -> Iterator[Text]:
    """A step before a change and after it: how busy its GPU is, and its host where that is shown. A
    line ends each step."""
    columns = width - 32
    for name, host in (("GPU", False), ("host", True)):
        rows = [row for row in shown.rows if row.host == host]
        for turn, label in enumerate(("recorded", "if fixed") if rows else ()):
            parts = [(row.before, row.after)[turn] for row in rows]
            levels = [
                min(8, sum(eighths for kind, eighths in at if kind != "host-wait"))
                for at in zip(*parts, strict=True)
            ]
            edges = [round(at * len(levels) / columns) for at in range(columns + 1)]
            bars = "".join(_LEVELS[-(-sum(levels[a:b]) // (b - a))] for a, b in pairwise(edges))
            end = min(columns, round(columns * shown.us[turn] / max(shown.us)))
            said = "" if host else f"idle {whole_percent(shown.idle[turn])}"
            line = Text(f"  {name if not turn else '':4}  ") + Text(f"{label}  ", "dim")
            line += Text(f"{bars[:end]}│".ljust(columns + 1), "cyan") + Text(f"  {said}")
            line.rstrip()
            yield line
    legend = "  Height: how busy. │: end of the step; if fixed: simulated without the first cause. idle: % of it."
    yield Text(legend[: width - 1], "dim")


def _beside(left: Sequence[Text], right: Sequence[Text], at: int) -> Iterator[Text]:
    for one, other in zip_longest(left, right, fillvalue=Text()):
        line = one + Text(" " * (at - one.cell_len)) + other
        line.rstrip()
        yield line


def _bars(bars: Sequence[UnitBar], cells: int, ascii_only: bool) -> list[Text]:
    label = max((len(bar.label) for bar in bars), default=0)
    found = []
    for bar in bars:
        mark = "  ◀ limit" if bar.limit else ""
        drawn = _bar(bar, cells, ascii_only).ljust(cells)
        style = "red" if bar.limit else "cyan"
        line = Text(f"  {bar.label:{label}}  ") + Text(drawn, style=style)
        found.append(line + Text(f" {whole_percent(bar.busy):>5}{mark}"))
    return found


def _bar(bar: UnitBar, cells: int, ascii_only: bool) -> str:
    """A bar as long as the unit was busy, with a lighter tone beyond what its work needs."""
    if bar.beyond:
        dark, whole = round((bar.share or 0.0) * cells), round(bar.busy * cells)
        return ("#" if ascii_only else "█") * dark + ("-" if ascii_only else _LIGHTER) * (
            whole - dark
        )
    if ascii_only:
        return "#" * round(bar.busy * cells)
    whole, part = divmod(round(bar.busy * cells * 8), 8)
    return "█" * whole + _EIGHTHS[part].strip()


def _waits(waits: tuple[Wait, ...]) -> list[Text]:
    label = max((len(wait.label) for wait in waits), default=0)
    return [
        Text.assemble(
            ("warp time  " if at == 0 else " " * 11, "dim"),
            f"{wait.label:{label}} {whole_percent(wait.share):>5}",
        )
        for at, wait in enumerate(waits)
    ]


def _place(label: str, line: CodeLine, width: int, links: bool) -> Iterator[Text]:
    """A line of code with its instruction and its share, on one line or two."""
    where = Text(line.place)
    if links and line.place and (path := Path(line.path)).is_absolute() and path.is_file():
        where.stylize(f"link {path.as_uri()}")
    facts = Text("   ".join(filter(None, (line.sass, line.cost))), style="dim")
    if not line.place:
        yield from _labelled(label, facts, width)
        return
    text = Text(line.text)
    room = width - _LABEL - where.cell_len - facts.cell_len - 6
    if text.cell_len <= room:
        gap = Text(" " * (room - text.cell_len + 3))
        yield from _labelled(label, where + Text("   ") + text + gap + facts, width)
        return
    text.truncate(max(8, width - _LABEL - where.cell_len - 3), overflow="ellipsis")
    yield from _labelled(label, where + Text("   ") + text, width)
    yield from _labelled("", facts, width)


def _labelled(label: str, text: Text, width: int, hanging: int = 0) -> Iterator[Text]:
    """A text after its label, wrapped under its own start."""
    for at, line in enumerate(_wrapped(text, max(20, width - _LABEL), hanging)):
        yield Text.assemble(((label if at == 0 else "").ljust(_LABEL), "dim"), line)


def _columns(rows: Sequence[Sequence[str]], width: int) -> list[Text]:
    """Rows with their cells below each other; the first cell is cut where that is too wide."""
    wide = [max(map(len, cells)) for cells in zip_longest(*rows, fillvalue="")]
    if wide:
        wide[0] = min(wide[0], max(SHORTEST, width - sum(wide[1:]) - _GAP * (len(wide) - 1)))
    found = []
    for first, *rest in rows:
        cells = (in_the_middle(first, wide[0]), *rest)
        padded = (cell.ljust(size) for cell, size in zip(cells, wide, strict=False))
        found.append(Text((" " * _GAP).join(padded).rstrip()))
    return found


def _wrapped(text: Text, width: int, hanging: int = 0) -> list[Text]:
    """The lines of a text; all but the first are indented by `hanging`."""
    found = list(text.wrap(_MEASURE, max(1, width - hanging)))
    for line in found:
        line.rstrip()
    return [line if at == 0 else Text(" " * hanging) + line for at, line in enumerate(found)]


#: What Text.wrap asks for; it writes nothing.
_MEASURE: Final = Console(width=WIDTH, color_system=None, force_terminal=False)
