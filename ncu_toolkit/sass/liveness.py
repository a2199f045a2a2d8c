"""How many general registers hold a value that is still needed at each instruction: backward
liveness over the control flow of a kernel's SASS.

A predicated write leaves the old value alive, since it may not happen. Uniform registers (UR) and
predicates are other register files. Counts are of 32-bit registers; a register counts at the
instruction that writes it, needed later or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ncu_toolkit.core.cache import remembered
from ncu_toolkit.model import Instruction
from ncu_toolkit.sass import branches
from ncu_toolkit.sass.branches import BARRIER
from ncu_toolkit.sass.opcodes import CodeRow, base, lines

#: The stack pointer: code that sets it keeps it to the end, by the calling convention.
_STACK: Final = 1


@dataclass(frozen=True)
class Liveness:
    """Live general registers a thread at each instruction."""

    counts: tuple[int, ...]

    @property
    def peak(self) -> int:
        """The most at any instruction; 0 for no code."""
        return max(self.counts, default=0)

    @property
    def peak_index(self) -> int:
        """The first instruction with the most; 0 for no code."""
        return self.counts.index(self.peak) if self.counts else 0


@remembered(4)
def of_rows(rows: Sequence[Instruction]) -> Liveness | None:
    """Live registers of a report's instructions; None without their text or branch targets."""
    targets = branches.targets(rows)
    return None if targets is None else of_code(lines(rows), targets)


def of_code(rows: Sequence[CodeRow], targets: Mapping[int, Sequence[int]]) -> Liveness:
    """Live registers of code whose branch targets are known, by index.

    A called subroutine is summed up as what it reads before writing and what it always writes.
    Within it, what any of its callers needs afterwards is live."""
    code = _Code(rows, targets)
    reads: dict[int, int] = dict.fromkeys(code.entries, 0)
    while True:
        entering = code.solve(reads, {})
        now = {entry: entering[entry] for entry in code.entries}
        if now == reads:
            break
        reads = now
    if code.entries:
        needed = dict.fromkeys(code.returns, 0)
        for call, entry in code.calls.items():
            for end in code.entries[entry] if call + 1 < len(rows) else ():
                needed[end] |= entering[call + 1]
        entering = code.solve(reads, needed)
    return Liveness(tuple((e | w).bit_count() for e, w in zip(entering, code.written, strict=True)))


class _Code:
    """Code for the analysis: registers as bit masks, successors, and the called subroutines."""

    def __init__(self, rows: Sequence[CodeRow], targets: Mapping[int, Sequence[int]]) -> None:
        self._rows, self._targets = rows, targets
        self._bases = [base(row.opcode) for row in rows]
        self.written = [_mask(row.registers[0]) for row in rows]
        self._read = [_mask(row.registers[1]) for row in rows]
        self._set = [0 if row.guard else w for row, w in zip(rows, self.written, strict=True)]
        stack = 1 << _STACK
        self._stack = stack if any(mask & stack for mask in self.written) else 0
        self._following = branches.successors(rows, targets)
        self.calls: dict[int, int] = {}
        """Entry of the subroutine by index of its call."""
        self.entries: dict[int, tuple[int, ...]] = {}
        """Returns of each subroutine by its entry."""
        for i, name in enumerate(self._bases):
            if name != "CALL" or not targets.get(i):
                continue
            entry = targets[i][0]
            ends = self.entries.get(entry) or self._ends(entry)
            if ends:
                self.entries[entry], self.calls[i] = ends, entry
            else:  # without a return it is a jump: before CC 9.0 compilers leave a divergent region so
                through = (i + 1,) if rows[i].guard and i + 1 < len(rows) else ()
                self._following[i] = tuple(sorted({entry, *through}))
        self.returns = tuple(sorted({end for ends in self.entries.values() for end in ends}))
        self._following = self._joined(self._following)
        self._always = {
            entry: self._always_written(entry, ends) for entry, ends in self.entries.items()
        }

    def solve(self, reads: Mapping[int, int], needed: Mapping[int, int]) -> list[int]:
        """Masks of the registers live on entry to each instruction.

        Args:
            reads: what each subroutine reads, by its entry.
            needed: what is live behind each return, by its index.
        """
        before: list[list[int]] = [[] for _ in self._bases]
        for i, successors in enumerate(self._following):
            for s in successors:
                before[s].append(i)
        entering = [0] * len(self._bases)
        waiting = list(range(len(self._bases)))
        queued = [True] * len(self._bases)
        while waiting:
            i = waiting.pop()
            queued[i] = False
            leaving = needed.get(i, 0) if self._following[i] else self._stack | needed.get(i, 0)
            for s in self._following[i]:
                leaving |= entering[s]
            set_here, read = self._set[i], self._read[i]
            if i in self.calls:
                read |= reads[self.calls[i]]
                set_here |= 0 if self._rows[i].guard else self._always[self.calls[i]]
            now = read | (leaving & ~set_here)
            if now != entering[i]:
                entering[i] = now
                for p in before[i]:
                    if not queued[p]:
                        queued[p] = True
                        waiting.append(p)
        return entering

    def _ends(self, entry: int) -> tuple[int, ...]:
        """The returns that are reached from an entry."""
        seen, waiting = {entry}, [entry]
        while waiting:
            for s in self._following[waiting.pop()]:
                if s not in seen:
                    seen.add(s)
                    waiting.append(s)
        return tuple(sorted(i for i in seen if self._bases[i] == "RET"))

    def _always_written(self, entry: int, ends: tuple[int, ...]) -> int:
        """Registers that every way from an entry to a return writes."""
        written = {entry: 0}
        waiting = [entry]
        while waiting:
            i = waiting.pop()
            after = written[i] | self._set[i]
            for s in self._following[i]:
                now = after & written.get(s, after)
                if now != written.get(s):
                    written[s] = now
                    waiting.append(s)
        mask = -1
        for end in ends:
            mask &= written.get(end, -1)
        return mask if ends else 0

    def _joined(self, following: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """`following` with each BSYNC led to the targets of the BSSYs of its barrier that may
        precede it."""
        names = [""] * len(self._bases)
        for i, name in enumerate(self._bases):
            if name in ("BSSY", "BSYNC") and (at := BARRIER.search(self._rows[i].operands)):
                names[i] = at[1]
        setters = [i for i, name in enumerate(self._bases) if name == "BSSY" and names[i]]
        bit = {i: 1 << n for n, i in enumerate(setters)}
        alike = {
            name: sum(bit[i] for i in setters if names[i] == name) for name in set(names) if name
        }
        waiting = [*self.entries, 0] if setters else []
        reaching = dict.fromkeys(waiting, 0)
        while waiting:
            i = waiting.pop()
            after = reaching[i]
            if self._bases[i] == "BSYNC" and names[i]:
                matching = after & alike[names[i]]
                ends = {t for s in setters if matching & bit[s] for t in self._targets.get(s, ())}
                if ends:
                    following[i] = tuple(sorted(ends))
                after &= ~matching
            elif i in bit:
                after = (after & ~alike[names[i]]) | bit[i]
            for s in following[i]:
                if s not in reaching or after & ~reaching[s]:
                    reaching[s] = reaching.get(s, 0) | after
                    waiting.append(s)
        return following


@lru_cache(maxsize=1 << 12)
def _mask(numbers: frozenset[int]) -> int:
    mask = 0
    for n in numbers:
        mask |= 1 << n
    return mask
