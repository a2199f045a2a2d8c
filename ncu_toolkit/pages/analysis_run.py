"""An analysis as a run, so that anybody's reports get the same pages as a ladder."""

from __future__ import annotations

import ntpath
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ncu_toolkit import __version__
from ncu_toolkit.analysis.analyze import Analysis
from ncu_toolkit.core.units import counted
from ncu_toolkit.diagnosis.engine import diagnose
from ncu_toolkit.model import Device, Profile
from ncu_toolkit.model.run import Run, Skipped
from ncu_toolkit.pages import html
from ncu_toolkit.pages.book import Book, open_book
from ncu_toolkit.pages.run_view import FILTER
from ncu_toolkit.runs import store


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


def _book(analysis: Analysis, redacted: bool) -> Book:
    """The run of an analysis, made now, with the verdicts that the analysis holds; profiles that
    were changed since are judged again."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    known = [(each.profile, each.diagnosis) for each in analysis.launches if each.profile]
    return open_book(as_run(analysis, created, redacted=redacted), diagnose, verdicts=known)


def write_standalone(analysis: Analysis, target: Path, *, redacted: bool = False) -> Path:
    """Write the analysis as one HTML file that holds everything; returns `target`."""
    return html.write_standalone(_book(analysis, redacted), target)


def write_folder(analysis: Analysis, reports: Path, *, redacted: bool = False) -> Path:
    """Write the analysis as pages in a new folder of `reports`; returns the page to open."""
    book = _book(analysis, redacted)
    folder = store.new_run_folder(reports, f"analysis {book.run.id}")
    return html.write_run(book.run, folder, book=book, front=False)


def _lost(analysis: Analysis, redacted: bool) -> Iterable[Skipped]:
    for file in analysis.files:
        name = Path(file.path).name
        why = file.error.message if file.error else file.lacking
        if redacted:
            why = why.replace(file.path, name)
        if file.error:
            yield Skipped(name, f"unreadable: {why}")
        elif why:
            yield Skipped(name, f"{counted(file.read, 'launch', 'launches')} could be read; {why}")


def _without_private(profile: Profile) -> Profile:
    """The profile without embedded source, folders of source files and of the report."""
    rows = (replace(row, file=_last(row.file)) if row.file else row for row in profile.instructions)
    origin = replace(profile.origin, file=_last(profile.origin.file))
    return replace(profile, origin=origin, instructions=tuple(rows), sources={})


def _last(path: str) -> str:
    """The last component of a POSIX or Windows path."""
    return ntpath.basename(path) or path
