"""`ncu-toolkit bench`: verify and time kernels, unprofiled."""

from pathlib import Path

import click

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.base.model import Timing
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.cli._common import RunHistory, console, grid
from ncu_toolkit.cli._options import Chosen, Cluster, formats, option, options
from ncu_toolkit.cli.profile import run_ladder, title_of
from ncu_toolkit.kernel.gpu.runner import LadderJob, Session, TimingOptions
from ncu_toolkit.kernel.ladder.problems import problem_for
from ncu_toolkit.kernel.runs import store


@click.command("bench")
@options(
    cache=option("State of the L2 before each timed run.  [default: warm for ladders measured in FLOP/s, flushed for those in bytes/s]",
        type=click.Choice(["warm", "flushed"])),
    against=option("Time one more library with the kernels: 'lt' is cuBLASLt with the fastest algorithm that it suggests, for matrix products.",
        type=click.Choice(["lt"])),
    form=formats(["text", "csv", "json"], "Format to print. CSV and JSON files are always written."),
)  # fmt: skip
def command(
    chosen: Chosen, reports: Path, tuned: bool, where: Cluster, cache: str | None, against: str | None, form: str,
) -> None:  # fmt: skip
    """Verify and time kernels without profiling them.

    Times come from CUDA events: medians of many runs with their spread. Runs of the kernels and of
    the library's kernel (the reference) are interleaved in random order, and clocks are sampled. A kernel that computes a wrong result is an
    error and is never ranked."""
    cases = chosen.cases(lambda problem: problem.bench_sizes)
    if against and not any(against in problem_for(case.family).rivals for case in cases):
        raise UsageProblem(
            f"--against {against} is for matrix products, and none of these kernels is one",
            "Choose a family such as gemm_tensor, or leave it out",
        )
    with where.opened() as executor:
        at = RunHistory(executor.uuid())
        title, timing = title_of(chosen.names, cases), TimingOptions(cache, against or "")
        job = LadderJob(title, cases, None, reports, tuned, executor=executor, timing=timing)
        run_ladder(job, lambda session: _finish(session, reports, form, at))


def _finish(session: Session, reports: Path, form: str, at: RunHistory) -> None:
    """Print a run's timings, write its files and pages, and raise its failure."""
    from ncu_toolkit.kernel.analysis import frames
    from ncu_toolkit.program.pages.publish import publish_run

    folder = session.folder
    csv = frames.timings_frame(session.run.timings).to_csv(index=False)
    store.write_atomic(folder / "timings.csv", csv.encode())
    if form == "csv":
        click.echo(csv, nl=False)
    elif form == "json":
        click.echo((folder / store.TIMINGS).read_text(encoding="utf-8"), nl=False)
    else:
        _show(session.run, folder)
    at.keep(publish_run(folder, reports), folder)
    session.raise_failure()


def _show(run: Run, folder: Path) -> None:
    screen = console()
    for (family, size), timings in grouped(run.timings, lambda t: (t.family, t.size)).items():
        by_flops, first = problem_for(family).rate == "flop", timings[0]
        columns = (
            "rung", ">median", ">spread", ">rate", ">of baseline", ">energy", ">pJ/FLOP" if by_flops else ">pJ/B", ">SM clock", ">runs"
        )  # fmt: skip
        title = f"{family} at {size} ({first.dtype}, {first.cache} L2)"
        screen.print(grid(columns, [_row(timing, by_flops) for timing in timings], title))
        for reason in dict.fromkeys(timing.throttle for timing in timings if timing.throttle):
            who = ", ".join(dict.fromkeys(t.rung for t in timings if t.throttle == reason))
            screen.print(f"* the GPU slowed itself down ({reason}) during {who}")
        if any(timing.rested for timing in timings):
            screen.print(
                "The GPU rested between runs for as long as it worked, because it throttled without rests"
            )
    for skipped in run.skipped:
        screen.print(f"skipped {skipped.what}: {skipped.reason}")
    for label, seconds in run.costs.items():
        screen.print(f"{label}: {units.duration(seconds * 1e6)}")
    screen.print(f"Files: {folder}")


def _row(timing: Timing, by_flops: bool) -> tuple[str, ...]:
    rate = timing.flop_rate if by_flops else timing.byte_rate
    work = timing.pj_per_flop if by_flops else timing.pj_per_byte
    median, mark = timing.median_us, " *" if timing.throttle else ""
    return (
        timing.rung,
        units.duration(median),
        units.percent(timing.spread),
        units.si(rate, "FLOP/s" if by_flops else "B/s"),
        units.percent(timing.baseline_us / median) if timing.baseline_us else "",
        units.quantity(timing.energy_mj, "mJ"),
        units.significant(work) if work is not None else units.NOT_AVAILABLE,
        f"{timing.sm_clock_mhz:.0f} MHz{mark}" if timing.sm_clock_mhz else units.NOT_AVAILABLE,
        str(len(timing.times_us)),
    )
