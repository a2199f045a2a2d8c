"""The special-function unit is the limit: roots, exponentials, sines, divisions or type
conversions.

What it is
The XU pipe computes MUFU operations (reciprocal, square root, exp2, log2, sin, cos) and most
conversions between number types, at 16 lanes a cycle and SM: an eighth of the FP32 rate on most
GPUs.

Why it costs time
A formula with one MUFU for every few multiply-adds is bound by that pipe while the FMA pipe idles.

How to confirm
The XU pipe is the busiest; MUFU, I2F, F2I or F2F in the mix; math pipe throttle, short scoreboard
or MIO throttle at them.

What to change
Compute each special function once and keep it; multiply by a reciprocal instead of dividing; use
__expf, __sinf, __fdividef or -use_fast_math where the accuracy allows; replace some functions by a
polynomial on the FMA pipe; avoid conversions in the inner loop.

When the advice is wrong
Where results must be exact to the last bits, fast variants are not an option. A kernel at the DRAM
roof gains nothing.

Source
CUDA C++ Programming Guide, "Arithmetic Instructions" (throughput table: 16 results a cycle); CUDA
C++ Best Practices Guide, "Math Libraries".
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules._arithmetic import converts_doubles
from ncu_toolkit.diagnosis.rules._code import (
    KernelFacts,
    StaticFinding,
    cycles,
    locations,
    memory,
    place,
)
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    STALL,
    abstain,
    blame,
    fact,
    finding,
    keep,
    lines_have,
    locate_executed,
    missing,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.model import Finding, NoFinding, Profile
from ncu_toolkit.sass import attribution

ID: Final = "special-function-pressure"
TITLE: Final = "Special-function pressure"
LIMIT: Final = "compute"
REQUIRES: Final = ()
OPTIONAL: Final = ("xu_pipe_active", "stalls", "opcodes")
NCU: Final = (
    ("CPIStall", "mio throttle"), ("CPIStall", "short scoreboard"), ("CPIStall", "math pipe throttle"), ("HighPipeUtilization", "xu"),
)  # fmt: skip
UNITS: Final = ("xu",)
WAITS: Final = {"short_scoreboard": "special", "mio_throttle": "special"}
CODE_RANK: Final = 5
#: What stays: the accurate forms take several MUFU operations and fix-up steps where the fast ones
#: take one, and a value kept is not computed again.
STEP: Final = 0.25
#: The fast variants that the second piece of advice names.
FAST: Final = re.compile(
    r"\b__(?:(?:sin|cos|sincos|tan|exp|exp10|log|log2|log10|pow)f|fdividef|frcp_r[nzud]|frsqrt_rn)\b"
)
REASONS: Final = ("math_pipe_throttle", "short_scoreboard", "mio_throttle")


class Words:
    few = "Warps spend only {waiting} of their time waiting for special functions."
    idle = "The special-function pipe is {busy} busy."
    doubles = "The pipe converts between double and single precision: see Double precision."
    computes = "roots, exponentials, sines, divisions and conversions"
    busy = "The special-function pipe ({computes}) is {busy} busy, and faster arithmetic pipes wait for it."
    waiting = (
        "Warps spend {waiting} of their time waiting for the special-function pipe ({computes})."
    )
    advice = (
        "Compute each reciprocal, root or exponential once and reuse it. Replace repeated divisions by multiplications.",
        "Use the fast variants (__expf, __sinf, __fdividef, or -use_fast_math) if they are accurate enough.",
        "Move some of the work to the FMA pipe. A short polynomial costs a few multiply-adds.",
    )
    elsewhere: ClassVar[language.Elsewhere] = {
        "triton": (
            "Compute each reciprocal, root or exponential once and reuse it. Replace repeated divisions by multiplications.",
            "Use tl.exp2 and tl.log2 with the factor multiplied into a constant that is there anyway.",
            "Move some of the work to the FMA pipe. A short polynomial costs a few multiply-adds.",
        ),
        "numba": (
            "Compute each reciprocal, root or exponential once and reuse it. Replace repeated divisions by multiplications.",
            "Use @cuda.jit(fastmath=True) if it is accurate enough.",
            "Move some of the work to the FMA pipe. A short polynomial costs a few multiply-adds.",
        ),
        "warp": (
            "Compute each reciprocal, root or exponential once and reuse it. Replace repeated divisions by multiplications.",
            'Use the module option "fast_math" (wp.set_module_options) if it is accurate enough.',
            "Move some of the work to the FMA pipe. A short polynomial costs a few multiply-adds.",
        ),
    }
    look_for = "Fewer MUFU instructions, a less busy XU pipe, a busier FMA pipe."
    code = "Roots, exponentials, divisions and conversions take more cycles in the {place} than anything else, memory included."
    code_advice = (
        "Compute each once and reuse it. Use the fast variants (__expf, __fdividef) if they are accurate enough. Replace some "
        "by polynomials."
    )
    code_look_for = "The XU pipe is the busiest, with MUFU in the mix."


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    special = ("special",)
    sampled = any(attribution.waits(profile, reason) for reason in REASONS)
    # Samples at the instructions tell without the pipe's counter, counts of instructions do not.
    if (absent := missing(profile, ("xu_pipe_active",))) and not sampled:
        return abstain(ID, absent)
    busy = model.busy("xu")
    measured = fact(profile, "xu_pipe_active", "", BUSY, ">=")
    waiting = sum(model.waiting(reason) * blame(profile, reason, special) for reason in REASONS)
    if busy < BUSY.value and waiting < STALL.value:
        if absent:
            return ruled_out(
                ID,
                Words.few.format(waiting=units.percent(waiting)),
                *(stall_fact(profile, reason) for reason in REASONS),
            )
        return ruled_out(ID, Words.idle.format(busy=units.percent(busy)), measured)
    if converts_doubles(profile):
        return ruled_out(ID, Words.doubles, measured)
    removal = Removal(
        "with a quarter of the special functions",
        stalls={reason: keep(blame(profile, reason, special), STEP) for reason in REASONS},
        loads={"xu": STEP},
        instructions=keep(figures.value(profile, "kind_share:special") or 0.0, STEP),
    )
    computes = Words.computes
    summary = (
        Words.busy.format(computes=computes, busy=units.percent(busy))
        if busy >= BUSY.value
        else Words.waiting.format(waiting=units.percent(waiting), computes=computes)
    )
    places = locate_executed(
        profile,
        lambda opcode: opcode.startswith(("MUFU", "I2F", "F2I", "F2F")),
        "special-function instructions",
    )
    cuda: tuple[str, ...] = Words.advice
    if lines_have(profile, places, FAST):
        cuda = tuple(line for line in cuda if not FAST.search(line))
    return finding(
        ID,
        summary,
        model.without(removal),
        (
            measured,
            fact(profile, "kind_share:special"),
            stall_fact(profile, "math_pipe_throttle"),
            stall_fact(profile, "short_scoreboard"),
            stall_fact(profile, "mio_throttle"),
        ),
        language.advice(profile, cuda, Words.elsewhere),
        Words.look_for,
        confidence="high" if busy >= BUSY.value else "medium",
        locations=places,
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    busy = region.cycles.get("special", 0.0)
    others = (cycles for unit, cycles in region.cycles.items() if unit != "special")
    if not busy or busy < max([region.memory_cycles, *others]):
        return None
    used = [i for i in region.code if attribution.kind(i.opcode) == "special"]
    return StaticFinding(
        ID, "likely",
        Words.code.format(place=place(region)),
        (
            cycles(region, "special", "Special-function pipe"),
            cycles(region, "fma", "FP32 pipe"),
            cycles(region, "issue", "Issue slots"),
            memory(region),
        ),
        Words.code_advice, Words.code_look_for, locations(used, "special-function instructions"),
    )  # fmt: skip
