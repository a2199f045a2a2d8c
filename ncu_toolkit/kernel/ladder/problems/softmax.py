"""The softmax family: y = exp(x - max) / sum of exp(x - max) along each row, float32."""

import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any

from ncu_toolkit.base.core.errors import EnvironmentProblem, first_line
from ncu_toolkit.kernel.ladder.problems.base import (
    UNIT,
    Array,
    ArraySpec,
    Case,
    Expected,
    Problem,
    uniform,
)

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
    baseline = "torch_softmax"
    bench_sizes = ("262144x1024", "65536x4096", "8192x32768")
    record_sizes = ("262144x1024", "8192x32768")
    largest_extent = 2**30

    def fill(self, case: Case, rng: Any, name: str, spec: ArraySpec) -> Array:
        """Uniform in [-8, 8) plus a shift of its row, uniform in [-100, 100)."""
        low, rows = -_SHIFT - _WIDTH / 2, spec.shape[0]
        shift = uniform(case.xp, rng, (rows, 1), low, low + 2 * _SHIFT)
        x = uniform(case.xp, rng, spec.shape, 0, _WIDTH)
        x += shift
        return x

    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
        """From float64, with the bound of `relative_bound`."""
        xp = case.xp
        y = inputs["x"].astype(xp.float64)
        y -= y.max(axis=1, keepdims=True)
        xp.exp(y, out=y)
        y /= y.sum(axis=1, keepdims=True)
        relative = relative_bound(case["cols"])
        why = f"{relative / UNIT['float32']:.0f} float32 roundings of the result"
        return {"y": Expected(y, relative * y, why)}

    def flops(self, case: Case) -> float:
        """Five an element: compare, subtract, exponential, add, scale."""
        return 5.0 * case["rows"] * case["cols"]

    def reference_bytes(self, case: Case) -> float:
        """Result and bound in float64, and three such arrays while they are compared."""
        return 40.0 * case["rows"] * case["cols"]

    def library_torch_softmax(self, case: Case, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """torch.softmax along rows, straight into y, on CuPy's stream and arrays. Raises
        EnvironmentProblem: torch with CUDA is not installed."""
        try:
            torch = importlib.import_module("torch")
            x, y = torch.from_dlpack(arrays["x"]), torch.from_dlpack(arrays["y"])
        except (ImportError, RuntimeError, AssertionError) as error:
            raise EnvironmentProblem(
                f"the torch_softmax baseline needs PyTorch with CUDA ({first_line(error)})",
                "Install it (pip install torch), or bench the other rungs by name",
            ) from error

        def call() -> None:
            ours = case.xp.cuda.get_current_stream().ptr
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
    return UNIT["float32"] * (320.0 + 8.0 * math.sqrt(cols / 3.0) + cols / _WIDTH)


PROBLEM = Softmax()
