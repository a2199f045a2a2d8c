"""Operations of the pathology family on rows, tiles, matrices and linked chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ncu_toolkit.ladder.problems._pathology_operation import (
    U16,
    U32,
    Operation,
    ceil_div,
    count_of,
    option,
)
from ncu_toolkit.ladder.problems.base import Array, ArraySpec, Expected, Options


class RowSum(Operation):
    """y[r] = sum of the `width` floats of row r; in whatever order, positive terms err by at most
    width roundings."""

    def scalars(self, n: int, o: Options) -> dict[str, int]:
        return {"rows": ceil_div(count_of(n, o), option(o, "width"))}

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        rows = self.scalars(n, o)["rows"]
        return {
            "x": ArraySpec((rows, option(o, "width")), "float32"),
            "y": ArraySpec((rows,), "float32", "output"),
        }

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        y = x["x"].sum(axis=1, dtype=xp.float64)
        return Expected(
            y, option(o, "width") * U32 * y, f"{option(o, 'width')} roundings of positive numbers"
        )

    def flops(self, n: int, o: Options) -> float:
        return float(self.scalars(n, o)["rows"] * option(o, "width"))


class RowScale(Operation):
    """y[r, c] = x[r, c] * w[r], w[r] from x[r, 0] by the steps of `Iterate`; 32 columns, rows
    padded to a multiple of 32."""

    def scalars(self, n: int, o: Options) -> dict[str, int]:
        return {"rows": ceil_div(n, 1024) * 32}

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        shape = (self.scalars(n, o)["rows"], 32)
        return {"x": ArraySpec(shape, "float32"), "y": ArraySpec(shape, "float32", "output")}

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        v = x["x"].astype(xp.float64)
        y = v * (0.5 + (v[:, :1] - 0.5) * (1.0 - 1.0 / 4096.0) ** option(o, "steps"))
        return Expected(
            y,
            v * (option(o, "steps") * (U32 / 2)) + 2 * U32 * y,
            "the rounding of the factor's steps and of the product",
        )

    def flops(self, n: int, o: Options) -> float:
        rows = self.scalars(n, o)["rows"]
        return float(rows * (32 + 2 * option(o, "steps")))


class TileTranspose(Operation):
    """Each 32 x 32 tile of 1024 consecutive elements transposed: a move, exact. Padded to whole
    tiles."""

    def scalars(self, n: int, o: Options) -> dict[str, int]:
        return {"count": ceil_div(n, 1024) * 1024}

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        shape = (self.scalars(n, o)["count"],)
        return {"x": ArraySpec(shape, "float32"), "y": ArraySpec(shape, "float32", "output")}

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        y = x["x"].reshape(-1, 32, 32).swapaxes(1, 2).astype(xp.float64)
        return Expected(xp.ascontiguousarray(y).reshape(-1), 0, "elements are only moved")

    def flops(self, n: int, o: Options) -> float:
        return float(self.scalars(n, o)["count"])


class Matmul(Operation):
    """C (rows x cols, float32) = A (rows x k) W (k x cols); rows padded to a multiple of 64.

    Inputs in [-1, 1). A sum of k products errs by at most k u |A| |W|; tensor cores may truncate in
    place of rounding, hence 2 (k + 1) u."""

    def scalars(self, n: int, o: Options) -> dict[str, int]:
        return {"rows": ceil_div(n, 64 * option(o, "cols")) * 64}

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        rows, k, cols, dtype = (
            self.scalars(n, o)["rows"],
            option(o, "k"),
            option(o, "cols"),
            str(o["dtype"]),
        )
        return {
            "A": ArraySpec((rows, k), dtype),
            "W": ArraySpec((k, cols), dtype),
            "C": ArraySpec((rows, cols), "float32", "output"),
        }

    def fill(self, xp: Any, rng: Any, name: str, spec: ArraySpec, n: int, o: Options) -> Array:
        return (2 * rng.random(spec.shape, dtype=xp.float32) - 1).astype(spec.dtype)

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        a, w = x["A"].astype(xp.float64), x["W"].astype(xp.float64)
        return Expected(
            a @ w,
            2 * (option(o, "k") + 1) * U32 * (xp.abs(a) @ xp.abs(w)),
            f"the rounding or truncation of {option(o, 'k')} additions",
        )

    def flops(self, n: int, o: Options) -> float:
        return 2.0 * self.scalars(n, o)["rows"] * option(o, "k") * option(o, "cols")


class Layers(Operation):
    """C = A W W ... W, `steps` times, rounded to half each time; W (width x width) orthogonal up to
    its own rounding; rows padded to 64.

    An orthogonal W keeps lengths, so each step adds at most u16 |row|_2 to the error's length, and
    W's rounding u16 sqrt(width) / 2 of it is shared by kernel and reference. The norm of the
    rounded W exceeds 1 by at most u16 sqrt(width): hence the factor (1 + u16 sqrt(width))^steps.
    Half a unit is added for the last rounding of kernel and reference falling on different sides.
    """

    def scalars(self, n: int, o: Options) -> dict[str, int]:
        return {"rows": ceil_div(n, 64 * option(o, "width")) * 64}

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        width = option(o, "width")
        shape = (self.scalars(n, o)["rows"], width)
        return {
            "A": ArraySpec(shape, "float16"),
            "W": ArraySpec((width, width), "float16"),
            "C": ArraySpec(shape, "float16", "output"),
        }

    def fill(self, xp: Any, rng: Any, name: str, spec: ArraySpec, n: int, o: Options) -> Array:
        if name == "W":
            return xp.ascontiguousarray(
                xp.linalg.qr(rng.standard_normal(spec.shape))[0].astype(xp.float16)
            )
        return (2 * rng.random(spec.shape, dtype=xp.float32) - 1).astype(xp.float16)

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        v, w, steps, width = (
            x["A"].astype(xp.float64),
            x["W"].astype(xp.float64),
            option(o, "steps"),
            option(o, "width"),
        )
        length = xp.sqrt((v * v).sum(axis=1, keepdims=True))
        for _ in range(steps):
            v = (v @ w).astype(xp.float32).astype(xp.float16).astype(xp.float64)
        bound = (steps + 0.5) * U16 * (1 + U16 * width**0.5) ** steps * length
        return Expected(
            v,
            xp.broadcast_to(bound, v.shape),
            f"{steps} roundings to half of a row that keeps its length",
        )

    def flops(self, n: int, o: Options) -> float:
        return 2.0 * self.scalars(n, o)["rows"] * option(o, "width") ** 2 * option(o, "steps")


class Chase(Operation):
    """y[i] = where `hops` links from i lead. Element e of chunk c lies at table[c] * chunk + e and
    holds the next element's number: exact.

    Links lead from chunk to chunk at random and keep the place within the chunk, so that neighbours
    stay neighbours."""

    def scalars(self, n: int, o: Options) -> dict[str, int]:
        return {}

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        chunks = ceil_div(count_of(n, o), option(o, "chunk"))
        link, table = (
            ArraySpec((chunks * option(o, "chunk"),), "int32"),
            ArraySpec((chunks,), "int32"),
        )
        return {"link": link, "table": table, "y": ArraySpec((n,), "int32", "output")}

    def fill(self, xp: Any, rng: Any, name: str, spec: ArraySpec, n: int, o: Options) -> Array:
        chunk = option(o, "chunk")
        chunks = spec.shape[0] // chunk if name == "link" else spec.shape[0]
        order = xp.argsort(rng.random(chunks)).astype(xp.int32)
        return (
            order
            if name == "table"
            else (order[:, None] * chunk + xp.arange(chunk, dtype=xp.int32)).reshape(-1)
        )

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        at, chunk = xp.arange(n), option(o, "chunk")
        for _ in range(option(o, "hops")):
            at = x["link"][x["table"][at // chunk] * chunk + at % chunk]
        return Expected(at, 0, "links are exact")

    def flops(self, n: int, o: Options) -> float:
        return float(n * option(o, "hops"))


class EmbeddingBag(Operation):
    """y[b] = sum of the `lookups` rows of table (table_rows x 32) that index[b] names; in any
    order, positive terms err by that many roundings."""

    things = "bags"

    def scalars(self, n: int, o: Options) -> dict[str, int]:
        return {"bags": count_of(n, o)}

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        bags = count_of(n, o)
        index, table = (
            ArraySpec((bags, option(o, "lookups")), "int32"),
            ArraySpec((option(o, "table_rows"), 32), "float32"),
        )
        return {"table": table, "index": index, "y": ArraySpec((bags, 32), "float32", "output")}

    def fill(self, xp: Any, rng: Any, name: str, spec: ArraySpec, n: int, o: Options) -> Array:
        if name == "index":
            return rng.integers(0, option(o, "table_rows"), size=spec.shape, dtype=xp.int32)
        return super().fill(xp, rng, name, spec, n, o)

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        y = xp.zeros((count_of(n, o), 32))
        for j in range(option(o, "lookups")):
            y += x["table"][x["index"][:, j]]
        return Expected(
            y,
            option(o, "lookups") * U32 * y,
            f"{option(o, 'lookups')} roundings of positive numbers",
        )

    def flops(self, n: int, o: Options) -> float:
        return 32.0 * count_of(n, o) * option(o, "lookups")


class LaneLayout(Operation):
    """Lanes of a block of x by y threads, and who shuffles say their neighbours are: exact. y[0]
    the lane, y[1..3] x + 256 y of a neighbour."""

    def scalars(self, n: int, o: Options) -> dict[str, int]:
        threads = option(o, "x") * option(o, "y")
        return {"count": ceil_div(n, threads) * threads}

    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        return {"y": ArraySpec((4, self.scalars(n, o)["count"]), "int32", "output")}

    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        width, count = option(o, "x"), self.scalars(n, o)["count"]
        thread = xp.arange(count) % (width * option(o, "y"))
        lane = thread % 32

        def who(other: Array) -> Array:
            at = xp.where(
                other < 32, thread - lane + other, thread
            )  # past the end of the warp: the thread itself
            return at % width + 256 * (at // width)

        return Expected(
            xp.stack([lane, who(lane + 1), who(lane + width), who(lane ^ 1)]),
            0,
            "lane numbers are exact",
        )

    def flops(self, n: int, o: Options) -> float:
        return 4.0 * self.scalars(n, o)["count"]
