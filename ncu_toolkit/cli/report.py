"""`ncu-toolkit report`: pages from the recordings in the package and the runs that lie here."""

from pathlib import Path

import click

from ncu_toolkit.base.core.cache import without_collector
from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.core.files import make_folder
from ncu_toolkit.base.core.units import counted
from ncu_toolkit.cli._common import Progress, console
from ncu_toolkit.cli._options import options
from ncu_toolkit.kernel.gpu import cuda
from ncu_toolkit.kernel.runs.store import recordings
from ncu_toolkit.program.pages.publish import publish_recordings, rebuild_index


@click.command("report")
@options()
def command(reports: Path) -> None:
    """Write the pages of the recorded runs that come with the package, and of your own runs.

    Needs no GPU. Open index.html in the folder of reports afterwards. Exits with 4 when a run could
    not be read; all others are shown.
    """
    make_folder(reports)
    with Progress() as progress, without_collector(last=True):
        progress.stage("Report", len(recordings()) + 1)
        runs = publish_recordings(reports, progress.step)
        index, broken = rebuild_index(reports)
        progress.step("index")
    screen = console()
    for name, error in broken:
        screen.print(f"left out {name}: {error}")
    for run in runs.values():
        screen.print(
            f"{run.title}: {len(run.profiles)} profiles, {len(run.timings)} timings, recorded {run.created[:10]}"
        )
    if not runs:
        screen.print("The recordings are unchanged: their pages were kept.")
    screen.print(f"Open {index}")
    if broken:
        name, error = broken[0]
        raise InputProblem(
            f"{counted(len(broken), 'run')} could not be read and {'is' if len(broken) == 1 else 'are'}"
            f" not in the report: {name}: {error.message}",
            error.remedy or "Make it again, or move it out of the folder of reports",
        )
    if cuda.available():
        screen.print(
            f"This machine has a GPU ({cuda.device().name}): `make benchmark-heavy` profiles it."
        )
