"""What to run: from names on the command line to the cases of a run."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ncu_toolkit import __version__
from ncu_toolkit.base.core.errors import EnvironmentProblem, UsageProblem
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.base.core.workers import Done
from ncu_toolkit.base.model import Device
from ncu_toolkit.base.model.run import RunCase, Skipped
from ncu_toolkit.kernel.build import nvcc
from ncu_toolkit.kernel.gpu import timing, tuned
from ncu_toolkit.kernel.ladder.catalogue import comparison_of, find_family, find_rung, load_families
from ncu_toolkit.kernel.ladder.problems import Case, Problem, Size, problem_for
from ncu_toolkit.kernel.ladder.rung import Rung

Cases = tuple[RunCase, ...]
#: `Executor.run`.
Run = Callable[..., Iterator[Done]]


def case_of(
    rung: Rung, size: Size, dtype: str, parameters: Mapping[str, int] | None = None
) -> RunCase:
    """A planned case with its useful work. Raises UsageProblem for parameters that the rung does
    not take."""
    problem, case = problem_for(rung.family), Case(size, dtype, rung.problem)
    return RunCase(
        family=rung.family, rung=rung.name, size=size.label, dtype=dtype, dims=size.as_dict(),
        parameters=rung.with_parameters(parameters) if parameters else {}, flops=problem.flops(case),
        compulsory_bytes=problem.compulsory_bytes(case), source=nvcc.source_digest(rung),
    )  # fmt: skip


def rung_of(case: RunCase) -> Rung:
    """The rung of a case. Raises UsageProblem where there is none."""
    return find_rung(f"{case.family}/{case.rung}")


def size_of(case: RunCase) -> Size:
    """The size of a case."""
    return Size(tuple(case.dims.items()), case.size)


def select(
    kernels: Sequence[str],
    families: Sequence[str] | None,
    sizes: str | Callable[[Problem], Sequence[str]],
    dtype: str | None,
    *,
    overrides: Mapping[str, int] | None = None,
    predecessors: bool = False,
) -> Cases:
    """Cases from names on the command line: by family, then size, then operation, then rung.

    Args:
        families: None for all.
        sizes: as on the command line, or those of a family.
        overrides: parameters of the only rung chosen of its family. The parameters of all other
            cases are empty until `settled`.
        predecessors: add the rungs that the chosen ones are compared with.

    Raises:
        UsageProblem: an unknown name or parameter, or a size or dtype that the family cannot take;
            a list with one bad entry names that entry.
    """
    chosen: dict[str, list[Rung]] = {}
    for name in load_families() if families is None else families:
        chosen.setdefault(name, []).extend(find_family(name).rungs)
    for name in kernels:
        rung = find_rung(name)
        if rung not in chosen.setdefault(rung.family, []):
            chosen[rung.family].append(rung)
    if not chosen:
        hint = "Name a --kernel or a --family: `ncu-toolkit list` shows them"
        raise UsageProblem("nothing to run", hint)
    cases: list[RunCase] = []
    for family, rungs in chosen.items():
        problem = problem_for(family)
        kind, own = problem.dtype(dtype), overrides if len(rungs) == 1 else None
        usual = () if isinstance(sizes, str) else map(problem.parse_size, sizes(problem))
        for size in parse_sizes(problem, sizes) if isinstance(sizes, str) else usual:
            every = _with_predecessors(rungs) if predecessors else rungs
            for rung in itertools.chain(*grouped(every, operation_of).values()):
                cases.append(case_of(rung, size, kind, own if rung in rungs else None))
    return tuple(cases)


def parse_sizes(problem: Problem, text: str) -> tuple[Size, ...]:
    """`512,1024x512x2048` as sizes; raises UsageProblem for the first entry that the family cannot
    take."""
    entries = [entry.strip() for entry in text.split(",")]
    if not all(entries):
        example = f"Write a list such as {','.join(problem.bench_sizes[:3])}"
        raise UsageProblem(f"--size '{text}' has an empty entry", example)
    return tuple(dict.fromkeys(map(problem.parse_size, entries)))


def _with_predecessors(rungs: Sequence[Rung]) -> list[Rung]:
    """The rungs and those of their family that they are compared with, by order."""
    compared = [rung for rung in map(comparison_of, rungs) if rung is not None]
    found = {rung.name: rung for rung in (*compared, *rungs) if rung.family == rungs[0].family}
    return sorted(found.values(), key=lambda rung: rung.order)


def operation_of(rung: Rung) -> str:
    """ "" or " (op)": the operation that a rung computes, since a family may hold several."""
    label = ", ".join(str(value) for _, value in sorted(rung.problem.items()))
    return f" ({label})" if label else ""


def groups_of(cases: Sequence[RunCase]) -> Iterator[Cases]:
    """Neighbouring cases of the same operation, size and type, which are timed together."""
    alike = itertools.groupby(
        cases, lambda c: (c.family, c.size, c.dtype, operation_of(rung_of(c)))
    )
    yield from (tuple(group) for _, group in alike)


def runnable_here(cases: Cases, device: Device) -> tuple[Cases, tuple[Skipped, ...]]:
    """The cases that a GPU can run, and the rungs that it cannot with the reason. Raises
    EnvironmentProblem: it can run none of them."""
    reasons: dict[str, str] = {}
    for case in cases:
        name = f"{case.family}/{case.rung}"
        if name not in reasons:
            reasons[name] = rung_of(case).unsupported_on(device.cc)
    skipped = tuple(Skipped(name, reason) for name, reason in reasons.items() if reason)
    runnable = tuple(case for case in cases if not reasons[f"{case.family}/{case.rung}"])
    if not runnable and skipped:
        hint = f"{device.name} can run others: `ncu-toolkit list`"
        raise EnvironmentProblem(skipped[0].reason, hint)
    return runnable, skipped


def settled(cases: Cases, use_tuned: bool, device: Device, run: Run) -> tuple[Cases, list[str]]:
    """The cases with their parameters, and lines that tell the user which kernels run with others than
    their file's. These are tuned for the GPU and size, or else the fastest of the settings that the
    rung's model proposes, timed by `run` (`Executor.run`) and kept. Raises InputProblem: a table of
    tuned parameters cannot be read. Raises EnvironmentProblem: none can be written."""
    gpu = device.name
    done: list[RunCase] = []
    sizes: dict[tuple[str, str, str], list[str]] = {}
    lines = _time_promising(cases, gpu, run) if use_tuned else []
    for case in cases:
        if not case.parameters:
            rung = rung_of(case)
            entry = tuned.lookup(rung, case.size, case.dtype, gpu) if use_tuned else None
            best = entry.parameters if entry else None
            case = replace(case, parameters=rung.with_parameters(best))
            sizes.setdefault((case.family, case.rung, case.dtype), []).append(case.size)
        done.append(case)
    for (family, name, dtype), labels in sizes.items() if use_tuned else ():
        lines += tuned.notes(find_rung(f"{family}/{name}"), labels, dtype, gpu)
    return tuple(done), lines


def _time_promising(cases: Cases, gpu: str, run: Run) -> list[str]:
    """Time what models name for these cases, where nothing is known yet, and keep the fastest; lines
    for the user about those that could not be timed."""
    waiting = {
        (f"{case.family}/{case.rung}", size_of(case), case.dtype): case
        for case in cases
        if not case.parameters and (rung := rung_of(case)).model
        if not tuned.lookup(rung, case.size, case.dtype, gpu)
    }
    lines, alike = [], list(waiting.values())
    for done in run(timing.promising_timed, waiting) if waiting else ():
        case = alike[done.index]
        if done.error is not None:
            what = f"what the model of {case.rung} names at {case.size} could not be timed"
            lines.append(f"{what}, so it runs as its file says: {done.error.message}")
            continue
        (time_us, best), made = done.value[0], time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        entry = tuned.TunedEntry(
            case.family, case.rung, case.size, case.dtype, best, time_us, len(done.value), case.source, made, __version__, finished=False,
        )  # fmt: skip
        tuned.store(gpu, [entry])
    return lines


def ready(
    cases: Cases, use_tuned: bool, device: Device, run: Run
) -> tuple[Cases, tuple[Skipped, ...], list[str]]:
    """What `runnable_here` and then `settled` give for a GPU. Raises as they do."""
    cases, skipped = runnable_here(cases, device)
    cases, lines = settled(cases, use_tuned, device, run)
    return cases, skipped, lines
