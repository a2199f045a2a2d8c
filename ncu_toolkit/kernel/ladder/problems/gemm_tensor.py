"""The gemm_tensor family: C = A * B in bfloat16 or float16 with float32 accumulation, as tensor
cores compute it.

NumPy and CuPy have no bfloat16, so it is carried as uint16 bit patterns."""

import math
from collections.abc import Mapping

from ncu_toolkit.base.hardware.specs import padded
from ncu_toolkit.kernel.ladder.problems._gemm import PITCH_BYTES, Gemm, extents
from ncu_toolkit.kernel.ladder.problems.base import (
    MAX_DIMENSION,
    UNIT,
    Array,
    Case,
    Expected,
    from_bits,
)

PITCH_ELEMENTS = PITCH_BYTES // 2
#: Elements in a line of the L2, 128 bytes.
LINE_ELEMENTS = 64
#: Largest rounding error where the output is subnormal: half of the smallest subnormal. bfloat16
#: has float32's range: negligible.
SUBNORMAL = {"bfloat16": 2.0**-134, "float16": 2.0**-25}
#: Probability, over all random inputs, that some partial sum passes `partial_sum_bound` and a right
#: result might be called wrong.
_RISK = 1e-6
#: Fewest products that a tensor core adds in one step (Volta's 4; later ones add 8 or 16, so take
#: fewer steps).
_PRODUCTS_PER_STEP = 4


class GemmTensor(Gemm):
    """For copies that need rows at multiples of 16 bytes there are `A_pitched` (M x K') and `B_t` (N x
    K', B transposed), where K' is K rounded up to a multiple of 8 and the columns past K are zero.
    Where K is such a multiple, `A_pitched` is A itself.

    `B_lines` is `B_t` with rows at multiples of 128 bytes, so that a copy of 64 elements is one line
    of the L2 and not parts of two. `A_lines` is A itself where its rows lie at multiples of 16
    bytes, else a copy with rows as those of `B_lines`: A is padded only where it must be."""

    family = "gemm_tensor"
    title = "Matrix product on tensor cores"
    story = (
        "Multiplies two 16-bit matrices with 32-bit accumulation. Tensor cores multiply so fast that everything else, copies, shared-memory reads, "
        "barriers and stores, has to overlap with them; in the end they, and the power they draw, are the limit."
    )
    dtypes = ("bfloat16", "float16")
    baseline = "cublas_bf16"
    roof = "tensor"
    record_sizes = ("4096", "8192")
    #: Kernels round an extent up to whole tiles, and copy a few tiles ahead, in int32.
    largest_extent = MAX_DIMENSION - 2**16
    by_columns = ("B_t", "B_lines")

    def copies(self, case: Case) -> Mapping[str, tuple[int, int]]:
        m, n, k = extents(case)
        return {
            "A_pitched": (m, padded(k, PITCH_ELEMENTS)),
            "B_t": (n, padded(k, PITCH_ELEMENTS)),
            "A_lines": (m, padded(k, LINE_ELEMENTS if k % PITCH_ELEMENTS else PITCH_ELEMENTS)),
            "B_lines": (n, padded(k, LINE_ELEMENTS)),
        }

    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
        """The float64 product of the rounded inputs; the bound is `rounding_bound`."""
        xp, dtype = case.xp, case.dtype
        a, b = (from_bits(xp, inputs[name], dtype).astype(xp.float64) for name in "AB")
        values, accumulation = xp.matmul(a, b), accumulation_bound(*extents(case))
        bound = xp.abs(values)
        bound += accumulation
        bound *= UNIT[dtype]
        bound += accumulation + SUBNORMAL[dtype]
        rounding = f"rounding to {dtype}, 2^{math.log2(UNIT[dtype]):.0f} of the value"
        why = f"{rounding}, and {accumulation:.3g} for the float32 accumulation of {case['K']} products"
        return {"C": Expected(values, bound, why)}

    def reference_bytes(self, case: Case) -> float:
        """float64 and float32 copies of both inputs, and of C: reference, bound, decoded output and
        four float64 temporaries of `compare`."""
        m, n, k = extents(case)
        return 12.0 * (m * k + k * n) + (2 * 8 + 4 + 4 * 8) * float(m * n)


def partial_sum_bound(m: int, n: int, k: int) -> float:
    """What the magnitude of no partial sum of any element of C passes, but with probability 1e-6.

    Products of independent inputs uniform in [-1, 1) have mean 0, variance 1/9 and magnitude at
    most 1, so Bernstein's inequality gives P(|sum| > t) <= 2 exp(-t^2 / (2 (k/9 + t/3))) for each
    of the m n k partial sums (one order of summation an element). With L = ln(2 m n k / 1e-6), t =
    sqrt(2 L k/9) + 2 L/3 makes their total at most 1e-6. And k products never exceed k."""
    log = math.log(2.0 * m * n * k / _RISK)
    return min(float(k), math.sqrt(2.0 * log * k / 9.0) + 2.0 * log / 3.0)


def accumulation_bound(m: int, n: int, k: int) -> float:
    """Largest absolute error of a k-term dot product accumulated in float32 by tensor cores.

    Products of two 16-bit values are exact in float32 (at most 22 significant bits). In one step a
    tensor core aligns the accumulator and p products to the largest of them, cuts each to 24 bits,
    adds, and cuts the sum to float32: p + 2 cuts (Fasi, Higham, Mikaitis and Pranesh, Numerical
    behavior of NVIDIA tensor cores, 2021), each below 2^-23 of the largest, which
    `partial_sum_bound` limits (1 at least). k terms take ceil(k / p) steps. p = 4 gives the most;
    that current tensor cores take p = 8 or 16 leaves room for a split along k, whose parts are
    added afterwards."""
    steps = -(-k // _PRODUCTS_PER_STEP)
    return steps * (_PRODUCTS_PER_STEP + 2) * 2.0**-23 * max(1.0, partial_sum_bound(m, n, k))


PROBLEM = GemmTensor()
