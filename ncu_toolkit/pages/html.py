"""Runs as HTML pages that work from disk: a page for the run, one for each launch, and the front
page over all runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
from jinja2 import Environment
from markupsafe import Markup

from ncu_toolkit.core.files import make_folder, write_atomic
from ncu_toolkit.core.safe import csv_rows, script_json, slug, visible
from ncu_toolkit.core.workers import default_jobs, forked, without_collector
from ncu_toolkit.document.views import RunView, Table
from ncu_toolkit.model import Profile
from ncu_toolkit.model.run import Run
from ncu_toolkit.pages import json as json_out
from ncu_toolkit.pages.book import Book, Diagnose, open_book
from ncu_toolkit.pages.family_view import primary
from ncu_toolkit.pages.hotspots import sources_of
from ncu_toolkit.pages.index_view import IndexPart, index_view, verdicts
from ncu_toolkit.pages.page_view import Neighbours, page_view
from ncu_toolkit.pages.run_view import run_summary, run_view, with_neighbours
from ncu_toolkit.render.assets_out import GLOSSARY, inlined, linked, packed, write_assets
from ncu_toolkit.render.card_html import environment, unbroken
from ncu_toolkit.render.glossary_view import groups
from ncu_toolkit.render.markup import FUNCTIONS

STANDALONE = "report.html"
#: Rows of the table of launches that a page holds as they are; the rest are packed.
PLAIN_ROWS: Final = 300
#: Pages for which another process is worth its start.
PAGES_A_PROCESS = 4


def default_diagnose() -> Diagnose:
    """The toolkit's own diagnosis, imported when first needed."""
    from ncu_toolkit.diagnosis.engine import diagnose

    return diagnose


def write_run(
    run: Run,
    folder: Path,
    *,
    standalone: bool = False,
    book: Book | None = None,
    front: bool = True,
    document: bool = True,
) -> Path:
    """Write a run's pages into `folder` (assets go beside it, once for all runs) and return the
    page to open.

    Args:
        standalone: write one file that holds everything instead, `report.html`.
        book: the run laid out with another diagnosis or other ladders; the defaults where None.
        front: a front page over all runs lies beside the folder, or is written next
            (`write_front`): the pages link it.
        document: also write what the run's page shows as `report.json`.

    Raises:
        EnvironmentProblem: the disk cannot be written, or plotly's script is missing.
    """
    with without_collector():
        return _write_run(book or book_for(run), folder, standalone, front, document)


def _write_run(book: Book, folder: Path, standalone: bool, front: bool, document: bool) -> Path:
    view = run_view(book) if standalone else run_summary(book)
    firsts = {name: _first(book, name) for name in book.families}
    folder.mkdir(parents=True, exist_ok=True)
    if standalone:
        return _write_standalone(view, folder, firsts)
    write_assets(folder.parent)
    _write_glossary(folder.parent)
    for table in _sortable(view):
        write_atomic(folder / f"{slug(table.key)}.csv", table_csv(table).encode())
    up = "../"
    above = [("Ladders", f"{up}index.html")] if front else []
    launches = with_neighbours(book)
    shared = Shared(book.run.profiles)

    def page_of(launch: tuple[Profile, Neighbours]) -> tuple[Path, str]:
        page = page_view(book, *launch)
        name = page.title.partition(": ")[0]  # the rest, which may tell the cause, is the heading's
        crumbs = [*above, (view.title, "index.html"), (name, "")]
        values = {"view": page, "title": f"{page.title}: {page.kicker}", "crumbs": crumbs}
        text = _drawn("page.html", **values, **_addresses(shared), **linked(up, (SHARED,)))
        return folder / f"{page.slug}.html", text

    def write_page(launch: tuple[Profile, Neighbours]) -> None:
        _save(*page_of(launch))

    if launches:
        page_of(_typical(book, launches))
        shared.sampled = True
        write_atomic(folder / SHARED, shared.script().encode())
    forked(write_page, launches, jobs=default_jobs(), least=PAGES_A_PROCESS)
    _write(
        folder / "index.html",
        "run.html",
        view=view,
        title=view.title,
        crumbs=[*above, (view.title, "")],
        first_panel=lambda f: firsts[f.name],
        **_addresses(shared),
        **linked(up),
    )
    if document:
        write_atomic(folder / "report.json", json_out.document(view).encode())
    return folder / "index.html"


def _typical(
    book: Book, launches: Sequence[tuple[Profile, Neighbours]]
) -> tuple[Profile, Neighbours]:
    """A launch from the middle, if there is one a step, whose page has most sections."""
    ordered = [*launches[len(launches) // 2 :], *launches]
    steps = (each for each in ordered if (e := book.entry_of(each[0])) and book.before(e))
    return next(steps, ordered[0])


def _addresses(shared: Shared) -> dict[str, Any]:
    """How the pages of a folder link each other, and where they put what is folded."""
    return {"link": _link, "csv": _csv_link, "pack": shared.pack, "hot": shared.hot}


def write_front(reports: Path, parts: Sequence[tuple[str, IndexPart]]) -> Path:
    """Write `reports/index.html` over runs given as (folder name, what the run gives to it); returns
    it.

    Raises:
        EnvironmentProblem: the disk cannot be written, or plotly's script is missing.
    """
    make_folder(reports)
    write_assets(reports)
    view = index_view(parts)
    write_atomic(reports / "runs.csv", table_csv(view.runs).encode())
    path = reports / "index.html"
    _write(
        path,
        "index.html",
        view=view,
        title=view.title,
        crumbs=[("Ladders", "")],
        link=_link,
        csv=_csv_link,
        verdicts=verdicts,
        **linked(""),
    )
    _write_glossary(reports)
    return path


#: The last runs laid out: the front page follows the run's own pages, and diagnosing is most of the
#: time.
_recent: deque[tuple[Run, Book]] = deque(maxlen=16)


def book_for(run: Run) -> Book:
    """The run laid out with the toolkit's own diagnosis and ladders."""
    for known, book in _recent:
        if known is run:
            return book
    _recent.append((run, open_book(run, default_diagnose())))
    return _recent[-1][1]


def table_csv(table: Table) -> str:
    """A table as CSV: numbers in the unit that the heading names, text made harmless for
    spreadsheets, n/a as empty fields."""
    header = [
        f"{column.label} ({column.unit})" if column.unit else column.label
        for column in table.columns
    ]
    return csv_rows([header, *([cell.value for cell in row] for row in table.rows)])


def _write_standalone(view: RunView, folder: Path, firsts: dict[str, str]) -> Path:
    csvs = Markup("").join(
        Markup('<script type="application/json" id="csv-{}">{}</script>').format(
            table.key, _json_block(table_csv(table))
        )
        for table in _sortable(view)
    )
    parts = inlined()
    parts["tail"] = csvs + Markup(parts["tail"])
    link = partial(_inner_link, {page.slug for page in view.pages})
    _write(
        folder / STANDALONE,
        "standalone.html",
        view=view,
        title=view.title,
        crumbs=[(view.title, "")],
        link=link,
        csv=lambda table: f"#{slug(table.key)}",
        pack=lambda _, body: body,
        hot=lambda data: packed(_compact(data)),
        first_panel=lambda f: firsts[f.name],
        groups=groups(),
        leaf=Leaves(),
        **parts,
    )
    return folder / STANDALONE


#: What the pages of a folder have in common, beside them.
SHARED: Final = "shared.js"
#: Bytes that a deflate stream can look back (RFC 1951), less some room.
_WINDOW: Final = 32_000


class Shared:
    """Folded sections and code of a folder's pages, packed for the page's script.

    Pages are much alike, so two things are written once, into SHARED: source text, and the
    sections of one page, which those of all pages are compressed against."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._samples: dict[str, str] = {}
        self._sources = {source: at for at, source in enumerate(sources_of(profiles))}
        self.sampled = False
        """Whether the sample is taken: until then, sections are kept and not packed."""

    def pack(self, key: str, body: Markup) -> Markup:
        """A folded section as text that the page's script unpacks; those with a `key` by its
        sample."""
        text = str(_finalize(body)).encode("utf-8", "backslashreplace")
        if key and not self.sampled:
            self._samples[key] = text[:_WINDOW].decode("utf-8", "ignore")
            return Markup("")
        sample = self._samples.get(key, "") if key else ""
        return Markup('<script type="text/plain" class="part" data-key="{}">{}</script>').format(
            key if sample else "", packed(text, sample.encode())
        )

    def hot(self, data: Mapping[str, Any]) -> str:
        """The code of a page, its source as places in SHARED."""
        places = [
            self._sources[start, lines]
            for start, lines in zip(data["from"], data["sources"], strict=True)
        ]
        return packed(_compact({**data, "from": [], "sources": places}))

    def script(self) -> str:
        """The content of SHARED."""
        sources = [list(source) for source in self._sources]
        shared = {
            "samples": packed(_compact(self._samples)),
            "sources": packed(_compact(sources)),
        }
        return f"window.ncuShared={script_json(shared)};\n"


def _compact(data: Any) -> bytes:
    return msgspec.json.encode(data)


#: Bytes of pages that a single file holds as they are. A browser needs some 0.1 s for each megabyte
#: before it shows anything.
PLAIN_BYTES: Final = 2 << 20


class Leaves:
    """The pages of a single file, called for one after the other: as they are up to PLAIN_BYTES,
    then packed for the page's script to unpack."""

    def __init__(self) -> None:
        self._plain = 0
        self.packed = 0

    def __call__(self, name: str, body: str) -> Markup:
        data = str(_finalize(Markup(body))).encode("utf-8", "backslashreplace")
        self._plain += len(data)
        if self._plain <= PLAIN_BYTES:
            return Markup('<div class="leaf" id="page-{}">{}</div>').format(name, Markup(body))
        self.packed += 1
        return Markup(
            '<script type="text/plain" class="packed" data-page="page-{}">{}</script>'
        ).format(name, packed(data))


def _first(book: Book, family: str) -> str:
    variant = primary(book, family)
    return slug(f"{family}-{variant.size}-{variant.dtype}")


def _sortable(view: RunView) -> list[Table]:
    panels = [panel.table for family in view.families for panel in family.panels]
    return [
        table
        for table in (*panels, *([view.launches] if view.launches else []), *view.calibration)
        if table.sortable
    ]


def _link(href: str) -> str:
    """An address relative to the page. The leading dot keeps anything in it from being read as a
    scheme."""
    return "./" + quote(href)


def _inner_link(pages: set[str], href: str) -> str:
    """Inside a single file: a page by its fragment; a file beside it as it is."""
    name = href.removesuffix(".html")
    return f"#page-{name}" if name in pages else _link(href)


def _csv_link(table: Table) -> str:
    return f"./{slug(table.key)}.csv"


def _json_block(data: Any) -> Markup:
    return Markup(script_json(data))


def _finalize(value: Any) -> Any:
    """Last look at every text of a page: thin spaces that do not break a line between number and
    unit, and nothing invisible."""
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return unbroken(visible(value, len(value), keep="\n\t") if plain else value)


@cache
def _environment() -> Environment:
    made = environment(_finalize)
    made.filters["slug"] = slug
    made.globals.update(
        json_block=_json_block,
        packed_json=lambda data: packed(_compact(data)),
        PLAIN_ROWS=PLAIN_ROWS,
        **FUNCTIONS,
    )
    return made


def _drawn(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)


def _save(path: Path, page: str) -> None:
    write_atomic(path, page.encode("utf-8", "backslashreplace"))


def _write(path: Path, template: str, **values: Any) -> None:
    _save(path, _drawn(template, **values))


def _write_glossary(reports: Path) -> None:
    """The glossary's page, which links the front page where there is one: that is written first,
    else it is written again with it."""
    crumbs = [
        *([("Ladders", "index.html")] if (reports / "index.html").is_file() else []),
        ("Glossary", ""),
    ]
    _write(
        reports / GLOSSARY,
        "glossary.html",
        title="Glossary",
        crumbs=crumbs,
        groups=groups(),
        **linked(""),
    )


__all__ = ["STANDALONE", "table_csv", "write_front", "write_run"]
