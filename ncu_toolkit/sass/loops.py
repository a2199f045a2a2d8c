"""Control flow of a disassembled function: basic blocks, natural loops, and what one iteration of a
loop moves and computes.

Everything here is read from the code alone. Predicated instructions count as executed; a loop whose
body branches counts every path once, and says by `Loop.conditional` which of its instructions a
pass may leave out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ncu_toolkit.sass import branches
from ncu_toolkit.sass.branches import Block
from ncu_toolkit.sass.liveness import Liveness, of_code
from ncu_toolkit.sass.opcodes import (
    ATOMICS,
    BULK,
    GLOBAL_LOADS,
    GLOBAL_STORES,
    LOCAL,
    SHARED_LOADS,
    SHARED_STORES,
    width,
)
from ncu_toolkit.sass.operands import registers

if TYPE_CHECKING:
    from ncu_toolkit.sass.disassembly import Function, SassInstruction

#: Times a loop is assumed to run for ranking: the classic guess of 10 an level (Chaitin, "Register
#: allocation and spilling", 1982).
LOOP_WEIGHT = 10
#: Rounds of a loop's body that are replayed to fill a software pipeline; deeper prefetch than this
#: is not written.
_PIPELINE_ROUNDS = 8


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
    """Addresses of the instructions that a pass can go around: their blocks do not dominate every
    branch back to the header."""

    def bytes_of(self, opcodes: Iterable[str]) -> int:
        """Bytes one thread moves in an iteration with instructions of these base opcodes."""
        wanted = set(opcodes)
        return sum(width(i.opcode) for i in self.instructions if i.base in wanted)

    @property
    def flops(self) -> float:
        """Floating-point operations of one thread in an iteration."""
        return sum(i.flops for i in self.instructions)

    @property
    def global_bytes(self) -> int:
        return self.bytes_of(GLOBAL_LOADS | GLOBAL_STORES | (ATOMICS - {"ATOMS", "REDS"}))

    @property
    def shared_load_bytes(self) -> int:
        return self.bytes_of(SHARED_LOADS)

    @property
    def shared_store_bytes(self) -> int:
        return self.bytes_of(SHARED_STORES)

    @property
    def local_bytes(self) -> int:
        return self.bytes_of(LOCAL)

    @property
    def bulk_copies(self) -> int:
        """Copies whose size the code does not say (TMA); byte figures do not hold them."""
        return sum(i.base in BULK for i in self.instructions)

    @property
    def flops_per_global_byte(self) -> float | None:
        """Arithmetic per byte of global memory as requested, before any cache; None where the loop
        moves none, or moves it in bulk."""
        return (
            self.flops / self.global_bytes if self.global_bytes and not self.bulk_copies else None
        )

    @property
    def flops_per_shared_byte(self) -> float | None:
        """Arithmetic per byte loaded from shared memory; None where it loads none."""
        return self.flops / self.shared_load_bytes if self.shared_load_bytes else None

    @cached_property
    def in_flight(self) -> InFlight:
        return loads_in_flight(self.instructions)

    @property
    def source_lines(self) -> tuple[tuple[str, int, int], ...]:
        """(file, line, instructions) of the body, most instructions first."""
        counts = Counter((i.file, i.line) for i in self.instructions if i.file)
        return tuple((file, line, n) for (file, line), n in counts.most_common())


@dataclass(frozen=True)
class InFlight:
    """Most global loads, and most bytes, that one thread can have outstanding in a loop."""

    loads: int
    bytes: int


def blocks_of(function: Function) -> tuple[Block, ...]:
    """The function's basic blocks; an indirect branch goes where nvdisasm says."""
    return branches.blocks(function.instructions, _targets(function))


def _targets(function: Function) -> dict[int, tuple[int, ...]]:
    """Indices of the instructions that each branch, call or BSSY names, by its own."""
    index = {i.address: n for n, i in enumerate(function.instructions)}
    return {
        n: tuple(index[t] for t in i.targets if t in index)
        for n, i in enumerate(function.instructions)
        if i.targets
    }


def loops_of(function: Function) -> tuple[Loop, ...]:
    """The natural loops reachable from the entry, by address of their header. Loops that share a
    header are one; irreducible cycles are none."""
    blocks = blocks_of(function)
    if not blocks:
        return ()
    dominators = _dominators(blocks)
    predecessors: dict[int, list[int]] = {n: [] for n in range(len(blocks))}
    for n, block in enumerate(blocks):
        for s in block.successors:
            predecessors[s].append(n)
    bodies: dict[int, set[int]] = {}
    always: dict[int, int] = {}
    for n, block in enumerate(blocks):
        for header in block.successors:
            if dominators.get(n, 0) >> header & 1:
                bodies.setdefault(header, {header}).update(
                    _body(header, n, predecessors, dominators)
                )
                always[header] = always.get(header, -1) & dominators[n]
    code = [function.instructions[block.start : block.end] for block in blocks]
    loops = []
    for header, body in sorted(bodies.items()):
        depth = sum(body <= other for other in bodies.values())
        instructions = tuple(i for index in sorted(body) for i in code[index])
        conditional = frozenset(
            i.address for index in body if not always[header] >> index & 1 for i in code[index]
        )
        loops.append(
            Loop(
                code[header][0].address,
                frozenset(body),
                instructions,
                depth,
                conditional,
            )
        )
    return tuple(loops)


def live_registers(function: Function) -> Liveness:
    """Live general registers at each of the function's instructions."""
    return of_code(function.instructions, _targets(function))


def _dominators(blocks: Sequence[Block]) -> dict[int, int]:
    """Dominators of each block reachable from the entry, as bits by index; by iteration to the
    fixed point in reverse post-order."""
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(blocks[0].successors))]
    while stack:
        node, successors = stack[-1]
        following = next((s for s in successors if s not in seen), None)
        if following is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(blocks[following].successors)))
    order.reverse()
    predecessors: dict[int, list[int]] = {n: [] for n in order}
    for n in order:
        for s in blocks[n].successors:
            predecessors[s].append(n)
    dominators = dict.fromkeys(order, -1)
    dominators[0] = 1
    changed = True
    while changed:
        changed = False
        for n in order[1:]:
            meet = -1
            for p in predecessors[n]:
                meet &= dominators[p]
            meet |= 1 << n
            if meet != dominators[n]:
                dominators[n], changed = meet, True
    return dominators


def _body(
    header: int, tail: int, predecessors: dict[int, list[int]], reachable: dict[int, int]
) -> set[int]:
    """Blocks from which `tail` is reached without passing `header`."""
    body, waiting = {header, tail}, [tail]
    while waiting:
        node = waiting.pop()
        if node == header:
            continue
        for p in predecessors[node]:
            if p in reachable and p not in body:
                body.add(p)
                waiting.append(p)
    return body


def loads_in_flight(body: Sequence[SassInstruction]) -> InFlight:
    """Most global loads that one thread has outstanding at once, replaying a loop's body until a
    pipeline would be full.

    A load to registers is outstanding until an instruction names one of its registers. Asynchronous
    copies (LDGSTS) are outstanding until DEPBAR leaves fewer groups pending than theirs; with
    mbarriers in place of DEPBAR, only until the end of the iteration, since the code does not say
    how far ahead they run. An approximation: the hardware's scoreboards are coarser and may wait
    sooner."""
    waiting: dict[int, tuple[frozenset[int], int]] = {}
    groups: list[list[int]] = []
    open_group: list[int] = []
    waits_by_group = any(i.base == "DEPBAR" for i in body)
    best_loads = best_bytes = 0
    if not any(i.base in GLOBAL_LOADS for i in body):
        return InFlight(0, 0)
    operands = [registers(i.opcode, i.operands) for i in body]
    touched = [written | read for written, read in operands]
    for _ in range(_PIPELINE_ROUNDS):
        before = best_loads, best_bytes
        if not waits_by_group:
            groups, open_group = [], []
        for at, instruction in enumerate(body):
            if waiting:
                for key in [
                    k for k, (wanted, _) in waiting.items() if not wanted.isdisjoint(touched[at])
                ]:
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
    return InFlight(best_loads, best_bytes)
