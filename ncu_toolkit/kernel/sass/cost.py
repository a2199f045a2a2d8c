"""Where a kernel's code spends its instructions: its natural loops, split into regions, and the
cycles that each unit of an SM needs for one pass through one.

The code does not show trip counts, cache hits, conflicts or waiting, so nothing here is a time: the
cycles are the least that one warp's pass costs each unit, for comparison. Instructions that a pass
can branch around count half (_CONDITIONAL_WEIGHT) in cycles, and fully elsewhere."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ncu_toolkit.base.hardware.specs import SPECS, spec
from ncu_toolkit.kernel.sass.branches import Block, blocks, predecessors
from ncu_toolkit.kernel.sass.opcodes import (
    ATOMICS,
    BULK,
    GLOBAL_LOADS,
    GLOBAL_STORES,
    LOCAL,
    LONG_PRODUCERS,
    SHARED_LOADS,
    SHARED_STORES,
    SHORT_PRODUCERS,
    WARP_SIZE,
    kind,
    registers,
    width,
    width_classes,
)

if TYPE_CHECKING:
    from ncu_toolkit.kernel.sass.opcodes import Function, SassInstruction

#: Warp instructions an SM issues a cycle: one a scheduler (CUDA C++ Programming Guide,
#: "Multiprocessor Level", CC 7.0 on).
SCHEDULERS: Final = 4
#: Cycles from an arithmetic instruction to one that needs its result, at least (CUDA C++
#: Programming Guide, "Multiprocessor Level", CC 7.0 on).
_ARITHMETIC_LATENCY: Final = 4
#: Iterations assumed for ranking: 10 a level (Chaitin, "Register allocation and spilling", 1982).
LOOP_WEIGHT: Final = 10
#: Rounds of a loop's body replayed to fill a software pipeline: no deeper prefetch is written.
_PIPELINE_ROUNDS: Final = 8
#: Bytes shared memory moves a cycle: 32 banks of 4 bytes (CUDA C++ Programming Guide, "Shared
#: Memory"). A load's results return at the same width, also where lanes read the same words.
_SHARED_BYTES: Final = 128
#: Bytes per cycle and SM of device memory without a data sheet: more than any GPU has (B200: 29).
MEMORY_BYTES: Final = 32.0
#: The predicate of padding that never runs: `@!PT LDS RZ, [RZ]` at asynchronous copies.
NEVER: Final = "@!PT"
#: Regions that a report lists for a kernel, those with most work first.
LISTED: Final = 3
#: Part of the passes that run code which a pass can branch around. Ball and Larus ("Branch
#: Prediction for Free", 1993) predict branches by patterns and toss a coin where none applies; here
#: no pattern is searched. Code behind several branches counts the same.
_CONDITIONAL_WEIGHT: Final = 0.5
_ROUNDS: Final = 8  # passes replayed for the dependency bound; the last one's length is taken

_XU: Final = frozenset({"MUFU", "I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV"})
_FLOAT_ON_ALU: Final = frozenset({"FMNMX", "FSETP", "FSEL", "FSET"})
_GLOBAL: Final = GLOBAL_LOADS | GLOBAL_STORES | (ATOMICS - {"ATOMS", "REDS"})
_WAITED: Final = frozenset((*LONG_PRODUCERS, *SHORT_PRODUCERS))


@dataclass(frozen=True)
class Region:
    """A loop's own code without inner loops, or all of a kernel without loops (`depth` 0), for one
    thread and one pass."""

    start: int
    """Address of the loop's header."""
    depth: int
    instructions: int
    kinds: Mapping[str, int]
    """Instructions by kind (opcodes.KINDS), most first."""
    opcodes: Mapping[str, int]
    """Instructions by opcode with modifiers, most first."""
    widths: Mapping[str, Mapping[str, int]]
    """Loads and stores by base opcode and bytes per thread: {"LDS": {"4": 8, "16": 12}}."""
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
    """SM cycles per warp's pass costs at least, by unit: issue, fma, half, alu, fp64, special,
    tensor, shared. See unit_cycles for the weights."""
    dependency_cycles: int
    """Least cycles of a warp's pass by arithmetic dependencies, with loads there at once."""
    memory_cycles: float
    """Cycles until device memory could deliver a warp's requested global bytes, with all SMs
    requesting at once. Weighted as `cycles`."""
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
        """Mean bytes per thread moves by an instruction of these base opcodes; None without any."""
        found = [
            (int(size), n)
            for base, sizes in self.widths.items()
            if base in opcodes
            for size, n in sizes.items()
        ]
        return sum(size * n for size, n in found) / sum(n for _, n in found) if found else None


def regions_of(function: Function, cc: tuple[int, int]) -> tuple[Region, ...]:
    """The kernel's regions, those with most work first; one for the whole code without loops.

    Work is floating-point operations, then bytes moved, then instructions, each times LOOP_WEIGHT a
    level of nesting. Of regions with equal work (aligned and general versions) the shorter is first."""
    loops, code = loops_of(function), function.instructions
    if not loops:
        whole = Loop(code[0].address if code else 0, frozenset(), code, 0)
        return (_region(whole, code, cc),)
    regions = [_region(loop, _own(loop, loops), cc) for loop in loops]
    return tuple(sorted((r for r in regions if r.instructions), key=_work))


def _own(loop: Loop, loops: Sequence[Loop]) -> tuple[SassInstruction, ...]:
    """A loop's instructions without those of the loops within it."""
    inner = {i.address for other in loops if other.blocks < loop.blocks for i in other.instructions}
    return tuple(i for i in loop.instructions if i.address not in inner)


def _work(region: Region) -> tuple[float, float, int]:
    weight = LOOP_WEIGHT**region.depth
    moved = (
        region.global_load_bytes + region.global_store_bytes + region.shared_load_bytes + region.shared_store_bytes
        + region.local_bytes
    )  # fmt: skip
    if not region.flops and not moved:
        return 0.0, 0.0, -region.instructions * weight
    return -region.flops * weight, -float(moved) * weight, region.instructions


def _region(loop: Loop, code: tuple[SassInstruction, ...], cc: tuple[int, int]) -> Region:
    """The region of a loop, or of a whole kernel, from its own code."""

    def moved(opcodes: Set[str]) -> int:
        return sum(width(i.opcode) for i in code if i.base in opcodes)

    conditional = loop.conditional & {i.address for i in code}
    requested = sum(width(i.opcode) * weight(i, conditional) for i in code if i.base in _GLOBAL)
    opcodes = Counter(i.opcode for i in code)
    kinds = Counter(kind(i.opcode) for i in code)
    places = Counter((i.file, i.line) for i in code if i.file)
    flops, bulk = sum(i.flops for i in code), sum(i.base in BULK for i in code)
    everywhere, loaded = moved(_GLOBAL), moved(SHARED_LOADS)
    loads, in_flight = loads_in_flight(code)
    return Region(
        start=loop.header,
        depth=loop.depth,
        instructions=len(code),
        kinds=dict(kinds.most_common()),
        opcodes=dict(opcodes.most_common()),
        widths={
            base: {str(size): n for size, n in sorted(sizes.items())}
            for base, sizes in sorted(width_classes(opcodes).items())
        },
        flops=flops,
        global_load_bytes=moved(GLOBAL_LOADS),
        global_store_bytes=moved(_GLOBAL - GLOBAL_LOADS),
        shared_load_bytes=loaded,
        shared_store_bytes=moved(SHARED_STORES),
        local_bytes=moved(LOCAL),
        bulk_copies=bulk,
        flops_per_global_byte=flops / everywhere if everywhere and not bulk else None,
        flops_per_shared_byte=flops / loaded if loaded else None,
        loads_in_flight=loads,
        bytes_in_flight=in_flight,
        cycles=unit_cycles(code, cc, conditional),
        dependency_cycles=dependency_cycles(code),
        memory_cycles=requested * WARP_SIZE / _memory_bytes(cc),
        lines=tuple(
            (file.replace("\\", "/").rsplit("/", 1)[-1], line, n)
            for (file, line), n in places.most_common()
        ),
        code=code,
        conditional=conditional,
    )


def _memory_bytes(cc: tuple[int, int]) -> float:
    """Bytes of device memory a cycle and SM."""
    sm = SPECS.get(cc)
    return sm.sheet.bytes_per_cycle if sm is not None and sm.sheet is not None else MEMORY_BYTES


def weight(instruction: SassInstruction, conditional: Set[int]) -> float:
    return _CONDITIONAL_WEIGHT if instruction.address in conditional else 1.0


def unit_cycles(
    code: Sequence[SassInstruction], cc: tuple[int, int], conditional: Set[int] = frozenset()
) -> dict[str, float]:
    """Least SM cycles that one warp's pass through `code` keeps each unit busy, averaged over
    passes: no conflicts, all lanes active. Units whose rate is unknown for `cc` are left out
    (base/hardware/specs.py).

    Instructions at the addresses in `conditional` have _CONDITIONAL_WEIGHT (1/2)."""
    counts: dict[str, float] = defaultdict(float)
    for i in code:
        counts[i.base] += weight(i, conditional)
    found: dict[str, float] = {"issue": sum(counts.values()) / SCHEDULERS}
    moved = [i for i in code if i.base in SHARED_LOADS | SHARED_STORES and i.predicate != NEVER]
    found["shared"] = (
        sum(
            max(1.0, width(i.opcode) * WARP_SIZE / _SHARED_BYTES) * weight(i, conditional)
            for i in moved
        )
        + counts["SHFL"]
    )

    of: dict[str, float] = defaultdict(float)
    for name, n in counts.items():
        of[kind(name)] += n
    imad, on_alu = counts["IMAD"], sum(counts[name] for name in _FLOAT_ON_ALU)
    special = sum(counts[name] for name in _XU)
    tensor = sum(_tensor_flops(i) * weight(i, conditional) for i in code)
    # unit: what a thread requests of it, and the rate it gives (base/hardware/specs.py)
    work = {
        "fma": (of["fp32"] - on_alu + imad, "fp32"), "half": (of["fp16"], "half2"), "special": (special, "special"),
        "alu": (of["integer"] - imad + on_alu, "integer"), "fp64": (of["fp64"], "fp64"), "tensor": (tensor, "tensor"),
    }  # fmt: skip
    for unit, (asked, rate) in work.items():
        given = spec(cc, rate)
        if given is not None:
            found[unit] = asked * WARP_SIZE / given
    return {unit: cycles for unit, cycles in found.items() if cycles or unit == "issue"}


def _tensor_flops(instruction: SassInstruction) -> float:
    """Operations of a 16-bit matrix instruction, TF32's (half rate) doubled; 0 for other types."""
    if instruction.base not in ("HMMA", "HGMMA"):
        return 0.0
    return instruction.flops * (2 if "TF32" in instruction.modifiers else 1)


def dependency_cycles(code: Sequence[SassInstruction]) -> int:
    """Cycles of one warp's pass in a steady loop by arithmetic dependencies: in order, one issue a
    cycle, _ARITHMETIC_LATENCY to a use. Results of variable latency are there at once: a lower bound."""
    touched = [registers(i.opcode, i.operands) for i in code]
    arithmetic = [kind(i.opcode) not in _WAITED for i in code]
    ready: dict[int, int] = {}
    now = before = 0
    steady: dict[int, int] = {}
    for _ in range(_ROUNDS):
        before = now
        for (written, read), fixed in zip(touched, arithmetic, strict=True):
            now += 1
            for register in read:
                if (at := ready.get(register, 0)) > now:
                    now = at
            for register in written:
                ready[register] = now + (_ARITHMETIC_LATENCY if fixed else 1)
        # Passes that start alike take as long: no need to replay the rest.
        ahead = {register: at - now for register, at in ready.items() if at > now}
        if ahead == steady:
            break
        steady = ahead
    return now - before


def copy_overlap(code: Sequence[SassInstruction]) -> float | None:
    """Least part of a loop's arithmetic between committing a copy group and waiting for the last
    one; None without such a wait."""
    work = [i.flops > 0 for i in code]
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


def loads_in_flight(body: Sequence[SassInstruction]) -> tuple[int, int]:
    """Most global loads, and most bytes, that one thread has outstanding at once, by replaying a loop's
    body until a pipeline would be full.

    A load is outstanding until an instruction names one of its registers; asynchronous copies (LDGSTS)
    until DEPBAR leaves fewer groups pending, or with mbarriers to the end of the iteration, since the
    code does not say more. An approximation: the hardware's scoreboards may wait sooner."""
    waiting: dict[int, tuple[frozenset[int], int]] = {}
    groups: list[list[int]] = []
    open_group: list[int] = []
    waits_by_group = any(i.base == "DEPBAR" for i in body)
    best_loads = best_bytes = 0
    if not any(i.base in GLOBAL_LOADS for i in body):
        return 0, 0
    operands = [registers(i.opcode, i.operands) for i in body]
    touched = [written | read for written, read in operands]
    for _ in range(_PIPELINE_ROUNDS):
        before = best_loads, best_bytes
        if not waits_by_group:
            groups, open_group = [], []
        for at, instruction in enumerate(body):
            used = [k for k, (to, _) in waiting.items() if not to.isdisjoint(touched[at])]
            for key in used:
                del waiting[key]
            if instruction.base == "LDGSTS":
                open_group.append(width(instruction.opcode))
            elif instruction.base == "LDGDEPBAR":
                groups.append(open_group)
                open_group = []
            elif instruction.base == "DEPBAR":
                bound = re.search(r"0x([0-9a-f]+)\s*$", instruction.operands)
                pending = int(bound[1], 16) if bound else 0
                groups = groups[len(groups) - pending :] if pending < len(groups) else groups
            elif instruction.base in GLOBAL_LOADS:
                waiting[at] = (operands[at][0], width(instruction.opcode))
            else:
                continue
            copies = [size for group in groups for size in group] + open_group
            best_loads = max(best_loads, len(waiting) + len(copies))
            best_bytes = max(best_bytes, sum(size for _, size in waiting.values()) + sum(copies))
        if (best_loads, best_bytes) == before:
            break  # a pipeline that no longer fills
    return best_loads, best_bytes


@dataclass(frozen=True)
class Loop:
    """A natural loop. `depth` is 1 for an outermost one."""

    header: int
    """Address of the first instruction of its header."""
    blocks: frozenset[int]
    instructions: tuple[SassInstruction, ...]
    """Its body in address order, inner loops included."""
    depth: int
    conditional: frozenset[int] = frozenset()
    """Addresses of the instructions that a pass can skip: their blocks do not dominate every branch
    back to the header."""


def loops_of(function: Function) -> tuple[Loop, ...]:
    """The natural loops reachable from the entry, one for each header; irreducible cycles are none."""
    parts = blocks(function.lines, function.targets)
    if not parts:
        return ()
    before = predecessors([block.successors for block in parts])
    dominators = _dominators(parts, before)
    bodies: dict[int, set[int]] = {}
    always: dict[int, int] = {}
    for n, block in enumerate(parts):
        for header in block.successors:
            if dominators.get(n, 0) >> header & 1:
                body = bodies.setdefault(header, {header})
                waiting = [n]
                while waiting:  # what reaches the branch back without passing the header
                    node = waiting.pop()
                    if node not in body and node in dominators:
                        body.add(node)
                        waiting += before[node]
                always[header] = always.get(header, -1) & dominators[n]
    code = [function.instructions[block.start : block.end] for block in parts]
    loops = []
    for header, body in sorted(bodies.items()):
        depth = sum(body <= other for other in bodies.values())
        instructions = tuple(i for index in sorted(body) for i in code[index])
        around = (index for index in body if not always[header] >> index & 1)
        conditional = frozenset(i.address for index in around for i in code[index])
        start = code[header][0].address
        loops.append(Loop(start, frozenset(body), instructions, depth, conditional))
    return tuple(loops)


def _dominators(parts: Sequence[Block], before: Sequence[Sequence[int]]) -> dict[int, int]:
    """Dominators of each reachable block, as bits by index, by iteration in reverse post-order.
    `before`: the predecessors of each block."""
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(parts[0].successors))]
    while stack:
        node, successors = stack[-1]
        following = next((s for s in successors if s not in seen), None)
        if following is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(parts[following].successors)))
    order.reverse()
    dominators = dict.fromkeys(order, -1)
    dominators[0] = 1
    changed = True
    while changed:
        changed = False
        for n in order[1:]:
            meet = -1
            for p in before[n]:
                meet &= dominators.get(p, -1)
            meet |= 1 << n
            if meet != dominators[n]:
                dominators[n], changed = meet, True
    return dominators
