"""Each instruction needs the result of the one before, and there are too few independent ones to fill the gap.

What it is
An arithmetic result is ready four or more cycles after issue (more for FP64, special functions and shuffles). A warp whose next instruction needs it
waits. Other warps, or independent instructions of the same warp, can use the cycles.

Why it costs time
With one chain of dependent operations a warp issues once in four cycles at best; with few warps a scheduler then idles most of the time, with no
memory access to blame.

How to confirm
The wait stall (fixed-latency dependency), or short scoreboard at special functions or FP64, is the largest; issue slots are idle; memory is not busy.

What to change
Keep several independent accumulators (four or more) and combine them at the end; interleave independent elements in one thread; unroll, so that the
compiler can reorder. Or run more warps.

When the advice is wrong
With enough warps the chain is hidden already (issue slots are busy). Reordering floating-point sums changes rounding.

Source
CUDA C++ Programming Guide, "Multiprocessor Level" (four-cycle latency of arithmetic, number of warps needed); Volkov, "Better Performance at Lower
Occupancy".
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit import units
from ncu_toolkit.model import Finding, Profile, Ruled
from ncu_toolkit.rules._support import SATURATED, STALL, abstain, blame, fact, finding, keep, locate_stall, missing, ruled_out, stall_fact
from ncu_toolkit.time_model import RESOURCES, Removal, TimeModel

ID: Final = "instruction-dependency"
TITLE: Final = "Instruction dependency"
REQUIRES: Final = ("stalls",)
OPTIONAL: Final = ("issue_active", "active_warps")
#: Independent chains that the advice asks for: one for each of the four cycles that arithmetic takes since Volta.
CHAINS: Final = 4


def find(profile: Profile, model: TimeModel) -> Finding | Ruled:
    if absent := missing(profile, REQUIRES):
        return abstain(ID, absent)
    part = blame(profile, "short_scoreboard", ("special", "fp64", "shuffle"))
    waiting = model.waiting("wait") + model.waiting("short_scoreboard") * part
    measured = stall_fact(profile, "wait", STALL)
    if waiting < STALL.value:
        return ruled_out(ID, f"Warps wait for arithmetic results for only {units.percent(waiting)} of their time.", measured)
    busiest, busy = model.busiest()
    if busy >= SATURATED.value:
        return ruled_out(ID, f"{RESOURCES[busiest][2]} are {units.percent(busy)} busy: other warps fill the gaps between instructions.", measured)
    removal = Removal(f"with {CHAINS} independent chains", stalls={"wait": _gap_left(model), "short_scoreboard": keep(part, 1 / CHAINS)})
    return finding(
        ID,
        f"Each instruction needs the result of the one before it, so a warp waits between them: {units.percent(waiting)} of its time.",
        model.without(removal),
        (
            measured,
            stall_fact(profile, "short_scoreboard"),
            fact(profile, "issue_active"),
            fact(profile, "active_warps"),
            fact(profile, "eligible_warps"),
        ),
        (
            "Use four or more independent accumulators and add them up at the end.",
            "Work on several independent elements in one thread, and unroll so that the compiler can interleave them.",
            "Run more warps, where the launch or the registers allow it.",
        ),
        "The wait stall shrinks and issue slots fill at the same number of instructions.",
        locations=locate_stall(profile, "wait"),
    )


def _gap_left(model: TimeModel) -> float:
    """Part of the gap between dependent instructions that CHAINS chains leave: a chain's turn comes once a latency, which the others fill."""
    issued = model.waiting("selected")
    if not issued or not model.waiting("wait"):
        return 1 / CHAINS
    gap = model.waiting("wait") / issued  # each instruction is selected for one cycle
    return max(0.0, (1 + gap) / CHAINS - 1) / gap
