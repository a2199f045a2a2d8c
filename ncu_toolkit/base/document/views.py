"""What is shown of launches, runs and programs, as plain values: charts, pages, and the answer to a
command with its headline, table of kernels, cards, notes. Text is safe to show; writers escape for
their own markup."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.card import (
    BarKind,
    BarMark,
    BarRow,
    Card,
    Icicle,
    RoofPicture,
    Savings,
    State,
    Strip,
    in_the_middle,
    kernel_name,
    short_gain,
)
from ncu_toolkit.base.document.tables import Cell, Spec, Table, Tone, make_visible, table


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
    """Spans the page where two charts are side by side."""
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
    rule: str = ""
    """Id of a cause of a step, which names its page."""
    strip: Strip | None = None
    """Of a cause of a step: the step, and the step without it."""
    tested: str = ""


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
        make_visible(self, "what")


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
    without: Strip | None
    """The step, and the step without all of them."""
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


def shown_size(size: str) -> str:
    """A problem's size: long numbers in groups of three digits."""
    return units.count(int(size)) if size.isdecimal() and len(size) > 5 else visible(size, 24)


#: How a card's state is coloured.
TONES: Final[dict[State, Tone]] = {
    "slow": "bad", "roof": "good", "unknown": "warn", "incomplete": "warn", "together": "strong"
}  # fmt: skip
#: Kernels in the table where nothing else is asked for, and those whose cards are shown.
TOP: Final = 15
CARDS: Final = 3
#: Launches from which on a report can tell of a program (program/analysis/reported.py asks for more).
MANY: Final = 20
_FILE: Final = 40


@dataclass(frozen=True)
class Kind:
    """Launches alike, with the card of the one that stands for them. Times are in microseconds."""

    card: Card
    launches: int = 1
    total_us: float | None = None
    """None where no launch has a time."""
    untimed: int = 0
    """Launches without a time."""
    agreeing: int = 1
    """Launches with the same verdict as the card's."""


class Whole(NamedTuple):
    """All that was launched: launches, kernels, and their time in microseconds."""

    launches: int
    kernels: int
    total_us: float | None
    """None where no launch has a time."""
    untimed: int = 0


def answer(
    kinds: Sequence[Kind],
    notes: Sequence[str] = (),
    top: int = TOP,
    cards: int = CARDS,
    whole: Whole | None = None,
    flags: bool = True,
) -> Answer:
    """The answer to kinds of launches, those with most time first; `top` bounds the table.

    Args:
        whole: what the kinds are the first of; themselves where it is None.
        flags: name options of the command line for what is left out.
    """
    whole = whole or Whole(
        sum(kind.launches for kind in kinds),
        len(kinds),
        total_of(kinds),
        sum(kind.untimed for kind in kinds),
    )
    total = whole.total_us
    left = whole.kernels - min(top, len(kinds))
    rest = ""
    if left:
        above = total_of(kinds[:top])
        more = f"{left} more kernel{'s' * (left > 1)}"
        if total is not None and above is not None:
            more += f" take{'s' * (left == 1)} {units.duration(total - above)}"
        rest = f"{more}; --top {whole.kernels} shows all." if flags else f"{more}."
    if unknown := _unknown_gain(kinds, total):
        rest = f"{rest} {unknown}".lstrip()
    shown = min(top, cards)
    if len(kinds) > shown > 0:
        rest = f"{rest} Details of the first {shown} follow.".lstrip()
    return Answer(
        _headline(kinds, whole) if kinds or not notes else "",
        _kernels(kinds, total, top) if len(kinds) > 1 else None,
        rest,
        tuple(kind.card for kind in kinds[:shown]),
        tuple(_ran(kind, total) for kind in kinds[:shown]) if len(kinds) > 1 else (),
        notes=tuple(notes),
    )


def total_of(kinds: Iterable[Kind]) -> float | None:
    """The time of kinds of launches, None where none has one."""
    times = [kind.total_us for kind in kinds if kind.total_us is not None]
    return sum(times) if times else None


def _unknown_gain(kinds: Sequence[Kind], total: float | None) -> str:
    """The time of kernels whose gain is not known, where that of others is; else empty."""
    unknown = [kind for kind in kinds if not kind.card.gain_known]
    us = total_of(unknown)
    if us is None or not total or len(unknown) == len(kinds):
        return ""
    return no_gain(us, total)


def no_gain(us: float, total: float) -> str:
    """For how much of the time no gain is known, a sentence."""
    share = units.percent(us / total, 2)
    whole = share == units.percent(1.0) and us < total
    of = "nearly all of the time" if whole else f"{share} of the time"
    return f"No gain is known for {units.duration(us)}, {of}."


def _headline(kinds: Sequence[Kind], whole: Whole) -> str:
    """What the cards do not say: how many launches and kernels there are. Empty for one launch."""
    launches, total = whole.launches, whole.total_us
    if not kinds:
        return "No launch to diagnose."
    if launches == 1:
        return ""
    if whole.kernels == 1:
        return (
            f"{kinds[0].card.kernel}: {launches} launches, {units.total(total, whole.untimed)} in total. "
            "Shown: the launch of median time."
        )
    gpus = list(dict.fromkeys(kind.card.gpu for kind in kinds if kind.card.gpu))
    where = "" if not gpus else f" on {gpus[0]}" if len(gpus) == 1 else f" on {len(gpus)} GPUs"
    what = f"{launches} launches of {whole.kernels} kernels"
    if any(kind.card.state == "together" for kind in kinds):
        what = f"{launches} results of {whole.kernels} kinds"
    if total is None:
        return f"{what}{where}, {units.NO_TIME}"
    return f"{what}, {units.total(total, whole.untimed)}{where}"


def _ran(kind: Kind, total: float | None) -> str:
    """`13 launches, this one 322 µs, 78 % of the time`."""
    one = [kind.card.time] if kind.card.time_us is not None or kind.card.untimed else []
    parts = one
    if kind.launches > 1:
        parts = [f"{kind.launches} launches", *(f"this one {each}" for each in one)]
    share = _share(kind, total)
    return ", ".join([*parts, f"{share} of the time"] if share else parts)


def _share(kind: Kind, total: float | None) -> str:
    """A kernel's part of the time of all; empty where it is not known."""
    return units.percent(kind.total_us / total, 2) if kind.total_us is not None and total else ""


def _kernels(kinds: Sequence[Kind], total: float | None, top: int) -> Table:
    def verdict(kind: Kind) -> Cell:
        agree = f" ({kind.agreeing} of {kind.launches})" if kind.agreeing != kind.launches else ""
        return Cell(kind.card.title + agree, tone=TONES[kind.card.state])

    def file(kind: Kind) -> str:
        return in_the_middle(
            kind.card.file.removesuffix(".ncu-rep").removesuffix(".ncu-repz"), _FILE
        )

    grids = dict(zip(map(id, kinds), apart(kinds), strict=True))
    once = all(kind.launches == 1 for kind in kinds[:top])

    columns: tuple[Spec[Kind], ...] = (
        Spec(
            "kernel",
            cell=lambda kind: kernel_name(kind.card.kernel),
            numeric=False,
            code=True,
            name=True,
        ),
        Spec("grid", cell=lambda kind: grids[id(kind)], numeric=False, gives_way=6),
        Spec("file", cell=file, numeric=False, code=True, gives_way=5, shortest=16),
        Spec("launches", cell=lambda kind: str(kind.launches), gives_way=2 * once),
        Spec("time", cell=lambda kind: duration(kind.total_us)),
        Spec("share", cell=lambda kind: _share(kind, total) or units.NOT_AVAILABLE, gives_way=3),
        Spec("verdict", cell=verdict, numeric=False, gives_way=7, shortest=12),
        Spec("gain", cell=lambda kind: Cell(short_gain(kind.card), tone="strong")),
        Spec("hottest line", cell=_hottest, numeric=False, code=True, gives_way=4),
    )
    return table("", columns, kinds[:top])


def apart(kinds: Sequence[Kind]) -> list[str]:
    """The grid of each kind where another of its report has the same name, with the block where grids
    are the same too."""
    names = [(kind.card.kernel, kind.card.file) for kind in kinds]
    shapes = [kind.card.shape.removeprefix("grid ").split(", ") for kind in kinds]
    found = []
    for name, shape in zip(names, shapes, strict=True):
        same = [other for known, other in zip(names, shapes, strict=True) if known == name]
        most = next((most for most in (1, 2) if len({tuple(x[:most]) for x in same}) > 1), 0)
        found.append(", ".join(shape[:most]))
    return found


def _hottest(kind: Kind) -> str:
    return kind.card.where[0].short if kind.card.where else "–"


def duration(microseconds: float | None) -> str:
    """A time, or `n/a`."""
    return units.NOT_AVAILABLE if microseconds is None else units.duration(microseconds)


def distinct_names(paths: Sequence[str]) -> dict[str, str]:
    """What to call each of several files: its path below their common folder, safe to show."""
    places = {path: os.path.abspath(path) for path in paths}
    above = os.path.commonpath([os.path.dirname(place) for place in places.values()] or ["/"])
    return {
        path: visible(os.path.relpath(place, above)) if len(places) > 1 else ""
        for path, place in places.items()
    }
