"""The FP32 GEMM family: C = A B, all row-major float32, every multiply-add in float32 (no TF32)."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy

from ncu_toolkit.ladder.problems._cublaslt import Operand, fastest
from ncu_toolkit.ladder.problems.base import (
    MAX_DIMENSION,
    Array,
    ArraySpec,
    Expected,
    Options,
    Problem,
    Size,
    pad_rows,
    padded,
)

#: Unit roundoff of float32.
UNIT_ROUNDOFF = 2.0**-24
#: How many standard deviations a rounding error or a partial sum may stray. Hoeffding: one strays
#: further with a probability of at most 2 exp(-LAMBDA^2 / 2) = 4e-22, so that of the 1e12 roundings
#: of a product at 8192 none will.
LAMBDA = 10.0
#: Elements in 16 bytes: TMA takes only row pitches that are a multiple of 16 bytes (CUDA Driver
#: API, cuTensorMapEncodeTiled).
PITCH_ELEMENTS = 4


class GemmFp32(Problem):
    """A is (M, K), B is (K, N), C is (M, N). B_col holds the same B by columns: element (k, n) at n
    * K + k, an (N, K) array. A_pitched and B_pitched are A and B with zero columns up to a multiple
    of 4, for copies that need rows at multiples of 16 bytes."""

    family = "gemm_fp32"
    title = "FP32 matrix product"
    story = (
        "C = A B in single precision. Each float of A and B is needed thousands of times: the ladder moves that reuse from the caches to shared "
        "memory and on to registers, until the multiply-add pipes are the limit."
    )
    dimensions = ("M", "N", "K")
    dtypes = ("float32",)
    rate = "flop"
    baseline = "cublas"
    rivals: ClassVar = {"lt": "cublaslt"}
    roof = "fp32"
    bench_sizes = ("512", "1024", "2048", "3072", "4096", "5120", "6144", "7168", "8192")
    curve_sizes = ("256", *bench_sizes, "12288", "16384")
    record_sizes = ("1024", "4096")
    library_sizes = ("128", "256", *bench_sizes)
    test_sizes = ("1", "7", "127", "129", "1000", "1023x517x2049", "1024", "4096")
    # Tiles cut along K, in equal parts; then shares that span two tiles, on a GPU of 132 SMs: with
    # rows off the 16-byte grid, and of few steps.
    further_sizes: ClassVar = {
        "register_blocked": ("96x200x1000", "1537x1411x1001", "2304x1920x520"),
        "register_blocked_tma": ("96x200x1000", "1537x1411x1001", "1537x1411x411"),
    }
    #: Kernels count along a dimension in int32 and reach up to one tile past its end.
    largest_extent = MAX_DIMENSION - 65535

    def arrays(self, size: Size, dtype: str, options: Options) -> Mapping[str, ArraySpec]:
        m, n, k = size["M"], size["N"], size["K"]
        return {
            "A": ArraySpec((m, k), dtype),
            "B": ArraySpec((k, n), dtype),
            "B_col": ArraySpec((n, k), dtype, "derived"),
            "A_pitched": ArraySpec((m, padded(k, PITCH_ELEMENTS)), dtype, "derived"),
            "B_pitched": ArraySpec((k, padded(n, PITCH_ELEMENTS)), dtype, "derived"),
            "C": ArraySpec((m, n), dtype, "output"),
        }

    def make_inputs(
        self, xp: Any, seed: int, size: Size, dtype: str, options: Options, names: Sequence[str]
    ) -> dict[str, Array]:
        """A and B uniform in [-1, 1), each from a generator of its own so that it does not matter
        which are asked for together."""
        made: dict[str, Array] = {}
        if not {"A", "A_pitched"}.isdisjoint(names):
            made["A"] = a = _uniform(xp, 2 * seed, (size["M"], size["K"]))
            if "A_pitched" in names:
                made["A_pitched"] = pad_rows(xp, a, PITCH_ELEMENTS)
        if not {"B", "B_col", "B_pitched"}.isdisjoint(names):
            made["B"] = b = _uniform(xp, 2 * seed + 1, (size["K"], size["N"]))
            if "B_col" in names:
                made["B_col"] = xp.ascontiguousarray(b.T)
            if "B_pitched" in names:
                made["B_pitched"] = pad_rows(xp, b, PITCH_ELEMENTS)
        return {name: array for name, array in made.items() if name in names}

    def reference(
        self, xp: Any, inputs: Mapping[str, Array], size: Size, dtype: str, options: Options
    ) -> dict[str, Expected]:
        """The float64 product, with an elementwise bound.

        With u the unit roundoff, a row a of A and a column b of B, a product summed in whatever
        order (split over blocks or not, fused multiply-adds or not) differs from the exact one by
        at most

            growth * u / (1 - growth * u) * |a|_2 * |b|_2,    growth = min(K, LAMBDA^2 / sqrt(2)).

        growth = K is the classical worst case, gamma_K |a|.|b| (Higham, Accuracy and Stability of
        Numerical Algorithms, 2nd ed., section 3.1), with |a|.|b| <= |a|_2 |b|_2. The other is
        probabilistic, in the manner of Higham and Mary, "Sharper Probabilistic Backward Error
        Analysis for Basic Linear Algebra Kernels with Random Data", SIAM J. Sci. Comput. 42(5),
        2020. The terms a_k b_k have random signs, so by Hoeffding a partial sum of j of them is at
        most LAMBDA sqrt(j / K) t with t^2 = sum of (a_k b_k)^2. The error is the sum of one
        rounding error, at most u times a partial sum, for each addition, at most K of them; taken
        as independent of mean zero they stay below LAMBDA u sqrt(sum over j <= K of LAMBDA^2 t^2 j
        / K) = LAMBDA^2 u t sqrt(K / 2), and t sqrt(K) is |a|_2 |b|_2 where the sizes of a_k and b_k
        are unrelated. It relies on inputs of mean zero, which is what `make_inputs` gives.

        At K = 4096 the bound is 0.006, while one term a_k b_k is larger in magnitude than that 19
        times out of 20: a single missing or doubled k is seen.
        """
        a, b = inputs["A"].astype(xp.float64), inputs["B"].astype(xp.float64)
        growth = min(float(size["K"]), LAMBDA**2 / math.sqrt(2.0))
        factor = growth * UNIT_ROUNDOFF / (1.0 - growth * UNIT_ROUNDOFF)
        row_norms = xp.linalg.norm(a, axis=1)
        column_norms = xp.linalg.norm(b, axis=0)
        bound = factor * row_norms[:, None] * column_norms[None, :]
        why = f"rounding of a float32 sum of K = {size['K']} products in any order, {growth:.3g} u |a||b| with u = 2^-24"
        return {"C": Expected(a @ b, bound, why)}

    def flops(self, size: Size, options: Options) -> float:
        return 2.0 * size["M"] * size["N"] * size["K"]

    def compulsory_bytes(self, size: Size, dtype: str, options: Options) -> float:
        m, n, k = size["M"], size["N"], size["K"]
        return 4.0 * (m * k + k * n + m * n)

    def reference_bytes(self, size: Size, dtype: str, options: Options) -> float:
        """Inputs made again, in float64 and squared for their norms; then values, bound and six
        float64 arrays like C that `compare` makes."""
        m, n, k = size["M"], size["N"], size["K"]
        return (4.0 + 8.0 + 8.0) * (m * k + k * n) + (2 + 6) * 8.0 * m * n

    def library(
        self,
        xp: Any,
        name: str,
        arrays: Mapping[str, Array],
        size: Size,
        dtype: str,
        options: Options,
    ) -> Callable[[], None]:
        """`cublas`: cuBLAS SGEMM into the existing C, in float32 arithmetic. `cublaslt`: the fastest
        of cuBLASLt's algorithms, in the same arithmetic.

        cuBLAS counts matrices column-major, where a row-major array is its own transpose: C^T = B^T
        A^T needs no transposed copy.

        Raises:
            UsageProblem: another name.
        """
        m, n, k = size["M"], size["N"], size["K"]
        if name == "cublaslt":
            element = xp.cuda.runtime.CUDA_R_32F
            return fastest(xp, m, n, k, *(Operand(arrays[key], element) for key in ("A", "B", "C")))
        if name != "cublas":
            return super().library(xp, name, arrays, size, dtype, options)
        cublas: Any = importlib.import_module("cupy_backends.cuda.libs.cublas")
        handle = xp.cuda.device.get_cublas_handle()
        one, zero = numpy.ones(1, dtype=numpy.float32), numpy.zeros(1, dtype=numpy.float32)
        a, b, c = (arrays[key].data.ptr for key in ("A", "B", "C"))

        def run() -> None:
            # Set each time: CuPy's own routines share this handle, and CUPY_TF32 makes them change
            # its mode.
            cublas.setMathMode(handle, cublas.CUBLAS_DEFAULT_MATH)
            cublas.sgemm(
                handle,
                cublas.CUBLAS_OP_N,
                cublas.CUBLAS_OP_N,
                n,
                m,
                k,
                one.ctypes.data,
                b,
                n,
                a,
                k,
                zero.ctypes.data,
                c,
                n,
            )

        return run


def _uniform(xp: Any, seed: int, shape: tuple[int, int]) -> Array:
    values = xp.random.default_rng(seed).random(shape, dtype=xp.float32)
    values *= 2
    values -= 1
    return values


PROBLEM = GemmFp32()
