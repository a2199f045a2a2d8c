"""The FP32 pipe works nearly all the time: the arithmetic roof.

What it is
Multiply-adds on the FMA pipe are what the kernel is for, and the pipe (or the issue slots that feed it) is close to as busy as well-written kernels get it.

Why it costs time
Time is then operations over the pipe's rate.

How to confirm
The FMA pipe above 72% of its peak, most of its instructions floating-point, and all lanes active. The vendor's own FP32 matrix product reaches 78% on an H200.

What to change
Nothing in the code around it. Fewer operations (a better algorithm), or a type that tensor cores take, are what is left.

When the advice is wrong
Busy with redundant work is not good: compare the operations executed with those the problem needs.

Source
Williams et al., "Roofline"; CUDA C++ Programming Guide, "Arithmetic Instructions".
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit import derived, units
from ncu_toolkit.model import Finding, Profile, Ruled
from ncu_toolkit.rules._roof import COMPULSORY, NEAR, roof
from ncu_toolkit.rules._support import abstain, fact, missing, ruled_out
from ncu_toolkit.rules.warp_divergence import LANES
from ncu_toolkit.time_model import TimeModel

ID: Final = "fp32-pipe"
TITLE: Final = "FP32 pipe"
REQUIRES: Final = ("fma_pipe_active",)
OPTIONAL: Final = ("opcodes", "lanes_predicated_on", "issue_active")


def find(profile: Profile, model: TimeModel) -> Finding | Ruled:
    if absent := missing(profile, REQUIRES):
        return abstain(ID, absent)
    busy = model.busy("fma")
    measured = fact(profile, "fma_pipe_active", "", NEAR, ">=")
    if busy < NEAR.value:
        return ruled_out(ID, f"The FMA pipe is {units.percent(busy)} busy.", measured)
    floats = derived.executed(profile, ("fp32",))
    integers = sum(row.warps for row in derived.rows(profile) if row.opcode.split(".")[0] == "IMAD")
    if floats is not None and integers > floats:
        return ruled_out(ID, "The pipe is busy with integer multiply-adds.", measured, fact(profile, "kind_share:integer"))
    if profile.context and profile.context.dtype in ("float16", "bfloat16"):
        return ruled_out(ID, "The data are 16-bit, and the tensor cores would do this many times faster.", measured)
    executed, needed = derived.value(profile, "flops_fp32"), profile.context.flops if profile.context else None
    lanes = derived.value(profile, "lanes_predicated_on") or derived.value(profile, "lanes_per_instruction")
    waste = ""
    if executed and needed and executed > needed * COMPULSORY.value:
        waste = f"it executes {units.ratio(executed / needed)} the operations that the problem needs"
    elif lanes is not None and lanes < LANES.value:
        waste = f"only {units.significant(lanes)} of 32 lanes do useful work"
    evidence = (measured, fact(profile, "issue_active"), fact(profile, "flops_fp32"), fact(profile, "lanes_predicated_on"))
    if waste:
        return roof(ID, f"The FP32 pipe is {units.percent(busy)} busy, but {waste}.", model, evidence, ("Remove the redundant operations: see the other findings.",), "Fewer FFMA.", good=False, confidence="medium")
    return roof(
        ID, f"This kernel is good: the floating-point pipe works {units.percent(busy)} of the time, near the most that well-written kernels reach.", model, evidence,
        ("Nothing to mend: only fewer operations, or a type that tensor cores take, would be faster.",), "FFMA the bulk of the instructions, the FMA pipe near its peak.",
        good=True, confidence="high" if needed else "medium",
    )  # fmt: skip
