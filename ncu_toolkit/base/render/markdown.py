"""An answer as Markdown for a pull request, and as a digest of at most a page for agents and logs.

Nothing is computed here."""

from collections.abc import Iterator
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import markdown as md
from ncu_toolkit.base.core.safe import markdown_code as code
from ncu_toolkit.base.document.card import Card
from ncu_toolkit.base.document.tables import Table
from ncu_toolkit.base.document.views import Answer, Listing

#: Lines of a listing that a pull request shows.
_LISTED: Final = 60


def markdown(shown: Answer) -> str:
    """For a pull request, with a final newline."""
    found = []
    if shown.verdict:
        found += [f"**{md(shown.verdict)}**", ""]
    if shown.headline:
        found += [f"**{md(shown.headline)}**", ""]
    if shown.kernels:
        found += [*_table(shown.kernels), ""]
        if shown.rest:
            found += [md(shown.rest), ""]
    points = [f"- {md(point)}" for point in shown.points]
    if shown.kernels and points:
        found += [*points, ""]
    for at, card in enumerate(shown.cards):
        found += [*_card(card, shown.labels[at] if shown.labels else ""), ""]
    if not shown.kernels:
        found += points
    for trend in shown.trends:
        bars = units.sparkline([point.value for point in trend.points])
        found += [f"{md(trend.title)}: {bars}", ""] if bars and len(shown.trends) > 1 else []
    for table in shown.tables:
        found += ["", *_table(table)]
    for listing in shown.code:
        found += ["", *_listing(listing)]
    if shown.notes:
        found += ["", *(f"- {md(note)}" for note in shown.notes)]
    return "\n".join(found).strip() + "\n"


def _table(shown: Table) -> Iterator[str]:
    if shown.caption:
        yield f"**{md(shown.caption)}**"
        yield ""
    yield "| " + " | ".join(md(column.label) for column in shown.columns) + " |"
    yield "|" + "|".join("---:" if column.numeric else "---" for column in shown.columns) + "|"
    for row in shown.rows:
        cells = zip(shown.columns, row, strict=True)
        yield "| " + " | ".join((code if c.code else md)(cell.text) for c, cell in cells) + " |"
    if shown.note:
        yield ""
        yield md(shown.note)


def _listing(shown: Listing) -> Iterator[str]:
    """Code in a fence that is longer than any in it."""
    text = [
        " ".join(filter(None, ("" if mark == "@" else mark or " ", note, line)))
        for mark, note, line in shown.lines[:_LISTED]
    ]
    left = len(shown.lines) - _LISTED
    fence = "```"
    while any(fence in line for line in text):
        fence += "`"
    yield f"**{md(shown.title)}**"
    yield ""
    yield f"{fence}{'diff' if any(mark in ('+', '-') for mark, _, _ in shown.lines) else ''}"
    yield from text
    yield fence
    if left > 0:
        yield f"{left} more lines."


def _card(card: Card, label: str) -> Iterator[str]:
    names, rest = card.head[:1], card.head[1:]
    yield f"### {md(label)}{': ' if label else ''}{md(card.title)}: {md(card.gain)}"
    yield ""
    if about := " · ".join(filter(None, [*map(code, names), *map(md, rest), card.sureness])):
        yield from (about, "")
    yield md(card.summary)
    yield ""
    if card.bars:
        yield f"- **{card.of}** {md(card.busy)}{md(f'. {card.basis}' if card.basis else '')}"
    if card.waits:
        yield f"- **warp time** {md(card.waiting)}"
    for line in card.where:
        parts = [code(part) for part in (line.place, line.text, line.sass) if part]
        yield f"- **where** {' '.join(parts)} {md(line.cost)}".rstrip()
    if card.called:
        yield f"- **launch** {md(card.called)}"
    for step in card.do:
        yield f"- **do** {md(step)}"
    if card.tested:
        yield f"- **tested** {md(card.tested)}"
    for row in card.then:
        yield f"- **also** {md(' · '.join(filter(None, row)))}"
    for label, text in card.remarks:
        yield f"- **{label}** {md(text)}"
    if card.next:
        yield f"- **next** {code(card.next)}"


def brief(shown: Answer) -> str:
    """The cards in a few lines each, for agents and logs, with a final newline."""
    found = [shown.headline, ""] if shown.headline else []
    found += [line for point in shown.points for line in (point, "")]
    for rank, card in enumerate(shown.cards, 1):
        found += [*_brief_card(rank, card), ""]
    if shown.rest:
        found += [shown.rest, ""]
    found += [f"! {note}" for note in shown.notes]
    if shown.next:
        found += [f"Next: {shown.next}"]
    return "\n".join(found).rstrip() + "\n"


def _brief_card(rank: int, card: Card) -> Iterator[str]:
    found = f"{card.title}: {', '.join(filter(None, (card.gain, card.sureness)))}"
    yield f"{rank}. {' · '.join(card.head) or found}"
    if card.head:
        yield f"   {found}"
    yield f"   why: {card.summary}"
    if card.bars:
        yield f"   {card.of}: {card.busy}{f'. {card.basis}' if card.basis else ''}"
    if card.waits:
        yield f"   warp time: {card.waiting}"
    for line in card.where:
        parts = "  ".join(filter(None, (line.place, line.text, line.sass)))
        yield f"   where: {parts}{f' ({line.cost})' if line.cost else ''}"
    if card.do:
        yield f"   do: {' '.join(card.do)}"
    if card.tested:
        yield f"   tested: {card.tested}"
    for row in card.then:
        yield f"   also: {' · '.join(filter(None, row))}"
    for label, text in card.remarks:
        yield f"   {label}: {text}"
