"""The elementwise family: both operations' inputs, references and bounds, on NumPy; and that its
rungs fit the problem."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.kernel.ladder.problems import Case, compare, problem_for

PROBLEM = problem_for("elementwise")
GELU = {"op": "gelu"}
GRAY = {"op": "rgb_to_gray"}
SIZE = PROBLEM.parse_size("123x457")
F = np.float32


def reference(options: dict[str, str], inputs: dict[str, np.ndarray]) -> object:
    (expected,) = PROBLEM.reference(Case(SIZE, "float32", options, np), inputs).values()
    return expected


def argument(x: np.ndarray) -> np.ndarray:
    return F(0.7978845608028654) * (x + F(0.044715) * x * x * x)


def test_gelu_by_tanh_and_by_logistic_are_within_the_bound() -> None:
    inputs = PROBLEM.make_inputs(Case(SIZE, "float32", GELU, np), 3, ["x", "y"])
    x = inputs["x"]
    assert x.shape == (123, 457)
    assert (float(x.min()) < -5.9, float(x.max()) > 5.9) == (True, True)
    expected = reference(GELU, inputs)
    assert compare(np, "y", F(0.5) * x * (F(1) + np.tanh(argument(x))), expected).passed
    assert compare(np, "y", x / (F(1) + np.exp(F(-2) * argument(x))), expected).passed


def test_gelu_reference_is_the_scalar_formula() -> None:
    x = np.array([[-3.0, -0.5, 0.0, 0.25, 2.0]], dtype=F)
    values = PROBLEM.reference(Case(PROBLEM.parse_size("1x5"), "float32", GELU, np), {"x": x})[
        "y"
    ].values
    by_hand = [
        0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))
        for v in x[0].tolist()
    ]
    assert values[0].tolist() == pytest.approx(by_hand, rel=1e-14)
    assert values[0, 4] == pytest.approx(1.954597694, rel=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x,
        lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
        lambda x: np.maximum(x, 0),
    ],
)
def test_gelu_bound_tells_other_functions_apart(wrong: object) -> None:
    inputs = PROBLEM.make_inputs(Case(SIZE, "float32", GELU, np), 4, ["x"])
    assert not compare(np, "y", wrong(inputs["x"]).astype(F), reference(GELU, inputs)).passed  # type: ignore[operator]


def test_gray_is_exact() -> None:
    inputs = PROBLEM.make_inputs(Case(SIZE, "float32", GRAY, np), 5, ["rgb"])
    rgb = inputs["rgb"]
    assert (rgb.shape, rgb.dtype) == ((123, 457, 3), np.uint8)
    expected = reference(GRAY, inputs)
    exact = np.floor(rgb.astype(np.float64) @ np.array([77.0, 150.0, 29.0]) / 256 + 0.5).astype(
        np.uint8
    )
    assert compare(np, "gray", exact, expected).passed
    assert (
        np.abs(exact - rgb.astype(np.float64) @ np.array([0.299, 0.587, 0.114])).max() < 1.5
    )  # it is BT.601 luma
    off = exact.copy()
    off[-1, -1] ^= 1
    assert not compare(np, "gray", off, expected).passed


def test_unknown_operations_and_baselines_are_refused() -> None:
    with pytest.raises(UsageProblem, match="no operation 'relu'"):
        PROBLEM.arrays(Case(SIZE, "float32", {"op": "relu"}))
    with pytest.raises(UsageProblem, match="no library baseline 'torch'"):
        PROBLEM.library(Case(SIZE, "float32", GELU, np), "torch", {})
