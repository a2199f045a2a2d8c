"""Double-precision arithmetic limits the kernel, often by accident: a literal without f is enough.

What it is
FP64 runs at half of the FP32 rate on data-centre GPUs and at 1/64 on most others. A literal like
0.5, or a math function without its f, turns a float expression into double precision, with a
conversion on either side.

Why it costs time
The FP64 pipe, and the special-function pipe that converts between the types, are far slower than
the FMA pipe. Division, roots and sines in double are long software sequences.

How to confirm
DFMA, DMUL or DADD in the mix, F2F conversions next to them, the FP64 or XU pipe the busiest.

What to change
Write 0.5f, sinf, sqrtf; compile with -Wdouble-promotion in mind; keep double for the few sums that
need it (or use a compensated float sum).

When the advice is wrong
Where double precision is meant, this is the arithmetic roof of this GPU: use its FP64 tensor cores
(DMMA) for matrix products where it has them.

Source
CUDA C++ Programming Guide, "Arithmetic Instructions" (throughput table); CUDA C++ Best Practices
Guide, "Promotions and Truncations".
"""

from __future__ import annotations

import re
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules._support import (
    WEAK_STALL,
    abstain,
    blame,
    fact,
    finding,
    keep,
    locate,
    missing,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.hardware.specs import spec
from ncu_toolkit.model import Evidence, Finding, Profile, Ruled
from ncu_toolkit.sass import attribution

ID: Final = "double-precision"
TITLE: Final = "Double precision"
REQUIRES: Final = ("opcodes",)
OPTIONAL: Final = ("fp64_pipe_active", "xu_pipe_active", "stalls")
#: FP32 lanes an SM and cycle where the compute capability is not known: as in all since CC 8.6.
FP32_LANES: Final = 128
#: A move of a literal: into a register or a uniform one, by the pipe that has room.
LITERAL_MOVE: Final = re.compile(
    r"\bU?MOV U?R\d+, -?(0x|\d)|\bIMAD\.MOV\S* R\d+, RZ, RZ, -?(0x|\d)"
)


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


def converts_doubles(profile: Profile) -> bool:
    """Whether most work of the special-function kind is conversion to or from double, or its 64-bit
    helpers."""
    special = sum(
        row.warps for row in figures.rows(profile) if attribution.kind(row.opcode) == "special"
    )
    double = sum(
        row.warps
        for row in figures.rows(profile)
        if attribution.kind(row.opcode) == "special" and is_double(row.opcode)
    )
    return double > special / 2 > 0


def find(profile: Profile, model: TimeModel) -> Finding | Ruled:
    if absent := missing(profile, REQUIRES):
        return abstain(ID, absent)
    counts = {row.opcode: row.warps for row in figures.rows(profile) if is_double(row.opcode)}
    arithmetic = sum(n for opcode, n in counts.items() if attribution.kind(opcode) == "fp64")
    if not counts or not arithmetic:
        return ruled_out(ID, "The kernel does no double-precision arithmetic.")
    total = sum(row.warps for row in figures.rows(profile))
    special = sum(
        row.warps for row in figures.rows(profile) if attribution.kind(row.opcode) == "special"
    )
    converting = sum(n for opcode, n in counts.items() if attribution.kind(opcode) == "special")
    part = converting / special if special else 0.0
    waits_special = {
        reason: blame(profile, reason, ("special",)) * part
        for reason in ("short_scoreboard", "mio_throttle", "math_pipe_throttle")
    }
    waits_double = (
        {reason: blame(profile, reason, ("fp64",)) for reason in waits_special}
        if profile.samples
        else {"math_pipe_throttle": 1.0}
    )
    claimed = {
        reason: min(1.0, share + waits_double.get(reason, 0.0))
        for reason, share in waits_special.items()
    }
    waiting = sum(model.waiting(reason) * share for reason, share in claimed.items())
    busy = max(model.busy("fp64"), model.busy("xu") * part)
    evidence = (
        fact(profile, "fp64_pipe_active"),
        fact(profile, "kind_share:fp64"),
        fact(profile, "xu_pipe_active"),
        stall_fact(profile, "math_pipe_throttle"),
        stall_fact(profile, "short_scoreboard"),
        stall_fact(profile, "mio_throttle"),
    )
    if waiting < WEAK_STALL.value and busy < 0.5:
        return ruled_out(
            ID,
            f"There is some double precision, but its pipes are at most {units.percent(busy)} busy.",
            *evidence,
        )
    lanes = spec(profile.device.cc, "fp32") or FP32_LANES
    replaced = (
        arithmetic * figures.WARP / lanes / profile.device.sm_count
        if profile.device.sm_count
        else 0.0
    )
    # A dependent FP64 chain is also longer than an FP32 one; the conversions' instructions go, each
    # arithmetic one becomes one on the FMA pipe.
    removal = Removal(
        "in single precision",
        stalls={reason: keep(share, 0.0) for reason, share in claimed.items()},
        loads={"fp64": 0.0, "xu": keep(part, 0.0)},
        instructions=1 - (converting + _literals(profile, arithmetic)) / total,
        added={"fma": replaced} if "fma" in model.loads else {},
    )
    wide = sum(
        n
        for opcode, n in profile.mix.opcodes.items()
        if attribution.base(opcode) in ("LDG", "STG") and ".64" in opcode
    )
    accident = converting >= arithmetic / 4 or not wide
    reason = (
        f"with {units.percent(converting / total)} of all instructions converting between double and float"
        if converting
        else "on the FP64 pipe"
    )
    return finding(
        ID,
        f"The kernel computes in double precision, {reason}"
        + ("; the data are single precision, so this is probably not meant." if accident else "."),
        model.without(removal),
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
        (
            "Write float literals and functions (0.5f, sqrtf, sinf) wherever float is enough; one double literal turns the whole expression into "
            "double.",
            "Keep double only where the result needs it, such as a final sum.",
        )
        if accident
        else (
            "If float is enough, use it.",
            "If double is meant, this is the FP64 roof of this GPU; for matrix products use its FP64 tensor cores where it has them.",
        ),
        "DFMA, DMUL, DADD and F2F disappear from the hot loop; the FMA pipe takes over.",
        confidence="high" if accident else "medium",
        locations=locate(
            profile,
            lambda row: float(row.executed or 0) if is_double(row.opcode) else 0.0,
            "double-precision instructions",
        ),
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
    return min(float(moves), 2 * arithmetic)
