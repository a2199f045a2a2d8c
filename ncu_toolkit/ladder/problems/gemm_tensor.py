"""The gemm_tensor family: C = A * B in bfloat16 or float16 with float32 accumulation, as tensor
cores compute it.

NumPy and CuPy have no bfloat16, so it is carried as uint16 bit patterns; `to_bits` and `from_bits`
convert."""

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

#: Elements in 16 bytes: TMA takes only row pitches that are a multiple of 16 bytes (CUDA Driver
#: API, cuTensorMapEncodeTiled).
PITCH_ELEMENTS = 8
#: Elements in a line of the L2, 128 bytes.
LINE_ELEMENTS = 64
#: Unit roundoff of the output: half a unit in the last of 8 (bfloat16) or 11 (float16) significant
#: bits, relative to the value.
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
#: Largest rounding error where the output is subnormal: half of the smallest subnormal. bfloat16
#: has float32's range: negligible.
SUBNORMAL = {"bfloat16": 2.0**-134, "float16": 2.0**-25}
#: Probability, over all random inputs, that some partial sum passes `partial_sum_bound` and a right
#: result might be called wrong.
_RISK = 1e-6
#: cublasMath_t's CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION (cublas_api.h), which CuPy has no
#: name for: where cuBLAS splits K, it adds the parts in float32 and not in the output's type.
_FLOAT32_REDUCTION = 16
#: Fewest products that a tensor core adds in one step (Volta's 4; later ones add 8 or 16, so take
#: fewer steps).
_PRODUCTS_PER_STEP = 4


class GemmTensor(Problem):
    """C = A * B. A is M x K, B is K x N, C is M x N, all row-major and of the case's dtype.

    For copies that need rows at multiples of 16 bytes there are `A_pitched` (M x K') and `B_t` (N x
    K', B transposed), where K' is K rounded up to a multiple of 8 and the columns past K are zero.
    Where K is such a multiple, `A_pitched` is A itself.

    `B_lines` is `B_t` with rows at multiples of 128 bytes, so that a copy of 64 elements is one line
    of the L2 and not parts of two. `A_lines` is A itself where its rows lie at multiples of 16
    bytes, else a copy with rows as those of `B_lines`: A is padded only where it must be."""

    family = "gemm_tensor"
    title = "Matrix product on tensor cores"
    story = (
        "Multiplies two 16-bit matrices with 32-bit accumulation. Tensor cores multiply so fast that everything else, copies, shared-memory reads, "
        "barriers and stores, has to happen beside them; in the end they, and the power they draw, are the limit."
    )
    dimensions = ("M", "N", "K")
    dtypes = ("bfloat16", "float16")
    rate = "flop"
    baseline = "cublas_bf16"
    rivals: ClassVar = {"lt": "cublaslt"}
    roof = "tensor"
    bench_sizes = ("512", "1024", "2048", "3072", "4096", "5120", "6144", "7168", "8192")
    curve_sizes = ("256", *bench_sizes, "12288", "16384")
    record_sizes = ("4096", "8192")
    library_sizes = ("128", "256", *bench_sizes)
    test_sizes = (
        "1",
        "7",
        "127",
        "129",
        "1000",
        "1023x517x2049",
        "517x1023x2056",
        "1x8192x64",
        "8192x1x65",
        "1024",
        "4096",
    )
    # Several rounds of tiles on a GPU of 132 SMs, with rows off the 16-byte grid; in the second all
    # clusters run, so that they start in the order of its GPCs.
    further_sizes: ClassVar = {"wgmma_fitted": ("3000x3001x1157", "5377x3001x72")}
    #: Kernels round an extent up to whole tiles, and copy a few tiles ahead, in int32.
    largest_extent = MAX_DIMENSION - 2**16

    def arrays(self, size: Size, dtype: str, options: Options) -> Mapping[str, ArraySpec]:
        m, n, k = size["M"], size["N"], size["K"]
        pitch = padded(k, PITCH_ELEMENTS)
        return {
            "A": ArraySpec((m, k), dtype),
            "B": ArraySpec((k, n), dtype),
            "A_pitched": ArraySpec((m, pitch), dtype, "derived"),
            "B_t": ArraySpec((n, pitch), dtype, "derived"),
            "A_lines": ArraySpec((m, padded(k, a_unit(k))), dtype, "derived"),
            "B_lines": ArraySpec((n, padded(k, LINE_ELEMENTS)), dtype, "derived"),
            "C": ArraySpec((m, n), dtype, "output"),
        }

    def make_inputs(
        self, xp: Any, seed: int, size: Size, dtype: str, options: Options, names: Sequence[str]
    ) -> dict[str, Array]:
        """Uniform in [-1, 1), rounded to the dtype. Each matrix has its own stream, so it does not
        depend on which others are asked for."""
        made: dict[str, Array] = {}
        k = size["K"]
        if not {"A", "A_pitched", "A_lines"}.isdisjoint(names):
            a = to_bits(xp, _uniform(xp, 2 * seed, (size["M"], k)), dtype)
            made["A"] = a
            if "A_pitched" in names:
                made["A_pitched"] = pad_rows(xp, a, PITCH_ELEMENTS)
            if "A_lines" in names:
                made["A_lines"] = pad_rows(xp, a, a_unit(k))
        if not {"B", "B_t", "B_lines"}.isdisjoint(names):
            b = to_bits(xp, _uniform(xp, 2 * seed + 1, (k, size["N"])), dtype)
            made["B"] = b
            if "B_t" in names:
                made["B_t"] = pad_rows(xp, b.T, PITCH_ELEMENTS)
            if "B_lines" in names:
                made["B_lines"] = pad_rows(xp, b.T, LINE_ELEMENTS)
        return {name: array for name, array in made.items() if name in names}

    def reference(
        self, xp: Any, inputs: Mapping[str, Array], size: Size, dtype: str, options: Options
    ) -> dict[str, Expected]:
        """The float64 product of the rounded inputs; the bound is `rounding_bound`."""
        a = from_bits(xp, inputs["A"], dtype).astype(xp.float64)
        b = from_bits(xp, inputs["B"], dtype).astype(xp.float64)
        values = xp.matmul(a, b)
        accumulation = accumulation_bound(size["M"], size["N"], size["K"])
        bound = xp.abs(values)
        bound += accumulation
        bound *= UNIT[dtype]
        bound += accumulation + SUBNORMAL[dtype]
        rounding = f"rounding to {dtype}, 2^{math.log2(UNIT[dtype]):.0f} of the value"
        why = f"{rounding}, and {accumulation:.3g} for the float32 accumulation of {size['K']} products"
        return {"C": Expected(values, bound, why)}

    def decode(self, xp: Any, name: str, array: Array, dtype: str) -> Array:
        return from_bits(xp, array, dtype)

    def flops(self, size: Size, options: Options) -> float:
        return 2.0 * size["M"] * size["N"] * size["K"]

    def compulsory_bytes(self, size: Size, dtype: str, options: Options) -> float:
        m, n, k = size["M"], size["N"], size["K"]
        return 2.0 * (m * k + k * n + m * n)

    def reference_bytes(self, size: Size, dtype: str, options: Options) -> float:
        """float64 and float32 copies of both inputs, and of C: reference, bound, decoded output and
        four float64 temporaries of `compare`."""
        m, n, k = size["M"], size["N"], size["K"]
        return 12.0 * (m * k + k * n) + (2 * 8 + 4 + 4 * 8) * float(m * n)

    def library(
        self,
        xp: Any,
        name: str,
        arrays: Mapping[str, Array],
        size: Size,
        dtype: str,
        options: Options,
    ) -> Callable[[], None]:
        """`cublas`: cublasGemmEx on A and B as they lie. Its column-major view of the three arrays
        is C^T = B^T * A^T. Sums of parts stay in float32: by default cuBLAS may round each of them
        to the output's type, and did at 4097, beyond what one rounding explains
        (docs/decisions/20-tops.md). `cublaslt`: the fastest of cuBLASLt's algorithms, likewise.

        Raises:
            UsageProblem: another name.
        """
        if name not in ("cublas", "cublaslt"):
            return super().library(xp, name, arrays, size, dtype, options)
        runtime = xp.cuda.runtime
        element = runtime.CUDA_R_16BF if dtype == "bfloat16" else runtime.CUDA_R_16F
        m, n, k = size["M"], size["N"], size["K"]
        a, b, c = arrays["A"], arrays["B"], arrays["C"]
        if name == "cublaslt":
            return fastest(xp, m, n, k, *(Operand(array, element) for array in (a, b, c)))
        cublas = importlib.import_module("cupy_backends.cuda.libs.cublas")
        handle = xp.cuda.device.get_cublas_handle()
        one, zero = (
            numpy.ones(1, numpy.float32),
            numpy.zeros(1, numpy.float32),
        )  # read by the host in every call: the closure keeps them

        def call() -> None:
            # Set each time: CuPy's own routines and other ladders share this handle.
            cublas.setMathMode(handle, _FLOAT32_REDUCTION)
            cublas.gemmEx(
                handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, n, m, k,
                one.ctypes.data, b.data.ptr, element, n, a.data.ptr, element, k,
                zero.ctypes.data, c.data.ptr, element, n, cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT,
            )  # fmt: skip

        return call


def a_unit(k: int) -> int:
    """What the rows of `A_lines` are rounded up to, in elements."""
    return PITCH_ELEMENTS if k % PITCH_ELEMENTS == 0 else LINE_ELEMENTS


def to_bits(xp: Any, values: Array, dtype: str) -> Array:
    """float32 values as stored: float16, or the uint16 bit patterns of bfloat16, rounded to nearest
    even.

    bfloat16 is the upper half of a float32. Adding 0x7FFF, and 1 more where the upper half is odd,
    carries into it exactly when the lower half is above its middle, or at it and the upper half is
    odd. A NaN keeps its upper half with the quiet bit set, since the addition could carry it into
    infinity or past the sign."""
    if dtype == "float16":
        return values.astype(xp.float16)
    bits = values.astype(xp.float32, copy=False).view(xp.uint32)
    odd = (bits >> xp.uint32(16)) & xp.uint32(1)
    rounded = (bits + xp.uint32(0x7FFF) + odd) >> xp.uint32(16)
    return xp.where(xp.isnan(values), (bits >> xp.uint32(16)) | xp.uint32(0x0040), rounded).astype(
        xp.uint16
    )


def from_bits(xp: Any, stored: Array, dtype: str) -> Array:
    """The float32 values of a stored array, exactly."""
    if dtype == "float16":
        return stored.astype(xp.float32)
    return (stored.astype(xp.uint32) << xp.uint32(16)).view(xp.float32)


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


def _uniform(xp: Any, seed: int, shape: tuple[int, int]) -> Array:
    values = xp.random.default_rng(seed).random(shape, dtype=xp.float32)
    values *= xp.float32(2)
    values -= xp.float32(1)
    return values


PROBLEM = GemmTensor()
