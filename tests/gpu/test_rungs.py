"""Every rung right on random data at round and odd sizes, against its family's reference. Run on a
machine with a GPU: `make test-gpu`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from family_sizes import further_sizes, verified_sizes
from picks import best, picks_of

from ncu_toolkit.base.core.errors import EnvironmentProblem, UsageProblem
from ncu_toolkit.kernel.gpu import cuda
from ncu_toolkit.kernel.gpu.launch import Runnable, Workspace
from ncu_toolkit.kernel.ladder.catalogue import find_rung, load_families
from ncu_toolkit.kernel.ladder.problems import families, problem_for

pytestmark = pytest.mark.gpu


def _cases() -> Iterator[tuple[str, str, str, str]]:
    for name, family in load_families().items():
        if name not in families():
            continue
        problem = problem_for(name)
        for size in verified_sizes(problem):
            for dtype in problem.dtypes:
                for rung in family.rung_names:
                    yield name, rung, size, dtype
        for rung, sizes in further_sizes(problem).items():
            for size in sizes:
                for dtype in problem.dtypes:
                    yield name, rung, size, dtype


@pytest.fixture(scope="module")
def workspaces() -> dict[tuple[str, ...], Workspace]:
    """The workspace of the last family, size, dtype and options: rungs follow each other on the
    same data."""
    return {}


@pytest.mark.parametrize(("family", "name", "size", "dtype"), list(_cases()))
def test_right_result(
    family: str, name: str, size: str, dtype: str, workspaces: dict[tuple[str, ...], Workspace]
) -> None:
    if not cuda.available():
        pytest.skip("no GPU here")
    cuda.disable_tf32()
    rung = find_rung(f"{family}/{name}")
    problem = problem_for(family)
    key = (family, size, dtype, repr(sorted(rung.problem.items())))
    if key not in workspaces:
        workspaces.clear()
        cuda.cupy().get_default_memory_pool().free_all_blocks()
        workspaces[key] = Workspace(rung, problem.parse_size(size), dtype, seed=7)
    try:
        runnable = Runnable(rung, workspaces[key])
    except (EnvironmentProblem, UsageProblem) as refusal:
        pytest.skip(f"refused by name: {refusal}")
    for _ in range(3):  # a race moves between runs
        assert runnable.verify() <= 1


def _modelled() -> Iterator[tuple[str, str, str, dict[str, tuple[int, ...]]]]:
    for name, family in load_families().items():
        for rung in family.rungs:
            problem = problem_for(name) if rung.model else None
            for size in verified_sizes(problem) if problem else ():
                for dtype in problem.dtypes if problem else ():
                    for pick in picks_of(rung):
                        yield f"{name}/{rung.name}", size, dtype, pick


@pytest.mark.parametrize(("name", "size", "dtype", "pick"), list(_modelled()))
def test_right_result_as_the_model_chooses(
    name: str,
    size: str,
    dtype: str,
    pick: dict[str, tuple[int, ...]],
    workspaces: dict[tuple[str, ...], Workspace],
) -> None:
    if not cuda.available():
        pytest.skip("no GPU here")
    cuda.disable_tf32()
    rung = find_rung(name)
    problem = problem_for(rung.family)
    shape = problem.parse_size(size)
    chosen = best(rung.modelled(shape.as_dict(), cuda.device().sm_count), pick)
    key = (rung.family, size, dtype, repr(sorted(rung.problem.items())))
    if key not in workspaces:
        workspaces.clear()
        cuda.cupy().get_default_memory_pool().free_all_blocks()
        workspaces[key] = Workspace(rung, shape, dtype, seed=7)
    runnable = Runnable(rung, workspaces[key], chosen)
    outputs = []
    for _ in range(
        3
    ):  # a race moves between runs; what is added up in another order has other bits
        assert runnable.verify() <= 1
        outputs.append(workspaces[key].arrays["C"].copy())
    assert all((other == outputs[0]).all() for other in outputs[1:])
