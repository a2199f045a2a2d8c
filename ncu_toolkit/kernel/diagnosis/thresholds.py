"""Limits that several rules share, each with its source. A rule's page lists those that its module
names."""

from dataclasses import dataclass
from typing import Final

from ncu_toolkit.kernel.diagnosis.time_model import SUSTAINED


@dataclass(frozen=True)
class Threshold:
    """A limit with where it comes from."""

    value: float
    source: str


STALL: Final = Threshold(0.3, "Nsight Compute's CPIStall rules name a stall from 30% of a warp's latency on")  # fmt: skip
WEAK_STALL: Final = Threshold(
    0.1,
    "10% of a warp's time: below it, full removal saves less than Nsight Compute's 10-point margin of balance",
)
#: Part of a launch up to which its start, when it waits for its parameters, is no matter.
RAMP: Final = 0.1
#: Above it, constants that miss their cache are the cause, not the chain of instructions that uses them.
CONSTANT_MISSES: Final = Threshold(
    0.5,
    "most of the time; planted chains of dependent instructions wait for constants for 0.23 to 0.45 of it, a walk through a table for 0.78",
)
BUSY: Final = Threshold(0.6, "Nsight Compute's SpeedOfLight rule: below 60% a unit is not the limit")  # fmt: skip
SATURATED: Final = Threshold(0.8, "Nsight Compute's SpeedOfLight rule: from 80% a unit is near its roof")  # fmt: skip
#: Within a tenth of what well-written kernels keep up (time_model.SUSTAINED).
NEAR: Final = Threshold(0.9 * SUSTAINED, "90% of the 80% of peak that well-written kernels sustain")
#: Large copies reach 0.88 of an H200's datasheet bandwidth, and keep its DRAM and L2 0.88 to 0.93 busy.
NEAR_BYTES: Final = Threshold(0.9 * 0.9, "90% of the 90% of peak that copies reach in device memory and L2")  # fmt: skip
WORKING: Final = Threshold(0.9, "a unit in an SM is the limit only if SMs have work for 90% of the time")  # fmt: skip
#: Traffic over the compulsory that still counts as compulsory: a quarter covers halo rows, partial
#: sectors and write-backs.
COMPULSORY: Final = Threshold(1.25, "a quarter more than compulsory: halos, partial sectors and write-backs")  # fmt: skip
REREAD: Final = Threshold(
    1.5,
    "the estimate of a product's bytes was never less than 0.88 of them; the rest is for halos and write-backs",
)
REUSE: Final = Threshold(4.0, "staging an element costs a store and a load: a reuse of 2 breaks even, a reuse of 4 halves the accesses")  # fmt: skip
#: Operations that a tile of 128 x 128 does for each byte of its 16-bit operands; tiles of that size
#: are the usual ones of libraries.
TILE: Final = 64.0
SMALL_TILE: Final = Threshold(TILE / 2, "operations per byte of a 64 x 64 tile of 16-bit operands, the least of common libraries")  # fmt: skip
FILLED: Final = Threshold(0.9, "Nsight Compute's AchievedOccupancy rule: 10 points short of the theoretical occupancy")  # fmt: skip
CHAIN: Final = Threshold(3.0, "three or more launches for one result: two are often needed, for example for a reduction's partial sums")  # fmt: skip
STARTING: Final = Threshold(0.95, "eight kernels of short blocks start 0.82 to 0.84 blocks per cycle on an H100, none more")  # fmt: skip
ONE_WAVE: Final = Threshold(1.0, "below one wave the blocks that fit on the GPU at once outnumber the grid's")  # fmt: skip
LOW_OCCUPANCY: Final = Threshold(
    0.5,
    "half of what the SM holds: Nsight Compute warns below 80%, but 50% hides arithmetic latency on every GPU since Volta",
)
LANES: Final = Threshold(24.0, "Nsight Compute's ThreadDivergence rule: below 24 of 32 lanes")
MULTIPLY_ADDS: Final = Threshold(
    0.15,
    "a matrix product written for one result a thread executes a multiply-add in about every sixth instruction or more often",
)
