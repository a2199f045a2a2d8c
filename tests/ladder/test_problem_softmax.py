"""The softmax family on NumPy: its reference and bound, and that its rungs cover every row."""

from __future__ import annotations

import numpy as np
import pytest
from family_sizes import verified_sizes

from ncu_toolkit.kernel.ladder import catalogue
from ncu_toolkit.kernel.ladder.problems import Case, compare, problem_for
from ncu_toolkit.kernel.ladder.problems.base import Size
from ncu_toolkit.kernel.ladder.problems.softmax import relative_bound
from ncu_toolkit.kernel.ladder.rung import Rung

PROBLEM = problem_for("softmax")
RUNGS = [rung for rung in catalogue.find_family("softmax").rungs if not rung.library]


def inputs_of(size: Size) -> np.ndarray:
    return PROBLEM.make_inputs(Case(size, "float32", xp=np), 1, ["x"])["x"]


def in_order(x: np.ndarray) -> np.ndarray:
    """Softmax in float32 with one chain of additions per row, as the first rung makes it."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    total = np.zeros((len(x), 1), dtype=np.float32)
    for column in e.T:
        total += column[:, None]
    return e / total


@pytest.mark.parametrize("text", ["1", "7x3", "127x129", "3x32768"])
def test_the_bound_admits_rounding_and_catches_a_lost_element(text: str) -> None:
    size = PROBLEM.parse_size(text)
    x = inputs_of(size)
    expected = PROBLEM.reference(Case(size, "float32", xp=np), {"x": x})["y"]
    assert np.allclose(expected.values.sum(axis=1), 1, rtol=1e-12)
    assert compare(np, "y", in_order(x), expected).passed
    if size["cols"] > 1:
        lost = in_order(x)
        best = np.argmax(lost, axis=1)
        lost /= 1 - lost[0, best[0]]  # as if the first row's sum had missed its largest element
        assert not compare(np, "y", lost, expected).passed


def test_a_forgotten_maximum_overflows() -> None:
    size = PROBLEM.parse_size("64x8")
    x = inputs_of(size)
    expected = PROBLEM.reference(Case(size, "float32", xp=np), {"x": x})["y"]
    with np.errstate(over="ignore", invalid="ignore"):
        e = np.exp(x)
        assert not compare(np, "y", e / e.sum(axis=1, keepdims=True), expected).passed


def test_the_bound_of_long_rows_is_small() -> None:
    assert relative_bound(1) < 330 * 2.0**-24
    assert relative_bound(32768) < 2e-4  # a lost element of a row of 32768 is off by 5e-4


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
@pytest.mark.parametrize(
    "text", [*verified_sizes(PROBLEM), *PROBLEM.record_sizes, *PROBLEM.bench_sizes]
)
def test_every_rung_has_threads_for_every_row(rung: Rung, text: str) -> None:
    size = PROBLEM.parse_size(text)
    scalars = {name: s.value for name, s in PROBLEM.scalars(Case(size, "float32")).items()}
    (launch,) = rung.launch_geometry(scalars, None, 132)
    assert set(launch.args) <= {"x", "y", *scalars}
    blocks, threads = launch.grid[0], launch.block[0]
    if rung.name == "softmax_naive":
        assert blocks * threads >= size["rows"]
        return
    assert blocks == size["rows"]
    assert threads % 32 == 0  # whole warps meet in shared memory
    if rung.name == "softmax_registers" and size["cols"] <= 32768:
        assert threads * rung.parameters["VECTORS"] * 4 >= size["cols"]  # the row fits
