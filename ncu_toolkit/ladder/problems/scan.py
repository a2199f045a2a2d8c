"""The scan family: inclusive sums of n int32 numbers, wrapping around."""

from __future__ import annotations

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


class Scan(Problem):
    """y[i] = x[0] + ... + x[i], both of shape (n,).

    Integers, since their sums are the same in any order: a result is right or wrong to the bit, and
    a prefix that came a tile too early cannot hide in a tolerance. The traffic is that of float32.
    """

    family = "scan"
    title = "Inclusive scan"
    story = (
        "Every result needs all elements before it, yet each element is to be read once and written once. "
        "The ladder goes from trees in shared memory and four passes over the array to a single pass in which blocks look back at each other."
    )
    dimensions = ("n",)
    dtypes = ("int32",)
    rate = "byte"
    baseline = "cub_scan"
    roof = "copy"
    bench_sizes = ("2^22", "2^28", "2^30")
    record_sizes = ("2^28",)
    test_sizes = ("1", "7", "127", "129", "1000", "2049", "2^20", "4194305", "16777259", "2^26")

    def arrays(self, size: Size, dtype: str, options: Options) -> Mapping[str, ArraySpec]:
        n = size["n"]
        return {"x": ArraySpec((n,), dtype), "y": ArraySpec((n,), dtype, "output")}

    def scalars(self, size: Size, dtype: str, options: Options) -> Mapping[str, Scalar]:
        return {"n": Scalar(size["n"], "int64")}

    def make_inputs(
        self, xp: Any, seed: int, size: Size, dtype: str, options: Options, names: Sequence[str]
    ) -> dict[str, Array]:
        """x: all int32 bit patterns alike, so that the sums wrap around."""
        if "x" not in names:
            return {}
        rng = xp.random.default_rng(seed)
        return {"x": rng.integers(0, 2**32, size=size["n"], dtype=xp.uint32).view(xp.int32)}

    def reference(
        self, xp: Any, inputs: Mapping[str, Array], size: Size, dtype: str, options: Options
    ) -> dict[str, Expected]:
        """The sums in 64 bits, modulo 2^32, exactly."""
        sums = xp.cumsum(inputs["x"], dtype=xp.int64).astype(xp.int32)
        return {"y": Expected(sums, 0, "integer sums are exact modulo 2^32")}

    def flops(self, size: Size, options: Options) -> float:
        return float(max(size["n"] - 1, 1))

    def compulsory_bytes(self, size: Size, dtype: str, options: Options) -> float:
        return 8.0 * size["n"]

    def reference_bytes(self, size: Size, dtype: str, options: Options) -> float:
        """Sums in 64 and in 32 bits, and four arrays of 8 bytes an element while they are
        compared."""
        return 44.0 * size["n"]

    def library(
        self,
        xp: Any,
        name: str,
        arrays: Mapping[str, Array],
        size: Size,
        dtype: str,
        options: Options,
    ) -> Callable[[], None]:
        """`cub_scan`: cub::DeviceScan::InclusiveSum, straight into y. Raises as `device_call` does,
        and UsageProblem for another name."""
        if name != "cub_scan":
            return super().library(xp, name, arrays, size, dtype, options)
        return device_call(xp, "cub_device_scan", "CUPY_CUB_CUMSUM", arrays["x"], arrays["y"])


PROBLEM = Scan()
