"""`ncu-toolkit bench`: verify and time kernels, unprofiled."""

from __future__ import annotations

from pathlib import Path

import click

from ncu_toolkit.cli._common import (
    Chosen,
    Cluster,
    choose_options,
    cluster_options,
    console,
    format_option,
    grid,
    options,
    output_option,
    tuned_option,
)
from ncu_toolkit.cli.history import keep
from ncu_toolkit.cli.profile import LadderJob, run_ladder, title_of
from ncu_toolkit.core import units
from ncu_toolkit.core.errors import UsageProblem
from ncu_toolkit.gpu.runner import Session
from ncu_toolkit.ladder.problems import problem_for
from ncu_toolkit.model import Timing
from ncu_toolkit.model.run import Run
from ncu_toolkit.runs import intake, store


@click.command("bench")
@options(
    choose_options,
    output_option,
    tuned_option,
    cluster_options,
    click.option("--cache", type=click.Choice(["warm", "flushed"]),
        help="State of the L2 before each timed run.  [default: warm for FLOP/s ladders, flushed for B/s ladders]"),
    click.option("--against", type=click.Choice(["lt"]),
        help="Time one more library with the kernels: 'lt' is cuBLASLt by the fastest of the algorithms that it names, for matrix products."),
    format_option(["text", "csv", "json"], "Format to print. CSV and JSON files are always written."),
)  # fmt: skip
def command(
    chosen: Chosen, reports: Path, tuned: bool, where: Cluster, cache: str | None, against: str | None, form: str,
) -> None:  # fmt: skip
    """Verify and time kernels without profiling them.

    Times come from CUDA events: medians of many runs with their spread. Runs alternate with the
    baseline, in shuffled order, and clocks are sampled. A kernel that computes a wrong result is an
    error and is never ranked."""
    cases = chosen.cases(lambda problem: problem.bench_sizes)
    if against and not any(against in problem_for(case.family).rivals for case in cases):
        raise UsageProblem(
            f"--against {against} is for matrix products, and none of these kernels is one",
            "Choose a family such as gemm_tensor, or leave it out",
        )
    with where.opened() as executor:
        at = intake.here(executor.uuid())
        job = LadderJob(
            title_of(chosen.names, cases), cases, None, reports, tuned, executor=executor, cache=cache, against=against or ""
        )  # fmt: skip
        run_ladder(job, lambda session: _finish(session, reports, form, at))


def _finish(session: Session, reports: Path, form: str, at: intake.Here) -> None:
    """Print a run's timings, write its files and pages, and raise its failure."""
    from ncu_toolkit.analysis import frames
    from ncu_toolkit.pages.publish import publish_run

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
    groups: dict[tuple[str, str], list[Timing]] = {}
    for timing in run.timings:
        groups.setdefault((timing.family, timing.size), []).append(timing)
    for (family, size), timings in groups.items():
        by_flops = problem_for(family).rate == "flop"
        table = grid(f"{family} at {size} ({timings[0].dtype}, {timings[0].cache} L2)")
        per = "pJ/FLOP" if by_flops else "pJ/B"
        table.add_column("rung")
        for column in (
            "median",
            "spread",
            "rate",
            "of baseline",
            "energy",
            per,
            "SM clock",
            "runs",
        ):
            table.add_column(column, justify="right")
        for timing in timings:
            rate = timing.flop_rate if by_flops else timing.byte_rate
            work = timing.pj_per_flop if by_flops else timing.pj_per_byte
            median, mark = timing.median_us, " *" if timing.throttle else ""
            table.add_row(
                timing.rung, units.duration(median), units.percent(timing.spread), units.si(rate, "FLOP/s" if by_flops else "B/s"),
                units.percent(timing.baseline_us / median) if timing.baseline_us else "", units.quantity(timing.energy_mj, "mJ"),
                units.significant(work) if work is not None else units.NOT_AVAILABLE,
                f"{timing.sm_clock_mhz:.0f} MHz{mark}" if timing.sm_clock_mhz else units.NOT_AVAILABLE, str(len(timing.times_us)),
            )  # fmt: skip
        screen.print(table)
        for reason in dict.fromkeys(timing.throttle for timing in timings if timing.throttle):
            who = ", ".join(dict.fromkeys(t.rung for t in timings if t.throttle == reason))
            screen.print(f"* the GPU slowed itself down ({reason}) during {who}", markup=False)
        if any(timing.rested for timing in timings):
            screen.print(
                "The GPU rested between runs for as long as it worked, because it throttled without rests",
                markup=False,
            )
    for skipped in run.skipped:
        screen.print(f"skipped {skipped.what}: {skipped.reason}", markup=False)
    for label, seconds in run.costs.items():
        screen.print(f"{label}: {units.duration(seconds * 1e6)}", markup=False)
    screen.print(f"Files: {folder}", markup=False)
