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
Where integers are the work (hashing, sorting, alignment, integer sums), they are not overhead: what
is computed from loaded values, or ends in a stored one, is taken for work. A kernel at a memory roof
gains nothing.

Source
CUDA C++ Best Practices Guide, "Division Modulo Operations"; CUDA C++ Programming Guide, "Arithmetic
Instructions".
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Evidence, Finding
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, keep, percent
from ncu_toolkit.kernel.diagnosis.rules import (
    KernelFacts,
    StaticFinding,
    cycles,
    evidence,
    memory,
    place,
)
from ncu_toolkit.kernel.diagnosis.thresholds import BUSY, Threshold
from ncu_toolkit.kernel.diagnosis.time_model import PER_INSTRUCTION, RESOURCES
from ncu_toolkit.kernel.sass import attribution

TITLE: Final = "Integer arithmetic"
LIMIT: Final = "compute"
REQUIRES: Final = ("opcodes",)
OPTIONAL: Final = ("alu_pipe_active", "fmaheavy_pipe_active", "issue_active", "stalls")
COSTS: Final = (("integer",), PER_INSTRUCTION)
NCU: Final = (("CPIStall", "math pipe throttle"),)
CODE_RANK: Final = 12
MANY: Final = Threshold(0.5, "more integer instructions than all others together")
#: Instructions of a 32-bit unsigned division or modulo by an unknown number, conversions included,
#: as compiled for sm_90; and of one by a number whose reciprocal is known, with the remainder
#: (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", figure 4.1).
DIVISION: Final = 17
BY_RECIPROCAL: Final = 7
BITS: Final = ("LOP", "LOP3", "LOP32I", "SHF", "SHL", "SHR", "PRMT", "BMSK", "SGXT")
USEFUL: Final = (
    "global", "copy", "shared", "atomic", "texture", "fp32", "fp64", "fp16", "tensor", "shuffle",
)  # fmt: skip
OPERATIONS: Final = "divisions or modulo operations"
#: From this part of its time on, the tensor pipe's work is worth a word beside integers.
BESIDE: Final = 0.1


def find(k: Kernel) -> Outcome:
    total, count, integer = k.total, _divisions(k), k.executed("integer") or 0.0
    divisions = count * 40 > integer > 0  # enough of the integer arithmetic to be worth naming
    pipe, busy = k.model.busiest()
    limits = pipe in ("alu", "fmaheavy") and busy >= BUSY.value
    measured = k.fact("kind_share:integer", ">=", MANY)
    special = (k.executed("special") or 0.0) if divisions else 0.0
    enough = total * (MANY.value / 2 if divisions else MANY.value)
    few = "Index arithmetic is less than half of the executed instructions."
    if not total or integer + special < enough:
        return k.ruled_out(few, measured)
    # Integers that come from memory or end in what is stored are what some kernels compute with: worth
    # a remark where they divide, or where their pipe is the limit.
    data = _on_data(k)
    on_data = None if limits else data
    overhead = integer + special if divisions else integer * (1 - (on_data or 0.0))
    if overhead < enough:
        return k.ruled_out(few, measured)
    values = data is not None and data > 0.5
    if limits and not divisions and values:
        return _work(k, pipe, busy, measured)
    first, how = [], _what_for(k)
    if divisions:
        how = OPERATIONS
        first = [
            "Replace division and modulo by shifts and masks, by compile-time constants, or by 2-D and 3-D indices.",
            "If many numbers are divided by a value known before the launch, multiply by its reciprocal (fast division).",
        ]
    return k.finding(
        f"{percent(overhead / total)} of the instructions are integer overhead around the actual work, {how}.",
        _less(k, overhead, count if divisions else 0, values),
        (
            measured,
            k.stated("integer_overhead", overhead / total),
            "kind_share:special alu_pipe_active issue_active stall_share:wait",
        ),
        (
            *first,
            "Compute the base address once before the loop, and step it by a constant. Use 32-bit indices if they are large enough.",
            "Unroll, so that several elements share one address computation.",
        ),
        "Fewer IMAD, LOP3, ISETP and SHF for the same loads, and no I2F or F2I around the indices.",
        confidence="high" if divisions else "low" if on_data is None else "medium",
        locations=k.locate_executed("integer", "integer instructions executed"),
    )


def _less(k: Kernel, overhead: float, divisions: float, values: bool) -> Removal:
    """Without the overhead, but for what useful work may bring along, one for each memory,
    floating-point, shuffle or matrix instruction: an address step or a loop step."""
    kept, rest = min(overhead, k.executed(*USEFUL) or 0.0), "one integer instruction per useful one"
    if divisions and values:
        # Such numbers must be divided: by a reciprocal, not by another index.
        kept = max(kept, overhead - divisions * (DIVISION - BY_RECIPROCAL))
        rest = "reciprocals instead of divisions"
    waits = k.blame("short_scoreboard", "special") if divisions else 0.0
    left, multiplied = kept / overhead if overhead else 1.0, k.of_base("IMAD")
    on_fma = multiplied / (multiplied + (k.executed("fp32") or 0.0)) if multiplied else 0.0
    xu = left if divisions else 1.0
    return Removal(
        f"with {rest}",
        stalls={"short_scoreboard": keep(waits, left), "math_pipe_throttle": left},
        loads={"alu": left, "fmaheavy": left, "xu": xu, "fma": keep(on_fma, left)},
        instructions=1 - (overhead - kept) / k.total,
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    floats = region.flops and region.limit not in ("issue", "alu", "special")
    if facts.dtype.startswith(("int", "uint")) or floats:
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
    counted = units.counted(divisions, "division or modulo operation", OPERATIONS)
    return facts.finding(
        "likely" if divisions else "possible",
        f"{percent(share)} of the instructions in the {place(region)} are integer arithmetic"
        + (f", including {counted}." if divisions else "."),
        (
            evidence("integer_share", "Integer instructions", share, "fraction", "Addresses, indices, comparisons.", (threshold, ">=")),
            evidence("divisions", "Integer divisions", divisions, "count",
                     "I2F, MUFU.RCP and F2I together: a division by a value not known at compile time."),
            cycles(region, "alu", "Integer pipe"),
            memory(region),
        ),
        "Replace division by 2-D indices, shifts, masks or constants. Step addresses by a constant. Unroll, so that elements share an address.",
        "The issue slots or the integer pipe are busy, memory is not.",
        rows, "integer instructions",
    )  # fmt: skip


def _on_data(k: Kernel) -> float | None:
    """Part of the executed integer instructions that work on values from memory, or make those that
    are stored, unless they are indices too; None where instructions were not counted one by one."""
    rows = [
        (i, row.executed)
        for i, row in enumerate(k.instructions)
        if attribution.kind(row.opcode) == "integer" and row.executed
    ]
    total = sum(n for _, n in rows)
    if not total:
        return None
    flow = attribution.flow_of(k.instructions)
    addresses = flow.into_addresses(k.places("global"))
    data = flow.on_loaded_values() | (flow.into_stored_values() - addresses)
    return sum(n for i, n in rows if i in data) / total


def _divisions(k: Kernel) -> int:
    """Divisions by an unknown integer: a reciprocal is made from an integer (I2F, MUFU.RCP) and
    turned back (F2I), all three in the mix."""
    return min(
        sum(n for opcode, n in k.profile.mix.opcodes.items() if opcode.startswith(name))
        for name in ("F2I", "I2F", "MUFU.RCP")
    )


def _work(k: Kernel, pipe: str, busy: float, measured: Evidence | None) -> Finding:
    """Integers are what the kernel computes with, and their pipe is the limit: a roof, whose height
    only the algorithm changes."""
    tensor, beside, shown = k.model.busy("tensor"), "", None
    what = "Use instructions that do more: LOP3 for three operands, PRMT for bytes, DP4A for byte products."
    if tensor >= BESIDE:
        beside = f" The tensor cores work at the same time: their pipe is {percent(tensor)} busy."
        what = "Unpack and pack several values at once: LOP3 for three operands, PRMT for bytes."
        shown = "tensor_pipe_active"
    return k.roof(
        f"The kernel computes with integers, {_what_for(k, 'additions and multiplications')}. They keep "
        f"{RESOURCES[pipe][2]} {percent(busy)} busy.{beside}",
        (measured, shown, "alu_pipe_active fmaheavy_pipe_active issue_active"),
        (
            "Use the pipe that has room: shifts and logic run on the ALU, multiply-adds on the FMA pipe.",
            f"{what} Prefer 32-bit to 64-bit products.",
        ),
        "Fewer integer instructions for the same result.",
    )


def _what_for(k: Kernel, else_: str = "addresses and indices") -> str:
    """What integer instructions do: multiply-adds and additions make addresses and indices; logic,
    shifts and selections take values apart."""
    if k.of_base(*BITS) > (k.executed("integer") or 0.0) / 2:
        return "mostly logic and shifts, as in packing, hashing and conversion"
    return f"mostly {else_}"
