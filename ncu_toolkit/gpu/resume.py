"""A ladder's run that stopped part-way: found, held against this machine and these kernels, and
made ready to go on where it ended."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ncu_toolkit.build import nvcc
from ncu_toolkit.core.errors import EnvironmentProblem, InputProblem, ToolkitError, UsageProblem
from ncu_toolkit.gpu import collect, profiling, session
from ncu_toolkit.gpu.selection import Selection
from ncu_toolkit.gpu.session import Collected, Reporter
from ncu_toolkit.ladder.catalogue import find_rung
from ncu_toolkit.ladder.problems import problem_for
from ncu_toolkit.report import checksums
from ncu_toolkit.runs import store
from ncu_toolkit.runs.store import CaseRecord, Manifest

LOCK: Final = ".lock"
#: States of cases that are still to be collected.
OPEN: Final = frozenset({"planned", "timed", "not run"})
#: What must be the same for figures to stand in one run, by label of the run's environment.
SAME: Final = ("GPU", "Driver", "CUDA runtime", "CuPy", "Compiler", "ncu")
PAGE: Final = "index.html"
_NAMED: Final = 6


@dataclass(frozen=True)
class Resumed:
    """A run that can go on: what it consists of, and what is kept of it and what is to be
    collected, in words."""

    manifest: Manifest
    selections: tuple[Selection, ...]
    collected: Collected
    said: str
    left: int


@contextlib.contextmanager
def held(folder: Path) -> Iterator[int]:
    """Hold a run's folder against a second session; yields the descriptor that ncu inherits, so
    that an ncu that outlives us holds it too.

    Raises:
        UsageProblem: it is held.
    """
    with (folder / LOCK).open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = f"Wait for it; an ncu may outlive a toolkit that was killed: `fuser {folder / LOCK}` names it"
            raise UsageProblem(f"the run '{folder.name}' is still running", hint) from None
        except OSError:
            pass  # a file system without locks: nothing can be held, and nothing is lost but the warning
        yield stream.fileno()


def unfinished(folder: Path, manifest: Manifest) -> bool:
    """Whether a run of a ladder has cases left, or was ended before its pages were written."""
    return manifest.asked is not None and (
        any(case.state in OPEN for case in manifest.cases) or not (folder / PAGE).is_file()
    )


def unfinished_runs(reports: Path) -> list[Path]:
    """Folders of runs that can go on, the newest last."""
    return [
        folder
        for folder, manifest in store.runs_under(reports)
        if isinstance(manifest, Manifest) and unfinished(folder, manifest)
    ]


def find(name: str, reports: Path) -> Path:
    """The folder of the run to go on with: by name under `reports` or by path; the newest
    unfinished one where `name` is empty.

    Raises:
        UsageProblem: there is none; the message names those that can go on.
    """
    open_runs = unfinished_runs(reports)
    if not name:
        if not open_runs:
            raise UsageProblem(
                f"no run under '{reports}' is unfinished",
                "Name the folder of reports with --output, or start a new run",
            )
        return open_runs[-1]
    for folder in (reports / name, Path(name)):
        if (folder / store.MANIFEST).is_file():
            return folder
    names = ", ".join(folder.name for folder in open_runs[-_NAMED:])
    raise UsageProblem(
        f"there is no run '{name}' under '{reports}'",
        f"Unfinished are: {names}" if names else "No run there is unfinished",
    )


def open_run(folder: Path, reporter: Reporter) -> Resumed:
    """A run made ready to go on. The caller holds its folder.

    Raises:
        UsageProblem: it is no run of a ladder, or a kernel has changed since.
        EnvironmentProblem: GPU, driver, compiler, CuPy or ncu are others than then.
        InputProblem: its files cannot be read.
    """
    manifest = store.load_manifest(folder)
    if manifest.asked is None:
        hint = "Profile a program again with --launch-skip N to leave out its first N launches; time a ladder again with `bench`"
        raise UsageProblem(
            f"the run '{folder.name}' was not made by `profile` on a ladder, so it cannot be resumed",
            hint,
        )
    collected = Collected(
        cases={case.marker: case for case in manifest.cases},
        timings=list(store.load_timings(folder)),
        skipped=list(manifest.skipped),
        commands=list(manifest.commands),
        reports=list(manifest.report_files),
        costs=dict(manifest.costs),
        ceilings=manifest.ceilings,
        asked=manifest.asked,
    )
    environment = session.machine(collected)
    environment["ncu"] = collect.find_ncu().version
    check_machine(manifest.environment, environment)
    check_kernels(manifest.cases)
    _drop_damaged(folder, collected, reporter)
    profiling.adopt_all(folder, collected, reporter)
    left = [case for case in collected.cases.values() if case.state in OPEN]
    done = sum(case.state == "profiled" for case in collected.cases.values())
    names = [f"{case.rung} at {case.size}" for case in left]
    rest = (
        f"; {len(left)} to collect: {', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''}"
        if left
        else "; nothing is left to collect"
    )
    final = sum(case.state in session.FINAL for case in collected.cases.values())
    stays = f" ({final} failed or cannot run here, and stay so)" if final else ""
    said = f"{folder.name}: {done} of {len(collected.cases)} cases are profiled and {len(collected.timings)} timed, and kept{stays}{rest}"
    return Resumed(manifest, _selections(manifest.cases), collected, said, len(left))


def check_machine(then: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise EnvironmentProblem where this machine is not the one the run was begun on, in what
    changes figures."""
    different = [
        f"{label}: {then[label]} then, {now.get(label, 'none')} now"
        for label in SAME
        if label in then and then[label] != now.get(label)
    ]
    if different:
        raise EnvironmentProblem(
            f"the run was started on another machine ({'; '.join(different)})",
            "Start a new run: a run must come from one machine",
        )


def check_kernels(cases: tuple[CaseRecord, ...]) -> None:
    """Raise UsageProblem where kernels of the run are gone or have changed since, naming them."""
    changed: dict[str, None] = {}
    for case in cases:
        try:
            same = (
                not case.source
                or nvcc.source_digest(find_rung(f"{case.family}/{case.rung}")) == case.source
            )
        except ToolkitError:
            same = False
        if not same:
            changed[f"{case.family}/{case.rung}"] = None
    if changed:
        names = ", ".join(changed)
        raise UsageProblem(
            f"{names} changed since the run was started",
            "Start a new run: figures of two versions of a kernel do not belong together",
        )


def _drop_damaged(folder: Path, collected: Collected, reporter: Reporter) -> None:
    """Set reports aside that are not what was written; their cases are collected again."""
    for name in list(collected.reports):
        path = folder / name
        if Path(name).name != name:
            raise InputProblem(
                f"'{folder / store.MANIFEST}' names a report outside its folder: '{name}'",
                "The manifest was edited; make the run again",
            )
        problem = checksums.verify(path).problem if path.is_file() else "is gone"
        if not problem:
            continue
        if path.is_file():
            path.rename(path.with_name(name + profiling.CUT))
        collected.reports.remove(name)
        for marker, case in collected.cases.items():
            if case.report == name:
                collected.cases[marker] = replace(
                    case, state="not run", message=f"{name} {problem}", report=""
                )
        reporter.note(f"{name} {problem}; its cases are collected again")


def _selections(cases: tuple[CaseRecord, ...]) -> tuple[Selection, ...]:
    """Families with the rungs, sizes and parameters of a run's cases."""
    groups: dict[tuple[str, str], list[CaseRecord]] = {}
    for case in cases:
        groups.setdefault((case.family, case.dtype), []).append(case)
    chosen = []
    for (family, dtype), members in groups.items():
        rungs = tuple(
            find_rung(f"{family}/{name}") for name in dict.fromkeys(case.rung for case in members)
        )
        fixed = {case.marker: dict(case.parameters) for case in members}
        chosen.append(
            Selection(
                problem_for(family),
                rungs,
                tuple(dict.fromkeys(case.size for case in members)),
                dtype,
                fixed=fixed,
            )
        )
    return tuple(chosen)
