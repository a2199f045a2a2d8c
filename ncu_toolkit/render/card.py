"""An answer (explain/) as text for terminals, as Markdown, as JSON and as a digest of a page. HTML
is in card_html.py.

Nothing is computed here. Every text is a `Text`, so that nothing in a report is read as markup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import markdown as md
from ncu_toolkit.core.safe import markdown_code as code
from ncu_toolkit.explain.answer import Answer, Row
from ncu_toolkit.explain.card import Bar, Card, Line, Wait, whole_percent, whole_percents
from ncu_toolkit.render.fitted import Column, Fitted

#: Columns of text that goes to no terminal, and the most that a card takes of a wide one.
WIDTH: Final = 100
_WIDEST: Final = 110
#: Columns of a bar, and what it is cut to so that waiting still stands beside it.
_BARS: Final = (20, 12)
_LABEL: Final = 8
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_STYLES: Final = {"slow": "red", "roof": "green", "unknown": "yellow", "incomplete": "yellow"}
#: What a terminal without UTF-8 shows instead.
_ASCII: Final = str.maketrans(
    {"·": "-", "×": "x", "µ": "u", "…": "...", "–": "-", "◀": "<", "→": "->", "≥": ">=", "≤": "<=",
     "’": "'", "±": "+-", units.THIN_SPACE: " ", "\u202f": " ", "\u00a0": " "}
)  # fmt: skip


class AnswerText:
    """An answer for a terminal of any width. Names are shortened first; the gain is never left
    out. ASCII alone where the terminal has no UTF-8."""

    def __init__(self, shown: Answer) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, narrow = options.max_width, options.ascii_only
        yield from lines(self._shown, width, ascii_only=narrow, links=console.is_terminal)


def plain_text(shown: Answer | Card, width: int = WIDTH) -> str:
    """As a terminal of `width` columns shows it, without colour; no newline at the end."""
    found = card_lines(shown, width) if isinstance(shown, Card) else lines(shown, width)
    return "\n".join(line.plain.rstrip() for line in found)


def lines(
    shown: Answer, width: int, *, ascii_only: bool = False, links: bool = False
) -> Iterator[Text]:
    """The lines of an answer, none wider than `width` but for commands, which have to be copied."""
    for line in _lines(shown, width, ascii_only, links):
        yield _in_ascii(line) if ascii_only else line


def _lines(shown: Answer, width: int, ascii_only: bool, links: bool) -> Iterator[Text]:
    if shown.headline:
        yield from _wrapped(Text(shown.headline, style="bold"), width)
        yield Text()
    if shown.rows:
        yield from table(shown.rows, width)
        if shown.rest:
            yield from _wrapped(Text(shown.rest, style="dim"), width)
        yield Text()
    for rank, card in enumerate(shown.cards):
        if rank:
            yield from (Text(), Text(("-" if ascii_only else "─") * min(width, _WIDEST), "dim"))
        yield from card_lines(card, width, ascii_only=ascii_only, links=links)
    if shown.notes:
        yield Text()
    for note in shown.notes:
        yield from _wrapped(Text(note, style="yellow"), width)


#: Heading -> (numeric, place in the order in which columns are left out, least width of a text).
_COLUMNS: Final = (
    Column("kernel", numeric=False),
    Column("launches", gives_way=2),
    Column("time", gives_way=5),
    Column("share", gives_way=3),
    Column("verdict", numeric=False, shortest=16),
    Column("gain"),
    Column("hottest line", numeric=False, gives_way=4),
    Column("file", numeric=False, gives_way=1),
)


def _cells(row: Row) -> tuple[str, ...]:
    return (row.kernel, row.launches, row.time, row.share, row.verdict, row.gain, row.hottest, row.file)  # fmt: skip


def table(rows: Sequence[Row], width: int) -> list[Text]:
    """The table of kernels, fitted to a width."""
    used = [at for at in range(len(_COLUMNS)) if any(_cells(row)[at] for row in rows)]
    cells = []
    for row in rows:
        styled = [Text(cell) for cell in _cells(row)]
        styled[4].stylize(_STYLES[row.state])
        styled[5].stylize("bold")
        cells.append([styled[at] for at in used])
    return Fitted([_COLUMNS[at] for at in used], cells).lines(width)


def card_lines(
    card: Card, width: int, *, ascii_only: bool = False, links: bool = False
) -> Iterator[Text]:
    """The lines of one card."""
    width = min(width, _WIDEST)
    yield from _head(card, width)
    yield Text()
    yield from _verdict(card, width)
    yield from _wrapped(Text(card.summary), width)
    if card.bars or card.waits:
        yield Text()
        yield from _figures(card, width, ascii_only)
    yield Text()
    for at, place in enumerate(card.where):
        yield from _place("where" if at == 0 else "and", place, width, links)
    for number, step in enumerate(card.do, 1):
        yield from _labelled("do" if number == 1 else "", Text(f"{number}. {step}"), width, 3)
    if card.expect:
        yield from _labelled("expect", Text(card.expect), width)
    if card.missing:
        yield from _labelled("missing", Text(card.missing, style="yellow"), width)
    if card.next:
        yield Text("next".ljust(_LABEL), style="dim", no_wrap=True) + Text(card.next, style="bold")


def _head(card: Card, width: int) -> Iterator[Text]:
    """Kernel, time, GPU and shape on one line, or two; the name gives way first."""
    name, *rest = card.head
    whole = " · ".join(rest)
    if len(name) + 3 + len(whole) > width:
        whole = " · ".join(part for part in rest if part != card.shape)
    kept = Text(name, style="bold")
    kept.truncate(max(12, width - len(whole) - 3), overflow="ellipsis")
    yield from _wrapped(kept + Text(f" · {whole}" if whole else "", style=""), width)
    if card.shape and card.shape not in whole:
        yield from _wrapped(Text(card.shape, style="dim"), width)


def _verdict(card: Card, width: int) -> Iterator[Text]:
    title = Text(card.title, style=f"bold {_STYLES[card.state]}")
    gain = Text(card.gain, style="bold") + Text(f" · {card.confidence} confidence", style="dim")
    space = width - title.cell_len - gain.cell_len
    if space >= 2:
        yield title + Text(" " * space) + gain
    else:
        yield from _wrapped(title, width)
        yield from _wrapped(gain, width)


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
    if card.room:
        yield Text(f"  {card.room}", style="dim")


def _beside(left: Sequence[Text], right: Sequence[Text], at: int) -> Iterator[Text]:
    for one, other in zip_longest(left, right, fillvalue=Text()):
        line = one + Text(" " * (at - one.cell_len)) + other
        line.rstrip()
        yield line


def _bars(bars: Sequence[Bar], cells: int, ascii_only: bool) -> list[Text]:
    label = max((len(bar.label) for bar in bars), default=0)
    found = []
    for bar in bars:
        mark = "  ◀ limit" if bar.limit else ""
        drawn = _bar(bar.share, cells, ascii_only).ljust(cells)
        style = "red" if bar.limit else "cyan"
        line = Text(f"  {bar.label:{label}}  ") + Text(drawn, style=style)
        found.append(line + Text(f" {whole_percent(bar.share):>5}{mark}"))
    return found


def _bar(share: float, cells: int, ascii_only: bool) -> str:
    if ascii_only:
        return "#" * round(share * cells)
    whole, part = divmod(round(share * cells * 8), 8)
    return "█" * whole + _EIGHTHS[part].strip()


def _waits(waits: tuple[Wait, ...]) -> list[Text]:
    label = max((len(wait.label) for wait in waits), default=0)
    return [
        Text("waiting  " if at == 0 else " " * 9, style="dim")
        + Text(f"{wait.label:{label}} {shown:>5}")
        for at, (wait, shown) in enumerate(zip(waits, whole_percents(waits), strict=True))
    ]


def _place(label: str, line: Line, width: int, links: bool) -> Iterator[Text]:
    """A line of code with its instruction and its share, on one line or two."""
    share = f"{whole_percent(line.share)} of {line.of}"
    where = Text(line.place)
    if links and line.place and (path := Path(line.path)).is_absolute() and path.is_file():
        where.stylize(f"link {path.as_uri()}")
    facts = Text("   ".join(filter(None, (line.sass, share))), style="dim")
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
    """A text beside its label, wrapped under its own start."""
    for at, line in enumerate(_wrapped(text, max(20, width - _LABEL), hanging)):
        yield Text((label if at == 0 else "").ljust(_LABEL), style="dim") + line


def _wrapped(text: Text, width: int, hanging: int = 0) -> list[Text]:
    """The lines of a text; all but the first are indented by `hanging`."""
    found = list(text.wrap(_MEASURE, max(1, width - hanging)))
    for line in found:
        line.rstrip()
    return [line if at == 0 else Text(" " * hanging) + line for at, line in enumerate(found)]


#: What Text.wrap asks for; it writes nothing.
_MEASURE: Final = Console(width=WIDTH, color_system=None, force_terminal=False)


def _in_ascii(line: Text) -> Text:
    """The line with ASCII for what a terminal without UTF-8 cannot show."""
    swapped = line.plain.translate(_ASCII).encode("ascii", "backslashreplace").decode()
    return Text(swapped, style=line.style) if swapped != line.plain else line


def markdown(shown: Answer) -> str:
    """For a pull request, with a final newline."""
    found = []
    if shown.headline:
        found += [f"**{md(shown.headline)}**", ""]
    if shown.rows:
        found += [*_markdown_table(shown.rows), ""]
        if shown.rest:
            found += [md(shown.rest), ""]
    for card in shown.cards:
        found += [*_markdown_card(card), ""]
    found += [f"- {md(note)}" for note in shown.notes]
    return "\n".join(found).rstrip() + "\n"


def _markdown_table(rows: Sequence[Row]) -> Iterator[str]:
    used = [at for at in range(len(_COLUMNS)) if any(_cells(row)[at] for row in rows)]
    yield "| " + " | ".join(_COLUMNS[at].heading for at in used) + " |"
    yield "|" + "|".join("---:" if _COLUMNS[at].numeric else "---" for at in used) + "|"
    for row in rows:
        cells = _cells(row)
        shown = (code(cells[at]) if at in (0, 6) else md(cells[at]) for at in used)
        yield "| " + " | ".join(shown) + " |"


def _markdown_card(card: Card) -> Iterator[str]:
    name, *rest = card.head
    yield f"### {md(card.title)}: {md(card.gain)}"
    yield ""
    yield " · ".join([code(name), *map(md, rest), f"{card.confidence} confidence"])
    yield ""
    yield md(card.summary)
    yield ""
    if card.bars:
        yield f"- **busy** {md(_busy(card))}"
    if card.waits:
        yield f"- **waiting** {md(_waiting(card))}"
    for line in card.where:
        parts = [code(part) for part in (line.place, line.text, line.sass) if part]
        yield f"- **where** {' '.join(parts)} {md(f'{whole_percent(line.share)} of {line.of}')}"
    for step in card.do:
        yield f"- **do** {md(step)}"
    for label, text in (("expect", card.expect), ("missing", card.missing)):
        if text:
            yield f"- **{label}** {md(text)}"
    if card.next:
        yield f"- **next** {code(card.next)}"


def _busy(card: Card) -> str:
    bars = (
        f"{bar.label} {whole_percent(bar.share)}{' (the limit)' if bar.limit else ''}"
        for bar in card.bars
    )
    return "; ".join(filter(None, (", ".join(bars), card.room)))


def _waiting(card: Card) -> str:
    percents = whole_percents(card.waits)
    return ", ".join(
        f"{wait.label} {shown}" for wait, shown in zip(card.waits, percents, strict=True)
    )


def brief(shown: Answer) -> str:
    """The cards in a few lines each, for agents and logs, with a final newline."""
    found = [shown.headline, ""] if shown.headline else []
    for rank, card in enumerate(shown.cards, 1):
        found += [*_brief_card(rank, card), ""]
    if shown.rest:
        found += [shown.rest, ""]
    found += [f"! {note}" for note in shown.notes]
    return "\n".join(found).rstrip() + "\n"


def _brief_card(rank: int, card: Card) -> Iterator[str]:
    yield f"{rank}. {' · '.join(card.head)}"
    yield f"   {card.title} ({card.bottleneck}): {card.gain}, {card.confidence} confidence"
    yield f"   why: {card.summary}"
    if card.bars:
        yield f"   busy: {_busy(card)}"
    if card.waits:
        yield f"   waiting: {_waiting(card)}"
    for line in card.where:
        parts = "  ".join(filter(None, (line.place, line.text, line.sass)))
        yield f"   where: {parts} ({whole_percent(line.share)} of {line.of})"
    rest = (("do", " ".join(card.do)), ("expect", card.expect), ("missing", card.missing))
    for label, text in (*rest, ("next", card.next)):
        if text:
            yield f"   {label}: {text}"


def plain(card: Card) -> dict[str, Any]:
    """The card as plain data, for JSON. Shares are fractions of 1, times microseconds."""
    return {**asdict(card), "headroom_text": card.room}
