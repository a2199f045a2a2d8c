"""Which instructions may have written a register that another one reads: reaching definitions over the branches of a kernel's SASS.

Reports give each instruction's address from the start of its function, and branch targets as absolute addresses. Compilers end a function with a
branch to itself, which tells where it starts, and so does the return of a subroutine in it; where both are missing, code is taken as one straight
line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ncu_toolkit.model import Instruction

_TARGET: Final = re.compile(r"0x([0-9a-f]+)\s*;?\s*$")
_JUMPS: Final = ("BRA", "JMP", "BRX", "JMX")
#: A function that is called is left out of the flow: what it is given and what it returns is not followed.
_ENDS: Final = ("EXIT", "KILL", "RET")


class Graph:
    """Basic blocks of one kernel and, on demand, the instructions whose write of a register may reach an instruction.

    `writes` holds each instruction's written registers. A predicated instruction may leave a register as it was, so what came before it
    reaches as well, unless the reader runs under the same predicate.
    """

    def __init__(self, rows: Sequence[Instruction], writes: Sequence[frozenset[int]]) -> None:
        self._writes = writes
        self._guards = [_guard(row) for row in rows]
        targets = _targets(rows)
        self.targets = targets
        """Index of the instruction that each branch may go to, by the branch's index."""
        self.known = bool(targets)
        """Whether branch targets could be told; without them code is one straight line."""
        starts = {0, *targets.values()}
        starts.update(i + 1 for i, row in enumerate(rows) if _base(row) in (*_JUMPS, *_ENDS) and i + 1 < len(rows))
        self._starts = sorted(start for start in starts if start < len(rows))
        self._block_of = [0] * len(rows)
        for block, start in enumerate(self._starts):
            for i in range(start, self._starts[block + 1] if block + 1 < len(self._starts) else len(rows)):
                self._block_of[i] = block
        self._before: list[list[int]] = [[] for _ in self._starts]
        for block in range(len(self._starts)):
            last = self._last(block)
            following = [self._block_of[targets[last]]] if last in targets else []
            if _falls_through(rows[last], bool(self._guards[last])) and block + 1 < len(self._starts):
                following.append(block + 1)
            for successor in following:
                self._before[successor].append(block)
        self._entering: dict[tuple[int, int, str], frozenset[int]] = {}

    def _last(self, block: int) -> int:
        return (self._starts[block + 1] if block + 1 < len(self._starts) else len(self._block_of)) - 1

    def reaching(self, index: int, register: int) -> frozenset[int]:
        """Instructions whose write of `register` may be what `index` reads."""
        block, guard = self._block_of[index], self._guards[index]
        found, closed = self._within(block, index - 1, register, guard)
        return found if closed else found | self._entry(block, register, guard)

    def _within(self, block: int, last: int, register: int, guard: str) -> tuple[frozenset[int], bool]:
        """Writers in a block from `last` back, and whether one among them hides what came before: unconditional, or under the reader's own guard."""
        found = []
        for i in range(last, self._starts[block] - 1, -1):
            if register in self._writes[i]:
                found.append(i)
                if self._guards[i] in ("", guard):
                    return frozenset(found), True
        return frozenset(found), False

    def _entry(self, block: int, register: int, guard: str) -> frozenset[int]:
        key = (block, register, guard)
        if key not in self._entering:
            found: set[int] = set()
            seen: set[int] = set()
            waiting = list(self._before[block])
            while waiting:
                at = waiting.pop()
                if at in seen:
                    continue
                seen.add(at)
                writers, closed = self._within(at, self._last(at), register, guard)
                found |= writers
                if not closed:
                    waiting += self._before[at]
            self._entering[key] = frozenset(found)
        return self._entering[key]


def _guard(row: Instruction) -> str:
    """The predicate that an instruction runs under (`@!P0`), empty where it always runs."""
    text = row.sass.lstrip("{ ")
    return text.split(None, 1)[0] if text.startswith("@") else ""


def _base(row: Instruction) -> str:
    return row.opcode.split(".", 1)[0]


def _falls_through(row: Instruction, conditional: bool) -> bool:
    base = _base(row)
    if conditional or base not in (*_JUMPS, *_ENDS):
        return True
    operands = row.sass.replace("`", " ").split(None, 1)
    # `BRA.DIV UR4, target` and `BRA P1, target` have a condition among their operands.
    return base in ("BRA", "JMP") and len(operands) > 1 and "," in operands[1]


def _targets(rows: Sequence[Instruction]) -> dict[int, int]:
    """Index of the instruction that each branch may go to, by the branch's index."""
    absolute = {i: int(match[1], 16) for i, row in enumerate(rows) if _base(row) in _JUMPS and (match := _TARGET.search(row.sass))}
    by_address = {row.address: i for i, row in enumerate(rows)}
    own = next((i for i in range(len(rows) - 1, -1, -1) if _base(rows[i]) != "NOP"), None)
    shifts = [0]
    if own is not None and own in absolute and not rows[own].sass.lstrip().startswith("@"):
        shifts.append(absolute[own] - rows[own].address)
    # A relative return of a subroutine that was put into the kernel is given as an offset from the kernel's start.
    shifts += [int(match[1], 16) - rows[0].address for row in rows if row.opcode.startswith("RET.REL") and (match := _TARGET.search(row.sass))][:1]
    for shift in shifts:
        found = {i: by_address[target - shift] for i, target in absolute.items() if target - shift in by_address}
        if found and len(found) == len(absolute):
            return found
    return {}
