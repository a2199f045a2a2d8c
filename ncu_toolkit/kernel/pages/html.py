"""Writes runs as HTML pages that work from disk: a page for the run, one for each launch, and the
front page over all runs; an analysis as such a run; and the answer to a command as one page."""

import ntpath
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ncu_toolkit import __version__
from ncu_toolkit.base.core.cache import without_collector
from ncu_toolkit.base.core.files import make_folder, write_atomic
from ncu_toolkit.base.core.safe import slug
from ncu_toolkit.base.core.units import counted
from ncu_toolkit.base.core.workers import default_jobs, forked
from ncu_toolkit.base.document.views import Answer
from ncu_toolkit.base.model import Device, Profile
from ncu_toolkit.base.model.run import Run, Skipped
from ncu_toolkit.base.render import html
from ncu_toolkit.kernel.analysis.analyze import Analysis
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.glossary import definitions
from ncu_toolkit.kernel.pages import json as json_out
from ncu_toolkit.kernel.pages.book import FILTER, Across, Book, book_for, open_book
from ncu_toolkit.kernel.pages.code_folds import sources_of
from ncu_toolkit.kernel.pages.index_view import IndexPart, index_view, verdicts
from ncu_toolkit.kernel.pages.page_view import Neighbours, page_view
from ncu_toolkit.kernel.pages.run_view import (
    page_names,
    run_summary,
    run_view,
    with_neighbours,
)
from ncu_toolkit.kernel.runs import store

#: Pages for which another process is worth its start.
PAGES_A_PROCESS = 4


def write_run(
    run: Run, folder: Path, *, book: Book | None = None, front: bool = True, document: bool = True
) -> Path:
    """Write a run's pages into `folder` (assets go beside it, once for all runs) and return the
    page to open.

    Args:
        book: the run laid out with another diagnosis or other ladders; the defaults where None.
        front: a front page over all runs is next to the folder, or is written next
            (`write_front`): the pages link it.
        document: also write what the run's page shows as `report.json`.

    Raises:
        EnvironmentProblem: the disk cannot be written, or plotly's script is missing.
    """
    with without_collector():
        return _write_run(book or book_for(run), folder, front, document)


def write_standalone(book: Book, target: Path) -> Path:
    """Write a run as one file that holds everything; returns `target`.

    Raises:
        EnvironmentProblem: the disk cannot be written, or plotly's script is missing.
    """
    make_folder(target.parent)
    with without_collector():
        return _write(target, html.standalone_page(run_view(book), definitions()))


def _write_run(book: Book, folder: Path, front: bool, document: bool) -> Path:
    view = run_summary(book)
    folder.mkdir(parents=True, exist_ok=True)
    html.write_assets(folder.parent, definitions())
    _write_glossary(folder.parent)
    for table in html.sortable(view):
        write_atomic(folder / f"{slug(table.key)}.csv", html.table_csv(table).encode())
    up = "../"
    above = [("Ladders", f"{up}index.html")] if front else []
    launches = with_neighbours(book)
    shared = html.Shared(sources_of(book.run.profiles))
    folds = {"pack": shared.pack, "hot": shared.hot}

    def page_of(launch: tuple[Profile, Neighbours]) -> tuple[Path, str]:
        page = page_view(book, *launch)
        name = page.title.partition(": ")[0]  # the rest, which may tell the cause, is the heading's
        crumbs = [*above, (view.title, "index.html"), (name, "")]
        values = {"view": page, "title": f"{page.title}: {page.kicker}", "crumbs": crumbs}
        text = html.drawn(
            "page.html", definitions(), **values, **folds, **html.linked(up, (html.SHARED,))
        )
        return folder / f"{page.slug}.html", text

    def write_pages(some: Sequence[tuple[Profile, Neighbours]]) -> None:
        for launch in some:
            _write(*page_of(launch))

    if launches:
        page_of(_typical(book, launches))
        shared.sampled = True
        write_atomic(folder / html.SHARED, shared.script().encode())
    # launches of one kernel in turn, since what its code shows is found once in a process; longest first
    alike = sorted(launches, key=lambda one: (-len(one[0].instructions), one[0].launch.kernel))
    some = [alike[at : at + PAGES_A_PROCESS] for at in range(0, len(alike), PAGES_A_PROCESS)]
    forked(write_pages, some, jobs=default_jobs())
    if document:
        write_atomic(
            folder / "report.json", json_out.document(view, book, page_names(book)).encode()
        )
    crumbs = [*above, (view.title, "")]
    values = {"view": view, "title": view.title, "crumbs": crumbs}
    text = html.drawn("run.html", definitions(), **values, **folds, **html.linked(up))
    return _write(folder / "index.html", text)


def _typical(
    book: Book, launches: Sequence[tuple[Profile, Neighbours]]
) -> tuple[Profile, Neighbours]:
    """A launch from the middle, if there is one per step, whose page has most sections."""
    ordered = [*launches[len(launches) // 2 :], *launches]
    steps = (each for each in ordered if (e := book.entry_of(each[0])) and e.before)
    return next(steps, ordered[0])


def write_front(reports: Path, parts: Sequence[tuple[str, IndexPart]]) -> Path:
    """Write `reports/index.html` over runs given as (folder name, what the run gives to it); returns
    it.

    Raises:
        EnvironmentProblem: the disk cannot be written, or plotly's script is missing.
    """
    make_folder(reports)
    html.write_assets(reports, definitions())
    view = index_view(parts)
    write_atomic(reports / "runs.csv", html.table_csv(view.runs).encode())
    values = {"view": view, "title": view.title, "verdicts": verdicts}
    text = html.drawn(
        "index.html", definitions(), crumbs=[("Ladders", "")], **values, **html.linked("")
    )
    path = _write(reports / "index.html", text)
    _write_glossary(reports)
    return path


def write_answer(
    shown: Answer, title: str, target: Path, crumbs: Sequence[tuple[str, str]] = ()
) -> Path:
    """Write an answer as a page that needs nothing else; returns `target`. `crumbs` are labels and
    addresses above it.

    Raises:
        EnvironmentProblem: the file cannot be written.
    """
    make_folder(target.parent)
    return _write(target, html.answer_page(shown, title, definitions(), crumbs))


def _write_glossary(reports: Path) -> None:
    """The glossary's page, which links the front page where there is one: that is written first,
    else it is written again with it."""
    above = [("Ladders", "index.html")] if (reports / "index.html").is_file() else []
    values = {"title": "Glossary", "crumbs": [*above, ("Glossary", "")]}
    _write(
        reports / html.GLOSSARY,
        html.drawn("glossary.html", definitions(), **values, **html.linked("")),
    )


def _write(path: Path, page: str) -> Path:
    write_atomic(path, page.encode("utf-8", "backslashreplace"))
    return path


def as_run(analysis: Analysis, created: str, *, redacted: bool = False) -> Run:
    """The analysed launches as a run. Needs profiles (`Options.profiles`). How much is missing is
    in the title, which every page shows."""
    profiles = [launch.profile for launch in analysis.launches if launch.profile is not None]
    if redacted:
        profiles = list(map(_without_private, profiles))
    names = [Path(file.path).name for file in analysis.files]
    title = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    lost = list(_lost(analysis, redacted))
    if lost:
        many = f"{len(lost)} files are unreadable or incomplete"
        title += f" (incomplete: {lost[0].reason if len(lost) == 1 else many})"
    sums = sum(bool(file.checksum) for file in analysis.files)
    unchecked = "no checksum file" if len(names) == 1 else "no checksum files"
    environment = {
        "Nsight Compute": ", ".join(sorted({file.ncu_version for file in analysis.files} - {""})),
        "ncu-toolkit": __version__,
        "Files": str(len(names)),
        "Checksums": f"SHA-256 matches for {sums} of {len(names)}" if sums else unchecked,
    }
    if analysis.options.kernel:
        others = sum(file.filtered_out for file in analysis.files)
        environment[FILTER] = f"{analysis.options.kernel}: {others} other launches left out"
    if analysis.options.needs:
        environment["Needs"] = "; ".join(map(str, analysis.options.needs))
    missed = () if redacted else analysis.missed
    return Run(
        id=title[:60],
        title=title,
        created=created,
        live=False,
        device=profiles[0].device if profiles else Device("unknown", (0, 0)),
        environment=environment,
        commands=("ncu-toolkit analyze " + " ".join(names),),
        profiles=tuple(profiles),
        skipped=(*lost, *(Skipped("the capture", sentence) for sentence in missed)),
    )


def _book(analysis: Analysis, redacted: bool, across: Across | None) -> Book:
    """The run of an analysis, made now, with the verdicts that the analysis holds; profiles that
    were changed since are judged again."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    known = [(each.profile, each.diagnosis) for each in analysis.launches if each.profile]
    return open_book(
        as_run(analysis, created, redacted=redacted), diagnose, verdicts=known, across=across
    )


def write_analysis(
    analysis: Analysis, target: Path, *, redacted: bool = False, across: Across | None = None
) -> Path:
    """Write the analysis as one HTML file that holds everything; returns `target`. `across`: as in
    `Book`."""
    return write_standalone(_book(analysis, redacted, across), target)


def write_analysis_folder(
    analysis: Analysis, reports: Path, *, redacted: bool = False, across: Across | None = None
) -> Path:
    """Write the analysis as pages in a new folder of `reports`; returns the page to open. `across`: as
    in `Book`."""
    book = _book(analysis, redacted, across)
    folder = store.new_run_folder(reports, f"analysis {book.run.id}")
    return write_run(book.run, folder, book=book, front=False)


def _lost(analysis: Analysis, redacted: bool) -> Iterable[Skipped]:
    for file in analysis.files:
        name = Path(file.path).name
        why = file.error.message if file.error else file.lacking
        if redacted:
            why = why.replace(file.path, name)
        if file.error:
            yield Skipped(name, f"unreadable: {why}")
        elif why:
            yield Skipped(name, f"{counted(file.read, 'launch')} could be read; {why}")


def _without_private(profile: Profile) -> Profile:
    """The profile without embedded source, folders of source files and of the report."""
    rows = (replace(row, file=_last(row.file)) if row.file else row for row in profile.instructions)
    origin = replace(profile.origin, file=_last(profile.origin.file))
    return replace(profile, origin=origin, instructions=tuple(rows), sources={})


def _last(path: str) -> str:
    """The last component of a POSIX or Windows path."""
    return ntpath.basename(path) or path
