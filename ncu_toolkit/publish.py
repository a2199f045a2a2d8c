"""From run folders to pages: the step that needs no GPU and can be repeated at any time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path

from ncu_toolkit import store
from ncu_toolkit.errors import EnvironmentProblem, ToolkitError
from ncu_toolkit.runs import Ceilings, Run

RECORDED_PREFIX = "recorded-"


def publish_run(folder: Path, reports: Path) -> Run:
    """Parse a run's raw reports, write its parsed profiles and pages, and rebuild the index over everything under `reports`."""
    from ncu_toolkit.render.html import write_run

    run = store.load_run(folder, live=True)
    if run.profiles:
        store.save_profiles(folder, run.profiles)
    write_run(run, folder)
    rebuild_index(reports, known={folder.name: run})
    return run


def publish_recordings(reports: Path, tell: Callable[[str], None]) -> dict[str, Run]:
    """Write the pages of every shipped recording under `reports`; returns the runs by their folder there.

    Raises:
        EnvironmentProblem: the package holds no recordings.
    """
    from ncu_toolkit.render.html import write_run

    folders = store.recordings()
    if not folders:
        raise EnvironmentProblem("this installation holds no recordings", "Reinstall ncu-toolkit, or make one with `ncu-toolkit record`")
    runs: dict[str, Run] = {}
    for source in folders:
        folder = reports / f"{RECORDED_PREFIX}{source.name}"
        folder.mkdir(parents=True, exist_ok=True)
        for path in source.iterdir():
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
        runs[folder.name] = store.load_run(folder, live=False)
    runs = with_best_ceilings(runs)
    for name, run in runs.items():
        tell(name.removeprefix(RECORDED_PREFIX))
        write_run(run, reports / name)
    return runs


def with_best_ceilings(runs: Mapping[str, Run]) -> dict[str, Run]:
    """The runs with the best ceilings measured in any of them on the same GPU model.

    A ceiling is a lower bound of what the device reaches: each run measured it once, and where its buffers lay in memory moved it.
    """
    best: dict[str, Ceilings] = {}
    for run in runs.values():
        known = best.get(run.device.name, Ceilings())
        best[run.device.name] = Ceilings(*(_larger(getattr(known, f.name), getattr(run.ceilings, f.name)) for f in fields(Ceilings)))
    return {name: replace(run, ceilings=best[run.device.name]) for name, run in runs.items()}


def _larger(a: float | None, b: float | None) -> float | None:
    present = [value for value in (a, b) if value is not None]
    return max(present, default=None)


def rebuild_index(reports: Path, known: dict[str, Run] | None = None) -> tuple[Path, list[tuple[str, ToolkitError]]]:
    """Write reports/index.html over every run that lies there; runs that cannot be read are returned with their error, not hidden."""
    from ncu_toolkit.render.html import write_index

    runs: list[tuple[str, Run]] = []
    broken: list[tuple[str, ToolkitError]] = []
    for folder, manifest in store.runs_under(reports):
        if isinstance(manifest, ToolkitError):
            broken.append((folder.name, manifest))
            continue
        try:
            run = (known or {}).get(folder.name) or store.load_run(folder, live=not folder.name.startswith(RECORDED_PREFIX))
        except ToolkitError as error:
            broken.append((folder.name, error))
            continue
        runs.append((folder.name, run))
    return write_index(reports, runs), broken
