"""What a program launched, as CUPTI's activity records tell it: no counters. Times in microseconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ncu_toolkit.base.model.profile import Device, Launch


@dataclass(frozen=True)
class PressureKind:
    """A stressor: the share of multiprocessors that it takes for itself, or 0 where it runs alongside
    the kernel on all of them. Its kernel is pressure_NAME in kernels/common/pressure.cu.

    `control` takes the same room and does nothing, to show the stressor's own effect. `resource` is
    what it loads, by the time model's name; "" for a control."""

    alone: float = 0.0
    control: str = "beside"
    resource: str = ""


#: Share of the multiprocessors of the streams: they load device memory and leave most of the GPU.
_TAKEN: Final = 1 / 4
KINDS: Final[Mapping[str, PressureKind]] = {
    "alone": PressureKind(_TAKEN, ""),
    "dram": PressureKind(_TAKEN, "alone", "dram"),
    "l2": PressureKind(_TAKEN, "alone", "l2"),
    "beside": PressureKind(control=""),
    "fp32": PressureKind(resource="issue"),
    "special": PressureKind(resource="xu"),
    "shared": PressureKind(resource="l1_data"),
    "constant": PressureKind(resource="constant"),
    "integer": PressureKind(resource="alu"),
}
#: Conditions besides the kinds of pressure: nothing, and half the resident blocks.
PLAIN: Final = "plain"
HALF: Final = "half_occupancy"


@dataclass(frozen=True)
class KernelTrace:
    """The launches of one kernel with the same grid, block and shared memory."""

    launch: Launch
    """`kernel` is the mangled name, `function` the readable one."""
    launches: int
    total_us: float
    median_us: float
    low_us: float
    """The fastest tenth of the launches took no longer, the slowest tenth no less than `high_us`."""
    high_us: float
    conditions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Times under each kind of pressure; "plain" for none. Empty without experiments."""
    rates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """How much of its speed alone it kept alongside pressure at each of those launches (0-1)."""
    missing: str = ""
    """Why runs under some kinds of pressure do not count; empty where all do."""


@dataclass(frozen=True)
class Gap:
    """Time in which the GPU ran no kernel, summed over all places between the same two kernels."""

    after: str
    before: str
    times: int
    total_us: float


@dataclass(frozen=True)
class KernelTimes:
    """One program's kernels on one GPU, and gaps, those with most time first. `span_us` is from the
    first start to the last end, `busy_us` the part of it with a kernel running."""

    device: Device
    kernels: tuple[KernelTrace, ...]
    launches: int
    span_us: float
    busy_us: float
    gaps: tuple[Gap, ...] = ()
    gap_us: float | None = None
    """Median time between the end of a kernel and the start of the next; None for one launch."""
    notes: tuple[str, ...] = ()
    cubins: tuple[Path, ...] = ()
    """Code that the program loaded."""
