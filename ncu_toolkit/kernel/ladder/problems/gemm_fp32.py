"""The FP32 GEMM family: C = A B, all row-major float32, every multiply-add in float32 (no TF32)."""

import math
from collections.abc import Mapping

from ncu_toolkit.base.hardware.specs import padded
from ncu_toolkit.kernel.ladder.problems._gemm import PITCH_BYTES, Gemm, extents
from ncu_toolkit.kernel.ladder.problems.base import MAX_DIMENSION, UNIT, Array, Case, Expected

#: How many standard deviations a rounding error or a partial sum may stray. Hoeffding: one strays
#: further with a probability of at most 2 exp(-LAMBDA^2 / 2) = 4e-22, so that of the 1e12 roundings
#: of a product at 8192 none will.
LAMBDA = 10.0


class GemmFp32(Gemm):
    """B_col holds B by columns: element (k, n) at n * K + k, an (N, K) array. A_pitched and
    B_pitched are A and B with zero columns up to a multiple of 4, for copies that need rows at
    multiples of 16 bytes."""

    family = "gemm_fp32"
    title = "FP32 matrix product"
    story = (
        "C = A B in single precision. Each float of A and B is needed thousands of times: the ladder moves that reuse from the caches to shared "
        "memory and on to registers, until the multiply-add pipes are the limit."
    )
    baseline = "cublas"
    roof = "fp32"
    record_sizes = ("1024", "4096")
    #: Kernels count along a dimension in int32 and reach up to one tile past its end.
    largest_extent = MAX_DIMENSION - 65535
    by_columns = ("B_col",)

    def copies(self, case: Case) -> Mapping[str, tuple[int, int]]:
        m, n, k = extents(case)
        return {
            "B_col": (n, k),
            "A_pitched": (m, padded(k, PITCH_BYTES // 4)),
            "B_pitched": (k, padded(n, PITCH_BYTES // 4)),
        }

    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
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
        are unrelated. It relies on inputs of mean zero, which is what `fill` gives.

        At K = 4096 the bound is 0.006, while one term a_k b_k is larger in magnitude than that 19
        times out of 20: a single missing or doubled k is seen.
        """
        xp, k, u = case.xp, case["K"], UNIT["float32"]
        a, b = inputs["A"].astype(xp.float64), inputs["B"].astype(xp.float64)
        growth = min(float(k), LAMBDA**2 / math.sqrt(2.0))
        factor = growth * u / (1.0 - growth * u)
        row_norms, column_norms = xp.linalg.norm(a, axis=1), xp.linalg.norm(b, axis=0)
        bound = factor * row_norms[:, None] * column_norms[None, :]
        why = f"rounding of a float32 sum of K = {k} products in any order, {growth:.3g} u |a||b| with u = 2^-24"
        return {"C": Expected(a @ b, bound, why)}

    def reference_bytes(self, case: Case) -> float:
        """Inputs made again, in float64 and squared for their norms; then values, bound and six
        float64 arrays like C that `compare` makes."""
        m, n, k = extents(case)
        return (4.0 + 8.0 + 8.0) * (m * k + k * n) + (2 + 6) * 8.0 * m * n


PROBLEM = GemmFp32()
