"""Baselines: reports kept under a name, to compare later reports with. A baseline is a run's folder in
`.ncu-toolkit/baselines/<name>/` where one works, or in $NCU_TOOLKIT_BASELINES."""

import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import Any, Final

from ncu_toolkit import __version__
from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import InputProblem, ToolkitError, UsageProblem, refused
from ncu_toolkit.base.model.codec import from_plain
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.kernel.analysis import analyze, gate
from ncu_toolkit.kernel.runs import store

VARIABLE: Final = "NCU_TOOLKIT_BASELINES"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: What earlier versions wrote instead of run.json.
_EARLIER: Final = "baseline.json"


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


def read(
    paths: Sequence[Path],
    options: analyze.Options | None = None,
    *,
    timeout: float = analyze.DEFAULT_TIMEOUT,
    allow_incomplete: bool = False,
) -> analyze.Analysis:
    """Reports that can be compared. Raises ToolkitError where a report cannot be read, and
    InputProblem where one is incomplete, unless `allow_incomplete`."""
    found = analyze.analyze(paths, options, timeout=timeout)
    for file in found.unreadable:
        if file.error is not None:
            raise file.error
    for file in found.partial if not allow_incomplete else ():
        raise file.incomplete
    return found


def save(
    name: str, paths: Sequence[Path], *, replace: bool = False, allow_incomplete: bool = False
) -> Run:
    """Copy reports (or a run's folder with its timings) to a baseline.

    Raises:
        UsageProblem: the name is taken and `replace` is not set, or it is no name.
        InputProblem: a report cannot be read, or (not with `allow_incomplete`) it or a launch in it
            is incomplete.
    """
    target = folder_of(name)
    if target.exists() and not replace:
        raise _taken(name)
    lost = read(paths, allow_incomplete=allow_incomplete).incomplete
    if lost and not allow_incomplete:
        more = f", and {len(lost) - 1} more are incomplete" if len(lost) > 1 else ""
        raise InputProblem(
            f"launch {lost[0].key} of '{lost[0].file}' ({lost[0].function}) is {lost[0].status}{more}",
            "Nothing can be compared with that: profile it again, or keep it all the same with --allow-incomplete",
        )
    reports, _ = analyze.find_reports(paths)
    names = tuple(file.name for file in reports)
    if len(set(names)) != len(names):
        raise UsageProblem("two of the reports have the same name", "Save them as two baselines")
    run = Run(name, name, "", __version__)
    for path in paths:
        if (path / store.MANIFEST).is_file():
            run = changed(store.load_manifest(path), timings=store.load_timings(path))
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    run = changed(run, id=name, created=created, report_files=names)
    with refused(f"'{target}' cannot be written", f"Set {VARIABLE} to a folder you may write"):
        root().mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=root(), prefix=f".{name}."))
        try:
            for file in reports:
                shutil.copyfile(file, scratch / file.name)
            store.save(scratch, run)
            scratch.chmod(files.permitted(0o777))
            _put(scratch, target, replace)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    return run


def _put(scratch: Path, target: Path, replace: bool) -> None:
    """Give a finished folder its name, which the old one keeps until then. Of several at once
    without `replace` one gets it. Raises UsageProblem where the name is taken, and OSError."""
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
    remedy = "Save it under another name, or pass --replace"
    return UsageProblem(f"there is a baseline '{name}' already", remedy)


def saved() -> tuple[tuple[Path, Run | ToolkitError], ...]:
    """Folder and run of every baseline by name, or the error of one that cannot be read."""
    found = dict(store.runs_under(root()))
    for path in root().glob(f"*/{_EARLIER}"):
        if path.parent not in found:
            try:
                plain = store.read_json(path, "baseline", dict[str, Any])
                known = dict.fromkeys(("id", "title"), path.parent.name)
                plain |= {**known, "report_files": plain.get("files")}
                found[path.parent] = from_plain(Run, plain, str(path))
            except ToolkitError as error:
                found[path.parent] = error
    return tuple((at, found[at]) for at in sorted(found) if not at.name.startswith("."))


def find(name: str) -> Path:
    """The folder of a baseline. Raises UsageProblem for no name, InputProblem where there is
    none."""
    folder = folder_of(name)
    if not _is_there(folder):
        raise InputProblem(
            f"there is no baseline '{name}'",
            f"Keep one with `ncu-toolkit baseline save {name} REPORT`; `ncu-toolkit baseline list` shows them",
        )
    return folder


def _is_there(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (store.MANIFEST, _EARLIER))


def timings_of(path: Path) -> gate.Sides:
    """The unprofiled times of a run's folder; empty for anything else. Raises InputProblem."""
    if not (path / store.MANIFEST).is_file():
        return {}
    device = store.load_manifest(path).device.name
    return gate.sides_of_timings(store.load_timings(path), device)


def resolve(text: str) -> Path:
    """A path as it is, or the folder of the baseline of that name. Raises UsageProblem where it is
    empty (as a path the current folder), and InputProblem where there is neither."""
    if not text:
        raise UsageProblem(
            "an empty name is not a report, folder or baseline",
            "A variable of a script may not be set",
        )
    path = Path(text)
    if path.exists():
        return path
    if _NAME.fullmatch(text) and _is_there(root() / text):
        return root() / text
    raise InputProblem(
        f"there is no report, folder or baseline '{text}'",
        "`ncu-toolkit baseline list` shows the baselines",
    )
