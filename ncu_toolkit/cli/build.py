"""`ncu-toolkit build`: compile kernels and show what ptxas says of them."""

from __future__ import annotations

from collections.abc import Mapping

import click

from ncu_toolkit.build.nvcc import BuildOutcome, BuildRequest, build_many, parse_arch
from ncu_toolkit.cli._common import Progress, console, grid, here, parse_params, split
from ncu_toolkit.core.errors import InputProblem, ToolkitError, UsageProblem
from ncu_toolkit.ladder.catalogue import find_family, find_rung, load_families
from ncu_toolkit.ladder.problems import Problem, problem_for
from ncu_toolkit.ladder.rung import Rung


@click.command("build")
@click.option(
    "--kernel",
    "-k",
    "kernels",
    multiple=True,
    metavar="NAME",
    help="A rung by name; repeat it, or separate names by commas.",
)
@click.option(
    "--family", "-f", "families", multiple=True, metavar="NAME", help="A whole ladder by name."
)
@click.option(
    "--arch",
    "-a",
    "architectures",
    multiple=True,
    metavar="sm_NN",
    help="Architecture; repeat it, or separate by commas.  [default: this GPU's, else sm_90]",
)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Override a tile parameter of a single kernel; repeat it.",
)
def command(
    kernels: tuple[str, ...],
    families: tuple[str, ...],
    architectures: tuple[str, ...],
    params: tuple[str, ...],
) -> None:
    """Compile kernels and show their registers, spills and shared memory.

    Without --kernel or --family, everything is built. Results are cached by content.
    """
    overrides = parse_params(params, split(kernels) if kernels else ())
    rungs = [
        rung
        for rung in _chosen(split(kernels) if kernels else (), split(families) if families else ())
        if not rung.library
    ]
    targets = split(architectures) if architectures else (here()[0],)
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
        screen.print(f"skipped: {reason}", markup=False)
    first = next((outcome.error for outcome in outcomes if outcome.error is not None), None)
    if first is not None:
        failed = sum(outcome.error is not None for outcome in outcomes)
        raise (
            first
            if failed == 1
            else type(first)(
                f"{failed} of {len(outcomes)} builds failed; the first: {first.message}",
                first.remedy,
            )
        )


def _check_launch(rung: Rung, problem: Problem, overrides: Mapping[str, int]) -> None:
    """Raise UsageProblem for parameters that compile but cannot be launched at the largest of the
    family's usual sizes."""
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
    table = grid()
    table.add_column("kernel")
    table.add_column("target")
    for column in ("registers", "spilled bytes", "shared bytes", "stack bytes"):
        table.add_column(column, justify="right")
    table.add_column("")
    for outcome in outcomes:
        rung = outcome.request.rung
        if outcome.cubin is None:
            error: ToolkitError | None = outcome.error
            table.add_row(
                rung.name, outcome.request.arch, "", "", "", "", error.message if error else ""
            )
            continue
        for entry, resources in outcome.cubin.entries.items():
            table.add_row(
                entry, outcome.cubin.target, str(resources.registers), str(resources.spill_stores + resources.spill_loads), str(resources.shared),
                str(resources.stack), "cached" if outcome.cubin.cached else "built",
            )  # fmt: skip
    return table
