"""What is shown, as plain values: all formatting is decided here and in the builders, so that HTML,
terminal, Markdown and JSON cannot disagree.

A `Cell` carries the text people read and the value that machines sort by and export, in the
column's unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import visible
from ncu_toolkit.document.card import Card
from ncu_toolkit.document.pictures import (
    BarKind,
    BarMark,
    BarRow,
    Course,
    Icicle,
    RoofPicture,
    Savings,
)

Item = TypeVar("Item")
Tone = Literal["", "good", "bad", "warn", "muted", "strong"]


def _make_visible(view: object, *fields: str) -> None:
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
    """What stands in place of the text where nothing can be pointed at for the title."""
    course: Course | None = None
    """What pages draw in place of the text."""

    def __post_init__(self) -> None:
        _make_visible(self, "text", "title")


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
        _make_visible(self, "label", "title")


@dataclass(frozen=True)
class Spec(Column, Generic[Item]):
    """A column that knows an item's cell; `table` makes a table of items from several."""

    cell: Callable[[Item], Cell | str] = field(kw_only=True)

    @property
    def column(self) -> Column:
        """The column alone, which can be pickled."""
        return Column(**{each.name: getattr(self, each.name) for each in fields(Column)})


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
        _make_visible(self, "caption", "note")

    def part(self, start: int, end: int | None = None) -> Table:
        """The table with some of its rows; only tables without variants have parts."""
        return replace(self, rows=self.rows[start:end])

    def only(self, chosen: Callable[[int, Column], bool]) -> Table:
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


@dataclass(frozen=True)
class Chart:
    """A Plotly figure (`data` and `layout`, as plain JSON) with the table of what it draws."""

    key: str
    title: str
    summary: str
    """One sentence that says what the chart shows: also its text alternative."""
    figure: Mapping[str, Any]
    table: Table
    wide: bool = False
    """Spans the page where two charts stand side by side."""
    term: str = ""
    """The glossary's word for it, where the title is none."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Pages that bars and points open, by label."""

    @property
    def height(self) -> int:
        """In pixels."""
        height: int = self.figure["layout"]["height"]
        return height

    @property
    def drawn(self) -> dict[str, Any]:
        """The figure as the page's script takes it."""
        return {**self.figure, "links": self.links}


@dataclass(frozen=True)
class BarChart:
    """Bars in rows with their legend, as HTML, and the table of what it draws."""

    key: str
    title: str
    """The question that it answers."""
    term: str
    """The glossary's word for it."""
    summary: str
    kinds: Mapping[str, BarKind]
    heads: tuple[str, ...]
    """Headings: of names, notes (empty for none), the axis, and figures."""
    rows: tuple[BarRow, ...]
    table: Table
    marks: tuple[BarMark, ...] = ()
    views: tuple[str, ...] = ()
    """Names of the ways to draw it, where there are several."""
    wide: bool = False


@dataclass(frozen=True)
class RoofPlot:
    """Launches under the roofs of the last of them, and the table of what it draws."""

    title: str
    summary: str
    pictures: tuple[RoofPicture, ...]
    table: Table


@dataclass(frozen=True)
class StepChart:
    """A height that changes in steps along an axis, and one place of it that is marked: (place,
    height), with words. `unit` is what heights are in."""

    key: str
    title: str
    term: str
    summary: str
    turns: tuple[tuple[float, float], ...]
    now: tuple[float, float]
    most: float
    label: str
    unit: str
    words: str
    table: Table


@dataclass(frozen=True)
class Fact:
    """A labelled value of a header or a definition list."""

    label: str
    cell: Cell


@dataclass(frozen=True)
class DefectPair:
    """A defect with its repair: what it is called, both kernels, the verdict on the defect, the
    measured gain, and the repaired kernel's part (0-1) of the time, also in words."""

    name: Cell
    defect: Cell
    repair: Cell
    verdict: str
    gain: str
    left: float
    share: str


@dataclass(frozen=True)
class Panel:
    """One size (and dtype) of a family: its charts and its table, or its defects in pairs."""

    key: str
    label: str
    table: Table
    charts: tuple[Chart | BarChart, ...] = ()
    notes: tuple[str, ...] = ()
    pairs: tuple[DefectPair, ...] = ()


@dataclass(frozen=True)
class FamilyView:
    """One ladder. `sentence` says where it starts and ends, against the library and against the
    roof."""

    name: str
    title: str
    story: str
    sentence: str
    panels: tuple[Panel, ...]
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    first: str = ""
    """The key of the panel that it opens on."""


@dataclass(frozen=True)
class FindingView:
    """One bottleneck in words, with its evidence and what to do."""

    bottleneck: str
    summary: str
    confidence: str
    good: bool
    predicted: Cell
    arithmetic: tuple[str, ...]
    advice: tuple[str, ...]
    look_for: str
    evidence: Table
    locations: Table | None = None


@dataclass(frozen=True)
class Fold:
    """A section of a launch's page, folded to its heading and one `line`. Each of the `parts` is named
    for what writes it (`part` in _page.html)."""

    id: str
    heading: str
    line: str
    parts: tuple[tuple[str, Any], ...]
    open: bool = False
    spoils: bool = False
    """Hidden from readers who guess first: it tells what limits the kernel."""


@dataclass(frozen=True)
class HotSpots:
    """SASS and source of one launch for the browser's paged view, and its hottest lines as a plain
    table; without these two where the report leaves the code out, which `note` then says."""

    data: Mapping[str, Any]
    hottest: Table | None
    note: str
    hints: tuple[str, ...] = ()
    """What the code itself says: where registers peak."""


class Moved(NamedTuple):
    """What moves in one direction: `8.66 GB`, `loaded`, and who measured it."""

    moved: str
    word: str
    source: str


@dataclass(frozen=True)
class Lane:
    """A kind of access. `note` is its hit rate, and how busy it keeps a unit that lanes share; `part`
    its bytes over those of the largest lane (0-1)."""

    name: str
    flows: tuple[Moved, ...]
    note: str = ""
    part: float = 0.0
    limit: bool = False


class Level(NamedTuple):
    """A level of the memory system: its hit rate, and its busiest units, each with whether it is
    what limits the launch."""

    name: str
    note: str = ""
    units: tuple[tuple[str, bool], ...] = ()


class Wire(NamedTuple):
    """A link between two levels: what moves, its busiest unit with the share of its peak, and its
    width in pixels. `mark` follows: ` busy`, or `, limit`; empty where it is not known."""

    flows: tuple[Moved, ...]
    busy: str
    mark: str
    width: float
    limit: bool

    @property
    def known(self) -> bool:
        """Whether the report has a figure of it."""
        return bool(self.flows or self.busy)


@dataclass(frozen=True)
class Memory:
    """The memory system of one launch, from its accesses to the memories behind L2."""

    lanes: tuple[Lane, ...]
    l1: Level
    link: Wire
    l2: Level
    ends: tuple[tuple[Wire, Level], ...]
    left_out: tuple[str, ...]
    state: str
    """That of the card: the limit has its colour."""


@dataclass(frozen=True)
class Command:
    """Something to type, and what it is for."""

    what: str
    text: str

    def __post_init__(self) -> None:
        _make_visible(self, "what")


@dataclass(frozen=True)
class Question:
    """What a reader is asked before the verdict shows: causes and gains to choose from, each with
    whether it is right."""

    causes: tuple[tuple[str, bool], ...]
    gains: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class PageView:
    """The page of one launch, of a rung or of anybody's report."""

    slug: str
    title: str
    kicker: str
    card: Card
    folds: tuple[Fold, ...]
    idea: str = ""
    kind: str = ""
    signature: str = ""
    """The kernel's full name, where the title is not enough to know it by."""
    former: str = ""
    """That the kernel has changed since, where it has."""
    guess: Question | None = None
    measured: tuple[Fact, ...] = ()
    """Time, rate and share of the baseline without the profiler."""
    siblings: tuple[Fact, ...] = ()
    """The same rung at other sizes, and its other launches."""
    roofs: RoofPlot | None = None
    previous: Cell | None = None
    following: Cell | None = None


@dataclass(frozen=True)
class Listing:
    """Lines of code, each with a mark ("+" and "-" of a difference, "@" between its parts, "*" for
    lines of the loop with most work), a note and its text."""

    title: str
    lines: tuple[tuple[str, str, str], ...]
    live: tuple[int, ...] = ()
    """Of each line, the most registers that hold a value at one of its instructions, 0 for none;
    empty where not known. Shown on pages."""
    registers: int = 0
    """Registers a thread has."""


@dataclass(frozen=True)
class TrendPoint:
    """A time in microseconds with its range, what to say of it, and what changed there."""

    value: float
    low: float
    high: float
    note: str
    change: str = ""


@dataclass(frozen=True)
class Trend:
    """Times of one kernel from run to run, oldest first."""

    title: str
    points: tuple[TrendPoint, ...]


@dataclass(frozen=True)
class Answer:
    """What a command found. `kernels` is None for a single kernel: its card says it all."""

    headline: str
    kernels: Table | None = None
    rest: str = ""
    """How many kernels the table leaves out, the time they take, and which have cards; empty where
    all are shown."""
    cards: tuple[Card, ...] = ()
    ran: tuple[str, ...] = ()
    """Of each card: how often its kernel ran, and its share of the time; empty for a single kernel."""
    labels: tuple[str, ...] = ()
    """A name for each card, where they are two sides of one comparison."""
    points: tuple[str, ...] = ()
    """What was found of the cards together, a sentence each: shown before the cards where these are
    of several kernels, since it is about all of them."""
    trends: tuple[Trend, ...] = ()
    tables: tuple[Table, ...] = ()
    code: tuple[Listing, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be read, and other faults of the input."""
    verdict: str = ""
    """The closing line, where there is one."""
    next: str = ""
    """The command to run next."""
    charts: tuple[BarChart | Chart | RoofPlot | StepChart, ...] = ()
    """Pictures, on pages only; one whose table is among `tables` is shown in its place."""

    @property
    def line(self) -> str:
        """All of it in one line: `matmul_kernel, 51.9 ms`."""
        first = self.cards[0] if self.cards else None
        return self.headline or (f"{first.kernel}, {first.time}" if first else "")


@dataclass(frozen=True)
class RunView:
    """A whole run. `answer` is to the launches that are no rung; ladders have a sentence each."""

    id: str
    title: str
    created: str
    live: bool
    facts: tuple[Fact, ...]
    program: Card | None
    """What costs the program of these launches most; None where that is a single kernel's."""
    answer: Answer | None
    savings: Savings | None
    card_pages: tuple[str, ...]
    """The page of each card of the answer; empty where its launch has none."""
    families: tuple[FamilyView, ...]
    launches: Table | None
    """Launches that are no rung, grouped by kernel; None where there are none."""
    order: Mapping[str, Any] | None
    """Each of these launches as data for the page's script, in the report's order."""
    skipped: Table | None
    calibration: tuple[Table, ...]
    predictions: Chart | None
    """Achieved over predicted gain of each step."""
    costs: Table | None
    commands: tuple[Command, ...]
    files: tuple[Fact, ...]
    pages: tuple[PageView, ...]
    step: str = ""
    """The page of the program's step, whose kernels these are."""


@dataclass(frozen=True)
class ProgramView:
    """The page of a program's step. `findings` are what costs it time, each with its saving; the
    first of them are the causes of the icicle, in the same order."""

    title: str
    facts: tuple[str, ...]
    """What is known of the step, in words: its GPU, its launches."""
    whole: str
    """What the times are parts of: `step` or `run`."""
    card: Card
    """The answer's first."""
    icicle: Icicle
    findings: tuple[FindingView, ...]
    together: str
    """What all findings save; empty for fewer than two."""
    account: BarChart
    launches: Table | None
    order: Mapping[str, Any]
    """Each launch of the step as data for the page's script (`in_order`)."""
    folds: tuple[Fold, ...]
    remarks: tuple[str, ...]
    """What no finding explains, and what the trace does not tell, a sentence each."""
    notes: tuple[str, ...]
    """What went wrong while the trace was recorded or read."""
    pages: tuple[PageView, ...] = ()
    """Of launches that a report tells more of."""


@lru_cache(maxsize=1 << 13)  # half of a report's cells are labels and headings
def text(
    value: str, title: str = "", *, href: str = "", tone: Tone = "", code: bool = False
) -> Cell:
    """A cell of untrusted text."""
    shown = visible(value)
    return Cell(shown, shown, title, href, tone, code=code)


def shown_size(size: str) -> str:
    """A problem's size: long numbers in groups of three digits."""
    return units.count(int(size)) if size.isdecimal() and len(size) > 5 else visible(size, 24)


def missing(why: str, plain: str = "") -> Cell:
    """`n/a`, with the reason on hover; `plain` takes its place where nothing can be pointed at."""
    return Cell(units.NOT_AVAILABLE, None, why, tone="muted", missing=True, plain=plain)


@lru_cache(maxsize=1 << 13, typed=True)  # 1 and 1.0 are written differently
def number(
    value: float | None, unit: str, why: str = "", *, title: str = "", bar: float | None = None
) -> Cell:
    """A cell of a number in one of the registry's units; `why` is said where there is none."""
    if value is None or not math.isfinite(value):
        return missing(why or "no value")
    part = None if bar is None else min(1.0, max(0.0, bar))
    return Cell(units.quantity(value, unit), value, title, bar=part)


def without_empty(table: Table) -> Table:
    """The table without columns in which no row says anything: all are empty, or n/a."""
    rows = table.rows
    return table.only(
        lambda at, _: (
            not rows or any(r[at].text not in ("", "–") and not r[at].missing for r in rows)
        )
    )


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
