"""Reaching definitions over the branches of a kernel's SASS: which instructions may have written a
register that another one reads.

Where branches cannot be followed, code is one straight line. Called functions are left out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from ncu_toolkit.sass import branches
from ncu_toolkit.sass.branches import JUMPS
from ncu_toolkit.sass.opcodes import base
from ncu_toolkit.sass.operands import CodeRow


class Graph:
    """Basic blocks of one kernel and, on demand, the writers of a register that reach an
    instruction.

    `writers`: the instructions that write each register, in order. A predicated write may not
    happen, so what came before it reaches as well, unless the reader has the same predicate."""

    def __init__(self, rows: tuple[CodeRow, ...], writers: Mapping[int, Sequence[int]]) -> None:
        # In file order: a search through the instructions would take quadratic time.
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
        """Whether a path on from `index` reaches a `wanted` instruction before a `stop`."""
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
        """Whether a write is unconditional or under `guard` too, and so hides earlier ones."""
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
