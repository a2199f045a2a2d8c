"""`ncu-toolkit bench`: verify and time kernels, unprofiled."""

from __future__ import annotations

from pathlib import Path

import click

from ncu_toolkit.cli._common import (
    Chosen,
    Where,
    choose_options,
    cluster_options,
    console,
    format_option,
    grid,
    output_option,
    tuned_option,
)
from ncu_toolkit.cli.history import keep
from ncu_toolkit.cli.profile import Job, run_ladder, title_of
from ncu_toolkit.core import units
from ncu_toolkit.gpu.runner import Session
from ncu_toolkit.ladder.problems import problem_for
from ncu_toolkit.model.run import Run
from ncu_toolkit.runs import intake, store


@click.command("bench")
@choose_options
@output_option
@tuned_option
@cluster_options
@click.option(
    "--cache",
    type=click.Choice(["warm", "flushed"]),
    help="State of the L2 before each timed run.  [default: warm for FLOP/s ladders, flushed for B/s ladders]",
)
@format_option(["text", "csv", "json"], "Format to print. CSV and JSON files are always written.")
def command(
    chosen: Chosen, reports: Path, tuned: bool, where: Where, cache: str | None, form: str
) -> None:
    """Verify and time kernels without profiling them.

    Times come from CUDA events: medians of many runs with their spread. Runs alternate with the
    baseline, in shuffled order, and clocks are sampled. A kernel that computes a wrong result is an
    error and is never ranked."""
    cases = chosen.cases(lambda problem: problem.bench_sizes)
    with where.opened() as executor:
        at = intake.here(executor.uuid())
        job = Job(title_of(chosen.names, cases), cases, None, reports, tuned, executor=executor, cache=cache)  # fmt: skip
        run_ladder(job, lambda session: _finish(session, reports, form, at))


def _finish(session: Session, reports: Path, form: str, at: intake.Here) -> None:
    """Print a run's timings, write its files and pages, and raise its failure."""
    from ncu_toolkit.analysis import frames
    from ncu_toolkit.render.publish import publish_run

    folder = session.folder
    csv = frames.timings_frame(session.run.timings).to_csv(index=False)
    store.write_atomic(folder / "timings.csv", csv.encode())
    if form == "csv":
        click.echo(csv, nl=False)
    elif form == "json":
        click.echo((folder / store.TIMINGS).read_text(encoding="utf-8"), nl=False)
    else:
        _show(session.run, folder)
    keep(publish_run(folder, reports), folder, at)
    session.raise_failure()


def _show(run: Run, folder: Path) -> None:
    screen = console()
    groups: dict[tuple[str, str], list[int]] = {}
    for index, timing in enumerate(run.timings):
        groups.setdefault((timing.family, timing.size), []).append(index)
    for (family, size), indices in groups.items():
        first = run.timings[indices[0]]
        by_flops = problem_for(family).rate == "flop"
        table = grid(f"{family} at {size} ({first.dtype}, {first.cache} L2)")
        table.add_column("rung")
        for column in (
            "median",
            "spread",
            "rate",
            "of baseline",
            "energy",
            "pJ/FLOP" if by_flops else "pJ/B",
            "SM clock",
            "runs",
        ):
            table.add_column(column, justify="right")
        for index in indices:
            timing = run.timings[index]
            rate = (
                units.si(timing.flop_rate, "FLOP/s")
                if by_flops
                else units.si(timing.byte_rate, "B/s")
            )
            against = (
                units.percent(timing.baseline_us / timing.median_us) if timing.baseline_us else ""
            )
            work = timing.pj_per_flop if by_flops else timing.pj_per_byte
            clock = (
                f"{timing.sm_clock_mhz:.0f} MHz{' *' if timing.throttle else ''}"
                if timing.sm_clock_mhz
                else units.NOT_AVAILABLE
            )
            table.add_row(
                timing.rung, units.duration(timing.median_us), units.percent(timing.spread), rate, against, units.quantity(timing.energy_mj, "mJ"),
                units.significant(work) if work is not None else units.NOT_AVAILABLE, clock, str(len(timing.times_us)),
            )  # fmt: skip
        screen.print(table)
        throttled = {
            timing.rung: timing.throttle
            for timing in map(run.timings.__getitem__, indices)
            if timing.throttle
        }
        for reason in dict.fromkeys(throttled.values()):
            who = ", ".join(rung for rung, why in throttled.items() if why == reason)
            screen.print(f"* the GPU slowed itself down ({reason}) during {who}", markup=False)
        if any(run.timings[index].rested for index in indices):
            screen.print(
                "The GPU rested between runs for as long as it worked, because it throttled without rests",
                markup=False,
            )
    for skipped in run.skipped:
        screen.print(f"skipped {skipped.what}: {skipped.reason}", markup=False)
    for label, seconds in run.costs.items():
        screen.print(f"{label}: {units.duration(seconds * 1e6)}", markup=False)
    screen.print(f"Files: {folder}", markup=False)
