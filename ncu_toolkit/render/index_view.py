"""The front page: every family once, from the run that shows it best, and a list of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ncu_toolkit.core.safe import slug, visible
from ncu_toolkit.ladder.problems import families, problem_for
from ncu_toolkit.model.codec import from_plain, to_plain
from ncu_toolkit.render.book import Book
from ncu_toolkit.render.calibration_view import calibration
from ncu_toolkit.render.family_view import family_view, primary
from ncu_toolkit.render.run_view import header, others, skipped
from ncu_toolkit.render.views import Cell, Column, Fact, FamilyView, Table, number, text


@dataclass(frozen=True)
class ShownFamily:
    """A family's section on the front page: from which run (`folder`, `href`), the panel shown
    `first`, and which other runs hold it."""

    family: FamilyView
    ns: str
    first: str
    folder: str
    href: str
    run_title: str
    origin: str
    others: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ShownTable:
    """A table of one run on the front page."""

    table: Table
    ns: str
    folder: str
    title: str


@dataclass(frozen=True)
class PartFamily:
    """A ladder of one run: the key of the panel to show first, of how many rungs there are
    profiles, and its view as plain JSON values.

    The view is built only where it is shown: of many runs of a ladder one is.
    """

    name: str
    first: str
    profiled: int
    plain: Any

    @property
    def view(self) -> FamilyView:
        """Raises InputProblem where the plain values are not a view."""
        return from_plain(FamilyView, self.plain)


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
    calibration: Table | None
    skipped: Table | None


def _others(book: Book) -> str:
    """The launches that are no rung, in one line."""
    found = others(book)
    return found.line if found else "no launches"


def index_part(book: Book) -> IndexPart:
    """A run's part of the front page."""
    run = book.run
    found = []
    for family in book.families:
        variant = primary(book, family)
        profiled = {
            entry.rung for entry in book.entries if entry.family == family and entry.profiles
        }
        found.append(
            PartFamily(
                family,
                slug(f"{family}-{variant.size}-{variant.dtype}"),
                len(profiled),
                to_plain(family_view(book, family)),
            )
        )
    return IndexPart(
        run.title, run.created, run.live, run.device.name, len(run.profiles), len(run.timings), ", ".join(book.families) or _others(book),
        tuple(found), tuple(header(book)), calibration(book), skipped(book),
    )  # fmt: skip


@dataclass(frozen=True)
class IndexView:
    """Everything on the front page. `facts` are what the runs shown have in common."""

    title: str
    families: tuple[ShownFamily, ...]
    runs: Table
    facts: tuple[Fact, ...]
    calibration: tuple[ShownTable, ...]
    skipped: tuple[ShownTable, ...]


def index_view(parts: Sequence[tuple[str, IndexPart]]) -> IndexView:
    """`parts` are (folder name, the run's part)."""
    holders: dict[str, list[tuple[str, IndexPart, PartFamily]]] = {}
    for folder, part in parts:
        for family in part.families:
            holders.setdefault(family.name, []).append((folder, part, family))
    shown = []
    for _, found in sorted(holders.items(), key=lambda item: _place(item[0])):
        # more rungs profiled first, then live before recorded, then the newest: one rung of this
        # machine does not hide a whole recorded ladder
        ranked = sorted(
            found, key=lambda held: (held[2].profiled, held[1].live, held[1].created), reverse=True
        )
        folder, part, family = ranked[0]
        others = tuple(
            (visible(other.title, 80), f"{name}/index.html") for name, other, _ in ranked[1:]
        )
        origin = visible(
            f"{'live' if part.live else 'recorded'} on {part.device}, {part.created[:10]}"
        )
        ns, href = f"{slug(folder)}-", f"{folder}/index.html"
        shown.append(
            ShownFamily(
                family.view, ns, family.first, folder, href, visible(part.title), origin, others
            )
        )
    used = {section.folder for section in shown}
    tables = [(folder, part) for folder, part in parts if folder in used]
    return IndexView(
        "Kernel ladders, profiled" if shown or not parts else "Profiled kernels",
        tuple(shown),
        _runs(parts),
        _common_facts([part for folder, part in tables] or [part for _, part in parts]),
        tuple(
            ShownTable(part.calibration, f"{slug(folder)}-", folder, visible(part.title))
            for folder, part in tables
            if part.calibration
        ),
        tuple(
            ShownTable(part.skipped, f"{slug(folder)}-", folder, visible(part.title))
            for folder, part in tables
            if part.skipped
        ),
    )


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
                    text(f"{len(texts)} different, see each run", ", ".join(texts), tone="muted"),
                )
            )
    return tuple(facts)


def _place(family: str) -> tuple[bool, bool, str]:
    """Ladders bound by arithmetic first, then those bound by traffic, last those that climb towards
    no library (planted defects)."""
    if family not in families():
        return True, True, family
    problem = problem_for(family)
    return not problem.baseline, problem.rate != "flop", family


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
