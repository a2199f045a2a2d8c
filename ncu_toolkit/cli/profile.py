"""`ncu-toolkit profile`: verify, time and profile kernels, and write their report."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from ncu_toolkit.cli._common import (
    DEFAULT_REPORTS,
    Progress,
    Seconds,
    choose_options,
    console,
    needs_option,
    output_option,
    parse_params,
    split,
    tuned_option,
)
from ncu_toolkit.core.errors import ToolkitError, UsageProblem
from ncu_toolkit.diagnosis.needs import Needs
from ncu_toolkit.gpu import cuda, profiling, programs, resume, session
from ncu_toolkit.gpu.collect import find_ncu
from ncu_toolkit.gpu.resume import held
from ncu_toolkit.gpu.selection import Selection, with_predecessors
from ncu_toolkit.gpu.session import Collected
from ncu_toolkit.metrics.sections import SET_NAME
from ncu_toolkit.report.redact import redact_folder, redact_in_place, redact_text
from ncu_toolkit.runs import store
from ncu_toolkit.runs.store import Asked


@click.command("profile")
@choose_options
@output_option
@tuned_option
@click.option(
    "--alone", is_flag=True, help="Only the kernels named: not the rungs they are compared with."
)
@click.option("--no-timing", is_flag=True, help="Skip the unprofiled timing.")
@click.option(
    "--cache-control",
    type=click.Choice(["all", "none"]),
    default="all",
    show_default=True,
    help="Whether ncu flushes caches before each pass (all) or leaves them (none).",
)
@click.option(
    "--timeout",
    type=Seconds(),
    default=session.DEFAULT_TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Give up on ncu after this long.",
)
@click.option(
    "--kernel-filter",
    default="",
    metavar="REGEX",
    help="Of a program: only kernels whose name matches REGEX.",
)
@click.option(
    "--launch-skip",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Of a program: leave out the first N launches.",
)
@click.option(
    "--launch-count",
    type=click.IntRange(min=0),
    default=programs.DEFAULT_LAUNCHES,
    show_default=True,
    metavar="N",
    help="Of a program: profile at most N launches; 0 for all of them.",
)
@click.option(
    "--nvtx",
    multiple=True,
    metavar="RANGE",
    help="Of a program: only launches inside this NVTX range, as ncu's --nvtx-include takes it; repeat it.",
)
@click.option(
    "--ranges/--no-ranges",
    default=None,
    help="Of a program: only what it marks (ncu_toolkit.profile, cudaProfilerStart), or everything.  [default: --ranges if the script marks any]",
)
@click.option(
    "--set",
    "set_name",
    default=SET_NAME,
    show_default=True,
    metavar="NAME",
    help="Of a program: ncu's section set; 'full' feeds ncu's own rules too.",
)
@needs_option("Of a program: what")
@click.option(
    "--resume",
    "resumed",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[RUN]",
    help="Resume a ladder's run that was interrupted: the folder RUN, or the newest unfinished one.",
)
@click.option(
    "--redact",
    is_flag=True,
    help="Keep the raw report without host names, users, addresses, command lines and folders.",
)
@click.option(
    "--redact-source", is_flag=True, help="As --redact, and also without embedded source code."
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM ARGUMENTS…]")
@click.pass_context
def command(
    ctx: click.Context, kernels: tuple[str, ...], families: tuple[str, ...], everything: bool, sizes: str | None, dtype: str | None,
    params: tuple[str, ...], reports: Path, tuned: bool, alone: bool, no_timing: bool, cache_control: str, timeout: float,
    kernel_filter: str, launch_skip: int, launch_count: int, nvtx: tuple[str, ...], ranges: bool | None, set_name: str, needs: tuple[Needs, ...],
    resumed: str | None, redact: bool, redact_source: bool, program: tuple[str, ...],
) -> None:  # fmt: skip
    """Profile a program, or verify, time and profile kernels of a ladder, and write the report.

    `ncu-toolkit profile -- ./app arguments` profiles a program: PyTorch, Triton, CuPy, JAX or plain
    CUDA. It profiles at most 20 launches; --launch-count changes that.

    A kernel of a ladder must match a reference before it is measured. The rung that it is compared
    with is profiled too, so its page shows what the step changed. The raw report stays beside the
    pages, for the Nsight Compute GUI."""
    if resumed is not None:
        _refuse_others(ctx)
        _resume(resumed, reports, timeout, redact, redact_source)
        return
    if program:
        if kernels or families or everything or sizes or dtype or params:
            raise UsageProblem(
                "a ladder and a program cannot be profiled at once",
                "Use --kernel-filter for the kernels of a program",
            )
        selection = programs.Selection(
            kernel_filter,
            launch_skip,
            launch_count,
            nvtx,
            ranges,
            cache_control,
            set_name,
            redact or redact_source,
            redact_source,
            needs,
        )
        _profile_program(program, selection, reports, timeout)
        return
    names = split(kernels) if kernels else ()
    overrides = parse_params(params, names)
    chosen = session.select(
        names,
        split(families) if families else (),
        everything,
        sizes,
        dtype,
        default_sizes=lambda problem: problem.record_sizes,
    )
    chosen = tuple(replace(selection, tuned=tuned) for selection in chosen)
    if not alone:
        chosen = tuple(with_predecessors(selection) for selection in chosen)
    cuda.cupy()
    ncu = find_ncu()
    collected = Collected(
        asked=Asked(not no_timing, cache_control, redact or redact_source, redact_source)
    )
    chosen = session.runnable_here(chosen, collected)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    title = f"{what(names, chosen)} on {cuda.device().name}"
    with Progress() as progress:
        session.build_all(chosen, overrides, progress, collected)
        session.machine(collected)["ncu"] = ncu.version
        profiling.plan_all(chosen, overrides, collected)
    folder = store.new_run_folder(reports, what(names, chosen))
    with held(folder) as lock:
        try:
            with Progress() as progress:
                _collect(
                    chosen, overrides, folder, title, created, progress, collected, timeout, lock
                )
        except (ToolkitError, KeyboardInterrupt) as error:
            if str(folder) not in str(error):  # it does not point to a log there
                store.discard(folder)
            raise
        finish(folder, reports, collected, names)


def _collect(
    chosen: tuple[Selection, ...], overrides: dict[str, int], folder: Path, title: str, created: str, progress: Progress, collected: Collected,
    timeout: float, lock: int,
) -> None:  # fmt: skip
    """Time and profile what the run lacks, and keep every step of it. What went wrong is in
    `collected`.

    Raises:
        ToolkitError, KeyboardInterrupt: nothing was measured.
    """
    asked = collected.asked or Asked()
    saved = partial(session.save, folder, title, created, collected)
    try:
        saved()
        if asked.timing:
            session.time_all(chosen, overrides, None, progress, collected, saved=saved)
            session.measure_ceilings(collected, progress)
            saved()
        profiling.profile_all(
            chosen, overrides, folder, progress, collected,
            timeout=timeout, cache_control=asked.cache_control, saved=saved, keep_open=(lock,),
        )  # fmt: skip
    except KeyboardInterrupt:
        collected.interrupted = True
        if not collected.measured:
            raise
    except ToolkitError as error:
        if not collected.measured:
            raise
        if error not in collected.failures:
            collected.failures.append(error)
    if asked.redact:
        # of a run that was begun without --redact
        collected.commands[:] = map(redact_text, collected.commands)
        redact_folder(folder)
    saved()


def _resume(name: str, reports: Path, timeout: float, redact: bool, redact_source: bool) -> None:
    cuda.cupy()
    folder = resume.find(name, reports)
    with held(folder) as lock:
        with Progress() as progress:
            run = resume.open_run(folder, progress)
            progress.note(run.said)
            manifest, collected = run.manifest, run.collected
            asked = collected.asked or Asked()
            if (redact or redact_source) and not (
                asked.redact and asked.redact_source >= redact_source
            ):
                collected.asked = replace(
                    asked, redact=True, redact_source=asked.redact_source or redact_source
                )
                for report in collected.reports:
                    redact_in_place(folder / report, remove_source=collected.asked.redact_source)
                    session.save(folder, manifest.title, manifest.created, collected)
            session.build_all(run.selections if run.left else (), {}, progress, collected)
            (folder / resume.PAGE).unlink(
                missing_ok=True
            )  # written anew at the end; without it the run counts as unfinished until then
            _collect(
                run.selections,
                {},
                folder,
                manifest.title,
                manifest.created,
                progress,
                collected,
                timeout,
                lock,
            )
        finish(folder, folder.parent, collected)


#: What goes with --resume: the rest of the run is as it was asked for.
_WITH_RESUME = frozenset({"resumed", "reports", "timeout", "redact", "redact_source"})


def _refuse_others(ctx: click.Context) -> None:
    for parameter in ctx.command.params:
        given = (
            ctx.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        )
        if given and parameter.name not in _WITH_RESUME:
            shown = parameter.opts[0] if isinstance(parameter, click.Option) else "a program"
            raise UsageProblem(
                f"{shown} does not go with --resume",
                "A resumed run keeps its options; start a new run to change them",
            )


def _profile_program(
    program: tuple[str, ...], selection: programs.Selection, reports: Path, timeout: float
) -> None:
    from ncu_toolkit.render.publish import publish_run
    from ncu_toolkit.render.text import summary

    screen = console()
    programs.check(program, selection)
    screen.print(
        f"Profiling {program[0]} under ncu; its output goes to the log in the run's folder",
        markup=False,
    )
    done = programs.profile(program, selection, reports, timeout=timeout)
    screen.print(summary(publish_run(done.folder, reports)))
    for note in done.notes:
        screen.print(f"note: {note}", markup=False)
    screen.print(f"Report: {done.folder / 'index.html'}", markup=False)
    needs = "".join(f" --needs {shlex.quote(str(each))}" for each in selection.needs)
    screen.print(
        f"Raw report: {done.folder / programs.STEM}.ncu-rep; next: ncu-toolkit analyze {done.folder} --format brief{needs}",
        markup=False,
    )
    if done.interrupted:
        raise KeyboardInterrupt
    if done.problem is not None:
        raise done.problem


def what(names: tuple[str, ...], chosen: tuple[Selection, ...]) -> str:
    """A short name for the run: what was asked for."""
    if len(names) == 1:
        return f"{names[0]} {' '.join(chosen[0].sizes)}"
    return " ".join(selection.problem.family for selection in chosen)


def finish(folder: Path, reports: Path, collected: Collected, names: tuple[str, ...] = ()) -> None:
    """Render a run's pages and the index, print its summary with the cards of the rungs in `names`,
    and raise what went wrong on the way."""
    from ncu_toolkit.render.publish import publish_run
    from ncu_toolkit.render.text import summary

    run = publish_run(folder, reports)
    screen = console()
    screen.print(summary(run, cards=names))
    screen.print(f"Report: {reports / 'index.html'}", markup=False)
    left = sum(case.state in resume.OPEN for case in collected.cases.values())
    if left:
        where = "" if reports == Path(DEFAULT_REPORTS) else f" --output {shlex.quote(str(reports))}"
        screen.print(
            f"{left} cases are not profiled. The rest: ncu-toolkit profile --resume {folder.name}{where}",
            markup=False,
        )
    if collected.interrupted:
        raise KeyboardInterrupt
    if collected.failures:
        raise collected.failures[0]
