"""The pathology family: small operations that pairs of kernels compute, one of each pair with a
planted defect.

A rung's [problem] table names its operation with `reference` and gives its sizes; the operations
are in the modules beside this one. The arrays follow from n and these options: `scale` times n
elements, or n over `divide`, padded where the operation works on whole tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncu_toolkit.core import units
from ncu_toolkit.core.errors import UsageProblem
from ncu_toolkit.ladder.problems import _pathology_maps as maps
from ncu_toolkit.ladder.problems import _pathology_rows as rows
from ncu_toolkit.ladder.problems._pathology_operation import Operation, count_of
from ncu_toolkit.ladder.problems.base import (
    ITEMSIZE,
    Array,
    ArraySpec,
    Expected,
    Options,
    Problem,
    Scalar,
    Size,
)

OPERATIONS: Mapping[str, Operation] = {
    "affine": maps.Affine(), "invert_bytes": maps.InvertBytes(), "iterate": maps.Iterate(), "evolve": maps.Evolve(),
    "polynomial": maps.Polynomial(), "moving_mean": maps.MovingMean(), "lookup": maps.Lookup(), "broadcast_add": maps.BroadcastAdd(),
    "histogram": maps.Histogram(),
    "row_sum": rows.RowSum(), "row_scale": rows.RowScale(), "tile_transpose": rows.TileTranspose(), "matmul": rows.Matmul(),
    "layers": rows.Layers(), "chase": rows.Chase(), "embedding_bag": rows.EmbeddingBag(), "lane_layout": rows.LaneLayout(),
}  # fmt: skip


class Pathology(Problem):
    """Chooses the operation by options["reference"]. Useful bytes are every input and output once,
    whatever a defect moves."""

    family = "pathology"
    title = "Planted defects"
    story = (
        "Pairs of small kernels: the first of a pair has one defect planted in it, the second computes the same without it. "
        "They test every diagnosis on a known cause. The kernels at a roof show what good looks like."
    )
    dimensions = ("n",)
    dtypes = ("float32",)
    rate = "byte"
    baseline = ""
    roof = "copy"
    bench_sizes = ("16777216",)
    record_sizes = ("16777216",)
    test_sizes = ("1", "1000", "65537", "16777216")
    #: Kernels index with int32, and an operation may take eight times n elements.
    largest_extent = 2**26

    def arrays(self, size: Size, dtype: str, options: Options) -> Mapping[str, ArraySpec]:
        return _operation(options).arrays(size["n"], options)

    def scalars(self, size: Size, dtype: str, options: Options) -> Mapping[str, Scalar]:
        wide = ("first", "d0", "d1", "d2")
        values = {"n": size["n"], **_operation(options).scalars(size["n"], options)}
        return {
            name: Scalar(value, "int64" if name in wide else "int32")
            for name, value in values.items()
        }

    def make_inputs(
        self, xp: Any, seed: int, size: Size, dtype: str, options: Options, names: Sequence[str]
    ) -> dict[str, Array]:
        operation, n = _operation(options), size["n"]
        made = {}
        for place, (name, spec) in enumerate(operation.arrays(n, options).items()):
            if (
                name in names and spec.role == "input"
            ):  # a generator for each array: the same numbers whichever are asked for
                made[name] = operation.fill(
                    xp, xp.random.default_rng(16 * seed + place), name, spec, n, options
                )
        return made

    def reference(
        self, xp: Any, inputs: Mapping[str, Array], size: Size, dtype: str, options: Options
    ) -> dict[str, Expected]:
        operation = _operation(options)
        output = next(
            name
            for name, spec in operation.arrays(size["n"], options).items()
            if spec.role == "output"
        )
        return {output: operation.expected(xp, inputs, size["n"], options)}

    def flops(self, size: Size, options: Options) -> float:
        return _operation(options).flops(size["n"], options)

    def compulsory_bytes(self, size: Size, dtype: str, options: Options) -> float:
        return float(sum(spec.nbytes for spec in self.arrays(size, dtype, options).values()))

    def worked_on(self, size: Size, options: Options) -> str:
        count = count_of(size["n"], options)
        return "" if count == size["n"] else f"{units.count(count)} {_operation(options).things}"

    def reference_bytes(self, size: Size, dtype: str, options: Options) -> float:
        """Half a dozen float64 or int64 temporaries of the largest array's size, in reference and
        comparison."""
        return 48.0 * max(
            spec.nbytes // ITEMSIZE[spec.dtype]
            for spec in self.arrays(size, dtype, options).values()
        )


def _operation(options: Options) -> Operation:
    """Raises UsageProblem where the header names no operation that exists."""
    name = str(options.get("reference", ""))
    if name not in OPERATIONS:
        raise UsageProblem(
            f"pathology has no reference '{name}'",
            f"[problem] reference is one of {', '.join(OPERATIONS)}",
        )
    return OPERATIONS[name]


PROBLEM = Pathology()
