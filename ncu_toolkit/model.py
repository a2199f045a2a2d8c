"""The values that flow between stages: frozen dataclasses, plain data, JSON at the edges (see `serialize.py`).

report file -> Profile -> Diagnosis -> view. A `Profile` is one kernel launch as ncu saw it; `Context` adds what only a ladder knows.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

SCHEMA_VERSION = 1


class Presence(enum.StrEnum):
    """The states a metric can be in. Zero is `PRESENT` with value 0."""

    PRESENT = "present"
    NOT_COLLECTED = "not collected"
    NOT_AVAILABLE = "not available on this architecture"
    UNDEFINED = "undefined"
    """Collected, but the profiler's value is NaN or infinite (for example a ratio over zero)."""


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
    chip: str = ""
    sm_count: int = 0
    l2_bytes: int = 0
    memory_bytes: int = 0
    max_sm_hz: float = 0.0
    max_memory_hz: float = 0.0
    memory_bus_bits: int = 0
    max_warps_per_sm: int = 0
    schedulers_per_sm: int = 4
    max_registers_per_sm: int = 0
    max_shared_per_sm: int = 0

    @property
    def arch(self) -> str:
        return f"sm_{self.cc[0]}{self.cc[1]}"


@dataclass(frozen=True)
class Launch:
    """What was launched. `status` is "complete" or the reason why the launch's data are not."""

    kernel: str
    """Demangled name with its signature."""
    function: str
    """Name without template and parameter lists."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int = 0
    shared_static: int = 0
    shared_dynamic: int = 0
    shared_driver: int = 0
    shared_config: int = 0
    cluster: int = 0
    stream: int = 0
    nvtx: tuple[str, ...] = ()
    """NVTX ranges open at the launch, outermost first."""
    status: str = "complete"

    @property
    def complete(self) -> bool:
        return self.status == "complete"

    @property
    def threads_per_block(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(frozen=True)
class StallStack:
    """Cycles per issued instruction by stall reason, highest first.

    `latency` is the profiler's own total (`warp_latency`); `residual` = latency - sum(reasons), shown, never asserted.
    """

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

    def share(self, reason: str) -> float:
        """The reason's share of the whole stack, 0-1."""
        return self.cycles(reason) / self.total if self.total > 0 else 0.0


@dataclass(frozen=True)
class Instruction:
    """One SASS instruction with what was counted at it. Counters are warp-level unless said; None where not collected."""

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
    """Other per-instruction figures by the short names of metrics.SOURCE_METRICS (l2_sectors, shared_wavefronts, …)."""

    @property
    def sample_count(self) -> int:
        return sum(self.samples.values())


@dataclass(frozen=True)
class InstructionMix:
    """Executed instructions by opcode with modifiers, warp level, whole launch. Empty where not collected."""

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
        """Warp instructions whose mnemonic matches `pattern`: same base opcode, all other tokens among its modifiers; `A|B` is either."""
        return sum(n for opcode, n in self.opcodes.items() if matches_opcode(opcode, pattern))

    def executed_threads(self, pattern: str) -> int:
        """Thread-level executions matching `pattern`."""
        return sum(n for opcode, n in self.thread_opcodes.items() if matches_opcode(opcode, pattern))


def matches_opcode(opcode: str, pattern: str) -> bool:
    """Whether a SASS mnemonic matches: `LDS.128` matches `LDS.U.128` and `LDS.128`, not `LDS.64`; `RED|ATOM` is either."""
    base, *modifiers = opcode.split(".")
    for alternative in pattern.split("|"):
        want_base, *want = alternative.strip().split(".")
        if base == want_base and all(token in modifiers for token in want):
            return True
    return False


@dataclass(frozen=True)
class RuleMessage:
    """One message of Nsight Compute's own rules. `speedup` in percent as ncu estimates it, `scope` global, local or empty."""

    rule: str
    title: str
    text: str
    kind: Literal["ok", "optimization", "warning", "error", "none"]
    speedup: float | None = None
    scope: str = ""
    section: str = ""


@dataclass(frozen=True)
class Origin:
    """Where a profile came from. `range_index`/`action_index` are its place in the file: the key of a launch, never its name."""

    file: str
    range_index: int
    action_index: int
    ncu_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.range_index}.{self.action_index}"


@dataclass(frozen=True)
class Context:
    """What the ladder knows of a profiled launch: which rung, at what size, and how much of its work is useful.

    `flops` and `compulsory_bytes` are for this one launch; None for launches that are not a rung's only launch.
    """

    family: str
    rung: str
    size: str
    dtype: str
    dims: Mapping[str, int]
    parameters: Mapping[str, int]
    launch_index: int = 0
    launch_count: int = 1
    flops: float | None = None
    compulsory_bytes: float | None = None
    repeat: int = 1


@dataclass(frozen=True)
class Profile:
    """One kernel launch as the report holds it."""

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

    def __repr__(self) -> str:
        """Which launch it is: all of its data would be megabytes."""
        duration = "no duration" if self.duration_us is None else f"{self.duration_us:.4g} us"
        return f"<Profile of {self.launch.function or self.launch.kernel!r}, {duration}, {self.launch.status}, from {self.origin.file!r}>"

    def reading(self, name: str) -> Reading:
        return self.readings.get(name) or Reading(name, None, "", Presence.NOT_COLLECTED)

    def value(self, name: str) -> float | None:
        """The metric's value in the registry's unit, or None where it is not present."""
        return self.reading(name).value

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


Comparison = Literal[">", ">=", "<", "<=", "==", ""]
_COMPARED: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq,
}  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """One measured fact a finding rests on. `threshold` and `comparison` are empty where the value only informs."""

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
        """Whether the value stands to the threshold as the comparison says; True where there is none."""
        return self.threshold is None or not self.comparison or _COMPARED[self.comparison](self.value, self.threshold)


@dataclass(frozen=True)
class Location:
    """An instruction or source line that holds part of the problem. `share` is its fraction (0-1) of `what`."""

    file: str
    line: int
    address: int
    sass: str
    share: float
    what: str


@dataclass(frozen=True)
class Finding:
    """One bottleneck found in one profile.

    `speedup` is the predicted factor if this cause alone were removed (>= 1, a bound), with `arithmetic` showing how;
    `saved` = 1 - 1/speedup is the fraction of time that would go. `good` marks a roof reached with useful work.
    """

    bottleneck: str
    summary: str
    confidence: Literal["high", "medium", "low"]
    evidence: tuple[Evidence, ...]
    speedup: float
    arithmetic: tuple[str, ...]
    advice: tuple[str, ...]
    look_for: str = ""
    locations: tuple[Location, ...] = ()
    good: bool = False

    @property
    def saved(self) -> float:
        return 1 - 1 / self.speedup if self.speedup > 0 and math.isfinite(self.speedup) else 0.0


@dataclass(frozen=True)
class Ruled:
    """A bottleneck that was considered and not found: ruled out by evidence, or abstained for want of inputs."""

    bottleneck: str
    outcome: Literal["ruled out", "abstained"]
    reason: str
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    """Short names of the metrics that an abstaining rule would need."""


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on one profile: `findings` ranked by predicted time saved, the first being the bottleneck; never empty."""

    findings: tuple[Finding, ...]
    considered: tuple[Ruled, ...] = ()
    bounds: Mapping[str, float] = field(default_factory=dict)
    """The time model's lower bounds in microseconds by resource name (issue, fma, shared, l1, l2, dram, latency, …)."""
    notes: tuple[str, ...] = ()

    @property
    def primary(self) -> Finding:
        return self.findings[0]

    @property
    def runners_up(self) -> tuple[Finding, ...]:
        return self.findings[1:]


def finite(value: float | None) -> float | None:
    """None for None, NaN and infinities."""
    return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True)
class Timing:
    """Unprofiled timing of one rung at one size, from CUDA events. Times in microseconds, one per repeat."""

    family: str
    rung: str
    size: str
    dtype: str
    dims: Mapping[str, int]
    parameters: Mapping[str, int]
    times_us: tuple[float, ...]
    cache: Literal["flushed", "warm"]
    flops: float
    compulsory_bytes: float
    verified_worst: float
    """max |out - ref| / bound of the verification that preceded the timing (<= 1)."""
    baseline_us: float | None = None
    """Median of the baseline interleaved with these repeats, in microseconds."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: str = ""
    energy_mj: float | None = None
    """Energy of one run in millijoules, of runs back to back (energy.py), where the GPU reports it."""
    kernels: tuple[str, ...] = ()
    """Names of the kernels a library launched, where known."""
    rested: bool = False
    """Whether the GPU rested between runs, since it slowed itself down without (timing.measure_ladder)."""

    @property
    def median_us(self) -> float:
        ordered = sorted(self.times_us)
        n = len(ordered)
        return ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2

    def quantile_us(self, q: float) -> float:
        """The q-quantile (0-1) of the repeats by linear interpolation, in microseconds."""
        ordered = sorted(self.times_us)
        position = q * (len(ordered) - 1)
        low = math.floor(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (position - low)

    @property
    def spread(self) -> float:
        """(p90 - p10) / median."""
        return (self.quantile_us(0.9) - self.quantile_us(0.1)) / self.median_us

    @property
    def flop_rate(self) -> float:
        """Useful FLOP/s at the median."""
        return self.flops / (self.median_us * 1e-6)

    @property
    def byte_rate(self) -> float:
        """Compulsory bytes/s at the median."""
        return self.compulsory_bytes / (self.median_us * 1e-6)

    @property
    def pj_per_flop(self) -> float | None:
        """Picojoules for each useful operation; None where energy was not measured or the rung has no operations."""
        return self.energy_mj * 1e9 / self.flops if self.energy_mj is not None and self.flops else None

    @property
    def pj_per_byte(self) -> float | None:
        """Picojoules for each compulsory byte."""
        return self.energy_mj * 1e9 / self.compulsory_bytes if self.energy_mj is not None and self.compulsory_bytes else None
