"""`ncu-toolkit calibrate`: how good the diagnosis is, on the recordings."""

import json
from pathlib import Path

import click

from ncu_toolkit.cli._options import Output, PathName, argument, formats, options
from ncu_toolkit.core.errors import GateFailed
from ncu_toolkit.diagnosis import calibrate
from ncu_toolkit.ladder.catalogue import load_families
from ncu_toolkit.runs import store

FORMATS = ("text", "markdown", "json")


@click.command("calibrate")
@options(
    runs=argument(nargs=-1, type=PathName(exists=True, file_okay=False)),
    form=formats(FORMATS),
    output="File to write to.",
    gate="Exit with 1 if the diagnosis is less accurate than required.",
)
def command(runs: tuple[Path, ...], out: Output, gate: bool) -> None:
    """Compare predicted gains with achieved ones, ours and Nsight Compute's.

    For each step of a ladder that removes a bottleneck, the slow kernel's profile alone must name
    it and predict the time saved. The last table also scores Nsight Compute's rules, the rule of
    two thresholds (60% of peak) and the best constant. RUNS are folders of runs. Without any, the
    package's recordings are used."""
    from ncu_toolkit.pages import calibration as views

    steps = [rung for family in load_families().values() for rung in family.rungs]
    loaded = [store.load_run(folder, live=False) for folder in runs or store.recordings()]
    found = calibrate.calibrate(calibrate.pairs(loaded, steps))
    if out.form == "json":
        out.text(json.dumps(found.as_json(), indent=1, allow_nan=False) + "\n")
    else:
        out.text(views.as_text(found) if out.form == "text" else views.as_markdown(found))
    missed = calibrate.CalibrationGoals().shortfalls(found.ours) if gate else []
    if missed:
        raise GateFailed(
            f"the diagnosis is less accurate than required: {'; '.join(missed)}",
            "The table shows the cases that are off",
        )
