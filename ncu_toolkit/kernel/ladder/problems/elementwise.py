"""The elementwise family: GELU in its tanh form (float32), and interleaved RGB to gray (uint8). A
rung's [problem] op says which."""

from collections.abc import Callable, Mapping
from typing import Any

from ncu_toolkit.kernel.ladder.problems.base import (
    UNIT,
    Array,
    ArraySpec,
    Case,
    Expected,
    Problem,
    Scalar,
    uniform,
)

_GELU_SCALE = 0.7978845608028654  # sqrt(2 / pi)
_GELU_CUBIC = 0.044715
#: BT.601 luma weights in 256ths.
_LUMA = (77, 150, 29)


class Elementwise(Problem):
    """gelu: y = gelu(x), both (rows, cols). rgb_to_gray: rgb (rows, cols, 3) to gray (rows, cols),
    bytes."""

    family = "elementwise"
    title = "Elementwise: GELU and RGB to gray"
    story = "One result for each element, a few operations long. Only traffic matters: fuse what belongs together, then move 16 bytes at a time."
    dimensions = ("rows", "cols")
    operations = ("gelu", "rgb_to_gray")
    baseline = "cupy_gelu"
    bench_sizes = ("1024", "2048", "16384")
    record_sizes = ("2048", "16384")
    largest_extent = 2**30

    def gelu(self, case: Case) -> bool:
        return self.operation(case.options) == "gelu"

    def arrays(self, case: Case) -> Mapping[str, ArraySpec]:
        if self.gelu(case):
            return super().arrays(case)
        shape = (case["rows"], case["cols"])
        rgb, gray = (*shape, 3), ArraySpec(shape, "uint8", "output")
        return {"rgb": ArraySpec(rgb, "uint8", below=256), "gray": gray}

    def scalars(self, case: Case) -> Mapping[str, Scalar]:
        return {**super().scalars(case), "count": Scalar(case["rows"] * case["cols"], "int64")}

    def fill(self, case: Case, rng: Any, name: str, spec: ArraySpec) -> Array:
        """x uniform in [-6, 6), where GELU goes from 0 to x."""
        if name == "x":
            return uniform(case.xp, rng, spec.shape, -6, 6)
        return super().fill(case, rng, name, spec)

    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
        """gelu from float64; gray exactly, in integers.

        The bound of gelu, u = 2^-24: the argument v of tanh carries at most 5 roundings, which move
        tanh by at most 5 u max |v| sech^2 v < 2.3 u; tanhf itself is within 2 ulp <= 4 u (CUDA C++
        Programming Guide, mathematical functions), and so are the approximate exponential and
        division of the logistic form; 1 + tanh and the products round three times more. In all
        below 16 u |x| / 2."""
        xp = case.xp
        if self.gelu(case):
            x = inputs["x"].astype(xp.float64)
            y = 0.5 * x * (1.0 + xp.tanh(_GELU_SCALE * (x + _GELU_CUBIC * x**3)))
            bound = 8 * UNIT["float32"] * xp.abs(x)
            return {"y": Expected(y, bound, "8 float32 roundings of x")}
        rgb = inputs["rgb"]
        total = xp.full(rgb.shape[:2], 128, dtype=xp.int32)
        for plane, weight in enumerate(_LUMA):
            total += weight * rgb[:, :, plane].astype(xp.int32)
        total >>= 8
        return {"gray": Expected(total, 0, "integer arithmetic is exact")}

    def flops(self, case: Case) -> float:
        """Operations as written: gelu 9 (tanh counted as one), gray 5."""
        return (9.0 if self.gelu(case) else 5.0) * case["rows"] * case["cols"]

    def reference_bytes(self, case: Case) -> float:
        """gelu: five float64 arrays at a time; gray: three of int32."""
        return (40.0 if self.gelu(case) else 12.0) * case["rows"] * case["cols"]

    def library_cupy_gelu(self, case: Case, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """A CuPy elementwise kernel, compiled on the first call."""
        x, y = arrays["x"], arrays["y"]
        code = (
            f"y = 0.5f * x * (1.f + tanhf({_GELU_SCALE!r}f * (x + {_GELU_CUBIC!r}f * x * x * x)))"
        )
        gelu = case.xp.ElementwiseKernel("float32 x", "float32 y", code, "cupy_gelu")
        return lambda: _discard(gelu(x, y))

    def library_cupy_rgb_to_gray(
        self, case: Case, arrays: Mapping[str, Array]
    ) -> Callable[[], None]:
        """A CuPy elementwise kernel, compiled on the first call."""
        planes, gray = [arrays["rgb"][:, :, plane] for plane in range(3)], arrays["gray"]
        code = f"y = ({_LUMA[0]}u * r + {_LUMA[1]}u * g + {_LUMA[2]}u * b + 128u) >> 8"
        name, inputs = "cupy_rgb_to_gray", "uint8 r, uint8 g, uint8 b"
        luma = case.xp.ElementwiseKernel(inputs, "uint8 y", code, name)
        return lambda: _discard(luma(*planes, gray))


def _discard(_: object) -> None:
    """A kernel returns the output array it was given."""


PROBLEM = Elementwise()
