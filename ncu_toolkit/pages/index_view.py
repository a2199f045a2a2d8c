"""The front page: a card for each ladder, from the run that shows it best, and a list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import visible
from ncu_toolkit.document.views import Cell, Column, Fact, Table, number, text
from ncu_toolkit.ladder.problems import families, problem_for
from ncu_toolkit.pages.book import Book, Entry, problem_of
from ncu_toolkit.pages.columns import rate_kind, rate_of, rate_unit, shown_kind
from ncu_toolkit.pages.family_sentence import against_library, pairs, short_sentence
from ncu_toolkit.pages.family_view import primary
from ncu_toolkit.pages.run_view import header, others


@dataclass(frozen=True)
class Rung:
    """One rung of a ladder at the size shown first: its rate relative to the fastest (0-1), its
    kind (`variant` for a step that is not on the way to the fastest), its verdict's title, its
    page, and its colour in every chart."""

    label: str
    share: float
    rate: str
    kind: str
    verdict: str
    href: str
    colour: str


@dataclass(frozen=True)
class PartFamily:
    """What one run gives to the card of a ladder: a sentence of at most 20 words, its rungs in
    order, the best against the library. `gallery` is true of pairs that do not climb."""

    name: str
    title: str
    sentence: str
    best: str
    profiled: int
    gallery: bool
    rungs: tuple[Rung, ...]


@dataclass(frozen=True)
class ShownFamily:
    """A ladder's card on the front page: from which run, and which other runs hold it."""

    family: PartFamily
    href: str
    folder: str
    others: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class IndexPart:
    """What one run gives to the front page: kept beside it, so that a new run need not have all
    others read and judged again."""

    title: str
    created: str
    live: bool
    device: str
    launches: int
    timings: int
    what: str
    families: tuple[PartFamily, ...]
    facts: tuple[Fact, ...]


def _others(book: Book) -> str:
    """The launches that are no rung, in one line."""
    found = others(book)
    return found.line if found else "no launches"


def index_part(book: Book) -> IndexPart:
    """A run's part of the front page."""
    run = book.run
    return IndexPart(
        run.title, run.created, run.live, run.device.name, len(run.profiles), len(run.timings), ", ".join(book.families) or _others(book),
        tuple(_part(book, family) for family in book.families), tuple(header(book)),
    )  # fmt: skip


def _part(book: Book, family: str) -> PartFamily:
    variant = primary(book, family)
    entries = book.families[family][variant]
    problem = problem_of(family)
    kind = rate_kind(problem, entries)
    rates = {id(entry): rate_of(entry, kind) or 0.0 for entry in entries}
    fastest = max(rates.values(), default=0.0) or 1.0
    trunk = book.trunk(entries)
    rungs = tuple(
        Rung(
            visible(entry.label),
            rates[id(entry)] / fastest,
            units.si(rates[id(entry)], rate_unit(kind)),
            "variant"
            if trunk and entry.kind == "step" and entry.label not in trunk
            else shown_kind(book, entry),
            _verdict(book, entry),
            book.page(entry),
            book.colours[family][entry.label],
        )
        for entry in entries
        if rates[id(entry)]
    )
    return PartFamily(
        family,
        visible(problem.title if problem else family.replace("_", " ")),
        short_sentence(book, entries, variant, kind),
        against_library(book, entries, kind),
        sum(bool(entry.profiles) for entry in entries),
        bool(pairs(book, entries)),
        rungs,
    )


def _verdict(book: Book, entry: Entry) -> str:
    """The title of the verdict on a rung's longest launch; empty where it was not profiled."""
    return book.card(entry.main).title if entry.main else ""


#: Verdicts along a ladder that its card names.
_VERDICTS: Final = 5


def verdicts(family: PartFamily) -> list[str]:
    """The verdicts on the steps to the fastest rung, each where it first appears, first and last
    kept; of pairs those on the defects."""
    kind = "planted" if family.gallery else "step"
    found = list(
        dict.fromkeys(rung.verdict for rung in family.rungs if rung.verdict and rung.kind == kind)
    )
    return (
        found if family.gallery or len(found) <= _VERDICTS else [*found[: _VERDICTS - 1], found[-1]]
    )


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
    holders: dict[str, list[tuple[str, IndexPart, PartFamily]]] = {}
    for folder, part in parts:
        for family in part.families:
            holders.setdefault(family.name, []).append((folder, part, family))
    shown = []
    # more rungs profiled first, then live before recorded, then the newest: one rung of this machine
    # does not hide a whole recorded ladder
    ranks = [
        sorted(
            found, key=lambda held: (held[2].profiled, held[1].live, held[1].created), reverse=True
        )
        for found in holders.values()
    ]
    for ranked in sorted(ranks, key=lambda ranked: _place(ranked[0][2])):
        folder, _, family = ranked[0]
        others = tuple(
            (visible(other.title, 80), f"{name}/index.html") for name, other, _ in ranked[1:]
        )
        href = f"{folder}/index.html"
        shown.append(ShownFamily(family, href, folder, others))
    used = {section.folder for section in shown}
    return IndexView(
        "Kernel ladders, profiled" if shown or not parts else "Profiled kernels",
        _lead([part for _, part in parts], sum(not each.family.gallery for each in shown)),
        tuple(shown),
        _runs(parts),
        _common_facts(
            [part for folder, part in parts if folder in used] or [part for _, part in parts]
        ),
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
        " A bar is a kernel's speed; grey bars are libraries. Below them: the bottlenecks on the way."
        if ladders
        else ""
    )
    return f"{counted}{what}, each with its bottleneck, gain and hottest line.{bars}"


def _common_facts(parts: Sequence[IndexPart]) -> tuple[Fact, ...]:
    """The header of the runs shown: what they share, and for what differs, from where to where."""
    headers = [{fact.label: fact.cell for fact in part.facts} for part in parts]
    facts = []
    for label in dict.fromkeys(label for found in headers for label in found):
        cells = [found[label] for found in headers if label in found]
        texts = sorted({cell.text for cell in cells})
        if len(texts) == 1:
            facts.append(Fact(label, cells[0]))
        elif len(texts) == 2 or label == "Date":
            facts.append(
                Fact(
                    label,
                    text(
                        f"{texts[0]} to {texts[-1]}" if label == "Date" else " and ".join(texts),
                        "differs by run",
                    ),
                )
            )
        else:
            facts.append(
                Fact(
                    label,
                    text(
                        f"{len(texts)} different values, see each run",
                        ", ".join(texts),
                        tone="muted",
                    ),
                )
            )
    return tuple(facts)


def _place(family: PartFamily) -> tuple[bool, bool, int, str]:
    """Ladders bound by arithmetic first, then those bound by traffic, last those that climb towards
    no library (planted defects); of each the longest ladder first."""
    problem = problem_for(family.name) if family.name in families() else None
    return (
        problem is None or not problem.baseline,
        problem is None or problem.rate != "flop",
        -len(family.rungs),
        family.name,
    )


def _runs(parts: Sequence[tuple[str, IndexPart]]) -> Table:
    labels = (
        ("run", "Run"),
        ("date", "Date"),
        ("gpu", "GPU"),
        ("origin", "Origin"),
        ("launches", "Launches"),
        ("timings", "Timings"),
        ("what", "What it shows"),
    )
    columns = tuple(
        Column(key, label, "", "", key in ("launches", "timings")) for key, label in labels
    )
    rows = []
    for folder, part in sorted(parts, key=lambda pair: pair[1].created, reverse=True):
        rows.append(
            (
                Cell(visible(part.title), visible(part.title), "", f"{folder}/index.html"),
                Cell(visible(part.created[:16].replace("T", " ")), visible(part.created)),
                text(part.device),
                text("live" if part.live else "recorded"),
                number(part.launches, "count"),
                number(part.timings, "count"),
                text(part.what),
            )
        )
    return Table("runs", "Runs", columns, tuple(rows), sortable=True)
