"""A ladder under ncu: profiled a part at a time, and resumed where it stopped.

ncu writes its report when it ends. If the whole ladder were one run of ncu, a `kill -9` would lose
all of it. So the program under ncu ends after PART_SECONDS, and the next run of ncu goes on with the
rest (docs/decisions/06-parts-and-resume.md)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ncu_toolkit.build import nvcc
from ncu_toolkit.core.errors import (
    EnvironmentProblem,
    InputProblem,
    KernelProblem,
    ToolkitError,
    UsageProblem,
)
from ncu_toolkit.core.files import write_atomic
from ncu_toolkit.gpu import collect, cuda
from ncu_toolkit.gpu.cluster import HERE, SAME, Executor, own_temporary_folder
from ncu_toolkit.gpu.selection import Cases, groups_of, rung_of
from ncu_toolkit.gpu.session import DEFAULT_TIMEOUT, Reporter, Session, check_sources
from ncu_toolkit.gpu.target import (
    Plan,
    plan_path,
    read_plan,
    read_progress,
    stop_path,
    write_plan,
)
from ncu_toolkit.metrics.sections import SET_NAME
from ncu_toolkit.model.run import LadderOptions, Run, RunCase
from ncu_toolkit.report import checksums, framing
from ncu_toolkit.report.redact import redact_command, redact_in_place
from ncu_toolkit.runs import store

#: A part of a ladder begins no further case after this many seconds: what a kill can cost. Starting
#: a part costs a few.
PART_SECONDS: Final = 15.0
CUT: Final = ".damaged"
#: Python's arguments to run a plan. -P keeps the current folder off its path, where a file such as
#: json.py would be imported in place of the library's.
TARGET: Final = ("-P", "-m", "ncu_toolkit.gpu.target")
PAGE: Final = "index.html"
#: Signals that a user or a scheduler sends; any other one is a crash.
_ENDED_BY: Final = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_LOCK: Final = ".lock"
_STEM: Final = "profile"
_LISTED: Final = 6


@dataclass(frozen=True)
class _Parts:
    """What all runs of ncu of one ladder have in common."""

    ncu: collect.Ncu
    request: collect.Request
    deadline: float
    timeout: float
    seconds: float | None
    keep_open: Sequence[int]


def profile_all(
    session: Session,
    cases: Sequence[RunCase],
    reporter: Reporter,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    set_name: str = SET_NAME,
    cache_control: str = "all",
    part_seconds: float | None = PART_SECONDS,
    keep_open: Sequence[int] = (),
    executor: Executor = HERE,
) -> None:
    """Profile every case that is still open, and save after each part. A case that crashes costs
    itself: the next part goes on after it. On Ctrl-C the current case is finished and kept, on a
    cluster the parts that have ended.

    Args:
        timeout: seconds for all parts together.
        part_seconds: how long a run of ncu begins new cases; None for all in one run.
        keep_open: file descriptors that ncu inherits, such as the run's lock.

    Raises:
        ToolkitError: nothing could be profiled; the cause and its remedy.
    """
    ncu = None if executor.boards else collect.find_ncu()
    session.record(*session.current(cases))
    left = _open(session, cases)
    if not left:
        return
    if ncu is None:
        asked = (part_seconds, set_name, cache_control)
        _on_boards(session, left, asked, timeout, reporter, executor)
        return
    request = _request(ncu, set_name, cache_control)
    reporter.stage("Profile", len(left))
    try:
        cuda.cupy().get_default_memory_pool().free_all_blocks()
    except Exception:
        if not session.context_lost:
            raise
    deadline = time.monotonic() + timeout
    parts = _Parts(ncu, request, deadline, timeout, part_seconds, keep_open)
    while left:
        problem = _part(session, left, _free_stem(session.folder), parts, reporter)
        before, left = left, _open(session, left)
        session.save()
        if problem is not None:
            session.failures.append(problem)
            if not session.run.report_files:
                raise problem
            reporter.note(f"{problem.message}; profiles made before are kept")
            return
        if session.interrupted or len(left) == len(before):
            return


def _open(session: Session, cases: Sequence[RunCase]) -> Cases:
    return tuple(case for case in session.current(cases) if case.open)


def _free_stem(folder: Path) -> str:
    """`profile`, `profile-2`, and so on: the first that no file has, so that no part overwrites
    another."""
    names = [path.name for path in folder.iterdir()]
    number, free = 1, _STEM
    while any(
        re.match(re.escape(free) + r"(\.|-plan\.json$|-progress\.jsonl$|-stop$)", name)
        for name in names
    ):
        number += 1
        free = f"{_STEM}-{number}"
    return free


def _part(
    session: Session, cases: Cases, stem: str, parts: _Parts, reporter: Reporter
) -> ToolkitError | None:
    """One run of ncu; returns the error that ends the ladder, None where it may go on. A case that
    failed by itself does not end it."""
    folder = session.folder
    plan = plan_path(folder, stem)
    write_plan(Plan(cases, parts.seconds), plan)
    words = _words(folder, stem, parts.ncu, parts.request)
    _add_command(session, words)

    def tick() -> None:
        # The bar counts cases whose report is on the disk, which is what a kill leaves.
        steps = read_progress(plan)
        if steps and steps[-1].case < len(cases):
            reporter.doing(cases[steps[-1].case].label)

    left = max(1.0, parts.deadline - time.monotonic())
    outcome = _under_ncu(words, folder, stem, left, tick, keep_open=parts.keep_open)
    session.interrupted = outcome.interrupted
    set_name = parts.request.set_name
    return _take(session, cases, stem, set_name, parts.timeout, outcome, reporter)


def _request(ncu: collect.Ncu, set_name: str, cache_control: str) -> collect.Request:
    """What all parts ask of this machine's ncu."""
    return collect.Request(
        section_folders=collect.section_folders(ncu, set_name),
        set_name=set_name,
        ranges_only=True,
        cache_control=cache_control,
    )


def _words(folder: Path, stem: str, ncu: collect.Ncu, request: collect.Request) -> list[str]:
    """The command line of a part."""
    command = (sys.executable, *TARGET, str(plan_path(folder, stem)))
    return collect.argv(ncu, replace(request, output=folder / stem, command=command))


def _add_command(session: Session, words: Sequence[str]) -> None:
    redacted = session.run.asked is not None and session.run.asked.redact
    shown = redact_command(words) if redacted else " ".join(words)
    session.update(commands=(*session.run.commands, shown))


def _under_ncu(
    words: Sequence[str],
    folder: Path,
    stem: str,
    seconds: float,
    tick: Callable[[], None] | None = None,
    temporary: Path | None = None,
    keep_open: Sequence[int] = (),
) -> collect.Outcome:
    """Run ncu over the plan of a part, whose files lie in `folder`."""
    plan = plan_path(folder, stem)
    package_parent = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([package_parent, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"PYTHONPATH": path}
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)
    outcome = collect.run(
        words,
        folder / stem,
        folder / f"{stem}.log",
        timeout=seconds,
        tick=tick,
        request_stop=stop_path(plan).touch,
        environment=environment,
        keep_open=keep_open,
    )
    stop_path(plan).unlink(missing_ok=True)
    return outcome


def _take(
    session: Session,
    cases: Cases,
    stem: str,
    set_name: str,
    timeout: float,
    outcome: collect.Outcome,
    reporter: Reporter,
) -> ToolkitError | None:
    """Take a part's report into the run, and give its cases their states."""
    session.add_cost(f"profiling ({set_name})", outcome.seconds)
    _adopt(session, stem, reporter)
    plan = plan_path(session.folder, stem)
    problem = _settle(session, cases, plan, outcome, timeout)
    for case in session.current(cases):
        if not case.open:
            reporter.step(case.label + ("" if case.state == "profiled" else f": {case.state}"))
    return problem


@dataclass(frozen=True)
class PartFiles:
    """A part that was profiled on a worker: what ncu was called with, how it ended, and the files it
    left, by the end of their names."""

    words: tuple[str, ...]
    outcome: collect.Outcome
    files: Mapping[str, bytes]


def profile_there(
    cases: Cases, seconds: float | None, set_name: str, cache_control: str, left: float
) -> PartFiles:
    """Profile cases on a worker's GPU, in a folder of its own. `seconds` is how long it begins new
    cases, `left` what ncu may take.

    Raises:
        EnvironmentProblem: no ncu on this worker, or other kernels than the client's.
    """
    check_sources(cases)
    ncu = collect.find_ncu()
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-part-") as name:
        folder = Path(name)
        write_plan(Plan(cases, seconds), plan_path(folder, _STEM))
        words = _words(folder, _STEM, ncu, _request(ncu, set_name, cache_control))
        outcome = _under_ncu(words, folder, _STEM, left, temporary=own_temporary_folder())
        files = {
            path.name.removeprefix(_STEM): path.read_bytes()
            for path in folder.iterdir()
            if path.is_file()
        }
    return PartFiles(tuple(words), outcome, files)


def _on_boards(
    session: Session,
    left: Cases,
    asked: tuple[float | None, str, str],
    timeout: float,
    reporter: Reporter,
    executor: Executor,
) -> None:
    """Profile cases on the boards of a cluster; see `profile_all`. `asked`: seconds of a part, set
    and cache control."""
    reporter.stage("Profile", len(left))
    seconds, set_name, cache_control = asked
    deadline = time.monotonic() + timeout
    while left:
        pieces = _pieces(left, executor.boards)
        stems: list[str] = []

        def tasks(
            pieces: Sequence[Cases] = pieces, stems: list[str] = stems
        ) -> Iterator[tuple[object, ...]]:
            for piece in pieces:
                stems.append(_free_stem(session.folder))
                write_plan(Plan(piece, seconds), plan_path(session.folder, stems[-1]))
                time_left = max(1.0, deadline - time.monotonic())
                yield piece, seconds, set_name, cache_control, time_left

        problem: ToolkitError | None = None
        for done in executor.run(profile_there, tasks()):
            piece, stem = pieces[done.index], stems[done.index]
            if done.error is not None:
                problem = done.error
                continue
            found: PartFiles = done.value
            for end, content in found.files.items():
                write_atomic(session.folder / f"{stem}{end}", content)
            _add_command(session, found.words)
            outcome = _moved(found.outcome, session.folder / f"{stem}.log")
            taken = _take(session, piece, stem, set_name, timeout, outcome, reporter)
            problem = taken or problem
            session.name_board(done.where, dict.fromkeys(f"{c.family} {c.size}" for c in piece))
            session.save()
        before, left = left, _open(session, left)
        if problem is not None:
            session.failures.append(problem)
            if not session.run.report_files:
                raise problem
            reporter.note(f"{problem.message}; profiles made before are kept")
            return
        if len(left) == len(before):
            return


def _moved(outcome: collect.Outcome, log: Path) -> collect.Outcome:
    """An outcome whose log lies here, also where its problem names it."""
    problem = outcome.problem
    if problem is not None:
        problem.remedy = problem.remedy.replace(str(outcome.log), str(log))
        problem.log = log
    return replace(outcome, log=log, problem=problem)


def _pieces(cases: Cases, boards: int) -> list[Cases]:
    """Cases in pieces for a board each: of one problem and size, and enough of them that the boards
    end at about the same time."""
    most = max(1, len(cases) // (2 * boards))
    return [
        group[start : start + most]
        for group in groups_of(cases)
        for start in range(0, len(group), most)
    ]


def _settle(
    session: Session, cases: Cases, plan: Path, outcome: collect.Outcome, timeout: float
) -> ToolkitError | None:
    """Give each case of a part its state, from the progress; returns the error that keeps the rest
    of the ladder from being profiled."""
    ended = {step.case: step for step in read_progress(plan)}
    crashed = outcome.cause == "crash" or (
        outcome.cause == "signal" and -outcome.returncode not in _ENDED_BY
    )
    problem = outcome.problem
    for index, case in enumerate(session.current(cases)):
        if case.state == "profiled":
            continue
        step = ended.get(index)
        state, message = "not run", "profiling ended before it"
        if step is not None and step.state in ("failed", "skipped"):
            state, message = step.state, step.message
        elif step is not None and step.state == "started":
            message = "it was running when profiling ended"
            if outcome.cause == "memory" and problem is not None:
                state, message = "skipped", str(problem)
            elif crashed:
                state = "failed"
                message = f"{case.label}: the program ended during this case. Its output is in {outcome.log.name}"
        session.record(replace(case, state=state, message=message))
        if state == "failed":
            session.failures.append(KernelProblem(message))
    settled = any(not case.open for case in session.current(cases))
    if outcome.interrupted or (
        settled and (crashed or outcome.cause in ("", "memory", "no-kernels"))
    ):
        return None
    if outcome.cause == "timeout":
        remedy = "Finished work is kept. Continue with --resume, and allow more time with --timeout"
        return EnvironmentProblem(f"the ladder was not profiled within {timeout:.0f} s", remedy)
    return problem or EnvironmentProblem(
        "ncu ended without writing a report", f"Its output is in {outcome.log}"
    )


def _adopt(session: Session, stem: str, reporter: Reporter) -> None:
    """Add a part's report to the run, where there is one, and mark the cases that it holds.

    A report that was cut off is kept under another name, and its whole launches under its own.
    """
    folder, run = session.folder, session.run
    path = collect.written(folder / stem)
    if path is None or path.name in run.report_files:
        return
    data = path.read_bytes()
    frame = framing.parse(data)
    if frame.problem or not data.startswith(framing.MAGIC):
        path.rename(path.with_name(path.name + CUT))
        if not data.startswith(framing.MAGIC) or not frame.declared_launches:
            reporter.note(
                f"{path.name} was cut off within its first launch. It is kept as {path.name}{CUT}"
            )
            return
        data = _whole_launches(data, frame)
        write_atomic(path, data)
        reporter.note(
            f"{path.name} was cut off. Its {frame.declared_launches} whole launches are kept, the rest is in {path.name}{CUT}"
        )
    if run.asked is not None and run.asked.redact:
        redact_in_place(path, remove_source=run.asked.redact_source)
    session.update(report_files=(*run.report_files, path.name))
    for case, state, _ in _steps(session, stem):
        if state == "profiled" and case.state != "profiled" and holds(data, case.marker):
            session.record(replace(case, state="profiled", message="", report=path.name))


def _steps(session: Session, stem: str) -> Iterator[tuple[RunCase, str, str]]:
    """The steps of a part: the run's case, the step's state and its message."""
    plan = plan_path(session.folder, stem)
    try:
        planned = read_plan(plan).cases
    except (InputProblem, OSError):
        return
    for step in read_progress(plan):
        case = session.run.case(planned[step.case].marker) if step.case < len(planned) else None
        if case is not None:
            yield case, step.state, step.message


def _whole_launches(data: bytes, frame: framing.Framing) -> bytes:
    """A cut report up to its last whole launch: code that follows is of launches that were lost."""
    last = max(index for index, block in enumerate(frame.blocks) if block.results)
    return data[
        : frame.blocks[last + 1].offset if last + 1 < len(frame.blocks) else frame.intact_bytes
    ]


def holds(data: bytes, marker: str) -> bool:
    """Whether a report holds a launch in the NVTX range `marker`, which stands in it as it is."""
    return re.search(re.escape(marker.encode()) + rb"(?![\w.-])", data) is not None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Lock a run's folder against a second session; yields the descriptor, which ncu inherits.

    Raises:
        UsageProblem: another process holds the lock.
    """
    with (folder / _LOCK).open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = f"Wait for it. An ncu may outlive a killed toolkit: `fuser {folder / _LOCK}` names it"
            raise UsageProblem(f"the run '{folder.name}' is still running", hint) from None
        except OSError:
            pass  # The file system has no locks.
        yield stream.fileno()


def unfinished_runs(reports: Path) -> list[Path]:
    """Folders of ladder runs with open cases or without pages, the newest last."""
    return [
        folder
        for folder, run in store.runs_under(reports)
        if isinstance(run, Run)
        and run.asked is not None
        and (any(case.open for case in run.cases) or not (folder / PAGE).is_file())
    ]


def unfinished_like(
    reports: Path, cases: Sequence[RunCase], asked: LadderOptions | None
) -> Path | None:
    """The newest unfinished run under `reports` that has exactly these cases and options, for a
    command on a cluster that is given again; of a run of `bench`, whose `asked` is None, cases are
    only timed."""
    wanted = {identity(case) for case in cases}

    def unfinished(folder: Path, run: Run) -> bool:
        left = any(case.open if asked else case.state == "planned" for case in run.cases)
        return left or not (folder / PAGE).is_file()

    found = [
        folder
        for folder, run in store.runs_under(reports)
        if isinstance(run, Run)
        and run.asked == asked
        and {identity(case) for case in run.cases} == wanted
        and unfinished(folder, run)
    ]
    return found[-1] if found else None


def identity(case: RunCase) -> tuple[object, ...]:
    """What makes a case the same in two runs: its range, source and parameters."""
    return (case.marker, case.source, *sorted(case.parameters.items()))


def find(name: str, reports: Path) -> Path:
    """The folder of the run to resume: by name under `reports` or by path; the newest unfinished
    one where `name` is empty.

    Raises:
        UsageProblem: there is none; the message names those that can be resumed.
    """
    open_runs = unfinished_runs(reports)
    if not name:
        if not open_runs:
            raise UsageProblem(
                f"no run under '{reports}' is unfinished",
                "Name the folder of reports with --output, or start a new run",
            )
        return open_runs[-1]
    for folder in (reports / name, Path(name)):
        if (folder / store.MANIFEST).is_file():
            return folder
    names = ", ".join(folder.name for folder in open_runs[-_LISTED:])
    raise UsageProblem(
        f"there is no run '{name}' under '{reports}'",
        f"Unfinished are: {names}" if names else "No run there is unfinished",
    )


def resume(
    folder: Path, reporter: Reporter, executor: Executor = HERE, *, ladder: bool = True
) -> Session:
    """A session that goes on with a run; a note tells what is done and what is left. The caller
    holds the folder's lock. `ladder`: only a run of `profile` can be resumed.

    Raises:
        UsageProblem: it is no run of a ladder, or a kernel has changed since.
        EnvironmentProblem: GPU, driver, compiler, CuPy or ncu differ from the run's.
        InputProblem: its files cannot be read.
    """
    run = store.load_manifest(folder)
    if run.asked is None and ladder:
        hint = "Profile a program again with --launch-skip N to leave out its first N launches; time a ladder again with `bench`"
        raise UsageProblem(
            f"the run '{folder.name}' was not made by `profile` on a ladder, so it cannot be resumed",
            hint,
        )
    environment = dict(executor.environment())
    if not executor.boards:
        environment["ncu"] = collect.find_ncu().version
    _check_machine(run.environment, environment)
    if executor.boards:  # Which board measured what.
        environment = {**run.environment, **environment}
    _check_kernels(run.cases)
    session = Session(
        replace(
            run,
            device=executor.device(),
            environment=environment,
            timings=store.load_timings(folder),
        ),
        folder,
    )
    _drop_damaged(session, reporter)
    _adopt_all(session, reporter)
    if ladder:
        _report_progress(session, reporter)
    else:
        kept = f"{len(session.run.timings)} timings and {len(session.run.report_files)} reports"
        reporter.note(f"{folder.name} goes on: {kept} are kept")
    return session


def _report_progress(session: Session, reporter: Reporter) -> None:
    run = session.run
    left = [f"{case.rung} at {case.size}" for case in run.cases if case.open]
    names = f"{', '.join(left[:_LISTED])}{', …' if len(left) > _LISTED else ''}"
    rest = f"{len(left)} to collect: {names}" if left else "nothing is left to collect"
    final = sum(case.final for case in run.cases)
    stays = f" ({final} failed or cannot run here, and stay so)" if final else ""
    done = sum(case.state == "profiled" for case in run.cases)
    reporter.note(
        f"{session.folder.name}: {done} of {len(run.cases)} cases are profiled and {len(run.timings)} timed, and kept{stays}; {rest}"
    )


def _check_machine(then: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise EnvironmentProblem where this machine differs in what changes figures."""
    different = [
        f"{label}: {then[label]} then, {now.get(label, 'none')} now"
        for label in SAME
        if label in then and then[label] != now.get(label)
    ]
    if different:
        raise EnvironmentProblem(
            f"the run was started on another machine ({'; '.join(different)})",
            "Start a new run, since a run must come from one machine",
        )


def _check_kernels(cases: Cases) -> None:
    """Raise UsageProblem where kernels of the run are gone or have changed since, naming them."""
    changed: dict[str, None] = {}
    for case in cases:
        try:
            same = not case.source or nvcc.source_digest(rung_of(case)) == case.source
        except ToolkitError:
            same = False
        if not same:
            changed[f"{case.family}/{case.rung}"] = None
    if changed:
        raise UsageProblem(
            f"{', '.join(changed)} changed since the run was started",
            "Start a new run, since figures of two versions of a kernel cannot be mixed",
        )


def _drop_damaged(session: Session, reporter: Reporter) -> None:
    """Take out reports that were damaged or deleted; their cases are collected again."""
    for name in session.run.report_files:
        path = session.folder / name
        problem = checksums.verify(path).problem if path.is_file() else "is gone"
        if not problem:
            continue
        if path.is_file():
            path.rename(path.with_name(name + CUT))
        run = session.run
        session.update(report_files=tuple(each for each in run.report_files if each != name))
        session.record(
            *(
                replace(case, state="not run", message=f"{name} {problem}", report="")
                for case in run.cases
                if case.report == name
            )
        )
        reporter.note(f"{name} {problem}; its cases are collected again")


def _adopt_all(session: Session, reporter: Reporter) -> None:
    """Adopt the reports of earlier parts, in the order in which they ran, where the toolkit was
    killed before it could."""
    plans = session.folder.glob(f"{_STEM}*-plan.json")
    for plan in sorted(plans, key=lambda path: (len(path.name), path.name)):
        stem = plan.name.removesuffix("-plan.json")
        _adopt(session, stem, reporter)
        for case, state, message in _steps(session, stem):
            if state in ("failed", "skipped") and case.open:
                session.record(replace(case, state=state, message=message))
        stop_path(plan).unlink(missing_ok=True)


def redact_reports(session: Session, remove_source: bool) -> None:
    """Redact the reports that the run has, and those that it will get."""
    asked = session.run.asked or LadderOptions()
    session.update(
        asked=replace(asked, redact=True, redact_source=asked.redact_source or remove_source)
    )
    for report in session.run.report_files:
        redact_in_place(session.folder / report, remove_source=remove_source or asked.redact_source)
        session.save()
