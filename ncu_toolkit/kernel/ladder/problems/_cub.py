"""Problems on n numbers, whose libraries are device-wide algorithms of CUB as compiled into CuPy.
They are called without CuPy's Python entries, which allocate their result and copy it to `out`; the
compiled functions under them take both pointers."""

import ctypes
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from ncu_toolkit.base.core.errors import EnvironmentProblem
from ncu_toolkit.kernel.ladder.problems.base import Array, ArraySpec, Case, Problem, Scalar


class LinearProblem(Problem):
    """A problem on x of shape (n,)."""

    dimensions = ("n",)
    bench_sizes = ("2^22", "2^28", "2^30")

    def scalars(self, case: Case) -> Mapping[str, Scalar]:
        return {"n": Scalar(case["n"], "int64")}

    def fill(self, case: Case, rng: Any, name: str, spec: ArraySpec) -> Array:
        """All int32 bit patterns alike, so that sums wrap around."""
        xp = case.xp
        return rng.integers(0, 2**32, size=spec.shape[0], dtype=xp.uint32).view(xp.int32)


def device_call(xp: Any, function: str, operation: str, x: Array, y: Array) -> Callable[[], None]:
    """A callable that runs one of CUB's device-wide algorithms from x into y, with its workspace
    allocated here and not when called.

    Args:
        function: `cub_device_reduce` or `cub_device_scan`: void (void* workspace, size_t& bytes,
            void* x, void* y, int items, cudaStream_t, int operation, int type).
        operation: CuPy's name of the operation, such as `CUPY_CUB_SUM`.

    Raises:
        EnvironmentProblem: this CuPy does not export the function.
    """
    cub = importlib.import_module("cupy.cuda.cub")
    try:
        entry = ctypes.CDLL(str(cub.__file__))[
            f"_Z{len(function)}{function}PvRmS_S_iP11CUstream_stii"
        ]
    except (OSError, AttributeError) as error:
        raise EnvironmentProblem(
            f"this CuPy does not export {function} ({error})",
            "The CUB baselines need CuPy 14: pip install cupy-cuda13x",
        ) from error
    entry.restype = None
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    size = ctypes.POINTER(ctypes.c_size_t)
    entry.argtypes = [pointer, size, pointer, pointer, integer, pointer, integer, integer]
    code = int(getattr(cub, operation))
    type_id = int(importlib.import_module("cupy.cuda.common")._get_dtype_id(x.dtype))
    nbytes = ctypes.c_size_t(0)

    def call(workspace: int | None) -> None:
        stream = xp.cuda.get_current_stream().ptr
        entry(
            workspace, ctypes.byref(nbytes), x.data.ptr, y.data.ptr, x.size, stream, code, type_id
        )

    call(None)  # without a workspace it only says how large one must be
    workspace = xp.empty(max(nbytes.value, 1), dtype=xp.uint8)
    return lambda: call(workspace.data.ptr)
