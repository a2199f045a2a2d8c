"""The glossary as a value, and which words of a page open an entry.

A word links its entry on the glossary's page; where scripts run, it opens the entry in place. The
entries are written once for all pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ncu_toolkit.document.views import Cell, Column, Table

#: Tables without sorting whose cells may be terms, by key. In others a cell is a name from the
#: report, which only looks like one.
_TABLES: Final = frozenset(
    {"stalls", "traffic", "occupancy", "bounds", "considered", "metrics", "evidence", "static-findings", "static-facts"}
)  # fmt: skip
#: Columns of sortable tables whose cells' values are ids.
_COLUMNS: Final = frozenset({"stall", "bottleneck", "removes", "verdict"})


@dataclass(frozen=True)
class Definition:
    """One entry. `key` is unique, of letters, digits and hyphens; `source` is "" where the
    paragraph defines nothing that needs one."""

    key: str
    group: str
    title: str
    text: str
    source: str = ""
    words: tuple[str, ...] = ()
    """Other spellings under which reports show it, the title aside."""
    unit: str = ""


@dataclass(frozen=True)
class Definitions:
    """Entries by key, in the order of the page. A key is "" where a word has no entry."""

    terms: Mapping[str, Definition]
    headings: Mapping[str, Mapping[str, str]]
    """The key that a column's heading opens, by the kind of its table and its own key."""
    titles: Mapping[str, str]
    """Headings of the groups, in the order of the page."""

    @property
    def groups(self) -> list[tuple[str, str, list[Definition]]]:
        """(group, heading, entries) of the page."""
        return [
            (group, title, [term for term in self.terms.values() if term.group == group])
            for group, title in self.titles.items()
        ]

    @cached_property
    def _index(self) -> Mapping[str, str]:
        """Key by lower-case title and word. Where two entries share one, the first of the page
        wins."""
        found: dict[str, str] = {}
        for term in self.terms.values():
            for word in (term.title, *term.words):
                found.setdefault(word.lower(), term.key)
        return found

    def find(self, words: str) -> str:
        """The key of the entry that words name: a title, an id, a heading of a table."""
        return self._index.get(words.strip().lower(), "")

    def shown(self, words: str) -> str:
        """The key for words as shown; a title is also tried without what follows a colon."""
        return self.find(words) or (self.find(words.partition(":")[0]) if ":" in words else "")

    def of_cell(self, table: Table, column: Column, cell: Cell) -> str:
        if table.sortable:
            named = column.key in _COLUMNS and isinstance(cell.value, str)
            return self.find(str(cell.value)) if named else ""
        first = column is table.columns[0]
        if column.label == "Kind" and table.key == "mix":
            return self.find(f"Instructions: {cell.text}")
        if table.key == "bounds" and first:
            return self.find(f"resource:{cell.value}")
        if table.key not in _TABLES or column.numeric:
            return ""
        by_value = (self.find(str(cell.value)) or self.find(cell.title)) if first else ""
        return self.find(cell.text) or by_value

    def kind(self, table: Table) -> str:
        """The kind of a table, as `headings` names them: its key without what tells ladders and
        sizes apart."""
        key = table.key
        if key in self.headings:
            return key
        if key.startswith("what-if-"):
            return "what-if"
        if key.endswith("-table"):
            return "ladder"
        data = (kind for kind in self.headings if kind.endswith("-data"))
        return next((kind for kind in data if key.endswith(f"-{kind}")), "")

    def of_column(self, table: Table, column: Column) -> str:
        return self.headings.get(self.kind(table), {}).get(column.key, "")

    def columns(self, table: Table) -> list[tuple[str, str]]:
        """(heading, explanation) of a sortable table's columns: their headings sort, so they cannot
        open an entry. No entry is repeated."""
        found, said = [], set()
        for column in table.columns if table.sortable else ():
            key = self.of_column(table, column)
            entry = self.terms[key].text if key and key not in said else ""
            said.add(key)
            own = f"{column.title[:1].upper()}{column.title[1:]}." if column.title else ""
            if _words(own) <= _words(entry):  # the entry says it too
                own = ""
            if own or entry:
                found.append((column.label, " ".join(filter(None, (own, entry)))))
        return found

    def note(self, term: Definition) -> str:
        """Unit and source of an entry."""
        parts = []
        if term.unit:
            units = (
                t.title for t in self.terms.values() if t.group == "unit" and term.unit in t.words
            )
            parts.append(f"Unit: {next(units, term.unit).lower()}.")
        if term.group == "metric":
            parts.append(f"In Nsight Compute: {term.source}.")
        elif term.source:
            parts.append(f"Source: {term.source.rstrip('.')}.")
        return " ".join(parts)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))
