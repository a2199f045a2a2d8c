"""Values, lists of facts and tables as HTML, for the templates.

A report has some 300,000 cells: written here in place of a template, they take a tenth of the
time. Text of views is safe to show already (views.py), so it is escaped and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from ncu_toolkit.core.safe import visible
from ncu_toolkit.document.views import Cell, Column, Fact, Table
from ncu_toolkit.render.glossary_view import cell_term, column_term, columns_explained, term_of

_VARIANT: Final = '<tr class="variant">'
_MARKS: Final = frozenset({"planted", "regression", "baseline", "roof", "probe"})
#: Columns that a screen of 1440 pixels holds.
_SCREEN: Final = 8
#: Columns that tell what limits a kernel: hidden from readers who guess first.
_SPOILERS: Final = frozenset({"bottleneck", "predicted", "verdict", "removes", "saves"})
#: Characters from which on a cell is a paragraph, a fact takes a line, and is folded.
_PARAGRAPH, _LONG, _FOLDED = 60, 100, 300


class Writer:
    """Writes for one page. `link` gives the address of a page, `csv` that of a table's CSV;
    `glossary` is the address of the glossary's page, or a fragment in a single file."""

    def __init__(
        self, link: Callable[[str], str], csv: Callable[[Table], str] | None, glossary: str
    ) -> None:
        self._link, self._csv = link, csv
        self._terms = f"{'' if glossary.startswith('#') else glossary}#term-"

    def term(self, words: str, body: str = "") -> str:
        """`body`, else the words, as a link to the glossary's entry where there is one."""
        shown, key = escape(body or words), term_of(words)
        return self._opener(key, shown) if key else shown

    def _opener(self, key: str, body: str, tone: str = "") -> str:
        cls = f"term {tone}" if tone else "term"
        return f'<a class="{cls}" href="{self._terms}{key}">{body}</a>'

    def value(self, cell: Cell, known: str = "", parted: bool = False) -> str:
        """A cell's content; `known` is the key of the glossary's entry on it. A name that is
        `parted` may break after its underscores."""
        body = escape(cell.text)
        if parted:
            body = body.replace("_", "_<wbr>")
        if cell.code:
            body = f"<code>{body}</code>"
        if known and not cell.href and not cell.missing:
            body = self._opener(known, body, cell.tone)
        elif cell.href:
            title = f' title="{escape(cell.title)}"' if cell.title else ""
            body = f'<a href="{escape(self._link(cell.href))}"{title}>{body}</a>'
        elif cell.missing:
            body = f'<span class="na" title="{escape(cell.title)}">{body}</span>'
        elif cell.title:
            cls = f"tip {cell.tone}" if cell.tone else "tip"
            body = f'<span class="{cls}" title="{escape(cell.title)}">{body}</span>'
        elif cell.tone:
            body = f'<span class="{cell.tone}">{body}</span>'
        for mark, why in cell.badges:
            cls = f"badge {mark}" if mark in _MARKS else "badge"
            body += f' <span class="{cls}" title="{escape(visible(why))}">{escape(mark)}</span>'
        return body

    def facts(self, items: Sequence[Fact], cls: str = "facts") -> str:
        """A definition list."""
        return f'<dl class="{cls}">{"".join(map(self._fact, items))}</dl>'

    def _fact(self, fact: Fact) -> str:
        shown, length = self.value(fact.cell), len(fact.cell.text)
        if length > _FOLDED:
            head = escape(fact.cell.text[:160])
            shown = f"<details><summary>{head}…</summary>{shown}</details>"
        cls = ' class="long"' if length > _LONG else ""
        return f"<div{cls}><dt>{self.term(fact.label)}</dt><dd>{shown}</dd></div>\n"

    def table(self, table: Table, ns: str = "", cls: str = "", caption: bool = True) -> str:
        """A table with its notes; a sortable one with its tools."""
        kind = " ".join(filter(None, ("table", "wide" if table.sortable else "", cls)))
        heads = "".join(self._head(table, at) for at in range(len(table.columns)))
        rows = "".join(
            f"{_VARIANT if at in table.variants else '<tr>'}{self._row(table, row)}</tr>\n"
            for at, row in enumerate(table.rows)
        )
        quiet = "" if caption else ' class="quiet"'
        said = f"<caption{quiet}>{escape(table.caption)}</caption>" if table.caption else ""
        label = escape(table.caption or "table")
        mark = " data-sortable" if table.sortable else ""
        return (
            f'<div class="{kind}" id="{escape(ns + table.key)}">{self._tools(table)}'
            f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table{mark}>{said}'
            f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
            f"{_notes(table)}</div>\n"
        )

    def _tools(self, table: Table) -> str:
        if not table.sortable or self._csv is None:
            return ""
        more = (
            '<button type="button" data-more aria-pressed="false">All columns</button>'
            if len(table.columns) > _SCREEN
            else ""
        )
        href, key = escape(self._csv(table)), escape(table.key)
        return (
            '<div class="tools"><button type="button" data-copy>Copy table</button>'
            f'<a href="{href}" download="{key}.csv" data-csv="{key}">CSV</a>{more}'
            '<span class="said" role="status" aria-live="polite"></span></div>'
        )

    def _head(self, table: Table, at: int) -> str:
        column = table.columns[at]
        label, title = escape(column.label), escape(column.title)
        cls = _classes(table, at, column)
        if table.sortable:
            tip = f' title="{title}"' if title else ""
            order = f'<button type="button"{tip}>{label}</button>'
            key = f' data-key="{escape(column.key)}"'
            return f'<th scope="col"{cls}{key} aria-sort="none">{order}</th>'
        key = column_term(table, column)
        if key:
            label = self._opener(key, label)
        elif title:
            label = f'<span class="tip" title="{title}">{label}</span>'
        return f'<th scope="col"{cls}>{label}</th>'

    def _row(self, table: Table, row: Sequence[Cell]) -> str:
        cells = []
        tag, end = 'th scope="row"', "th"
        for at, (column, cell) in enumerate(zip(table.columns, row, strict=True)):
            cls = _classes(table, at, column, cell)
            sort = table.sortable and cell.value is not None
            data = f' data-v="{escape(visible(str(cell.value)))}"' if sort else ""
            bar = f' style="--v:{cell.bar * 100:.1f}%"' if cell.bar is not None else ""
            first = table.sortable and not at
            shown = self.value(cell, cell_term(table, column, cell), first)
            cells.append(f"<{tag}{cls}{data}{bar}>{shown}</{end}>")
            tag = end = "td"
        return "".join(cells)


def _classes(table: Table, at: int, column: Column, cell: Cell | None = None) -> str:
    """The class attribute of a cell, or of a column's heading."""
    marks = ["n"] if column.numeric else []
    if cell is not None and cell.bar is not None:
        marks.append("b")
    if cell is not None and len(cell.text) > _PARAGRAPH:
        marks.append("p")
    if column.key in _SPOILERS:
        marks.append("spoils")
    if table.sortable and at >= _SCREEN:
        marks.append("more")
    return f' class="{" ".join(marks)}"' if marks else ""


def _notes(table: Table) -> str:
    found = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    if columns := columns_explained(table):
        entries = "".join(
            f"<dt>{escape(label)}</dt><dd>{escape(words)}</dd>" for label, words in columns
        )
        found += f'<details class="columns"><summary>What the columns mean</summary><dl>{entries}</dl></details>'
    if reasons := reasons_of(table):
        entries = "".join(
            f"<li><b>{escape(names)}</b>: {escape(why)}</li>" for names, why in reasons
        )
        found += f'<details class="why"><summary>Why n/a</summary><ul>{entries}</ul></details>'
    return found


def reasons_of(table: Table) -> list[tuple[str, str]]:
    """Why cells are n/a: (columns, reason), each reason once."""
    found: dict[str, dict[str, None]] = {}
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            if cell.missing and cell.title:
                found.setdefault(cell.title, {})[column.label] = None
    return [(", ".join(columns), why) for why, columns in list(found.items())[:12]]


def _of_page(name: str) -> Callable[..., Markup]:
    """A method of Writer as a template's function, with the page's own addresses."""

    @pass_context
    def call(context: Context, *args: Any, **named: Any) -> Markup:
        writer = Writer(context["link"], context.get("csv"), context["glossary"])
        return Markup(getattr(writer, name)(*args, **named))

    return call


#: What templates call.
FUNCTIONS: Final = {name: _of_page(name) for name in ("term", "value", "facts", "table")}
