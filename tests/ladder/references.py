"""What is wrong with a folder of ladders as a whole, which no single command reads."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ncu_toolkit.base.core.errors import InputProblem, ToolkitError, UsageProblem
from ncu_toolkit.kernel.ladder import catalogue
from ncu_toolkit.kernel.ladder.rung import Rung


def check_ladders(
    root: Path | None = None, bottlenecks: Collection[str] | None = None
) -> list[ToolkitError]:
    """Everything wrong with the ladders: each broken file, each reference that leads nowhere, each
    circle of comparisons. `root` is the shipped ladders where None; `bottlenecks` are the known ids
    for `removes`, unchecked where None."""
    problems: list[ToolkitError] = []
    files = catalogue.rung_files(root)
    rungs = []
    try:
        catalogue._check_names(files)
    except InputProblem as error:
        problems.append(error)
    for path in files:
        try:
            rungs.append(catalogue.load_rung(path))
        except ToolkitError as error:
            problems.append(error)
    for rung in rungs:
        problems.extend(_check_references(rung, root, bottlenecks))
    return problems


def _check_references(
    rung: Rung, root: Path | None, ids: Collection[str] | None
) -> list[InputProblem]:
    problems = []
    if ids is not None and rung.removes and rung.removes not in ids:
        problems.append(
            InputProblem(
                f"{rung.label}: removes: there is no bottleneck '{rung.removes}'",
                catalogue._suggest(rung.removes, ids),
            )
        )
    if rung.baseline:
        try:
            catalogue.find_rung(
                rung.baseline if "/" in rung.baseline else f"{rung.family}/{rung.baseline}", root
            )
        except UsageProblem as error:
            problems.append(InputProblem(f"{rung.label}: baseline: {error.message}", error.remedy))
        except InputProblem:
            pass  # that file is reported by itself
    seen = [rung]
    while seen[-1].compared_with:
        try:
            following = catalogue.comparison_of(seen[-1], root)
        except InputProblem as error:
            if len(seen) == 1 and "compared_with" in error.message:
                problems.append(error)
            break
        assert following is not None
        if following is rung:
            circle = " → ".join(step.name for step in [*seen, rung])
            problems.append(
                InputProblem(f"{rung.label}: compared_with leads in a circle: {circle}", "")
            )
        if following in seen:
            break
        seen.append(following)
    return problems
