"""Theoretical occupancy: how many blocks of a kernel fit on a multiprocessor, which resource stops
the next one, and what-if tables.

The arithmetic is that of the CUDA toolkit's occupancy calculator (cuda_occupancy.h, CUDA 13.0); the
limits are in specs.py. A compute capability that is not there is an error, not a guess."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType

from ncu_toolkit.core.errors import UsageProblem
from ncu_toolkit.hardware.specs import PARTITIONS, REGISTER_UNIT, REGISTERS, SPECS, Sm

WARP_SIZE = 32
MAX_BLOCK_THREADS = 1024
MAX_REGISTERS_PER_THREAD = 255
MAX_BARRIERS_PER_BLOCK = 16


@dataclass(frozen=True)
class Occupancy:
    """How a kernel fills a multiprocessor. `limits` is the number of blocks each resource would
    allow by itself."""

    cc: tuple[int, int]
    block_threads: int
    registers: int
    shared: int
    """Static plus dynamic bytes a block asks for, without the driver's part."""
    limits: Mapping[str, int] = field(hash=False)
    warps_per_block: int
    max_warps: int
    registers_allocated: int
    """Registers a warp is given."""
    shared_allocated: int
    """Bytes a block is given, the driver's part included."""
    barriers: int = 1

    @cached_property
    def active_blocks(self) -> int:
        return min(self.limits.values())

    @property
    def active_warps(self) -> int:
        return self.active_blocks * self.warps_per_block

    @property
    def fraction(self) -> float:
        """Active warps over the most a multiprocessor holds, 0 to 1."""
        return self.active_warps / self.max_warps

    @property
    def percent(self) -> float:
        return 100.0 * self.fraction

    @property
    def limiters(self) -> tuple[str, ...]:
        """The resources that stop the next block, several on a tie; empty where all warps are
        active, since nothing is left to gain."""
        if self.active_warps == self.max_warps:
            return ()
        return tuple(name for name, blocks in self.limits.items() if blocks == self.active_blocks)

    def waves(self, grid_blocks: int, sm_count: int) -> float:
        """Rounds in which a grid runs; its fractional part is the tail. Infinite where no block
        fits."""
        slots = self.active_blocks * sm_count
        return grid_blocks / slots if slots else math.inf


def limits_of(cc: tuple[int, int]) -> Sm:
    """The limits of a compute capability. Raises UsageProblem for one that is not in SPECS."""
    if cc not in SPECS:
        known = ", ".join(f"{major}.{minor}" for major, minor in SPECS)
        raise UsageProblem(
            f"occupancy of compute capability {cc[0]}.{cc[1]} is not known", f"Known are {known}"
        )
    return SPECS[cc]


@lru_cache(maxsize=1 << 14)
def occupancy(
    cc: tuple[int, int],
    block_threads: int,
    registers: int,
    shared_static: int = 0,
    shared_dynamic: int = 0,
    shared_config: int | None = None,
    barriers: int = 1,
) -> Occupancy:
    """Theoretical occupancy of a kernel.

    Args:
        cc: compute capability.
        block_threads: threads a block.
        registers: registers a thread, from ptxas or the report.
        shared_static: bytes of static shared memory a block.
        shared_dynamic: bytes of dynamic shared memory a block.
        shared_config: bytes of shared memory the driver configured
            (launch__shared_mem_config_size); the largest where None.
        barriers: named barriers a block uses.

    Raises:
        UsageProblem: unknown compute capability, or a value that no kernel can have.
    """
    sm = limits_of(cc)
    _check(block_threads, registers, shared_static, shared_dynamic, barriers)
    warps = -(-block_threads // WARP_SIZE)
    per_warp = _round_up(registers * WARP_SIZE, REGISTER_UNIT)
    shared = shared_static + shared_dynamic
    allocated = _round_up(shared + sm.shared_reserved, sm.shared_unit)
    limits = {
        "warps": sm.warps // warps,
        "blocks": sm.blocks,
        "registers": _register_limit(sm, warps, per_warp),
        "shared memory": _shared_limit(sm, shared, allocated, shared_config),
        "barriers": min(sm.blocks, sm.barriers // barriers) if barriers else sm.blocks,
    }
    return Occupancy(
        cc,
        block_threads,
        registers,
        shared,
        MappingProxyType(limits),
        warps,
        sm.warps,
        per_warp,
        allocated,
        barriers,
    )


def _check(
    block_threads: int, registers: int, shared_static: int, shared_dynamic: int, barriers: int
) -> None:
    for name, value, least, most in (
        ("block size", block_threads, 1, MAX_BLOCK_THREADS),
        (
            "registers per thread",
            registers,
            0,
            MAX_REGISTERS_PER_THREAD + 1,
        ),  # reports round an allocation of 255 up to 256
        ("static shared memory", shared_static, 0, 2**31),
        ("dynamic shared memory", shared_dynamic, 0, 2**31),
        ("barriers", barriers, 0, MAX_BARRIERS_PER_BLOCK),
    ):
        if not least <= value <= most:
            raise UsageProblem(f"{name} {value} is out of range", f"It is {least} to {most}")


def _register_limit(sm: Sm, warps: int, per_warp: int) -> int:
    """Blocks by registers. A block must fit as if its warps filled all sub-partitions evenly: that
    is what the hardware checks."""
    if not per_warp:
        return sm.blocks
    if per_warp * _round_up(warps, PARTITIONS) > REGISTERS:
        return 0
    return REGISTERS // PARTITIONS // per_warp * PARTITIONS // warps


def _shared_limit(sm: Sm, shared: int, allocated: int, config: int | None) -> int:
    """Blocks by shared memory: 0 where one block cannot have so much; where the configuration is
    too small, the driver takes the next that fits."""
    if shared > sm.shared_per_block or (config or 0) > sm.shared:
        return 0
    if not allocated:
        return sm.blocks
    wanted = sm.shared if config is None else max(config, allocated)
    return next(c for c in sm.shared_configs if c >= wanted) // allocated


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


#: Registers per thread at which the next allocation of 256 a warp starts, from the fewest that
#: compilers assign.
REGISTER_STEPS = (16, *range(17, MAX_REGISTERS_PER_THREAD + 1, 8))


def what_if_registers(base: Occupancy) -> dict[int, Occupancy]:
    """The same kernel with other registers per thread: one more than a multiple of 8, from where on
    a warp is given more."""
    return {registers: _with(base, registers=registers) for registers in REGISTER_STEPS}


def what_if_shared(base: Occupancy) -> dict[int, Occupancy]:
    """The same kernel with other shared memory a block: every 1 KiB up to the most a block may
    have."""
    sizes = range(0, limits_of(base.cc).shared_per_block + 1, 1024)
    return {size: _with(base, shared_static=size) for size in sizes}


def what_if_block(base: Occupancy) -> dict[int, Occupancy]:
    """The same kernel with other block sizes, its registers per thread and shared memory per block
    unchanged."""
    sizes = range(WARP_SIZE, MAX_BLOCK_THREADS + 1, WARP_SIZE)
    return {size: _with(base, block_threads=size) for size in sizes}


def _with(base: Occupancy, **changed: int) -> Occupancy:
    """The same kernel with other arguments of `occupancy`. The driver then configures as much
    shared memory as does not limit."""
    given = {
        "block_threads": base.block_threads,
        "registers": base.registers,
        "shared_static": base.shared,
        "barriers": base.barriers,
    }
    return occupancy(base.cc, **{**given, **changed})


def next_steps(base: Occupancy) -> dict[str, int]:
    """The nearest change of each resource alone that fits one more block: registers or shared bytes
    to come down to. Absent where none does."""
    steps = {}
    for registers in range(base.registers - 1, 0, -1):
        if _with(base, registers=registers).active_blocks > base.active_blocks:
            steps["registers"] = registers
            break
    unit = limits_of(base.cc).shared_unit
    for shared in range((base.shared - 1) // unit * unit, -1, -unit):
        if _with(base, shared_static=shared).active_blocks > base.active_blocks:
            steps["shared memory"] = shared
            break
    return steps
