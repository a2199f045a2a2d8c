"""Reports kept under a name, to hold later ones against: in `.ncu-toolkit/baselines/<name>/` where
one works, or in $NCU_TOOLKIT_BASELINES."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ncu_toolkit.analysis import analyze
from ncu_toolkit.core import files
from ncu_toolkit.core.errors import EnvironmentProblem, InputProblem, ToolkitError, UsageProblem
from ncu_toolkit.report import checksums
from ncu_toolkit.runs import store

VARIABLE: Final = "NCU_TOOLKIT_BASELINES"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ABOUT: Final = "baseline.json"


@dataclass(frozen=True)
class Baseline:
    """One saved baseline. `created` is ISO 8601, UTC."""

    name: str
    created: str
    files: tuple[str, ...]


def root() -> Path:
    """The folder of baselines."""
    return Path(os.environ.get(VARIABLE) or Path(".ncu-toolkit") / "baselines")


def folder_of(name: str) -> Path:
    """A baseline's folder. Raises UsageProblem for a name that could mean another place."""
    if not _NAME.fullmatch(name):
        raise UsageProblem(
            f"'{name}' is not a valid name for a baseline",
            "Use letters, digits, '.', '_' and '-', as in v1.2 or main",
        )
    return root() / name


def save(
    name: str, paths: Sequence[Path], *, replace: bool = False, allow_incomplete: bool = False
) -> Baseline:
    """Keep copies of reports (or of a run's folder with its timings) under a name; each copy has
    its checksum beside it.

    Raises:
        UsageProblem: the name is taken and `replace` is not set, or it is no name.
        InputProblem: a path holds no report, the report cannot be read, or (not with
            `allow_incomplete`) it or a launch in it is incomplete.
    """
    target = folder_of(name)
    if target.exists() and not replace:
        raise _taken(name)
    reports, empty = analyze.find_reports(paths)
    for result in empty:
        if result.error is not None:
            raise result.error
    found = analyze.analyze(reports)
    for result in found.unreadable:
        if result.error is not None:
            raise result.error
    for result in found.partial if not allow_incomplete else ():
        raise InputProblem(
            f"'{result.path}' is incomplete: {result.lacking}",
            "Copy or record it again, or keep it all the same with --allow-incomplete",
        )
    lost = found.incomplete
    if lost and not allow_incomplete:
        more = f", and {len(lost) - 1} more are incomplete" if len(lost) > 1 else ""
        raise InputProblem(
            f"launch {lost[0].key} of '{lost[0].file}' ({lost[0].kernel}) is {lost[0].status}{more}",
            "Nothing can be compared with that: profile it again, or keep it all the same with --allow-incomplete",
        )
    names = [file.name for file in reports]
    if len(set(names)) != len(names):
        raise UsageProblem("two of the reports have the same name", "Save them as two baselines")
    try:
        root().mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=root(), prefix=f".{name}."))
        try:
            for file in reports:
                shutil.copyfile(file, scratch / file.name)
                checksums.write(scratch / file.name)
            for path in paths:
                if (path / store.TIMINGS).is_file() and (path / store.MANIFEST).is_file():
                    shutil.copyfile(path / store.TIMINGS, scratch / store.TIMINGS)
                    shutil.copyfile(path / store.MANIFEST, scratch / store.MANIFEST)
            baseline = Baseline(
                name, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), tuple(names)
            )
            store.write_json(scratch / _ABOUT, "baseline", baseline)
            _put(scratch, target, replace)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    except OSError as error:
        raise EnvironmentProblem(
            f"'{target}' cannot be written: {error.strerror}",
            f"Set {VARIABLE} to a folder you may write",
        ) from None
    return baseline


def _put(scratch: Path, target: Path, replace: bool) -> None:
    """Give a finished folder its name. The old one of that name stays until then, and of several
    that come at once without `replace` one gets it.

    Raises:
        UsageProblem: the name is taken. OSError: it cannot be written.
    """
    try:
        scratch.rename(target)  # onto a folder that holds something it fails
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not replace:
            raise _taken(target.name) from None
        files.exchange(scratch, target)
        shutil.rmtree(scratch, ignore_errors=True)


def _taken(name: str) -> UsageProblem:
    return UsageProblem(
        f"there is a baseline '{name}' already", "Save it under another name, or pass --replace"
    )


def saved() -> tuple[tuple[Baseline, ...], tuple[ToolkitError, ...]]:
    """Every baseline, by name, and the errors of those that cannot be read; folders that are none
    are left out."""
    found, broken = [], []
    for path in sorted(root().glob(f"*/{_ABOUT}")):
        if path.parent.name.startswith("."):
            continue
        try:
            found.append(store.read_json(path, "baseline", Baseline))
        except ToolkitError as error:
            broken.append(error)
    return tuple(found), tuple(broken)


def resolve(text: str) -> Path:
    """A path as it is, or the folder of the baseline of that name.

    Raises:
        UsageProblem: it is empty, which as a path would be the folder one works in.
        InputProblem: there is neither.
    """
    if not text:
        raise UsageProblem(
            "an empty name is no report, folder or baseline",
            "A variable of a script may not be set",
        )
    path = Path(text)
    if path.exists():
        return path
    if _NAME.fullmatch(text) and (root() / text / _ABOUT).is_file():
        return root() / text
    raise InputProblem(
        f"there is no report, folder or baseline '{text}'",
        "`ncu-toolkit baseline list` shows the baselines",
    )
