"""The reduction family: the sum of n elements, int32 (wrapping) or float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ncu_toolkit.ladder.problems._cub import device_call
from ncu_toolkit.ladder.problems.base import (
    Array,
    ArraySpec,
    Expected,
    Options,
    Problem,
    Scalar,
    Size,
)

#: float32 unit roundoff.
_UNIT = 2.0**-24
#: Threads that share the elements on the smallest GPU considered: no thread adds more than n /
#: _THREADS elements one after the other.
_THREADS = 2**14
#: Standard deviations allowed between the computed and the exact sum.
_SIGMAS = 8.0


class Reduction(Problem):
    """y[0] = x[0] + ... + x[n - 1]. x has shape (n,), y has shape (1,)."""

    family = "reduction"
    title = "Sum reduction"
    story = (
        "Adds up n numbers. Every element is read once and used once, so the rungs climb from a tree that starves the memory system "
        "to the bandwidth of device memory."
    )
    dimensions = ("n",)
    dtypes = ("int32", "float32")
    rate = "byte"
    baseline = "cub"
    roof = "copy"
    bench_sizes = ("2^22", "2^28", "2^30")
    record_sizes = ("2^22", "2^28")
    test_sizes = ("0", "1", "7", "127", "129", "1000", "2^20", "4194305", "16777259", "2^26")
    minimum_extent = 0

    def arrays(self, size: Size, dtype: str, options: Options) -> Mapping[str, ArraySpec]:
        return {"x": ArraySpec((size["n"],), dtype), "y": ArraySpec((1,), dtype, "output")}

    def scalars(self, size: Size, dtype: str, options: Options) -> Mapping[str, Scalar]:
        return {"n": Scalar(size["n"], "int64")}

    def make_inputs(
        self, xp: Any, seed: int, size: Size, dtype: str, options: Options, names: Sequence[str]
    ) -> dict[str, Array]:
        """x: all int32 bit patterns alike, so that the sum wraps around; or float32 uniform in [-1,
        1)."""
        if "x" not in names:
            return {}
        n = size["n"]
        if n == 0:
            return {"x": xp.zeros(0, dtype=dtype)}
        rng = xp.random.default_rng(seed)
        if dtype == "int32":
            return {"x": rng.integers(0, 2**32, size=n, dtype=xp.uint32).view(xp.int32)}
        x = rng.random(n, dtype=xp.float32)
        x *= xp.float32(2)
        x -= xp.float32(1)
        return {"x": x}

    def reference(
        self, xp: Any, inputs: Mapping[str, Array], size: Size, dtype: str, options: Options
    ) -> dict[str, Expected]:
        """int32: the sum modulo 2^32, exactly. float32: the float64 sum with the bound of
        `rounding_bound`."""
        x = inputs["x"]
        if dtype == "int32":
            total = int(xp.sum(x, dtype=xp.int64))
            wrapped = (total + 2**31) % 2**32 - 2**31
            return {
                "y": Expected(
                    xp.asarray([wrapped], dtype=xp.int64), 0, "integer sums are exact modulo 2^32"
                )
            }
        n = size["n"]
        largest = max(float(x.max()), -float(x.min())) if n else 0.0
        why = f"{_SIGMAS:g} standard deviations of the rounding error of {n} additions"
        return {
            "y": Expected(xp.sum(x, dtype=xp.float64).reshape(1), rounding_bound(n, largest), why)
        }

    def flops(self, size: Size, options: Options) -> float:
        return float(max(size["n"] - 1, 0))

    def compulsory_bytes(self, size: Size, dtype: str, options: Options) -> float:
        return 4.0 * size["n"] + 4.0

    def library(
        self,
        xp: Any,
        name: str,
        arrays: Mapping[str, Array],
        size: Size,
        dtype: str,
        options: Options,
    ) -> Callable[[], None]:
        """`cub`: cub::DeviceReduce::Sum, straight into y. Raises as `device_call` does, and
        UsageProblem for another name."""
        if name != "cub":
            return super().library(xp, name, arrays, size, dtype, options)
        return device_call(xp, "cub_device_reduce", "CUPY_CUB_SUM", arrays["x"], arrays["y"])


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
    return _SIGMAS * _UNIT * largest * math.sqrt(n * (chain / 2 + levels))


PROBLEM = Reduction()
