"""The stages of a ladder before the profiler: choose cases, build, verify and time, keep everything
in a run folder as it comes.

Prints nothing: what happens is told through a `Reporter`, which the CLI turns into progress bars.
Profiling is in `profiling.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from ncu_toolkit import __version__
from ncu_toolkit.build import nvcc
from ncu_toolkit.build.toolchain import toolchain_description
from ncu_toolkit.core.errors import EnvironmentProblem, KernelProblem, ToolkitError
from ncu_toolkit.gpu import cuda, launch
from ncu_toolkit.gpu.selection import Selection, marker_of
from ncu_toolkit.gpu.selection import (
    parse_sizes as parse_sizes,  # part of what session offers, as is the next
)
from ncu_toolkit.gpu.selection import select as select
from ncu_toolkit.gpu.tune import tuned
from ncu_toolkit.ladder.catalogue import Rung, find_rung
from ncu_toolkit.ladder.problems import Problem
from ncu_toolkit.model import Device, Timing
from ncu_toolkit.model.run import Ceilings, Skipped
from ncu_toolkit.runs import store
from ncu_toolkit.runs.store import Asked, CaseRecord, Manifest

DEFAULT_TIMEOUT: Final = 1800.0
#: States of a case that are results: a wrong kernel stays wrong, and what cannot run here still
#: cannot.
FINAL: Final = ("failed", "skipped")


class Reporter(Protocol):
    """Where a session says what it does."""

    def stage(self, title: str, total: int) -> None:
        """A stage of `total` steps begins."""

    def step(self, label: str) -> None:
        """One step of the stage is done."""

    def doing(self, label: str) -> None:
        """What is under way; asked often, so that it must cost nothing to say the same again."""

    def note(self, text: str) -> None:
        """Something the user should know."""


@dataclass
class Collected:
    """What a session has so far; grows as stages finish, and is saved after each."""

    cases: dict[str, CaseRecord] = field(default_factory=dict)
    timings: list[Timing] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)
    ceilings: Ceilings = field(default_factory=Ceilings)
    failures: list[ToolkitError] = field(default_factory=list)
    refused: list[ToolkitError] = field(default_factory=list)
    """Why cases cannot run here (size, memory): an error only where nothing else ran."""
    interrupted: bool = False
    asked: Asked | None = None
    device: Device | None = None
    environment: dict[str, str] = field(default_factory=dict)
    """What the machine is, looked at once: a kernel that breaks the GPU's context must not keep
    what was measured from being saved."""
    context_lost: bool = False

    @property
    def measured(self) -> bool:
        """Whether there is anything that is worth keeping."""
        return bool(
            self.timings
            or self.reports
            or any(case.state == "failed" for case in self.cases.values())
        )


def runnable_here(selections: Sequence[Selection], collected: Collected) -> tuple[Selection, ...]:
    """Without the rungs this GPU cannot run; each is listed as skipped with its reason."""
    device = cuda.device()
    kept = []
    for selection in selections:
        rungs = []
        for rung in selection.rungs:
            reason = rung.unsupported_on(device.cc)
            if reason:
                collected.skipped.append(Skipped(f"{rung.family}/{rung.name}", reason))
            else:
                rungs.append(rung)
        if rungs:
            kept.append(replace(selection, rungs=tuple(rungs)))
    if not kept and collected.skipped:
        raise EnvironmentProblem(
            collected.skipped[0].reason, f"{device.name} can run others: `ncu-toolkit list`"
        )
    return tuple(kept)


def tuned_lines(selections: Sequence[Selection], overrides: Mapping[str, int]) -> list[str]:
    """What to tell of tuned parameters before anything runs: `tuned.told`."""
    lines = []
    for selection in selections:
        named = selection.asked or selection.rungs
        labels = [selection.problem.parse_size(size).label for size in selection.sizes]
        for rung in selection.rungs if selection.tuned else ():
            if not overrides or len(named) > 1 or rung not in named:
                open_sizes = [
                    label
                    for label in labels
                    if marker_of(rung, label, selection.dtype) not in selection.fixed
                ]
                lines += tuned.told(rung, open_sizes, selection.dtype, cuda.device().name)
    return lines


def build_all(
    selections: Sequence[Selection],
    overrides: Mapping[str, int],
    reporter: Reporter,
    collected: Collected,
) -> None:
    """Compile every rung for this device, in parallel, so that nothing compiles while something is
    timed.

    Raises:
        ToolkitError: the first build that failed.
    """
    arch = cuda.device().arch
    for line in tuned_lines(selections, overrides):
        reporter.note(line)
    requests: list[nvcc.BuildRequest] = []
    for selection in selections:
        macros = selection.problem.macros(selection.dtype)
        for rung in selection.rungs:
            wanted = (
                []
                if rung.library
                else [selection.parameters(rung, size, overrides) for size in selection.sizes]
            )
            requests += [
                nvcc.BuildRequest(rung, arch, each, macros)
                for n, each in enumerate(wanted)
                if each not in wanted[:n]
            ]
    reporter.stage("Build", len(requests))
    started = time.monotonic()
    outcomes = nvcc.build_many(
        requests, progress=lambda done, total, outcome: reporter.step(outcome.request.rung.name)
    )
    collected.costs["build"] = time.monotonic() - started
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


@dataclass(frozen=True)
class _Group:
    """Rungs of one family that compute the same operation at one size: timed side by side, so that
    they can be compared."""

    selection: Selection
    size: str
    options: str
    rungs: tuple[Rung, ...]


def time_all(
    selections: Sequence[Selection],
    overrides: Mapping[str, int],
    cache: str | None,
    reporter: Reporter,
    collected: Collected,
    seconds: float | None = None,
    saved: Callable[[], object] | None = None,
) -> None:
    """Verify and time every rung at every size that is not timed yet. A wrong rung is recorded as
    failed and never timed; the others go on.

    Args:
        seconds: GPU time spent on one rung and size (timing.SECONDS_PER_RUNG where None).
        saved: called after each group of rungs that is timed side by side, to keep what is measured
            so far.

    Raises:
        ToolkitError: the first refusal (size, memory), where not a single case could run.
    """
    cuda.disable_tf32()
    cp = cuda.cupy()
    groups = list(_untimed(selections, overrides, collected))
    reporter.stage("Verify and time", sum(len(group.rungs) for group in groups))
    for group in groups:
        try:
            _time_group(group, overrides, cache, reporter, collected, seconds)
        except ToolkitError:
            raise
        except Exception as error:
            problem = launch.explained(error, f"{group.selection.problem.family} at {group.size}")
            if problem is None:
                raise
            reporter.note(f"{problem.message}; this size is not timed")
            (
                collected.failures if isinstance(problem, KernelProblem) else collected.refused
            ).append(problem)
        if saved is not None:
            saved()
        if collected.failures and not _context_works():
            reporter.note(
                "a kernel broke the GPU's context of this process: what is left is not timed"
            )
            collected.context_lost = True
            return
        cp.get_default_memory_pool().free_all_blocks()
    if collected.refused and not collected.timings and not collected.failures:
        raise collected.refused[0]


def _untimed(
    selections: Sequence[Selection], overrides: Mapping[str, int], collected: Collected
) -> Iterator[_Group]:
    timed = {
        (timing.family, timing.rung, timing.size, timing.dtype) for timing in collected.timings
    }
    for selection in selections:
        for size in selection.sizes:
            label = selection.problem.parse_size(size).label
            for options, rungs in by_options(selection.rungs).items():
                left = []
                for rung in rungs:
                    known = collected.cases.get(marker_of(rung, label, selection.dtype))
                    final = known is not None and known.state in FINAL
                    if not final and (rung.family, rung.name, label, selection.dtype) not in timed:
                        left.append(rung)
                if left:
                    yield _Group(selection, size, options, tuple(left))


def _time_group(
    group: _Group,
    overrides: Mapping[str, int],
    cache: str | None,
    reporter: Reporter,
    collected: Collected,
    seconds: float | None,
) -> None:
    from ncu_toolkit.gpu import timing

    selection, size = group.selection, group.size
    problem = selection.problem
    mode: Any = cache or ("warm" if problem.rate == "flop" else "flushed")
    space = launch.Workspace(
        problem, problem.parse_size(size), selection.dtype, group.rungs[0].problem
    )
    ready: list[Any] = []
    records = []
    for rung in group.rungs:
        applied = selection.parameters(rung, space.size.label, overrides)
        record = record_of(rung, problem, size, selection.dtype, applied)
        try:
            runnable = launch.Runnable(rung, space, applied)
            runnable.verify()
        except Exception as error:
            told = (
                error
                if isinstance(error, ToolkitError)
                else launch.explained(error, f"'{rung.name}' at {size}")
            )
            if told is None:
                raise
            _refused(record, told, collected)
            reporter.step(f"{rung.name} {size}: {told.message}")
            continue
        ready.append(runnable)
        records.append(replace(record, parameters=dict(runnable.parameters), state="timed"))
    if not ready:
        return
    try:
        baseline = _baseline(problem, ready, space)
    except EnvironmentProblem as error:
        reporter.note(f"the baseline is not timed at {size}: {error.message}")
        baseline = None
    budget = timing.SECONDS_PER_RUNG if seconds is None else seconds
    measured = timing.measure_ladder(
        ready, baseline, mode, seconds=budget, tick=partial(_told, reporter, size)
    )
    collected.timings.extend(measured.values())
    collected.cases.update({record.marker: record for record in records})
    costs = timing.measure_costs(ready[0])
    if costs is not None:
        collected.costs.update(
            {
                f"{label} {problem.family} {size}{group.options}": spent
                for label, spent in asdict(costs).items()
            }
        )


def _context_works() -> bool:
    """Whether this process can still use the GPU: a kernel that read or wrote where it must not
    takes the whole context with it."""
    try:
        cuda.synchronize("the GPU")
    except KernelProblem:
        return False
    return True


def measure_ceilings(collected: Collected, reporter: Reporter) -> None:
    """Measure what the device reaches, once a run; where that fails the run goes without."""
    from ncu_toolkit.gpu import timing

    if collected.ceilings != Ceilings() or collected.context_lost:
        return
    try:
        collected.ceilings = timing.measure_ceilings()
    except Exception as error:
        problem = (
            error
            if isinstance(error, ToolkitError)
            else launch.explained(error, "the measurement of what the device reaches")
        )
        if problem is None:
            raise
        reporter.note(f"the device's ceilings are not measured: {problem.message}")


def _told(reporter: Reporter, size: str, name: str) -> None:
    reporter.step(f"{name} {size}")


def by_options(rungs: Sequence[Rung]) -> dict[str, list[Rung]]:
    """Rungs grouped by the operation they compute (a family may hold several), in order; the key is
    "" or " (op)"."""
    groups: dict[str, list[Rung]] = {}
    for rung in rungs:
        label = ", ".join(str(value) for _, value in sorted(rung.problem.items()))
        groups.setdefault(f" ({label})" if label else "", []).append(rung)
    return groups


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
    rung = find_rung(f"{problem.family}/{name}")
    own = (
        space
        if dict(rung.problem) == dict(ready[0].rung.problem)
        else launch.Workspace(problem, space.size, space.dtype, rung.problem)
    )
    bound = launch.Runnable(rung, own)
    bound.verify()
    return bound


def record_of(
    rung: Rung, problem: Problem, size: str, dtype: str, overrides: Mapping[str, int]
) -> CaseRecord:
    parsed = problem.parse_size(size)
    return CaseRecord(
        family=rung.family,
        rung=rung.name,
        size=parsed.label,
        dtype=dtype,
        dims=parsed.as_dict(),
        parameters=rung.with_parameters(overrides),
        state="planned",
        flops=problem.flops(parsed, rung.problem),
        compulsory_bytes=problem.compulsory_bytes(parsed, dtype, rung.problem),
        source=nvcc.source_digest(rung),
    )


def _refused(record: CaseRecord, error: ToolkitError, collected: Collected) -> None:
    state = "failed" if isinstance(error, KernelProblem) else "skipped"
    collected.cases[record.marker] = replace(record, state=state, message=str(error))
    (collected.failures if state == "failed" else collected.refused).append(error)


def section_folder() -> Path:
    """Our section files: in the package (a wheel) or beside it (a checkout).

    Raises:
        EnvironmentProblem: neither is there.
    """
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "sections_data", package.parent / "sections"):
        if candidate.is_dir():
            return candidate
    raise EnvironmentProblem(
        "the section files are missing from the installation", "Reinstall ncu-toolkit"
    )


def machine(collected: Collected) -> dict[str, str]:
    """Labels and values that say on what this run is made, looked at once a session."""
    if not collected.environment:
        collected.device = cuda.device()
        collected.environment = {**cuda.environment(), "Compiler": toolchain_description()}
    return collected.environment


def save(folder: Path, title: str, created: str, collected: Collected) -> Manifest:
    """Write what is collected so far; called after every step that ends with something finished, so
    that none of it is lost."""
    manifest = Manifest(
        id=folder.name,
        title=title,
        created=created,
        tool_version=__version__,
        environment=machine(collected),
        device=collected.device,
        commands=tuple(collected.commands),
        cases=tuple(collected.cases.values()),
        ceilings=collected.ceilings,
        skipped=tuple(collected.skipped),
        report_files=tuple(collected.reports),
        costs=collected.costs,
        asked=collected.asked,
    )
    store.save(folder, manifest, collected.timings)
    return manifest
