"""Where a kernel's code spends its instructions: loops split into regions, and how many cycles each
unit of an SM needs for one pass through one.

All of it is read from the code. Trip counts, cache hits, conflicts and waiting are not in the code,
so nothing here is a time: the cycles are the least that one warp's pass costs each unit, to be
compared with each other. What a pass can branch around counts for half of its cycles
(CONDITIONAL_WEIGHT); counts of instructions, bytes and operations are of the code as it stands."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from ncu_toolkit.sass import attribution
from ncu_toolkit.sass.disassembly import (
    ATOMICS,
    GLOBAL_LOADS,
    GLOBAL_STORES,
    SHARED_LOADS,
    SHARED_STORES,
    WARP_SIZE,
    Function,
    SassInstruction,
    access_bytes,
    flops,
    width_classes,
)
from ncu_toolkit.sass.loops import LOOP_WEIGHT, Loop, loops_of
from ncu_toolkit.sass.operands import registers

#: Warp instructions an SM issues a cycle: one a scheduler (CUDA C++ Programming Guide,
#: "Multiprocessor Level", CC 7.0 on).
SCHEDULERS: Final = 4
#: Cycles from an arithmetic instruction to one that needs its result, at least (CUDA C++
#: Programming Guide, "Multiprocessor Level", CC 7.0 on).
ARITHMETIC_LATENCY: Final = 4
#: Bytes shared memory moves a cycle: 32 banks of 4 bytes (CUDA C++ Programming Guide, "Shared
#: Memory"). What a load returns to the registers passes the same width, also where lanes read the
#: same words.
SHARED_BYTES: Final = 128
#: Bytes a cycle that device memory gives one SM where SHEETS does not say: no GPU there has more
#: (29 on a B200).
MEMORY_BYTES: Final = 32.0
#: The predicate of instructions that are never executed: the compiler pads asynchronous copies with
#: `@!PT LDS RZ, [RZ]`.
NEVER: Final = "@!PT"
#: Regions that a report lists for a kernel, those with most work first.
LISTED: Final = 3
#: Part of the passes that are taken to execute code which a pass can branch around. Ball and Larus
#: ("Branch Prediction for Free", 1993) predict a branch within a loop by patterns in the code, and
#: toss a coin where none applies; here none is looked for, so either way is taken as often. Every
#: such block counts the same, also one behind several branches.
CONDITIONAL_WEIGHT: Final = 0.5
_ROUNDS: Final = 8  # passes replayed for the dependency bound; the last one's length is taken

_XU: Final = frozenset({"MUFU", "I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV"})
_FLOAT_ON_ALU: Final = frozenset({"FMNMX", "FSETP", "FSEL", "FSET"})
_GLOBAL: Final = GLOBAL_LOADS | GLOBAL_STORES | (ATOMICS - {"ATOMS", "REDS"})
_WAITED: Final = frozenset((*attribution.LONG_PRODUCERS, *attribution.SHORT_PRODUCERS))


@dataclass(frozen=True)
class Sheet:
    """What a GPU's data sheet says: dense 16-bit matrix operations and bytes of device memory a
    second, and what they are for one SM and cycle."""

    gpu: str
    sms: int
    boost: float
    """Hz."""
    tensor: float
    bandwidth: float

    @property
    def tensor_per_cycle(self) -> float:
        return self.tensor / (self.sms * self.boost)

    @property
    def bytes_per_cycle(self) -> float:
        return self.bandwidth / (self.sms * self.boost)


#: By compute capability, the GPU with most bytes for each SM. GeForce: 16-bit accumulation; with
#: 32-bit sums they do half. The B200's clock is not published: it is the one at which its SMs, with
#: the 8192 operations a cycle of fifth-generation tensor cores, give the sheet's rate.
SHEETS: Final[Mapping[tuple[int, int], Sheet]] = MappingProxyType({
    (7, 0): Sheet("Tesla V100 SXM2", 80, 1.53e9, 125e12, 900e9),
    (7, 5): Sheet("Tesla T4", 40, 1.59e9, 65e12, 320e9),
    (8, 0): Sheet("A100 80 GB SXM", 108, 1.41e9, 312e12, 2039e9),
    (8, 6): Sheet("GeForce RTX 3090", 82, 1.695e9, 142e12, 936e9),
    (8, 9): Sheet("GeForce RTX 4090", 128, 2.52e9, 330.3e12, 1008e9),
    (9, 0): Sheet("H200 SXM", 132, 1.83e9, 989.4e12, 4800e9),
    (10, 0): Sheet("B200", 148, 2250e12 / (148 * 8192), 2250e12, 8000e9),
    (12, 0): Sheet("GeForce RTX 5090", 170, 2.407e9, 419e12, 1792e9),
})  # fmt: skip


@dataclass(frozen=True)
class Rates:
    """Results an SM gives each cycle, by thread; `tensor` in 16-bit dense matrix operations. None:
    not published in a form used here."""

    fp32: int
    half2: int
    integer: int | None
    fp64: int | None
    special: int
    tensor: int


#: CUDA C++ Programming Guide, "Arithmetic Instructions", results a cycle and SM: 32-bit float
#: multiply-add; half that of 16-bit, since an instruction gives two; the least of 32-bit integer
#: add, compare, shift and logic; 64-bit float multiply-add; reciprocal and the like. For CC 8.6 the
#: guide's 16-bit figure is not used: the GA102 white paper gives the same operations a second as
#: for FP32. `tensor`: SHEETS, rounded to the power of two.
RATES: Final[Mapping[tuple[int, int], Rates]] = MappingProxyType({
    (7, 0): Rates(64, 64, 64, 32, 16, 1024),
    (7, 5): Rates(64, 64, 64, 2, 16, 1024),
    (8, 0): Rates(64, 128, 64, 32, 16, 2048),
    (8, 6): Rates(128, 64, 64, 2, 16, 1024),
    (8, 9): Rates(128, 64, 64, 2, 16, 1024),
    (9, 0): Rates(128, 128, 64, 64, 16, 4096),
    (10, 0): Rates(128, 128, None, 64, 16, 8192),
    (12, 0): Rates(128, 64, None, 2, 16, 1024),
})  # fmt: skip


@dataclass(frozen=True)
class Region:
    """A loop's own code (inner loops left out), or all of a kernel without loops (`depth` 0).
    Figures are for one thread and one pass."""

    start: int
    """Address of the loop's header."""
    depth: int
    instructions: int
    kinds: Mapping[str, int]
    """Instructions by kind (attribution.KINDS), most first."""
    opcodes: Mapping[str, int]
    """Instructions by opcode with modifiers, most first."""
    widths: Mapping[str, Mapping[str, int]]
    """Loads and stores by base opcode and bytes a thread: {"LDS": {"4": 8, "16": 12}}."""
    flops: float
    global_load_bytes: int
    global_store_bytes: int
    shared_load_bytes: int
    shared_store_bytes: int
    local_bytes: int
    bulk_copies: int
    """Copies whose size the code does not say (TMA); byte figures do not hold them."""
    flops_per_global_byte: float | None
    """As requested, before any cache; None where nothing is requested, or in bulk."""
    flops_per_shared_byte: float | None
    loads_in_flight: int
    """Most global loads one thread can have outstanding."""
    bytes_in_flight: int
    cycles: Mapping[str, float]
    """SM cycles a warp's pass costs at least, by unit: issue, fma, half, alu, fp64, special,
    tensor, shared. See unit_cycles for the weights."""
    dependency_cycles: int
    """Cycles one warp's pass takes at least by arithmetic results it waits for, loads taken as
    there at once."""
    memory_cycles: float
    """Cycles until a warp's requested global bytes could come from device memory, all SMs asking at
    once; caches are faster. Weighted as `cycles`."""
    lines: tuple[tuple[str, int, int], ...]
    """(file name, line, instructions), most instructions first."""
    code: tuple[SassInstruction, ...]
    conditional: frozenset[int] = frozenset()
    """Addresses of its instructions that a pass can branch around; none outside of loops."""

    @property
    def limit(self) -> str:
        """The unit that needs most cycles, "" where the region is empty."""
        return max(self.cycles, key=lambda unit: self.cycles[unit], default="")

    @property
    def arithmetic_cycles(self) -> float:
        """Cycles of the busiest floating-point pipe."""
        return max(
            (self.cycles.get(unit, 0.0) for unit in ("fma", "half", "fp64", "tensor")), default=0.0
        )

    def share(self, *kinds: str) -> float:
        """Part (0-1) of the instructions that are of these kinds."""
        return (
            sum(self.kinds.get(kind, 0) for kind in kinds) / self.instructions
            if self.instructions
            else 0.0
        )

    def mean_width(self, opcodes: frozenset[str]) -> float | None:
        """Mean bytes a thread moves by an instruction of these base opcodes; None where there is
        none."""
        found = [
            (int(size), n)
            for base, sizes in self.widths.items()
            if base in opcodes
            for size, n in sizes.items()
        ]
        return sum(size * n for size, n in found) / sum(n for _, n in found) if found else None


def regions_of(function: Function, cc: tuple[int, int]) -> tuple[Region, ...]:
    """The kernel's regions, those with most work first; one for the whole code where it has no
    loop.

    Work is floating-point operations, then bytes moved, then instructions, each times LOOP_WEIGHT
    for every level of nesting. Of two regions with the same work, such as the aligned and the
    general version of one loop, the shorter comes first."""
    loops = loops_of(function)
    if not loops:
        return (
            _region(
                Loop(
                    function.instructions[0].address if function.instructions else 0,
                    frozenset(),
                    function.instructions,
                    0,
                    True,
                ),
                cc,
            ),
        )
    regions = [_region(replace(loop, instructions=_own(loop, loops)), cc) for loop in loops]
    return tuple(sorted((r for r in regions if r.instructions), key=_work))


def _own(loop: Loop, loops: Sequence[Loop]) -> tuple[SassInstruction, ...]:
    """A loop's instructions without those of the loops within it."""
    inner = {i.address for other in loops if other.blocks < loop.blocks for i in other.instructions}
    return tuple(i for i in loop.instructions if i.address not in inner)


def _work(region: Region) -> tuple[float, float, int]:
    weight = LOOP_WEIGHT**region.depth
    moved = (
        region.global_load_bytes
        + region.global_store_bytes
        + region.shared_load_bytes
        + region.shared_store_bytes
        + region.local_bytes
    )
    if not region.flops and not moved:
        return 0.0, 0.0, -region.instructions * weight
    return -region.flops * weight, -float(moved) * weight, region.instructions


def _region(view: Loop, cc: tuple[int, int]) -> Region:
    """The figures of a loop's own code, which `view` holds as its instructions."""
    code = view.instructions
    conditional = view.conditional & {i.address for i in code}
    requested = sum(access_bytes(i) * _weight(i, conditional) for i in code if i.base in _GLOBAL)
    opcodes = Counter(i.opcode for i in code)
    kinds = Counter(attribution.kind(i.opcode) for i in code)
    flight = view.in_flight if code else None
    return Region(
        start=view.header,
        depth=view.depth,
        instructions=len(code),
        kinds=dict(kinds.most_common()),
        opcodes=dict(opcodes.most_common()),
        widths={
            base: {str(size): n for size, n in sorted(sizes.items())}
            for base, sizes in sorted(width_classes(opcodes).items())
        },
        flops=view.flops,
        global_load_bytes=view.bytes_of(GLOBAL_LOADS),
        global_store_bytes=view.bytes_of(GLOBAL_STORES | (ATOMICS - {"ATOMS", "REDS"})),
        shared_load_bytes=view.shared_load_bytes,
        shared_store_bytes=view.shared_store_bytes,
        local_bytes=view.local_bytes,
        bulk_copies=view.bulk_copies,
        flops_per_global_byte=view.flops_per_global_byte,
        flops_per_shared_byte=view.flops_per_shared_byte,
        loads_in_flight=flight.loads if flight else 0,
        bytes_in_flight=flight.bytes if flight else 0,
        cycles=unit_cycles(code, cc, conditional),
        dependency_cycles=dependency_cycles(code),
        memory_cycles=requested
        * WARP_SIZE
        / (SHEETS[cc].bytes_per_cycle if cc in SHEETS else MEMORY_BYTES),
        lines=tuple(
            (file.replace("\\", "/").rsplit("/", 1)[-1], line, n)
            for file, line, n in view.source_lines
        ),
        code=code,
        conditional=conditional,
    )


def _weight(instruction: SassInstruction, conditional: Set[int]) -> float:
    return CONDITIONAL_WEIGHT if instruction.address in conditional else 1.0


def unit_cycles(
    code: Sequence[SassInstruction], cc: tuple[int, int], conditional: Set[int] = frozenset()
) -> dict[str, float]:
    """SM cycles that one warp's pass through `code` keeps each unit busy at least, averaged over
    passes: no conflicts, all lanes active.

    Instructions at the addresses in `conditional` are weighted CONDITIONAL_WEIGHT (1/2): a pass can
    branch around them, the code does not say how often, and an unknown branch is taken to go either
    way as often (after Ball and Larus, "Branch Prediction for Free", 1993, who let chance decide
    branches that no pattern predicts). Units whose rate is not known for `cc` are left out. Source
    of rates: RATES."""
    counts: dict[str, float] = defaultdict(float)
    for i in code:
        counts[i.base] += _weight(i, conditional)
    found: dict[str, float] = {"issue": sum(counts.values()) / SCHEDULERS}
    moved = [i for i in code if i.base in SHARED_LOADS | SHARED_STORES and i.predicate != NEVER]
    found["shared"] = (
        sum(
            max(1.0, access_bytes(i) * WARP_SIZE / SHARED_BYTES) * _weight(i, conditional)
            for i in moved
        )
        + counts["SHFL"]
    )
    rates = RATES.get(cc)
    if rates is not None:
        floats = sum(
            n
            for base, n in counts.items()
            if attribution.kind(base) == "fp32" and base not in _FLOAT_ON_ALU
        )
        found["fma"] = (floats + counts["IMAD"]) * WARP_SIZE / rates.fp32
        found["half"] = (
            sum(n for base, n in counts.items() if attribution.kind(base) == "fp16")
            * WARP_SIZE
            / rates.half2
        )
        found["special"] = sum(counts[base] for base in _XU) * WARP_SIZE / rates.special
        if rates.integer is not None:
            logic = sum(
                n
                for base, n in counts.items()
                if (attribution.kind(base) == "integer" and base != "IMAD") or base in _FLOAT_ON_ALU
            )
            found["alu"] = logic * WARP_SIZE / rates.integer
        if rates.fp64 is not None:
            found["fp64"] = (
                sum(n for base, n in counts.items() if attribution.kind(base) == "fp64")
                * WARP_SIZE
                / rates.fp64
            )
        found["tensor"] = (
            sum(_tensor_flops(i) * _weight(i, conditional) for i in code) * WARP_SIZE / rates.tensor
        )
    return {unit: cycles for unit, cycles in found.items() if cycles or unit == "issue"}


def _tensor_flops(instruction: SassInstruction) -> float:
    """Operations of a 16-bit matrix instruction; TF32 runs at half that rate and counts twice;
    types with other rates count nothing."""
    if instruction.base not in ("HMMA", "HGMMA"):
        return 0.0
    return flops(instruction) * (2 if "TF32" in instruction.modifiers else 1)


def dependency_cycles(code: Sequence[SassInstruction]) -> int:
    """Cycles one warp needs for one pass in a steady loop by arithmetic dependencies alone: in
    order, one issue a cycle, ARITHMETIC_LATENCY to a use.

    Results of loads and of the other units with variable latency are taken as there at once, so
    this is a lower bound."""
    touched = [registers(i.opcode, i.operands) for i in code]
    arithmetic = [attribution.kind(i.opcode) not in _WAITED for i in code]
    ready: dict[int, int] = {}
    now = before = 0
    for _ in range(_ROUNDS):
        before = now
        for (written, read), fixed in zip(touched, arithmetic, strict=True):
            now = max(now + 1, max((ready.get(register, 0) for register in read), default=0))
            for register in written:
                ready[register] = now + (ARITHMETIC_LATENCY if fixed else 1)
    return now - before


def copy_overlap(code: Sequence[SassInstruction]) -> float | None:
    """Least part of a loop's arithmetic between committing a group of copies and waiting for it to
    the last; None where no such wait is there."""
    work = [flops(i) > 0 for i in code]
    if not any(work) or not any(i.base == "LDGDEPBAR" for i in code):
        return None
    least = None
    for at, instruction in enumerate(code):
        if instruction.base != "DEPBAR" or not re.search(r"0x0\s*$", instruction.operands):
            continue
        between, position = 0, at - 1
        while (
            code[position].base != "LDGDEPBAR"
        ):  # wraps into the previous pass by Python's negative indices
            between += work[position]
            position -= 1
        part = between / sum(work)
        least = part if least is None else min(least, part)
    return least
