"""The reduction family: sizes, inputs, references and bounds, on NumPy; and that its rungs fit the
problem."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.kernel.ladder import catalogue
from ncu_toolkit.kernel.ladder.problems import Case, compare, problem_for
from ncu_toolkit.kernel.ladder.rung import Rung

PROBLEM = problem_for("reduction")
H200_SMS = 132


def inputs_of(n: int, dtype: str, seed: int = 1) -> dict[str, np.ndarray]:
    return PROBLEM.make_inputs(Case(PROBLEM.parse_size(str(n)), dtype, xp=np), seed, ["x"])


def blocked_sum(x: np.ndarray, threads: int) -> np.float32:
    """float32 sum as a grid-stride rung makes it: a chain in each thread, then a tree."""
    padded = np.zeros(-(-max(x.size, 1) // threads) * threads, dtype=np.float32)
    padded[: x.size] = x
    partial = np.zeros(threads, dtype=np.float32)
    for row in padded.reshape(-1, threads):
        partial += row
    while partial.size > 1:
        partial = partial[: partial.size // 2] + partial[partial.size // 2 :]
    return partial[0]


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("0", 0), ("1000", 1000), ("2^22", 1 << 22), ("2**28", 1 << 28), (" 2 ^ 30 ", 1 << 30),
        ("2147483647", 2**31 - 1),
    ],
)  # fmt: skip
def test_sizes_are_counts_or_powers_of_two(text: str, n: int) -> None:
    assert PROBLEM.parse_size(text)["n"] == n


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("-1", "too small"), ("2^31", "too large"), ("2^999", "too large"), ("3x4", "2 extents"),
        ("2^", "not a number"), ("many", "not a number"),
    ],
)  # fmt: skip
def test_impossible_sizes_are_refused(text: str, says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        PROBLEM.parse_size(text)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=50))
def test_integer_sums_wrap_around(values: list[int]) -> None:
    x = np.array(values, dtype=np.int32)
    expected = PROBLEM.reference(
        Case(PROBLEM.parse_size(str(len(values))), "int32", xp=np), {"x": x}
    )["y"]
    assert int(expected.values[0]) == (sum(values) + 2**31) % 2**32 - 2**31
    wrapped = (
        x.view(np.uint32).sum(dtype=np.uint32).reshape(1).view(np.int32)
    )  # what the kernels compute
    assert compare(np, "y", wrapped, expected).passed
    assert not compare(np, "y", wrapped ^ np.int32(1), expected).passed


@pytest.mark.parametrize("n", [1, 7, 127, 1000, 100_003, 1 << 20])
@pytest.mark.parametrize("threads", [128, 2**14])
def test_float_bound_admits_rounding_and_catches_a_lost_element(n: int, threads: int) -> None:
    x = inputs_of(n, "float32", seed=n)["x"]
    assert float(x.min()) >= -1.0
    assert float(x.max()) < 1.0
    expected = PROBLEM.reference(Case(PROBLEM.parse_size(str(n)), "float32", xp=np), {"x": x})["y"]
    assert compare(np, "y", np.array([blocked_sum(x, threads)]), expected).passed
    lost = x.copy()
    lost[int(np.argmax(np.abs(x)))] = 0
    assert not compare(np, "y", np.array([blocked_sum(lost, threads)]), expected).passed


def test_nothing_sums_to_zero() -> None:
    for dtype, zero in (("int32", np.int32), ("float32", np.float32)):
        inputs = inputs_of(0, dtype)
        assert inputs["x"].shape == (0,)
        expected = PROBLEM.reference(Case(PROBLEM.parse_size("0"), dtype, xp=np), inputs)["y"]
        assert compare(np, "y", np.zeros(1, dtype=zero), expected).passed
        assert not compare(np, "y", np.ones(1, dtype=zero), expected).passed


@pytest.mark.parametrize(
    "rung",
    [r for r in catalogue.find_family("reduction").rungs if not r.library],
    ids=lambda r: r.name,
)
@pytest.mark.parametrize("text", ["0", "1", "127", "2^22", "16777259", "2147483647"])
def test_every_rung_launches_at_every_size(rung: Rung, text: str) -> None:
    size = PROBLEM.parse_size(text)
    scalars = {name: scalar.value for name, scalar in PROBLEM.scalars(Case(size, "int32")).items()}
    scratch = rung.scratch_counts(scalars, None, H200_SMS)
    known = {*PROBLEM.arrays(Case(size, "int32", rung.problem)), *scalars, *scratch}
    launches = rung.launch_geometry(scalars, None, H200_SMS)
    assert all(set(launch.args) <= known for launch in launches)
    assert all(min(launch.grid) >= 1 for launch in launches)
    if "partial" in scratch:  # one partial sum a block of the first launch
        assert scratch["partial"] >= launches[0].grid[0]
    if "partial2" in scratch:
        assert scratch["partial2"] >= launches[1].grid[0]
