"""The operations of the pathology family."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from ncu_toolkit.kernel.ladder.expressions import ceil_div
from ncu_toolkit.kernel.ladder.problems.base import UNIT, Array, ArraySpec, Expected

U32, U16 = UNIT["float32"], UNIT["float16"]
#: Where the slice of `broadcast_add` starts: beyond 32 bits even after division by two of its
#: extents.
_SLICE_START = 2**44 + 12345
#: By the name in a rung's [problem] table: `row_sum` for RowSum.
OPERATIONS: dict[str, type[Operation]] = {}


def given(*shape: int, dtype: str = "float32", below: int = 0) -> ArraySpec:
    return ArraySpec(shape, dtype, below=below)


def out(*shape: int, dtype: str = "float32") -> ArraySpec:
    return ArraySpec(shape, dtype, "output")


class Operation(msgspec.Struct, kw_only=True):
    """One operation at size n. The other fields are options of a rung's [problem] table."""

    n: int
    divide: int = 1
    scale: int = 1
    #: What `count` counts.
    things: ClassVar[str] = "elements"
    #: Useful operations for each of them.
    work: ClassVar[float] = 1.0

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        OPERATIONS[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()] = cls

    @property
    def count(self) -> int:
        return ceil_div(self.n, self.divide) * self.scale

    @property
    def rows(self) -> int:
        return self.scalars()["rows"]

    def arrays(self) -> dict[str, ArraySpec]:
        """Inputs and outputs by name."""
        return {"x": given(self.count), "y": out(self.count)}

    def scalars(self) -> dict[str, int]:
        """Integer arguments besides n."""
        return {"count": self.count}

    def fill(self, xp: Any, rng: Any, name: str, shape: tuple[int, ...]) -> Array:
        """One input; None for what its spec says."""
        return None

    @abstractmethod
    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        """The output from float64 or exact integers, with its bound."""

    def flops(self) -> float:
        """Useful operations."""
        return self.work * self.scalars()["count"]


def positive(y: Array, roundings: int, words: str = "") -> Expected:
    """A sum of positive terms, in whatever order: a relative error of this many roundings."""
    return Expected(y, roundings * U32 * y, f"{words or roundings} roundings of positive numbers")


class Affine(Operation):
    """y = 1.5 x + 0.25."""

    work = 2.0

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        return positive(1.5 * x["x"].astype(xp.float64) + 0.25, 2, "two")


class InvertBytes(Operation):
    """y = 255 - x on bytes, exactly."""

    def arrays(self) -> dict[str, ArraySpec]:
        x = given(self.count, dtype="uint8", below=256)
        return {"x": x, "y": out(self.count, dtype="uint8")}

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        return Expected(xp.uint8(255) - x["x"], 0, "bytes are exact")


class Iterate(Operation):
    """`steps` times v = f v + g with f = 1 - (c + 1) / 4096, g = (c + 1) / 8192, c = i / 32 %
    classes: v nears 1/2.

    The first 1/64 of the elements take `long_steps` where that is given. In closed form v = 1/2 +
    (x - 1/2) f^steps. A fused step rounds once, by at most 2^-25 for a result below 1, and f < 1
    does not enlarge earlier errors: steps * 2^-25."""

    steps: int = 1
    long_steps: int = 0
    classes: int = 1

    def scalars(self) -> dict[str, int]:
        return {"count": self.count, "heavy": ceil_div(self.count, 64)}

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        i = xp.arange(self.count)
        keep = 1.0 - (i // 32 % self.classes + 1.0) / 4096.0
        steps = xp.where(i < self.scalars()["heavy"], self.long_steps or self.steps, self.steps)
        y = 0.5 + (x["x"].astype(xp.float64) - 0.5) * keep**steps
        why = "half a unit in the last place of a number below 1, at each step"
        return Expected(y, steps * (U32 / 2), why)

    def flops(self) -> float:
        count, heavy = self.scalars().values()
        return 2.0 * (self.steps * (count - heavy) + (self.long_steps or self.steps) * heavy)


class Evolve(Operation):
    """`steps` steps of v += h (1 - v), v -= h v^2, v += h v (1 - v) or v -= h v^3, h = 1/512, by i
    / 8 % 4.

    v stays in [0, 1]. A step rounds v by at most 2^-25, and its increment, at most h, four times by
    at most 2^-24 of it; it enlarges earlier errors by at most 1 + h. Together steps * 2^-25 * (1 +
    8 h) * (1 + h)^steps."""

    steps: int = 1

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        h, y = 1.0 / 512.0, x["x"].astype(xp.float64)
        kind = xp.arange(self.count) // 8 % 4
        rules: tuple[Callable[[Array], Array], ...] = (
            lambda v: h * (1 - v),
            lambda v: -h * v * v,
            lambda v: h * v * (1 - v),
            lambda v: -h * v * v * v,
        )
        for k, rule in enumerate(rules):
            v = y[kind == k]
            for _ in range(self.steps):
                v += rule(v)
            y[kind == k] = v
        bound = self.steps * (U32 / 2) * (1 + 8 * h) * (1 + h) ** self.steps
        return Expected(y, bound, "a rounding at each step, enlarged by later ones")

    def flops(self) -> float:
        return 3.0 * self.steps * self.count


class Polynomial(Operation):
    """y = sum of c[k] x^k for k = 0 .. degree; `ones` = 1: all c[k] are 1 and x is in [1/2, 1).

    Horner's rule: |error| <= 2 (degree + 1) u sum |c[k]| x^k (Higham, Accuracy and Stability,
    section 5.1). With `ones` a term may also be 2^(k log2 x) by the approximate instructions, off
    by k 2^-22 ln 2 from the logarithm and 2^-22 from the power: below (k + 1) 2^-21."""

    degree: int = 1
    ones: int = 0

    def arrays(self) -> dict[str, ArraySpec]:
        pair = {"x": given(self.n), "y": out(self.n)}
        return pair if self.ones else {**pair, "c": given(self.degree + 1)}

    def fill(self, xp: Any, rng: Any, name: str, shape: tuple[int, ...]) -> Array:
        v = rng.random(shape, dtype=xp.float32)
        if name == "c":
            return 2 * v - 1
        return v / 2 + xp.float32(0.5) if self.ones else v

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        terms, at = self.degree + 1, x["x"].astype(xp.float64)
        c = [1.0] * terms if self.ones else [float(v) for v in x["c"]]
        y, bound = xp.zeros(self.n), xp.zeros(self.n)
        for k in reversed(range(terms)):
            power = (k + 1) * 2.0**-21 if self.ones else 0.0
            y = y * at + c[k]
            bound = bound * at + abs(c[k]) * (2 * terms * U32 + power)
        why = "the rounding of Horner's rule" + (", or of approximate powers" if self.ones else "")
        return Expected(y, bound, why)

    def flops(self) -> float:
        return 2.0 * self.degree * self.n


class MovingMean(Operation):
    """y[r, c] = mean of x[r .. r + taps - 1, c]; `length` rows, or n rows of one column."""

    taps: int = 1
    length: int = 0

    def scalars(self) -> dict[str, int]:
        rows = self.length or self.n
        return {"count": rows * ceil_div(self.n, rows), "cols": ceil_div(self.n, rows)}

    def arrays(self) -> dict[str, ArraySpec]:
        count, cols = self.scalars().values()
        return {"x": given(count + (self.taps - 1) * cols), "y": out(count)}

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        count, cols = self.scalars().values()
        y = xp.zeros(count)
        for t in range(self.taps):
            y += x["x"][t * cols : t * cols + count]
        y /= self.taps
        return positive(y, self.taps + 2)

    def flops(self) -> float:
        return float(self.taps * self.scalars()["count"])


class Lookup(Operation):
    """y = sum of table[key >> 5 j & 31] for j = 0 .. 5, table[k] = 1 / (k + 1) in float32."""

    work = 6.0
    entries: int = 1

    def arrays(self) -> dict[str, ArraySpec]:
        return {"key": given(self.n, dtype="int32", below=2**30), "y": out(self.n)}

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        table = xp.float32(1) / xp.arange(1, self.entries + 1, dtype=xp.float32)
        wide = table.astype(xp.float64)
        y = sum(wide[x["key"] >> 5 * j & (self.entries - 1)] for j in range(6))
        return positive(y, 6, "six")


class BroadcastAdd(Operation):
    """y[i] = x[i] + b0[p % d0] + b1[p / d0 % d1] + b2[p / (d0 d1) % d2], p = first + i."""

    work = 3.0
    d0: int = 1
    d1: int = 1
    d2: int = 1

    def scalars(self) -> dict[str, int]:
        extents = {"d0": self.d0, "d1": self.d1, "d2": self.d2}
        return {"count": self.n, "first": _SLICE_START, **extents}

    def arrays(self) -> dict[str, ArraySpec]:
        biases = {"b0": given(self.d0), "b1": given(self.d1), "b2": given(self.d2)}
        return {"x": given(self.n), **biases, "y": out(self.n)}

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        at, y = xp.arange(_SLICE_START, _SLICE_START + self.n), x["x"].astype(xp.float64)
        for name, extent in (("b0", self.d0), ("b1", self.d1), ("b2", self.d2)):
            y += x[name][at % extent]
            at = at // extent
        return positive(y, 4, "four")


class Histogram(Operation):
    """y[b] = how many keys equal b, exactly."""

    bins: int = 1

    def arrays(self) -> dict[str, ArraySpec]:
        key = given(self.n, dtype="int32", below=self.bins)
        return {"key": key, "y": out(self.bins, dtype="int32")}

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        return Expected(xp.bincount(x["key"], minlength=self.bins), 0, "counts are exact")


class RowSum(Operation):
    """y[r] = sum of the `width` floats of row r."""

    width: int = 1

    def scalars(self) -> dict[str, int]:
        return {"rows": ceil_div(self.count, self.width)}

    def arrays(self) -> dict[str, ArraySpec]:
        return {"x": given(self.rows, self.width), "y": out(self.rows)}

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        return positive(x["x"].sum(axis=1, dtype=xp.float64), self.width)

    def flops(self) -> float:
        return float(self.rows * self.width)


class RowScale(Operation):
    """y[r, c] = x[r, c] * w[r], w[r] from x[r, 0] by the steps of `Iterate`; 32 columns, rows
    padded to a multiple of 32."""

    steps: int = 1

    def scalars(self) -> dict[str, int]:
        return {"rows": ceil_div(self.n, 1024) * 32}

    def arrays(self) -> dict[str, ArraySpec]:
        return {"x": given(self.rows, 32), "y": out(self.rows, 32)}

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        v = x["x"].astype(xp.float64)
        y = v * (0.5 + (v[:, :1] - 0.5) * (1.0 - 1.0 / 4096.0) ** self.steps)
        bound = v * (self.steps * (U32 / 2)) + 2 * U32 * y
        return Expected(y, bound, "the rounding of the factor's steps and of the product")

    def flops(self) -> float:
        return float(self.rows * (32 + 2 * self.steps))


class TileTranspose(Operation):
    """Each 32 x 32 tile of 1024 consecutive elements transposed: a move, exact. Padded to whole
    tiles."""

    def scalars(self) -> dict[str, int]:
        return {"count": ceil_div(self.n, 1024) * 1024}

    def arrays(self) -> dict[str, ArraySpec]:
        return {"x": given(*self.scalars().values()), "y": out(*self.scalars().values())}

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        y = x["x"].reshape(-1, 32, 32).swapaxes(1, 2).astype(xp.float64)
        return Expected(xp.ascontiguousarray(y).reshape(-1), 0, "elements are only moved")


class Matmul(Operation):
    """C (rows x cols, float32) = A (rows x k) W (k x cols); rows padded to a multiple of 64.

    Inputs in [-1, 1). A sum of k products errs by at most k u |A| |W|; tensor cores may truncate in
    place of rounding, hence 2 (k + 1) u."""

    dtype: str
    k: int = 1
    cols: int = 1

    def scalars(self) -> dict[str, int]:
        return {"rows": ceil_div(self.n, 64 * self.cols) * 64}

    def arrays(self) -> dict[str, ArraySpec]:
        a, w = (
            given(self.rows, self.k, dtype=self.dtype),
            given(self.k, self.cols, dtype=self.dtype),
        )
        return {"A": a, "W": w, "C": out(self.rows, self.cols)}

    def fill(self, xp: Any, rng: Any, name: str, shape: tuple[int, ...]) -> Array:
        return (2 * rng.random(shape, dtype=xp.float32) - 1).astype(self.dtype)

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        a, w = x["A"].astype(xp.float64), x["W"].astype(xp.float64)
        bound = 2 * (self.k + 1) * U32 * (xp.abs(a) @ xp.abs(w))
        return Expected(a @ w, bound, f"the rounding or truncation of {self.k} additions")

    def flops(self) -> float:
        return 2.0 * self.rows * self.k * self.cols


class Layers(Operation):
    """C = A W W ... W, `steps` times, rounded to half each time; W (width x width) orthogonal up to
    its own rounding; rows padded to 64.

    An orthogonal W keeps lengths, so each step adds at most u16 |row|_2 to the error's length, and
    W's rounding u16 sqrt(width) / 2 of it is shared by kernel and reference. The norm of the
    rounded W exceeds 1 by at most u16 sqrt(width): hence the factor (1 + u16 sqrt(width))^steps.
    Half a unit is added for the last rounding of kernel and reference falling on different sides.
    """

    width: int = 1
    steps: int = 1

    def scalars(self) -> dict[str, int]:
        return {"rows": ceil_div(self.n, 64 * self.width) * 64}

    def arrays(self) -> dict[str, ArraySpec]:
        shape, half = (self.rows, self.width), "float16"
        w = given(self.width, self.width, dtype=half)
        return {"A": given(*shape, dtype=half), "W": w, "C": out(*shape, dtype=half)}

    def fill(self, xp: Any, rng: Any, name: str, shape: tuple[int, ...]) -> Array:
        if name == "W":
            orthogonal = xp.linalg.qr(rng.standard_normal(shape))[0]
            return xp.ascontiguousarray(orthogonal.astype(xp.float16))
        return (2 * rng.random(shape, dtype=xp.float32) - 1).astype(xp.float16)

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        v, w = x["A"].astype(xp.float64), x["W"].astype(xp.float64)
        length = xp.sqrt((v * v).sum(axis=1, keepdims=True))
        for _ in range(self.steps):
            v = (v @ w).astype(xp.float32).astype(xp.float16).astype(xp.float64)
        growth = (1 + U16 * self.width**0.5) ** self.steps
        bound = xp.broadcast_to((self.steps + 0.5) * U16 * growth * length, v.shape)
        why = f"{self.steps} roundings to half of a row that keeps its length"
        return Expected(v, bound, why)

    def flops(self) -> float:
        return 2.0 * self.rows * self.width**2 * self.steps


class Chase(Operation):
    """y[i] = where `hops` links from i lead. Element e of chunk c lies at table[c] * chunk + e and
    holds the next element's number: exact.

    Links lead from chunk to chunk at random and keep the place within the chunk, so that neighbours
    stay neighbours."""

    hops: int = 1
    chunk: int = 1

    def scalars(self) -> dict[str, int]:
        return {}

    def arrays(self) -> dict[str, ArraySpec]:
        chunks, kind = ceil_div(self.count, self.chunk), "int32"
        link, table = given(chunks * self.chunk, dtype=kind), given(chunks, dtype=kind)
        return {"link": link, "table": table, "y": out(self.n, dtype=kind)}

    def fill(self, xp: Any, rng: Any, name: str, shape: tuple[int, ...]) -> Array:
        chunks = shape[0] // (self.chunk if name == "link" else 1)
        order = xp.argsort(rng.random(chunks)).astype(xp.int32)
        if name == "table":
            return order
        return (order[:, None] * self.chunk + xp.arange(self.chunk, dtype=xp.int32)).reshape(-1)

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        at = xp.arange(self.n)
        for _ in range(self.hops):
            at = x["link"][x["table"][at // self.chunk] * self.chunk + at % self.chunk]
        return Expected(at, 0, "links are exact")

    def flops(self) -> float:
        return float(self.n * self.hops)


class EmbeddingBag(Operation):
    """y[b] = sum of the `lookups` rows of table (table_rows x 32) that index[b] names."""

    things = "bags"
    table_rows: int = 1
    lookups: int = 1

    def scalars(self) -> dict[str, int]:
        return {"bags": self.count}

    def arrays(self) -> dict[str, ArraySpec]:
        index = given(self.count, self.lookups, dtype="int32", below=self.table_rows)
        return {"table": given(self.table_rows, 32), "index": index, "y": out(self.count, 32)}

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        y = xp.zeros((self.count, 32))
        for j in range(self.lookups):
            y += x["table"][x["index"][:, j]]
        return positive(y, self.lookups)

    def flops(self) -> float:
        return 32.0 * self.count * self.lookups


class LaneLayout(Operation):
    """Lanes of a block of x by y threads, and who shuffles say their neighbours are: exact. y[0]
    the lane, y[1..3] x + 256 y of a neighbour."""

    work = 4.0
    x: int = 1
    y: int = 1

    def scalars(self) -> dict[str, int]:
        return {"count": ceil_div(self.n, self.x * self.y) * self.x * self.y}

    def arrays(self) -> dict[str, ArraySpec]:
        return {"y": out(4, self.scalars()["count"], dtype="int32")}

    def expected(self, xp: Any, x: Mapping[str, Array]) -> Expected:
        thread = xp.arange(self.scalars()["count"]) % (self.x * self.y)
        lane = thread % 32

        def who(other: Array) -> Array:
            """Past the end of the warp: the thread itself."""
            at = xp.where(other < 32, thread - lane + other, thread)
            return at % self.x + 256 * (at // self.x)

        values = xp.stack([lane, who(lane + 1), who(lane + self.x), who(lane ^ 1)])
        return Expected(values, 0, "lane numbers are exact")
