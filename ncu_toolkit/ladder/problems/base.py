"""What a family computes: its sizes, inputs, reference, tolerance, useful work. One module a
family; nothing here touches a GPU by itself.

Array code takes the array module `xp` (CuPy on a GPU, NumPy in tests), so references and
verification are tested without a GPU."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from ncu_toolkit.core.errors import UsageProblem

Array = Any  # numpy.ndarray or cupy.ndarray; the two share the interface used here
Options = Mapping[str, Any]  # a rung's [problem] table: lets one family hold several operations

#: Largest value of one dimension: kernels index with int32 along a dimension.
MAX_DIMENSION = 2**31 - 1
#: Characters of an extent: more is no size, and Python refuses thousands of digits.
_LONGEST_EXTENT = 20
_POWER = re.compile(r"\s*2\s*(?:\^|\*\*)\s*(\d{1,3})\s*")


@dataclass(frozen=True)
class Size:
    """A problem size: dimension names with their extents, in the family's order."""

    dims: tuple[tuple[str, int], ...]
    #: The family's own words for it, where extents alone do not say it.
    words: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        """The family's words, else `4096` where all extents agree, else `1023x517x2049`."""
        if self.words:
            return self.words
        extents = [extent for _, extent in self.dims]
        if len(set(extents)) == 1:
            return str(extents[0])
        return "x".join(str(extent) for extent in extents)

    def __getitem__(self, name: str) -> int:
        return dict(self.dims)[name]

    def as_dict(self) -> dict[str, int]:
        return dict(self.dims)


@dataclass(frozen=True)
class ArraySpec:
    """One array a kernel may name in `args`.

    `role`: input (random), derived (made from inputs, e.g. a transposed copy), output (poisoned
    before each verified run). `dtype` is a NumPy dtype name, or "bfloat16", which is carried as
    uint16 bit patterns."""

    shape: tuple[int, ...]
    dtype: str
    role: Literal["input", "derived", "output"] = "input"

    @property
    def nbytes(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count * ITEMSIZE[self.dtype]


ITEMSIZE: Mapping[str, int] = {
    "uint8": 1, "int8": 1, "float16": 2, "bfloat16": 2, "uint16": 2, "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Scalar:
    """A scalar kernel argument with its C type as a NumPy dtype name (`int32`, `int64`,
    `float32`)."""

    value: float
    dtype: str = "int32"


@dataclass(frozen=True)
class Expected:
    """What an output must be.

    `values` in float64 (or an exact integer type), `bound` the largest absolute difference allowed,
    elementwise or one number; 0 asks for equality. `why` says where the bound comes from, for the
    failure message."""

    values: Array
    bound: Any
    why: str


@dataclass(frozen=True)
class Verdict:
    """The outcome of one verification: `worst` is max |out - ref| / bound (<= 1 passes; inf where
    not finite or bound 0 is missed)."""

    output: str
    passed: bool
    worst: float
    message: str = ""


class Problem(ABC):
    """One family's problem. Subclasses are stateless; `options` is the rung's [problem] table."""

    family: ClassVar[str]
    title: ClassVar[str]
    #: One or two sentences for the front page: what is computed and what limits it in the end.
    story: ClassVar[str]
    dimensions: ClassVar[tuple[str, ...]]
    #: First is the default.
    dtypes: ClassVar[tuple[str, ...]]
    #: What the ladder is ranked by: useful FLOP/s or compulsory bytes/s.
    rate: ClassVar[Literal["flop", "byte"]]
    #: Name of the baseline rung.
    baseline: ClassVar[str]
    #: Further libraries to compare with, by what `bench --against` calls them: names for `library`.
    rivals: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: Which roof of the device bounds the family: `fp32`, `tensor`, or `copy` (measured device
    #: copy).
    roof: ClassVar[Literal["fp32", "tensor", "copy"]]
    bench_sizes: ClassVar[tuple[str, ...]]
    #: Sizes that `record` profiles.
    record_sizes: ClassVar[tuple[str, ...]]
    #: Sizes that the GPU tests verify: round and odd.
    test_sizes: ClassVar[tuple[str, ...]]
    #: Further ones by rung, at which it takes paths that those do not reach.
    further_sizes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    #: Sizes at which `record` also profiles the library baselines, to show which kernels the
    #: library picks; none for most families.
    library_sizes: ClassVar[tuple[str, ...]] = ()
    #: Sizes at which `record` times the library and the fastest rungs alone, for the curve; none
    #: for most families.
    curve_sizes: ClassVar[tuple[str, ...]] = ()
    minimum_extent: ClassVar[int] = 1
    largest_extent: ClassVar[int] = MAX_DIMENSION

    def parse_size(self, text: str) -> Size:
        """`1024` (all dimensions alike) or `1024x512x2048` (in the order of `dimensions`); an
        extent may be a power of two, `2^22` or `2**22`.

        Raises:
            UsageProblem: not a number, out of range, or a wrong count of extents.
        """
        parts = text.strip().lower().split("x")
        names = "x".join(self.dimensions)
        powers = [_POWER.fullmatch(part) for part in parts]
        parts = [
            str(2 ** int(power[1])) if power else part
            for power, part in zip(powers, parts, strict=True)
        ]
        if not all(re.fullmatch(r"[+-]?[0-9]+", part.strip()) for part in parts):
            raise UsageProblem(
                f"size '{text}' is not a number",
                f"Give {self.family} a size such as {self.bench_sizes[0]}, or {names}",
            )
        if max(map(len, parts)) > _LONGEST_EXTENT:
            raise UsageProblem(
                f"size '{text[:40]}…' is too large for {self.family}",
                f"The largest {names} is {self.largest_extent} each",
            )
        extents = [int(part) for part in parts]
        if len(extents) == 1:
            extents = extents * len(self.dimensions)
        if len(extents) != len(self.dimensions):
            raise UsageProblem(
                f"size '{text}' has {len(extents)} extents, {self.family} takes {len(self.dimensions)}",
                f"Write one number, or {names}",
            )
        for name, extent in zip(self.dimensions, extents, strict=True):
            if extent < self.minimum_extent:
                raise UsageProblem(
                    f"size '{text}': {name} = {extent} is too small for {self.family}",
                    f"The smallest {name} is {self.minimum_extent}",
                )
            if extent > self.largest_extent:
                raise UsageProblem(
                    f"size '{text}': {name} = {extent} is too large for {self.family}",
                    f"The largest {name} is {self.largest_extent}",
                )
        return Size(tuple(zip(self.dimensions, extents, strict=True)))

    def dtype(self, name: str | None) -> str:
        """The dtype to use; raises UsageProblem for one the family does not have."""
        if name is None:
            return self.dtypes[0]
        if name not in self.dtypes:
            raise UsageProblem(
                f"{self.family} has no dtype '{name}'", f"It takes {', '.join(self.dtypes)}"
            )
        return name

    def macros(self, dtype: str, size: Size | None = None) -> Mapping[str, str]:
        """Preprocessor macros that tell the device code its element type, and what else of a size
        it is compiled for; without a size, of the family's usual one."""
        return {f"ELEM_{dtype.upper()}": "1"}

    @abstractmethod
    def arrays(self, size: Size, dtype: str, options: Options) -> Mapping[str, ArraySpec]:
        """Every array a rung of this family may name; only those named are allocated."""

    def scalars(self, size: Size, dtype: str, options: Options) -> Mapping[str, Scalar]:
        """Scalar arguments by name, the dimensions unless the family says otherwise; they are also
        visible to header expressions."""
        return {name: Scalar(extent) for name, extent in size.dims}

    @abstractmethod
    def make_inputs(
        self, xp: Any, seed: int, size: Size, dtype: str, options: Options, names: Sequence[str]
    ) -> dict[str, Array]:
        """Random inputs and derived arrays among `names`, the same for the same seed."""

    @abstractmethod
    def reference(
        self, xp: Any, inputs: Mapping[str, Array], size: Size, dtype: str, options: Options
    ) -> dict[str, Expected]:
        """What each output must be, from higher precision or an exact library result, with its
        tolerance."""

    @abstractmethod
    def flops(self, size: Size, options: Options) -> float:
        """Useful floating-point (or integer) operations, FMA counted as two."""

    @abstractmethod
    def compulsory_bytes(self, size: Size, dtype: str, options: Options) -> float:
        """Fewest bytes through device memory: each input read once, each output written once."""

    def worked_on(self, size: Size, options: Options) -> str:
        """What a rung works on where its size does not say it: `262 144 elements`; else empty."""
        return ""

    def reference_bytes(self, size: Size, dtype: str, options: Options) -> float:
        """Extra device memory the reference needs, in bytes, so that a launch that cannot be
        verified is refused beforehand."""
        return 0.0

    def decode(self, xp: Any, name: str, array: Array, dtype: str) -> Array:
        """The output `name` as numbers that `compare` can subtract. Types that the array library
        lacks are carried as bits and converted here."""
        return array

    def library(
        self,
        xp: Any,
        name: str,
        arrays: Mapping[str, Array],
        size: Size,
        dtype: str,
        options: Options,
    ) -> Callable[[], None]:
        """A callable that runs the library baseline `name` once into the output arrays, allocating
        nothing when called.

        Raises:
            UsageProblem: the family has no such library baseline.
        """
        raise UsageProblem(f"{self.family} has no library baseline '{name}'")


def compare(xp: Any, output: str, got: Array, expected: Expected) -> Verdict:
    """Hold an output against its reference. NaN, infinity and unwritten (poisoned) elements
    fail."""
    if got.size == 0 and expected.values.size == 0:
        return Verdict(output, True, 0.0)
    exact = expected.values.dtype.kind in "iu"
    if exact:
        difference = xp.abs(got.astype(xp.int64) - expected.values.astype(xp.int64)).astype(
            xp.float64
        )
    else:
        difference = xp.abs(got.astype(xp.float64) - expected.values)
    bound = xp.asarray(expected.bound, dtype=xp.float64)
    ratio = xp.where(
        difference == 0,
        0.0,
        xp.where(bound > 0, difference / xp.where(bound > 0, bound, 1.0), xp.inf),
    )
    ratio = xp.where(xp.isnan(difference), xp.inf, ratio)
    worst = float(ratio.max())
    wrong = int((ratio > 1).sum())
    if wrong == 0:
        return Verdict(output, True, worst)
    flat = int(xp.argmax(ratio))
    where = tuple(int(i) for i in _unravel(flat, got.shape))
    message = (
        f"{output}{list(where)} is {float(got.reshape(-1)[flat].astype(xp.float64)):.6g}, expected {float(expected.values.reshape(-1)[flat]):.6g}; "
        f"{wrong} of {got.size} elements are off by more than allowed ({expected.why})"
    )
    return Verdict(output, False, worst, message)


def padded(extent: int, unit: int) -> int:
    """An extent rounded up to a multiple of `unit`."""
    return -(-extent // unit) * unit


def pad_rows(xp: Any, matrix: Array, unit: int) -> Array:
    """The matrix, contiguous, with zero columns up to a multiple of `unit`; itself where there is
    nothing to do."""
    rows, columns = matrix.shape
    if columns == padded(columns, unit):
        return xp.ascontiguousarray(matrix)
    result = xp.zeros((rows, padded(columns, unit)), dtype=matrix.dtype)
    result[:, :columns] = matrix
    return result


def _unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for extent in reversed(shape):
        index.append(flat % extent)
        flat //= extent
    return tuple(reversed(index))
