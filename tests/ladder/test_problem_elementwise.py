"""The elementwise family: both operations' inputs, references and bounds, on NumPy; and that its
rungs fit the problem."""

from __future__ import annotations

import math

import numpy as np
import pytest
from family_sizes import verified_sizes

from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.kernel.ladder import catalogue
from ncu_toolkit.kernel.ladder.problems import Case, compare, problem_for
from ncu_toolkit.kernel.ladder.rung import Rung

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


def test_black_and_white_stay_so() -> None:
    rgb = np.array([[[0, 0, 0], [255, 255, 255]]], dtype=np.uint8)
    values = PROBLEM.reference(Case(PROBLEM.parse_size("1x2"), "float32", GRAY, np), {"rgb": rgb})[
        "gray"
    ].values
    assert values.tolist() == [[0, 255]]


def test_traffic_is_counted_by_operation() -> None:
    assert PROBLEM.compulsory_bytes(Case(SIZE, "float32", GELU)) == 8 * 123 * 457
    assert PROBLEM.compulsory_bytes(Case(SIZE, "float32", GRAY)) == 4 * 123 * 457
    for options in (GELU, GRAY):
        nbytes = sum(
            spec.nbytes for spec in PROBLEM.arrays(Case(SIZE, "float32", options)).values()
        )
        assert nbytes == PROBLEM.compulsory_bytes(Case(SIZE, "float32", options))
        assert PROBLEM.flops(Case(SIZE, PROBLEM.dtypes[0], options)) > 0
        assert PROBLEM.reference_bytes(Case(SIZE, "float32", options)) > 0


def test_unknown_operations_and_baselines_are_refused() -> None:
    with pytest.raises(UsageProblem, match="no operation 'relu'"):
        PROBLEM.arrays(Case(SIZE, "float32", {"op": "relu"}))
    with pytest.raises(UsageProblem, match="no library baseline 'torch'"):
        PROBLEM.library(Case(SIZE, "float32", GELU, np), "torch", {})


class FakeCupy:
    """Stands in for CuPy's elementwise kernels: records the source and the arrays of a call."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.code = ""

    def ElementwiseKernel(self, inputs: str, outputs: str, code: str, name: str) -> object:
        self.code = code
        return lambda *arrays: self.calls.append(arrays)


@pytest.mark.parametrize(
    ("name", "options", "arguments"), [("cupy_gelu", GELU, 2), ("cupy_rgb_to_gray", GRAY, 4)]
)
def test_library_kernels_write_into_the_output(
    name: str, options: dict[str, str], arguments: int
) -> None:
    arrays = {
        key: np.zeros(spec.shape, spec.dtype)
        for key, spec in PROBLEM.arrays(Case(SIZE, "float32", options)).items()
    }
    cupy = FakeCupy()
    run = PROBLEM.library(Case(SIZE, "float32", options, cupy), name, arrays)
    assert run() is None
    assert len(cupy.calls[0]) == arguments
    output = next(
        key
        for key, spec in PROBLEM.arrays(Case(SIZE, "float32", options)).items()
        if spec.role == "output"
    )
    assert cupy.calls[0][-1] is arrays[output]
    assert cupy.code.startswith("y = ")


@pytest.mark.parametrize(
    "rung",
    [r for r in catalogue.find_family("elementwise").rungs if not r.library],
    ids=lambda r: r.name,
)
@pytest.mark.parametrize("text", [*verified_sizes(PROBLEM), *PROBLEM.record_sizes])
def test_every_rung_launches_at_every_size(rung: Rung, text: str) -> None:
    size = PROBLEM.parse_size(text)
    scalars = {
        name: scalar.value
        for name, scalar in PROBLEM.scalars(Case(size, "float32", rung.problem)).items()
    }
    known = {
        *PROBLEM.arrays(Case(size, "float32", rung.problem)),
        *scalars,
        *rung.scratch_counts(scalars, None, 132),
    }
    for launch in rung.launch_geometry(scalars, None, 132):
        assert set(launch.args) <= known


def test_unfused_gelu_is_eight_launches() -> None:
    assert len(catalogue.find_rung("gelu_unfused").launches) == 8
    assert len(catalogue.find_rung("gelu_fused").launches) == 1
