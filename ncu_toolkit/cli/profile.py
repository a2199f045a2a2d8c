"""`ncu-toolkit profile`: verify, time and profile kernels, and write their report."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

from ncu_toolkit.base.core import patterns
from ncu_toolkit.base.core.errors import EnvironmentProblem, ToolkitError, UsageProblem
from ncu_toolkit.base.core.guests import guest
from ncu_toolkit.base.metrics.registry import SET_NAME
from ncu_toolkit.base.model.run import LadderOptions
from ncu_toolkit.cli import _complete
from ncu_toolkit.cli._common import Progress, RunHistory, console, one_line
from ncu_toolkit.cli._options import (
    DEFAULT_REPORTS,
    KERNEL,
    NEEDS,
    Chosen,
    Cluster,
    Seconds,
    any_of,
    given,
    option,
    options,
    switch,
)
from ncu_toolkit.cli._program import ProgramCommand
from ncu_toolkit.kernel.diagnosis.needs import Needs
from ncu_toolkit.kernel.gpu import collect, cuda, runner, selection
from ncu_toolkit.kernel.gpu.runner import LadderJob, Session
from ncu_toolkit.kernel.gpu.selection import Cases
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.program.recording import program_run, recorder, step_run
from ncu_toolkit.program.recording.program_run import ProgramJob
from ncu_toolkit.program.recording.step_run import StepJob


@click.command("profile", cls=ProgramCommand)
@options(
    kernels=f"{KERNEL} Can be repeated, or separate names of a ladder's kernels by commas.",
    alone="Only the named kernels, not those that they are compared with.",
    no_timing="Skip the unprofiled timing.",
    cache_control=option("Whether ncu flushes caches before each pass (all) or leaves them (none).", type=click.Choice(["all", "none"]),
        default="all", show_default=True),
    timeout=option("Give up on ncu after this long.", default=runner.DEFAULT_TIMEOUT),
    kernel_filter=option("The same as --kernel of a program.", default="", hidden=True),
    exclude=option("For a program: leave out kernels whose demangled name contains a match of REGEX; can be repeated.", "--exclude-kernel",
        metavar="REGEX"),
    launches=option("For a program: profile at most N launches of its step. Default 24; fewer if the whole command would take longer than "
        "30 s plus three times the program's run time.", type=click.IntRange(min=1, max=200), default=None, metavar="N"),
    steps=option("For a program: end the recorded run N steps after warm-up; 0 lets it finish.", type=click.IntRange(min=0), default=0, metavar="N"),
    seconds=option("For a program: end the recorded run after this long.", type=Seconds(), default=None, metavar="SECONDS"),
    lines=switch("For a program: the Python line of each launch (Python 3.12), and samples of Python's stacks.", "--lines/--no-lines", default=True),
    launch_skip="For a program: skip the first N launches, without looking for a step.",
    launch_count=option("For a program: profile N launches, without looking for a step; 0 for all.  [default: "
        f"{program_run.DEFAULT_LAUNCHES}, if another option selects launches]", type=click.IntRange(min=0), default=program_run.DEFAULT_LAUNCHES,
        show_default=False),
    nvtx=option("For a program: only launches inside this NVTX range, as ncu's --nvtx-include takes it; can be repeated.", metavar="RANGE"),
    ranges=switch("For a program: profile only ranges that it marks (ncu_toolkit.profile, cudaProfilerStart), or ignore the marks.  [default: "
        "--ranges if the script marks any]", "--ranges/--no-ranges", default=None),
    set_name=option("For a program: ncu's section set, or 'ladder', which comes with ncu-toolkit. 'full' also runs ncu's own rules.", "--set",
        default=SET_NAME, show_default=True, metavar="NAME"),
    needs=f"For a program: the{NEEDS}",
    resumed=option("Resume an interrupted run of a ladder: the folder RUN, or the newest unfinished one.", "--resume", is_flag=False,
        flag_value="", default=None, metavar="[RUN]", shell_complete=_complete.runs),
    probed=option("Also run the kernels alongside work that loads one unit of the GPU at a time, to "
        "check their verdicts (a program runs again for that).", "--probe"),
    redact="Keep the raw report without host names, users, addresses, command lines and folders.",
    redact_source="Like --redact, and also without embedded source code.",
)  # fmt: skip
def command(
    chosen: Chosen, reports: Path, tuned: bool, where: Cluster, alone: bool, no_timing: bool, cache_control: str, timeout: float,
    kernel_filter: str, exclude: tuple[str, ...], launches: int | None, steps: int, seconds: float | None, lines: bool,
    launch_skip: int, launch_count: int, nvtx: tuple[str, ...], ranges: bool | None, set_name: str, needs: tuple[Needs, ...],
    resumed: str | None, probed: bool, redact: bool, redact_source: bool, program: tuple[str, ...],
) -> None:  # fmt: skip
    """Profile a program, or verify, time and profile kernels of a ladder, and write the report.

    `ncu-toolkit profile -- ./app arguments` profiles a program of PyTorch, Triton, CuPy, JAX or plain
    CUDA. It runs twice: first it is recorded to find its step (one iteration of its main loop), then the
    kernels that take most of the step's time are profiled. --launch-count, --launch-skip, --nvtx, --ranges, --kernel and --exclude-kernel select
    launches directly, and no step is looked for.

    A kernel of a ladder must match a reference before it is measured. The kernel before it
    in the ladder is profiled too, and the page shows the difference. The raw report stays next to the
    pages, for the Nsight Compute GUI."""
    asked = LadderOptions(not no_timing, cache_control, redact or redact_source, redact_source)
    if resumed is not None:
        _refuse_others()
        with where.opened() as executor:
            folder = runner.find(resumed, reports)
            at = RunHistory(executor.uuid())
            job = LadderJob("", (), asked, folder.parent, timeout=timeout, executor=executor)
            _go_on(folder, job, lambda made: finish(made, folder.parent, at))
        return
    if program and (where.cluster or where.slow_boards):
        raise UsageProblem(
            "--cluster spreads kernels of a ladder, and a program runs on one machine",
            "Leave out --cluster, or name a --family",
        )
    if probed and where.cluster:
        raise UsageProblem("--probe runs on this machine's GPU, not on a cluster's", "Leave it out")
    if program:
        if chosen.ladder:
            raise UsageProblem(
                "a ladder and a program cannot be profiled in one run",
                "--kernel chooses among the kernels of a program",
            )
        request = collect.Request(
            command=program,
            set_name=set_name,
            ranges_only=ranges,
            kernel_filter=_filter([*chosen.kernels, *filter(None, (kernel_filter,))], exclude),
            launch_skip=launch_skip,
            launch_count=launch_count,
            nvtx_include=nvtx,
            cache_control=cache_control,
        )
        if any(map(given, _CHOOSE)) or probed or program_run.marks_ranges(program):
            _profile_program(ProgramJob(request, reports, timeout, asked.redact, redact_source, needs), probed)  # fmt: skip
            return
        record = recorder.RecordOptions(lines=lines, samples=lines, seconds=seconds or 0.0)
        _profile_step(
            StepJob(request, reports, timeout, asked.redact, redact_source, needs, record, launches or 0, steps)
        )  # fmt: skip
        return
    if not (chosen.names or chosen.families or chosen.everything):
        raise UsageProblem(
            "nothing to profile",
            "Name a program: ncu-toolkit profile -- python train.py; or kernels of a ladder: --kernel or --family (`ncu-toolkit list`)",
        )
    cases = chosen.cases(lambda problem: problem.record_sizes, predecessors=not alone)
    with where.opened() as executor:
        at, title = RunHistory(executor.uuid()), title_of(chosen.names, cases)
        job = LadderJob(title, cases, asked, reports, tuned, timeout, executor, probed)
        run_ladder(job, lambda made: finish(made, reports, at, chosen.names))


def _filter(wanted: Sequence[str], exclude: Sequence[str]) -> str:
    """The regular expression for ncu that finds what `wanted` do and no name in which one of `exclude`
    is found."""
    for each in exclude:
        patterns.compiled(each, "--exclude-kernel")
    found = any_of(wanted or [""])
    return (
        f"^(?!.*(?:{any_of(exclude)}))" + (f".*(?:{found})" if found else "") if exclude else found
    )


def run_ladder(job: LadderJob, done: Callable[[Session], None]) -> Session:
    """Build, time and profile rungs into a new run, and put them under pressure where that is
    wanted; `done` shows it while the run is locked. On a cluster an unfinished run of the same cases
    goes on.

    Raises:
        ToolkitError, KeyboardInterrupt: nothing was measured.
    """
    executor, name = job.executor, job.title if job.asked else f"bench {job.title}"
    device = executor.device()
    tools = {"ncu": executor.ncu()} if job.asked else {}
    cases, skipped, lines = selection.ready(job.cases, job.tuned, device, executor.run)
    begun = runner.unfinished_like(job.reports, cases, job.asked, executor)
    if begun and (job.asked or runner.timed_in(begun, job.timing.cache)):
        return _go_on(begun, job, done)
    folder = store.new_run_folder(job.reports, name)
    session = None
    try:
        title = job.title if job.asked else f"Timing of {job.title}"
        session = runner.start(folder, title, job.asked, executor)
        environment = {**session.run.environment, **tools}
        session.update(environment=environment, cases=cases, skipped=skipped)
        with runner.locked(folder) as lock:
            with Progress() as progress:
                for line in lines:
                    progress.note(line)
                runner.collect_all(session, job, progress, lock)
                if job.probed and not session.context_lost:
                    press_all = _probe("probe.probe").press_all

                    try:
                        press_all(session, progress)
                    except ToolkitError as error:
                        session.failures.append(error)
            done(session)
    except (ToolkitError, KeyboardInterrupt) as error:
        measured = session is not None and session.measured
        if not measured and str(folder) not in str(error):  # No log there is named.
            store.discard(folder)
        raise
    return session


def _go_on(folder: Path, job: LadderJob, done: Callable[[Session], None]) -> Session:
    """Collect what a run lacks; `done` shows it while the run is locked."""
    with runner.locked(folder) as lock:
        with Progress() as progress:
            session = runner.resume(folder, progress, job.executor, ladder=job.asked is not None)
            if job.asked and job.asked.redact:
                runner.redact_reports(session, job.asked.redact_source)
            # Without its page a run counts as unfinished; it is written at the end.
            (folder / runner.PAGE).unlink(missing_ok=True)
            runner.collect_all(session, job, progress, lock)
        done(session)
    return session


#: Parameters that choose launches, instead of a step's.
_CHOOSE: Final = (
    "launch_count", "launch_skip", "nvtx", "ranges", "kernels", "kernel_filter", "exclude",
)  # fmt: skip
#: Parameters that go with --resume.
_WITH_RESUME: Final = frozenset(
    {"resumed", "reports", "timeout", "redact", "redact_source", "cluster", "slow_boards"}
)


def _refuse_others() -> None:
    for parameter in click.get_current_context().command.params:
        name = parameter.name or ""
        if given(name) and name not in _WITH_RESUME:
            shown = parameter.opts[0] if isinstance(parameter, click.Option) else "a program"
            raise UsageProblem(
                f"{shown} cannot be combined with --resume",
                "A resumed run keeps its options; start a new run to change them",
            )


def _profile_program(job: ProgramJob, probed: bool) -> None:
    from ncu_toolkit.kernel.pages.run_view import run_text
    from ncu_toolkit.program.pages.publish import publish_run

    screen, command = console(), job.request.command
    program_run.check(command, job.request.kernel_filter)
    at = RunHistory(cuda.gpu_uuid())
    screen.print(
        f"Profiling {command[0]} under ncu; its output goes to the log in the run's folder"
    )
    session = program_run.profile(job)
    folder = session.folder
    run = publish_run(folder, job.reports)
    placed = (
        replace(each, origin=replace(each.origin, file=str(folder / each.origin.file)))
        for each in run.profiles
    )
    # what was skipped is reported in notes and as the error
    screen.print(run_text(replace(run, profiles=tuple(placed), skipped=())))
    at.keep(run, folder)
    if probed:
        confirmations = _probe("probe.command").confirmations

        try:
            for line in confirmations(run.profiles, command):
                screen.print(line)
        except ToolkitError as error:
            session.failures.append(error)
    again = "".join(f" --needs {shlex.quote(str(each))}" for each in job.needs)
    for line in (
        *(f"note: {note}" for note in session.notes),
        f"Report: {folder / 'index.html'}",
        f"Raw report: {folder / program_run.STEM}.ncu-rep; next: ncu-toolkit analyze {folder} --format brief{again}",
    ):
        screen.print(line)
    session.raise_failure()


def _profile_step(job: StepJob) -> None:
    """Record a program, profile its step's kernels and answer for the step. Where it cannot be
    recorded here, its first launches are profiled."""
    from ncu_toolkit.base.render.text import AnswersText
    from ncu_toolkit.program.analysis.program import answer_of
    from ncu_toolkit.program.pages.step_page import publish_step

    screen = console()
    program_run.check(job.request.command, "")
    at = RunHistory(cuda.gpu_uuid())
    try:
        with one_line() as watch:
            done = step_run.profile_step(job, screen.print, watch)
    except EnvironmentProblem as error:
        if not cuda.has_driver():
            raise
        screen.print(f"note: no step was recorded: {error}")
        _profile_program(job, False)
        return
    with step_run.keeping(done.folder):
        made = publish_step(done, job.reports, job.needs)
    if made.run is not None:
        at.keep(made.run, done.folder)
    shown = answer_of(made.result, page=False)
    screen.print(AnswersText([replace(shown, verdict="")]))
    screen.print(f"Page: {made.page}")
    again = shlex.join(map(str, made.files))
    screen.print(f"Trace and report: {done.folder}; again: ncu-toolkit analyze {again}")
    if shown.verdict:
        screen.print(Text(shown.verdict, style="bold"))
    if done.interrupted:
        raise KeyboardInterrupt(f"what was recorded until then is kept in {done.folder}")
    if done.problem is not None:
        raise done.problem
    if done.session is not None:
        done.session.raise_failure()


def _probe(module: str) -> Any:
    """A module of the guest that `--probe` needs."""
    if (found := guest(module)) is None:
        raise EnvironmentProblem("--probe needs the guest 'probe'", "Reinstall ncu-toolkit")
    return found


def title_of(names: tuple[str, ...], cases: Cases) -> str:
    """A short name for a run: its kernel and sizes, or its families."""
    if len(names) == 1:
        return " ".join([names[0], *dict.fromkeys(case.size for case in cases)])
    return " ".join(dict.fromkeys(case.family for case in cases))


def finish(session: Session, reports: Path, at: RunHistory, names: tuple[str, ...] = ()) -> None:
    """Write a run's pages, print its summary and the cards of `names`, and keep it."""
    from ncu_toolkit.kernel.pages.run_view import run_text
    from ncu_toolkit.program.pages.publish import publish_run

    screen = console()
    run = publish_run(session.folder, reports)
    screen.print(run_text(run, names))
    at.keep(run, session.folder)
    screen.print(f"Report: {reports / 'index.html'}")
    left = sum(case.open for case in session.run.cases)
    if left:
        where = "" if reports == Path(DEFAULT_REPORTS) else f" --output {shlex.quote(str(reports))}"
        screen.print(
            f"{left} cases are not profiled. The rest: ncu-toolkit profile --resume {session.folder.name}{where}"
        )
    session.raise_failure()
