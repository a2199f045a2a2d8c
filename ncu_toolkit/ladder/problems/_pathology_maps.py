"""Operations of the pathology family that work on elements one by one, or on a few neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ncu_toolkit.ladder.problems._pathology_operation import (
    U32,
    Operation,
    ceil_div,
    count_of,
    option,
)
from ncu_toolkit.ladder.problems.base import Array, ArraySpec, Expected, Options

#: Where the slice of `broadcast_add` starts: beyond 32 bits even after division by two of its
#: extents.
_SLICE_START = 2**44 + 12345


class Affine(Operation):
    """y = 1.5 x + 0.25: at most two roundings."""

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        return {
            "x": ArraySpec((count_of(n, o),), "float32"),
            "y": ArraySpec((count_of(n, o),), "float32", "output"),
        }

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        y = 1.5 * x["x"].astype(xp.float64) + 0.25
        return Expected(y, 2 * U32 * y, "two roundings of positive numbers")

    def flops(self, n: int, o: Options) -> float:
        return 2.0 * count_of(n, o)


class InvertBytes(Operation):
    """y = 255 - x on bytes, exactly."""

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        return {
            "x": ArraySpec((count_of(n, o),), "uint8"),
            "y": ArraySpec((count_of(n, o),), "uint8", "output"),
        }

    def fill(self, xp: Any, rng: Any, name: str, spec: ArraySpec, n: int, o: Options) -> Array:
        return rng.integers(0, 256, size=spec.shape, dtype=xp.uint8)

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        return Expected(xp.uint8(255) - x["x"], 0, "bytes are exact")

    def flops(self, n: int, o: Options) -> float:
        return float(count_of(n, o))


class Iterate(Affine):
    """`steps` times v = f v + g with f = 1 - (c + 1) / 4096, g = (c + 1) / 8192, c = i / 32 %
    classes: v nears 1/2.

    The first 1/64 of the elements take `long_steps` where that is given. In closed form v = 1/2 +
    (x - 1/2) f^steps. A fused step rounds once, by at most 2^-25 for a result below 1, and f < 1
    does not enlarge earlier errors: steps * 2^-25."""

    def scalars(self, n: int, o: Options) -> dict[str, int]:
        return {"count": count_of(n, o), "heavy": ceil_div(count_of(n, o), 64)}

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        i = xp.arange(count_of(n, o))
        keep = 1.0 - (i // 32 % option(o, "classes") + 1.0) / 4096.0
        steps = xp.where(
            i < self.scalars(n, o)["heavy"],
            option(o, "long_steps", option(o, "steps")),
            option(o, "steps"),
        )
        y = 0.5 + (x["x"].astype(xp.float64) - 0.5) * keep**steps
        return Expected(
            y, steps * (U32 / 2), "half a unit in the last place of a number below 1, at each step"
        )

    def flops(self, n: int, o: Options) -> float:
        count, heavy = self.scalars(n, o).values()
        return 2.0 * (
            option(o, "steps") * (count - heavy)
            + option(o, "long_steps", option(o, "steps")) * heavy
        )


class Evolve(Affine):
    """`steps` steps of v += h (1 - v), v -= h v^2, v += h v (1 - v) or v -= h v^3, h = 1/512, by i
    / 8 % 4.

    v stays in [0, 1]. A step rounds v by at most 2^-25, and its increment, at most h, four times by
    at most 2^-24 of it; it enlarges earlier errors by at most 1 + h. Together steps * 2^-25 * (1 +
    8 h) * (1 + h)^steps."""

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        h, steps = 1.0 / 512.0, option(o, "steps")
        y = x["x"].astype(xp.float64)
        kind = xp.arange(count_of(n, o)) // 8 % 4
        rules: tuple[Callable[[Array], Array], ...] = (
            lambda v: h * (1 - v),
            lambda v: -h * v * v,
            lambda v: h * v * (1 - v),
            lambda v: -h * v * v * v,
        )
        for k, rule in enumerate(rules):
            v = y[kind == k]
            for _ in range(steps):
                v += rule(v)
            y[kind == k] = v
        return Expected(
            y,
            steps * (U32 / 2) * (1 + 8 * h) * (1 + h) ** steps,
            "a rounding at each step, enlarged by later ones",
        )

    def flops(self, n: int, o: Options) -> float:
        return 3.0 * option(o, "steps") * count_of(n, o)


class Polynomial(Operation):
    """y = sum of c[k] x^k for k = 0 .. degree; `ones` = 1: all c[k] are 1 and x is in [1/2, 1).

    Horner's rule: |error| <= 2 (degree + 1) u sum |c[k]| x^k (Higham, Accuracy and Stability,
    section 5.1). With `ones` a term may also be 2^(k log2 x) by the approximate instructions, off
    by k 2^-22 ln 2 from the logarithm and 2^-22 from the power: below (k + 1) 2^-21."""

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        pair = {"x": ArraySpec((n,), "float32"), "y": ArraySpec((n,), "float32", "output")}
        return (
            pair
            if o.get("ones")
            else {**pair, "c": ArraySpec((option(o, "degree") + 1,), "float32")}
        )

    def fill(self, xp: Any, rng: Any, name: str, spec: ArraySpec, n: int, o: Options) -> Array:
        v = rng.random(spec.shape, dtype=xp.float32)
        if name == "c":
            return 2 * v - 1
        return v / 2 + xp.float32(0.5) if o.get("ones") else v

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        degree, at = option(o, "degree"), x["x"].astype(xp.float64)
        c = [1.0] * (degree + 1) if o.get("ones") else [float(v) for v in x["c"]]
        y, bound = xp.zeros(n), xp.zeros(n)
        for k in range(degree, -1, -1):
            y = y * at + c[k]
            bound = bound * at + abs(c[k]) * (
                2 * (degree + 1) * U32 + ((k + 1) * 2.0**-21 if o.get("ones") else 0.0)
            )
        return Expected(
            y,
            bound,
            "the rounding of Horner's rule"
            + (", or of approximate powers" if o.get("ones") else ""),
        )

    def flops(self, n: int, o: Options) -> float:
        return 2.0 * option(o, "degree") * n


class MovingMean(Operation):
    """y[r, c] = mean of x[r .. r + taps - 1, c]; `length` rows, or n rows of one column. Positive
    terms: a relative error of taps + 2 roundings."""

    def scalars(self, n: int, o: Options) -> dict[str, int]:
        rows = option(o, "length", n)
        return {"count": rows * ceil_div(n, rows), "cols": ceil_div(n, rows)}

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        count, cols = self.scalars(n, o).values()
        return {
            "x": ArraySpec((count + (option(o, "taps") - 1) * cols,), "float32"),
            "y": ArraySpec((count,), "float32", "output"),
        }

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        (count, cols), taps = self.scalars(n, o).values(), option(o, "taps")
        y = xp.zeros(count)
        for t in range(taps):
            y += x["x"][t * cols : t * cols + count]
        y /= taps
        return Expected(y, (taps + 2) * U32 * y, f"{taps + 2} roundings of positive numbers")

    def flops(self, n: int, o: Options) -> float:
        return float(option(o, "taps") * self.scalars(n, o)["count"])


class Lookup(Operation):
    """y = sum of table[key >> 5 j & 31] for j = 0 .. 5, table[k] = 1 / (k + 1) in float32: six
    positive terms, six roundings."""

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        return {"key": ArraySpec((n,), "int32"), "y": ArraySpec((n,), "float32", "output")}

    def fill(self, xp: Any, rng: Any, name: str, spec: ArraySpec, n: int, o: Options) -> Array:
        return rng.integers(0, 2**30, size=spec.shape, dtype=xp.int32)

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        table = (xp.float32(1) / xp.arange(1, option(o, "entries") + 1, dtype=xp.float32)).astype(
            xp.float64
        )
        y = sum(table[x["key"] >> 5 * j & (option(o, "entries") - 1)] for j in range(6))
        return Expected(y, 6 * U32 * y, "six roundings of positive numbers")

    def flops(self, n: int, o: Options) -> float:
        return 6.0 * n


class BroadcastAdd(Operation):
    """y[i] = x[i] + b0[p % d0] + b1[p / d0 % d1] + b2[p / (d0 d1) % d2], p = first + i: four
    positive terms, at most four roundings."""

    def scalars(self, n: int, o: Options) -> dict[str, int]:
        return {"count": n, "first": _SLICE_START, **{d: option(o, d) for d in ("d0", "d1", "d2")}}

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        biases = {f"b{j}": ArraySpec((option(o, f"d{j}"),), "float32") for j in range(3)}
        return {
            "x": ArraySpec((n,), "float32"),
            **biases,
            "y": ArraySpec((n,), "float32", "output"),
        }

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        at, y = xp.arange(_SLICE_START, _SLICE_START + n), x["x"].astype(xp.float64)
        for j in range(3):
            extent = option(o, f"d{j}")
            y += x[f"b{j}"][at % extent]
            at = at // extent
        return Expected(y, 4 * U32 * y, "four roundings of positive numbers")

    def flops(self, n: int, o: Options) -> float:
        return 3.0 * n


class Histogram(Operation):
    """y[b] = how many keys equal b, exactly."""

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        return {
            "key": ArraySpec((n,), "int32"),
            "y": ArraySpec((option(o, "bins"),), "int32", "output"),
        }

    def fill(self, xp: Any, rng: Any, name: str, spec: ArraySpec, n: int, o: Options) -> Array:
        return rng.integers(0, option(o, "bins"), size=spec.shape, dtype=xp.int32)

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        return Expected(xp.bincount(x["key"], minlength=option(o, "bins")), 0, "counts are exact")

    def flops(self, n: int, o: Options) -> float:
        return float(n)
