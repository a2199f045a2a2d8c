"""The transpose family: y = x transposed, float32; the roof rung copies instead ([problem] op =
"copy")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def _copies(options: Options) -> bool:
    op = str(options.get("op", "transpose"))
    if op not in ("transpose", "copy"):
        raise UsageProblem(
            f"transpose has no operation '{op}'", "[problem] op is transpose or copy"
        )
    return op == "copy"


class Transpose(Problem):
    """x is (rows, cols), y is (cols, rows); for the copy y is (rows, cols)."""

    family = "transpose"
    title = "Matrix transpose"
    story = (
        "No arithmetic at all: either the reads or the writes are scattered unless the turn is made on chip. "
        "The end of the ladder is the speed of a plain copy."
    )
    dimensions = ("rows", "cols")
    dtypes = ("float32",)
    rate = "byte"
    baseline = "copy"
    roof = "copy"
    bench_sizes = ("1024", "4096", "16384")
    record_sizes = ("1024", "16384")
    test_sizes = ("1", "7x3", "127x129", "1000", "1023x517", "1x4097", "4097x1", "68x132", "1024")
    largest_extent = 2**30

    def arrays(self, size: Size, dtype: str, options: Options) -> Mapping[str, ArraySpec]:
        rows, cols = size["rows"], size["cols"]
        return {
            "x": ArraySpec((rows, cols), dtype),
            "y": ArraySpec((rows, cols) if _copies(options) else (cols, rows), dtype, "output"),
        }

    def scalars(self, size: Size, dtype: str, options: Options) -> Mapping[str, Scalar]:
        """rows and cols, and `count` = rows * cols."""
        count = Scalar(size["rows"] * size["cols"], "int64")
        return {**super().scalars(size, dtype, options), "count": count}

    def make_inputs(
        self, xp: Any, seed: int, size: Size, dtype: str, options: Options, names: Sequence[str]
    ) -> dict[str, Array]:
        """x uniform in [0, 1)."""
        if "x" not in names:
            return {}
        return {
            "x": xp.random.default_rng(seed).random((size["rows"], size["cols"]), dtype=xp.float32)
        }

    def reference(
        self, xp: Any, inputs: Mapping[str, Array], size: Size, dtype: str, options: Options
    ) -> dict[str, Expected]:
        """A view of x: moving data rounds nothing."""
        x = inputs["x"]
        return {"y": Expected(x if _copies(options) else x.T, 0, "moved data is unchanged")}

    def flops(self, size: Size, options: Options) -> float:
        return 0.0

    def compulsory_bytes(self, size: Size, dtype: str, options: Options) -> float:
        return 8.0 * size["rows"] * size["cols"]


PROBLEM = Transpose()
