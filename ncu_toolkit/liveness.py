"""How many general registers hold a value that is still needed at each instruction: backward liveness over the control flow of a kernel's SASS.

Two forms of code are read: rows of a report, whose branches name absolute addresses, and a disassembly, whose branches are resolved already. A
predicated write leaves the old value alive, since it may not happen. Uniform registers (UR) and predicates are other register files and count
nothing here. Counts are of 32-bit registers; a register that an instruction writes counts at it, needed later or not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ncu_toolkit.model import Instruction

_OPERAND: Final = re.compile(r"(?<![\w.])R(\d+)((?:\.\w+)*)")
_FIRST: Final = re.compile(r"R(?:\d+|Z)(?!\w)")
_PREDICATE: Final = re.compile(r"!?U?P(?:\d|T|R)$")
_BARRIER: Final = re.compile(r"\bB(\d+)\b")
_ABSOLUTE: Final = re.compile(r"(?<!\w)0x([0-9a-f]+)\s*$")
_GUARD: Final = re.compile(r"^\s*(?:\{\s*)?(@!?U?P\w+\s+)?")

_JUMPS: Final = frozenset({"BRA", "JMP", "BRX", "JMX", "BRXU", "JMXU"})
_INDIRECT: Final = frozenset({"BRX", "JMX", "BRXU", "JMXU"})
_ENDS: Final = frozenset({"EXIT", "KILL", "RET"})
_CALLS: Final = frozenset({"CALL"})
#: Instructions whose first general register is read, not written.
_READS_ONLY: Final = frozenset((
    "ST", "STG", "STS", "STL", "STSM", "STAS", "STTM", "RED", "REDS", "REDG", "SUST", "SURED", "LDGSTS", "ISETP", "FSETP", "DSETP", "HSETP2", "FCHK",
    "R2P", "R2UR", "R2B", "BAR", "WARPSYNC", "NANOSLEEP", "CALL", "RET", "BRX", "JMX", "CCTL", "CCTLL", "DEPBAR", "SYNCS", "REDUX", "VOTEU",
))  # fmt: skip
_MEMORY: Final = frozenset((
    "LD", "LDG", "LDS", "LDL", "LDC", "LDSM", "LDGSTS", "ST", "STG", "STS", "STL", "STSM", "ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDS", "LDTM",
    "STTM", "STAS",
))  # fmt: skip
#: Memory whose addresses have 64 bits where the mnemonic says .E and no uniform register gives the base.
_WIDE_ADDRESS: Final = frozenset({"LD", "LDG", "LDGSTS", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG", "CCTL"})
_REGISTERS_OF: Final[Mapping[str, int]] = {"64": 2, "128": 4, "256": 8}
_DOUBLE: Final = frozenset({"DADD", "DMUL", "DFMA", "DSETP", "DMNMX"})
_MATRIX: Final = frozenset({"HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "BMMA"})
#: Paired 32-bit floats of CC 10.0 on: every operand is two registers.
_PAIRED: Final = frozenset({"FFMA2", "FADD2", "FMUL2"})
#: Integer instructions that say by .64, .S64 or .U64 that every register operand is a pair. The funnel shift names its halves one by one.
_MAYBE_WIDE: Final = frozenset({"IADD", "IMNMX", "VIMNMX", "ISETP", "MOV", "SEL", "LOP3", "LEA", "ISUB", "INEG", "IABS"})
#: Warp-level shapes M, N, K as SASS writes them, and bits of an element by the type in the mnemonic (PTX ISA, "Matrix multiply-accumulate").
_SHAPES: Final[Mapping[str, tuple[int, int, int]]] = {
    "884": (8, 8, 4), "8816": (8, 8, 16), "8832": (8, 8, 32), "88128": (8, 8, 128), "1684": (16, 8, 4), "1688": (16, 8, 8), "16816": (16, 8, 16),
    "16832": (16, 8, 32), "16864": (16, 8, 64), "168128": (16, 8, 128), "168256": (16, 8, 256),
}  # fmt: skip
_BITS: Final[Mapping[str, int]] = {"TF32": 32, "S8": 8, "U8": 8, "E4M3": 8, "E5M2": 8, "S4": 4, "U4": 4}
_LANES: Final = 32
#: The stack pointer: code that sets it keeps it to the end, by the calling convention.
_STACK: Final = 1
_WARPGROUP: Final = 128


@dataclass(frozen=True)
class Liveness:
    """Live general registers a thread at each instruction, in the order of the instructions given."""

    counts: tuple[int, ...]

    @property
    def peak(self) -> int:
        """The most at any instruction; 0 for no code."""
        return max(self.counts, default=0)

    @property
    def peak_index(self) -> int:
        """The first instruction with the most; 0 for no code."""
        return self.counts.index(self.peak) if self.counts else 0


@lru_cache(maxsize=65536)
def registers(opcode: str, operands: str) -> tuple[frozenset[int], frozenset[int]]:
    """(general registers written, general registers read) by an instruction, pairs and vectors expanded.

    Args:
        opcode: mnemonic with modifiers, `LDG.E.128`.
        operands: what follows it, without the predicate in front: `R4, desc[UR4][R2.64]`.
    """
    base, *modifiers = opcode.split(".")
    parts = _split(operands)
    at = next((i for i, part in enumerate(parts) if not _PREDICATE.match(part)), len(parts))
    writes_first = base not in _READS_ONLY and at < len(parts) and _FIRST.match(parts[at]) is not None
    widths = _widths(base, modifiers, len(parts) - at)
    written: set[int] = set()
    read: set[int] = set()
    place = 0  # counts register operands after the predicates, zero registers and constants included
    for i, part in enumerate(parts):
        if i < at:
            continue
        if "[" in part:
            wide = base in _WIDE_ADDRESS and "E" in modifiers and "UR" not in part and "desc" not in part and ".U32" not in part
            wide = wide and not (base == "LDGSTS" and i == at)  # where the copy goes is an address of shared memory
            for found in _OPERAND.finditer(part):
                read.update(_span(int(found[1]), 2 if wide or ".64" in found[2] else 1))
            place += not part.startswith(("[", "desc"))
            continue
        width = widths[min(place, len(widths) - 1)]
        for found in _OPERAND.finditer(part):
            span = _span(int(found[1]), 2 if ".64" in found[2] and width == 1 else width)
            (written if writes_first and i == at else read).update(span)
        place += 1
    return frozenset(written), frozenset(read)


def _split(operands: str) -> list[str]:
    """Operands at the commas outside of brackets, without the marks of a disassembler."""
    plain = operands.replace("`", " ").partition("(*")[0].strip().rstrip(";").strip()
    return [part.strip() for part in re.split(r",(?![^\[]*\])", plain)] if plain else []


def _span(first: int, count: int) -> range:
    return range(first, first + count)


def _widths(base: str, modifiers: Sequence[str], count: int) -> tuple[int, ...]:
    """Registers of each operand after leading predicates: destination first where there is one; the last width holds for all further ones."""
    if base in _MATRIX:
        return _matrix_widths(base, modifiers)
    if base in ("HGMMA", "QGMMA", "IGMMA", "BGMMA"):
        return _group_widths(base, modifiers)
    if base in ("LDSM", "STSM"):
        quads = next((int(m) for m in modifiers if m in ("2", "4")), 1)
        return (quads,)
    if base in ("LDTM", "STTM"):
        times = next((int(m[1:]) for m in modifiers if re.fullmatch(r"x\d+", m)), 1)
        return (times,)
    if base in _MEMORY:
        width = next((_REGISTERS_OF[m] for m in modifiers if m in _REGISTERS_OF), 1)
        return (width,)
    if base in _DOUBLE or base in _PAIRED:
        return (2,)
    if base == "IMAD" and "WIDE" in modifiers:
        return (2, 1, 1, 2)
    if base == "IMAD" and "HI" in modifiers:
        return (1, 1, 1, 2)
    if base == "CS2R":
        return (1,) if "32" in modifiers else (2,)
    if base in ("F2F", "F2I", "I2F", "FRND", "I2I"):
        return _conversion_widths(base, modifiers)
    if base in ("LEPC", "CALL", "RET", "BRX", "JMX"):
        return (2,)
    if base in _MAYBE_WIDE and any(m in ("64", "S64", "U64") for m in modifiers):
        return (2,)
    if base == "MATCH" and "U64" in modifiers:
        return (1, 2)
    return (1,)


def _conversion_widths(base: str, modifiers: Sequence[str]) -> tuple[int, int]:
    """Of destination and source: `F2F.F32.F64` names both, `F2I.U64` and `I2F.F64` one each."""
    floats = [m for m in modifiers if m in ("F16", "BF16", "F32", "F64")]
    wide_integer = any(m in ("S64", "U64") for m in modifiers)
    wide_float = "F64" in modifiers
    if base == "F2I":
        return 1 + wide_integer, 1 + wide_float
    if base == "I2F":
        return 1 + wide_float, 1 + wide_integer
    if base == "F2F" and len(floats) > 1:
        return 1 + (floats[0] == "F64"), 1 + (floats[1] == "F64")
    return 1 + wide_float, 1 + wide_float


def _matrix_widths(base: str, modifiers: Sequence[str]) -> tuple[int, ...]:
    """Registers of D, A, B and C: each thread of the warp holds an equal part of a matrix (PTX ISA, fragments of `mma`)."""
    shape = next((_SHAPES[m] for m in modifiers if m in _SHAPES), None)
    if shape is None:
        return (1,)
    m, n, k = shape
    bits = 64 if base == "DMMA" else 1 if base == "BMMA" else next((_BITS[x] for x in modifiers if x in _BITS), 8 if base in ("QMMA", "IMMA") else 16)
    if any(x.startswith("STEP") for x in modifiers):  # Volta: a step gives two columns of the quad's 8 by 8 result
        return (2,)
    sums = 64 if base == "DMMA" else 32 if base in ("IMMA", "BMMA") or "F32" in modifiers else 16
    halved = 2 if "SP" in modifiers else 1
    part = 32 * _LANES
    return max(1, m * n * sums // part), max(1, m * k * bits // part // halved), max(1, k * n * bits // part), max(1, m * n * sums // part), 1


def _group_widths(base: str, modifiers: Sequence[str]) -> tuple[int, ...]:
    """Registers of D, A (where it comes from registers), the descriptor, C of a warpgroup's matrix instruction."""
    shape = next((found for x in modifiers if (found := re.fullmatch(r"(\d+)x(\d+)x(\d+)", x))), None)
    if shape is None:
        return (1,)
    m, n, k = map(int, shape.groups())
    sums = 16 if "F16" in modifiers[1:2] else 32
    bits = {"QGMMA": 8, "IGMMA": 8, "BGMMA": 1}.get(base, 32 if "TF32" in modifiers else 16)
    results = m * n * sums // (32 * _WARPGROUP)
    return results, m * k * bits // (32 * _WARPGROUP), results


def of_rows(rows: Sequence[Instruction]) -> Liveness | None:
    """Live registers of a report's instructions. None where branches cannot be followed: an indirect one, or targets outside of these rows."""
    if not rows:
        return None
    found = branch_targets(rows)
    return None if found is None else of_code(rows, found)


def branch_targets(rows: Sequence[Instruction]) -> dict[int, tuple[int, ...]] | None:
    """Indices that each branch, call or BSSY names, by its own index. None where one of them cannot be told.

    Reports give addresses from the start of the function and targets as absolute ones: the branch to itself behind the last instruction tells
    how far apart the two are.
    """
    named: dict[int, int] = {}
    for i, row in enumerate(rows):
        base = row.opcode.partition(".")[0]
        if base in _INDIRECT:
            return None
        if base in ("BRA", "JMP", "BSSY", "CALL"):
            match = _ABSOLUTE.search(_split(row.sass)[-1]) if row.sass else None
            if match is None:
                return None
            named[i] = int(match[1], 16)
    by_address = {row.address: i for i, row in enumerate(rows)}
    own = next((i for i in range(len(rows) - 1, -1, -1) if not rows[i].opcode.startswith("NOP")), 0)
    shifts = [0] if own not in named else [named[own] - rows[own].address, 0]
    for shift in shifts:
        found: dict[int, tuple[int, ...]] = {i: (by_address[at - shift],) for i, at in named.items() if at - shift in by_address}
        if len(found) == len(named):
            return found
    return None


def of_code(rows: Sequence[Instruction], targets: Mapping[int, Sequence[int]]) -> Liveness:
    """Live registers of code whose branch targets are known, as indices of rows by the index of the branch.

    A subroutine within the code is summed up where it is called: what it reads before writing it, and what it always writes. Within it, what any
    of its callers needs afterwards is live.
    """
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
        for entry, ends in code.entries.items():
            for call in (i for i, e in code.calls.items() if e == entry and i + 1 < len(rows)):
                for end in ends:
                    needed[end] |= entering[call + 1]
        entering = code.solve(reads, needed)
    return Liveness(tuple((e | w).bit_count() for e, w in zip(entering, code.written, strict=True)))


class _Code:
    """Code laid out for the analysis: registers as bit masks, where control goes, and the subroutines that are called."""

    def __init__(self, rows: Sequence[Instruction], targets: Mapping[int, Sequence[int]]) -> None:
        self._split = [_parts(row) for row in rows]
        self._bases = [row.opcode.partition(".")[0] for row in rows]
        self._targets = targets
        self.written, self._read = [], []
        for row, (_, operands) in zip(rows, self._split, strict=True):
            out, into = registers(row.opcode, operands)
            self.written.append(_mask(out))
            self._read.append(_mask(into))
        self._kept = [0 if guard else mask for (guard, _), mask in zip(self._split, self.written, strict=True)]
        self._stack = _mask(frozenset((_STACK,))) if any(mask & (1 << _STACK) for mask in self.written) else 0
        self._following = self._successors()
        self.calls: dict[int, int] = {}
        """Entry of the subroutine by index of its call."""
        self.entries: dict[int, tuple[int, ...]] = {}
        """Returns of each subroutine by its entry."""
        for i, base in enumerate(self._bases):
            if base not in _CALLS or not targets.get(i):
                continue
            entry = targets[i][0]
            ends = self.entries.get(entry) or self._ends(entry)
            if ends:
                self.entries[entry], self.calls[i] = ends, entry
            else:  # without a return it is a jump: before CC 9.0 compilers leave a divergent region so
                through = (i + 1,) if self._split[i][0] and i + 1 < len(rows) else ()
                self._following[i] = tuple(sorted({entry, *through}))
        self.returns = tuple(sorted({end for ends in self.entries.values() for end in ends}))
        self._following = self._joined(self._following)
        self._always = {entry: self._always_written(entry, ends) for entry, ends in self.entries.items()}

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
            kept, read = self._kept[i], self._read[i]
            if i in self.calls:
                read |= reads[self.calls[i]]
                kept |= 0 if self._split[i][0] else self._always[self.calls[i]]
            now = read | (leaving & ~kept)
            if now != entering[i]:
                entering[i] = now
                for p in before[i]:
                    if not queued[p]:
                        queued[p] = True
                        waiting.append(p)
        return entering

    def _successors(self) -> list[tuple[int, ...]]:
        """Where control goes from each instruction; calls and BSYNC as if they went on to the next."""
        following: list[tuple[int, ...]] = []
        for i, base in enumerate(self._bases):
            guard, operands = self._split[i]
            found: set[int] = set()
            through = i + 1 < len(self._bases)
            if base in _JUMPS:
                found.update(self._targets.get(i, ()))
                # a condition may also be an operand: `BRA.U UP0, …`, `BRA.DIV UR4, …`
                through = through and (bool(guard) or (base in ("BRA", "JMP") and "," in operands))
            elif base in _ENDS:
                through = through and bool(guard)
            if through:
                found.add(i + 1)
            following.append(tuple(sorted(found)))
        return following

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
            after = written[i] | self._kept[i]
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
        """`following` with each BSYNC led to the targets of those BSSY of its barrier that may have run last before it."""
        names = [
            found[1] if base in ("BSSY", "BSYNC") and (found := _BARRIER.search(self._split[i][1])) else "" for i, base in enumerate(self._bases)
        ]
        setters = [i for i, base in enumerate(self._bases) if base == "BSSY" and names[i]]
        bit = {i: 1 << n for n, i in enumerate(setters)}
        alike = {name: sum(bit[i] for i in setters if names[i] == name) for name in set(names) if name}
        reaching: dict[int, int] = {}
        waiting = [*self.entries, 0] if setters else []
        reaching.update(dict.fromkeys(waiting, 0))
        while waiting:
            i = waiting.pop()
            after = reaching[i]
            if self._bases[i] == "BSYNC" and names[i]:
                held = after & alike[names[i]]
                ends = {t for s in setters if held & bit[s] for t in self._targets.get(s, ())}
                if ends:
                    following[i] = tuple(sorted(ends))
                after &= ~held
            elif i in bit:
                after = (after & ~alike[names[i]]) | bit[i]
            for s in following[i]:
                if s not in reaching or after & ~reaching[s]:
                    reaching[s] = reaching.get(s, 0) | after
                    waiting.append(s)
        return following


def _mask(numbers: frozenset[int]) -> int:
    mask = 0
    for n in numbers:
        mask |= 1 << n
    return mask


def _parts(row: Instruction) -> tuple[str, str]:
    """(predicate, operands) of a line of SASS."""
    found = _GUARD.match(row.sass)
    guard = (found[1] or "").strip() if found else ""
    rest = row.sass[found.end() :] if found else row.sass
    return "" if guard == "@PT" else guard, rest.partition(" ")[2]
