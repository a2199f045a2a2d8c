"""The softmax family: y = exp(x - max) / sum of exp(x - max) along each row, float32."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ncu_toolkit.core.errors import EnvironmentProblem
from ncu_toolkit.ladder.problems.base import (
    Array,
    ArraySpec,
    Expected,
    Options,
    Problem,
    Size,
)

#: float32 unit roundoff.
_UNIT = 2.0**-24
#: Elements of a row lie within this width, so that none of its results is subnormal.
_WIDTH = 16.0
#: Rows are shifted by up to this much either way: beyond 88, exp overflows float32 unless the
#: maximum was taken off.
_SHIFT = 100.0


class Softmax(Problem):
    """x and y are (rows, cols); every row of y sums up to 1."""

    family = "softmax"
    title = "Row softmax"
    story = (
        "Three numbers of a row decide about each element of it: its value, the row's maximum and the row's sum. "
        "The ladder goes from three passes over memory to one, at the speed of a plain copy."
    )
    dimensions = ("rows", "cols")
    dtypes = ("float32",)
    rate = "byte"
    baseline = "torch_softmax"
    roof = "copy"
    bench_sizes = ("262144x1024", "65536x4096", "8192x32768")
    record_sizes = ("262144x1024", "8192x32768")
    test_sizes = (
        "1", "7x3", "127x129", "1000", "1023x517", "1x4097", "4097x1", "9x8192", "5x8196", "3x32768", "2x40001", "1024x1024",
    )  # fmt: skip
    largest_extent = 2**30

    def arrays(self, size: Size, dtype: str, options: Options) -> Mapping[str, ArraySpec]:
        shape = (size["rows"], size["cols"])
        return {"x": ArraySpec(shape, dtype), "y": ArraySpec(shape, dtype, "output")}

    def make_inputs(
        self, xp: Any, seed: int, size: Size, dtype: str, options: Options, names: Sequence[str]
    ) -> dict[str, Array]:
        """x uniform in [-8, 8) plus a shift of its row, uniform in [-100, 100)."""
        if "x" not in names:
            return {}
        rng = xp.random.default_rng(seed)
        shift = rng.random((size["rows"], 1), dtype=xp.float32)
        shift *= xp.float32(2 * _SHIFT)
        shift -= xp.float32(_SHIFT + _WIDTH / 2)
        x = rng.random((size["rows"], size["cols"]), dtype=xp.float32)
        x *= xp.float32(_WIDTH)
        x += shift
        return {"x": x}

    def reference(
        self, xp: Any, inputs: Mapping[str, Array], size: Size, dtype: str, options: Options
    ) -> dict[str, Expected]:
        """From float64, with the bound of `relative_bound`."""
        y = inputs["x"].astype(xp.float64)
        y -= y.max(axis=1, keepdims=True)
        xp.exp(y, out=y)
        y /= y.sum(axis=1, keepdims=True)
        relative = relative_bound(size["cols"])
        why = f"{relative / _UNIT:.0f} float32 roundings of the result"
        return {"y": Expected(y, relative * y, why)}

    def flops(self, size: Size, options: Options) -> float:
        """Five an element: compare, subtract, exponential, add, scale."""
        return 5.0 * size["rows"] * size["cols"]

    def compulsory_bytes(self, size: Size, dtype: str, options: Options) -> float:
        return 8.0 * size["rows"] * size["cols"]

    def reference_bytes(self, size: Size, dtype: str, options: Options) -> float:
        """Result and bound in float64, and three such arrays while they are compared."""
        return 40.0 * size["rows"] * size["cols"]

    def library(
        self,
        xp: Any,
        name: str,
        arrays: Mapping[str, Array],
        size: Size,
        dtype: str,
        options: Options,
    ) -> Callable[[], None]:
        """`torch_softmax`: torch.softmax along rows, straight into y, on CuPy's stream and arrays.

        Raises:
            UsageProblem: another name.
            EnvironmentProblem: torch with CUDA is not installed.
        """
        if name != "torch_softmax":
            return super().library(xp, name, arrays, size, dtype, options)
        try:
            torch = importlib.import_module("torch")
            x, y = torch.from_dlpack(arrays["x"]), torch.from_dlpack(arrays["y"])
        except (ImportError, RuntimeError, AssertionError) as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise EnvironmentProblem(
                f"the torch_softmax baseline needs PyTorch with CUDA ({lines[0]})",
                "Install it (pip install torch), or bench the other rungs by name",
            ) from error

        def call() -> None:
            ours = xp.cuda.get_current_stream().ptr
            # An ExternalStream of 0 would be a new stream, not the default one.
            stream = torch.cuda.ExternalStream(ours) if ours else torch.cuda.default_stream()
            with torch.cuda.stream(stream), torch.no_grad():
                torch.softmax(x, 1, out=y)

        return call


def relative_bound(cols: int) -> float:
    """Allowed |computed - exact| / exact of one result of a row of `cols`, in float32.

    With u = 2^-24 and elements that lie within d = 16: a difference rounds by d u, and __expf of it
    is within 2 + floor(1.173 d) = 20 ulp <= 40 u (CUDA C++ Programming Guide, mathematical
    functions), so numerator and sum carry 56 u each. An online sum is scaled by an exponential each
    time the maximum grows or two sums meet: about 30 times (the logarithm of a thread's elements,
    and the levels of a tree), by exponents that add up to d, 30 x 4 u + 38 u + 30 u in all. The
    quotient rounds twice: 302 u, rounded up to 320 u.

    A chain of n additions rounds with a standard deviation of u sqrt(n / 3) (Higham and Mary 2019,
    as for the reduction), of which 8 are allowed. It also loses whole addends, those below half an
    ulp of the sum so far: with exponents spread evenly over d, the sum is n / d times the largest
    addend, and the part of it in addends below t times the largest is t. The loss is at most u n /
    d, which one thread a row comes near to.
    """
    return _UNIT * (320.0 + 8.0 * math.sqrt(cols / 3.0) + cols / _WIDTH)


PROBLEM = Softmax()
