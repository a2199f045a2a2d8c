"""The scan family: inclusive sums of n int32 numbers, wrapping around."""

from collections.abc import Callable, Mapping

from ncu_toolkit.kernel.ladder.problems._cub import LinearProblem, device_call
from ncu_toolkit.kernel.ladder.problems.base import Array, Case, Expected


class Scan(LinearProblem):
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
    dtypes = ("int32",)
    baseline = "cub_scan"
    record_sizes = ("2^28",)

    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
        """The sums in 64 bits, modulo 2^32, exactly."""
        xp = case.xp
        sums = xp.cumsum(inputs["x"], dtype=xp.int64).astype(xp.int32)
        return {"y": Expected(sums, 0, "integer sums are exact modulo 2^32")}

    def flops(self, case: Case) -> float:
        return float(max(case["n"] - 1, 1))

    def reference_bytes(self, case: Case) -> float:
        """Sums in 64 and in 32 bits, and four arrays of 8 bytes per element while they are
        compared."""
        return 44.0 * case["n"]

    def library_cub_scan(self, case: Case, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """cub::DeviceScan::InclusiveSum, straight into y. Raises as `device_call` does."""
        x, y = arrays["x"], arrays["y"]
        return device_call(case.xp, "cub_device_scan", "CUPY_CUB_CUMSUM", x, y)


PROBLEM = Scan()
