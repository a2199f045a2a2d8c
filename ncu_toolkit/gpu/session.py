"""The stages of a run on this machine's GPU before the profiler: build, verify and time.

`ladder_run.py` profiles the cases afterwards. Nothing here prints: a `Reporter` gets progress."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from ncu_toolkit import __version__
from ncu_toolkit.build import nvcc
from ncu_toolkit.build.toolchain import toolchain_description
from ncu_toolkit.core.errors import EnvironmentProblem, KernelProblem, ToolkitError
from ncu_toolkit.gpu import cuda, launch
from ncu_toolkit.gpu.cluster import HERE, Executor, check_source
from ncu_toolkit.gpu.selection import Cases, groups_of, operation_of, rung_of, size_of
from ncu_toolkit.ladder.catalogue import find_rung
from ncu_toolkit.ladder.problems import Problem, problem_for
from ncu_toolkit.model.run import Ceilings, LadderOptions, Run, RunCase
from ncu_toolkit.runs import store

DEFAULT_TIMEOUT: Final = 1800.0


class Reporter(Protocol):
    """Where a session reports progress."""

    def stage(self, title: str, total: int) -> None:
        """A stage of `total` steps begins."""

    def step(self, label: str) -> None:
        """One step of the stage is done."""

    def doing(self, label: str) -> None:
        """What is under way; called several times a second."""

    def note(self, text: str) -> None:
        """Something the user should know."""


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
        """Put cases into the run, each in place of the one with its marker."""
        known = {case.marker: case for case in (*self.run.cases, *cases)}
        self.update(cases=tuple(known.values()))

    def apart(self) -> Session:
        """A session for a part of this run on another machine; `merge` takes it in."""
        run = self.run
        return Session(Run(run.id, run.title, run.created), Path())

    def merge(self, part: Session, where: str) -> None:
        """Take in a part that a board of a cluster measured; `where` names the board."""
        self.update(timings=(*self.run.timings, *part.run.timings))
        self.record(*part.run.cases)
        for label, seconds in part.run.costs.items():
            self.add_cost(label, seconds)
        self.failures += part.failures
        self.refused += part.refused
        timed = dict.fromkeys(f"{each.family} {each.size}" for each in part.run.timings)
        self.name_board(where, timed)

    def name_board(self, where: str, work: Iterable[str]) -> None:
        """Note in the run's environment what a board measured."""
        known = self.run.environment.get(where, "")
        names = dict.fromkeys([*filter(None, known.split("; ")), *work])
        if names:
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
        run = self.run
        return bool(
            run.timings or run.report_files or any(case.state == "failed" for case in run.cases)
        )

    def raise_failure(self) -> None:
        """Raise KeyboardInterrupt where the run was interrupted, else the first failure."""
        if self.interrupted:
            raise KeyboardInterrupt
        if self.failures:
            raise self.failures[0]

    def save(self) -> None:
        """Write the run as it is; called after every step that has a result."""
        store.save(self.folder, self.run)


def start(
    folder: Path, title: str, asked: LadderOptions | None = None, executor: Executor = HERE
) -> Session:
    """A session on the executor's GPU. The machine is looked at here, since later a kernel may have
    broken the GPU's context."""
    run = Run(
        id=folder.name,
        title=f"{title} on {executor.device().name}",
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        tool_version=__version__,
        device=executor.device(),
        environment=executor.environment(),
        asked=asked,
    )
    return Session(run, folder)


def machine() -> dict[str, str]:
    """Labels and values of this machine: GPU, driver, CUDA, compiler."""
    return {**cuda.environment(), "Compiler": toolchain_description()}


def build_all(
    session: Session, cases: Sequence[RunCase], reporter: Reporter, executor: Executor = HERE
) -> None:
    """Compile every rung for the device, in parallel, so that nothing compiles while something is
    timed.

    Raises:
        ToolkitError: the first build that failed.
    """
    arch = executor.device().arch
    requests: dict[tuple[object, ...], nvcc.BuildRequest] = {}
    for case in cases:
        rung = rung_of(case)
        if not rung.library:
            macros = problem_for(case.family).macros(case.dtype, size_of(case))
            settings = (*sorted(case.parameters.items()), *sorted(macros.items()))
            key = (case.family, case.rung, *settings)
            requests[key] = nvcc.BuildRequest(rung, arch, case.parameters, macros)
    reporter.stage("Build", len(requests))
    started = time.monotonic()
    outcomes = executor.build(
        list(requests.values()),
        lambda done, total, outcome: reporter.step(outcome.request.rung.name),
    )
    session.add_cost("build", time.monotonic() - started)
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def time_all(
    session: Session,
    cases: Sequence[RunCase],
    reporter: Reporter,
    cache: str | None = None,
    seconds: float | None = None,
    executor: Executor = HERE,
    against: str = "",
) -> None:
    """Verify and time every case that is not timed yet, and save after each group of rungs that are
    timed side by side, which is on one GPU. A wrong rung is recorded as failed and never timed; the
    others go on.

    Args:
        cache: state of the L2, "warm" or "flushed"; by the family's rate where None.
        seconds: GPU time spent on one case (timing.SECONDS_PER_RUNG where None).
        against: a family's further library (`Problem.rivals`), timed as one more rung where it has
            it.

    Raises:
        ToolkitError: the first refusal (size, memory), where not a single case could run.
    """
    timed = {(each.family, each.rung, each.size, each.dtype) for each in session.run.timings}
    left = [
        case
        for case in session.current(cases)
        if not case.final and (case.family, case.rung, case.size, case.dtype) not in timed
    ]
    reporter.stage("Verify and time", len(left))
    tasks = (
        (session.apart() if executor.boards else session, group, cache, seconds, against)
        for group in groups_of(left)
    )
    for done in executor.run(time_there if executor.boards else time_group, tasks, reporter):
        if done.error is not None:
            raise done.error
        if executor.boards:
            session.merge(done.value, done.where)
        if session.measured:
            session.save()
        if session.failures and not executor.boards and not cuda.context_works():
            reporter.note(
                "a kernel broke this process's CUDA context, so the remaining cases are not timed"
            )
            session.context_lost = True
            return
        if not executor.boards:
            cuda.cupy().get_default_memory_pool().free_all_blocks()
    if session.refused and not session.run.timings and not session.failures:
        raise session.refused[0]


def time_group(
    session: Session,
    group: Cases,
    cache: str | None,
    seconds: float | None,
    against: str,
    reporter: Reporter,
) -> Session:
    """Verify and time cases of one problem and size, side by side on this process's GPU, into the
    session, which is returned.

    Raises:
        ToolkitError: the group cannot be timed here at all.
    """
    cuda.disable_tf32()
    cuda.cupy()
    try:
        _time_group(session, group, reporter, cache, seconds, against)
    except ToolkitError:
        raise
    except Exception as error:
        problem = launch.explained(error, f"{group[0].family} at {group[0].size}")
        if problem is None:
            raise
        reporter.note(f"{problem.message}; this size is not timed")
        (session.failures if isinstance(problem, KernelProblem) else session.refused).append(
            problem
        )
    return session


def time_there(
    session: Session,
    group: Cases,
    cache: str | None,
    seconds: float | None,
    against: str,
    reporter: Reporter,
) -> Session:
    """`time_group` on a worker; raises EnvironmentProblem where its kernels are not the client's."""
    check_sources(group)
    found = time_group(session, group, cache, seconds, against, reporter)
    if cuda.context_works():
        cuda.cupy().get_default_memory_pool().free_all_blocks()
    return found


def check_sources(cases: Sequence[RunCase]) -> None:
    """See `cluster.check_source`."""
    for case in cases:
        check_source(f"{case.family}/{case.rung}", case.source)


def cache_of(problem: Problem, cache: str | None) -> str:
    """The state of the L2 that runs are timed in: `cache`, by the family's rate where None."""
    return cache or ("warm" if problem.rate == "flop" else "flushed")


def _time_group(
    session: Session,
    group: Cases,
    reporter: Reporter,
    cache: str | None,
    seconds: float | None,
    against: str,
) -> None:
    from ncu_toolkit.gpu import timing

    first = group[0]
    problem, options = problem_for(first.family), rung_of(first).problem
    mode: Any = cache_of(problem, cache)
    space = launch.Workspace(problem, size_of(first), first.dtype, options)
    ready: list[Any] = []
    records = []
    for case in group:
        try:
            runnable = launch.Runnable(rung_of(case), space, case.parameters)
            runnable.verify()
        except Exception as error:
            known = (
                error
                if isinstance(error, ToolkitError)
                else launch.explained(error, f"'{case.rung}' at {case.size}")
            )
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
    rival = _rival(problem, space, against, reporter)
    if rival is not None:
        ready.append(rival)
    budget = timing.SECONDS_PER_RUNG if seconds is None else seconds
    measured = timing.measure_ladder(
        ready,
        baseline,
        mode,
        seconds=budget,
        tick=lambda name: reporter.step(f"{name} {first.size}"),
    )
    session.update(timings=(*session.run.timings, *measured.values()))
    session.record(*records)
    costs = timing.measure_costs(ready[0])
    where = f"{first.family} {first.size}{operation_of(rung_of(first))}"
    for label, spent in asdict(costs).items() if costs is not None else ():
        session.add_cost(f"{label} {where}", spent)


def _rival(problem: Problem, space: Any, against: str, reporter: Reporter) -> Any:
    """The verified runnable of a family's further library; None where it has none, or it cannot run
    or is wrong at this size, which is told."""
    library = problem.rivals.get(against)
    if library is None:
        return None
    rung = replace(find_rung(f"{problem.family}/{problem.baseline}"), name=library, library=library)
    try:
        return launch.bind_verified(rung, space)
    except ToolkitError as error:
        reporter.note(f"{library} is not timed at {space.size.label}: {error.message}")
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
        if done.where:
            session.name_board(done.where, ["the device's limits"])


def ceilings() -> Ceilings:
    """`timing.measure_ceilings`; raises ToolkitError for what the GPU refuses."""
    from ncu_toolkit.gpu import timing

    try:
        return timing.measure_ceilings()
    except ToolkitError:
        raise
    except Exception as error:
        problem = launch.explained(error, "the measurement of the device's limits")
        if problem is None:
            raise
        raise problem from error


def _baseline(problem: Problem, ready: Sequence[Any], space: Any) -> Any:
    """The runnable of the group's baseline: among those being timed, else bound for this purpose;
    None where there is none."""
    name = next(
        (runnable.rung.baseline for runnable in ready if runnable.rung.baseline), problem.baseline
    )
    if not name:
        return None
    for runnable in ready:
        if runnable.rung.name == name:
            return runnable
    return launch.bind_verified(find_rung(f"{problem.family}/{name}"), space)
