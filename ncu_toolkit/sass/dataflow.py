"""Which instructions may have written a register that another one reads: reaching definitions over
the branches of a kernel's SASS.

Where the branches cannot be followed (branches.py), code is taken as one straight line. A function
that is called is left out of the flow: what it is given and what it returns is not followed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from ncu_toolkit.sass import branches
from ncu_toolkit.sass.branches import JUMPS
from ncu_toolkit.sass.opcodes import base
from ncu_toolkit.sass.operands import CodeRow


class Graph:
    """Basic blocks of one kernel and, on demand, the instructions whose write of a register may
    reach an instruction.

    `writers` holds the instructions that write each register, in order. A predicated instruction may leave a
    register as it was, so what came before it reaches as well, unless the reader runs under the
    same predicate."""

    def __init__(self, rows: tuple[CodeRow, ...], writers: Mapping[int, Sequence[int]]) -> None:
        # Writers of each register in file order: looking through the instructions themselves takes
        # quadratic time in straight code.
        self._writers = writers
        self._guards = [row.guard for row in rows]
        named = branches.targets_of(rows) or {}
        self.targets = {i: ends for i, ends in named.items() if base(rows[i].opcode) in JUMPS}
        """Indices of the instructions that each branch may go to, by the branch's index."""
        self.known = bool(self.targets)
        """Whether branch targets are known; without them code is one straight line."""
        self._blocks = branches.blocks(rows, self.targets)
        self._block_of = [n for n, b in enumerate(self._blocks) for _ in range(b.start, b.end)]
        self._before: list[list[int]] = [[] for _ in self._blocks]
        for n, block in enumerate(self._blocks):
            for successor in block.successors:
                self._before[successor].append(n)
        self._entering: dict[tuple[int, int, str], frozenset[int]] = {}
        self._last_first: dict[int, dict[int, list[int]]] = {}

    def reaching(self, index: int, register: int) -> frozenset[int]:
        """Instructions whose write of `register` may be what `index` reads."""
        block, guard = self._block_of[index], self._guards[index]
        found = set()
        writers = self._writers.get(register, [])
        for place in range(bisect_right(writers, index - 1) - 1, -1, -1):
            i = writers[place]
            if i < self._blocks[block].start:
                break
            found.add(i)
            if self._hides(i, guard):
                return frozenset(found)
        return self._entry(block, register, guard).union(found)

    def reaches(
        self, index: int, wanted: Callable[[int], bool], stop: Callable[[int], bool]
    ) -> bool:
        """Whether a way on from `index` comes to an instruction that is `wanted` before one at
        which to `stop`."""
        seen: set[int] = set()
        waiting = [(self._block_of[index], index + 1)]
        while waiting:
            block, start = waiting.pop()
            for i in range(start, self._blocks[block].end):
                if wanted(i):
                    return True
                if stop(i):
                    break
            else:
                following = set(self._blocks[block].successors) - seen
                seen |= following
                waiting += [(s, self._blocks[s].start) for s in following]
        return False

    def _hides(self, writer: int, guard: str) -> bool:
        """Whether a write hides what came before it from a reader under `guard`: it is
        unconditional, or under the same predicate."""
        return self._guards[writer] in ("", guard)

    def _by_block(self, register: int) -> dict[int, list[int]]:
        """The writers of a register by their blocks, the last one first."""
        found = self._last_first.get(register)
        if found is None:
            found = self._last_first[register] = {}
            for i in reversed(self._writers.get(register, ())):
                found.setdefault(self._block_of[i], []).append(i)
        return found

    def _entry(self, block: int, register: int, guard: str) -> frozenset[int]:
        key = (block, register, guard)
        if key not in self._entering:
            found: set[int] = set()
            seen: set[int] = set()
            in_block = self._by_block(register)
            waiting = list(self._before[block])
            while waiting:
                at = waiting.pop()
                if at in seen:
                    continue
                seen.add(at)
                for i in in_block.get(at, ()):
                    found.add(i)
                    if self._hides(i, guard):
                        break
                else:
                    waiting += self._before[at]
            self._entering[key] = frozenset(found)
        return self._entering[key]
