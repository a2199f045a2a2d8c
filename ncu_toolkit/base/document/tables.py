"""Cells and tables as values: all formatting is decided here and in the builders, so that HTML,
terminal, Markdown and JSON cannot disagree. A `Cell` carries the text people read and the value that
machines sort by and export, in the column's unit.

And the glossary as a value: which words of a table and a page open an entry. A word links its entry on
the glossary's page; where scripts run, it opens the entry in place. The entries are written once for
all pages."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Final, Generic, Literal, Self, TypeVar

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.card import Course

Item = TypeVar("Item")
Tone = Literal["", "good", "bad", "warn", "muted", "strong"]


def make_visible(view: object, *fields: str) -> None:
    """No view holds control or invisible characters, wherever its text came from."""
    for field_name in fields:
        value = getattr(view, field_name)
        shown = visible(value)
        if shown is not value:
            object.__setattr__(view, field_name, shown)


@dataclass(frozen=True)
class Cell:
    """One value as shown. `missing` cells say in `title` why there is nothing."""

    text: str
    value: float | str | None = None
    title: str = ""
    href: str = ""
    tone: Tone = ""
    bar: float | None = None
    """Fraction (0-1) drawn as a bar behind the number."""
    missing: bool = False
    badges: tuple[tuple[str, str], ...] = ()
    """Short marks after the text, each with its explanation."""
    code: bool = False
    plain: str = ""
    """What is shown instead of the text where nothing can be pointed at for the title."""
    course: Course | None = None
    """What pages draw instead of the text."""

    def __post_init__(self) -> None:
        make_visible(self, "text", "title")


@dataclass(frozen=True)
class Column:
    """One column: `unit` is that of the cells' values, `title` explains the heading."""

    key: str
    label: str = ""
    """The heading; the key where it is empty."""
    title: str = ""
    unit: str = ""
    numeric: bool = True
    code: bool = False
    gives_way: int = 0
    """When it is left out on a narrow terminal: 1 first, 0 never."""
    shortest: int = 0
    """Characters to which its text may be cut once all columns that give way before it are left out;
    0 for not at all. Code that gives way is cut before."""
    name: bool = False
    """Holds names of kernels: they are cut so that they differ."""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.key)
        make_visible(self, "label", "title")


@dataclass(frozen=True)
class Spec(Column, Generic[Item]):
    """A column that knows an item's cell; `table` makes a table of items from several."""

    cell: Callable[[Item], Cell | str] = field(kw_only=True)

    @property
    def column(self) -> Column:
        """The column alone, which can be pickled."""
        return Column(**{each.name: getattr(self, each.name) for each in fields(Column)})


#: What a cell without a figure shows.
_NOTHING: Final = frozenset({"", "–", units.NOT_AVAILABLE})


@dataclass(frozen=True)
class Table:
    """A table with its caption; the first column names the row. `sortable` tables get sorting,
    copying and a CSV."""

    key: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sortable: bool = False
    note: str = ""
    variants: frozenset[int] = frozenset()
    """Rows that hang beside the one above."""

    def __post_init__(self) -> None:
        make_visible(self, "caption", "note")

    @property
    def silent(self) -> frozenset[int]:
        """Places of the columns in which no row says anything: all are empty, or n/a."""
        return frozenset(
            at
            for at in range(len(self.columns))
            if self.rows and all(r[at].missing or r[at].text in _NOTHING for r in self.rows)
        )

    def part(self, start: int, end: int | None = None) -> Self:
        """The table with some of its rows; only tables without variants have parts."""
        return replace(self, rows=self.rows[start:end])

    def only(self, chosen: Callable[[int, Column], bool]) -> Self:
        """The table with the chosen columns, each given with its place."""
        kept = [at for at, column in enumerate(self.columns) if chosen(at, column)]
        return replace(
            self,
            columns=tuple(self.columns[at] for at in kept),
            rows=tuple(tuple(row[at] for at in kept) for row in self.rows),
        )


def table(
    caption: str, specs: Sequence[Spec[Item]], items: Iterable[Item], note: str = "", key: str = ""
) -> Table:
    """A table of items. Without a `key`, by which pages know it, a column that is empty in every row
    is left out."""
    rows = tuple(tuple(_cell(spec.cell(item)) for spec in specs) for item in items)
    whole = Table(key, caption, tuple(spec.column for spec in specs), rows, note=note)
    return whole.only(lambda at, _: bool(key) or not rows or any(row[at].text for row in rows))


def _cell(shown: Cell | str) -> Cell:
    return Cell(shown) if isinstance(shown, str) else shown


@lru_cache(maxsize=1 << 13)  # half of a report's cells are labels and headings
def text(
    value: str, title: str = "", *, href: str = "", tone: Tone = "", code: bool = False
) -> Cell:
    """A cell of untrusted text."""
    shown = visible(value)
    return Cell(shown, shown, title, href, tone, code=code)


def missing(why: str, plain: str = "") -> Cell:
    """`n/a`, with the reason on hover; `plain` takes its place where nothing can be pointed at."""
    return Cell(units.NOT_AVAILABLE, None, why, tone="muted", missing=True, plain=plain)


@lru_cache(maxsize=1 << 13, typed=True)  # 1 and 1.0 are written differently
def number(
    value: float | None, unit: str, why: str = "", *, title: str = "", bar: float | None = None
) -> Cell:
    """A cell of a number in one of the registry's units; `why` is shown where there is none."""
    if value is None or not math.isfinite(value):
        return missing(why or "no value")
    part = None if bar is None else min(1.0, max(0.0, bar))
    return Cell(units.quantity(value, unit), value, title, bar=part)


def without_empty(table: Table) -> Table:
    """The table without its silent columns."""
    silent = table.silent
    return table.only(lambda at, _: at not in silent)


def plain_table(
    key: str,
    caption: str,
    labels: Sequence[str | tuple[str, str]],
    rows: Sequence[Sequence[Cell]],
    *,
    numeric: Sequence[int] = (),
    note: str = "",
) -> Table:
    """A table from labels (or pairs of label and explanation); `numeric` are the indices of number
    columns."""
    pairs = [(label, "") if isinstance(label, str) else label for label in labels]
    columns = tuple(
        Column(label.lower(), label, title, "", i in numeric)
        for i, (label, title) in enumerate(pairs)
    )
    return Table(key, caption, columns, tuple(tuple(row) for row in rows), note=note)


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
    page: tuple[tuple[str, str, str], ...] = ()
    """Further headings, each with its text and that text's language ("" for prose, "text" for a
    drawing): a bottleneck's whole page."""


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
        found = (
            (group, title, [term for term in self.terms.values() if term.group == group])
            for group, title in self.titles.items()
        )
        return [each for each in found if each[2]]

    @cached_property
    def in_prose(self) -> re.Pattern[str]:
        """Stall reasons of two words or more, which name nothing else in a sentence."""
        names = {
            word
            for term in self.terms.values()
            if term.group == "stall"
            for word in term.words
            if word.count(" ") and ":" not in word
        }
        return re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(names)) or r"(?!)")

    def only(self, keys: Iterable[str]) -> "Definitions":
        """With these entries alone."""
        return Definitions({key: self.terms[key] for key in keys}, {}, self.titles)

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
        found, parts = [], set()
        for column in table.columns if table.sortable else ():
            key = self.of_column(table, column)
            entry = self.terms[key].text if key and key not in parts else ""
            parts.add(key)
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
