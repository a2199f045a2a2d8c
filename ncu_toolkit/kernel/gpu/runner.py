"""A run of a ladder, from the cases to what its pages show: build, verify, time, profile, resume.

Each stage gives its tasks to an executor (cluster.py) and takes the results into a `Session`, which
is saved after each of them. Nothing here prints: a `Reporter` gets progress.

ncu writes its report when it ends. If the whole ladder were one run of ncu, a `kill -9` would lose
all of it. So the program under ncu ends after PART_SECONDS, and the next run of ncu goes on with the
rest (docs/decisions/06-parts-and-resume.md)."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from ncu_toolkit import PACKAGE, __version__
from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    InputProblem,
    KernelProblem,
    ToolkitError,
    UsageProblem,
)
from ncu_toolkit.base.core.files import write_atomic
from ncu_toolkit.base.metrics.registry import SET_NAME
from ncu_toolkit.base.model.run import Ceilings, LadderOptions, Run, RunCase
from ncu_toolkit.kernel.build import nvcc
from ncu_toolkit.kernel.gpu import collect, cuda, launch
from ncu_toolkit.kernel.gpu.executor import HERE, SAME, Executor, Reporter
from ncu_toolkit.kernel.gpu.selection import Cases, groups_of, operation_of, rung_of, size_of
from ncu_toolkit.kernel.gpu.target import (
    Plan,
    plan_path,
    read_plan,
    read_progress,
    stop_path,
    write_plan,
)
from ncu_toolkit.kernel.ladder.catalogue import find_rung
from ncu_toolkit.kernel.ladder.problems import Problem, problem_for
from ncu_toolkit.kernel.report import framing, integrity
from ncu_toolkit.kernel.report.redact import (
    redact_command,
    redact_folder,
    redact_in_place,
    redact_text,
)
from ncu_toolkit.kernel.runs import store

DEFAULT_TIMEOUT: Final = 1800.0
#: A part of a ladder begins no further case after this many seconds: what a kill can cost. Starting
#: a part costs a few.
PART_SECONDS: Final = 15.0
CUT: Final = ".damaged"
#: Python's arguments to run a plan. -P keeps the current folder off its path, where a file such as
#: json.py would be imported instead of the library's.
TARGET: Final = ("-P", "-m", "ncu_toolkit.kernel.gpu.target")
PAGE: Final = "index.html"
#: Signals that a user or a scheduler sends; any other one is a crash.
_ENDED_BY: Final = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_LOCK: Final = ".lock"
_STEM: Final = "profile"
_LISTED: Final = 6


@dataclass
class Session:
    """A run while it is collected: each result replaces `run`, and `save` writes it."""

    run: Run
    folder: Path
    failures: list[ToolkitError] = field(default_factory=list)
    refused: list[ToolkitError] = field(default_factory=list)
    """Why cases cannot run here (size, memory): an error only where nothing else ran."""
    notes: list[str] = field(default_factory=list)
    """Lines for the user at the end."""
    interrupted: bool = False
    context_lost: bool = False
    """A kernel broke the GPU's context: this process cannot use the GPU any more."""

    def update(self, **values: Any) -> None:
        """Replace fields of the run."""
        self.run = replace(self.run, **values)

    def record(self, *cases: RunCase) -> None:
        """Put cases into the run, each instead of the one with its marker."""
        known = {case.marker: case for case in (*self.run.cases, *cases)}
        self.update(cases=tuple(known.values()))

    def merge(self, part: Session, where: str) -> None:
        """Take in a part that was measured; `where` names the GPU of a cluster."""
        self.update(timings=(*self.run.timings, *part.run.timings))
        self.record(*part.run.cases)
        for label, seconds in part.run.costs.items():
            self.add_cost(label, seconds)
        self.failures += part.failures
        self.refused += part.refused
        self.name_gpu(where, (f"{each.family} {each.size}" for each in part.run.timings))

    def name_gpu(self, where: str, work: Iterable[str]) -> None:
        """Note in the run's environment what a GPU of a cluster measured."""
        known = self.run.environment.get(where, "")
        names = dict.fromkeys([*filter(None, known.split("; ")), *work])
        if where and names:
            self.update(environment={**self.run.environment, where: "; ".join(names)})

    def current(self, cases: Sequence[RunCase]) -> Cases:
        """The cases as the run has them; as given where it does not."""
        known = {case.marker: case for case in self.run.cases}
        return tuple(known.get(case.marker, case) for case in cases)

    def add_cost(self, label: str, seconds: float) -> None:
        costs = self.run.costs
        self.update(costs={**costs, label: costs.get(label, 0.0) + seconds})

    @property
    def measured(self) -> bool:
        """Whether the run has a result."""
        failed = any(case.state == "failed" for case in self.run.cases)
        return bool(self.run.timings or self.run.report_files or failed)

    def raise_failure(self) -> None:
        """Raise KeyboardInterrupt where the run was interrupted, else the first failure."""
        if self.interrupted:
            raise KeyboardInterrupt
        if self.failures:
            raise self.failures[0]

    def save(self) -> None:
        """Write the run as it is; called after every step that has a result."""
        store.save(self.folder, self.run)


@dataclass(frozen=True)
class TimingOptions:
    """How cases are timed."""

    cache: str | None = None
    """State of the L2, "warm" or "flushed"; by the family's rate where None."""
    against: str = ""
    """A family's further library (`Problem.rivals`), timed as one more rung where it has it."""
    seconds: float | None = None
    """GPU time spent on one case; timing.SECONDS_PER_RUNG where None."""


@dataclass(frozen=True)
class NcuOptions:
    """How cases are profiled."""

    timeout: float = DEFAULT_TIMEOUT
    """Seconds for all parts together."""
    cache_control: str = "all"
    set_name: str = SET_NAME
    part_seconds: float | None = PART_SECONDS
    """How long a run of ncu begins new cases; None for all in one run."""
    keep_open: Sequence[int] = ()
    """File descriptors that ncu inherits here, such as the run's lock."""


@dataclass(frozen=True)
class LadderJob:
    """A run of a ladder. For `bench` `asked` is None."""

    title: str
    cases: Cases
    asked: LadderOptions | None
    reports: Path
    tuned: bool = True
    timeout: float = DEFAULT_TIMEOUT
    executor: Executor = HERE
    probed: bool = False
    timing: TimingOptions = TimingOptions()


def start(
    folder: Path, title: str, asked: LadderOptions | None = None, executor: Executor = HERE
) -> Session:
    """A session on the executor's GPU. The machine is looked at here, since later a kernel may have
    broken the GPU's context."""
    device, created = executor.device(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    run = Run(
        id=folder.name, title=f"{title} on {device.name}", created=created, tool_version=__version__,
        device=device, environment=executor.environment(), asked=asked,
    )  # fmt: skip
    return Session(run, folder)


def collect_all(session: Session, job: LadderJob, reporter: Reporter, lock: int) -> None:
    """Build, time and profile what the run lacks; a run of `bench`, whose `asked` is None, is not
    profiled. Errors are in the session's failures. Raises ToolkitError, KeyboardInterrupt: nothing
    was measured."""
    asked, cases = session.run.asked or LadderOptions(), session.run.cases
    executor = job.executor
    try:
        if any(case.open for case in cases):
            build_all(session, cases, reporter, executor)
        session.save()
        if asked.timing:
            time_all(session, cases, reporter, job.timing, executor)
            measure_ceilings(session, reporter, executor)
            session.save()
        if session.run.asked is not None:
            options = NcuOptions(job.timeout, asked.cache_control, keep_open=(lock,))
            profile_all(session, cases, reporter, options, executor)
    except KeyboardInterrupt:
        session.interrupted = True
        if not session.measured:
            raise
    except ToolkitError as error:
        if not session.measured:
            raise
        if error not in session.failures:
            session.failures.append(error)
    if asked.redact:
        # A run that is resumed may have been started without --redact.
        session.update(commands=tuple(map(redact_text, session.run.commands)))
        redact_folder(session.folder)
    session.save()


def build_all(
    session: Session, cases: Sequence[RunCase], reporter: Reporter, executor: Executor = HERE
) -> None:
    """Compile every rung for the device, in parallel, so that nothing compiles while something is
    timed. Raises ToolkitError: the first build that failed."""
    arch = executor.device().arch
    requests: dict[str, nvcc.BuildRequest] = {}
    for case in cases:
        rung = rung_of(case)
        if not rung.library:
            macros = problem_for(case.family).macros(case.dtype, size_of(case))
            settings = sorted(case.parameters.items()), sorted(macros.items())
            request = nvcc.BuildRequest(rung, arch, case.parameters, macros)
            requests[f"{case.family}/{case.rung} {settings}"] = request
    reporter.stage("Build", len(requests))
    started = time.monotonic()

    def progress(done: int, total: int, outcome: nvcc.BuildOutcome) -> None:
        reporter.step(outcome.request.rung.name)

    outcomes = executor.build(list(requests.values()), progress)
    session.add_cost("build", time.monotonic() - started)
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def time_all(
    session: Session,
    cases: Sequence[RunCase],
    reporter: Reporter,
    options: TimingOptions = TimingOptions(),
    executor: Executor = HERE,
) -> None:
    """Verify and time every case that is not timed yet, and save after each group of rungs that are
    timed side by side, which is on one GPU. A wrong rung is recorded as failed and never timed; the
    others go on. Raises ToolkitError: the first refusal (size, memory), where not a single case
    could run."""
    timed = {(each.family, each.rung, each.size, each.dtype) for each in session.run.timings}
    left = [
        case
        for case in session.current(cases)
        if not case.final and (case.family, case.rung, case.size, case.dtype) not in timed
    ]
    reporter.stage("Verify and time", len(left))
    tasks = ((group, options) for group in groups_of(left))
    for done in executor.run(time_group, tasks, reporter):
        if done.error is not None:
            raise done.error
        session.merge(done.value, done.where)
        if session.measured:
            session.save()
        if session.failures and not executor.works():
            lost = "a kernel broke this process's CUDA context"
            reporter.note(f"{lost}, so the remaining cases are not timed")
            session.context_lost = True
            return
    if session.refused and not session.run.timings and not session.failures:
        raise session.refused[0]


def time_group(group: Cases, options: TimingOptions, reporter: Reporter) -> Session:
    """A session of its own with cases of one problem and size, verified and timed side by side on
    this process's GPU. Raises ToolkitError: the group cannot be timed here at all."""
    part = Session(Run("", "", ""), Path())
    try:
        _time_group(part, group, reporter, options)
    except ToolkitError:
        raise
    except Exception as error:
        problem = launch.explained(error, f"{group[0].family} at {group[0].size}")
        if problem is None:
            raise
        reporter.note(f"{problem.message}; this size is not timed")
        (part.failures if isinstance(problem, KernelProblem) else part.refused).append(problem)
    cuda.free_memory()
    return part


def cache_of(problem: Problem, cache: str | None) -> str:
    """The state of the L2 that runs are timed in: `cache`, by the family's rate where None."""
    return cache or ("warm" if problem.rate == "flop" else "flushed")


def _time_group(session: Session, group: Cases, reporter: Reporter, options: TimingOptions) -> None:
    from ncu_toolkit.kernel.gpu import timing

    first, problem = group[0], problem_for(group[0].family)
    mode: Any = cache_of(problem, options.cache)
    space = launch.Workspace(rung_of(first), size_of(first), first.dtype)
    ready: list[Any] = []
    records = []
    for case in group:
        try:
            runnable = launch.bind_verified(rung_of(case), space, case.parameters)
        except Exception as error:
            where = f"'{case.rung}' at {case.size}"
            known = launch.explained(error, where)
            if known is None:
                raise
            failed = isinstance(known, KernelProblem)
            state = "failed" if failed else "skipped"
            session.record(replace(case, state=state, message=str(known)))
            (session.failures if failed else session.refused).append(known)
            reporter.step(f"{case.rung} {case.size}: {known.message}")
            continue
        ready.append(runnable)
        state = "timed" if case.open else case.state
        records.append(replace(case, parameters=dict(runnable.parameters), state=state))
    if not ready:
        return
    try:
        baseline = _baseline(problem, ready, space)
    except EnvironmentProblem as error:
        reporter.note(f"the baseline is not timed at {first.size}: {error.message}")
        baseline = None
    rival = _rival(problem, space, options.against, reporter)
    if rival is not None:
        ready.append(rival)
    budget = timing.SECONDS_PER_RUNG if options.seconds is None else options.seconds
    asked = {case.rung for case in group}

    def tick(name: str) -> None:
        if name in asked:  # a rival library is no case of the stage
            reporter.step(f"{name} {first.size}")

    measured = timing.measure_ladder(ready, baseline, mode, seconds=budget, tick=tick)
    session.update(timings=(*session.run.timings, *measured.values()))
    session.record(*records)
    where = f"{first.family} {first.size}{operation_of(rung_of(first))}"
    for label, spent in timing.measure_costs(ready[0]).items():
        session.add_cost(f"{label} {where}", spent)


def _rival(problem: Problem, space: Any, against: str, reporter: Reporter) -> Any:
    """The verified runnable of a family's further library; None where it has none, or it cannot run
    or is wrong at this size, which is reported."""
    library = problem.rivals.get(against)
    if library is None:
        return None
    own = find_rung(f"{problem.family}/{problem.baseline}")
    rung = structs.replace(own, name=library, library=library)
    try:
        return launch.bind_verified(rung, space)
    except ToolkitError as error:
        reporter.note(f"{library} is not timed at {space.case.size.label}: {error.message}")
        return None


def measure_ceilings(session: Session, reporter: Reporter, executor: Executor = HERE) -> None:
    """Measure what the device reaches, once a run; where that fails the run goes without."""
    if session.run.ceilings != Ceilings() or session.context_lost:
        return
    for done in executor.run(ceilings, [()]):
        if done.error is not None:
            reporter.note(f"the device's limits are not measured: {done.error.message}")
            continue
        session.update(ceilings=done.value)
        session.name_gpu(done.where, ["the device's limits"])


def ceilings() -> Ceilings:
    """`timing.measure_ceilings`; raises ToolkitError for what the GPU refuses."""
    from ncu_toolkit.kernel.gpu import timing

    try:
        return timing.measure_ceilings()
    except Exception as error:
        problem = launch.explained(error, "the measurement of the device's limits")
        if problem is None or problem is error:
            raise
        raise problem from error


def _baseline(problem: Problem, ready: Sequence[Any], space: Any) -> Any:
    """The runnable of the group's baseline: among those being timed, else bound for this purpose;
    None where there is none."""
    name = next((each.rung.baseline for each in ready if each.rung.baseline), problem.baseline)
    own = next((each for each in ready if each.rung.name == name), None)
    if own is None and name:
        return launch.bind_verified(find_rung(f"{problem.family}/{name}"), space)
    return own


def profile_all(
    session: Session,
    cases: Sequence[RunCase],
    reporter: Reporter,
    options: NcuOptions = NcuOptions(),
    executor: Executor = HERE,
) -> None:
    """Profile every case that is still open, and save after each part. A case that crashes costs
    itself: the next part goes on after it. On Ctrl-C the current case is finished and kept, on a
    cluster the parts that have ended. Raises ToolkitError: nothing could be profiled; the cause and
    its remedy."""
    folder, deadline = session.folder, time.monotonic() + options.timeout
    session.record(*session.current(cases))
    left = _open(session, cases)
    if left:
        reporter.stage("Profile", len(left))
    while left:
        pieces, stems = executor.pieces(left), list[str]()

        def tasks(pieces: list[Cases] = pieces, stems: list[str] = stems) -> Iterator[Any]:
            for piece in pieces:
                stems.append(_free_stem(folder))
                write_plan(Plan(piece, options.part_seconds), plan_path(folder, stems[-1]))
                place = executor.place(folder / stems[-1])
                here = (place, reporter.doing) if place else ()
                yield piece, options, max(1.0, deadline - time.monotonic()), *here

        problem: ToolkitError | None = None
        for done in executor.run(profile_part, tasks()):
            piece, stem = pieces[done.index], stems[done.index]
            if done.error is not None:
                problem = done.error
                continue
            session.add_cost(f"profiling ({options.set_name})", done.value.outcome.seconds)
            outcome = _keep_part(session, stem, done.value, reporter)
            timeout = options.timeout
            problem = _settle(session, piece, plan_path(folder, stem), outcome, timeout) or problem
            for case in session.current(piece):
                if not case.open:
                    ended = "" if case.state == "profiled" else f": {case.state}"
                    reporter.step(case.label + ended)
            session.name_gpu(done.where, (f"{case.family} {case.size}" for case in piece))
            session.save()
        before, left = left, _open(session, left)
        if problem is not None:
            session.failures.append(problem)
            if not session.run.report_files:
                raise problem
            reporter.note(f"{problem.message}; profiles made before are kept")
            return
        if session.interrupted or len(left) == len(before):
            return


def _keep_part(
    session: Session, stem: str, part: PartFiles, reporter: Reporter
) -> collect.NcuOutcome:
    """Take a part's files, command and report into the run; how it ended."""
    for end, content in part.files.items():
        write_atomic(session.folder / f"{stem}{end}", content)
    redacted = session.run.asked is not None and session.run.asked.redact
    words = part.outcome.command
    shown = redact_command(words) if redacted else " ".join(words)
    session.update(commands=(*session.run.commands, shown))
    session.interrupted |= part.outcome.interrupted
    _adopt(session, stem, reporter)
    return _moved(part.outcome, session.folder / f"{stem}.log")


@dataclass(frozen=True)
class PartFiles:
    """A part that was profiled: how ncu ended, and the files it left on another machine, by the end
    of their names."""

    outcome: collect.NcuOutcome
    files: Mapping[str, bytes]


def profile_part(
    cases: Cases,
    options: NcuOptions,
    left: float,
    place: Path | None = None,
    doing: Callable[[str], None] = lambda _: None,
) -> PartFiles:
    """One run of ncu, which begins new cases for `part_seconds`.

    Args:
        left: seconds that ncu may take.
        place: path of its files without their ends, the plan among them; without it they lie in a
            temporary folder and are returned.
        doing: gets the case that is under way.

    Raises:
        EnvironmentProblem: no ncu here, or no section files for the set.
    """
    ncu = collect.find_ncu()
    folders = collect.section_folders(ncu, options.set_name)
    paths = [str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    cuda.free_memory()
    with contextlib.ExitStack() as stack:
        at = place
        if at is None:
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="ncu-toolkit-part-"))
            at = Path(made) / _STEM
            write_plan(Plan(cases, options.part_seconds), plan_path(at.parent, at.name))
        path = plan_path(at.parent, at.name)

        def tick() -> None:
            # The bar counts cases whose report is on the disk, which is what a kill leaves.
            steps = read_progress(path)
            if steps and steps[-1].case < len(cases):
                doing(cases[steps[-1].case].label)

        command = (sys.executable, *TARGET, str(path))
        request = collect.Request(
            at, command, folders, options.set_name, True, cache_control=options.cache_control
        )
        keep_open = options.keep_open if place else ()
        job = collect.NcuJob(ncu, request, left, environment, keep_open)
        outcome = collect.run(job, tick=tick, request_stop=stop_path(path).touch)
        stop_path(path).unlink(missing_ok=True)
        files = [each for each in at.parent.iterdir() if each.is_file()] if place is None else []
        content = {file.name.removeprefix(_STEM): file.read_bytes() for file in files}
    return PartFiles(outcome, content)


def _open(session: Session, cases: Sequence[RunCase]) -> Cases:
    return tuple(case for case in session.current(cases) if case.open)


def _free_stem(folder: Path) -> str:
    """`profile`, `profile-2`, and so on: the first that no file has, so that no part overwrites
    another."""
    ends = re.compile(r"\..*|-plan\.json$|-progress\.jsonl$|-stop$", re.DOTALL)
    taken = {ends.sub("", path.name) for path in folder.iterdir()}
    stems = itertools.chain([_STEM], (f"{_STEM}-{number}" for number in itertools.count(2)))
    return next(stem for stem in stems if stem not in taken)


def _moved(outcome: collect.NcuOutcome, log: Path) -> collect.NcuOutcome:
    """An outcome whose log lies here, also where its problem names it."""
    problem = outcome.problem
    if problem is not None:
        problem.remedy = problem.remedy.replace(str(outcome.log), str(log))
        problem.log = log
    return replace(outcome, log=log, problem=problem)


def _settle(
    session: Session, cases: Cases, plan: Path, outcome: collect.NcuOutcome, timeout: float
) -> ToolkitError | None:
    """Give each case of a part its state, from the progress; returns the error that keeps the rest
    of the ladder from being profiled."""
    ended, problem = {step.case: step for step in read_progress(plan)}, outcome.problem
    sent = outcome.cause == "signal" and -outcome.returncode in _ENDED_BY
    crashed = outcome.cause in ("crash", "signal") and not sent
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
                state, where = "failed", f"Its output is in {outcome.log.name}"
                message = f"{case.label}: the program ended during this case. {where}"
        session.record(replace(case, state=state, message=message))
        if state == "failed":
            session.failures.append(KernelProblem(message))
    settled = any(not case.open for case in session.current(cases))
    harmless = crashed or outcome.cause in ("", "memory", "no-kernels")
    if outcome.interrupted or (settled and harmless):
        return None
    if outcome.cause == "timeout":
        remedy = "Finished work is kept. Continue with --resume, and allow more time with --timeout"
        return EnvironmentProblem(f"the ladder was not profiled within {timeout:.0f} s", remedy)
    where = f"Its output is in {outcome.log}"
    return problem or EnvironmentProblem("ncu ended without writing a report", where)


def _adopt(session: Session, stem: str, reporter: Reporter) -> None:
    """Add a part's report to the run, where there is one, and mark the cases that it holds.

    A report that was cut off is kept under another name, and its whole launches under its own.
    """
    folder, run = session.folder, session.run
    path = collect.written(folder / stem)
    if path is None or path.name in run.report_files:
        return
    data, kept = path.read_bytes(), f"{path.name}{CUT}"
    frame, is_report = framing.parse(data), data.startswith(framing.MAGIC)
    if frame.problem or not is_report:
        path.rename(path.with_name(kept))
        whole = frame.declared_launches if is_report else 0
        if not whole:
            reporter.note(f"{path.name} was cut off within its first launch. It is kept as {kept}")
            return
        # Up to its last whole launch: code that follows is of launches that were lost.
        last = max(index for index, block in enumerate(frame.blocks) if block.results)
        ends = [*(block.offset for block in frame.blocks[1:]), frame.intact_bytes]
        data = data[: ends[last]]
        write_atomic(path, data)
        reporter.note(
            f"{path.name} was cut off. Its {whole} whole launches are kept, the rest is in {kept}"
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


def holds(data: bytes, marker: str) -> bool:
    """Whether a report holds a launch in the NVTX range `marker`, whose name it contains unchanged."""
    return re.search(re.escape(marker.encode()) + rb"(?![\w.-])", data) is not None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Lock a run's folder against a second session; yields the descriptor, which ncu inherits.
    Raises UsageProblem: another process holds the lock."""
    with (folder / _LOCK).open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = f"Wait for it, or end it: `fuser {folder / _LOCK}` names it"
            raise UsageProblem(f"the run '{folder.name}' is still running", hint) from None
        except OSError:
            pass  # The file system has no locks.
        yield stream.fileno()


def _unfinished(reports: Path) -> Iterator[tuple[Path, Run]]:
    """Runs with open cases (of `bench`, whose `asked` is None, not timed yet) or without pages. The
    newest comes last."""
    for folder, run in store.runs_under(reports):
        if isinstance(run, Run):
            left = any(case.open if run.asked else case.state == "planned" for case in run.cases)
            if left or not (folder / PAGE).is_file():
                yield folder, run


def unfinished_runs(reports: Path) -> list[Path]:
    """Folders of ladder runs with open cases or without pages, the newest last."""
    return [folder for folder, run in _unfinished(reports) if run.asked is not None]


def unfinished_like(
    reports: Path, cases: Sequence[RunCase], asked: LadderOptions | None, executor: Executor
) -> Path | None:
    """The newest unfinished run under `reports` that has exactly these cases and options, for a
    command that is given again; None where it starts a new run, as without a cluster."""
    wanted, found = set(map(identity, cases)), None
    for folder, run in _unfinished(reports) if executor.boards else ():
        if run.asked == asked and set(map(identity, run.cases)) == wanted:
            found = folder
    return found


def timed_in(folder: Path, cache: str | None) -> bool:
    """Whether all timings of a run are of this state of the L2."""
    timings = store.load_timings(folder)
    return all(each.cache == cache_of(problem_for(each.family), cache) for each in timings)


def identity(case: RunCase) -> tuple[object, ...]:
    """What makes a case the same in two runs: its range, source and parameters."""
    return (case.marker, case.source, *sorted(case.parameters.items()))


def find(name: str, reports: Path) -> Path:
    """The folder of the run to resume: by name under `reports` or by path; the newest unfinished
    one where `name` is empty. Raises UsageProblem: there is none; the message names those that can
    be resumed."""
    open_runs = unfinished_runs(reports)
    if not name:
        if not open_runs:
            hint = "Name the folder of reports with --output, or start a new run"
            raise UsageProblem(f"no run under '{reports}' is unfinished", hint)
        return open_runs[-1]
    for folder in (reports / name, Path(name)):
        if (folder / store.MANIFEST).is_file():
            return folder
    names = ", ".join(folder.name for folder in open_runs[-_LISTED:])
    hint = f"Unfinished are: {names}" if names else "No run there is unfinished"
    raise UsageProblem(f"there is no run '{name}' under '{reports}'", hint)


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
        what = f"the run '{folder.name}' was not made by `profile` on a ladder"
        raise UsageProblem(f"{what}, so it cannot be resumed", hint)
    environment = dict(executor.environment())
    if ladder:
        environment["ncu"] = executor.ncu()
    _check_machine(run.environment, environment)
    _check_kernels(run.cases)
    session = Session(run, folder)
    session.update(
        device=executor.device(),
        environment={
            **run.environment,
            **environment,
        },  # The run's also says which GPU measured what.
        timings=store.load_timings(folder),
    )
    _drop_damaged(session, reporter)
    _adopt_all(session, reporter)
    if ladder:
        _report_progress(session, reporter)
    else:
        kept = f"{len(session.run.timings)} timings and {len(session.run.report_files)} reports"
        reporter.note(f"{folder.name} resumes: {kept} are kept")
    return session


def _report_progress(session: Session, reporter: Reporter) -> None:
    cases, timed = session.run.cases, len(session.run.timings)
    left = [f"{case.rung} at {case.size}" for case in cases if case.open]
    names = f"{', '.join(left[:_LISTED])}{', …' if len(left) > _LISTED else ''}"
    rest = f"{len(left)} to collect: {names}" if left else "nothing is left to collect"
    final = sum(case.final for case in cases)
    stays = f" ({final} failed or cannot run here, and stay so)" if final else ""
    done = f"{sum(case.state == 'profiled' for case in cases)} of {len(cases)} cases are profiled"
    reporter.note(f"{session.folder.name}: {done} and {timed} timed, and kept{stays}; {rest}")


def _check_machine(then: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise EnvironmentProblem where this machine differs in what changes figures."""
    changed = (label for label in SAME if label in then and then[label] != now.get(label))
    different = [f"{each}: {then[each]} then, {now.get(each, 'none')} now" for each in changed]
    if different:
        what = f"the run was started on another machine ({'; '.join(different)})"
        raise EnvironmentProblem(what, "Start a new run, since a run must come from one machine")


def _check_kernels(cases: Cases) -> None:
    """Raise UsageProblem where kernels of the run are gone or have changed since, naming them."""
    changed: dict[str, None] = {}
    for case in cases:
        same = False
        with contextlib.suppress(ToolkitError):
            same = not case.source or nvcc.source_digest(rung_of(case)) == case.source
        if not same:
            changed[f"{case.family}/{case.rung}"] = None
    if changed:
        hint = "Start a new run, since figures of two versions of a kernel cannot be mixed"
        raise UsageProblem(f"{', '.join(changed)} changed since the run was started", hint)


def _drop_damaged(session: Session, reporter: Reporter) -> None:
    """Take out reports that were damaged or deleted; their cases are collected again."""
    for name in session.run.report_files:
        path = session.folder / name
        problem = integrity.verify(path).problem if path.is_file() else "is gone"
        if not problem:
            continue
        if path.is_file():
            path.rename(path.with_name(name + CUT))
        run, why = session.run, f"{name} {problem}"
        session.update(report_files=tuple(each for each in run.report_files if each != name))
        lost = [case for case in run.cases if case.report == name]
        session.record(*(replace(c, state="not run", message=why, report="") for c in lost))
        reporter.note(f"{why}; its cases are collected again")


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
    remove_source |= asked.redact_source
    session.update(asked=replace(asked, redact=True, redact_source=remove_source))
    for report in session.run.report_files:
        redact_in_place(session.folder / report, remove_source=remove_source)
        session.save()
