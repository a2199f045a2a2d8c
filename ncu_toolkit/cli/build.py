"""`ncu-toolkit build`: compile kernels and show what ptxas says of them."""

from collections.abc import Mapping

import click

from ncu_toolkit.base.core.errors import InputProblem, UsageProblem
from ncu_toolkit.cli._common import Progress, console, grid, here
from ncu_toolkit.cli._options import option, options, parse_params, split
from ncu_toolkit.kernel.build.nvcc import BuildOutcome, BuildRequest, build_many, parse_arch
from ncu_toolkit.kernel.ladder.catalogue import find_family, find_rung, load_families
from ncu_toolkit.kernel.ladder.problems import Problem, problem_for
from ncu_toolkit.kernel.ladder.rung import Rung


@click.command("build")
@options(
    families="A whole ladder by name.",
    architectures=option("Architecture; can be repeated, or separate by commas.  [default: this GPU's, else sm_90]", "--arch", "-a",
        metavar="sm_NN"),
)  # fmt: skip
def command(
    kernels: tuple[str, ...], families: tuple[str, ...], architectures: tuple[str, ...], params: tuple[str, ...]
) -> None:  # fmt: skip
    """Compile kernels and show their registers, spills and shared memory.

    Without --kernel or --family, everything is built. Results are cached by content.
    """
    names = split(kernels)
    overrides = parse_params(params, names)
    rungs = [rung for rung in _chosen(names, split(families)) if not rung.library]
    targets = split(architectures) or (here()[0],)
    requests, skipped = [], []
    for rung in rungs:
        for target in targets:
            reason = rung.unsupported_on(parse_arch(target))
            if reason:
                skipped.append(reason)
                continue
            problem = problem_for(rung.family)
            _check_launch(rung, problem, overrides)
            requests += [
                BuildRequest(rung, target, overrides, problem.macros(dtype))
                for dtype in problem.dtypes
            ]
    if not requests:
        raise UsageProblem(
            skipped[0] if skipped else "a library baseline has no code to build",
            "Choose another kernel or --arch",
        )
    with Progress() as progress:
        progress.stage("Build", len(requests))
        outcomes = build_many(
            requests, progress=lambda done, total, outcome: progress.step(outcome.request.rung.name)
        )
    screen = console()
    screen.print(_table(outcomes))
    for reason in dict.fromkeys(skipped):
        screen.print(f"skipped: {reason}")
    failed = [outcome.error for outcome in outcomes if outcome.error is not None]
    if len(failed) > 1:
        what = f"{len(failed)} of {len(outcomes)} builds failed; the first: {failed[0].message}"
        raise type(failed[0])(what, failed[0].remedy)
    if failed:
        raise failed[0]


def _check_launch(rung: Rung, problem: Problem, overrides: Mapping[str, int]) -> None:
    """Raise UsageProblem for parameters that cannot be launched at the largest usual size."""
    if not overrides:
        return
    case = problem.case(problem.bench_sizes[-1], None, rung.problem)
    try:
        rung.launch_geometry(problem.values(case), overrides, 1)
    except InputProblem as error:
        given = ", ".join(f"{name} = {value}" for name, value in overrides.items())
        raise UsageProblem(
            f"{rung.name} does not take {given}: {error.message}", "Choose other parameters"
        ) from None


def _chosen(kernels: tuple[str, ...], families: tuple[str, ...]) -> list[Rung]:
    if not kernels and not families:
        families = tuple(load_families())
    rungs = [rung for name in families for rung in find_family(name).rungs]
    return rungs + [rung for rung in map(find_rung, kernels) if rung not in rungs]


def _table(outcomes: list[BuildOutcome]) -> object:
    rows: list[tuple[str, ...]] = []
    for outcome in outcomes:
        rung, cubin = outcome.request.rung, outcome.cubin
        if cubin is None:
            problem = outcome.error.message if outcome.error else ""
            rows.append((rung.name, outcome.request.arch, "", "", "", "", problem))
            continue
        how = "cached" if cubin.cached else "built"
        for entry, used in cubin.entries.items():
            spilled = used.spill_stores + used.spill_loads
            counts = (used.registers, spilled, used.shared, used.stack)
            rows.append((entry, cubin.target, *map(str, counts), how))
    numbers = (">registers", ">spilled bytes", ">shared bytes", ">stack bytes")
    return grid(("kernel", "target", *numbers, ""), rows)
