"""Theoretical occupancy: how many blocks of a kernel fit on a multiprocessor, which resource stops
the next one, and what-if tables.

The limits and the arithmetic are those of the CUDA toolkit's occupancy calculator
(cuda_occupancy.h, CUDA 13.0) and of the table "Technical Specifications per Compute Capability" in
the CUDA Programming Guide. Only CC 7.0 to 12.x is known; another one is an error, not a guess."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ncu_toolkit.core.errors import UsageProblem

WARP_SIZE = 32
MAX_BLOCK_THREADS = 1024
MAX_REGISTERS_PER_THREAD = 255
MAX_BARRIERS_PER_BLOCK = 16
_KIB = 1024


@dataclass(frozen=True)
class SmLimits:
    """One multiprocessor's resources. Sizes in bytes; registers are 32-bit."""

    cc: tuple[int, int]
    warps: int
    blocks: int
    shared: int
    """Largest shared memory of the multiprocessor."""
    shared_per_block: int
    """Largest that one block may have, after opting in."""
    shared_reserved: int
    """What the driver takes of each block."""
    shared_unit: int
    shared_configs: tuple[int, ...]
    """Shared-memory sizes the driver can split off the L1, ascending."""
    barriers: int
    registers: int = 65536
    registers_per_block: int = 65536
    register_unit: int = 256
    """Registers are given to a warp in multiples of this."""
    partitions: int = 4
    """Sub-partitions: a warp's registers come from one of them."""


def _limits(
    cc: tuple[int, int], warps: int, blocks: int, configs: tuple[int, ...], barriers_per_slot: int
) -> SmLimits:
    """One row. `configs` in KiB; from CC 8.0 on the driver keeps 1 KiB of each block, so a block
    can have that much less than the largest."""
    ampere = cc >= (8, 0)
    return SmLimits(
        cc, warps, blocks, configs[-1] * _KIB, (configs[-1] - ampere) * _KIB, _KIB if ampere else 0, 128 if ampere else 256,
        tuple(c * _KIB for c in configs), blocks * barriers_per_slot,
    )  # fmt: skip


_VOLTA = (0, 8, 16, 32, 64, 96)
_SMALL = (0, 8, 16, 32, 64, 100)
_AMPERE = (*_SMALL, 132, 164)
_HOPPER = (*_AMPERE, 196, 228)

#: By compute capability: warps, blocks, shared-memory configurations in KiB, named barriers for
#: each block slot.
LIMITS: Mapping[tuple[int, int], SmLimits] = MappingProxyType({
    limits.cc: limits
    for limits in (
        _limits((7, 0), 64, 32, _VOLTA, 2),
        _limits((7, 2), 64, 32, _VOLTA, 2),
        _limits((7, 5), 32, 16, (32, 64), 2),
        _limits((8, 0), 64, 32, _AMPERE, 2),
        _limits((8, 6), 48, 16, _SMALL, 1),
        _limits((8, 7), 48, 16, _AMPERE, 1),
        _limits((8, 9), 48, 24, _SMALL, 1),
        _limits((9, 0), 64, 32, _HOPPER, 2),
        _limits((10, 0), 64, 32, _HOPPER, 2),
        _limits((10, 1), 48, 24, _HOPPER, 1),
        _limits((10, 3), 64, 32, _HOPPER, 2),
        _limits((11, 0), 48, 24, _HOPPER, 1),
        _limits((12, 0), 48, 24, _SMALL, 1),
        _limits((12, 1), 48, 24, _SMALL, 1),
    )
})  # fmt: skip

#: Cycles in which an SM takes one warp's memory request, where not 1: 32 load/store units in Volta
#: and the data-centre parts after it, 16 in Turing, GA10x, Orin, Ada and the RTX parts of Blackwell
#: (NVIDIA's architecture whitepapers). Reports of CC 8.6 (A40, RTX 3070, RTX 3060 Ti) count half as
#: many memory instructions a cycle as their percentage of peak would be at one; those of CC 8.0 and
#: 9.0 count as many.
REQUEST_CYCLES: Mapping[tuple[int, int], int] = MappingProxyType(
    {(7, 5): 2, (8, 6): 2, (8, 7): 2, (8, 9): 2, (12, 0): 2, (12, 1): 2}
)

#: What can stop the next block; the names the report shows.
RESOURCES = ("warps", "blocks", "registers", "shared memory", "barriers")


@dataclass(frozen=True)
class Occupancy:
    """How a kernel fills a multiprocessor. `limits` is the number of blocks each resource would
    allow by itself."""

    cc: tuple[int, int]
    block_threads: int
    registers: int
    shared: int
    """Static plus dynamic bytes a block asks for, without the driver's part."""
    limits: Mapping[str, int]
    warps_per_block: int
    max_warps: int
    registers_allocated: int
    """Registers a warp is given."""
    shared_allocated: int
    """Bytes a block is given, the driver's part included."""
    barriers: int = 1

    @property
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


def limits_of(cc: tuple[int, int]) -> SmLimits:
    """The limits of a compute capability. Raises UsageProblem for one that is not in LIMITS."""
    if cc not in LIMITS:
        known = ", ".join(f"{major}.{minor}" for major, minor in LIMITS)
        raise UsageProblem(
            f"occupancy of compute capability {cc[0]}.{cc[1]} is not known", f"Known are {known}"
        )
    return LIMITS[cc]


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
    per_warp = _round_up(registers * WARP_SIZE, sm.register_unit)
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


def _register_limit(sm: SmLimits, warps: int, per_warp: int) -> int:
    """Blocks by registers. A block must fit as if its warps filled all sub-partitions evenly: that
    is what the hardware checks."""
    if not per_warp:
        return sm.blocks
    if per_warp * _round_up(warps, sm.partitions) > sm.registers_per_block:
        return 0
    return sm.registers // sm.partitions // per_warp * sm.partitions // warps


def _shared_limit(sm: SmLimits, shared: int, allocated: int, config: int | None) -> int:
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


def what_if_registers(
    base: Occupancy, values: Iterable[int] = REGISTER_STEPS, shared_config: int | None = None
) -> dict[int, Occupancy]:
    """The same kernel with other registers per thread: by default one more than a multiple of 8,
    from where on a warp is given more.

    `shared_config` in this and the next two is the shared memory configured, in bytes: the largest
    where None, since the driver picks one that does not limit. Nsight Compute's own tables hold the
    one of the profiled launch."""
    return {
        v: occupancy(base.cc, base.block_threads, v, base.shared, 0, shared_config, base.barriers)
        for v in values
    }


def what_if_shared(
    base: Occupancy, values: Iterable[int] | None = None, shared_config: int | None = None
) -> dict[int, Occupancy]:
    """The same kernel with other shared memory a block, in bytes; by default every 1 KiB up to the
    most a block may have."""
    sizes = range(0, limits_of(base.cc).shared_per_block + 1, _KIB) if values is None else values
    return {
        v: occupancy(
            base.cc, base.block_threads, base.registers, v, 0, shared_config, base.barriers
        )
        for v in sizes
    }


def what_if_block(
    base: Occupancy,
    values: Iterable[int] = range(32, MAX_BLOCK_THREADS + 1, 32),
    shared_config: int | None = None,
) -> dict[int, Occupancy]:
    """The same kernel with other block sizes, its registers per thread and shared memory per block
    unchanged."""
    return {
        v: occupancy(base.cc, v, base.registers, base.shared, 0, shared_config, base.barriers)
        for v in values
    }


def next_steps(base: Occupancy) -> dict[str, int]:
    """The nearest change of each resource alone that fits one more block: registers or shared bytes
    to come down to. Absent where none does."""
    steps = {}
    for registers in range(base.registers - 1, 0, -1):
        if what_if_registers(base, [registers])[registers].active_blocks > base.active_blocks:
            steps["registers"] = registers
            break
    unit = limits_of(base.cc).shared_unit
    for shared in range((base.shared - 1) // unit * unit, -1, -unit):
        if what_if_shared(base, [shared])[shared].active_blocks > base.active_blocks:
            steps["shared memory"] = shared
            break
    return steps
