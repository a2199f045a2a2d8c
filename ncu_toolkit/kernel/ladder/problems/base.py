"""What a family computes: its sizes, inputs, reference, tolerance, useful work. One module a family.

Array code takes the array module of a `Case` (CuPy on a GPU, NumPy in tests), so references and
verification are tested without a GPU."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy

from ncu_toolkit.base.core.errors import UsageProblem

Array = Any  # numpy.ndarray or cupy.ndarray; the two share the interface used here
Options = Mapping[str, Any]  # a rung's [problem] table: lets one family hold several operations

#: Largest value of one dimension: kernels index with int32 along a dimension.
MAX_DIMENSION = 2**31 - 1
#: Characters of an extent: more is no size, and Python refuses thousands of digits.
_LONGEST_EXTENT = 20
_POWER = re.compile(r"\s*2\s*(?:\^|\*\*)\s*(\d{1,3})\s*")
#: Unit roundoff, relative to the value: half a unit in the last of 24, 11 or 8 significant bits.
UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


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
        return "x".join(map(str, extents[:1] if len(set(extents)) == 1 else extents))

    def __getitem__(self, name: str) -> int:
        return dict(self.dims)[name]

    def as_dict(self) -> dict[str, int]:
        return dict(self.dims)


@dataclass(frozen=True)
class Case:
    """A problem at one size: its element type, a rung's [problem] table, the module of its arrays
    (None where only sizes and work matter). `case["M"]` is an extent."""

    size: Size
    dtype: str
    options: Options = field(default_factory=dict)
    xp: Any = None

    def __getitem__(self, name: str) -> int:
        return self.size[name]


@dataclass(frozen=True)
class ArraySpec:
    """One array a kernel may name in `args`.

    `role`: input (random; integers in [0, `below`) where that is given), derived (a copy of the
    input `of` in another layout), output (poisoned before each verified run). `dtype` is a NumPy
    dtype name, or "bfloat16", which is carried as uint16 bit patterns."""

    shape: tuple[int, ...]
    dtype: str
    role: Literal["input", "derived", "output"] = "input"
    of: str = ""
    below: int = 0

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEMSIZE[self.dtype]


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
class Verified:
    """An output compared with its reference: `worst` is max |out - ref| / bound (<= 1 passes; inf
    where not finite or bound 0 is missed)."""

    output: str
    passed: bool
    worst: float
    message: str = ""


class Problem(ABC):
    """One family's problem. Subclasses are stateless. A library baseline `name` is a method
    `library_<name>(case, arrays)`; see `library`."""

    family: ClassVar[str]
    title: ClassVar[str]
    #: One or two sentences for the front page: what is computed and what limits it in the end.
    story: ClassVar[str]
    dimensions: ClassVar[tuple[str, ...]]
    #: First is the default.
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    #: What `op` of a rung's [problem] table may be. First is the default.
    operations: ClassVar[tuple[str, ...]] = ()
    #: What the ladder is ranked by: useful FLOP/s or compulsory bytes/s.
    rate: ClassVar[Literal["flop", "byte"]] = "byte"
    #: Name of the baseline rung.
    baseline: ClassVar[str]
    #: Further libraries to compare with, by what `bench --against` calls them: names for `library`.
    rivals: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: Which roof of the device bounds the family: `fp32`, `tensor`, or `copy` (measured device
    #: copy).
    roof: ClassVar[Literal["fp32", "tensor", "copy"]] = "copy"
    bench_sizes: ClassVar[tuple[str, ...]]
    #: Sizes that `record` profiles.
    record_sizes: ClassVar[tuple[str, ...]]
    #: Sizes at which `record` also profiles the library baselines, to show which kernels the
    #: library picks; none for most families.
    library_sizes: ClassVar[tuple[str, ...]] = ()
    #: Sizes at which `record` times the library and the fastest rungs alone, for the curve; none
    #: for most families.
    curve_sizes: ClassVar[tuple[str, ...]] = ()
    minimum_extent: ClassVar[int] = 1
    largest_extent: ClassVar[int] = MAX_DIMENSION
    #: Random streams of one seed, at least one for each input.
    streams: ClassVar[int] = 1

    def parse_size(self, text: str) -> Size:
        """`1024` (all dimensions alike) or `1024x512x2048` (in the order of `dimensions`); an
        extent may be a power of two, `2^22` or `2**22`. Raises UsageProblem: not a number, out of
        range, or a wrong count of extents."""
        parts = text.strip().lower().split("x")
        parts = [str(2 ** int(p[1])) if (p := _POWER.fullmatch(part)) else part for part in parts]
        names, count = "x".join(self.dimensions), len(self.dimensions)
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
        extents = [int(part) for part in parts] * (count if len(parts) == 1 else 1)
        if len(extents) != count:
            raise UsageProblem(
                f"size '{text}' has {len(extents)} extents, {self.family} takes {count}",
                f"Write one number, or {names}",
            )
        for name, extent in zip(self.dimensions, extents, strict=True):
            if self.minimum_extent <= extent <= self.largest_extent:
                continue
            small, limit = extent < self.minimum_extent, self.largest_extent
            raise UsageProblem(
                f"size '{text}': {name} = {extent} is too {'small' if small else 'large'} for {self.family}",
                f"The {'smallest' if small else 'largest'} {name} is {self.minimum_extent if small else limit}",
            )
        return Size(tuple(zip(self.dimensions, extents, strict=True)))

    def dtype(self, name: str | None) -> str:
        """The dtype to use; raises UsageProblem for one the family does not have."""
        if name is not None and name not in self.dtypes:
            takes = f"It takes {', '.join(self.dtypes)}"
            raise UsageProblem(f"{self.family} has no dtype '{name}'", takes)
        return name or self.dtypes[0]

    def case(
        self, size: str, dtype: str | None = None, options: Options | None = None, xp: Any = None
    ) -> Case:
        """The problem at a size. Raises as `parse_size` and `dtype`."""
        return Case(self.parse_size(size), self.dtype(dtype), options or {}, xp)

    def operation(self, options: Options) -> str:
        """The operation a rung computes; raises UsageProblem for one the family does not have."""
        op = str(options.get("op", self.operations[0]))
        if op not in self.operations:
            known = f"[problem] op is one of {', '.join(self.operations)}"
            raise UsageProblem(f"{self.family} has no operation '{op}'", known)
        return op

    def macros(self, dtype: str, size: Size | None = None) -> Mapping[str, str]:
        """Preprocessor macros that tell the device code its element type, and what else of a size
        it is compiled for; without a size, of the family's usual one."""
        return {f"ELEM_{dtype.upper()}": "1"}

    def arrays(self, case: Case) -> Mapping[str, ArraySpec]:
        """Every array a rung of this family may name, an input x and an output y of all dimensions
        unless the family says otherwise; only those named are allocated."""
        shape = tuple(extent for _, extent in case.size.dims)
        return {"x": ArraySpec(shape, case.dtype), "y": ArraySpec(shape, case.dtype, "output")}

    def scalars(self, case: Case) -> Mapping[str, Scalar]:
        """Scalar arguments by name, the dimensions unless the family says otherwise."""
        return {name: Scalar(extent) for name, extent in case.size.dims}

    def values(self, case: Case) -> dict[str, float]:
        """What header expressions may read: the scalars and the dimensions."""
        scalars = {name: scalar.value for name, scalar in self.scalars(case).items()}
        return scalars | case.size.as_dict()

    def make_inputs(self, case: Case, seed: int, names: Sequence[str]) -> dict[str, Array]:
        """Inputs and derived arrays among `names`, the same for the same seed. Each input has a
        random stream of its own, so it does not depend on which others are made."""
        specs, made = self.arrays(case), dict[str, Array]()
        for place, (name, spec) in enumerate(specs.items()):
            wanted = [each for each in names if name in (each, specs[each].of)]
            if spec.role == "input" and wanted:
                rng = case.xp.random.default_rng(self.streams * seed + place)
                array = self.fill(case, rng, name, spec)
                for each in wanted:
                    made[each] = array if each == name else self.derive(case, each, array)
        return made

    def fill(self, case: Case, rng: Any, name: str, spec: ArraySpec) -> Array:
        """One random input: integers below `spec.below`, else float32 uniform in [0, 1), unless the
        family says otherwise."""
        if spec.below:
            kind = getattr(case.xp, spec.dtype)
            return rng.integers(0, spec.below, size=spec.shape, dtype=kind)
        return rng.random(spec.shape, dtype=case.xp.float32)

    def derive(self, case: Case, name: str, array: Array) -> Array:
        """The derived array `name`, made from its input."""
        raise NotImplementedError(name)

    @abstractmethod
    def reference(self, case: Case, inputs: Mapping[str, Array]) -> dict[str, Expected]:
        """What each output must be, from higher precision or an exact library result, with its
        tolerance."""

    @abstractmethod
    def flops(self, case: Case) -> float:
        """Useful floating-point (or integer) operations, FMA counted as two."""

    def compulsory_bytes(self, case: Case) -> float:
        """Fewest bytes through device memory: each input read once, each output written once."""
        specs = self.arrays(case).values()
        return float(sum(spec.nbytes for spec in specs if spec.role != "derived"))

    def worked_on(self, case: Case) -> str:
        """What a rung works on where its size does not say it: `262 144 elements`; else empty."""
        return ""

    def reference_bytes(self, case: Case) -> float:
        """Extra device memory the reference needs, in bytes, so that a launch that cannot be
        verified is refused beforehand."""
        return 0.0

    def decode(self, case: Case, array: Array) -> Array:
        """An output as numbers that `compare` can subtract."""
        return from_bits(case.xp, array, case.dtype)

    def library(self, case: Case, name: str, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """A callable that runs the library baseline `name` once into the output arrays, allocating
        nothing when called. Raises UsageProblem: the family has no such library baseline."""
        bind = getattr(self, f"library_{name}", None)
        if bind is None:
            raise UsageProblem(f"{self.family} has no library baseline '{name}'")
        bound: Callable[[], None] = bind(case, arrays)
        return bound


def compare(xp: Any, output: str, got: Array, expected: Expected) -> Verified:
    """Compare an output with its reference. NaN, infinity and unwritten (poisoned) elements
    fail."""
    values = expected.values
    if got.size == 0 and values.size == 0:
        return Verified(output, True, 0.0)
    exact = values.dtype.kind in "iu"
    wide = got.astype(xp.int64 if exact else xp.float64)
    difference = xp.abs(wide - (values.astype(xp.int64) if exact else values))
    difference = difference.astype(xp.float64, copy=False)
    bound = xp.asarray(expected.bound, dtype=xp.float64)
    scaled = xp.where(bound > 0, difference / xp.where(bound > 0, bound, 1.0), xp.inf)
    ratio = xp.where(difference == 0, 0.0, scaled)
    ratio = xp.where(xp.isnan(difference), xp.inf, ratio)
    worst, wrong = float(ratio.max()), int((ratio > 1).sum())
    if wrong == 0:
        return Verified(output, True, worst)
    flat = int(xp.argmax(ratio))
    where = [int(i) for i in numpy.unravel_index(flat, got.shape)]
    message = (
        f"{output}{where} is {float(got.reshape(-1)[flat].astype(xp.float64)):.6g}, expected {float(values.reshape(-1)[flat]):.6g}; "
        f"{wrong} of {got.size} elements are off by more than allowed ({expected.why})"
    )
    return Verified(output, False, worst, message)


def uniform(xp: Any, rng: Any, shape: tuple[int, ...], low: float, high: float) -> Array:
    """float32 numbers, uniform in [low, high)."""
    values = rng.random(shape, dtype=xp.float32)
    values *= xp.float32(high - low)
    values += xp.float32(low)
    return values


def to_bits(xp: Any, values: Array, dtype: str) -> Array:
    """float32 values as stored in a type, rounded to nearest even: of bfloat16 the uint16 bit
    patterns.

    bfloat16 is the upper half of a float32. Adding 0x7FFF, and 1 more where the upper half is odd,
    carries into it exactly when the lower half is above its middle, or at it and the upper half is
    odd. A NaN keeps its upper half with the quiet bit set, since the addition could carry it into
    infinity or past the sign."""
    if dtype != "bfloat16":
        return values.astype(dtype, copy=False)
    bits = values.astype(xp.float32, copy=False).view(xp.uint32)
    upper = bits >> xp.uint32(16)
    rounded = (bits + xp.uint32(0x7FFF) + (upper & xp.uint32(1))) >> xp.uint32(16)
    return xp.where(xp.isnan(values), upper | xp.uint32(0x0040), rounded).astype(xp.uint16)


def from_bits(xp: Any, stored: Array, dtype: str) -> Array:
    """The numbers of a stored array, exactly: float32 values of the 16-bit types."""
    if dtype == "bfloat16":
        return (stored.astype(xp.uint32) << xp.uint32(16)).view(xp.float32)
    return stored.astype(xp.float32) if dtype == "float16" else stored
