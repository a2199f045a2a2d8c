"""The front page: every family once, from the run that shows it best, and a list of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ncu_toolkit.problems import families, problem_for
from ncu_toolkit.render.book import Book
from ncu_toolkit.render.family_view import family_view
from ncu_toolkit.render.run_view import calibration, header, skipped, strangers_sentence
from ncu_toolkit.render.safe import slug, visible
from ncu_toolkit.render.views import Cell, Column, Fact, FamilyView, Table, number, text


@dataclass(frozen=True)
class ShownFamily:
    """A family's section on the front page: from which run (`folder`, `href`), and which other runs hold it."""

    family: FamilyView
    ns: str
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
class IndexView:
    """Everything on the front page. `facts` are what the runs shown have in common."""

    title: str
    families: tuple[ShownFamily, ...]
    runs: Table
    facts: tuple[Fact, ...]
    calibration: tuple[ShownTable, ...]
    skipped: tuple[ShownTable, ...]


def index_view(books: Sequence[tuple[str, Book]]) -> IndexView:
    """`books` are (folder name, run laid out)."""
    holders: dict[str, list[tuple[str, Book]]] = {}
    for folder, book in books:
        for family in book.families:
            holders.setdefault(family, []).append((folder, book))
    shown = []
    for family, found in sorted(holders.items(), key=lambda item: _place(item[0])):
        ranked = sorted(found, key=lambda pair: _preference(pair[1], family), reverse=True)
        folder, book = ranked[0]
        others = tuple((visible(other.run.title, 80), f"{name}/index.html") for name, other in ranked[1:])
        shown.append(
            ShownFamily(family_view(book, family), f"{slug(folder)}-", folder, f"{folder}/index.html", visible(book.run.title), _origin(book), others)
        )
    used = {section.folder for section in shown}
    tables = [(folder, book) for folder, book in books if folder in used]
    return IndexView(
        "Kernel ladders, profiled" if shown or not books else "Profiled kernels",
        tuple(shown),
        _runs(books),
        _common_facts([book for folder, book in tables] or [book for _, book in books]),
        tuple(ShownTable(table, f"{slug(folder)}-", folder, visible(book.run.title)) for folder, book in tables if (table := calibration(book))),
        tuple(ShownTable(table, f"{slug(folder)}-", folder, visible(book.run.title)) for folder, book in tables if (table := skipped(book))),
    )


def _common_facts(books: Sequence[Book]) -> tuple[Fact, ...]:
    """The header of the runs shown: what they share, and for what differs, from where to where."""
    headers = [{fact.label: fact.cell for fact in header(book)} for book in books]
    facts = []
    for label in dict.fromkeys(label for found in headers for label in found):
        cells = [found[label] for found in headers if label in found]
        texts = sorted({cell.text for cell in cells})
        if len(texts) == 1:
            facts.append(Fact(label, cells[0]))
        elif len(texts) == 2 or label == "Date":
            facts.append(Fact(label, text(f"{texts[0]} to {texts[-1]}" if label == "Date" else " and ".join(texts), "differs by run")))
        else:
            facts.append(Fact(label, text(f"{len(texts)} different, see each run", ", ".join(texts), tone="muted")))
    return tuple(facts)


def _place(family: str) -> tuple[bool, bool, str]:
    """Ladders bound by arithmetic first, then those bound by traffic, last those that climb towards no library (planted defects)."""
    if family not in families():
        return True, True, family
    problem = problem_for(family)
    return not problem.baseline, problem.rate != "flop", family


def _preference(book: Book, family: str) -> tuple[int, bool, str]:
    """More rungs profiled first, then live before recorded, then the newest: one rung of this machine does not hide a whole recorded ladder."""
    rungs = {entry.rung for entry in book.entries if entry.family == family and entry.profiles}
    return len(rungs), book.run.live, book.run.created


def _origin(book: Book) -> str:
    return visible(f"{'live' if book.run.live else 'recorded'} on {book.run.device.name}, {book.run.created[:10]}")


def _runs(books: Sequence[tuple[str, Book]]) -> Table:
    labels = (
        ("run", "Run"),
        ("date", "Date"),
        ("gpu", "GPU"),
        ("origin", "Origin"),
        ("launches", "Launches"),
        ("timings", "Timings"),
        ("what", "What it shows"),
    )
    columns = tuple(Column(key, label, "", "", key in ("launches", "timings")) for key, label in labels)
    rows = []
    for folder, book in sorted(books, key=lambda pair: pair[1].run.created, reverse=True):
        run = book.run
        what = ", ".join(book.families) or strangers_sentence(book)
        rows.append(
            (
                Cell(visible(run.title), visible(run.title), "", f"{folder}/index.html"),
                Cell(visible(run.created[:16].replace("T", " ")), visible(run.created)),
                text(run.device.name),
                text("live" if run.live else "recorded"),
                number(len(run.profiles), "count"),
                number(len(run.timings), "count"),
                text(what),
            )
        )
    return Table("runs", "Runs", columns, tuple(rows), sortable=True)
