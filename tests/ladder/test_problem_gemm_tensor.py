"""The gemm_tensor problem: conversions, inputs, reference and tolerance, and the cuBLAS call, all
without a GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ncu_toolkit.kernel.ladder.problems import Case, Size, compare
from ncu_toolkit.kernel.ladder.problems.base import from_bits, to_bits
from ncu_toolkit.kernel.ladder.problems.gemm_tensor import (
    PROBLEM,
    partial_sum_bound,
)

DTYPES = ("bfloat16", "float16")


def bits(value: float) -> int:
    return int(to_bits(np, np.array([value], np.float32), "bfloat16")[0])


def value(pattern: int) -> float:
    return float(from_bits(np, np.array([pattern], np.uint16), "bfloat16")[0])


def inputs_for(
    size: Size, dtype: str, names: tuple[str, ...] = ("A", "B"), seed: int = 3
) -> dict[str, np.ndarray]:
    return PROBLEM.make_inputs(Case(size, dtype, xp=np), seed, names)


def verdict_of(c: np.ndarray, inputs: dict[str, np.ndarray], size: Size, dtype: str) -> bool:
    """Store a float result as the kernel would and verify it."""
    stored = to_bits(np, c.astype(np.float32), dtype)
    expected = PROBLEM.reference(Case(size, dtype, xp=np), inputs)["C"]
    return compare(np, "C", PROBLEM.decode(Case(size, dtype, xp=np), stored), expected).passed


def test_every_bfloat16_pattern_survives_a_round_trip() -> None:
    patterns = np.arange(2**16, dtype=np.uint16)
    values = from_bits(np, patterns, "bfloat16")
    back = to_bits(np, values, "bfloat16")
    number = ~np.isnan(values)
    assert np.array_equal(back[number], patterns[number])
    assert np.isnan(from_bits(np, back[~number], "bfloat16")).all()
    assert np.array_equal(back[~number] >> 15, patterns[~number] >> 15)


@pytest.mark.parametrize(
    ("number", "pattern"),
    [
        (1.0, 0x3F80), (-2.0, 0xC000), (0.0, 0x0000), (-0.0, 0x8000), (float("inf"), 0x7F80),
        (1 + 2**-8, 0x3F80),  # the middle, below it an even pattern: down
        (1 + 3 * 2**-8, 0x3F82),  # the middle, below it an odd pattern: up
        (1 + 2**-8 + 2**-20, 0x3F81),
        (3.4028235e38, 0x7F80),  # the largest float32 is nearer to 2^128 than to the largest bfloat16
    ],
)  # fmt: skip
def test_bfloat16_rounds_to_nearest_even(number: float, pattern: int) -> None:
    assert bits(number) == pattern


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", ["5x7x13", "4x6x16", "1"])
def test_pitched_copies_hold_the_same_numbers_and_zeros(dtype: str, text: str) -> None:
    size = PROBLEM.parse_size(text)
    made = inputs_for(size, dtype, ("A", "B", "A_pitched", "B_t"))
    k = size["K"]
    assert np.array_equal(made["A_pitched"][:, :k], made["A"])
    assert np.array_equal(made["B_t"][:, :k], made["B"].T)
    assert not made["A_pitched"][:, k:].any()
    assert not made["B_t"][:, k:].any()
    assert made["A_pitched"].shape[1] * 2 % 16 == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", ["5x7x13", "4x6x72", "3x2x128"])
def test_rows_at_lines_hold_the_same_numbers_and_a_is_copied_only_where_it_must_be(
    dtype: str, text: str
) -> None:
    size = PROBLEM.parse_size(text)
    made = inputs_for(size, dtype, ("A", "B", "A_lines", "B_lines"))
    k = size["K"]
    assert np.array_equal(made["A_lines"][:, :k], made["A"])
    assert np.array_equal(made["B_lines"][:, :k], made["B"].T)
    assert not made["A_lines"][:, k:].any()
    assert not made["B_lines"][:, k:].any()
    assert made["B_lines"].shape[1] * 2 % 128 == 0
    assert made["A_lines"].shape[1] == (k if k % 8 == 0 else 64)


def test_inputs_are_what_the_tolerance_assumes() -> None:
    size = PROBLEM.parse_size("300x200x400")
    a = from_bits(np, inputs_for(size, "bfloat16")["A"], "bfloat16").astype(np.float64)
    assert np.abs(a).max() <= 1
    assert abs(a.mean()) < 0.01
    assert a.var() == pytest.approx(1 / 3, rel=0.02)


def accumulate_like_a_tensor_core(a: np.ndarray, b: np.ndarray, step: int) -> np.ndarray:
    """Products in groups of `step`: every addend cut to 24 bits below the group's largest, and the
    sum cut to float32."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for k in range(0, a.shape[1], step):
        addends = np.concatenate(
            [total[None], a[:, k : k + step].T[:, :, None] * b[k : k + step][:, None, :]]
        )
        unit = 2.0 ** (np.floor(np.log2(np.abs(addends).max(axis=0) + 1e-300)) - 23)
        total = np.trunc((np.trunc(addends / unit) * unit).sum(axis=0) / unit) * unit
    return total


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", ["1", "7", "33x65x1000", "16x8x3000"])
@pytest.mark.parametrize("step", [4, 8, 16])
def test_a_right_result_passes(dtype: str, text: str, step: int) -> None:
    size = PROBLEM.parse_size(text)
    inputs = inputs_for(size, dtype)
    a, b = (from_bits(np, inputs[name], dtype).astype(np.float64) for name in "AB")
    assert verdict_of(a @ b, inputs, size, dtype)
    assert verdict_of(accumulate_like_a_tensor_core(a, b, step), inputs, size, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_results_fail(dtype: str) -> None:
    size = PROBLEM.parse_size("64x64x512")
    inputs = inputs_for(size, dtype)
    a, b = (from_bits(np, inputs[name], dtype).astype(np.float64) for name in "AB")
    right = a @ b
    unwritten = right.copy()
    unwritten[3, 5] = np.nan
    one_wrong = right.copy()
    one_wrong[63, 63] += 1
    missing_product = right - np.outer(a[:, -1], b[-1])
    wrong = {
        "a tile of k missing": a[:, :-16] @ b[:-16], "one product missing": missing_product,
        "k tiles counted twice": right + a[:, :16] @ b[:16],
        "B read transposed": a @ (b[:, :].reshape(64, 512).T), "transposed": right.T, "unwritten": unwritten,
        "one element": one_wrong, "zero": np.zeros_like(right),
    }  # fmt: skip
    for name, c in wrong.items():
        assert not verdict_of(c, inputs, size, dtype), name


def test_accumulating_in_half_precision_fails() -> None:
    size = PROBLEM.parse_size("32x32x512")
    inputs = inputs_for(size, "float16")
    total = np.zeros((32, 32), np.float16)
    for k in range(512):
        total += np.outer(inputs["A"][:, k], inputs["B"][k])
    assert not verdict_of(total.astype(np.float64), inputs, size, "float16")


def test_cutting_to_bfloat16_in_place_of_rounding_fails() -> None:
    size = PROBLEM.parse_size("64x64x32")
    inputs = inputs_for(size, "bfloat16")
    a, b = (from_bits(np, inputs[name], "bfloat16").astype(np.float64) for name in "AB")
    cut = ((a @ b).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    expected = PROBLEM.reference(Case(size, "bfloat16", xp=np), inputs)["C"]
    assert not compare(np, "C", PROBLEM.decode(Case(size, "bfloat16", xp=np), cut), expected).passed


def test_partial_sums_stay_inside_their_bound() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (50, 2000)), rng.uniform(-1, 1, (2000, 40))
    largest = max(np.abs(np.cumsum(a[i][:, None] * b, axis=0)).max() for i in range(50))
    assert largest <= partial_sum_bound(50, 40, 2000)
    assert largest > 0.3 * partial_sum_bound(50, 40, 2000)


class _FakeCublas:
    """cublasGemmEx on NumPy arrays found by address: column-major C (m x n) = alpha * A (m x k) * B
    (k x n) + beta * C, float16 only; parts of a sum must be added in float32."""

    CUBLAS_OP_N, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT = 0, 68, -1

    def __init__(self, arrays: dict[int, np.ndarray]) -> None:
        self.arrays = arrays
        self.mode = 0

    def setMathMode(self, handle: int, mode: int) -> None:
        self.mode = mode

    def gemmEx(
        self,
        handle,
        opa,
        opb,
        m,
        n,
        k,
        alpha,
        a,
        ta,
        lda,
        b,
        tb,
        ldb,
        beta,
        c,
        tc,
        ldc,
        compute,
        algorithm,
    ) -> None:  # type: ignore[no-untyped-def]
        assert (handle, opa, opb, compute, algorithm) == (11, 0, 0, 68, -1)
        assert ta == tb == tc == 2
        assert self.mode == 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
        assert alpha != beta
        left = self.arrays[a].reshape(k, lda)[:, :m].T.astype(np.float32)
        right = self.arrays[b].reshape(n, ldb)[:, :k].T.astype(np.float32)
        self.arrays[c].reshape(n, ldc)[:, :m] = (left @ right).T


def test_the_cublas_call_computes_the_row_major_product(monkeypatch: pytest.MonkeyPatch) -> None:
    size = PROBLEM.parse_size("5x7x3")
    inputs = inputs_for(size, "float16")
    arrays = {**inputs, "C": np.zeros((5, 7), np.float16)}
    fake = _FakeCublas({array.ctypes.data: array.reshape(-1) for array in arrays.values()})
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs.cublas", fake)
    for package in ("cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.libs"):
        monkeypatch.setitem(sys.modules, package, SimpleNamespace(__path__=[]))
    xp = SimpleNamespace(
        cuda=SimpleNamespace(
            runtime=SimpleNamespace(CUDA_R_16BF=14, CUDA_R_16F=2),
            device=SimpleNamespace(get_cublas_handle=lambda: 11),
        )
    )
    on_device = {
        name: SimpleNamespace(data=SimpleNamespace(ptr=array.ctypes.data))
        for name, array in arrays.items()
    }
    PROBLEM.library(Case(size, "float16", xp=xp), "cublas", on_device)()
    expected = PROBLEM.reference(Case(size, "float16", xp=np), inputs)["C"]
    assert compare(
        np, "C", PROBLEM.decode(Case(size, "float16", xp=np), arrays["C"]), expected
    ).passed
