"""A search on this machine's GPU or on the GPUs of a cluster: settings are compiled in parallel,
pruned, verified, and timed beside the baseline on the same GPU."""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ncu_toolkit import __version__
from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    KernelProblem,
    ToolkitError,
    UsageProblem,
    first_line,
)
from ncu_toolkit.base.core.workers import Done
from ncu_toolkit.base.model import Device
from ncu_toolkit.base.model.codec import document
from ncu_toolkit.guests.tune import halving
from ncu_toolkit.guests.tune.halving import Parameters, Round, Search, Searcher, Task, Trial
from ncu_toolkit.kernel.build import nvcc
from ncu_toolkit.kernel.gpu import cuda, tuned
from ncu_toolkit.kernel.gpu.executor import HERE, Executor, Reporter, check_source, kept_here
from ncu_toolkit.kernel.gpu.launch import Runnable, Workspace, architecture_for, bind_verified
from ncu_toolkit.kernel.gpu.runner import cache_of
from ncu_toolkit.kernel.gpu.timing import Stopwatch
from ncu_toolkit.kernel.ladder.catalogue import find_rung
from ncu_toolkit.kernel.ladder.problems import Case, Problem, Size, problem_for
from ncu_toolkit.kernel.ladder.rung import LaunchGeometry, Rung

#: Compilations between two checks of the time limit, for each parallel job.
_BATCH: Final = 4
#: Seconds between two writes of the state; a kill loses at most this much.
_SAVE_EVERY: Final = 2.0


@dataclass(frozen=True)
class TuneRequest:
    """What to tune. `most` bounds the settings, `seconds` the time of this call; None: all, no
    bound. `restart` forgets an earlier search."""

    rung: Rung
    size: Size
    dtype: str | None = None
    most: int | None = None
    seconds: float | None = None
    jobs: int | None = None
    seed: int = 1
    restart: bool = False


class _OutOfTime(Exception):
    """The time of this call is over."""


def run(request: TuneRequest, reporter: Reporter, executor: Executor = HERE) -> Search:
    """Search from the start or from where an earlier call stopped, and store the best setting in
    the table.

    Returns:
        The search; `finished` is False where `seconds` ran out: then the best of what was timed is
        kept, marked as of an unfinished search.

    Raises:
        UsageProblem: nothing to search, a size or type that the kernel does not take, or a kernel
            without a baseline on a cluster.
        EnvironmentProblem: no GPU, too old a GPU, no nvcc; or a setting broke the GPU's context
            (the next call goes on without it).
        KernelProblem: no setting can be used.
    """
    started = time.monotonic()
    device, rung = executor.device(), request.rung
    architecture_for(rung, device)
    problem = problem_for(rung.family)
    if executor.boards and _baseline_rung(rung, problem, device) is None:
        what = f"{rung.name} has no baseline on {device.name}, and only ratios to a baseline compare boards"
        raise UsageProblem(what, "Tune it without --cluster")
    dtype = problem.dtype(request.dtype)
    chosen, invalid = halving.settings(rung, request.most, request.seed)
    trials = tuple(Trial(parameters) for parameters in chosen)
    fresh = Search(
        rung.family, rung.name, request.size.label, dtype, device.name, nvcc.source_digest(rung), request.seed, rung.with_parameters(),
        trials, invalid,
    )  # fmt: skip
    if request.restart:
        halving.forget(fresh)
    search = halving.resume(fresh)
    if search.finished:
        shown = "its result is shown again, --restart measures again"
        reporter.note(f"this search was finished before: {shown}")
    else:
        deadline = None if request.seconds is None else started + request.seconds
        search = _Tuner(search, request, deadline, reporter, executor).run()
    if search.timed:
        tuned.store_search(device.name, entry_of(search), document(halving.KIND, search.compact()))
    return search


def entry_of(search: Search) -> tuned.TunedEntry:
    """The table's entry for the best setting so far."""
    best = search.ranked()[0]
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return tuned.TunedEntry(
        search.family, search.rung, search.size, search.dtype, dict(best.parameters), best.median_us,
        len(search.timed), search.source, created, __version__, search.finished,
    )  # fmt: skip


@dataclass
class _Tuner:
    """A search under way. `deadline` is of time.monotonic."""

    search: Search
    request: TuneRequest
    deadline: float | None
    reporter: Reporter
    executor: Executor
    verified: set[str] = field(default_factory=set)
    """Settings that gave the right result on a GPU of a cluster."""

    @property
    def late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def run(self) -> Search:
        """Compile and time. With a time limit at most half of the time left goes into compiling
        before compiled settings are timed, so that a short call finds the best of some; this call
        or the next does the rest."""
        while True:
            self.compile(None if self.deadline is None else (time.monotonic() + self.deadline) / 2)
            halving.save(self.search)
            states = {trial.state for trial in self.search.trials}
            if "new" not in states or "ready" in states:
                self.time()
            if "new" not in states or self.late:
                return self.search

    def compile(self, until: float | None) -> None:
        """Compile new settings on all CPUs, and prune by the compiler's resource report. Cubins are
        cached, so an interrupted build goes on. What `until` leaves no time for stays new."""
        device, rung, trials = self.executor.device(), self.request.rung, list(self.search.trials)
        case = Case(self.request.size, self.search.dtype, rung.problem)
        names = problem_for(rung.family).values(case)
        macros = problem_for(rung.family).macros(case.dtype, case.size)
        requests: dict[int, nvcc.BuildRequest] = {}
        geometry: dict[int, tuple[LaunchGeometry, ...]] = {}
        for index, trial in enumerate(trials):
            if trial.state != "new":
                continue
            try:
                geometry[index] = rung.launch_geometry(names, trial.parameters, device.sm_count)
            except UsageProblem as error:
                trials[index] = replace(trial, state="pruned", reason=error.message)
                continue
            requests[index] = nvcc.BuildRequest(rung, device.arch, trial.parameters, macros)
        self.reporter.stage("Build", len(requests))
        for index, outcome in self.built(requests, until):
            if outcome.cubin is None:
                if isinstance(outcome.error, EnvironmentProblem):
                    raise outcome.error
                reason = outcome.error.message if outcome.error else "does not compile"
                trials[index] = replace(trials[index], state="pruned", reason=reason)
                continue
            reason, seen = halving.prune(device.cc, outcome.cubin.entries, geometry[index])
            state: halving.TrialState = "pruned" if reason else "ready"
            parameters = trials[index].parameters
            trials[index] = replace(seen, parameters=parameters, state=state, reason=reason)
        self.search = replace(self.search, trials=tuple(trials))

    def built(
        self, requests: Mapping[int, nvcc.BuildRequest], until: float | None
    ) -> Iterator[tuple[int, nvcc.BuildOutcome]]:
        """Each request's outcome, compiled in batches."""
        indices, jobs = list(requests), self.request.jobs
        batch = _BATCH * (jobs or os.cpu_count() or 1) if until is not None else len(indices)

        def progress(done: int, total: int, outcome: nvcc.BuildOutcome) -> None:
            self.reporter.step(Trial(outcome.request.parameters).label)

        for start in range(0, len(indices), max(1, batch)):
            if until is not None and time.monotonic() > until:
                return
            part = indices[start : start + batch]
            outcomes = self.executor.build([requests[index] for index in part], progress, jobs)
            yield from zip(part, outcomes, strict=True)

    def time(self) -> None:
        """The rounds, with the state written every _SAVE_EVERY seconds (on a cluster after each
        result) and whenever they end, for whatever reason."""
        search, boards = self.search, self.executor.boards
        written, stage = time.monotonic(), -1

        def saved(state: Search) -> None:
            nonlocal written
            if boards or time.monotonic() - written > _SAVE_EVERY:
                halving.save(state)
                written = time.monotonic()

        def progress(level: int, left: int, trial: Trial) -> None:
            nonlocal stage
            if level != stage:
                stage = level
                self.reporter.stage(f"Round {level + 1}", left + 1)
            self.reporter.step(f"{trial.label}: {trial.reason or f'{trial.median_us:.1f} us'}")

        def running(parameters: Parameters, runs: bool) -> None:
            if not boards:  # A worker that dies is counted by the scheduler.
                halving.mark(search, parameters, runs)

        measure: Any = measure_setting
        if not boards:
            request = self.request
            measure = _Bench(request.rung, request.size, search.dtype, self.deadline).measure
        searcher = Searcher(search, saved, running)
        run = self.on_cluster if boards else self.executor.run
        try:
            with contextlib.suppress(_OutOfTime):
                searcher.run(measure, progress, run)
        finally:
            self.search = searcher.search
            halving.save(self.search)

    def on_cluster(self, function: Any, tasks: Iterable[Task]) -> Iterator[Done]:
        """Tasks with what a worker needs to make its bench, until the deadline."""
        search = self.search
        bench = BenchOf(f"{search.family}/{search.rung}", search.size, search.dtype, search.source)
        self.verified |= {str(trial.parameters) for trial in search.trials if trial.rounds}

        def until() -> Iterator[tuple[Any, ...]]:
            for parameters, repeats, limit in tasks:
                if self.late:
                    raise _OutOfTime
                known = str(parameters) in self.verified
                self.verified.add(str(parameters))  # Its next round begins when this one has ended.
                yield bench, dict(parameters), repeats, limit, known

        return self.executor.run(function, until())


@dataclass(frozen=True)
class BenchOf:
    """What settings are searched for."""

    rung: str
    size: str
    dtype: str
    source: str
    """Digest of the kernel's source on the client."""


def measure_setting(
    bench_of: BenchOf, parameters: Parameters, repeats: int, limit_us: float | None, verified: bool
) -> Round:
    """Time a setting on this worker's GPU beside the baseline; see `halving.Measure`. `verified`: it
    gave the right result on a GPU before. Raises EnvironmentProblem: this machine has another
    source."""
    bench = _bench_for(bench_of)
    if verified:
        bench.trust(parameters)
    return bench.measure(parameters, repeats, limit_us)


class _Bench:
    """Times settings on one workspace, each verified before its first run here."""

    def __init__(self, rung: Rung, size: Size, dtype: str, deadline: float | None) -> None:
        self._rung, self._deadline = rung, deadline
        self._space = Workspace(rung, size, dtype)
        cache: Any = cache_of(self._space.problem, None)
        self._watch = Stopwatch(cache)
        self._baseline = _baseline(rung, self._space)
        self._verified: set[str] = set()

    def trust(self, parameters: Parameters) -> None:
        """Take a setting's result as right: another GPU verified it."""
        self._verified.add(str(sorted(parameters.items())))

    def measure(self, parameters: Parameters, repeats: int, limit_us: float | None) -> Round:
        """See `halving.Measure`; raises _OutOfTime before a setting where the time is over."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise _OutOfTime
        _check_context()
        try:
            return self._measured(parameters, repeats, limit_us)
        except ToolkitError:
            raise
        except Exception as error:  # CuPy's: no memory, or a failed launch that its event shows
            raise KernelProblem(f"failed on the GPU: {first_line(error)}") from error

    def _measured(self, parameters: Parameters, repeats: int, limit_us: float | None) -> Round:
        runnable = Runnable(self._rung, self._space, parameters)
        if str(sorted(parameters.items())) in self._verified:
            runnable.run()  # warm-up: its code was loaded just now
        else:
            runnable.verify()
            self.trust(parameters)
        times: list[float] = []
        beside: list[float] = []
        for _ in range(repeats):
            # Each waits for the one before: both start on an idle GPU.
            if self._baseline is not None:
                other = self._watch.enqueue(self._baseline.run)
                beside.append(round(self._watch.elapsed_us(other), 3))
            times.append(round(self._watch.elapsed_us(self._watch.enqueue(runnable.run)), 3))
            if limit_us is not None and times[0] > limit_us:
                break
        return Round(tuple(times), tuple(beside))


@kept_here
def _bench_for(asked: BenchOf) -> _Bench:
    """The workspace of a search, which a worker makes once, from the client's code."""
    check_source(asked.rung, asked.source)
    rung = find_rung(asked.rung)
    return _Bench(rung, problem_for(rung.family).parse_size(asked.size), asked.dtype, None)


def _check_context() -> None:
    """Raise EnvironmentProblem where an earlier setting has broken the GPU's context: nothing runs
    in this process any more."""
    try:
        cuda.synchronize("a setting before this one")
    except KernelProblem as error:
        remedy = "Run the same command again: it goes on without the setting that failed"
        raise EnvironmentProblem(error.message, remedy) from error


def _baseline(rung: Rung, space: Workspace) -> Any:
    """The baseline bound to the same arrays, verified; None where there is none or where it cannot
    run here."""
    other = _baseline_rung(rung, space.problem, cuda.device())
    return None if other is None else bind_verified(other, space)


def _baseline_rung(rung: Rung, problem: Problem, device: Device) -> Rung | None:
    name = rung.baseline or problem.baseline
    other = find_rung(name if "/" in name else f"{rung.family}/{name}") if name else rung
    return None if other is rung or other.unsupported_on(device.cc) else other
