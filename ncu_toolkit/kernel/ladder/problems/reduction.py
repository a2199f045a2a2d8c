"""The reduction family: the sum of n elements, int32 (wrapping) or float32."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from ncu_toolkit.kernel.ladder.problems._cub import LinearProblem, device_call
from ncu_toolkit.kernel.ladder.problems.base import UNIT, Array, ArraySpec, Case, Expected, uniform

#: Threads that share the elements on the smallest GPU considered: no thread adds more than n /
#: _THREADS elements one after the other.
_THREADS = 2**14
#: Standard deviations allowed between the computed and the exact sum.
_SIGMAS = 8.0


class Reduction(LinearProblem):
    """y[0] = x[0] + ... + x[n - 1]. x has shape (n,), y has shape (1,)."""

    family = "reduction"
    title = "Sum reduction"
    story = (
        "Adds up n numbers. Every element is read once and used once, so the rungs climb from a tree that starves the memory system "
        "to the bandwidth of device memory."
    )
    dtypes = ("int32", "float32")
    baseline = "cub"
    record_sizes = ("2^22", "2^28")
    minimum_extent = 0

    def arrays(self, case: Case) -> Mapping[str, ArraySpec]:
        dtype = case.dtype
        return {"x": ArraySpec((case["n"],), dtype), "y": ArraySpec((1,), dtype, "output")}

    def fill(self, case: Case, rng: Any, name: str, spec: ArraySpec) -> Array:
        """All int32 bit patterns alike, or float32 uniform in [-1, 1)."""
        if case["n"] == 0:
            return case.xp.zeros(0, dtype=case.dtype)
        if case.dtype == "int32":
            return super().fill(case, rng, name, spec)
        return uniform(case.xp, rng, spec.shape, -1, 1)

    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
        """int32: the sum modulo 2^32, exactly. float32: the float64 sum with the bound of
        `rounding_bound`."""
        xp, x, n = case.xp, inputs["x"], case["n"]
        if case.dtype == "int32":
            wrapped = (int(xp.sum(x, dtype=xp.int64)) + 2**31) % 2**32 - 2**31
            exact = xp.asarray([wrapped], dtype=xp.int64)
            return {"y": Expected(exact, 0, "integer sums are exact modulo 2^32")}
        largest = max(float(x.max()), -float(x.min())) if n else 0.0
        why = f"{_SIGMAS:g} standard deviations of the rounding error of {n} additions"
        total = xp.sum(x, dtype=xp.float64).reshape(1)
        return {"y": Expected(total, rounding_bound(n, largest), why)}

    def flops(self, case: Case) -> float:
        return float(max(case["n"] - 1, 0))

    def library_cub(self, case: Case, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """cub::DeviceReduce::Sum, straight into y. Raises as `device_call` does."""
        x, y = arrays["x"], arrays["y"]
        return device_call(case.xp, "cub_device_reduce", "CUPY_CUB_SUM", x, y)


def rounding_bound(n: int, largest: float) -> float:
    """Allowed |computed - exact| of a float32 sum of n independent zero-mean values of magnitude up
    to `largest`.

    Each addition rounds its partial sum s by at most u |s|, u = 2^-24, with independent signs (the
    model of Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019), so the
    error has a standard deviation of at most u sqrt(sum of s^2). A partial sum of k values has s^2
    <= k largest^2 on average: chains of length L contribute n L / 2 in all, each level of a tree n.
    """
    if n == 0:
        return 0.0
    chain = n / _THREADS + 64
    levels = math.log2(n) + 1
    return _SIGMAS * UNIT["float32"] * largest * math.sqrt(n * (chain / 2 + levels))


PROBLEM = Reduction()
