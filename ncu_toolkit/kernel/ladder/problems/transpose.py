"""The transpose family: y = x transposed, float32; the roof rung copies instead ([problem] op =
"copy")."""

from collections.abc import Mapping

from ncu_toolkit.kernel.ladder.problems.base import (
    Array,
    ArraySpec,
    Case,
    Expected,
    Problem,
    Scalar,
)


class Transpose(Problem):
    """x is (rows, cols), y is (cols, rows); for the copy y is (rows, cols)."""

    family = "transpose"
    title = "Matrix transpose"
    story = (
        "No arithmetic at all: either the reads or the writes are scattered unless the turn is made on chip. "
        "The end of the ladder is the speed of a plain copy."
    )
    dimensions = ("rows", "cols")
    operations = ("transpose", "copy")
    baseline = "copy"
    bench_sizes = ("1024", "4096", "16384")
    record_sizes = ("1024", "16384")
    largest_extent = 2**30

    def arrays(self, case: Case) -> Mapping[str, ArraySpec]:
        shape = (case["rows"], case["cols"])
        turned = shape if self.operation(case.options) == "copy" else shape[::-1]
        return {"x": ArraySpec(shape, case.dtype), "y": ArraySpec(turned, case.dtype, "output")}

    def scalars(self, case: Case) -> Mapping[str, Scalar]:
        return {**super().scalars(case), "count": Scalar(case["rows"] * case["cols"], "int64")}

    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
        """A view of x: moving data rounds nothing."""
        x = inputs["x"]
        values = x if self.operation(case.options) == "copy" else x.T
        return {"y": Expected(values, 0, "moved data is unchanged")}

    def flops(self, case: Case) -> float:
        return 0.0


PROBLEM = Transpose()
