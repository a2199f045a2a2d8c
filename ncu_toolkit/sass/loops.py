"""Control flow of a disassembled function: its natural loops.

Read from the code alone: a loop whose body branches holds every path once, and says by
`Loop.conditional` which of its instructions a pass may leave out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ncu_toolkit.sass import branches
from ncu_toolkit.sass.branches import Block
from ncu_toolkit.sass.liveness import Liveness, of_code

if TYPE_CHECKING:
    from ncu_toolkit.sass.disassembly import Function, SassInstruction


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


def live_registers(function: Function) -> Liveness:
    """Live general registers at each of the function's instructions."""
    return of_code(function.lines, function.targets)


def loops_of(function: Function) -> tuple[Loop, ...]:
    """The natural loops reachable from the entry, by address of their header. Loops that share a
    header are one; irreducible cycles are none."""
    blocks = branches.blocks(function.lines, function.targets)
    if not blocks:
        return ()
    before: list[list[int]] = [[] for _ in blocks]
    for n, block in enumerate(blocks):
        for s in block.successors:
            before[s].append(n)
    dominators = _dominators(blocks, before)
    bodies: dict[int, set[int]] = {}
    always: dict[int, int] = {}
    for n, block in enumerate(blocks):
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
    code = [function.instructions[block.start : block.end] for block in blocks]
    loops = []
    for header, body in sorted(bodies.items()):
        depth = sum(body <= other for other in bodies.values())
        instructions = tuple(i for index in sorted(body) for i in code[index])
        around = (index for index in body if not always[header] >> index & 1)
        conditional = frozenset(i.address for index in around for i in code[index])
        start = code[header][0].address
        loops.append(Loop(start, frozenset(body), instructions, depth, conditional))
    return tuple(loops)


def _dominators(blocks: Sequence[Block], before: Sequence[Sequence[int]]) -> dict[int, int]:
    """Dominators of each block reachable from the entry, as bits by index; by iteration to the
    fixed point in reverse post-order. `before`: the predecessors of each block."""
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
