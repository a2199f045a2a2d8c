"""What every family owes its ladder, checked on NumPy at a small size: inputs, a reference, work
and bytes to rank by, a baseline that exists."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy
import pytest
from family_sizes import verified_sizes

from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.kernel.ladder.catalogue import load_families
from ncu_toolkit.kernel.ladder.problems import Case, compare, families, problem_for
from ncu_toolkit.kernel.ladder.problems.base import (
    ITEMSIZE,
    Array,
    Expected,
    Options,
    Problem,
    Size,
)
from ncu_toolkit.kernel.ladder.problems.gemm_fp32 import GemmFp32
from ncu_toolkit.kernel.ladder.rung import Rung


def small_size(problem: Problem) -> Size:
    """The smallest test size of which every extent is more than 1."""
    sizes = [problem.parse_size(text) for text in verified_sizes(problem)]
    wide = [size for size in sizes if min(size.as_dict().values()) > 1]
    return min(wide, key=lambda size: math.prod(size.as_dict().values()))


def violations(problem: Problem, rungs: Sequence[Rung]) -> Iterator[str]:
    """Where a family breaks its contract."""
    names = {rung.name for rung in rungs}
    if problem.baseline and problem.baseline not in names:
        yield f"the baseline '{problem.baseline}' is no rung of the ladder"
    if not rungs or not problem.title.strip() or not problem.story.strip():
        yield "no rungs, title or story"
    options = {repr(rung.problem): rung.problem for rung in rungs}
    for texts, sizes in (
        ("bench_sizes", problem.bench_sizes),
        ("record_sizes", problem.record_sizes),
        ("test sizes", verified_sizes(problem)),
    ):
        for text in sizes:
            try:
                size = problem.parse_size(text)
            except UsageProblem as error:
                yield f"{texts}: {error}"
                continue
            if all(size.as_dict().values()):
                for chosen in options.values():
                    yield from useful_work(problem, size, chosen)
    for dtype in problem.dtypes:
        for chosen in options.values():
            try:
                yield from on_numpy(problem, small_size(problem), dtype, chosen)
            except Exception as error:
                yield f"{dtype} {dict(chosen)}: {type(error).__name__}: {error}"


def useful_work(problem: Problem, size: Size, options: Options) -> Iterator[str]:
    """FLOPs are positive where the ladder is ranked by them, and bytes always are."""
    flops = problem.flops(Case(size, problem.dtypes[0], options))
    if not (math.isfinite(flops) and (flops > 0 or (flops == 0 and problem.rate == "byte"))):
        yield f"{size.label} {dict(options)}: {flops} FLOPs"
    for dtype in problem.dtypes:
        moved = problem.compulsory_bytes(Case(size, dtype, options))
        if not (math.isfinite(moved) and moved > 0):
            yield f"{size.label} {dtype} {dict(options)}: {moved} compulsory bytes"


def on_numpy(problem: Problem, size: Size, dtype: str, options: Options) -> Iterator[str]:
    """Inputs have the shapes and types that they are declared with and depend on the seed alone;
    the reference gives every output within a bound that a wrong result does not meet."""
    where = f"{size.label} {dtype} {dict(options)}"
    case = Case(size, dtype, options, numpy)
    arrays = problem.arrays(case)
    given = [name for name, spec in arrays.items() if spec.role != "output"]
    inputs = problem.make_inputs(case, 1, given)
    again = problem.make_inputs(case, 1, given)
    other = problem.make_inputs(case, 2, given)
    if missing := set(given) - set(inputs):
        yield f"{where}: no input {', '.join(sorted(missing))}"
    for name, made in inputs.items():
        spec = arrays[name]
        if made.shape != spec.shape or made.dtype.itemsize != ITEMSIZE[spec.dtype]:
            yield f"{where}: {name} is {made.dtype}{made.shape}, declared {spec}"
        if not numpy.array_equal(made, again[name]):
            yield f"{where}: {name} is not the same for the same seed"
    if inputs and all(numpy.array_equal(inputs[name], other[name]) for name in inputs):
        yield f"{where}: the inputs do not depend on the seed"
    expected = problem.reference(case, inputs)
    outputs = {name for name, spec in arrays.items() if spec.role == "output"}
    if not expected or not set(expected) <= outputs:
        yield f"{where}: the reference is of {sorted(expected)}, outputs are {sorted(outputs)}"
    for name, wanted in expected.items():
        values = numpy.asarray(wanted.values)
        if values.size != math.prod(arrays[name].shape):
            yield f"{where}: the reference of {name} has {values.size} elements"
        if not numpy.isfinite(values.astype(numpy.float64)).all():
            yield f"{where}: the reference of {name} is not finite"
        bound = numpy.asarray(wanted.bound, dtype=numpy.float64)
        if not (numpy.isfinite(bound).all() and (bound >= 0).all() and wanted.why):
            yield f"{where}: {name} has no finite bound with a reason"
            continue
        if not compare(numpy, name, values, wanted).passed:
            yield f"{where}: the reference of {name} does not pass for itself"
        wrong = values + (1 + 2 * bound.max()).astype(values.dtype)
        if compare(numpy, name, wrong, wanted).passed:
            yield f"{where}: a {name} that is off by more than the bound passes"


@pytest.mark.parametrize("family", families())
def test_a_family_keeps_its_contract(family: str) -> None:
    assert list(violations(problem_for(family), load_families()[family].rungs)) == []


def test_every_ladder_has_a_family() -> None:
    assert set(load_families()) == set(families())


class Raises(GemmFp32):
    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
        raise NotImplementedError("later")


class Nothing(GemmFp32):
    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
        return {}


class NoBaseline(GemmFp32):
    baseline = "cublass"


class Negative(GemmFp32):
    def flops(self, case: Case) -> float:
        return -1.0


class Weightless(GemmFp32):
    def compulsory_bytes(self, case: Case) -> float:
        return 0.0


class NoInputs(GemmFp32):
    def make_inputs(self, case: Case, seed: int, names: Sequence[str]) -> dict[str, Array]:
        return {}


class AnythingGoes(GemmFp32):
    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
        right = super().reference(case, inputs)
        return {name: Expected(e.values, float("inf"), "") for name, e in right.items()}


@pytest.mark.parametrize(
    ("hollow", "says"),
    [
        (Raises, "NotImplementedError: later"),
        (Nothing, "the reference is of []"),
        (NoBaseline, "the baseline 'cublass' is no rung"),
        (Negative, "-1.0 FLOPs"),
        (Weightless, "0.0 compulsory bytes"),
        (NoInputs, "no input A"),
        (AnythingGoes, "no finite bound"),
    ],
)
def test_a_hollow_family_is_refused(hollow: type[Problem], says: str) -> None:
    found = list(violations(hollow(), load_families()["gemm_fp32"].rungs))
    assert any(says in line for line in found), found
