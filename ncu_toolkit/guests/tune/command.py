"""`ncu-toolkit tune`: search a kernel's parameters on this GPU."""

from pathlib import Path

import click

from ncu_toolkit.base.core.errors import ToolkitError
from ncu_toolkit.cli._common import Progress, console, grid
from ncu_toolkit.cli._options import COUNT, Cluster, Seconds, option, options, split
from ncu_toolkit.guests.tune import halving
from ncu_toolkit.guests.tune.halving import Search
from ncu_toolkit.kernel.gpu.selection import parse_sizes
from ncu_toolkit.kernel.ladder.catalogue import find_rung
from ncu_toolkit.kernel.ladder.problems import problem_for
from ncu_toolkit.kernel.runs import store


@click.command("tune")
@options(
    kernels=option("A kernel whose file lists the values to try, in a [search] table; can be repeated, or separate names by commas.", required=True),
    sizes=option("Problem size, or a list. Each size is searched separately.", required=True),
    max_settings=option("Search a random N of the settings.  [default: all]", type=COUNT, metavar="N"),
    time_limit=option("Stop the search of a size after this long, and keep the best so far. Run the same command to continue.  [default: none]",
        type=Seconds(), metavar="SECONDS"),
    jobs="Compilations at a time.  [default: the CPUs here]",
    seed=option("Random seed for the order of runs and for --max-settings.", type=int, default=1, show_default=True),
    restart="Forget an earlier search of the same kernel and size, finished or not.",
)  # fmt: skip
def command(
    kernels: tuple[str, ...], sizes: str, dtype: str | None, max_settings: int | None, time_limit: float | None, jobs: int | None, seed: int,
    restart: bool, where: Cluster, reports: Path,
) -> None:  # fmt: skip
    """Find a kernel's best parameters for this GPU and a size.

    The kernel's file lists the values to try and their constraints. Settings are compiled in
    parallel. Those that spill or do not fit are dropped, the others are verified and
    timed in turn with the library's kernel (the baseline). Each round keeps the faster half and doubles the runs. An
    interrupted search continues where it stopped. The best setting is kept for this GPU and size,
    and `bench` and `profile` then use it.

    `ncu-toolkit tune -k autotuned -s 4096 --cluster local` uses every GPU of this machine."""
    rungs = [find_rung(name) for name in split(kernels)]
    plan = [(rung, size) for rung in rungs for size in parse_sizes(problem_for(rung.family), sizes)]
    for rung in rungs:
        halving.check(rung)
    from ncu_toolkit.guests.tune import tune

    failures: list[ToolkitError] = []
    with where.opened() as executor:
        for rung, size in plan:
            asked = tune.TuneRequest(
                rung, size, dtype, max_settings, time_limit, jobs, seed, restart
            )
            with Progress() as progress:
                try:
                    search = tune.run(asked, progress, executor)
                except ToolkitError as error:
                    if len(plan) == 1:
                        raise
                    failures.append(error)
                    progress.note(f"{rung.name} at {size.label}: {error}")
                    continue
            show(search, reports)
    if failures:
        raise failures[0]


def show(search: Search, reports: Path) -> None:
    """Print a search's result and write its landscape into a new folder under `reports`."""

    from ncu_toolkit.guests.tune import view as tune_view

    folder = store.new_run_folder(reports, f"tune {search.rung} {search.size}")
    path = tune_view.write(search, folder)
    screen = console()
    first, *numbers = tune_view.COLUMNS
    columns = (first, *(f">{each}" for each in numbers))
    screen.print(grid(columns, tune_view.rows(search), f"{search.rung} at {search.size}"))
    for line in (*tune_view.summary(search), f"Landscape: {path}"):
        screen.print(line)
