"""The glossary in pages: which words of a page open an entry, the entries themselves, and the
glossary's own page.

A word links its entry on the glossary's page; where scripts run, it opens the entry in place. The
entries are written once for all pages."""

from __future__ import annotations

import re
from typing import Final

from markupsafe import Markup, escape

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import script_json
from ncu_toolkit.diagnosis import glossary
from ncu_toolkit.diagnosis.glossary import Term, find, terms
from ncu_toolkit.diagnosis.glossary_terms import HEADINGS
from ncu_toolkit.document.views import Cell, Column, Table

#: Tables without sorting whose cells may be terms, by key. In others a cell is a name from the
#: report, which only looks like one.
_TABLES: Final = frozenset(
    {
        "stalls",
        "traffic",
        "occupancy",
        "bounds",
        "considered",
        "metrics",
        "evidence",
        "static-findings",
        "static-facts",
    }
)
#: Columns of sortable tables whose cells' values are ids.
_COLUMNS: Final = frozenset({"stall", "bottleneck", "removes", "verdict"})


def term_of(words: str) -> str:
    """Key of the entry for words as shown; a title is also tried without what follows a colon. ""
    where there is none."""
    return find(words) or (find(words.partition(":")[0]) if ":" in words else "")


def cell_term(table: Table, column: Column, cell: Cell) -> str:
    """Key of the entry that a cell names, "" where it names none."""
    if table.sortable:
        return (
            find(str(cell.value)) if column.key in _COLUMNS and isinstance(cell.value, str) else ""
        )
    if column.label == "Kind" and table.key == "mix":
        return find(f"Instructions: {cell.text}")
    if table.key == "bounds" and column is table.columns[0]:
        return find(f"resource:{cell.value}")
    if table.key not in _TABLES or column.numeric:
        return ""
    first = column is table.columns[0]
    return find(cell.text) or (find(str(cell.value)) or find(cell.title) if first else "")


def kind_of(table: Table) -> str:
    """The kind of a table, as HEADINGS names them: its key without what tells ladders and sizes
    apart."""
    if table.key in HEADINGS:
        return table.key
    if table.key.startswith("what-if-"):
        return "what-if"
    if table.key.endswith("-table"):
        return "ladder"
    return next(
        (kind for kind in HEADINGS if kind.endswith("-data") and table.key.endswith(f"-{kind}")), ""
    )


def column_term(table: Table, column: Column) -> str:
    """Key of the entry that a heading opens, by the column's key in its kind of table; "" where
    there is none."""
    return HEADINGS.get(kind_of(table), {}).get(column.key, "")


def columns_explained(table: Table) -> list[tuple[str, str]]:
    """(heading, explanation) of a sortable table's columns: their headings sort, so they cannot
    open an entry. No entry is repeated."""
    if not table.sortable:
        return []
    found, said = [], set()
    for column in table.columns:
        key = column_term(table, column)
        entry = terms()[key].text if key and key not in said else ""
        said.add(key)
        own = f"{column.title[:1].upper()}{column.title[1:]}." if column.title else ""
        if _words(own) <= _words(entry):  # the entry says it too
            own = ""
        if own or entry:
            found.append((column.label, " ".join(part for part in (own, entry) if part)))
    return found


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def groups() -> list[tuple[str, str, list[Term]]]:
    """(group, heading, entries) of the glossary's page."""
    return [
        (group, heading, [term for term in terms().values() if term.group == group])
        for group, heading in glossary.GROUPS.items()
    ]


def term_note(term: Term) -> Markup:
    """Unit and source of an entry."""
    parts = []
    if term.unit:
        title = next(
            (
                entry.title
                for entry in terms().values()
                if entry.group == "unit" and term.unit in entry.words
            ),
            term.unit,
        )
        parts.append(f"Unit: {title.lower()}.")
    if term.group == "metric":
        parts.append(f"In Nsight Compute: {term.source}.")
    elif term.source:
        parts.append(f"Source: {term.source.rstrip('.')}.")
    return Markup(' <span class="muted">{}</span>').format(" ".join(parts)) if parts else Markup("")


def entries_script() -> str:
    """Title and paragraph of every entry, for the script that shows them where a word is chosen."""
    found = {
        key: (
            term.title,
            f"{escape(term.text)}{term_note(term)}".replace(units.THIN_SPACE, "\u202f"),
        )
        for key, term in terms().items()
    }
    return f"window.ncuTerms={script_json(found)};\n"
