"""The stages wired together for a ladder: choose cases, build, verify and time, profile under ncu, keep everything in a run folder.

Prints nothing: what happens is told through a `Reporter`, which the CLI turns into progress bars.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from ncu_toolkit import __version__, build, collect, gpu, store, tuned
from ncu_toolkit.errors import EnvironmentProblem, KernelProblem, ToolkitError, UsageProblem
from ncu_toolkit.ladder import Family, Rung, comparison_of, find_family, find_rung, load_families
from ncu_toolkit.model import Timing
from ncu_toolkit.problems import Problem, problem_for
from ncu_toolkit.runs import Ceilings, Skipped
from ncu_toolkit.sections import SET_NAME
from ncu_toolkit.store import CaseRecord, Manifest
from ncu_toolkit.target import Plan, PlannedCase, Step, read_progress, write_plan
from ncu_toolkit.toolchain import toolchain_description

DEFAULT_TIMEOUT: Final = 1800.0


class Reporter(Protocol):
    """Where a session says what it does."""

    def stage(self, title: str, total: int) -> None:
        """A stage of `total` steps begins."""

    def step(self, label: str) -> None:
        """One step of the stage is done."""

    def note(self, text: str) -> None:
        """Something the user should know."""


@dataclass(frozen=True)
class Selection:
    """Rungs of one family with the sizes and dtype to run them at."""

    problem: Problem
    rungs: tuple[Rung, ...]
    sizes: tuple[str, ...]
    dtype: str
    tuned: bool = True
    """Whether kernels run with the parameters that were tuned for this GPU and size, where there are any."""
    asked: tuple[Rung, ...] = ()
    """The rungs that were named, where others were added to them; () means all."""

    def parameters(self, rung: Rung, size: str, overrides: Mapping[str, int]) -> dict[str, int]:
        """What `rung` is run with at `size` beside its defaults: the overrides, which go with a single kernel, or what was tuned for this GPU."""
        named = self.asked or self.rungs
        own = overrides if len(named) == 1 and rung in named else {}
        return tuned.parameters_for(rung, size, self.dtype, gpu.device().name, own, self.tuned)


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


def select(
    kernels: Sequence[str],
    families: Sequence[str],
    everything: bool,
    sizes: str | None,
    dtype: str | None,
    *,
    default_sizes: Callable[[Problem], Sequence[str]],
) -> tuple[Selection, ...]:
    """Rungs by family from names on the command line.

    Raises:
        UsageProblem: an unknown name, a size or dtype that the family cannot take; a list with one bad entry names that entry.
    """
    chosen: dict[str, list[Rung]] = {}
    if everything:
        families = tuple(load_families())
    for name in families:
        family: Family = find_family(name)
        chosen.setdefault(name, []).extend(family.rungs)
    for name in kernels:
        rung = find_rung(name)
        if rung not in chosen.setdefault(rung.family, []):
            chosen[rung.family].append(rung)
    if not chosen:
        raise UsageProblem("nothing to run", "Name a --kernel or a --family: `ncu-toolkit list` shows them")
    selections = []
    for name, rungs in chosen.items():
        problem = problem_for(name)
        labels = parse_sizes(problem, sizes) if sizes else tuple(default_sizes(problem))
        selections.append(Selection(problem, tuple(rungs), labels, problem.dtype(dtype)))
    return tuple(selections)


def parse_sizes(problem: Problem, text: str) -> tuple[str, ...]:
    """`512,1024x512x2048` as normalised labels; raises UsageProblem for the first entry that the family cannot take."""
    entries = [entry.strip() for entry in text.split(",")]
    if any(not entry for entry in entries):
        raise UsageProblem(f"--size '{text}' has an empty entry", f"Write a list such as {','.join(problem.bench_sizes[:3])}")
    return tuple(dict.fromkeys(problem.parse_size(entry).label for entry in entries))


def with_predecessors(selection: Selection) -> Selection:
    """The selection with the rungs that its rungs are held against, so that each page can say what its step changed."""
    rungs: list[Rung] = []
    for rung in selection.rungs:
        previous = comparison_of(rung)
        for candidate in (previous, rung):
            if candidate is not None and candidate not in rungs and candidate.family == selection.problem.family:
                rungs.append(candidate)
    return replace(selection, rungs=tuple(sorted(rungs, key=lambda rung: rung.order)), asked=selection.rungs)


def runnable_here(selections: Sequence[Selection], collected: Collected) -> tuple[Selection, ...]:
    """Without the rungs this GPU cannot run; each is listed as skipped with its reason."""
    device = gpu.device()
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
        raise EnvironmentProblem(collected.skipped[0].reason, f"{device.name} can run others: `ncu-toolkit list`")
    return tuple(kept)


def build_all(selections: Sequence[Selection], overrides: Mapping[str, int], reporter: Reporter, collected: Collected) -> None:
    """Compile every rung for this device, in parallel, so that nothing compiles while something is timed.

    Raises:
        ToolkitError: the first build that failed.
    """
    arch = gpu.device().arch
    requests: list[build.BuildRequest] = []
    for selection in selections:
        macros = selection.problem.macros(selection.dtype)
        for rung in selection.rungs:
            wanted = [] if rung.library else [selection.parameters(rung, size, overrides) for size in selection.sizes]
            requests += [build.BuildRequest(rung, arch, each, macros) for n, each in enumerate(wanted) if each not in wanted[:n]]
    reporter.stage("Build", len(requests))
    started = time.monotonic()
    outcomes = build.build_many(requests, progress=lambda done, total, outcome: reporter.step(outcome.request.rung.name))
    collected.costs["build"] = time.monotonic() - started
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def time_all(
    selections: Sequence[Selection],
    overrides: Mapping[str, int],
    cache: str | None,
    reporter: Reporter,
    collected: Collected,
    seconds: float | None = None,
) -> None:
    """Verify and time every rung at every size. A wrong rung is recorded as failed and never timed; the others go on.

    `seconds` is the GPU time spent on one rung and size (timing.SECONDS_PER_RUNG where None).

    Raises:
        ToolkitError: the first refusal (size, memory), where not a single case could run.
    """
    from ncu_toolkit import timing
    from ncu_toolkit.launch import Runnable, Workspace

    gpu.disable_tf32()
    cp = gpu.cupy()
    reporter.stage("Verify and time", sum(len(s.rungs) * len(s.sizes) for s in selections))
    for selection in selections:
        problem = selection.problem
        mode: Any = cache or ("warm" if problem.rate == "flop" else "flushed")
        for size in selection.sizes:
            for options, rungs in _by_options(selection.rungs).items():
                space = Workspace(problem, problem.parse_size(size), selection.dtype, rungs[0].problem)
                ready: list[Runnable] = []
                for rung in rungs:
                    applied = selection.parameters(rung, space.size.label, overrides)
                    record = _record(rung, problem, size, selection.dtype, applied)
                    try:
                        runnable = Runnable(rung, space, applied)
                        runnable.verify()
                    except ToolkitError as error:
                        _refused(record, error, collected)
                        reporter.step(f"{rung.name} {size}: {error.message}")
                        continue
                    ready.append(runnable)
                    collected.cases[record.marker] = replace(record, parameters=dict(runnable.parameters), state="timed")
                if not ready:
                    continue
                baseline = _baseline(problem, ready, space)
                budget = timing.SECONDS_PER_RUNG if seconds is None else seconds
                tick = partial(_told, reporter, size)
                measured = timing.measure_ladder(ready, baseline, mode, seconds=budget, tick=tick)
                collected.timings.extend(measured.values())
                costs = timing.measure_costs(ready[0])
                if costs is not None:
                    collected.costs.update({f"{label} {problem.family} {size}{options}": seconds for label, seconds in asdict(costs).items()})
                del ready, baseline, space
                cp.get_default_memory_pool().free_all_blocks()
    if collected.refused and not collected.timings and not collected.failures:
        raise collected.refused[0]


def _told(reporter: Reporter, size: str, name: str) -> None:
    reporter.step(f"{name} {size}")


def _by_options(rungs: Sequence[Rung]) -> dict[str, list[Rung]]:
    """Rungs grouped by the operation they compute (a family may hold several), in order; the key is "" or " (op)"."""
    groups: dict[str, list[Rung]] = {}
    for rung in rungs:
        label = ", ".join(str(value) for _, value in sorted(rung.problem.items()))
        groups.setdefault(f" ({label})" if label else "", []).append(rung)
    return groups


def _baseline(problem: Problem, ready: Sequence[Any], space: Any) -> Any:
    """The runnable of the group's baseline: among those being timed, else bound for this purpose; None where there is none."""
    from ncu_toolkit.launch import Runnable, Workspace

    name = next((runnable.rung.baseline for runnable in ready if runnable.rung.baseline), problem.baseline)
    if not name:
        return None
    for runnable in ready:
        if runnable.rung.name == name:
            return runnable
    rung = find_rung(f"{problem.family}/{name}")
    own = space if dict(rung.problem) == dict(ready[0].rung.problem) else Workspace(problem, space.size, space.dtype, rung.problem)
    bound = Runnable(rung, own)
    bound.verify()
    return bound


def _record(rung: Rung, problem: Problem, size: str, dtype: str, overrides: Mapping[str, int]) -> CaseRecord:
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
    )


def _refused(record: CaseRecord, error: ToolkitError, collected: Collected) -> None:
    state = "failed" if isinstance(error, KernelProblem) else "skipped"
    collected.cases[record.marker] = replace(record, state=state, message=str(error))
    (collected.failures if state == "failed" else collected.refused).append(error)


def profile_all(
    selections: Sequence[Selection], overrides: Mapping[str, int], folder: Path, reporter: Reporter, collected: Collected,
    *, timeout: float = DEFAULT_TIMEOUT, set_name: str = SET_NAME, cache_control: str = "all", stem: str = "profile",
) -> None:  # fmt: skip
    """Profile every case in one ncu run, restricted to the launches under study; wrong rungs are left out.

    On Ctrl-C the current case is finished, the report is written and kept.
    """
    ncu = collect.find_ncu()
    planned = _plan(selections, overrides, collected)
    if not planned:
        return
    plan_path, progress, stop = folder / f"{stem}-plan.json", folder / f"{stem}-progress.jsonl", folder / f"{stem}-stop"
    write_plan(Plan(tuple(planned), str(progress.resolve()), str(stop.resolve())), plan_path)
    sections = [section_folder()]
    if ncu.stock_sections is not None:
        sections.append(ncu.stock_sections)
    elif set_name != SET_NAME:
        raise EnvironmentProblem(
            f"ncu's own section files are not found beside '{ncu.path}', and the set '{set_name}' is in them",
            "Set NCU to the ncu of an installation that has them",
        )
    request = collect.Request(
        output=folder / stem,
        command=(sys.executable, "-m", "ncu_toolkit.target", str(plan_path)),
        section_folders=tuple(sections),
        set_name=set_name,
        cache_control=cache_control,
    )
    words = collect.argv(ncu, request)
    collected.commands.append(" ".join(words))
    reporter.stage("Profile", len(planned))
    gpu.cupy().get_default_memory_pool().free_all_blocks()
    seen = 0

    def tick() -> None:
        nonlocal seen
        done = [step for step in read_progress(progress) if step.state != "started"]
        for step in done[seen:]:
            reporter.step(planned[step.case].label + ("" if step.state == "profiled" else f": {step.state}"))
        seen = len(done)

    package_parent = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join([package_parent, *filter(None, [os.environ.get("PYTHONPATH")])])
    outcome = collect.run(
        words, folder / stem, folder / f"{stem}.log", timeout=timeout, tick=tick, request_stop=stop.touch, environment={"PYTHONPATH": path}
    )
    collected.costs[f"profiling ({set_name})"] = outcome.seconds
    collected.interrupted = outcome.interrupted
    stop.unlink(missing_ok=True)
    _settle(planned, progress, collected)
    if outcome.report is not None:
        collected.reports.append(outcome.report.name)
        if outcome.problem is not None:
            reporter.note(f"{outcome.problem.message}; what was profiled before is kept")
            collected.failures.append(outcome.problem)
        return
    if outcome.problem is not None:
        raise outcome.problem
    if outcome.interrupted:
        return
    failed = next((error for error in collected.failures), None)
    raise failed or EnvironmentProblem("ncu ended without writing a report", f"Its output is in {folder / f'{stem}.log'}")


def _plan(selections: Sequence[Selection], overrides: Mapping[str, int], collected: Collected) -> list[PlannedCase]:
    planned = []
    for selection in selections:
        for size in selection.sizes:
            for rungs in _by_options(selection.rungs).values():
                for rung in rungs:
                    applied = selection.parameters(rung, selection.problem.parse_size(size).label, overrides)
                    record = _record(rung, selection.problem, size, selection.dtype, applied)
                    known = collected.cases.setdefault(record.marker, record)
                    if known.state not in ("failed", "skipped"):
                        planned.append(PlannedCase(rung.family, rung.name, record.size, selection.dtype, applied))
    return planned


def _settle(planned: Sequence[PlannedCase], progress: Path, collected: Collected) -> None:
    """Carry the outcome of each planned case over from the progress file."""
    ended: dict[int, Step] = {step.case: step for step in read_progress(progress)}
    for index, case in enumerate(planned):
        record = collected.cases[case.marker]
        step = ended.get(index)
        if step is None or step.state == "stopped":
            collected.cases[case.marker] = replace(record, state="not run", message="the ladder was stopped before it")
        elif step.state == "started":
            collected.cases[case.marker] = replace(record, state="failed", message="the program ended while this case ran")
        elif step.state == "profiled":
            collected.cases[case.marker] = replace(record, state="profiled")
        else:
            collected.cases[case.marker] = replace(record, state=step.state, message=step.message)
            if step.state == "failed":
                collected.failures.append(KernelProblem(step.message))


def section_folder() -> Path:
    """Our section files: in the package (a wheel) or beside it (a checkout).

    Raises:
        EnvironmentProblem: neither is there.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / "sections_data", package.parent / "sections"):
        if candidate.is_dir():
            return candidate
    raise EnvironmentProblem("the section files are missing from the installation", "Reinstall ncu-toolkit")


def save(folder: Path, title: str, created: str, collected: Collected) -> Manifest:
    """Write what is collected so far; called after every stage, so that nothing finished is lost."""
    manifest = Manifest(
        id=folder.name,
        title=title,
        created=created,
        tool_version=__version__,
        device=gpu.device(),
        environment={**gpu.environment(), "Compiler": toolchain_description()},
        commands=tuple(collected.commands),
        cases=tuple(collected.cases.values()),
        ceilings=collected.ceilings,
        skipped=tuple(collected.skipped),
        report_files=tuple(collected.reports),
        costs=collected.costs,
    )
    store.save(folder, manifest, collected.timings)
    return manifest
