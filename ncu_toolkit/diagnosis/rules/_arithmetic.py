"""Numbers of 16 bits that are widened to floats: what tells a kernel whose data are halves from one
whose data are floats.

A half is converted by `HADD2.F32`. A bfloat16 is the upper half of the float of the same value, so
that widening it is integer work: a shift by 16 bits, a mask of the upper half, or a permutation of
bytes with two zeros below. The same instructions serve hashes and indices; they count here only
where they take what a load brought and give it to float arithmetic or to shared memory.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ncu_toolkit.diagnosis.figures import WARP
from ncu_toolkit.diagnosis.kernel import Kernel
from ncu_toolkit.model import Instruction
from ncu_toolkit.sass import attribution

#: `HADD2.F32 R4, -RZ, R5.H0_H0`: compilers convert a half to a float so.
CONVERTS: Final = "HADD2.F32"
_SHIFT: Final = re.compile(
    r"(?:SHF\.L\.U32|SHL|SHL\.U32|USHF\.L\.U32)\s+R\d+, R\d+(?:\.reuse)?, 0x10\b"
)
_TIMES: Final = re.compile(r"IMAD(?:\.SHL)?(?:\.U32)?\s+R\d+, R\d+(?:\.reuse)?, 0x10000, RZ")
_MASK: Final = re.compile(
    r"LOP3?(?:\.LUT)?\s+R\d+, R\d+(?:\.reuse)?, (?:0xffff0000|-0x10000)(?:, RZ, 0xc0\b|\b(?!,))"
)
_PERMUTE: Final = re.compile(r"PRMT\s+R\d+, (RZ|R\d+)(?:\.reuse)?, 0x([0-7]{1,4}), (RZ|R\d+)")
#: Moves of a loaded word on its way: a half is brought into place first.
_MOVES: Final = ("MOV", "PRMT", "IMAD", "SHF")
_STEPS: Final = 3


def widened(k: Kernel) -> tuple[float, float]:
    """Conversions of 16-bit numbers to floats: (warp instructions, thread instructions)."""
    converting = [row for row in k.rows if row.opcode.startswith(CONVERTS)]
    warps, threads = sum(row.warps for row in converting), sum(row.threads for row in converting)
    for row in _bfloat16(k):
        executed = float(row.executed or 0)
        warps += executed
        threads += float(row.threads) if row.threads is not None else executed * WARP
    return warps, threads


@lru_cache(maxsize=1 << 16)
def is_widening(sass: str) -> bool:
    """Whether a line of SASS puts one half of a register into the upper half of another, with zeros
    below."""
    if _SHIFT.search(sass) or _TIMES.search(sass) or _MASK.search(sass):
        return True
    found = _PERMUTE.search(sass)
    if not found or "RZ" not in (found[1], found[3]) or found[1] == found[3]:
        return False
    # The selector's lowest digit picks the lowest byte: 0 to 3 of the first operand, 4 to 7 of the
    # last.
    low, next_low, high, top = (int(digit) for digit in reversed(found[2].zfill(4)))
    zeros = range(4) if found[1] == "RZ" else range(4, 8)
    return (
        low in zeros
        and next_low in zeros
        and high not in zeros
        and high % 2 == 0
        and top == high + 1
    )


def _bfloat16(k: Kernel) -> list[Instruction]:
    table = k.instructions
    candidates = {i for i, row in enumerate(table) if row.executed and is_widening(row.sass)}
    if not candidates:
        return []
    flow = attribution.flow_of(table)
    used: set[int] = set()
    for i, row in enumerate(table):
        if row.executed and (attribution.kind(row.opcode) == "fp32" or row.base == "STS"):
            used.update(
                j
                for register in flow.reads[i]
                for j in flow.sources(i, register)
                if j in candidates
            )
    return [table[i] for i in sorted(used) if _of_load(flow, i)]


def _of_load(flow: attribution.Flow, index: int) -> bool:
    """Whether what an instruction takes comes from a load of global or shared memory, at most moved
    on its way."""
    waiting = {index}
    for _ in range(_STEPS):
        waiting = {
            j for i in waiting for register in flow.reads[i] for j in flow.sources(i, register)
        }
        if any(attribution.base(flow.code[j].opcode) in ("LDG", "LD", "LDS") for j in waiting):
            return True
        waiting = {j for j in waiting if attribution.base(flow.code[j].opcode) in _MOVES}
    return False


def is_double(opcode: str) -> bool:
    """FP64 arithmetic, conversions to or from it, and the 64-bit helpers of MUFU."""
    return (
        attribution.kind(opcode) == "fp64"
        or is_conversion(opcode)
        or opcode.startswith(("MUFU.RCP64H", "MUFU.RSQ64H"))
    )


def is_conversion(opcode: str) -> bool:
    base, *modifiers = opcode.split(".")
    return base in ("F2F", "I2F", "F2I", "FRND") and "F64" in modifiers


def converts_doubles(k: Kernel) -> bool:
    """Whether most work of the special-function kind is conversion to or from double, or its 64-bit
    helpers."""
    special = sum(row.warps for row in k.rows if attribution.kind(row.opcode) == "special")
    double = sum(
        row.warps
        for row in k.rows
        if attribution.kind(row.opcode) == "special" and is_double(row.opcode)
    )
    return double > special / 2 > 0


def computing(k: Kernel) -> float:
    """Part (0-1) of the executed instructions that compute, special functions and conversions
    included; integers, which mostly are addresses, are not."""
    kinds = ("fp32", "fp16", "fp64", "special", "tensor")
    return sum(k[f"kind_share:{kind}"] or 0.0 for kind in kinds)


def is_multiply_add(opcode: str) -> bool:
    """A multiply-add of floats or halves on the ordinary pipes."""
    return attribution.base(opcode) in ("FFMA", "HFMA2", "FFMA2")


#: Multiply-adds among the instructions of a product near the roof of the FMA pipe: 85 to 93% on an
#: H200; n-body sums and stencils, whose operands are reused too, stay below a half.
PRODUCT: Final = 0.5


#: Multiply-adds that add to the register they write: all of a sum of products, a third of it where
#: an unrolled loop renames registers; none of a polynomial, which multiplies its result instead.
SUMS: Final = 0.25


_SUM: Final = re.compile(
    r"\bFFMA2?\S*\s+(R\d+)[^,]*,\s*[-|]*R\d+[^,]*,\s*[-|]*R\d+[^,]*,\s*[-|]*(R\d+)\b"
)


#: Times that a product's operands are at least loaded, by as many tiles: see missing-data-reuse,
#: which asks for as many.
REUSE: Final = 4.0


def is_fp32_product(k: Kernel) -> bool:
    """Whether the kernel is like a product of FP32 matrices: multiply-adds are most of its
    instructions, they sum up, and each byte of device memory reaches them many times over through
    shared memory. False where opcodes were not counted."""
    rows = list(k.rows)
    total = sum(row.warps for row in rows)
    fused = sum(row.warps for row in rows if row.base in ("FFMA", "FFMA2"))
    if not total or fused / total < PRODUCT or k.executed("tensor"):
        return False
    read = k["dram_read_bytes"]
    shared = k["lane_shared_load_bytes"]
    if not read or not shared or shared / read < REUSE:
        return False
    counted = [
        (row.executed, _SUM.search(row.sass))
        for row in k.instructions
        if row.executed and row.base in ("FFMA", "FFMA2")
    ]
    sums = sum(n for n, found in counted if found and found[1] == found[2])
    return not counted or sums >= SUMS * sum(n for n, _ in counted)
