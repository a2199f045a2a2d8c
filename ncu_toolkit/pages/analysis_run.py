"""An analysis as a run, so that anybody's reports get the same pages as a ladder."""

from __future__ import annotations

import ntpath
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ncu_toolkit import __version__
from ncu_toolkit.analysis.analyze import Analysis
from ncu_toolkit.core import files
from ncu_toolkit.core.units import counted
from ncu_toolkit.diagnosis.engine import diagnose
from ncu_toolkit.model import Device, Instruction, Profile
from ncu_toolkit.model.run import Run, Skipped
from ncu_toolkit.pages.book import Book, open_book
from ncu_toolkit.pages.html import write_run
from ncu_toolkit.pages.run_view import FILTER
from ncu_toolkit.runs import store


def as_run(analysis: Analysis, created: str, *, redacted: bool = False) -> Run:
    """The analysed launches as a run. Needs profiles (`Options.profiles`). How much is missing is
    in the title, which every page shows."""
    profiles = tuple(launch.profile for launch in analysis.launches if launch.profile is not None)
    names = [Path(file.path).name for file in analysis.files]
    title = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    lost = list(_lost(analysis, redacted))
    if lost:
        title += (
            f" (incomplete: {lost[0].reason})"
            if len(lost) == 1
            else f" (incomplete: {len(lost)} files are unreadable or incomplete)"
        )
    versions = sorted({file.ncu_version for file in analysis.files if file.ncu_version})
    sums = sum(bool(file.checksum) for file in analysis.files)
    environment = {
        "Nsight Compute": ", ".join(versions),
        "ncu-toolkit": __version__,
        "Files": str(len(names)),
        "Checksums": _sums(sums, len(names)),
    }
    if analysis.options.kernel:
        environment[FILTER] = (
            f"{analysis.options.kernel}: {sum(file.filtered_out for file in analysis.files)} other launches left out"
        )
    if analysis.options.needs:
        environment["Needs"] = "; ".join(map(str, analysis.options.needs))
    missed = () if redacted else analysis.missed
    command = "ncu-toolkit analyze " + " ".join(names)
    return Run(
        id=title[:60],
        title=title,
        created=created,
        live=False,
        device=profiles[0].device if profiles else Device("unknown", (0, 0)),
        environment=environment,
        commands=(command,),
        profiles=tuple(map(without_private, profiles)) if redacted else profiles,
        skipped=(*lost, *(Skipped("the capture", sentence) for sentence in missed)),
    )


def as_book(analysis: Analysis, run: Run) -> Book:
    """The run of an analysis laid out with the verdicts that the analysis holds; profiles that were
    changed since are judged again."""
    return open_book(
        run,
        diagnose,
        verdicts=[
            (launch.profile, launch.diagnosis)
            for launch in analysis.launches
            if launch.profile is not None
        ],
    )


def write_standalone(analysis: Analysis, target: Path, *, redacted: bool = False) -> Path:
    """Write the analysis as one HTML file that holds everything; returns `target`."""
    run = as_run(analysis, _now(), redacted=redacted)
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch:
        folder = Path(scratch) / "run"
        page = write_run(run, folder, standalone=True, book=as_book(analysis, run))
        files.make_folder(target.parent)
        files.write_atomic(target, page.read_bytes())
    return target


def write_folder(analysis: Analysis, reports: Path, *, redacted: bool = False) -> Path:
    """Write the analysis as pages in a new folder of `reports`; returns the page to open."""
    run = as_run(analysis, _now(), redacted=redacted)
    folder = store.new_run_folder(reports, f"analysis {run.id}")
    return write_run(run, folder, book=as_book(analysis, run), front=False)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _sums(matching: int, files: int) -> str:
    if not matching:
        return "no checksum file" if files == 1 else "no checksum files"
    return f"SHA-256 matches for {matching} of {files}"


def _lost(analysis: Analysis, redacted: bool) -> Iterable[Skipped]:
    for file in analysis.files:
        name = Path(file.path).name
        if file.error is not None:
            message = (
                file.error.message.replace(file.path, name) if redacted else file.error.message
            )
            yield Skipped(name, f"unreadable: {message}")
        elif file.lacking:
            yield Skipped(
                name,
                f"{counted(file.read, 'launch', 'launches')} could be read; {file.lacking.replace(file.path, name) if redacted else file.lacking}",
            )


def without_private(profile: Profile) -> Profile:
    """The profile without embedded source, folders of source files and of the report."""
    return replace(
        profile,
        origin=replace(profile.origin, file=_last(profile.origin.file)),
        instructions=tuple(_row(row) for row in profile.instructions),
        sources={},
    )


def _row(row: Instruction) -> Instruction:
    return replace(row, file=_last(row.file)) if row.file else row


def _last(path: str) -> str:
    """The last component of a POSIX or Windows path."""
    return ntpath.basename(path) or path
