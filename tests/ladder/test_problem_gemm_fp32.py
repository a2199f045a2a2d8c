"""The FP32 GEMM problem on NumPy: what its tolerance lets through, what it catches, and the
row-major call of cuBLAS."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncu_toolkit.kernel.ladder.problems import Case, compare
from ncu_toolkit.kernel.ladder.problems.base import Expected, Verified
from ncu_toolkit.kernel.ladder.problems.gemm_fp32 import PROBLEM


def made(size_text: str, seed: int = 1) -> tuple[np.ndarray, np.ndarray, Expected]:
    size = PROBLEM.parse_size(size_text)
    inputs = PROBLEM.make_inputs(Case(size, "float32", xp=np), seed, ["A", "B"])
    return inputs["A"], inputs["B"], PROBLEM.reference(Case(size, "float32", xp=np), inputs)["C"]


def judged(c: np.ndarray, expected: Expected) -> Verified:
    return compare(np, "C", c.astype(np.float32), expected)


def summed_in_order(a: np.ndarray, b: np.ndarray, order: np.ndarray, parts: int) -> np.ndarray:
    """The product in float32, k in the given order, in `parts` partial sums that are added up at
    the end, as split-K does."""
    total = np.zeros((a.shape[0], b.shape[1]), dtype=np.float32)
    for chunk in np.array_split(order, parts):
        partial = np.zeros_like(total)
        for k in chunk:
            partial += np.outer(a[:, k], b[k])
        total += partial
    return total


def test_b_col_holds_element_k_n_at_n_times_depth_plus_k() -> None:
    size = PROBLEM.parse_size("2x3x5")
    made_both = PROBLEM.make_inputs(Case(size, "float32", xp=np), 1, ["B", "B_col"])
    flat = made_both["B_col"].ravel()
    assert made_both["B_col"].flags.c_contiguous
    for k in range(5):
        for n in range(3):
            assert flat[n * 5 + k] == made_both["B"][k, n]


@pytest.mark.parametrize("text", ["5x6x7", "4x8x12", "1"])
def test_pitched_copies_hold_the_same_numbers_and_zeros(text: str) -> None:
    size = PROBLEM.parse_size(text)
    names = ("A", "B", "A_pitched", "B_pitched")
    made = PROBLEM.make_inputs(Case(size, "float32", xp=np), 1, names)
    for name, columns in (("A", size["K"]), ("B", size["N"])):
        pitched = made[f"{name}_pitched"]
        assert pitched.shape[1] in range(columns, columns + 4)
        assert pitched.strides[0] % 16 == 0
        assert np.array_equal(pitched[:, :columns], made[name])
        assert not pitched[:, columns:].any()


def test_the_reference_is_the_product() -> None:
    a, b, expected = made("3x4x2")
    for i in range(3):
        for j in range(4):
            assert expected.values[i, j] == pytest.approx(
                float(a[i, 0]) * float(b[0, j]) + float(a[i, 1]) * float(b[1, j]), rel=1e-15
            )


@settings(deadline=None, max_examples=60)
@given(
    m=st.integers(1, 9),
    n=st.integers(1, 9),
    k=st.integers(1, 200),
    parts=st.integers(1, 8),
    seed=st.integers(0, 10**6),
)
def test_any_order_of_summation_passes(m: int, n: int, k: int, parts: int, seed: int) -> None:
    a, b, expected = made(f"{m}x{n}x{k}", seed)
    order = np.random.default_rng(seed).permutation(k)
    assert judged(summed_in_order(a, b, order, parts), expected).passed


@pytest.mark.parametrize("missing", [0, 2047, 4095])
@pytest.mark.parametrize("times", [-1, 1])
def test_a_missing_or_doubled_term_in_a_deep_product_is_caught(missing: int, times: int) -> None:
    a, b, expected = made("32x32x4096")
    c = (
        a.astype(np.float64) @ b + times * np.outer(a[:, missing].astype(np.float64), b[missing])
    ).astype(np.float32)
    verdict = judged(c, expected)
    assert not verdict.passed
    assert "K = 4096" in verdict.message
    assert np.mean(np.abs(c - expected.values) > expected.bound) > 0.9


@pytest.mark.parametrize("size_text", ["1", "7", "129x65x33"])
def test_unwritten_elements_are_caught(size_text: str) -> None:
    a, b, expected = made(size_text)
    c = (a.astype(np.float64) @ b).astype(np.float32)
    assert judged(c, expected).passed
    c.reshape(-1)[-1:].view(np.uint8).fill(0xFF)
    verdict = judged(c, expected)
    assert not verdict.passed
    assert verdict.worst == np.inf


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 0.0])
def test_a_single_wrong_element_is_caught_and_named(wrong: float) -> None:
    a, b, expected = made("40x30x50")
    c = (a.astype(np.float64) @ b).astype(np.float32)
    c[17, 23] = wrong
    verdict = judged(c, expected)
    assert not verdict.passed
    assert "C[17, 23]" in verdict.message
    assert "1 of 1200" in verdict.message


@pytest.mark.parametrize("bits", [10, 7])
def test_tf32_and_bfloat16_products_are_caught(bits: int) -> None:
    """Inputs cut to 10 (TF32) or 7 (bfloat16) bits of mantissa must not pass as float32."""
    a, b, expected = made("64x64x64")
    mask = np.uint32(0xFFFFFFFF << (23 - bits) & 0xFFFFFFFF)
    cut_a, cut_b = ((x.view(np.uint32) & mask).view(np.float32).astype(np.float64) for x in (a, b))
    assert not judged(cut_a @ cut_b, expected).passed


class _FakeCublas:
    """Column-major SGEMM on host memory with cuBLAS's argument order; notes the math mode it runs
    in."""

    CUBLAS_DEFAULT_MATH = 0
    CUBLAS_OP_N = 0

    def __init__(self) -> None:
        self.mode = 3  # TF32, as another user of the handle may have left it
        self.calls = 0

    def setMathMode(self, handle: int, mode: int) -> None:
        self.mode = mode

    def sgemm(
        self,
        handle: int,
        ta: int,
        tb: int,
        m: int,
        n: int,
        k: int,
        alpha: int,
        a: int,
        lda: int,
        b: int,
        ldb: int,
        beta: int,
        c: int,
        ldc: int,
    ) -> None:
        assert (handle, ta, tb, self.mode) == (42, 0, 0, 0)
        self.calls += 1
        left, right, out = (
            _column_major(a, lda, k)[:m],
            _column_major(b, ldb, n)[:k],
            _column_major(c, ldc, n)[:m],
        )
        scale, keep = (ctypes.c_float.from_address(p).value for p in (alpha, beta))
        out[:] = scale * (left @ right) + (keep * out if keep else 0)


def _column_major(address: int, leading: int, columns: int) -> np.ndarray:
    flat = np.ctypeslib.as_array((ctypes.c_float * (leading * columns)).from_address(address))
    return flat.reshape(columns, leading).T


def test_cublas_is_called_so_that_row_major_c_comes_out_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = _FakeCublas()
    monkeypatch.setitem(sys.modules, "cupy_backends", SimpleNamespace())
    for name, module in (
        ("cuda", SimpleNamespace()),
        ("cuda.libs", SimpleNamespace()),
        ("cuda.libs.cublas", fake),
    ):
        monkeypatch.setitem(sys.modules, f"cupy_backends.{name}", module)
    xp: Any = SimpleNamespace(
        cuda=SimpleNamespace(device=SimpleNamespace(get_cublas_handle=lambda: 42))
    )
    a, b, expected = made("5x7x3")
    c = np.full((5, 7), np.nan, np.float32)
    arrays = {
        name: SimpleNamespace(data=SimpleNamespace(ptr=x.ctypes.data))
        for name, x in (("A", a), ("B", b), ("C", c))
    }
    run = PROBLEM.library(Case(PROBLEM.parse_size("5x7x3"), "float32", xp=xp), "cublas", arrays)
    assert fake.calls == 0
    run()
    assert judged(c, expected).passed
    run()
    assert fake.calls == 2
