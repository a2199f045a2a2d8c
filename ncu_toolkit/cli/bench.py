"""`ncu-toolkit bench`: verify and time kernels, unprofiled."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from ncu_toolkit.cli._common import (
    Progress,
    choose_options,
    cluster_options,
    console,
    executor_of,
    format_option,
    grid,
    output_option,
    parse_params,
    split,
    tuned_option,
)
from ncu_toolkit.cli.history import keep
from ncu_toolkit.cli.profile import title_of
from ncu_toolkit.core import units
from ncu_toolkit.core.errors import ToolkitError, UsageProblem
from ncu_toolkit.gpu import cuda, ladder_run, selection
from ncu_toolkit.gpu import session as stages
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
@click.option(
    "--against",
    type=click.Choice(["lt"]),
    help="Time one more library with the kernels: 'lt' is cuBLASLt by the fastest of the algorithms that it names, for matrix products.",
)
@format_option(["text", "csv", "json"], "Format to print. CSV and JSON files are always written.")
def command(
    kernels: tuple[str, ...], families: tuple[str, ...], everything: bool, sizes: str | None, dtype: str | None, params: tuple[str, ...],
    reports: Path, tuned: bool, cluster: str | None, slow_boards: bool, cache: str | None, against: str | None, form: str,
) -> None:  # fmt: skip
    """Verify and time kernels without profiling them.

    Times come from CUDA events: medians of many runs with their spread. Runs alternate with the
    baseline, in shuffled order, and clocks are sampled. A kernel that computes a wrong result is an
    error and is never ranked."""
    from ncu_toolkit.analysis import frames

    names = split(kernels) if kernels else ()
    cases = selection.select(
        names,
        split(families) if families else (),
        everything,
        sizes,
        dtype,
        default_sizes=lambda problem: problem.bench_sizes,
        overrides=parse_params(params, names),
    )
    if against and not any(against in problem_for(case.family).rivals for case in cases):
        raise UsageProblem(
            f"--against {against} is for matrix products, and none of these kernels is one",
            "Choose a family such as gemm_tensor, or leave it out",
        )
    where = executor_of(cluster, slow_boards)
    if cluster is None:
        cuda.cupy()
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(where)
        device = executor.device()
        cases, skipped = selection.runnable_here(cases, device)
        cases, lines = selection.settled(cases, tuned, device)
        what = title_of(names, cases)
        at = intake.here(executor.uuid())
        begun = ladder_run.unfinished_like(reports, cases, None) if executor.boards else None
        if begun is not None and not _timed_so(begun, cache):
            begun = None
        folder = begun or store.new_run_folder(reports, f"bench {what}")
        if executor.boards:
            stack.enter_context(ladder_run.locked(folder))
        progress = stack.enter_context(Progress())
        session = (
            None if begun is None else ladder_run.resume(begun, progress, executor, ladder=False)
        )
        try:
            if session is None:
                session = stages.start(folder, f"Timing of {what}", executor=executor)
                session.update(skipped=skipped)
            if executor.boards:  # What was asked for, to find the run by.
                session.record(*session.current(cases))
            for line in lines:
                progress.note(line)
            stages.build_all(session, cases, progress, executor)
            stages.time_all(
                session, cases, progress, cache, executor=executor, against=against or ""
            )
            stages.measure_ceilings(session, progress, executor)
        except (ToolkitError, KeyboardInterrupt) as error:
            if session is None or not session.measured:
                store.discard(folder)
                raise
            if isinstance(error, ToolkitError):
                session.failures.append(error)
            else:
                session.interrupted = True
        session.save()
    table = frames.timings_frame(session.run.timings)
    csv = table.to_csv(index=False)
    store.write_atomic(folder / "timings.csv", csv.encode())
    if form == "csv":
        click.echo(csv, nl=False)
    elif form == "json":
        click.echo((folder / store.TIMINGS).read_text(encoding="utf-8"), nl=False)
    else:
        _show(session.run, folder)
    from ncu_toolkit.render.publish import publish_run

    keep(publish_run(folder, reports), folder, at)
    session.raise_failure()


def _timed_so(folder: Path, cache: str | None) -> bool:
    """Whether all timings of a run are of this state of the L2."""
    return all(
        timing.cache == stages.cache_of(problem_for(timing.family), cache)
        for timing in store.load_timings(folder)
    )


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
