"""cuBLASLt's fastest algorithm for a matrix product. cuBLAS takes the first that cuBLASLt's
heuristics name; here all that they name are timed. CuPy has no binding, so ctypes calls the library
that CuPy's cuBLAS has loaded."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ncu_toolkit.base.core.errors import EnvironmentProblem, KernelProblem
from ncu_toolkit.kernel.ladder.problems.base import Array
from ncu_toolkit.kernel.ladder.turns import in_turns

#: Algorithms asked of the heuristics.
ALGORITHMS: Final = 8
#: Bytes of workspace: what cuBLAS takes itself on Hopper, for parts of a product split along k.
_WORKSPACE: Final = 32 * 2**20
_COMPUTE_32F = 68  # cublasComputeType_t: float32 arithmetic, for float32 inputs too (no TF32)
_REAL_32F = 0  # cudaDataType_t: the scale
_TRANSPOSED_A = 3  # CUBLASLT_MATMUL_DESC_TRANSA
_PREFER_WORKSPACE = 1  # CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
_PREFER_REDUCTION = 3  # CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
#: CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: parts are added up in float32, as `cublas` is
#: asked to, and not in the output, in its type (_INPLACE, _OUTPUT_TYPE).
_FLOAT32_REDUCTION = 2


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True)
class Operand:
    """A row-major matrix: its array, its type as cudaDataType_t, and whether the array holds it
    transposed. Rows may be longer than the matrix."""

    array: Array
    type: int
    transposed: bool = False


class _CublasLt:
    """cuBLASLt, and what it makes for one product."""

    def __init__(self, xp: Any, product: str) -> None:
        xp.cuda.device.get_cublas_handle()  # loads the library
        version = xp.cuda.runtime.runtimeGetVersion() // 1000
        self.product = product
        try:
            self.functions = ctypes.CDLL(f"libcublasLt.so.{version}")
        except OSError as error:
            remedy = "It comes with cuBLAS: pip install nvidia-cublas"
            raise EnvironmentProblem(f"cuBLASLt cannot be loaded ({error})", remedy) from error

    def call(self, function: str, *arguments: Any) -> None:
        status = self.functions[function](*arguments)
        if status:
            raise KernelProblem(f"{function} failed with status {status} at {self.product}")

    def made(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self.call(function, ctypes.byref(handle), *arguments)
        return handle

    def layout(self, operand: Operand, rows: int, columns: int) -> ctypes.c_void_p:
        # A row-major matrix is its transpose to a library that counts by columns.
        if operand.transposed:
            rows, columns = columns, rows
        pitch = ctypes.c_int64(operand.array.shape[1])
        sizes = ctypes.c_uint64(columns), ctypes.c_uint64(rows), pitch
        return self.made("cublasLtMatrixLayoutCreate", operand.type, *sizes)

    def attribute(self, function: str, handle: ctypes.c_void_p, key: int, value: Any) -> None:
        self.call(function, handle, key, ctypes.byref(value), ctypes.sizeof(value))


def fastest(
    xp: Any, sizes: tuple[int, int, int], a: Operand, b: Operand, c: Operand
) -> Callable[[], None]:
    """A callable that runs C = A B by the fastest of the algorithms that cuBLASLt's heuristics
    name, timed here in turns, the GPU resting between them. `sizes` are M, N and K. Raises
    EnvironmentProblem: no cuBLASLt is loaded, or it has no algorithm for this product. Raises
    KernelProblem: a call of it failed."""
    m, n, k = sizes
    library = _CublasLt(xp, f"{m}x{n}x{k}")
    made, layout, attribute = library.made, library.layout, library.attribute
    handle = made("cublasLtCreate")
    operation = made("cublasLtMatmulDescCreate", _COMPUTE_32F, _REAL_32F)
    # C^T = B^T A^T: what the library calls A is B.
    for key, operand in ((_TRANSPOSED_A, b), (_TRANSPOSED_A + 1, a)):
        value: Any = ctypes.c_int32(operand.transposed)
        attribute("cublasLtMatmulDescSetAttribute", operation, key, value)
    left, right, out = layout(b, k, n), layout(a, m, k), layout(c, m, n)
    wanted = made("cublasLtMatmulPreferenceCreate")
    for key, value in (
        (_PREFER_WORKSPACE, ctypes.c_uint64(_WORKSPACE)),
        (_PREFER_REDUCTION, ctypes.c_uint32(_FLOAT32_REDUCTION)),
    ):
        attribute("cublasLtMatmulPreferenceSetAttribute", wanted, key, value)
    found, count = (_Heuristic * ALGORITHMS)(), ctypes.c_int()
    status = library.functions.cublasLtMatmulAlgoGetHeuristic(
        handle, operation, left, right, out, out, wanted, ALGORITHMS, found, ctypes.byref(count)
    )
    usable = [each for each in found[: count.value] if each.state == 0]
    if status or not usable:
        what = f"cuBLASLt has no algorithm for {library.product}"
        raise EnvironmentProblem(what, "Choose another size")
    workspace = xp.empty(_WORKSPACE, dtype=xp.uint8)
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    pointers = [ctypes.c_void_p(operand.array.data.ptr) for operand in (b, a, c)]
    multiply, stream_of = library.functions.cublasLtMatmul, xp.cuda.get_current_stream

    def bound(algorithm: _Heuristic) -> Callable[[], None]:
        fixed = (
            handle, operation, ctypes.byref(one), pointers[0], left, pointers[1], right, ctypes.byref(zero), pointers[2], out,
            pointers[2], out, ctypes.byref(algorithm), ctypes.c_void_p(workspace.data.ptr), ctypes.c_size_t(_WORKSPACE),
        )  # fmt: skip

        def run() -> None:
            status = multiply(*fixed, ctypes.c_void_p(stream_of().ptr))
            if status:
                raise KernelProblem(
                    f"cublasLtMatmul failed with status {status} at {library.product}"
                )

        return run

    runs = [bound(each) for each in usable]
    times = in_turns(xp, runs) if len(runs) > 1 else [0.0]
    return runs[times.index(min(times))]
