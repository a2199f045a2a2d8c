"""What an operation of the pathology family is, and the helpers that all of them use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ncu_toolkit.ladder.expressions import ceil_div
from ncu_toolkit.ladder.problems.base import Array, ArraySpec, Expected, Options

__all__ = ["U16", "U32", "Operation", "ceil_div", "count_of", "option"]

#: Unit roundoff of float32 and of float16: half the distance from 1 to the next number.
U32, U16 = 2.0**-24, 2.0**-11


def option(options: Options, name: str, default: int = 1) -> int:
    """An integer of the rung's [problem] table."""
    return int(options.get(name, default))


def count_of(n: int, options: Options) -> int:
    """Elements of an operation at size n: n / `divide` rounded up, times `scale`."""
    return ceil_div(n, option(options, "divide")) * option(options, "scale")


class Operation(ABC):
    """One operation. `n` is the size, `o` the rung's options; array shapes in elements."""

    #: What `count_of` counts.
    things: ClassVar[str] = "elements"

    @abstractmethod
    def arrays(self, n: int, o: Options) -> dict[str, ArraySpec]:
        """Inputs and outputs by name."""

    def scalars(self, n: int, o: Options) -> dict[str, int]:
        """Integer arguments beside n."""
        return {"count": count_of(n, o)}

    def fill(self, xp: Any, rng: Any, name: str, spec: ArraySpec, n: int, o: Options) -> Array:
        """One input: floats uniform in [0, 1) unless the operation says otherwise."""
        return rng.random(spec.shape, dtype=xp.float32)

    @abstractmethod
    def expected(self, xp: Any, x: Mapping[str, Array], n: int, o: Options) -> Expected:
        """The output from float64 or exact integers, with its bound."""

    @abstractmethod
    def flops(self, n: int, o: Options) -> float:
        """Useful operations."""
