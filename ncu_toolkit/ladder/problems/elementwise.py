"""The elementwise family: GELU in its tanh form (float32), and interleaved RGB to gray (uint8). A
rung's [problem] op says which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ncu_toolkit.core.errors import UsageProblem
from ncu_toolkit.ladder.problems.base import (
    Array,
    ArraySpec,
    Expected,
    Options,
    Problem,
    Scalar,
    Size,
)

_OPERATIONS = ("gelu", "rgb_to_gray")
#: float32 unit roundoff.
_UNIT = 2.0**-24
_GELU_SCALE = 0.7978845608028654  # sqrt(2 / pi)
_GELU_CUBIC = 0.044715
#: BT.601 luma weights in 256ths.
_LUMA = (77, 150, 29)


def operation(options: Options) -> str:
    """The operation a rung computes: `gelu` where its header does not say.

    Raises:
        UsageProblem: an operation the family does not have.
    """
    op = str(options.get("op", "gelu"))
    if op not in _OPERATIONS:
        raise UsageProblem(
            f"elementwise has no operation '{op}'",
            f"[problem] op is one of {', '.join(_OPERATIONS)}",
        )
    return op


class Elementwise(Problem):
    """gelu: y = gelu(x), both (rows, cols). rgb_to_gray: rgb (rows, cols, 3) to gray (rows, cols),
    bytes."""

    family = "elementwise"
    title = "Elementwise: GELU and RGB to gray"
    story = "One result for each element, a few operations long. Only traffic matters: fuse what belongs together, then move 16 bytes at a time."
    dimensions = ("rows", "cols")
    dtypes = ("float32",)
    rate = "byte"
    baseline = "cupy_gelu"
    roof = "copy"
    bench_sizes = ("1024", "2048", "16384")
    record_sizes = ("2048", "16384")
    test_sizes = ("1", "7x3", "127x129", "1000", "1023x517", "1x4097", "2048")
    largest_extent = 2**30

    def arrays(self, size: Size, dtype: str, options: Options) -> Mapping[str, ArraySpec]:
        shape = (size["rows"], size["cols"])
        if operation(options) == "gelu":
            return {"x": ArraySpec(shape, dtype), "y": ArraySpec(shape, dtype, "output")}
        return {"rgb": ArraySpec((*shape, 3), "uint8"), "gray": ArraySpec(shape, "uint8", "output")}

    def scalars(self, size: Size, dtype: str, options: Options) -> Mapping[str, Scalar]:
        """rows and cols, and `count` = rows * cols."""
        count = Scalar(size["rows"] * size["cols"], "int64")
        return {**super().scalars(size, dtype, options), "count": count}

    def make_inputs(
        self, xp: Any, seed: int, size: Size, dtype: str, options: Options, names: Sequence[str]
    ) -> dict[str, Array]:
        """x uniform in [-6, 6), where GELU goes from 0 to x; rgb uniform bytes."""
        rng = xp.random.default_rng(seed)
        shape = (size["rows"], size["cols"])
        if operation(options) == "rgb_to_gray":
            return (
                {"rgb": rng.integers(0, 256, size=(*shape, 3), dtype=xp.uint8)}
                if "rgb" in names
                else {}
            )
        if "x" not in names:
            return {}
        x = rng.random(shape, dtype=xp.float32)
        x *= xp.float32(12)
        x -= xp.float32(6)
        return {"x": x}

    def reference(
        self, xp: Any, inputs: Mapping[str, Array], size: Size, dtype: str, options: Options
    ) -> dict[str, Expected]:
        """gelu from float64; gray exactly, in integers.

        The bound of gelu, u = 2^-24: the argument v of tanh carries at most 5 roundings, which move
        tanh by at most 5 u max |v| sech^2 v < 2.3 u; tanhf itself is within 2 ulp <= 4 u (CUDA C++
        Programming Guide, mathematical functions), and so are the approximate exponential and
        division of the logistic form; 1 + tanh and the products round three times more. In all
        below 16 u |x| / 2."""
        if operation(options) == "rgb_to_gray":
            rgb = inputs["rgb"]
            total = xp.full(rgb.shape[:2], 128, dtype=xp.int32)
            for plane, weight in enumerate(_LUMA):
                total += weight * rgb[:, :, plane].astype(xp.int32)
            total >>= 8
            return {"gray": Expected(total, 0, "integer arithmetic is exact")}
        x = inputs["x"].astype(xp.float64)
        y = 0.5 * x * (1.0 + xp.tanh(_GELU_SCALE * (x + _GELU_CUBIC * x**3)))
        return {"y": Expected(y, 8 * _UNIT * xp.abs(x), "8 float32 roundings of x")}

    def flops(self, size: Size, options: Options) -> float:
        """Operations as written: gelu 9 (tanh counted as one), gray 5."""
        return (9.0 if operation(options) == "gelu" else 5.0) * size["rows"] * size["cols"]

    def compulsory_bytes(self, size: Size, dtype: str, options: Options) -> float:
        return (8.0 if operation(options) == "gelu" else 4.0) * size["rows"] * size["cols"]

    def reference_bytes(self, size: Size, dtype: str, options: Options) -> float:
        """gelu: five float64 arrays at a time; gray: three of int32."""
        return (40.0 if operation(options) == "gelu" else 12.0) * size["rows"] * size["cols"]

    def library(
        self,
        xp: Any,
        name: str,
        arrays: Mapping[str, Array],
        size: Size,
        dtype: str,
        options: Options,
    ) -> Callable[[], None]:
        """`cupy_gelu`, `cupy_rgb_to_gray`: the operation as a CuPy elementwise kernel, compiled on
        the first call.

        Raises:
            UsageProblem: another name.
        """
        if name == "cupy_gelu":
            x, y = arrays["x"], arrays["y"]
            code = f"y = 0.5f * x * (1.f + tanhf({_GELU_SCALE!r}f * (x + {_GELU_CUBIC!r}f * x * x * x)))"
            gelu = xp.ElementwiseKernel("float32 x", "float32 y", code, name)
            return lambda: _discard(gelu(x, y))
        if name == "cupy_rgb_to_gray":
            planes = [arrays["rgb"][:, :, plane] for plane in range(3)]
            gray = arrays["gray"]
            code = f"y = ({_LUMA[0]}u * r + {_LUMA[1]}u * g + {_LUMA[2]}u * b + 128u) >> 8"
            luma = xp.ElementwiseKernel("uint8 r, uint8 g, uint8 b", "uint8 y", code, name)
            return lambda: _discard(luma(*planes, gray))
        return super().library(xp, name, arrays, size, dtype, options)


def _discard(_: object) -> None:
    """A kernel returns the output array it was given."""


PROBLEM = Elementwise()
