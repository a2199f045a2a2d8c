"""Instructions: what their SASS text tells (kind, bytes a lane moves, operations, the general registers
that it writes and reads, at their width), and disassembled functions of them."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Final, NamedTuple

from ncu_toolkit.base.core.cache import remembered
from ncu_toolkit.base.model import Instruction

#: Base opcodes by kind (CUDA binary utilities, "Instruction set reference").
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "global": ("LDG", "STG", "LD", "ST"),
    "copy": ("LDGSTS", "UBLKCP", "UTMALDG", "UTMASTG", "UBLKRED"),
    "local": ("LDL", "STL"),
    "shared": ("LDS", "STS", "LDSM", "STSM"),
    "atomic": ("ATOM", "ATOMG", "RED", "ATOMS", "REDG"),
    "constant": ("LDC",),
    "texture": ("TEX", "TLD", "TLD4", "TXQ", "SULD", "SUST", "SUATOM", "SURED", "TMML"),
    "special": ("MUFU", "I2F", "F2I", "F2F", "FRND", "I2I", "POPC", "FLO", "BREV", "I2FP", "F2FP"),
    "shuffle": ("SHFL", "VOTE", "MATCH", "REDUX"),
    "fp64": ("DFMA", "DADD", "DMUL", "DSETP", "DMNMX"),
    "fp32": ("FFMA", "FADD", "FMUL", "FFMA2", "FADD2", "FMUL2", "FMNMX", "FSETP", "FSEL", "FCHK", "FFMA32I", "FADD32I", "FMUL32I", "FSWZADD", "FSET"),
    "fp16": ("HFMA2", "HADD2", "HMUL2", "HSETP2", "HSET2", "HMNMX2", "HFMA2_32I"),
    "tensor": ("HMMA", "IMMA", "DMMA", "BMMA", "HGMMA", "QGMMA", "IGMMA", "BGMMA", "QMMA", "OMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA"),
    "integer": (
        "IADD", "IADD3", "IMAD", "ISETP", "LEA", "LOP", "LOP3", "SHF", "SHL", "SHR", "IABS", "IMNMX", "VIMNMX", "BMSK", "SGXT", "LOP32I", "IADD32I",
        "IMUL", "IDP", "PRMT",
        "XMAD", "ISCADD", "PLOP3", "VIADD", "IADD2", "VIADDMNMX", "ISCADD32I",
    ),
    "uniform": ("UIADD3", "UIMAD", "UISETP", "ULEA", "ULOP3", "USHF", "UMOV", "USEL", "ULDC", "R2UR", "UPRMT", "UPLOP3", "UFLO", "UPOPC", "UVIADD",
    "USGXT", "UBMSK"),
    "barrier": ("BAR", "DEPBAR", "LDGDEPBAR", "SYNCS", "WARPSYNC", "ERRBAR", "MEMBAR", "ARRIVES", "WARPGROUP", "NANOSLEEP", "UCGABAR_ARV",
    "UCGABAR_WAIT", "CCTLALL"),
    "control": ("BRA", "BRX", "JMP", "CALL", "RET", "EXIT", "BSSY", "BSYNC", "BREAK", "YIELD", "NOP", "KILL", "JMX", "BMOV", "WARPGROUPSET",
    "ACQBULK", "PREEXIT"),
}  # fmt: skip
_KIND_OF: Final = {opcode: kind for kind, opcodes in KINDS.items() for opcode in opcodes}

#: Kinds whose results arrive through the long scoreboard (L1TEX) and the short one (MIO).
LONG_PRODUCERS: Final = ("global", "copy", "local", "atomic", "texture")
SHORT_PRODUCERS: Final = ("shared", "special", "shuffle", "constant", "atomic", "fp64")

#: Accesses by memory. Generic LD/ST count as global: compilers that know better write LDS or LDL.
GLOBAL_LOADS: Final = frozenset({"LDG", "LD", "LDGSTS"})
GLOBAL_STORES: Final = frozenset({"STG", "ST"})
SHARED_LOADS: Final = frozenset({"LDS", "LDSM"})
SHARED_STORES: Final = frozenset({"STS", "STSM", "STAS", "LDGSTS"})
LOCAL: Final = frozenset({"LDL", "STL"})
ATOMICS: Final = frozenset({"ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDS"})
#: What accesses shared memory alone.
SHARED: Final = (SHARED_LOADS | SHARED_STORES | {"ATOMS", "REDS"}) - {"LDGSTS"}
_ACCESSES: Final = (
    GLOBAL_LOADS | GLOBAL_STORES | SHARED_LOADS | SHARED_STORES | LOCAL | ATOMICS | {"LDC"}
)
#: Copies by descriptor or bulk: one instruction a tile, whose size is not in the instruction.
BULK: Final = frozenset({"UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED"})
_WIDTHS: Final = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}

WARP_SIZE: Final = 32
WARPGROUP_SIZE: Final = 128
#: Shapes M, N, K of warp-level matrix instructions as SASS writes them (PTX ISA, "Matrix
#: multiply-accumulate").
_SHAPES: Final[Mapping[str, tuple[int, int, int]]] = {
    "884": (8, 8, 4), "8816": (8, 8, 16), "8832": (8, 8, 32), "88128": (8, 8, 128), "1684": (16, 8, 4), "1688": (16, 8, 8), "16816": (16, 8, 16),
    "16832": (16, 8, 32), "16864": (16, 8, 64), "168128": (16, 8, 128), "168256": (16, 8, 256),
}  # fmt: skip
_GROUP_SHAPE: Final = re.compile(r"(\d+)x(\d+)x(\d+)")
#: Floating-point operations of one thread, a multiply-add as two, as in Nsight's FLOP metrics.
_FLOPS: Final[Mapping[str, int]] = {
    "FADD": 1, "FMUL": 1, "FFMA": 2, "FADD32I": 1, "FMUL32I": 1, "FFMA32I": 2, "FADD2": 2, "FMUL2": 2, "FFMA2": 4, "HADD2": 2, "HMUL2": 2,
    "HFMA2": 4, "DADD": 1, "DMUL": 1, "DFMA": 2,
}  # fmt: skip


@lru_cache(maxsize=4096)
def base(opcode: str) -> str:
    """`LDG.E.128` gives `LDG`."""
    return opcode.split(".", 1)[0]


@lru_cache(maxsize=4096)
def kind(opcode: str) -> str:
    """The group of KINDS an opcode belongs to, `other` for the rest."""
    return _KIND_OF.get(base(opcode), "other")


@lru_cache(maxsize=4096)
def width(opcode: str) -> int:
    """Bytes per lane moves with a load, store or atomic, by default 4; 0 for anything else and for
    bulk copies. LDSM and STSM move 4 bytes per lane for each 8x8 matrix of 16-bit elements."""
    name, *modifiers = opcode.split(".")
    if name in ("LDSM", "STSM"):
        return 4 * next((int(m) for m in modifiers if m in ("2", "4")), 1)
    if name not in _ACCESSES:
        return 0
    return next((_WIDTHS[m] for m in modifiers if m in _WIDTHS), 4)


def width_classes(counts: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """Loads and stores by base opcode and bytes per lane, from counts by opcode, without constants:
    {"LDS": {4: 8, 16: 12}, …}."""
    classes: dict[str, dict[int, int]] = {}
    for opcode, count in counts.items():
        if (size := width(opcode)) and kind(opcode) != "constant":
            widths = classes.setdefault(base(opcode), {})
            widths[size] = widths.get(size, 0) + count
    return classes


def shape(modifiers: Iterable[str]) -> tuple[int, int, int] | None:
    """M, N, K of a matrix instruction by its modifiers (`16816`, `64x128x16`); None without them."""
    for modifier in modifiers:
        if modifier in _SHAPES:
            return _SHAPES[modifier]
        if found := _GROUP_SHAPE.fullmatch(modifier):
            m, n, k = map(int, found.groups())
            return m, n, k
    return None


@lru_cache(maxsize=65536)
def flops(opcode: str, operands: str = "") -> float | None:
    """Floating-point operations (integer ones for IMMA) of one thread, a multiply-add as two; None
    for a matrix instruction without a shape in its name.

    A matrix instruction's operations are shared among its warp or warpgroup. Sparse forms count the
    skipped ones. HFMA2 of zero registers (moves a constant) and HADD2.F32 (converts) count 0."""
    name, *modifiers = opcode.split(".")
    if kind(name) != "tensor":
        moves = (name == "HFMA2" and "RZ, RZ" in operands) or opcode.startswith("HADD2.F32")
        return 0.0 if moves else float(_FLOPS.get(name, 0))
    found = shape(modifiers)
    if found is None:
        return None
    m, n, k = found
    if any("x" in modifier for modifier in modifiers if modifier[:1].isdigit()):
        return 2.0 * m * n * k / WARPGROUP_SIZE
    product = 2.0 * m * n * k / WARP_SIZE
    if name == "HMMA" and (m, n, k) == (8, 8, 4):
        # Volta: one of the steps of four 8x8x4 products done by a warp's quads
        return product * 4 / (2 if "F16" in modifiers[1:2] else 4)
    return product * (2 if "SP" in modifiers else 1)


_OPERAND: Final = re.compile(r"(?<![\w.])R(\d+)((?:\.\w+)*)")
_FIRST: Final = re.compile(r"R(?:\d+|Z)(?!\w)")
_PREDICATE: Final = re.compile(r"!?U?P(?:\d|T|R)$")
_COMMA: Final = re.compile(r",(?![^\[]*\])")
_GUARD: Final = re.compile(r"^\s*(?:\{\s*)?(@!?U?P\w+\s+)?")

#: Instructions whose first general register is read, not written.
READS_ONLY: Final = frozenset((
    "ST", "STG", "STS", "STL", "STSM", "STAS", "STTM", "RED", "REDS", "REDG", "SUST", "SURED", "LDGSTS", "ISETP", "FSETP", "DSETP", "HSETP2", "FCHK",
    "R2P", "R2UR", "R2B", "BAR", "WARPSYNC", "NANOSLEEP", "CALL", "RET", "BRX", "JMX", "CCTL", "CCTLL", "DEPBAR", "SYNCS", "REDUX", "VOTEU",
))  # fmt: skip
#: Memory with 64-bit addresses if the mnemonic says .E and no uniform register gives the base.
_WIDE_ADDRESS: Final = frozenset(
    {"LD", "LDG", "LDGSTS", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG", "CCTL"}
)
#: Every operand is two registers: doubles, paired 32-bit floats of CC 10.0 on, and addresses of code.
_PAIRS: Final = frozenset({
    "DADD", "DMUL", "DFMA", "DSETP", "DMNMX", "FFMA2", "FADD2", "FMUL2", "LEPC", "CALL", "RET", "BRX", "JMX",
})  # fmt: skip
_MATRIX: Final = frozenset({"HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "BMMA"})
#: With .64, .S64 or .U64 every register is a pair. The funnel shift names its halves.
_MAYBE_WIDE: Final = frozenset(
    {"IADD", "IMNMX", "VIMNMX", "ISETP", "MOV", "SEL", "LOP3", "LEA", "ISUB", "INEG", "IABS"}
)
#: Bits of an element by the type in the mnemonic (PTX ISA, "Matrix multiply-accumulate").
_BITS: Final[Mapping[str, int]] = {
    "TF32": 32,
    "S8": 8,
    "U8": 8,
    "E4M3": 8,
    "E5M2": 8,
    "S4": 4,
    "U4": 4,
}


@lru_cache(maxsize=65536)
def registers(opcode: str, operands: str) -> tuple[frozenset[int], frozenset[int]]:
    """(general registers written, read) by an instruction, with pairs and vectors expanded.

    Args:
        opcode: mnemonic with modifiers, `LDG.E.128`.
        operands: what follows it, without a predicate in front: `R4, desc[UR4][R2.64]`.
    """
    base, *modifiers = opcode.split(".")
    parts = list(itertools.dropwhile(_PREDICATE.match, split(operands)))
    writes_first = bool(parts) and base not in READS_ONLY and _FIRST.match(parts[0]) is not None
    widths = _widths(opcode, base, modifiers)
    wide = base in _WIDE_ADDRESS and "E" in modifiers
    written: set[int] = set()
    read: set[int] = set()
    place = 0  # counts register operands, zero registers and constants included
    for i, part in enumerate(parts):
        if "[" in part:
            # where an asynchronous copy goes is an address of shared memory
            read |= _address(part, wide and not (base == "LDGSTS" and i == 0))
            place += not part.startswith(("[", "desc"))
            continue
        count = widths[min(place, len(widths) - 1)]
        for found in _OPERAND.finditer(part):
            first, several = int(found[1]), 2 if ".64" in found[2] and count == 1 else count
            (written if writes_first and i == 0 else read).update(range(first, first + several))
        place += 1
    return frozenset(written), frozenset(read)


def addresses(opcode: str, operands: str) -> frozenset[int]:
    """General registers that an access's addresses are in, as `registers` has them."""
    bracketed = ", ".join(part for part in split(operands) if "[" in part)
    return registers(opcode, bracketed)[1]


def _address(part: str, wide: bool) -> set[int]:
    """Registers of an address; `wide`: pairs, unless a uniform register or modifier says otherwise."""
    wide = wide and "UR" not in part and "desc" not in part and ".U32" not in part
    return {
        int(found[1]) + half
        for found in _OPERAND.finditer(part)
        for half in range(2 if wide or ".64" in found[2] else 1)
    }


def split(operands: str) -> list[str]:
    """Operands at the commas outside of brackets, without the marks of a disassembler."""
    plain = operands.replace("`", " ").partition("(*")[0].strip().rstrip(";").strip()
    if not plain:
        return []
    return [part.strip() for part in (_COMMA.split(plain) if "[" in plain else plain.split(","))]


def _widths(opcode: str, base: str, modifiers: Sequence[str]) -> tuple[int, ...]:
    """Registers of each operand after leading predicates; the last width holds for the rest."""
    if base in _MATRIX:
        return _matrix_widths(base, modifiers)
    if base in ("HGMMA", "QGMMA", "IGMMA", "BGMMA"):
        return _group_widths(base, modifiers)
    if base in ("LDTM", "STTM"):
        return (next((int(m[1:]) for m in modifiers if re.fullmatch(r"x\d+", m)), 1),)
    if size := width(opcode):
        return (max(1, size // 4),)
    if base == "IMAD" and "WIDE" in modifiers:
        return (2, 1, 1, 2)
    if base == "IMAD" and "HI" in modifiers:
        return (1, 1, 1, 2)
    if base in ("F2F", "F2I", "I2F", "FRND", "I2I"):
        return _conversion_widths(base, modifiers)
    if base in _PAIRS or (base == "CS2R" and "32" not in modifiers):
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
    """Registers of D, A, B and C, equal parts for each thread (PTX ISA, fragments of `mma`)."""
    if (tile := shape(modifiers)) is None:
        return (1,)
    m, n, k = tile
    usual = {"DMMA": 64, "BMMA": 1, "QMMA": 8, "IMMA": 8}.get(base, 16)
    named = (_BITS[x] for x in modifiers if x in _BITS and base not in ("DMMA", "BMMA"))
    bits = next(named, usual)
    if any(x.startswith("STEP") for x in modifiers):
        return (2,)  # Volta: a step gives two columns of the quad's 8 by 8 result
    sums = 64 if base == "DMMA" else 32 if base in ("IMMA", "BMMA") or "F32" in modifiers else 16
    halved = 2 if "SP" in modifiers else 1
    part = 32 * WARP_SIZE
    return (
        max(1, m * n * sums // part),
        max(1, m * k * bits // part // halved),
        max(1, k * n * bits // part),
        max(1, m * n * sums // part),
        1,
    )


def _group_widths(base: str, modifiers: Sequence[str]) -> tuple[int, ...]:
    """Registers of D, A (in registers), descriptor and C of a warpgroup's matrix instruction."""
    if (tile := shape(modifiers)) is None:
        return (1,)
    m, n, k = tile
    sums = 16 if "F16" in modifiers[1:2] else 32
    bits = {"QGMMA": 8, "IGMMA": 8, "BGMMA": 1}.get(base, 32 if "TF32" in modifiers else 16)
    results = m * n * sums // (32 * WARPGROUP_SIZE)
    return results, m * k * bits // (32 * WARPGROUP_SIZE), results


@lru_cache(maxsize=65536)
def parts(sass: str) -> tuple[str, str]:
    """(predicate, operands) of a line of SASS; the predicate is "" where it is always true."""
    found = _GUARD.match(sass)
    guard = (found[1] or "").strip() if found else ""
    rest = sass[found.end() :] if found else sass
    return "" if guard == "@PT" else guard, rest.partition(" ")[2]


class CodeRow(NamedTuple):
    """An instruction of a report or of a disassembly, without what was counted at it."""

    address: int
    opcode: str
    sass: str

    @property
    def guard(self) -> str:
        """The predicate under which it runs; "" where it always does."""
        return parts(self.sass)[0]

    @property
    def operands(self) -> str:
        return parts(self.sass)[1]

    @property
    def registers(self) -> tuple[frozenset[int], frozenset[int]]:
        """General registers written and read."""
        return registers(self.opcode, self.operands)


@remembered(4)
def lines(rows: Sequence[Instruction]) -> tuple[CodeRow, ...]:
    """The code of a report's instructions: one object for equal code, so that what is `remembered`
    of it holds for all launches of a kernel."""
    return _one(tuple(map(attrgetter("address", "opcode", "sass"), rows)))


@lru_cache(maxsize=16)
def _one(code: tuple[tuple[int, str, str], ...]) -> tuple[CodeRow, ...]:
    return tuple(map(CodeRow._make, code))


@dataclass(frozen=True)
class SassInstruction:
    """One instruction. `file` and `line` are the innermost source position, or "" and 0."""

    address: int
    opcode: str
    """Mnemonic with modifiers: `LDG.E.128`."""
    operands: str = ""
    predicate: str = ""
    """`@P0`, `@!P1`; "" where always executed."""
    file: str = ""
    line: int = 0
    targets: tuple[int, ...] = ()
    """Addresses a branch may jump to; for a call, the callee."""

    @cached_property
    def base(self) -> str:
        return base(self.opcode)

    @cached_property
    def modifiers(self) -> tuple[str, ...]:
        return tuple(self.opcode.split(".")[1:])

    @property
    def flops(self) -> float:
        """Operations of one thread; 0 where the mnemonic does not say (see opcodes.flops)."""
        return flops(self.opcode, self.operands) or 0.0

    @property
    def sass(self) -> str:
        """As a disassembler prints it."""
        return " ".join(part for part in (self.predicate, self.opcode, self.operands) if part)


@dataclass(frozen=True)
class Function:
    """One function's instructions in address order, without the padding after its last one."""

    name: str
    instructions: tuple[SassInstruction, ...]

    @cached_property
    def lines(self) -> tuple[CodeRow, ...]:
        return tuple(CodeRow(i.address, i.opcode, i.sass) for i in self.instructions)

    @cached_property
    def targets(self) -> dict[int, tuple[int, ...]]:
        """Indices of the instructions that each branch, call or BSSY names, by its own."""
        index = {i.address: n for n, i in enumerate(self.instructions)}
        named = ((n, i.targets) for n, i in enumerate(self.instructions) if i.targets)
        return {n: tuple(index[t] for t in found if t in index) for n, found in named}


def without_padding(instructions: Sequence[SassInstruction]) -> Sequence[SassInstruction]:
    """Without the NOPs, and the branch to itself before them, that pad a function's end."""
    end = len(instructions)
    while end and instructions[end - 1].base == "NOP":
        end -= 1
    if (
        end
        and instructions[end - 1].base == "BRA"
        and instructions[end - 1].targets == (instructions[end - 1].address,)
    ):
        end -= 1
    return instructions[:end]
