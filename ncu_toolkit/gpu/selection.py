"""What to run: rungs by family, with sizes, element type and parameters, from names on the command
line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ncu_toolkit.core.errors import UsageProblem
from ncu_toolkit.gpu import cuda
from ncu_toolkit.gpu.tune import tuned
from ncu_toolkit.ladder.catalogue import (
    Family,
    Rung,
    comparison_of,
    find_family,
    find_rung,
    load_families,
)
from ncu_toolkit.ladder.problems import Problem, problem_for
from ncu_toolkit.model.run import marker


def marker_of(rung: Rung, size: str, dtype: str) -> str:
    """The marker of a rung's case at a size given as its label."""
    return marker(rung.family, rung.name, size, dtype)


@dataclass(frozen=True)
class Selection:
    """Rungs of one family with the sizes and dtype to run them at."""

    problem: Problem
    rungs: tuple[Rung, ...]
    sizes: tuple[str, ...]
    dtype: str
    tuned: bool = True
    """Whether kernels run with the parameters that were tuned for this GPU and size, where there
    are any."""
    asked: tuple[Rung, ...] = ()
    """The rungs that were named, where others were added to them; () means all."""
    fixed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Parameters by case marker that are settled already: those of a run that is resumed."""

    def parameters(self, rung: Rung, size: str, overrides: Mapping[str, int]) -> dict[str, int]:
        """What `rung` is run with at `size` beside its defaults: the overrides, which go with a
        single kernel, or what was tuned for this GPU."""
        settled = self.fixed.get(marker_of(rung, self.problem.parse_size(size).label, self.dtype))
        if settled is not None:
            return dict(settled)
        named = self.asked or self.rungs
        own = overrides if len(named) == 1 and rung in named else {}
        return tuned.parameters_for(rung, size, self.dtype, cuda.device().name, own, self.tuned)


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
        UsageProblem: an unknown name, a size or dtype that the family cannot take; a list with one
            bad entry names that entry.
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
        raise UsageProblem(
            "nothing to run", "Name a --kernel or a --family: `ncu-toolkit list` shows them"
        )
    selections = []
    for name, rungs in chosen.items():
        problem = problem_for(name)
        labels = parse_sizes(problem, sizes) if sizes else tuple(default_sizes(problem))
        selections.append(Selection(problem, tuple(rungs), labels, problem.dtype(dtype)))
    return tuple(selections)


def parse_sizes(problem: Problem, text: str) -> tuple[str, ...]:
    """`512,1024x512x2048` as normalised labels; raises UsageProblem for the first entry that the
    family cannot take."""
    entries = [entry.strip() for entry in text.split(",")]
    if any(not entry for entry in entries):
        raise UsageProblem(
            f"--size '{text}' has an empty entry",
            f"Write a list such as {','.join(problem.bench_sizes[:3])}",
        )
    return tuple(dict.fromkeys(problem.parse_size(entry).label for entry in entries))


def with_predecessors(selection: Selection) -> Selection:
    """The selection with the rungs that its rungs are held against, so that each page can say what
    its step changed."""
    rungs: list[Rung] = []
    for rung in selection.rungs:
        previous = comparison_of(rung)
        for candidate in (previous, rung):
            if (
                candidate is not None
                and candidate not in rungs
                and candidate.family == selection.problem.family
            ):
                rungs.append(candidate)
    return replace(
        selection, rungs=tuple(sorted(rungs, key=lambda rung: rung.order)), asked=selection.rungs
    )
