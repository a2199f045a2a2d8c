"""The pathology family: each operation against a direct computation on NumPy, and the pairs against
the list of bottlenecks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from family_sizes import verified_sizes

from ncu_toolkit.kernel.ladder import catalogue
from ncu_toolkit.kernel.ladder.problems import ArraySpec, Case, Expected, compare, problem_for
from ncu_toolkit.kernel.ladder.problems._operations import OPERATIONS
from ncu_toolkit.kernel.ladder.rung import Rung

PROBLEM = problem_for("pathology")
RUNGS = catalogue.find_family("pathology").rungs

DEFECTS = {
    "uncoalesced-global-access", "narrow-access", "missing-data-reuse", "shared-bank-conflict", "shared-instruction-pressure",
    "global-instruction-pressure", "local-memory-traffic", "memory-latency", "async-copy-wait", "instruction-dependency", "low-occupancy",
    "grid-too-small", "tail-effect", "load-imbalance", "warp-divergence", "barrier-imbalance", "atomic-contention", "constant-cache-divergence",
    "special-function-pressure", "double-precision", "integer-arithmetic", "tensor-core-unused", "instruction-cache", "launch-overhead",
}  # fmt: skip
ROOFS = {"dram_bandwidth", "l2_bandwidth", "l1_bandwidth", "fp32_pipe", "tensor_pipe"}


def case(n: int, **options: Any) -> tuple[dict[str, np.ndarray], Expected]:
    """Inputs and the expected output of one operation; inputs must be as specified and the same for
    the same seed."""
    size = PROBLEM.parse_size(str(n))
    specs = PROBLEM.arrays(Case(size, "float32", options))
    inputs = PROBLEM.make_inputs(Case(size, "float32", options, np), 7, list(specs))
    assert {name: (a.shape, str(a.dtype)) for name, a in inputs.items()} == {
        k: (s.shape, s.dtype) for k, s in specs.items() if s.role == "input"
    }
    for name, a in inputs.items():
        assert np.array_equal(
            a, PROBLEM.make_inputs(Case(size, "float32", options, np), 7, [name])[name]
        )
    ((output, expected),) = PROBLEM.reference(Case(size, "float32", options, np), inputs).items()
    assert (specs[output].role, specs[output].shape) == ("output", expected.values.shape)
    return inputs, expected


def agrees(got: Any, expected: Expected) -> bool:
    return compare(np, "y", np.asarray(got), expected).passed


@pytest.mark.parametrize("n", [1, 77])
def test_affine_and_bytes(n: int) -> None:
    inputs, expected = case(n, reference="affine", scale=2)
    assert agrees(np.array([1.5 * float(v) + 0.25 for v in inputs["x"]], np.float32), expected)
    assert not agrees(inputs["x"], expected)
    inputs, expected = case(n, reference="invert_bytes", scale=3)
    assert len(inputs["x"]) == 3 * n
    assert agrees(np.array([255 - int(v) for v in inputs["x"]], np.uint8), expected)


@pytest.mark.parametrize(
    ("n", "options"),
    [
        (1, {"steps": 40}),
        (3000, {"steps": 20, "classes": 64}),
        (1000, {"steps": 8, "long_steps": 64}),
        (640, {"steps": 5, "divide": 64}),
    ],
)
def test_iterate_step_by_step(n: int, options: dict[str, int]) -> None:
    inputs, expected = case(n, reference="iterate", **options)
    heavy = math.ceil(len(inputs["x"]) / 64)
    y, missed = [], []
    for i, x in enumerate(inputs["x"]):
        c = i // 32 % options.get("classes", 1)
        steps = options.get("long_steps", options["steps"]) if i < heavy else options["steps"]
        v = np.float32(x)
        for k in range(steps):
            if k == steps - 1:
                missed.append(v)
            v = np.float32(float(v) * (1 - (c + 1) / 4096) + (c + 1) / 8192)  # fused: one rounding
        y.append(v)
    assert agrees(y, expected)
    assert not agrees(missed, expected)  # the bound tells one step more or less


def test_evolve_step_by_step() -> None:
    inputs, expected = case(200, reference="evolve", steps=64)
    h, y = np.float32(1 / 512), []
    for i, v in enumerate(inputs["x"]):
        one = np.float32(1)
        for _ in range(64):
            v = [v + h * (one - v), v - h * (v * v), v + h * (v * (one - v)), v - h * (v * v * v)][
                i // 8 % 4
            ]
        y.append(v)
    assert agrees(y, expected)
    assert not agrees(np.roll(y, 8), expected)


@pytest.mark.parametrize("ones", [0, 1])
def test_polynomial_term_by_term(ones: int) -> None:
    inputs, expected = case(50, reference="polynomial", degree=63, ones=ones)
    assert ("c" in inputs) == (not ones)
    c = [1.0] * 64 if ones else inputs["c"].tolist()
    assert agrees(
        [math.fsum(c[k] * float(x) ** k for k in range(64)) for x in inputs["x"]], expected
    )
    assert not agrees(
        [math.fsum(c[k] * float(x) ** k for k in range(63)) for x in inputs["x"]], expected
    )
    horner = np.zeros(50, np.float32)
    for k in reversed(range(64)):
        horner = horner * inputs["x"] + np.float32(c[k])
    assert agrees(horner, expected)


@pytest.mark.parametrize(("n", "length"), [(1, 0), (100, 0), (1, 64), (1000, 64)])
def test_moving_mean_window_by_window(n: int, length: int) -> None:
    inputs, expected = case(
        n, reference="moving_mean", taps=32, **({"length": length} if length else {})
    )
    rows = length or n
    cols = math.ceil(n / rows)
    x = inputs["x"].reshape(rows + 31, cols)
    y = np.array(
        [[math.fsum(x[r : r + 32, c].tolist()) / 32 for c in range(cols)] for r in range(rows)],
        np.float32,
    )
    assert agrees(y.reshape(-1), expected)


def test_rows() -> None:
    inputs, expected = case(1000, reference="row_sum", width=128, scale=4)
    assert inputs["x"].shape == (32, 128)
    assert agrees(np.array([math.fsum(row.tolist()) for row in inputs["x"]], np.float32), expected)
    inputs, expected = case(1100, reference="row_scale", steps=100)
    assert inputs["x"].shape == (64, 32)
    y = np.empty((64, 32), np.float32)
    for r, row in enumerate(inputs["x"]):
        factor = float(row[0])
        for _ in range(100):
            factor = factor * (1 - 1 / 4096) + 1 / 8192
        y[r] = row * np.float32(factor)
    assert agrees(y, expected)


def test_tile_transpose_element_by_element() -> None:
    inputs, expected = case(1500, reference="tile_transpose")
    y = np.empty(2048, np.float32)
    for i, v in enumerate(inputs["x"]):
        y[i // 1024 * 1024 + i % 32 * 32 + i % 1024 // 32] = v
    assert agrees(y, expected)
    assert not agrees(inputs["x"], expected)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_matmul_dot_by_dot(dtype: str) -> None:
    inputs, expected = case(65 * 16, reference="matmul", k=8, cols=16, dtype=dtype)
    assert inputs["A"].shape == (128, 8)
    a, w = inputs["A"].astype(float), inputs["W"].astype(float)
    c = np.array(
        [[math.fsum(a[r, k] * w[k, j] for k in range(8)) for j in range(16)] for r in range(128)],
        np.float32,
    )
    assert agrees(c, expected)
    assert not agrees(a[:, :7] @ w[:7], expected)


def test_layers_row_by_row() -> None:
    inputs, expected = case(65, reference="layers", width=64, steps=32)
    a, w = inputs["A"], inputs["W"].astype(np.float32)
    assert a.shape == (64, 64)
    assert np.abs(w @ w.T - np.eye(64)).max() < 5e-3
    v = a
    for _ in range(32):
        v = (v.astype(np.float32) @ w).astype(np.float16)
    assert agrees(v, expected)
    assert not agrees(a, expected)
    assert not agrees((v.astype(np.float32) @ w).astype(np.float16), expected)


def test_chase_link_by_link() -> None:
    inputs, expected = case(700, reference="chase", hops=3, chunk=256, scale=4)
    link, table = inputs["link"], inputs["table"]
    assert sorted(link.tolist()) == list(range(11 * 256))
    y = []
    for i in range(700):
        at = i
        for _ in range(3):
            at = int(link[int(table[at // 256]) * 256 + at % 256])
        y.append(at)
    assert agrees(np.array(y, np.int32), expected)
    assert all(at % 256 == i % 256 for i, at in enumerate(y))


def test_histogram_and_lookup() -> None:
    inputs, expected = case(777, reference="histogram", bins=16)
    assert agrees(
        np.array([inputs["key"].tolist().count(b) for b in range(16)], np.int32), expected
    )
    inputs, expected = case(300, reference="lookup", entries=32)
    table = [float(np.float32(1) / np.float32(k + 1)) for k in range(32)]
    y = [sum(table[int(key) // 32**j % 32] for j in range(6)) for key in inputs["key"]]
    assert agrees(np.array(y, np.float32), expected)


def test_broadcast_add_coordinate_by_coordinate() -> None:
    inputs, expected = case(3000, reference="broadcast_add", d0=24, d1=36, d2=52)
    b0, b1, b2 = (inputs[f"b{j}"] for j in range(3))
    first = 2**44 + 12345
    y = [
        x + b0[p % 24] + b1[p // 24 % 36] + b2[p // (24 * 36) % 52]
        for p, x in enumerate(inputs["x"], first)
    ]
    assert agrees(y, expected)
    assert not agrees(np.roll(y, 1), expected)


def test_embedding_bag_row_by_row() -> None:
    inputs, expected = case(640, reference="embedding_bag", table_rows=50, lookups=16, divide=64)
    assert inputs["index"].shape == (10, 16)
    y = [
        [math.fsum(float(inputs["table"][row, c]) for row in bag) for c in range(32)]
        for bag in inputs["index"]
    ]
    assert agrees(np.array(y, np.float32), expected)


def test_lane_layout_of_an_8_by_8_block() -> None:
    _, expected = case(100, reference="lane_layout", x=8, y=8)
    lane, right, below, flipped = expected.values
    assert expected.values.shape == (4, 128)
    assert lane[:64].tolist() == [*range(32), *range(32)]
    # the end of a row leads to the next row, the end of the warp nowhere
    assert (right[0], right[7], right[30], right[31]) == (1, 256, 7 + 256 * 3, 7 + 256 * 3)
    assert (below[0], below[9], below[24]) == (256, 1 + 256 * 2, 256 * 3)
    assert (flipped[0], flipped[1], flipped[33]) == (1, 0, 256 * 4)


def test_every_defect_has_its_pair_and_every_roof_its_kernel() -> None:
    by_name = {rung.name: rung for rung in RUNGS}
    assert set(by_name) == {
        name for d in DEFECTS for name in (d.replace("-", "_"), d.replace("-", "_") + "_fixed")
    } | ROOFS | {"lane_layout"}
    for defect in DEFECTS:
        slow, fixed = (
            by_name[defect.replace("-", "_")],
            by_name[defect.replace("-", "_") + "_fixed"],
        )
        assert (slow.kind, slow.compared_with, slow.removes) == ("planted", "", "")
        assert (fixed.kind, fixed.compared_with, fixed.removes) == ("step", slow.name, defect)
        assert slow.problem == fixed.problem, "both compute the same"
        assert slow.expect.profile
        assert fixed.expect.profile
        assert (fixed.expect.ratio_at_least or 0) >= 1.2
    assert {name for name, rung in by_name.items() if rung.kind == "roof"} == ROOFS
    assert by_name["lane_layout"].kind == "probe"


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_headers_fit_the_problem(rung: Rung) -> None:
    assert rung.problem["reference"] in OPERATIONS
    for (
        key,
        value,
    ) in (
        rung.problem.items()
    ):  # sizes that the device code is compiled with are those of the reference
        assert rung.parameters.get(key.upper(), value) == value, key
    for text in verified_sizes(PROBLEM):
        size = PROBLEM.parse_size(text)
        specs: dict[str, ArraySpec] = dict(PROBLEM.arrays(Case(size, "float32", rung.problem)))
        scalars = PROBLEM.scalars(Case(size, "float32", rung.problem))
        values = {name: scalar.value for name, scalar in scalars.items()}
        assert all(
            abs(value) < 2 ** (63 if scalars[name].dtype == "int64" else 31)
            for name, value in values.items()
        )
        launches = rung.launch_geometry(values, None, 132)
        scratch = rung.scratch_tables
        for launch in launches:
            assert set(launch.args) <= {*specs, *scalars, *scratch}
        used = {argument for launch in launches for argument in launch.args}
        assert set(specs) <= used, "every input is read and every output written"
        assert PROBLEM.flops(Case(size, PROBLEM.dtypes[0], rung.problem)) > 0
        assert PROBLEM.compulsory_bytes(Case(size, "float32", rung.problem)) == sum(
            spec.nbytes for spec in specs.values()
        )
