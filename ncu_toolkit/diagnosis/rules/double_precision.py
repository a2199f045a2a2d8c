"""Double-precision arithmetic limits the kernel, often by accident: a literal without f is enough.

What it is
FP64 runs at half of the FP32 rate on A100 and H100, at 1/32 or 1/64 on most others. A literal like
0.1, or a math function without its f, turns a float expression into double precision, with a
conversion on either side. (A literal that float holds exactly, like 0.5, costs nothing where the
result is a float: the compiler computes in float.)

Why it costs time
The FP64 pipe, and the special-function pipe that converts between the types, are far slower than
the FMA pipe. Division, roots and sines in double are long software sequences.

How to confirm
DFMA, DMUL or DADD in the mix, F2F conversions next to them, and FP64 or XU as the busiest pipe.

What to change
Write 0.1f, sinf, sqrtf; compile with -Xptxas -warn-double-usage, which tells of each double; keep
double for the few sums that need it (or use a compensated float sum).

When the advice is wrong
Where double precision is meant, this is the arithmetic roof of this GPU: use its FP64 tensor cores
(DMMA) for matrix products where it has them.

Source
CUDA C++ Programming Guide, "Arithmetic Instructions" (throughput table); CUDA C++ Best Practices
Guide, "Promotions and Truncations".
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules._arithmetic import is_conversion, is_double
from ncu_toolkit.diagnosis.rules._code import (
    KernelFacts,
    StaticFinding,
    cycles,
    evidence,
    locations,
    place,
)
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    WEAK_STALL,
    WORTH,
    abstain,
    blame,
    fact,
    facts,
    finding,
    keep,
    locate_executed,
    missing,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import NOISE, PIPES, RESOURCES, Removal, TimeModel
from ncu_toolkit.hardware.specs import spec
from ncu_toolkit.model import Evidence, Finding, NoFinding, Profile
from ncu_toolkit.sass import attribution
from ncu_toolkit.sass.cost import unit_cycles

ID: Final = "double-precision"
TITLE: Final = "Double precision"
LIMIT: Final = "compute"
REQUIRES: Final = ()
OPTIONAL: Final = ("opcodes", "fp64_pipe_active", "xu_pipe_active", "stalls")
NCU: Final = (
    ("CPIStall", "math pipe throttle"), ("HighPipeUtilization", "fp64"), ("SOLFPRoofline", "fp64"), ("FPInstructions", "fp64"),
)  # fmt: skip
UNITS: Final = ("fp64",)
CODE_RANK: Final = 2
#: Stall reasons at the special-function pipe, which converts, and at a pipe of its own for FP64.
SPECIAL_WAITS: Final = ("short_scoreboard", "mio_throttle", "math_pipe_throttle")
#: Kinds of instructions that the long scoreboard is for, FP64 on a shared unit aside.
MEMORY_KINDS: Final = ("global", "copy", "local", "atomic", "texture")
#: FP32 lanes an SM and cycle where the compute capability is not known: as in all since CC 8.6.
FP32_LANES: Final = 128
#: A move of a literal: into a register or a uniform one, by the pipe that has room.
LITERAL_MOVE: Final = re.compile(
    r"\bU?MOV U?R\d+, -?(0x|\d)|\bIMAD\.MOV\S* R\d+, RZ, RZ, -?(0x|\d)"
)
#: A double's literal fills two registers.
LITERAL_MOVES: Final = 2
#: Terms of a polynomial in single precision for each in double: 24 bits of the result against 53.
#: (Three pairs with exp, log and divisions keep 0.48, 0.54 and 0.70 of all their arithmetic.)
TERMS_LEFT: Final = 0.5
#: What a warp waits for an FP32 result in a chain for each cycle that it waits for an FP64 one: 4
#: cycles of latency against 8 (Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
#: Microbenchmarking"; chains of DFMA and FFMA on an H200 agree), of which one is its own issue.
WAIT_LEFT: Final = 3 / 7
#: From this share of the FP32 rate down the FP64 unit is one that the SM's sub-partitions share: 1/32
#: and 1/64 (CUDA C++ Programming Guide, throughput table). Warps then queue for it like for the
#: texture unit, and its results arrive like loaded ones: on an RTX 2070 the samples of TEX throttle
#: and long scoreboard stand at DADD and F2F in a kernel without texture instructions.
SHARED_UNIT: Final = 1 / 32
#: Below this the pipe is not what limits, where nothing else is known of the launch: the lower
#: threshold of Nsight Compute's SpeedOfLight rule.
ALONE: Final = BUSY


class Words:
    none = "The kernel does no double-precision arithmetic."
    idle = "There is some double precision, but its pipes are at most {busy} busy."
    converting = "with {part} of all instructions converting between double and float"
    found = "The kernel computes in double precision, {reason}"
    at_rate = " This GPU does them at 1/{part} of its FP32 rate."
    pipe = (
        "The FP64 pipe is {busy} busy.{rate} In single precision the same instructions would take {fp32} of the time on the FP32 pipe. "
        "The busiest other unit is {unit}, at {other}."
    )
    pipe_basis = "The report does not show what else warps wait for, so the gain is not known."
    accident = ". The data are single precision, so this is probably not intended."
    accident_advice = (
        "Write float literals and functions (0.5f, sqrtf, sinf). One double literal turns the whole expression into double.",
        "Keep double only where the result needs it, for example in a final sum.",
    )
    accident_elsewhere: ClassVar[language.Elsewhere] = {
        "triton": (
            "Load or cast to single precision before the arithmetic (x.to(tl.float32)), and pass float32 tensors and scalars.",
            "Keep double only where the result needs it, for example in a final sum.",
        ),
        "numba": (
            "Write np.float32(0.5) for literals, and pass float32 scalars and arrays. Python's and NumPy's floats are double.",
            "Keep double only where the result needs it, for example in a final sum.",
        ),
        "warp": (
            "Use wp.float32 for arrays and variables, and cast doubles on arrival (wp.float32(x)).",
            "Keep double only where the result needs it, for example in a final sum.",
        ),
    }
    call: ClassVar[language.Elsewhere] = {
        "torch": (
            "Pass float32 tensors (x.float()). Tensors made from NumPy arrays are double unless they are converted.",
            "Keep double only for the operators whose result needs it.",
        ),
        "xla": (
            "In JAX leave jax_enable_x64 off, or cast to single precision first (x.astype(jnp.float32)).",
            "Keep double only for the operations whose result needs it.",
        ),
        "cupy": (
            "Make the arrays with dtype=cupy.float32. Without a dtype they are double, as NumPy's are.",
            "Keep double only for the operations whose result needs it.",
        ),
        "library": ("Call the routine for float32, if that is accurate enough.",),
    }
    advice = (
        "Use float if it is accurate enough.",
        (
            "If the result needs double, the kernel is at the FP64 limit. Use FP64 tensor cores for matrix products if this GPU has "
            "them."
        ),
    )
    look_for = "No DFMA, DMUL, DADD and F2F in the hot loop. The FMA pipe does the work."
    code = "Double-precision arithmetic takes more of the {place} than any other unit's work"
    code_converting = ", with conversions to or from it."
    code_advice = (
        "Write float literals and functions (0.5f, sqrtf), unless the result needs double."
    )
    code_look_for = (
        "The FP64 pipe is the busiest, with math pipe throttle or short scoreboard stalls at DFMA."
    )


CALL: Final = Words.call


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    if not profile.mix.collected:
        return _by_pipe(profile, model)
    counts = {row.opcode: row.warps for row in figures.rows(profile) if is_double(row.opcode)}
    arithmetic = sum(n for opcode, n in counts.items() if attribution.kind(opcode) == "fp64")
    if not counts or not arithmetic:
        return ruled_out(ID, Words.none)
    total = sum(row.warps for row in figures.rows(profile))
    special = sum(
        row.warps for row in figures.rows(profile) if attribution.kind(row.opcode) == "special"
    )
    converting = sum(n for opcode, n in counts.items() if attribution.kind(opcode) == "special")
    part = converting / special if special else 0.0
    shared = _shared_unit(profile)
    waits_special = {
        reason: blame(profile, reason, ("special",)) * part
        for reason in (*SPECIAL_WAITS, *(("tex_throttle",) if shared else ()))
    }
    if attribution.waits(profile, "math_pipe_throttle"):
        waits_double = {reason: blame(profile, reason, ("fp64",)) for reason in waits_special}
    else:
        waits_special["math_pipe_throttle"] = _part_of_pipes(model, "xu") * part
        waits_double = {"math_pipe_throttle": _part_of_pipes(model, "fp64")}
    claimed = {
        reason: min(1.0, share + waits_double.get(reason, 0.0))
        for reason, share in waits_special.items()
    }
    if shared and profile.samples:
        claimed["long_scoreboard"] = 1 - blame(profile, "long_scoreboard", MEMORY_KINDS)
    waiting = sum(model.waiting(reason) * share for reason, share in claimed.items())
    busy = max(model.busy("fp64"), model.busy("xu") * part)
    evidence = (
        fact(profile, "fp64_pipe_active"),
        fact(profile, "kind_share:fp64"),
        fact(profile, "xu_pipe_active"),
        stall_fact(profile, "math_pipe_throttle"),
        stall_fact(profile, "short_scoreboard"),
        stall_fact(profile, "mio_throttle"),
        *(
            (stall_fact(profile, "tex_throttle"), stall_fact(profile, "long_scoreboard"))
            if shared
            else ()
        ),
    )
    accident = converting >= arithmetic / 4 or not _wide(profile)
    lanes = spec(profile.device.cc, "fp32") or FP32_LANES
    replaced = (
        arithmetic * figures.WARP / lanes / profile.device.sm_count
        if profile.device.sm_count
        else 0.0
    )
    # The conversions' instructions go, each arithmetic one becomes one on the FMA pipe, whose result
    # is there in half the time, and polynomials have half the terms.
    literals = _literals(profile, arithmetic)
    terms = literals / LITERAL_MOVES * (1 - TERMS_LEFT)
    replaced *= 1 - terms / arithmetic
    instructions = 1 - (converting + literals + terms) / total
    removal = Removal(
        "in single precision",
        stalls={reason: keep(share, 0.0) for reason, share in claimed.items()}
        | {"wait": instructions * keep(blame(profile, "wait", ("fp64",)), WAIT_LEFT)},
        loads={"fp64": 0.0, "xu": keep(part, 0.0)},
        instructions=instructions,
        added={"fma": replaced} if "fma" in model.loads else {},
    )
    prediction = model.without(removal)
    weak = waiting < WEAK_STALL.value and busy < 0.5
    # Conversions that nobody meant are told where they cost little too: one letter removes them.
    if weak and not (converting and accident and prediction.saved > NOISE):
        return ruled_out(ID, Words.idle.format(busy=units.percent(busy)), *evidence)
    reason = (
        Words.converting.format(part=units.percent(converting / total))
        if converting
        else "on the FP64 pipe"
    )
    return finding(
        ID,
        Words.found.format(reason=reason)
        + (Words.accident if accident else ".")
        + (_at_rate(profile) if shared else ""),
        prediction,
        (
            *evidence,
            Evidence(
                "conversions",
                "Conversions",
                converting / total,
                "fraction",
                "Part of the executed warp instructions that convert between double and float.",
            ),
        ),
        language.advice(profile, Words.accident_advice, Words.accident_elsewhere)
        if accident
        else Words.advice,
        Words.look_for,
        confidence="high" if accident else "medium",
        locations=locate_executed(profile, is_double, "double-precision instructions"),
    )


def _by_pipe(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    """What the busy FP64 pipe alone tells, without counts of instructions: each instruction on it
    becomes one of the FP32 pipe."""
    if absent := missing(profile, ("fp64_pipe_active",)):
        return abstain(ID, (*absent, "opcodes"))
    busy = model.busy("fp64")
    measured = fact(profile, "fp64_pipe_active", "", ALONE, ">=")
    share = _rate(profile)
    if busy < ALONE.value or share is None:
        return ruled_out(ID, Words.idle.format(busy=units.percent(busy)), measured)
    fp32 = model.loads["fp64"] * share
    prediction = model.without(
        Removal("in single precision", loads={"fp64": 0.0}, added={"fma": fp32})
    )
    unit, other = model.busiest(*(name for name in model.loads if name != "fp64"))
    if prediction.saved < WORTH or not unit:
        return ruled_out(ID, Words.idle.format(busy=units.percent(busy)), measured)
    return Finding(
        ID,
        Words.pipe.format(
            busy=units.percent(busy),
            rate=_at_rate(profile) if _shared_unit(profile) else "",
            fp32=units.percent(min(1.0, busy * share)),
            unit=RESOURCES[unit][2],
            other=units.percent(other),
        ),
        "high" if _shared_unit(profile) else "medium",
        facts(measured, fact(profile, "issue_active"), fact(profile, "memory_throughput")),
        None,
        (Words.pipe_basis,),
        Words.advice,
        Words.look_for,
        relieves=prediction.relieves,
        weight=prediction.saved,
    )


def _part_of_pipes(model: TimeModel, pipe: str) -> float:
    """How busy a pipe is for each part of the time that the busiest one is (0-1): its part of the
    waiting at pipes, where no samples say at which."""
    busiest = max(model.busy(name) for name in ("fp64", "tensor", *PIPES) if name != "issue")
    return model.busy(pipe) / busiest if busiest else 0.0


def _rate(profile: Profile) -> float | None:
    """The FP64 rate of the GPU over its FP32 rate; None where either is not known."""
    double, single = (spec(profile.device.cc, name) for name in ("fp64", "fp32"))
    return double / single if double and single else None


def _shared_unit(profile: Profile) -> bool:
    return (_rate(profile) or 1.0) <= SHARED_UNIT


def _at_rate(profile: Profile) -> str:
    return Words.at_rate.format(part=round(1 / (_rate(profile) or 1.0)))


def in_code(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    double = [i for i in region.code if attribution.kind(i.opcode) == "fp64"]
    converted = [i for i in region.code if is_conversion(i.opcode)]
    # Conversions take the special-function pipe: they belong to the double precision that needs
    # them.
    for_double = unit_cycles(converted, facts.cc, region.conditional).get("special", 0.0)
    others = max(
        [
            region.cycles.get("special", 0.0) - for_double,
            *(c for unit, c in region.cycles.items() if unit not in ("special", "fp64")),
        ]
    )
    busy = max(region.cycles.get("fp64", 0.0), for_double)
    if facts.dtype == "float64" or not double or busy < others:
        return None
    return StaticFinding(
        ID, "likely",
        Words.code.format(place=place(region)) + (Words.code_converting if converted else "."),
        (
            evidence("fp64_instructions", "FP64 instructions a pass", len(double), "count", "DADD, DMUL, DFMA and comparisons."),
            cycles(region, "fp64", "FP64 pipe"),
            cycles(region, "fma", "FP32 pipe"),
            evidence("fp64_conversions", "Conversions to or from FP64", len(converted), "count",
                     "If float values are widened, the usual reason is a literal without f."),
        ),
        Words.code_advice, Words.code_look_for, locations(double, "FP64 instructions"),
    )  # fmt: skip


def _wide(profile: Profile) -> float:
    """Executed loads and stores of global memory that move 8 bytes a lane, as those of doubles do."""
    return sum(
        n
        for opcode, n in profile.mix.opcodes.items()
        if attribution.base(opcode) in ("LDG", "STG") and ".64" in opcode
    )


def _literals(profile: Profile, arithmetic: float) -> float:
    """Moves of literals, at most one pair for each FP64 instruction: a float's literal is part of
    its instruction, a double's is moved into a pair of registers first. 0 where instructions were
    not counted one by one."""
    moves = sum(
        row.executed
        for row in profile.instructions
        if row.executed and LITERAL_MOVE.search(row.sass)
    )
    return min(float(moves), LITERAL_MOVES * arithmetic)
