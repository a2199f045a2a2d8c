"""What the families of matrix products share."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy

from ncu_toolkit.kernel.ladder.problems._cublaslt import Operand, fastest
from ncu_toolkit.kernel.ladder.problems.base import (
    Array,
    ArraySpec,
    Case,
    Problem,
    to_bits,
    uniform,
)

#: CuPy's names of cudaDataType_t.
_TYPES = {"float32": "CUDA_R_32F", "bfloat16": "CUDA_R_16BF", "float16": "CUDA_R_16F"}
#: Bytes: TMA takes only row pitches that are a multiple of them (CUDA Driver API,
#: cuTensorMapEncodeTiled).
PITCH_BYTES = 16
#: cublasMath_t's CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION (cublas_api.h), which CuPy has no
#: name for: where cuBLAS splits K, it adds the parts in float32 and not in the output's type.
_FLOAT32_REDUCTION = 16


class Gemm(Problem):
    """C = A B, all row-major and of the case's dtype: A is M x K, B is K x N, C is M x N."""

    dimensions = ("M", "N", "K")
    rate = "flop"
    rivals: ClassVar = {"lt": "cublaslt"}
    bench_sizes = ("512", "1024", "2048", "3072", "4096", "5120", "6144", "7168", "8192")
    curve_sizes = ("256", *bench_sizes, "12288", "16384")
    library_sizes = ("128", "256", *bench_sizes)
    streams = 2
    #: Derived arrays that hold B by columns.
    by_columns: ClassVar[tuple[str, ...]]

    def copies(self, case: Case) -> Mapping[str, tuple[int, int]]:
        """Shapes of the derived arrays: A and B with rows of another length, padded with zeros."""
        raise NotImplementedError

    def arrays(self, case: Case) -> Mapping[str, ArraySpec]:
        m, n, k = extents(case)
        a, b = ArraySpec((m, k), case.dtype), ArraySpec((k, n), case.dtype)
        shapes = self.copies(case).items()
        derived = {name: ArraySpec(at, case.dtype, "derived", name[0]) for name, at in shapes}
        return {"A": a, "B": b, **derived, "C": ArraySpec((m, n), case.dtype, "output")}

    def fill(self, case: Case, rng: Any, name: str, spec: ArraySpec) -> Array:
        """Uniform in [-1, 1), rounded to the dtype."""
        return to_bits(case.xp, uniform(case.xp, rng, spec.shape, -1, 1), case.dtype)

    def derive(self, case: Case, name: str, array: Array) -> Array:
        matrix = array.T if name in self.by_columns else array
        columns = self.arrays(case)[name].shape[1]
        if matrix.shape[1] == columns:
            return case.xp.ascontiguousarray(matrix)
        result = case.xp.zeros((matrix.shape[0], columns), dtype=matrix.dtype)
        result[:, : matrix.shape[1]] = matrix
        return result

    def flops(self, case: Case) -> float:
        m, n, k = extents(case)
        return 2.0 * m * n * k

    def library_cublas(self, case: Case, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """cublasSgemm, of 16 bits cublasGemmEx, on A and B as they lie. Its column-major view of the
        three arrays is C^T = B^T A^T. Sums of parts stay in float32: by default cuBLAS may round each
        of them to the output's type, and did at 4097, beyond what one rounding explains
        (docs/decisions/20-tops.md)."""
        cublas: Any = importlib.import_module("cupy_backends.cuda.libs.cublas")
        handle, short = case.xp.cuda.device.get_cublas_handle(), case.dtype != "float32"
        multiply = cublas.gemmEx if short else cublas.sgemm
        mode = _FLOAT32_REDUCTION if short else cublas.CUBLAS_DEFAULT_MATH
        kind = (getattr(case.xp.cuda.runtime, _TYPES[case.dtype]),) if short else ()
        how = (cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT) if short else ()
        m, n, k = extents(case)
        # Read by the host in every call: the closure keeps them.
        one, zero = numpy.ones(1, numpy.float32), numpy.zeros(1, numpy.float32)
        a, b, c = ((arrays[name].data.ptr, *kind) for name in "ABC")
        plain = cublas.CUBLAS_OP_N

        def run() -> None:
            # Set each time: CuPy's own routines share this handle, and CUPY_TF32 makes them change
            # its mode.
            cublas.setMathMode(handle, mode)
            multiply(
                handle, plain, plain, n, m, k, one.ctypes.data, *b, n, *a, k,
                zero.ctypes.data, *c, n, *how,
            )  # fmt: skip

        return run

    def library_cublaslt(self, case: Case, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """The fastest of cuBLASLt's algorithms, with sums in float32."""
        element = getattr(case.xp.cuda.runtime, _TYPES[case.dtype])
        operands = (Operand(arrays[name], element) for name in "ABC")
        return fastest(case.xp, extents(case), *operands)


def extents(case: Case) -> tuple[int, int, int]:
    """M, N and K."""
    return case["M"], case["N"], case["K"]
