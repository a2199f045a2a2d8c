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
__expf, __sinf, __fdividef or -use_fast_math where the accuracy allows; replace some by a polynomial
on the FMA pipe; avoid conversions in the inner loop.

When the advice is wrong
Where results must be exact to the last bits, fast variants are not an option. A kernel at the DRAM
roof gains nothing.

Source
CUDA C++ Programming Guide, "Arithmetic Instructions" (throughput table: 16 results a cycle); CUDA
C++ Best Practices Guide, "Math Libraries".
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    STALL,
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
from ncu_toolkit.diagnosis.rules.double_precision import converts_doubles
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.model import Finding, Profile, Ruled
from ncu_toolkit.sass import attribution

ID: Final = "special-function-pressure"
TITLE: Final = "Special-function pressure"
REQUIRES: Final = ("xu_pipe_active",)
OPTIONAL: Final = ("stalls", "opcodes")
#: What stays: the accurate forms take several MUFU operations and fix-up steps where the fast ones
#: take one, and a value kept is not computed again.
STEP: Final = 0.25
REASONS: Final = ("math_pipe_throttle", "short_scoreboard", "mio_throttle")


def find(profile: Profile, model: TimeModel) -> Finding | Ruled:
    special = ("special",)
    sampled = any(attribution.waits(profile, reason) for reason in REASONS)
    # Samples at the instructions tell without the pipe's counter, counts of instructions do not.
    if (absent := missing(profile, REQUIRES)) and not sampled:
        return abstain(ID, absent)
    busy = model.busy("xu")
    measured = fact(profile, "xu_pipe_active", "", BUSY, ">=")
    waiting = sum(model.waiting(reason) * blame(profile, reason, special) for reason in REASONS)
    if busy < BUSY.value and waiting < STALL.value:
        if absent:
            return ruled_out(
                ID,
                f"Warps wait at special functions for only {units.percent(waiting)} of their time.",
                *(stall_fact(profile, reason) for reason in REASONS),
            )
        return ruled_out(ID, f"The special-function pipe is {units.percent(busy)} busy.", measured)
    if converts_doubles(profile):
        return ruled_out(
            ID,
            "The pipe converts between double and single precision: see double-precision.",
            measured,
        )
    removal = Removal(
        "with a quarter of the special functions",
        stalls={reason: keep(blame(profile, reason, special), STEP) for reason in REASONS},
        loads={"xu": STEP},
        instructions=keep(figures.value(profile, "kind_share:special") or 0.0, STEP),
    )
    computes = "roots, exponentials, sines, divisions and conversions"
    summary = (
        f"The unit for {computes} is {units.percent(busy)} busy while the faster arithmetic pipes wait."
        if busy >= BUSY.value
        else f"{units.percent(waiting)} of a warp's time goes by at {computes}, which one slow unit computes."
    )
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
        (
            "Compute each reciprocal, root or exponential once and reuse it; turn divisions by the same value into multiplications.",
            "Use the fast variants (__expf, __sinf, __fdividef, or -use_fast_math) where their accuracy is enough.",
            "Move some of the work to the FMA pipe: a short polynomial costs a few multiply-adds.",
        ),
        "Fewer MUFU instructions; the XU pipe falls, the FMA pipe rises.",
        confidence="high" if busy >= BUSY.value else "medium",
        locations=locate(
            profile,
            lambda row: (
                float(row.executed or 0)
                if row.opcode.startswith(("MUFU", "I2F", "F2I", "F2F"))
                else 0.0
            ),
            "special-function instructions",
        ),
    )
