"""The control-flow graph of SASS, of a report or of a disassembly: where control goes from each
instruction, the basic blocks, which instruction each branch of a report names, and which
instructions may have written a register that another one reads. Where branches cannot be followed,
code is one straight line; called functions are left out.

And how many general registers hold a value that is still needed at each instruction: backward
liveness. A predicated write leaves the old value alive, since it may not happen. Uniform registers
(UR) and predicates are other register files. Counts are of 32-bit registers; a register counts at
the instruction that writes it, needed later or not."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from ncu_toolkit.base.core.cache import remembered
from ncu_toolkit.base.model import Instruction
from ncu_toolkit.kernel.sass.opcodes import CodeRow, base, lines, split

_INDIRECT: Final = frozenset({"BRX", "JMX", "BRXU", "JMXU"})
JUMPS: Final = _INDIRECT | {"BRA", "JMP"}
_ENDS: Final = frozenset({"EXIT", "KILL", "RET"})
_LEAVES: Final = JUMPS | _ENDS
_PARTING: Final = _LEAVES | {"CALL", "BSYNC", "WARPSYNC", "BREAK"}

#: The barrier of a BSSY or BSYNC.
BARRIER: Final = re.compile(r"\bB(\d+)\b")
#: Alignment of a function in bytes (`.align 128` in nvdisasm's text).
_ALIGNED: Final = 128
_ABSOLUTE: Final = re.compile(r"(?<!\w)0x([0-9a-f]+)\s*$")
#: Indices of the instructions where branches may go, by the branch's index.
Targets = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class Block:
    """A basic block: indices of its first instruction and behind its last, and its successors."""

    start: int
    end: int
    successors: tuple[int, ...]


def successors(rows: Sequence[CodeRow], targets: Targets) -> list[tuple[int, ...]]:
    """Indices of the instructions that may run after each one. A call is assumed to return.
    `targets`: where branches may go, by index."""
    last = len(rows) - 1
    following: list[tuple[int, ...]] = [(i + 1,) if i < last else () for i in range(len(rows))]
    for i, row in enumerate(rows):
        name = base(row.opcode)
        if name in _LEAVES:
            found = [*targets.get(i, ())] if name in JUMPS else []
            if i < last and _falls_through(row):
                found.append(i + 1)
            following[i] = tuple(dict.fromkeys(found))
    return following


def predecessors(following: Sequence[Sequence[int]]) -> list[list[int]]:
    """What each one is a successor of."""
    before: list[list[int]] = [[] for _ in following]
    for n, ends in enumerate(following):
        for end in ends:
            before[end].append(n)
    return before


def closure(start: Iterable[int], after: Callable[[int], Iterable[int]]) -> frozenset[int]:
    """What is reached from `start` by going on to what comes `after` each."""
    found = set(start)
    waiting = list(found)
    while waiting:
        new = {*after(waiting.pop())} - found
        found |= new
        waiting += new
    return frozenset(found)


def backward(following: Sequence[Sequence[int]], entering: Callable[[int, int], int]) -> list[int]:
    """What is live behind each instruction, as bits: what is on entry to any of its successors.
    `entering`: what is on entry to an instruction, by its index and what is live behind it."""
    before = predecessors(following)
    leaving, waiting = [0] * len(following), dict.fromkeys(range(len(following)))
    while waiting:
        i, _ = waiting.popitem()
        live = entering(i, leaving[i])
        for p in before[i]:
            if live & ~leaving[p]:
                leaving[p] |= live
                waiting[p] = None
    return leaving


def blocks(rows: Sequence[CodeRow], targets: Targets) -> tuple[Block, ...]:
    """The basic blocks in order of the code, the entry first. `targets` as for `successors`."""
    following = successors(rows, targets)
    starts = {0}
    for i, row in enumerate(rows):
        if base(row.opcode) in _LEAVES:
            starts.update((i + 1, *following[i]))
    ordered = sorted(start for start in starts if start < len(rows))
    number = {start: n for n, start in enumerate(ordered)}
    return tuple(
        Block(start, end, tuple(number[s] for s in following[end - 1]))
        for start, end in pairwise([*ordered, len(rows)])
    )


@remembered(4)
def targets(rows: Sequence[Instruction]) -> Targets | None:
    """`targets_of` a report's instructions; where the code leaves several ways, by what was executed."""
    found = targets_of(lines(rows))
    return targets_of(lines(rows), [row.executed for row in rows]) if found is None else found


@remembered(16)
def targets_of(rows: tuple[CodeRow, ...], executed: Sequence[float | None] = ()) -> Targets | None:
    """Indices of the instructions that each branch, call or BSSY names, by its own; None if unknown.

    Reports give addresses from the function's start but absolute targets (see `_shift`). An indirect
    branch goes to all code that nothing else leads to, which a switch's table would hold."""
    if not rows or any(not row.opcode for row in rows):
        return None
    named: dict[int, int] = {}
    for i, row in enumerate(rows):
        # A call by absolute address leaves the kernel, and is taken to return.
        jumps = base(row.opcode) in ("BRA", "JMP", "BSSY", "CALL")
        if jumps and not row.opcode.startswith("CALL.ABS"):
            match = _ABSOLUTE.search((split(row.sass) or [""])[-1])
            if match is None:
                return None
            named[i] = int(match[1], 16)
    by_address = {row.address: i for i, row in enumerate(rows)}
    behind = [i + 1 for i, row in enumerate(rows[:-1]) if not _falls_through(row)]
    # where counts change without a branch before, something else leads there
    counts = [count or 0 for count in executed]
    led = [
        i
        for i in range(1, len(counts))
        if counts[i] != counts[i - 1] and base(rows[i - 1].opcode) not in _PARTING
    ]
    shift = _shift(rows, named, by_address, [*behind, *led])
    if shift is None:
        return None
    found: dict[int, tuple[int, ...]] = {i: (by_address[at - shift],) for i, at in named.items()}
    reached = {i for ends in found.values() for i in ends}
    alone = tuple(i for i in behind if i not in reached)
    for i, row in enumerate(rows):
        if base(row.opcode) in _INDIRECT:
            if not alone:
                return None
            found[i] = alone
    return found


def _falls_through(row: CodeRow) -> bool:
    """Whether control may go on from an instruction to the next one."""
    name = base(row.opcode)
    if name not in JUMPS and name not in _ENDS:
        return True
    # a condition may also be an operand: `BRA.U UP0, …`, `BRA.DIV UR4, …`
    return bool(row.guard) or (name in ("BRA", "JMP") and "," in row.operands)


def _shift(
    rows: Sequence[CodeRow],
    named: Mapping[int, int],
    by_address: Mapping[int, int],
    behind: Sequence[int],
) -> int | None:
    """Offset to subtract from branch targets for addresses from the function's start; None if unknown.

    Targets may be offsets already, or two instructions imply it (`_hints`). Else functions start at
    multiples of 128 bytes: of the starts that make every target an instruction, the one that explains
    most. Code behind an unconditional branch needs something that leads to it, and a BSSY names what
    follows the BSYNC of its barrier."""
    if not named:
        return 0
    for shift in (0, *_hints(rows, named)):
        if all(target - shift in by_address for target in named.values()):
            return shift
    low, high = min(named.values()), max(named.values())
    last = rows[-1].address
    names = [(base(row.opcode), BARRIER.findall(row.sass)) for row in rows]
    joins = {i: ("BSYNC", found) for i, (name, found) in enumerate(names) if name == "BSSY"}
    scores: dict[int, int] = {}
    for shift in range(-(-(high - last) // _ALIGNED) * _ALIGNED, low + 1, _ALIGNED):
        if all(target - shift in by_address for target in named.values()):
            ends = {i: by_address[target - shift] for i, target in named.items()}
            scores[shift] = len({*ends.values()}.intersection(behind))
            scores[shift] += sum(names[ends[i] - 1] == join for i, join in joins.items())
    most = max(scores.values(), default=0)
    best = [shift for shift, score in scores.items() if score == most]
    return best[0] if len(best) == 1 else None


def _hints(rows: Sequence[CodeRow], named: Mapping[int, int]) -> list[int]:
    """Offsets implied by a branch to itself at the end, and by a relative return to the start."""
    found = []
    own = max((i for i, row in enumerate(rows) if not row.opcode.startswith("NOP")), default=-1)
    if own in named and not _falls_through(rows[own]):
        found.append(named[own] - rows[own].address)
    returns = (
        _ABSOLUTE.search((split(row.sass) or [""])[-1])
        for row in rows
        if row.opcode.startswith("RET.REL")
    )
    found += [int(match[1], 16) - rows[0].address for match in returns if match][:1]
    return found


class Graph:
    """Basic blocks of one kernel and, on demand, the writers of a register that reach an instruction.

    `writers`: the instructions that write each register, in order. A predicated write may not happen, so
    what came before it reaches as well, unless the reader has the same predicate. `named`: `targets_of`."""

    def __init__(
        self, rows: tuple[CodeRow, ...], writers: Mapping[int, Sequence[int]], named: Targets
    ) -> None:
        # In file order: a search through the instructions would take quadratic time.
        self._writers = writers
        self._guards = [row.guard for row in rows]
        self.targets = {i: ends for i, ends in named.items() if base(rows[i].opcode) in JUMPS}
        """Indices of the instructions that each branch may go to, by the branch's index."""
        self.known = bool(self.targets)
        """Whether branch targets are known; without them code is one straight line."""
        self._blocks = blocks(rows, self.targets)
        self._block_of = [n for n, b in enumerate(self._blocks) for _ in range(b.start, b.end)]
        self._before = predecessors([block.successors for block in self._blocks])
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
            in_block = self._by_block(register)

            def before(at: int) -> Sequence[int]:
                for i in in_block.get(at, ()):
                    found.add(i)
                    if self._hides(i, guard):
                        return ()
                return self._before[at]

            closure(self._before[block], before)
            self._entering[key] = frozenset(found)
        return self._entering[key]


#: The stack pointer: code that sets it keeps it to the end, by the calling convention.
_STACK: Final = 1


@dataclass(frozen=True)
class Liveness:
    """Live general registers per thread at each instruction."""

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
def live_registers(rows: Sequence[Instruction]) -> Liveness | None:
    """Live registers of a report's instructions; None without their text or branch targets."""
    found = targets(rows)
    return None if found is None else live_in_code(lines(rows), found)


def live_in_code(rows: Sequence[CodeRow], targets: Targets) -> Liveness:
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

    def __init__(self, rows: Sequence[CodeRow], targets: Targets) -> None:
        self._rows, self._targets = rows, targets
        self._bases = [base(row.opcode) for row in rows]
        self.written = [_mask(row.registers[0]) for row in rows]
        self._read = [_mask(row.registers[1]) for row in rows]
        self._set = [0 if row.guard else w for row, w in zip(rows, self.written, strict=True)]
        stack = 1 << _STACK
        self._stack = stack if any(mask & stack for mask in self.written) else 0
        self._following = successors(rows, targets)
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

        def entering(i: int, leaving: int) -> int:
            leaving |= needed.get(i, 0) if self._following[i] else self._stack | needed.get(i, 0)
            set_here, read = self._set[i], self._read[i]
            if i in self.calls:
                read |= reads[self.calls[i]]
                set_here |= 0 if self._rows[i].guard else self._always[self.calls[i]]
            return read | (leaving & ~set_here)

        return list(map(entering, range(len(self._bases)), backward(self._following, entering)))

    def _ends(self, entry: int) -> tuple[int, ...]:
        """The returns that are reached from an entry."""
        reached = closure([entry], self._following.__getitem__)
        return tuple(sorted(i for i in reached if self._bases[i] == "RET"))

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
    return sum(1 << n for n in numbers)
