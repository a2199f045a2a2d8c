"""The values that flow between stages, as plain data: a `Profile` is one kernel launch as ncu saw
it, `Context` adds what only a ladder knows (JSON: codec.py), and a `Diagnosis` is what was found
of it."""

import enum
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Final, Literal, Protocol, Self

SCHEMA_VERSION = 1

#: How the status of a launch begins whose counters are not its own.
NOT_MEASURED: Final = "not measured"


class Presence(enum.StrEnum):
    """The states a metric can be in. Zero is `PRESENT` with value 0."""

    PRESENT = "present"
    NOT_COLLECTED = "not collected"
    NOT_AVAILABLE = "not available on this architecture"
    UNDEFINED = "undefined"
    """Collected, but the profiler's value cannot be: no number, negative, a share far above 1."""


@dataclass(frozen=True)
class Reading:
    """One metric's value in the registry's unit. `value` is None unless `presence` is PRESENT."""

    name: str
    value: float | None
    unit: str
    presence: Presence


@dataclass(frozen=True)
class Device:
    """The GPU. Rates in Hz, sizes in bytes; 0 where the report does not say."""

    name: str
    cc: tuple[int, int]
    sm_count: int = 0
    l2_bytes: int = 0
    memory_bytes: int = 0
    max_sm_hz: float = 0.0
    max_memory_hz: float = 0.0
    memory_bus_bits: int = 0
    max_warps_per_sm: int = 0
    schedulers_per_sm: int = 4
    index: int = 0
    """Its number among the GPUs of the machine."""

    @property
    def arch(self) -> str:
        return f"sm_{self.cc[0]}{self.cc[1]}"


@dataclass(frozen=True)
class Frame:
    """A call on the host under which a launch was made (`ncu --call-stack`)."""

    function: str
    """Empty where it is not known, as `file` is; `line` is 0 then."""
    file: str
    line: int
    module: str
    """The library or program that the function is in; empty for Python."""
    python: bool = False

    @property
    def own(self) -> bool:
        """Whether it is a line of the user's: no library of Python, no code that nvcc wrote."""
        if not self.file or self.line <= 0:
            return False
        return not any(part in self.file for part in _OF_OTHERS)


#: Parts of the paths of Python's own modules, of installed packages and of nvcc's stubs.
_OF_OTHERS: Final = (
    "site-packages", "dist-packages", "/lib/python3", "\\lib\\python3", "<frozen", ".cudafe1.", "/tmpxft_", "cuda_runtime",
)  # fmt: skip


#: Sizes along x, y and z.
Extents = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """What was launched. `status` is "complete" or the reason why the launch's data are not."""

    kernel: str
    """Demangled name with its signature."""
    function: str
    """Name without template and parameter lists."""
    grid: Extents | None
    """Blocks by axis; None where it is not recorded, as of a graph's kernels. An extent of 0, which
    no launch can have, becomes None too; `block` and `registers` likewise."""
    block: Extents | None
    registers: int | None = None
    shared_static: int | None = None
    """Bytes per block; None where they are not recorded."""
    shared_dynamic: int | None = None
    shared_config: int = 0
    cluster: int = 0
    stream: int = 0
    nvtx: tuple[str, ...] = ()
    """NVTX ranges open at the launch, outermost first."""
    status: str = "complete"
    workload: str = ""
    """What was profiled as one: "range", "graph" or "command list"; empty for a kernel."""
    inside: tuple[str, ...] = ()
    """Of a workload, the function of each launch in it, in order; empty if unknown."""
    stack: tuple[Frame, ...] = ()
    """Calls on the host, Python's before native ones, the innermost of each first, if recorded."""
    process: int = 0
    """The process that launched it, in a report of several; else 0."""
    idle_us: float = 0.0
    """What this kernel took in the same report, at the same grid and block, with nothing to load or
    store; 0 where no launch shows it."""

    def __post_init__(self) -> None:
        for name in ("grid", "block"):
            sizes = getattr(self, name)
            if sizes is not None and not all(sizes):
                object.__setattr__(self, name, None)
        if not self.registers:
            object.__setattr__(self, "registers", None)

    @property
    def complete(self) -> bool:
        return self.status == "complete"

    @property
    def caller(self) -> Frame | None:
        """The innermost line of the user's own code; None where no stack has one."""
        return next((frame for frame in self.stack if frame.own), None)

    @property
    def single(self) -> bool:
        """Whether it is one finished launch of a kernel, so that it can be diagnosed."""
        return self.complete and not self.workload

    @property
    def threads_per_block(self) -> int | None:
        return math.prod(self.block) if self.block else None

    @property
    def blocks(self) -> int | None:
        return math.prod(self.grid) if self.grid else None

    @property
    def shared(self) -> int | None:
        """Bytes of shared memory per block, static and dynamic; None where neither is recorded."""
        known = [each for each in (self.shared_static, self.shared_dynamic) if each is not None]
        return sum(known) if known else None


@dataclass(frozen=True)
class Series:
    """The load of a unit over time (PM sampling), 0-1 of its peak, a sample each `step_us`. Units
    may be sampled in different passes."""

    label: str
    step_us: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class StallStack:
    """Cycles per issued instruction by stall reason, highest first. `latency` is the profiler's
    total (`warp_latency`), `residual` its difference from the sum of the reasons."""

    reasons: tuple[tuple[str, float], ...]
    latency: float | None

    @cached_property
    def total(self) -> float:
        return sum(value for _, value in self.reasons)

    @property
    def residual(self) -> float | None:
        return None if self.latency is None else self.latency - self.total

    def cycles(self, reason: str) -> float:
        return dict(self.reasons).get(reason, 0.0)


@dataclass(slots=True)  # frozen, half a million take a second longer to make
class Instruction:
    """One SASS instruction with what was counted at it, warp-level unless stated; None where not."""

    index: int
    address: int
    sass: str
    opcode: str
    """Mnemonic with modifiers: `LDG.E.128`."""
    file: str = ""
    line: int = 0
    executed: int | None = None
    threads: int | None = None
    """Thread-level executions, predicated-off threads excluded where the report has that."""
    samples: Mapping[str, int] = field(default_factory=dict)
    """PC samples by stall reason, issued and not issued."""
    samples_not_issued: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    """Other counts by the short names of metrics.SOURCE_METRICS (l2_sectors, …)."""

    @property
    def base(self) -> str:
        """`LDG.E.128` gives `LDG`."""
        return self.opcode.partition(".")[0]

    @property
    def sample_count(self) -> int:
        return sum(self.samples.values()) if self.samples else 0


@dataclass(frozen=True)
class InstructionMix:
    """Executed warp instructions by opcode with modifiers; empty where not collected."""

    opcodes: Mapping[str, int]
    thread_opcodes: Mapping[str, int] = field(default_factory=dict)
    """The same at thread level, predicated-off threads excluded."""

    @property
    def collected(self) -> bool:
        return bool(self.opcodes)

    @property
    def total(self) -> int:
        return sum(self.opcodes.values())

    def executed(self, pattern: str) -> int:
        """Warp instructions whose mnemonic `matches_opcode`."""
        return sum(n for opcode, n in self.opcodes.items() if matches_opcode(opcode, pattern))


@lru_cache(maxsize=1 << 13)
def matches_opcode(opcode: str, pattern: str) -> bool:
    """Whether a SASS mnemonic matches: `LDS.128` matches `LDS.U.128` and `LDS.128`, not `LDS.64`;
    `RED|ATOM` is either."""
    base, *modifiers = opcode.split(".")
    for alternative in pattern.split("|"):
        want_base, *want = alternative.strip().split(".")
        if base == want_base and all(token in modifiers for token in want):
            return True
    return False


@dataclass(frozen=True)
class MachineCode:
    """Instructions in the embedded machine code of a launch's function, not how often they run;
    `instructions` is 0 where it was not read."""

    instructions: int = 0
    """Without those that fill the end."""
    opcodes: Mapping[str, int] = field(default_factory=dict)
    """By base opcode, of the few that are known by their word (kernel/sass/disassembly.py)."""
    indexed: int = 0
    """Accesses of local memory away from the stack pointer: of an array indexed at run time."""

    def part(self, *names: str) -> float:
        """The part (0-1) of the instructions that are of some opcodes."""
        return sum(self.opcodes.get(name, 0) for name in names) / max(1, self.instructions)


@dataclass(frozen=True)
class RuleMessage:
    """A message of Nsight Compute's own rules; `speedup` in percent, `scope` global, local or
    ""."""

    rule: str
    title: str
    text: str
    kind: Literal["ok", "optimization", "warning", "error", "none"]
    speedup: float | None = None
    scope: str = ""


@dataclass(frozen=True)
class Origin:
    """Where a profile came from: the file, and its place there, which is the key of a launch."""

    file: str
    range_index: int
    action_index: int
    ncu_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.range_index}.{self.action_index}"


@dataclass(frozen=True)
class Context:
    """What is known of a profiled launch beside its report: the rung of a ladder, its size, and how
    much of its work is useful.

    `flops` and `compulsory_bytes` are for this one launch; None unless it is a rung's only launch,
    or `--needs` gave them (`rung` is then empty)."""

    family: str = ""
    rung: str = ""
    size: str = ""
    dtype: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    launch_index: int = 0
    launch_count: int = 1
    flops: float | None = None
    compulsory_bytes: float | None = None
    repeat: int = 1
    pressure_us: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Those of the launch's RunCase, with `pressure_kept`."""
    pressure_kept: Mapping[str, float] = field(default_factory=dict)


class HasBytes(Protocol):
    """An array of any library."""

    @property
    def nbytes(self) -> int: ...


def positive(name: str, value: float) -> float:
    """The value; raises ValueError where it is no positive number."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value:g}, not a positive number")
    return float(value)


def _nbytes(name: str, arrays: Iterable[HasBytes] | HasBytes) -> int:
    """The bytes of an array, or of several, each counted once."""
    several = (arrays,) if hasattr(arrays, "nbytes") else arrays
    different = {id(array): array for array in several}.values()
    for array in different:
        if not hasattr(array, "nbytes"):
            raise TypeError(f"{name} holds a {type(array).__name__}, which has no nbytes")
    return sum(int(array.nbytes) for array in different)


@dataclass(frozen=True)
class Profile:
    """One kernel launch as the report holds it; or a range or graph that was profiled as one."""

    origin: Origin
    device: Device
    launch: Launch
    readings: Mapping[str, Reading]
    """By short name; every registry metric has one (see Presence)."""
    stalls: StallStack | None
    mix: InstructionMix
    instructions: tuple[Instruction, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    """Source text by file name as embedded in the report."""
    rules: tuple[RuleMessage, ...] = ()
    context: Context | None = None
    contradictions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Sentences naming two metrics of this launch that do not fit together, each with the metrics'
    short names, else the profiler's own; none where it concerns all of the launch."""
    timeline: tuple[Series, ...] = ()
    """Loads over time; empty where PM sampling was not collected."""
    code: MachineCode = field(default_factory=MachineCode)
    """The machine code, where no instruction was counted."""

    def __repr__(self) -> str:
        """Which launch it is: all of its data would be megabytes."""
        duration = "no duration" if self.duration_us is None else f"{self.duration_us:.4g} us"
        return f"<Profile of {self.launch.function or self.launch.kernel!r}, {duration}, {self.launch.status}, from {self.origin.file!r}>"

    def needs(
        self,
        *,
        bytes: float | None = None,
        flops: float | None = None,
        inputs: Iterable[HasBytes] | HasBytes = (),
        outputs: Iterable[HasBytes] | HasBytes = (),
    ) -> Self:
        """The same launch with what it must move and compute at the least, for its verdict.

        Args:
            bytes: compulsory bytes: each input read once, each output written once.
            flops: operations that the problem needs, a multiply-add as two.
            inputs, outputs: arrays instead of `bytes`, with `nbytes` (NumPy, CuPy, PyTorch, JAX). One
                that is both counts twice, one named twice in `inputs` once.

        Raises:
            ValueError: a figure is no positive number; both `bytes` and arrays are given.
            TypeError: something among the arrays has no `nbytes`.
        """
        moved = _nbytes("inputs", inputs) + _nbytes("outputs", outputs)
        if moved and bytes is not None:
            raise ValueError("bytes and arrays are given: leave one of them out")
        bytes = moved or bytes
        context = self.context or Context()
        if bytes is not None:
            context = replace(context, compulsory_bytes=positive("bytes", bytes))
        if flops is not None:
            context = replace(context, flops=positive("flops", flops))
        return replace(self, context=context)

    def reading(self, name: str) -> Reading:
        return self.readings.get(name) or Reading(name, None, "", Presence.NOT_COLLECTED)

    def value(self, name: str) -> float | None:
        """The metric's value in the registry's unit, or None where it is not present."""
        return self.reading(name).value

    @property
    def rung(self) -> Context | None:
        """The context of a ladder's launch; None for any other."""
        return self.context if self.context is not None and self.context.rung else None

    @property
    def duration_us(self) -> float | None:
        return self.value("duration")

    @property
    def samples(self) -> dict[str, int]:
        """PC samples by stall reason over all instructions."""
        totals: dict[str, int] = {}
        for instruction in self.instructions:
            for reason, n in instruction.samples.items():
                totals[reason] = totals.get(reason, 0) + n
        return totals


def finite(value: float | None) -> float | None:
    """None for None, NaN and infinities."""
    return value if value is not None and math.isfinite(value) else None


Comparison = Literal[">", ">=", "<", "<=", "==", ""]
_COMPARED: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq,
}  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """One measured fact of a finding; it only informs without `threshold` and `comparison`."""

    metric: str
    label: str
    value: float
    unit: str
    meaning: str
    threshold: float | None = None
    comparison: Comparison = ""
    source: str = ""
    """Where the threshold comes from."""

    @property
    def holds(self) -> bool:
        """Whether the value compares with the threshold as claimed; True where there is none."""
        return (
            self.threshold is None
            or not self.comparison
            or _COMPARED[self.comparison](self.value, self.threshold)
        )


class Advice(str):
    """A step of advice that ends in a command: `text`, then `command`."""

    text: str
    command: str

    def __new__(cls, text: str, command: str) -> Self:
        made = super().__new__(cls, f"{text}: {command}")
        made.text, made.command = text, command
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # pickle makes it of these
        return self.text, self.command


def shown_step(step: str, show: Callable[[str], str]) -> str:
    """A step of advice with its words as `show` makes them; a command stays one."""
    return Advice(show(step.text), step.command) if isinstance(step, Advice) else show(step)


@dataclass(frozen=True)
class Location:
    """An instruction or source line with part of the problem, by its `share` (0-1) of `what`."""

    file: str
    line: int
    address: int
    sass: str
    share: float
    what: str


@dataclass(frozen=True)
class Finding:
    """One bottleneck found in one profile.

    `speedup` is the predicted factor without this cause alone (>= 1, an estimate), derived in
    `arithmetic`; None where only the direction is known. `saved` = 1 - 1/speedup is the fraction of
    time that would go, 0 without a figure. `good` marks a roof reached with useful work."""

    bottleneck: str
    summary: str
    confidence: Literal["high", "medium", "low"]
    evidence: tuple[Evidence, ...]
    speedup: float | None
    arithmetic: tuple[str, ...]
    advice: tuple[str, ...]
    """Steps, of which those with a command are `Advice`."""
    look_for: str = ""
    locations: tuple[Location, ...] = ()
    good: bool = False
    relieves: Mapping[str, float] = field(default_factory=dict)
    """Resources with less work once the cause is gone, and the part (0-1) of it that stays."""
    weight: float = 0.0
    """Its rank without a figure: the most time saved (0-1) that nothing rules out. Not shown."""
    interval: tuple[float, float] | None = None
    """Factors (>= 1) around `speedup` that hold 80% of the gains on record
    (kernel/diagnosis/time_model.py); None without a figure, and at a roof."""
    statement: str = ""
    """At a roof: the summary without how near it is; empty elsewhere."""
    left: float | None = None
    """At a roof: what the best kernels reach over what this one does (>= 1), if known."""
    provided: str = ""
    """What has to hold for `speedup`, in words that follow "if"; empty where nothing has to."""

    @property
    def saved(self) -> float:
        if self.speedup is None or self.speedup <= 0 or not math.isfinite(self.speedup):
            return 0.0
        return 1 - 1 / self.speedup


@dataclass(frozen=True)
class NoFinding:
    """A bottleneck that was considered and ruled out by evidence, or abstained without inputs."""

    bottleneck: str
    outcome: Literal["ruled out", "abstained"]
    reason: str
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    """Short names of the metrics that an abstaining rule would need."""


@dataclass(frozen=True)
class Headroom:
    """The most that fixing what the verdict names can gain.

    `factor` (>= 1) is the time now over the least time that `resource` needs at its peak rate for
    the work that fixes leave it (kernel/diagnosis/engine.py). `resource` is a key of `Diagnosis.bounds`,
    `label` its words ("device memory")."""

    factor: float
    resource: str
    label: str
    beside: float = 0.0
    """Part (0-1) of the unit's work that this takes the fix to save, where none is predicted."""


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on one profile: `findings`, never empty, by predicted time saved."""

    findings: tuple[Finding, ...]
    considered: tuple[NoFinding, ...] = ()
    bounds: Mapping[str, float] = field(default_factory=dict)
    """The time model's lower bounds in microseconds by resource (issue, fma, shared, dram, …)."""
    notes: tuple[str, ...] = ()
    headroom: Headroom | None = None
    """The next roof for the first finding; None where no unit's load was collected."""

    def __repr__(self) -> str:
        """The verdict in one line: all of its evidence would be pages."""
        first, others = self.findings[0], len(self.findings) - 1
        return f"<Diagnosis {first.bottleneck}, {first.confidence} confidence, {others} runners-up>"

    @property
    def primary(self) -> Finding:
        return self.findings[0]

    @property
    def runners_up(self) -> tuple[Finding, ...]:
        return self.findings[1:]
