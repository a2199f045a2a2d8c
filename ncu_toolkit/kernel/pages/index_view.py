"""The front page: a card for each ladder, from the run that shows it best, and a list of runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.tables import Cell, Column, Table, number, text
from ncu_toolkit.base.document.views import Fact
from ncu_toolkit.kernel.ladder.problems import families, problem_for
from ncu_toolkit.kernel.pages.book import Book, Ladder
from ncu_toolkit.kernel.pages.family_sentence import against_library, rate_text, short_sentence
from ncu_toolkit.kernel.pages.run_view import STEP_PAGE, header, kinds, others


@dataclass(frozen=True)
class ShownRung:
    """One rung of a ladder at the size shown first: its rate relative to the fastest (0-1), its
    kind (`variant` for a step that is not on the way to the fastest), its verdict's title (empty
    where it was not profiled), and its colour in every chart."""

    label: str
    share: float
    rate: str
    kind: str
    verdict: str
    colour: str


@dataclass(frozen=True)
class ShownFamily:
    """A ladder's card on the front page: a sentence of at most 20 words, its rungs in order, the
    best against the library. `gallery` is true of pairs that do not climb. `folder` is that of the
    run which it is shown from; the titles and folders of other runs that hold it are `others`."""

    name: str
    title: str
    sentence: str
    best: str
    profiled: int
    gallery: bool
    rungs: tuple[ShownRung, ...]
    folder: str = ""
    others: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class IndexPart:
    """What one run gives to the front page: kept next to it, so that a new run need not have all
    others read and judged again."""

    title: str
    created: str
    live: bool
    device: str
    launches: int
    timings: int
    what: str
    families: tuple[ShownFamily, ...]
    facts: tuple[Fact, ...]
    step: bool = False


def index_part(book: Book) -> IndexPart:
    """A run's part of the front page."""
    run, answered = book.run, others(book, kinds(book))
    what = ", ".join(book.families) or (answered.line if answered else "no launches")
    return IndexPart(
        run.title, run.created, run.live, run.device.name, len(run.profiles), len(run.timings), what,
        tuple(_part(book.primary(family)) for family in book.families), tuple(header(book)), run.step,
    )  # fmt: skip


def _part(ladder: Ladder) -> ShownFamily:
    book, fastest = ladder.book, max(ladder.rates.values(), default=1.0)
    rungs = tuple(
        ShownRung(
            visible(entry.label),
            ladder.rates[entry.label] / fastest,
            rate_text(ladder, entry),
            "variant"
            if ladder.trunk and entry.kind == "step" and entry.label not in ladder.trunk
            else entry.shown_kind,
            book.card(entry.main).title if entry.main else "",
            entry.colour,
        )
        for entry in ladder
        if entry.label in ladder.rates
    )
    return ShownFamily(
        ladder.family,
        ladder.title,
        short_sentence(ladder),
        against_library(ladder),
        sum(bool(entry.profiles) for entry in ladder),
        bool(ladder.pairs),
        rungs,
    )


#: Verdicts along a ladder that its card names.
_VERDICTS: Final = 5


def verdicts(family: ShownFamily) -> list[str]:
    """The verdicts on the steps to the fastest rung, each where it first appears, first and last
    kept; of pairs those on the defects."""
    kind = "planted" if family.gallery else "step"
    verdicts = (rung.verdict for rung in family.rungs if rung.verdict and rung.kind == kind)
    found = list(dict.fromkeys(verdicts))
    many = len(found) > _VERDICTS and not family.gallery
    return [*found[: _VERDICTS - 1], found[-1]] if many else found


@dataclass(frozen=True)
class IndexView:
    """Everything on the front page. `facts` are what the runs shown have in common."""

    title: str
    lead: str
    families: tuple[ShownFamily, ...]
    runs: Table
    facts: tuple[Fact, ...]


def index_view(parts: Sequence[tuple[str, IndexPart]]) -> IndexView:
    """`parts` are (folder name, the run's part)."""
    holders: dict[str, list[tuple[str, IndexPart, ShownFamily]]] = {}
    for folder, part in parts:
        for family in part.families:
            holders.setdefault(family.name, []).append((folder, part, family))
    shown = []
    for found in holders.values():
        # more rungs profiled first, then live before recorded, then the newest: one rung of this
        # machine does not hide a whole recorded ladder
        (folder, _, family), *rest = sorted(
            found, key=lambda held: (held[2].profiled, held[1].live, held[1].created), reverse=True
        )
        others = tuple((visible(part.title, 80), name) for name, part, _ in rest)
        shown.append(replace(family, folder=folder, others=others))
    shown.sort(key=_place)
    used = {family.folder for family in shown}
    every = [part for _, part in parts]
    return IndexView(
        "Kernel ladders, profiled" if shown or not parts else "Profiled kernels",
        _lead(every, sum(not family.gallery for family in shown)),
        tuple(shown),
        _runs(parts),
        _common_facts([part for folder, part in parts if folder in used] or every),
    )


def _lead(parts: Sequence[IndexPart], ladders: int) -> str:
    """What lies here, in a sentence."""
    launches = sum(part.launches for part in parts)
    gpus = sorted({part.device for part in parts})
    where = visible(gpus[0]) if len(gpus) == 1 else f"{len(gpus)} GPUs"
    if not launches:
        return ""
    what = f"{units.count(launches)} kernel launches on {where}"
    counted = (
        f"{units.counted(ladders, 'ladder')} of kernels, each from a naive version to the fastest. "
        if ladders
        else ""
    )
    bars = (
        " A bar is a kernel's speed; grey bars are libraries, orange ones show what makes it slower. Below them: the bottlenecks on the way."
        if ladders
        else ""
    )
    return f"{counted}{what}, each with its bottleneck, gain and hottest line.{bars}"


def _common_facts(parts: Sequence[IndexPart]) -> tuple[Fact, ...]:
    """The header of the runs shown: what they share, and for what differs, from where to where."""
    cells: dict[str, list[Cell]] = {}
    for part in parts:
        for fact in part.facts:
            cells.setdefault(fact.label, []).append(fact.cell)
    return tuple(Fact(label, _common(label, found)) for label, found in cells.items())


def _common(label: str, cells: Sequence[Cell]) -> Cell:
    texts = sorted({cell.text for cell in cells})
    if len(texts) == 1:
        return cells[0]
    if label == "Date":
        return text(f"{texts[0]} to {texts[-1]}", "differs by run")
    if len(texts) == 2:
        return text(" and ".join(texts), "differs by run")
    words = f"{len(texts)} different values, see each run"
    return text(words, ", ".join(texts), tone="muted")


def _place(family: ShownFamily) -> tuple[bool, bool, int, str]:
    """Ladders bound by arithmetic first, then those bound by traffic, last those that climb towards
    no library (planted defects); of each the longest ladder first."""
    problem = problem_for(family.name) if family.name in families() else None
    return (
        problem is None or not problem.baseline,
        problem is None or problem.rate != "flop",
        -len(family.rungs),
        family.name,
    )


_RUNS: Final = (
    ("run", "Run"), ("date", "Date"), ("gpu", "GPU"), ("origin", "Origin"), ("launches", "Launches"), ("timings", "Timings"),
    ("what", "What it shows"),
)  # fmt: skip


def _runs(parts: Sequence[tuple[str, IndexPart]]) -> Table:
    rows = [
        (
            Cell(visible(part.title), visible(part.title), "", f"{folder}/index.html"),
            Cell(visible(part.created[:16].replace("T", " ")), visible(part.created)),
            text(part.device),
            text("live" if part.live else "recorded"),
            number(part.launches, "count"),
            number(part.timings, "count"),
            Cell("the program's step", href=f"{folder}/{STEP_PAGE}")
            if part.step
            else text(part.what),
        )
        for folder, part in sorted(parts, key=lambda pair: pair[1].created, reverse=True)
    ]
    columns = (Column(key, label, numeric=key in ("launches", "timings")) for key, label in _RUNS)
    return Table("runs", "Runs", tuple(columns), tuple(rows), sortable=True)
