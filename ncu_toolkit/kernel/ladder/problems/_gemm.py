"""What the families of matrix products share."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

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

    def library_cublaslt(self, case: Case, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """The fastest of cuBLASLt's algorithms, with sums in float32."""
        element = getattr(case.xp.cuda.runtime, _TYPES[case.dtype])
        operands = (Operand(arrays[name], element) for name in "ABC")
        return fastest(case.xp, extents(case), *operands)


def extents(case: Case) -> tuple[int, int, int]:
    """M, N and K."""
    return case["M"], case["N"], case["K"]
