"""What the mnemonic of a SASS instruction tells: its kind, the bytes a lane moves, its
operations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

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
    """Bytes a lane moves with a load, store or atomic, by default 4; 0 for anything else and for
    bulk copies. LDSM and STSM move 4 bytes a lane for each 8x8 matrix of 16-bit elements."""
    name, *modifiers = opcode.split(".")
    if name in ("LDSM", "STSM"):
        return 4 * next((int(m) for m in modifiers if m in ("2", "4")), 1)
    if name not in _ACCESSES:
        return 0
    return next((_WIDTHS[m] for m in modifiers if m in _WIDTHS), 4)


def width_classes(counts: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """Loads and stores by base opcode and bytes a lane, from counts by opcode, without constants:
    {"LDS": {4: 8, 16: 12}, …}."""
    classes: dict[str, dict[int, int]] = {}
    for opcode, count in counts.items():
        if (size := width(opcode)) and kind(opcode) != "constant":
            widths = classes.setdefault(base(opcode), {})
            widths[size] = widths.get(size, 0) + count
    return classes


def shape(modifiers: Iterable[str]) -> tuple[int, int, int] | None:
    """M, N, K of a matrix instruction by its modifiers (`16816`, `64x128x16`); None without
    them."""
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
