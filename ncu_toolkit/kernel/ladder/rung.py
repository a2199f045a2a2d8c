"""A rung as a value: what its header says, and the launch geometry that follows from it for a size.
Reading headers is in `catalogue.py`."""

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct, field

from ncu_toolkit.base.core.errors import InputProblem, UsageProblem, did_you_mean
from ncu_toolkit.kernel.ladder.expressions import Value, check_syntax, evaluate, evaluate_int

Kind = Literal["step", "regression", "planted", "baseline", "roof", "probe"]
KINDS: tuple[str, ...] = get_args(Kind)
DTYPES = (
    "bfloat16", "float16", "float32", "float64", "int32", "int64", "int8", "uint16", "uint32", "uint64", "uint8",
)  # fmt: skip
SWIZZLES = (0, 32, 64, 128)

#: Launch limits common to CC 7.0 to 12.x (CUDA Programming Guide, "Technical Specifications per
#: Compute Capability").
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
#: Most shared memory one block may have on any of them: 227 KiB (CC 9.0 and 10.x). What one device
#: allows is for `occupancy` to say.
MAX_SHARED = 227 * 1024


class Filled(str):
    """Text that is not empty."""


class Identifier(str):
    """A name in C."""


class OpcodePattern(str):
    """`LDS.128`, or `LDG.E.128|LDG.E.64` for either; see `model.matches_opcode`."""


class BottleneckId(str):
    """`shared-bank-conflict`, or "" for none."""


class ComputeCapability(str):
    """`8.0`."""


class Expression(str):
    """An expression over parameters and dimensions; see `expressions`."""


class ProfileCheck(Expression):
    """An expression that also calls the functions of profile checks."""


Extents = Annotated[tuple[Expression, ...], Meta(min_length=1, max_length=3)]
Choices = Annotated[tuple[int, ...], Meta(min_length=1)]


class TomlTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a kernel file's TOML."""


class Source(TomlTable, frozen=True):
    """Where a rung's idea comes from, with the claim made there and the GPU it was made on (""
    where there is none)."""

    document: str = ""
    claim: str = ""
    device: str = ""


class Requirement(TomlTable, frozen=True):
    """An expression that must hold, and what to tell the user where it does not."""

    check: Expression
    says: Filled


class LaunchSpec(TomlTable, frozen=True):
    """One kernel launch as the file states it: expressions, not yet numbers. Extents of `grid` and
    `block` that are left out are 1."""

    kernel: Identifier
    grid: Extents
    block: Extents
    args: tuple[str, ...]
    shared: Expression = Expression("0")
    repeat: Expression = Expression("1")


@dataclass(frozen=True)
class LaunchGeometry:
    """One kernel launch for one size: blocks, threads, dynamic shared memory in bytes, and how
    often it runs in a row."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    args: tuple[str, ...]
    repeat: int = 1

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return self.block[0] * self.block[1] * self.block[2]


class NamedTable(TomlTable, frozen=True, kw_only=True):
    """A table that has its name from the key above it, not from its own key."""

    name: str = field(name="", default="")


class Scratch(NamedTable, frozen=True, kw_only=True):
    """A device buffer between launches: NumPy dtype name, element count, whether to clear it before
    each run."""

    dtype: Literal[DTYPES]  # type: ignore[valid-type]
    count: Expression
    zeroed: bool = False


class TensorMap(NamedTable, frozen=True, kw_only=True):
    """A TMA descriptor: the array, the box as expressions (innermost first; all 0 at a size where the
    kernel does not use it), the swizzle in bytes."""

    array: str
    box: tuple[Expression, ...]
    swizzle: Literal[SWIZZLES] = 0  # type: ignore[valid-type]


class SassExpectation(TomlTable, frozen=True):
    """The static signature: opcode patterns (`model.matches_opcode`) that must and must not occur,
    and a bound on registers."""

    present: tuple[OpcodePattern, ...] = ()
    absent: tuple[OpcodePattern, ...] = ()
    max_registers: int | None = None


class ProfileExpectation(TomlTable, frozen=True):
    """One check of the dynamic signature; `sizes` empty means every recorded size."""

    says: Filled
    check: ProfileCheck
    sizes: tuple[str, ...] = ()


class Expectation(TomlTable, frozen=True):
    """What must be true of a rung. `ratio_at_least`: times faster than the rung it is compared
    with, at the recorded sizes."""

    sass: SassExpectation = SassExpectation()
    profile: tuple[ProfileExpectation, ...] = ()
    ratio_at_least: float | None = None


class SettingsModel(TomlTable, frozen=True):
    """How long a rung takes at a size, from which its parameters are chosen where no search has
    found them. Expressions read the parameters, the problem's scalars, `sm_count`, and names above
    them."""

    says: Filled
    over: dict[str, Choices]
    """Values to choose among; the header's constraints hold for what they make together."""
    time_us: Expression
    set: dict[str, Expression] = field(default_factory=dict)
    """Parameters that follow from the others and the size."""
    let: dict[str, Expression] = field(default_factory=dict)
    """Names for what is computed on the way, in their order."""


class Measured(TomlTable, frozen=True):
    """Where reality disagrees with the design: on which GPU, what was measured and why."""

    gpu: str
    says: Filled


class Header(TomlTable, frozen=True, kw_only=True, eq=False):
    """The keys of a kernel file; those of HEAD are in the block at the top."""

    title: Filled
    idea: Filled
    kind: Kind
    comparison: str | None = field(name="compared_with", default=None)
    removes: BottleneckId = BottleneckId("")
    """Id of the bottleneck that the step from `compared_with` removes, or ""."""
    capability: ComputeCapability = field(name="minimum_cc")
    arch_specific: bool = False
    library: str = ""
    """Name of the library baseline that runs instead of a kernel, or ""."""
    baseline: str = ""
    """Rung to be measured against instead of the family's baseline, or ""."""
    shapes: tuple[Requirement, ...] = ()
    source: Source = Source()
    problem: dict[str, Any] = field(default_factory=dict)
    """Options of the family's problem."""
    parameters: dict[str, int] = field(default_factory=dict)
    search: dict[str, Choices] = field(default_factory=dict)
    constraints: tuple[Requirement, ...] = field(name="constraint", default=())
    model: SettingsModel | None = None
    launches: tuple[LaunchSpec, ...] = field(name="launch", default=())
    scratch_tables: dict[str, Scratch] = field(name="scratch", default_factory=dict)
    map_tables: dict[str, TensorMap] = field(name="tensor_maps", default_factory=dict)
    expect: Expectation = Expectation()
    measured: tuple[Measured, ...] = ()


#: Settings that are timed where no search was, as many as algorithms of cuBLASLt, and how many times the
#: shortest expected time is still near.
PROMISING, NEAR_FIRST = 8, 1.15
HEAD = ("title", "idea", "kind", "compared_with", "removes")


class Rung(Header, frozen=True, kw_only=True, eq=False):
    """One kernel of a ladder, from one `.cu` file. Compared by identity: the ladder holds each
    once."""

    name: str
    family: str
    order: int
    path: Path
    text: str
    code: str
    """The device code, without the blocks before and after it."""

    @property
    def compared_with(self) -> str:
        """A rung of the same family, or `family/name`; "" for the first."""
        return self.comparison or ""

    @property
    def minimum_cc(self) -> tuple[int, int]:
        major, minor = map(int, self.capability.split("."))
        return major, minor

    @property
    def label(self) -> str:
        """`family/file`, for messages: never the path on this machine."""
        return f"kernels/{self.family}/{self.path.name}"

    def unsupported_on(self, cc: tuple[int, int]) -> str:
        """Why this rung cannot run on a device of compute capability `cc`; "" where it can."""
        if self.arch_specific and cc != self.minimum_cc:
            exactly = self.capability.replace(".", "")
            return f"{self.name} needs compute capability {self.capability} exactly (sm_{exactly}a), not {_cc(cc)}"
        if cc < self.minimum_cc:
            return f"{self.name} needs compute capability {self.capability} or newer, not {_cc(cc)}"
        return ""

    def with_parameters(self, overrides: Mapping[str, int] | None = None) -> dict[str, int]:
        """The compile-time parameters, defaults overridden, after checking the header's
        constraints. Raises UsageProblem: unknown parameter, or a combination that the rung does not
        take."""
        values = dict(self.parameters)
        for name, value in (overrides or {}).items():
            if name not in values:
                known = did_you_mean(name, values) or f"It has {', '.join(values) or 'none'}"
                raise UsageProblem(f"{self.name} has no parameter '{name}'", known)
            if value < 1 <= values[name] and value not in self.search.get(name, ()):
                what = f"{self.name} does not take {name} = {value}: it is a count"
                raise UsageProblem(what, "Choose 1 or more")
            values[name] = value
        for constraint in self.constraints:
            if not evaluate(constraint.check, values, where=f"{self.label}: constraint"):
                what = f"{self.name} does not take {_listing(values)}: {constraint.says}"
                raise UsageProblem(what, "Choose other parameters")
        return values

    def modelled(
        self, scalars: Mapping[str, Value], sm_count: int
    ) -> list[tuple[float, dict[str, int]]]:
        """The settings that the header's [model] chooses among at a size, the fastest first, each with the
        time that it expects in microseconds; none for a rung without a model. Raises InputProblem:
        an expression of the model is wrong."""
        found: list[tuple[float, dict[str, int]]] = []
        if (model := self.model) is None:
            return found
        choices, later = _choices(self)
        later = [*later, *(shape.check for shape in self.shapes)]
        for values in choices:
            names = {**scalars, **self.parameters, "sm_count": sm_count, **values}
            for name, expression in model.let.items():
                names[name] = evaluate(expression, names, where=f"{self.label}: model.{name}")
            for name, expression in model.set.items():
                names[name] = evaluate_int(expression, names, where=f"{self.label}: model.{name}")
            if all(evaluate(check, names, where=self.label) for check in later):
                time = evaluate(model.time_us, names, where=f"{self.label}: model.time_us")
                found.append((float(time), {name: int(names[name]) for name in self.parameters}))
        return sorted(found, key=lambda each: each[0])

    def promising(
        self, scalars: Mapping[str, Value], sm_count: int, count: int = PROMISING
    ) -> list[tuple[float, dict[str, int]]]:
        """The first of `modelled` that are worth timing: up to `count`, none behind the first by more than
        NEAR_FIRST, and up to two of the same tiles."""
        ranked, alike = self.modelled(scalars, sm_count), Counter[tuple[int | None, ...]]()
        found = []
        for time, values in ranked:
            tiles = tuple(map(values.get, ("BM", "BN", "CLUSTER", "ACROSS")))
            alike[tiles] += 1
            if alike[tiles] <= 2 and time <= NEAR_FIRST * ranked[0][0]:
                found.append((time, values))
        return found[:count]

    def names(
        self, scalars: Mapping[str, Value], parameters: Mapping[str, int] | None, sm_count: int
    ) -> dict[str, Value]:
        """What header expressions may read: the problem's scalars, the parameters, `sm_count`."""
        return {**scalars, **self.with_parameters(parameters), "sm_count": sm_count}

    def check_shape(
        self, scalars: Mapping[str, Value], parameters: Mapping[str, int] | None = None, sm_count: int = 1
    ) -> None:  # fmt: skip
        """Refuse a size that this rung cannot take. Raises UsageProblem: with the header's
        reason."""
        names = self.names(scalars, parameters, sm_count)
        for shape in self.shapes:
            if not evaluate(shape.check, names, where=f"{self.label}: shapes"):
                what = f"{self.name} does not take {_listing(scalars)}: {shape.says}"
                raise UsageProblem(what, "Choose another size or another kernel")

    def launch_geometry(
        self, scalars: Mapping[str, Value], parameters: Mapping[str, int] | None, sm_count: int
    ) -> tuple[LaunchGeometry, ...]:
        """The launches for one size, in order, checked against CUDA's limits. `scalars` are the
        problem's by name (`M`, `N`, `K`, …), `parameters` override the rung's. Raises UsageProblem:
        a size or parameters that the rung does not take, or a launch beyond CUDA's limits. Raises
        InputProblem: an expression of the header is wrong."""
        self.check_shape(scalars, parameters, sm_count)
        names = self.names(scalars, parameters, sm_count)
        return tuple(self._resolve(i, spec, names) for i, spec in enumerate(self.launches))

    def scratch_counts(
        self, scalars: Mapping[str, Value], parameters: Mapping[str, int] | None, sm_count: int
    ) -> dict[str, int]:
        """Elements of each scratch buffer. Raises InputProblem where an expression is wrong or a
        count negative."""
        names = self.names(scalars, parameters, sm_count)
        counts = {}
        for name, buffer in self.scratch_tables.items():
            where = f"{self.label}: scratch.{name}.count"
            counts[name] = count = evaluate_int(buffer.count, names, where=where)
            if count < 0:
                raise InputProblem(f"{where} is {count}", "A count is 0 or more")
        return counts

    def tensor_map_boxes(
        self, scalars: Mapping[str, Value], parameters: Mapping[str, int] | None, sm_count: int
    ) -> dict[str, tuple[int, ...]]:
        """Box extents of each tensor map, innermost first, each 1 to 256 (limit of
        cuTensorMapEncodeTiled); () for a map not used. Raises InputProblem beyond it."""
        names = self.names(scalars, parameters, sm_count)
        boxes = {}
        for name, table in self.map_tables.items():
            where = f"{self.label}: tensor_maps.{name}.box"
            box = tuple(evaluate_int(e, names, where=where) for e in table.box)
            boxes[name] = box = box if any(box) else ()
            if not all(1 <= extent <= 256 for extent in box):
                hint = "TMA takes boxes of 1 to 256 elements along each dimension"
                raise InputProblem(f"{where} is {list(box)}", hint)
        return boxes

    def _resolve(self, index: int, spec: LaunchSpec, names: Mapping[str, Value]) -> LaunchGeometry:
        where = f"{self.label}: launch[{index}]"
        grid = _triple(spec.grid, names, f"{where}.grid")
        block = _triple(spec.block, names, f"{where}.block")
        shared = evaluate_int(spec.shared, names, where=f"{where}.shared")
        repeat = evaluate_int(spec.repeat, names, where=f"{where}.repeat")
        # CuPy takes a str and no subclass of it
        geometry = LaunchGeometry(str(spec.kernel), grid, block, shared, spec.args, repeat)
        reason = _beyond_limits(geometry)
        if reason:
            hint = "Choose another size or other parameters"
            raise UsageProblem(f"{self.name} cannot be launched: {where}: {reason}", hint)
        return geometry


def _beyond_limits(launch: LaunchGeometry) -> str:
    """Which CUDA launch limit a geometry breaks, in words; "" where none."""
    limited = (("grid", launch.grid, MAX_GRID), ("block", launch.block, MAX_BLOCK))
    for kind, extents, limits in limited:
        for axis, extent, limit in zip("xyz", extents, limits, strict=True):
            if not 1 <= extent <= limit:
                return f"{kind} {axis} is {extent}, CUDA takes 1 to {limit}"
    if launch.threads > MAX_THREADS:
        return f"a block of {launch.threads} threads, CUDA takes at most {MAX_THREADS}"
    if not 0 <= launch.shared <= MAX_SHARED:
        return f"{launch.shared} bytes of dynamic shared memory, a block has at most {MAX_SHARED}"
    if launch.repeat < 1:
        return f"repeat is {launch.repeat}, must be 1 or more"
    return ""


def _triple(
    expressions: tuple[Expression, ...], names: Mapping[str, Value], where: str
) -> tuple[int, int, int]:
    extents = [evaluate_int(e, names, where=f"{where}[{i}]") for i, e in enumerate(expressions)]
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


@cache
def _choices(rung: Rung) -> tuple[list[dict[str, int]], list[Expression]]:
    """What a model chooses among, the same at every size, and the constraints that read what it sets."""
    model = rung.model
    assert model is not None
    every = itertools.product(*model.over.values())
    found, later = [dict(zip(model.over, values, strict=True)) for values in every], []
    for check in (constraint.check for constraint in rung.constraints):
        if check_syntax(check) & model.set.keys():
            later.append(check)
        else:
            found = [v for v in found if evaluate(check, rung.parameters | v, where=rung.label)]
    return found, later


def _cc(cc: tuple[int, int]) -> str:
    return f"{cc[0]}.{cc[1]}"


def _listing(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())
