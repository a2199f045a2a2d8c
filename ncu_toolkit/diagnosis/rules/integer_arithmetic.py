"""Index arithmetic, division and modulo take more instructions than the work itself.

What it is
Addresses, bounds and loop counters are computed with integer instructions. Integer division and
modulo by a value not known at compile time have no instruction: each is a sequence of some twenty,
through the special-function pipe; 64-bit ones take many times that.

Why it costs time
Integer instructions take the same issue slots as useful ones, and most run on a pipe of half the
FP32 rate.

How to confirm
More than half of the executed instructions are integer ones, and issue slots or the integer pipe
are busy, or warps wait for the chain of a division. I2F, MUFU.RCP and F2I close together mark a
division.

What to change
Divide by compile-time constants or powers of two (shift and mask); move index computation out of
the loop and step addresses; use 32-bit indices; let blockIdx and threadIdx carry the dimensions
instead of dividing a flat index; unroll, so that several elements share an address.

When the advice is wrong
Where integers are the work (hashing, sorting, integer sums), they are not overhead. A kernel at a
memory roof gains nothing.

Source
CUDA C++ Best Practices Guide, "Division Modulo Operations"; CUDA C++ Programming Guide, "Arithmetic
Instructions".
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules._code import (
    KernelFacts,
    StaticFinding,
    cycles,
    evidence,
    locations,
    memory,
    place,
)
from ncu_toolkit.diagnosis.rules._roof import roof
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    Threshold,
    blame,
    fact,
    finding,
    keep,
    locate_executed,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import RESOURCES, Removal, TimeModel
from ncu_toolkit.model import Evidence, Finding, NoFinding, Profile
from ncu_toolkit.sass import attribution

ID: Final = "integer-arithmetic"
TITLE: Final = "Integer arithmetic"
LIMIT: Final = "compute"
REQUIRES: Final = ("opcodes",)
OPTIONAL: Final = ("alu_pipe_active", "fmaheavy_pipe_active", "issue_active", "stalls")
NCU: Final = (("CPIStall", "math pipe throttle"),)
CODE_RANK: Final = 12
MANY: Final = Threshold(0.5, "more integer instructions than all others together")
#: Integer instructions that useful work may bring along, one for each memory, floating-point,
#: shuffle or matrix instruction: an address step or a loop step.
ALLOWED_FOR_EACH: Final = 1.0
#: Instructions of a 32-bit unsigned division or modulo by an unknown number, conversions included,
#: as compiled for sm_90; and of one by a number whose reciprocal is known, with the remainder
#: (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", figure 4.1).
DIVISION: Final = 17
BY_RECIPROCAL: Final = 7
BITS: Final = ("LOP", "LOP3", "LOP32I", "SHF", "SHL", "SHR", "PRMT", "BMSK", "SGXT")
USEFUL: Final = (
    "global", "copy", "shared", "atomic", "texture", "fp32", "fp64", "fp16", "tensor", "shuffle",
)  # fmt: skip
#: From this part of its time on, the tensor pipe's work is worth a word beside integers.
BESIDE: Final = 0.1


class Words:
    divide = (
        "Replace division and modulo by shifts and masks, by compile-time constants, or by 2-D and 3-D indices.",
        "If many numbers are divided by a value known before the launch, multiply by its reciprocal (fast division).",
    )
    few = "Index arithmetic is less than half of the executed instructions."
    divisions = "including divisions or modulo operations"
    found = "{part} of the instructions are integer overhead around the actual work, {how}."
    step = "Compute the base address once before the loop, and step it by a constant. Use 32-bit indices if they are large enough."
    unroll = "Unroll, so that several elements share one address computation."
    look_for = (
        "Fewer IMAD, LOP3, ISETP and SHF for the same loads, and no I2F or F2I around the indices."
    )
    code = "{share} of the instructions in the {place} are integer arithmetic"
    code_divisions = ", including {divisions}."
    division, divisions = "division or modulo operation", "divisions or modulo operations"
    code_advice = (
        "Replace division by 2-D indices, shifts, masks or constants. Step addresses by a constant. Unroll, so that elements "
        "share an address."
    )
    code_look_for = "The issue slots or the integer pipe are busy, memory is not."
    work = "The kernel computes with integers, {what}. They keep {unit} {busy} busy."
    beside = " The tensor cores work beside them: their pipe is {tensor} busy."
    work_advice = (
        "Use the pipe that has room: shifts and logic run on the ALU, multiply-adds on the FMA pipe.",
        (
            "Use instructions that do more: LOP3 for three operands, PRMT for bytes, DP4A for byte products. Prefer 32-bit to "
            "64-bit products."
        ),
    )
    matrix_advice = (
        work_advice[0],
        "Unpack and pack several values at once: LOP3 for three operands, PRMT for bytes. Prefer 32-bit to 64-bit products.",
    )
    work_look_for = "Fewer integer instructions for the same result."
    bits = "mostly logic and shifts, as in packing, hashing and conversion"


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    total = sum(row.warps for row in figures.rows(profile))
    divisions = _divisions(profile)
    integer = figures.executed(profile, ("integer",)) or 0.0
    pipe, busy = model.busiest()
    limits = pipe in ("alu", "fmaheavy") and busy >= BUSY.value
    measured = fact(profile, "kind_share:integer", "", MANY, ">=")
    special = (figures.executed(profile, ("special",)) or 0.0) if divisions else 0.0
    enough = total * (MANY.value / 2 if divisions else MANY.value)
    if not total or integer + special < enough:
        return ruled_out(ID, Words.few, measured)
    # Integers that come from memory are what some kernels compute with: worth a remark where they
    # divide, or where their pipe is the limit.
    data = _on_data(profile)
    on_data = None if limits else data
    overhead = integer + special if divisions else integer * (1 - (on_data or 0.0))
    if overhead < enough:
        return ruled_out(ID, Words.few, measured)
    useful = figures.executed(profile, USEFUL) or 0.0
    if limits and not divisions and data is not None and data > 0.5:
        return _work(profile, model, pipe, busy, measured)
    kept = min(overhead, ALLOWED_FOR_EACH * useful)
    reciprocal = bool(divisions) and data is not None and data > 0.5
    if reciprocal:
        # Numbers that come from memory must be divided: by a reciprocal, not by another index.
        kept = max(kept, overhead - _count(profile) * (DIVISION - BY_RECIPROCAL))
    gone = (overhead - kept) / total
    left = kept / overhead if overhead else 1.0
    removal = Removal(
        "with reciprocals in place of divisions"
        if reciprocal
        else "with one integer instruction per useful one",
        stalls={
            "short_scoreboard": keep(
                blame(profile, "short_scoreboard", ("special",)) if divisions else 0.0, left
            ),
            "math_pipe_throttle": left,
        },
        loads={
            "alu": left,
            "fmaheavy": left,
            "xu": left if divisions else 1.0,
            "fma": keep(_on_fma(profile), left),
        },
        instructions=1 - gone,
    )
    how = Words.divisions if divisions else _what_for(profile)
    return finding(
        ID,
        Words.found.format(part=units.percent(overhead / total), how=how),
        model.without(removal),
        (
            measured,
            Evidence(
                "integer_overhead",
                "Integer instructions around the work",
                overhead / total,
                "fraction",
                "Part of the executed warp instructions that are integer arithmetic on indices.",
            ),
            fact(profile, "kind_share:special"),
            fact(profile, "alu_pipe_active"),
            fact(profile, "issue_active"),
            stall_fact(profile, "wait"),
        ),
        (*(Words.divide if divisions else ()), Words.step, Words.unroll),
        Words.look_for,
        confidence="high" if divisions else "low" if on_data is None else "medium",
        locations=locate_executed(profile, "integer", "integer instructions executed"),
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    if facts.dtype.startswith(("int", "uint")) or (
        region.flops and region.limit not in ("issue", "alu", "special")
    ):
        return None
    divisions = min(
        sum(i.base == "F2I" for i in region.code),
        sum(i.base == "I2F" for i in region.code),
        sum(i.opcode.startswith("MUFU.RCP") for i in region.code),
    )
    share = region.share("integer", "special") if divisions else region.share("integer")
    threshold = MANY.value / 2 if divisions else MANY.value
    busiest = max(region.cycles.values(), default=0.0)
    if share < threshold or busiest < region.memory_cycles:
        return None
    rows = [i for i in region.code if attribution.kind(i.opcode) == "integer"]
    counted = units.counted(divisions, Words.division, Words.divisions)
    return StaticFinding(
        ID, "likely" if divisions else "possible",
        Words.code.format(share=units.percent(share), place=place(region)) + (Words.code_divisions.format(divisions=counted) if divisions else "."),
        (
            evidence("integer_share", "Integer instructions", share, "fraction", "Addresses, indices, comparisons.", threshold, ">="),
            evidence("divisions", "Integer divisions", divisions, "count",
                     "I2F, MUFU.RCP and F2I together: a division by a value not known at compile time."),
            cycles(region, "alu", "Integer pipe"),
            memory(region),
        ),
        Words.code_advice, Words.code_look_for, locations(rows, "integer instructions"),
    )  # fmt: skip


def _on_data(profile: Profile) -> float | None:
    """Part of the executed integer instructions that work on values from memory; None where
    instructions were not counted one by one."""
    rows = [
        (i, row.executed)
        for i, row in enumerate(profile.instructions)
        if attribution.kind(row.opcode) == "integer" and row.executed
    ]
    total = sum(n for _, n in rows)
    if not total:
        return None
    data = attribution.flow_of(profile.instructions).on_loaded_values()
    return sum(n for i, n in rows if i in data) / total


def _count(profile: Profile) -> int:
    """Divisions by an unknown integer: a reciprocal is made from an integer (I2F, MUFU.RCP) and
    turned back (F2I), all three in the mix."""
    return min(
        sum(n for opcode, n in profile.mix.opcodes.items() if opcode.startswith(name))
        for name in ("F2I", "I2F", "MUFU.RCP")
    )


def _divisions(profile: Profile) -> bool:
    """Whether divisions are a part of the integer arithmetic worth naming."""
    return _count(profile) * 40 > (figures.executed(profile, ("integer",)) or 0.0) > 0


def _work(
    profile: Profile, model: TimeModel, pipe: str, busy: float, measured: Evidence | None
) -> Finding:
    """Integers from memory are what the kernel computes with, and their pipe is the limit: a roof,
    whose height only the algorithm changes."""
    tensor = model.busy("tensor")
    return roof(
        ID,
        Words.work.format(
            what=_what_for(profile, "additions and multiplications"),
            unit=RESOURCES[pipe][2],
            busy=units.percent(busy),
        )
        + (Words.beside.format(tensor=units.percent(tensor)) if tensor >= BESIDE else ""),
        model,
        (
            measured,
            fact(profile, "tensor_pipe_active") if tensor >= BESIDE else None,
            fact(profile, "alu_pipe_active"),
            fact(profile, "fmaheavy_pipe_active"),
            fact(profile, "issue_active"),
        ),
        Words.matrix_advice if tensor >= BESIDE else Words.work_advice,
        Words.work_look_for,
        good=False,
        confidence="medium",
    )


def _what_for(profile: Profile, else_: str = "addresses and indices") -> str:
    """What integer instructions do: multiply-adds and additions make addresses and indices; logic,
    shifts and selections take values apart."""
    bits = sum(row.warps for row in figures.rows(profile) if attribution.base(row.opcode) in BITS)
    integer = figures.executed(profile, ("integer",)) or 0.0
    return Words.bits if bits > integer / 2 else f"mostly {else_}"


def _on_fma(profile: Profile) -> float:
    """Part of the FMA pipe's instructions that are integer multiply-adds."""
    multiply = sum(row.warps for row in figures.rows(profile) if row.opcode.split(".")[0] == "IMAD")
    floats = figures.executed(profile, ("fp32",)) or 0.0
    return multiply / (multiply + floats) if multiply else 0.0
