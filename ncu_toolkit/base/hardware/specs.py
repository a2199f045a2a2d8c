"""What a multiprocessor (SM) is, by compute capability 7.0 to 12.1: limits, rates, one data sheet.

Sources, by field:
- limits: "Technical Specifications per Compute Capability" in the CUDA Programming Guide and
  cuda_occupancy.h of CUDA 13.0;
- rates: "Arithmetic Instructions" in the CUDA Programming Guide, in results per cycle and SM. For
  CC 8.6 the guide's 16-bit figure is not used: the GA102 white paper gives the same operations a
  second as for FP32;
- `tensor`: the data sheet's rate over SMs and clock, rounded to the power of two;
- `l1_bytes`: "Shared Memory" in the tuning guides, and "Dissecting the NVIDIA Turing T4 GPU via
  Microbenchmarking" (Jia et al.) for CC 7.5. Reports agree: the roll-up of L1 is 2.00 times the
  percentage of its data stage on CC 7.5 (RTX 2080 Ti, T400) and 1.00 times on CC 7.0, 8.0, 8.6,
  8.9 and 9.0;
- `request_cycles`: 32 load/store units in Volta and the data-centre parts after it, 16 in Turing,
  GA10x, Orin, Ada and the RTX parts of Blackwell (NVIDIA's architecture white papers). Reports of
  CC 8.6 (A40, RTX 3070, RTX 3060 Ti) count half as many memory instructions per cycle as their
  percentage of peak would be at one; those of CC 8.0 and 9.0 count as many.

None is unknown: not published in a form used here. A capability that is not here is not guessed.

Theoretical occupancy (how many blocks of a kernel fit, which resource stops the next one, what-if
tables) follows the CUDA toolkit's occupancy calculator (cuda_occupancy.h, CUDA 13.0)."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Final

from ncu_toolkit.base.core.errors import UsageProblem

_KIB: Final = 1024
#: What all capabilities agree on: registers of an SM, all of which one block may have; the multiples
#: in which a warp is given them; and the sub-partitions, of one of which a warp's registers come.
REGISTERS: Final = 65536
REGISTER_UNIT: Final = 256
PARTITIONS: Final = 4
#: Blocks that a GPU starts a cycle of its SMs at most, where its capability has no figure of its own: eight
#: kernels of short blocks with little else in common start 0.82 to 0.84 on an H100 and an H200, none
#: more; an RTX 4090 starts 0.64 and more of 0.72 (the clock is not in that report).
BLOCK_STARTS: Final = 0.84
#: Bytes of a wavefront: 32 banks of 4 bytes.
_WAVEFRONT: Final = 128


@dataclass(frozen=True)
class Sheet:
    """A GPU's data sheet: dense 16-bit matrix operations and bytes of device memory a second.

    GeForce: with 16-bit accumulation; with 32-bit sums they do half.
    """

    gpu: str
    sms: int
    boost: float
    """Hz."""
    tensor: float
    bandwidth: float

    @property
    def bytes_per_cycle(self) -> float:
        """Bytes of device memory a cycle and SM."""
        return self.bandwidth / (self.sms * self.boost)


#: Bytes a second of NVLink each way, by the name of the GPU: half of what its data sheet gives for both.
_NVLINK: Final = (
    (r"V100-SXM", 150e9), (r"A100-SXM", 300e9), (r"[AH]800(?!.*PCIe)", 200e9),
    (r"H100 80GB HBM3|H100 SXM|H200(?! NVL)|H20\b", 450e9), (r"\bG?B[23]00\b", 900e9),
)  # fmt: skip


def nvlink(gpu: str) -> float | None:
    """Bytes a second each way that NVLink has by the data sheet; None where the name does not say
    that this GPU has it."""
    return next((rate for name, rate in _NVLINK if re.search(name, gpu)), None)


@dataclass(frozen=True)
class Sm:
    """One multiprocessor. Sizes in bytes, registers of 32 bits, rates in results per cycle."""

    cc: tuple[int, int]
    warps: int
    blocks: int
    shared_configs: tuple[int, ...]
    """Shared-memory sizes the driver can split off the L1, ascending."""
    barriers_per_block_slot: int
    request_cycles: int
    """Cycles in which the SM takes one warp's memory request."""
    fp32: int | None = None
    """FP32 fused multiply-adds."""
    half2: int | None = None
    """16-bit multiply-adds of two values each."""
    integer: int | None = None
    """The least of 32-bit add, compare, shift and logic."""
    fp64: int | None = None
    special: int | None = None
    """Reciprocal, square root, sine and the like."""
    tensor: int | None = None
    """Dense 16-bit matrix operations; on GeForce with 16-bit accumulation."""
    tensor_fp32: int | None = None
    """The same with 32-bit accumulation, where all products of the capability agree."""
    l1_bytes: int | None = None
    """Bytes that L1 and shared memory deliver."""
    sheet: Sheet | None = None
    """The GPU of this capability with most bytes for each SM."""
    block_starts: float = BLOCK_STARTS
    """Blocks that the GPU starts a cycle at most."""

    @property
    def shared(self) -> int:
        """Largest shared memory of the SM."""
        return self.shared_configs[-1]

    @property
    def shared_reserved(self) -> int:
        """What the driver takes of each block: 1 KiB from CC 8.0 on."""
        return _KIB if self.cc >= (8, 0) else 0

    @property
    def shared_per_block(self) -> int:
        """Largest that one block may have, after opting in."""
        return self.shared - self.shared_reserved

    @property
    def shared_unit(self) -> int:
        """Shared memory is given to a block in multiples of this."""
        return 128 if self.cc >= (8, 0) else 256

    @property
    def data_stage(self) -> float:
        """The part of a 128-byte wavefront that the data stage of L1 and shared memory moves a
        cycle: where its counter, which takes a wavefront a cycle for the peak, ends. 1 where it is
        not known."""
        return self.l1_bytes / _WAVEFRONT if self.l1_bytes else 1.0

    @property
    def barriers(self) -> int:
        """Named barriers of the SM."""
        return self.blocks * self.barriers_per_block_slot


def _kib(*sizes: int) -> tuple[int, ...]:
    return tuple(size * _KIB for size in sizes)


_VOLTA: Final = _kib(0, 8, 16, 32, 64, 96)
_SMALL: Final = _kib(0, 8, 16, 32, 64, 100)
_AMPERE: Final = (*_SMALL, *_kib(132, 164))
_HOPPER: Final = (*_AMPERE, *_kib(196, 228))
_V100 = Sheet("Tesla V100 SXM2", 80, 1.53e9, 125e12, 900e9)
_T4 = Sheet("Tesla T4", 40, 1.59e9, 65e12, 320e9)
_A100 = Sheet("A100 80 GB SXM", 108, 1.41e9, 312e12, 2039e9)
_RTX3090 = Sheet("GeForce RTX 3090", 82, 1.695e9, 142e12, 936e9)
_RTX4090 = Sheet("GeForce RTX 4090", 128, 2.52e9, 330.3e12, 1008e9)
_H200 = Sheet("H200 SXM", 132, 1.83e9, 989.4e12, 4800e9)
# The B200's clock is not published: it is the one at which its SMs, with the 8192 operations a
# cycle of fifth-generation tensor cores, give the sheet's rate.
_B200 = Sheet("B200", 148, 2250e12 / (148 * 8192), 2250e12, 8000e9)
_RTX5090 = Sheet("GeForce RTX 5090", 170, 2.407e9, 419e12, 1792e9)

#: By compute capability. Columns: warps, blocks, shared-memory sizes, barriers a block slot, cycles
#: a request; then rates (fp32, half2, integer, fp64, special, tensor, tensor_fp32, l1_bytes).
SPECS: Final[Mapping[tuple[int, int], Sm]] = MappingProxyType({
    sm.cc: sm
    for sm in (
        Sm((7, 0), 64, 32, _VOLTA, 2, 1, 64, 64, 64, 32, 16, 1024, 1024, 128, _V100),
        Sm((7, 2), 64, 32, _VOLTA, 2, 1, 64),
        Sm((7, 5), 32, 16, _kib(32, 64), 2, 2, 64, 64, 64, 2, 16, 1024, None, 64, _T4, 0.5),
        Sm((8, 0), 64, 32, _AMPERE, 2, 1, 64, 128, 64, 32, 16, 2048, 2048, 128, _A100),
        Sm((8, 6), 48, 16, _SMALL, 1, 2, 128, 64, 64, 2, 16, 1024, None, 128, _RTX3090),
        Sm((8, 7), 48, 16, _AMPERE, 1, 2, 128, l1_bytes=128),
        Sm((8, 9), 48, 24, _SMALL, 1, 2, 128, 64, 64, 2, 16, 1024, None, 128, _RTX4090),
        Sm((9, 0), 64, 32, _HOPPER, 2, 1, 128, 128, 64, 64, 16, 4096, 4096, 128, _H200),
        Sm((10, 0), 64, 32, _HOPPER, 2, 1, 128, 128, None, 64, 16, 8192, 8192, 128, _B200),
        Sm((10, 1), 48, 24, _HOPPER, 1, 1),
        Sm((10, 3), 64, 32, _HOPPER, 2, 1, 128, l1_bytes=128),
        Sm((11, 0), 48, 24, _HOPPER, 1, 1),
        Sm((12, 0), 48, 24, _SMALL, 1, 2, 128, 64, None, 2, 16, 1024, None, 128, _RTX5090),
        Sm((12, 1), 48, 24, _SMALL, 1, 2, 128, l1_bytes=128),
    )
})  # fmt: skip


@dataclass(frozen=True)
class Link:
    """The way to the host's memory: its name, and bytes per second in one direction at most."""

    name: str
    bandwidth: float


#: GPUs that share their memory with the host: Xavier, Orin, Thor and GB10 (CUDA for Tegra; DGX
#: Spark user guide). All of it is system memory.
_INTEGRATED: Final = frozenset({(7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
#: GPUs in one package with a Grace processor: NVLink-C2C, 450 GB/s in each direction (Grace Hopper
#: and Grace Blackwell data sheets).
_WITH_GRACE: Final = re.compile(r"\bG(H|B)[23]00\b")
_C2C: Final = Link("NVLink-C2C", 450e9)
#: PCIe of 16 lanes by the generation that the data sheets name: 3.0 until Turing, 4.0 for Ampere
#: and Ada, 5.0 after.
_PCIE: Final = (
    ((9, 0), Link("PCIe", 64e9)),
    ((8, 0), Link("PCIe", 32e9)),
    ((7, 0), Link("PCIe", 16e9)),
)


def host_link(gpu: str, cc: tuple[int, int]) -> Link | None:
    """The way from a GPU, by its name and compute capability, to the host's memory; None where
    both share one memory."""
    if cc in _INTEGRATED:
        return None
    if _WITH_GRACE.search(gpu):
        return _C2C
    return next((link for since, link in _PCIE if cc >= since), _PCIE[-1][1])


def spec(cc: tuple[int, int], what: str) -> float | None:
    """One figure of a compute capability by field name; None where it is not known."""
    sm = SPECS.get(cc)
    value = getattr(sm, what) if sm is not None else None
    return float(value) if value is not None else None


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


@cache
def _launches() -> dict[str, dict[str, float]]:
    file = resources.files("ncu_toolkit").joinpath("data", "launches.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def launch_floor(cc: tuple[int, int], blocks: int, loads: bool) -> tuple[float, float]:
    """SM cycles that a launch takes without any work (data/launches.toml): those of its start and
    end, more where it reads memory (`loads`), and on top those in which its blocks start, which fewer
    blocks shorten."""
    table = _launches()
    row = table.get("{}.{}".format(*cc), table["other"])
    first = row.get("loads", row["empty"]) if loads else row["empty"]
    return first, blocks / row["starts"]


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
        block_threads: threads per block.
        registers: registers per thread, from ptxas or the report.
        shared_static: bytes of static shared memory per block.
        shared_dynamic: bytes of dynamic shared memory per block.
        shared_config: bytes of shared memory the driver configured
            (launch__shared_mem_config_size); the largest where None.
        barriers: named barriers a block uses.

    Raises:
        UsageProblem: unknown compute capability, or a value that no kernel can have.
    """
    sm = limits_of(cc)
    _check(block_threads, registers, shared_static, shared_dynamic, barriers)
    warps = -(-block_threads // WARP_SIZE)
    per_warp = padded(registers * WARP_SIZE, REGISTER_UNIT)
    shared = shared_static + shared_dynamic
    allocated = padded(shared + sm.shared_reserved, sm.shared_unit)
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
        # reports round an allocation of 255 up to 256
        ("registers per thread", registers, 0, MAX_REGISTERS_PER_THREAD + 1),
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
    if per_warp * padded(warps, PARTITIONS) > REGISTERS:
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


def padded(value: int, unit: int) -> int:
    """A number rounded up to a multiple of `unit`."""
    return -(-value // unit) * unit


#: Registers per thread at which the next allocation of 256 per warp starts, from the fewest that
#: compilers assign.
REGISTER_STEPS = (16, *range(17, MAX_REGISTERS_PER_THREAD + 1, 8))


def what_if_registers(base: Occupancy) -> dict[int, Occupancy]:
    """The same kernel with other registers per thread: one more than a multiple of 8, from where on
    a warp is given more."""
    return {registers: _with(base, registers=registers) for registers in REGISTER_STEPS}


def what_if_shared(base: Occupancy) -> dict[int, Occupancy]:
    """The same kernel with other shared memory per block: every 1 KiB up to the most a block may
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
