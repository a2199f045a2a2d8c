"""The pathology family: small operations that pairs of kernels compute, one of each pair with a
planted defect.

A rung's [problem] table names its operation with `reference` and gives its sizes; the operations
are in `_operations.py`. The arrays follow from n and these options: `scale` times n elements, or n
over `divide`, padded where the operation works on whole tiles."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.kernel.ladder.problems._operations import OPERATIONS, Operation
from ncu_toolkit.kernel.ladder.problems.base import (
    ITEMSIZE,
    Array,
    ArraySpec,
    Case,
    Expected,
    Problem,
    Scalar,
)

#: Scalars of more than 32 bits.
_WIDE = ("first", "d0", "d1", "d2")


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
    baseline = ""
    bench_sizes = ("16777216",)
    record_sizes = ("16777216",)
    #: Kernels index with int32, and an operation may take eight times n elements.
    largest_extent = 2**26
    streams = 16

    def arrays(self, case: Case) -> Mapping[str, ArraySpec]:
        return _operation(case).arrays()

    def scalars(self, case: Case) -> Mapping[str, Scalar]:
        values = {"n": case["n"], **_operation(case).scalars()}
        return {
            name: Scalar(v, "int64" if name in _WIDE else "int32") for name, v in values.items()
        }

    def fill(self, case: Case, rng: Any, name: str, spec: ArraySpec) -> Array:
        made = _operation(case).fill(case.xp, rng, name, spec.shape)
        return super().fill(case, rng, name, spec) if made is None else made

    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
        (output,) = (name for name, spec in self.arrays(case).items() if spec.role == "output")
        return {output: _operation(case).expected(case.xp, inputs)}

    def flops(self, case: Case) -> float:
        return _operation(case).flops()

    def worked_on(self, case: Case) -> str:
        operation = _operation(case)
        same = operation.count == operation.n
        return "" if same else f"{units.count(operation.count)} {operation.things}"

    def reference_bytes(self, case: Case) -> float:
        """Half a dozen float64 or int64 temporaries of the largest array's size, in reference and
        comparison."""
        specs = self.arrays(case).values()
        return 48.0 * max(spec.nbytes // ITEMSIZE[spec.dtype] for spec in specs)


def _operation(case: Case) -> Operation:
    """Raises UsageProblem where the header names no operation that exists."""
    name = str(case.options.get("reference", ""))
    if name not in OPERATIONS:
        known = f"[problem] reference is one of {', '.join(OPERATIONS)}"
        raise UsageProblem(f"pathology has no reference '{name}'", known)
    return msgspec.convert({**case.options, "n": case["n"]}, OPERATIONS[name])


PROBLEM = Pathology()
