"""From run folders to pages: the step that needs no GPU and can be repeated at any time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from ncu_toolkit import store
from ncu_toolkit.errors import EnvironmentProblem, ToolkitError
from ncu_toolkit.runs import Run

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
        tell(source.name)
        folder = reports / f"{RECORDED_PREFIX}{source.name}"
        folder.mkdir(parents=True, exist_ok=True)
        for path in source.iterdir():
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
        run = store.load_run(folder, live=False)
        write_run(run, folder)
        runs[folder.name] = run
    return runs


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
