"""`ncu-toolkit baseline`: reports kept under a name."""

import json
from pathlib import Path

import click

from ncu_toolkit.base.core.errors import InputProblem, ToolkitError
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.units import counted
from ncu_toolkit.base.model.codec import document
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.cli._options import argument, formats, options
from ncu_toolkit.kernel.runs import baselines


@click.group("baseline")
@options()
def command() -> None:
    """Keep reports under a name, to compare later reports with."""


@command.command("save")
@options(
    name=argument(),
    replace="Replace a baseline of this name.",
    allow_incomplete="Keep incomplete reports too. Incomplete launches cannot be compared.",
)
def save(name: str, paths: tuple[Path, ...], replace: bool, allow_incomplete: bool) -> None:
    """Keep copies of reports, or of a run's folder, under NAME.

    They are kept in .ncu-toolkit/baselines here, or in $NCU_TOOLKIT_BASELINES.
    """
    run = baselines.save(name, paths, replace=replace, allow_incomplete=allow_incomplete)
    click.echo(
        f"Kept {counted(len(run.report_files), 'report')} as '{name}'. Compare with: ncu-toolkit compare {name} NEW.ncu-rep --fail-on 'time>5%'"
    )


@command.command("list")
@options(form=formats(["text", "json"]))
def show(form: str) -> None:
    """Show the baselines in .ncu-toolkit/baselines of this folder."""
    found = baselines.saved()
    broken = [run for _, run in found if isinstance(run, ToolkitError)]
    kept = {folder.name: run for folder, run in found if isinstance(run, Run)}
    if form == "json":
        plain = [
            {"name": n, "created": r.created, "files": r.report_files} for n, r in kept.items()
        ]
        click.echo(json.dumps(document("baselines", plain), indent=1))
    else:
        for name, run in kept.items():
            click.echo(visible(f"{name}  {run.created[:10]}  {', '.join(run.report_files)}"))
    if broken:
        raise InputProblem(
            f"{counted(len(broken), 'baseline')} cannot be read: {broken[0].message}",
            "Save it again with --replace, or remove its folder",
        )
    if not kept and form != "json":
        click.echo(
            f"No baselines in {baselines.root()}. Keep one: ncu-toolkit baseline save main report.ncu-rep"
        )
