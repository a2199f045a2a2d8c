"""`ncu-toolkit profile`: verify, time and profile kernels, and write their report."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import click

from ncu_toolkit import gpu, programs, session, store
from ncu_toolkit.cli._common import Progress, choose_options, console, output_option, parse_params, split, tuned_option
from ncu_toolkit.collect import find_ncu
from ncu_toolkit.errors import UsageProblem
from ncu_toolkit.sections import SET_NAME
from ncu_toolkit.session import Collected, Selection, with_predecessors


@click.command("profile")
@choose_options
@output_option
@tuned_option
@click.option("--alone", is_flag=True, help="Only the kernels named: not the rungs they are compared with.")
@click.option("--no-timing", is_flag=True, help="Skip the unprofiled timing.")
@click.option(
    "--cache-control",
    type=click.Choice(["all", "none"]),
    default="all",
    show_default=True,
    help="What ncu does with caches before each pass: flush, or leave.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=session.DEFAULT_TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Give up on ncu after this long.",
)
@click.option("--kernel-filter", default="", metavar="REGEX", help="Of a program after '--': only kernels whose name this is found in.")
@click.option("--launch-skip", type=click.IntRange(min=0), default=0, metavar="N", help="Of a program: leave out the first N launches.")
@click.option(
    "--launch-count",
    type=click.IntRange(min=0),
    default=programs.DEFAULT_LAUNCHES,
    show_default=True,
    metavar="N",
    help="Of a program: profile at most N launches; 0 for all of them.",
)
@click.option(
    "--nvtx", multiple=True, metavar="RANGE", help="Of a program: only launches inside this NVTX range, as ncu's --nvtx-include takes it; repeat it."
)
@click.option(
    "--ranges/--no-ranges",
    default=None,
    help="Of a program: only what it marks (ncu_toolkit.profile, cudaProfilerStart), or everything. [default: look into the script]",
)
@click.option(
    "--set",
    "set_name",
    default=SET_NAME,
    show_default=True,
    metavar="NAME",
    help="Of a program: ncu's section set; 'full' feeds ncu's own rules too.",
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM ARGUMENTS…]")
def command(
    kernels: tuple[str, ...], families: tuple[str, ...], everything: bool, sizes: str | None, dtype: str | None, params: tuple[str, ...],
    reports: Path, tuned: bool, alone: bool, no_timing: bool, cache_control: str, timeout: float,
    kernel_filter: str, launch_skip: int, launch_count: int, nvtx: tuple[str, ...], ranges: bool | None, set_name: str, program: tuple[str, ...],
) -> None:  # fmt: skip
    """Verify, time and profile kernels of a ladder, or any program, and write their report.

    `ncu-toolkit profile -- ./app arguments` profiles a program: PyTorch, Triton, CuPy, JAX or plain CUDA; at most 20 launches unless told otherwise.

    Each kernel is held against a reference before anything is measured. The rung that a kernel is compared with is profiled too, so that
    its page says what the step changed. The raw report stays beside the pages, for the Nsight Compute GUI.
    """
    if program:
        if kernels or families or everything or sizes or dtype or params:
            raise UsageProblem("a ladder and a program cannot be profiled at once", "Use --kernel-filter for the kernels of a program")
        selection = programs.Selection(kernel_filter, launch_skip, launch_count, nvtx, ranges, cache_control, set_name)
        _profile_program(program, selection, reports, timeout)
        return
    names = split(kernels) if kernels else ()
    overrides = parse_params(params, names)
    chosen = session.select(names, split(families) if families else (), everything, sizes, dtype, default_sizes=lambda problem: problem.record_sizes)
    chosen = tuple(replace(selection, tuned=tuned) for selection in chosen)
    if not alone:
        chosen = tuple(with_predecessors(selection) for selection in chosen)
    gpu.cupy()
    find_ncu()
    collected = Collected()
    chosen = session.runnable_here(chosen, collected)
    folder = store.new_run_folder(reports, what(names, chosen))
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    title = f"{what(names, chosen)} on {gpu.device().name}"
    with Progress() as progress:
        session.build_all(chosen, overrides, progress, collected)
        if not no_timing:
            session.time_all(chosen, overrides, None, progress, collected)
            from ncu_toolkit.timing import measure_ceilings

            collected.ceilings = measure_ceilings()
            session.save(folder, title, created, collected)
        session.profile_all(chosen, overrides, folder, progress, collected, timeout=timeout, cache_control=cache_control)
        session.save(folder, title, created, collected)
    finish(folder, reports, collected)


def _profile_program(program: tuple[str, ...], selection: programs.Selection, reports: Path, timeout: float) -> None:
    from ncu_toolkit.publish import publish_run
    from ncu_toolkit.render.text import summary

    screen = console()
    programs.check(program, selection)
    screen.print(f"Profiling {program[0]} under ncu; its output goes to the log in the run's folder", markup=False)
    done = programs.profile(program, selection, reports, timeout=timeout)
    screen.print(summary(publish_run(done.folder, reports)))
    for note in done.notes:
        screen.print(f"note: {note}", markup=False)
    screen.print(f"Report: {done.folder / 'index.html'}", markup=False)
    screen.print(f"Raw report: {done.folder / programs.STEM}.ncu-rep; next: ncu-toolkit analyze {done.folder} --format brief", markup=False)
    if done.interrupted:
        raise KeyboardInterrupt
    if done.problem is not None:
        raise done.problem


def what(names: tuple[str, ...], chosen: tuple[Selection, ...]) -> str:
    """A short name for the run: what was asked for."""
    if len(names) == 1:
        return f"{names[0]} {' '.join(chosen[0].sizes)}"
    return " ".join(selection.problem.family for selection in chosen)


def finish(folder: Path, reports: Path, collected: Collected) -> None:
    """Render a run's pages and the index, print its summary, and raise what went wrong on the way."""
    from ncu_toolkit.publish import publish_run
    from ncu_toolkit.render.text import summary

    run = publish_run(folder, reports)
    screen = console()
    screen.print(summary(run))
    screen.print(f"Report: {reports / 'index.html'}", markup=False)
    if collected.interrupted:
        missing = [case for case in collected.cases.values() if case.state == "not run"]
        rungs = ",".join(dict.fromkeys(case.rung for case in missing))
        sizes = ",".join(dict.fromkeys(case.size for case in missing))
        if missing:
            screen.print(f"Interrupted. The rest: ncu-toolkit profile --kernel {rungs} --size {sizes}", markup=False)
        raise KeyboardInterrupt
    if collected.failures:
        raise collected.failures[0]
