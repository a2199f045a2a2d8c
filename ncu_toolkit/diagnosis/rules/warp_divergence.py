"""The lanes of a warp take different paths, so the warp walks all of them with part of its lanes
idle.

What it is
A warp executes one instruction for its 32 lanes at a time. When a branch splits them, the paths run
one after another, each with only its own lanes active.

Why it costs time
Each path costs issue slots and latency as if all lanes took it. With half of the lanes active the
warp needs twice the instructions for the same work.

How to confirm
Active lanes an instruction well below 32; branches in the SASS with few lanes behind them;
BSSY/BSYNC around them.

What to change
Branch on something that is the same for a whole warp (blocks of 32 rather than odd and even
threads); sort or bin the data by path; compute both sides and select; compact the active items
first.

When the advice is wrong
Code that only some lanes need anyway (edges, one lane writing a result) is not a defect. When
memory is the limit, idle lanes cost little.

Source
CUDA C++ Programming Guide, "SIMT Architecture"; Nsight Compute's ThreadDivergence rule (below 24 of
32 lanes).
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules._support import (
    STALL,
    Threshold,
    abstain,
    fact,
    finding,
    locate,
    missing,
    ruled_out,
)
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.model import Finding, Profile, Ruled

ID: Final = "warp-divergence"
TITLE: Final = "Warp divergence"
REQUIRES: Final = ("lanes_per_instruction",)
OPTIONAL: Final = ("lanes_predicated_on", "issue_active", "stalls")
LANES: Final = Threshold(24.0, "Nsight Compute's ThreadDivergence rule: below 24 of 32 lanes")
#: Waiting that belongs to instructions executed, and so goes with those that more lanes would
#: share.
WITH_INSTRUCTIONS: Final = (
    "short_scoreboard",
    "mio_throttle",
    "lg_throttle",
    "long_scoreboard",
    "tex_throttle",
    "barrier",
    "sleeping",
)


def find(profile: Profile, model: TimeModel) -> Finding | Ruled:
    if absent := missing(profile, REQUIRES):
        return abstain(ID, absent)
    active = figures.value(profile, "lanes_per_instruction") or float(figures.WARP)
    on = figures.value(profile, "lanes_predicated_on")
    lanes = min(active, on) if on is not None else active
    name = "lanes_predicated_on" if on is not None and on < active else "lanes_per_instruction"
    measured = fact(profile, name, "", LANES, "<")
    if lanes >= LANES.value:
        return ruled_out(ID, "Nearly all lanes take part in nearly all instructions.", measured)
    if (
        profile.launch.threads_per_block % figures.WARP
        and profile.launch.threads_per_block < figures.WARP
    ):
        return ruled_out(
            ID,
            "Blocks are smaller than a warp, which is what leaves lanes idle: use blocks of a multiple of 32 threads.",
            measured,
        )
    left = lanes / figures.WARP
    # Warps that stand at barriers for longer than that wait for one that works alone: see
    # barrier-imbalance.
    alone = {"barrier": 1.0} if model.waiting("barrier") >= STALL.value else {}
    removal = Removal(
        "with all lanes of each warp on one path",
        stalls=dict.fromkeys(WITH_INSTRUCTIONS, left) | alone,
        loads=dict.fromkeys(
            ("fma", "fmaheavy", "alu", "fp64", "fp16", "xu", "lsu", "uniform", "l1_writeback"), left
        ),
        instructions=left,
    )
    return finding(
        ID,
        f"Threads of a warp take different paths: on average only {units.significant(lanes)} of 32 lanes do useful work at a time.",
        model.without(removal),
        (
            measured,
            fact(profile, "lanes_per_instruction"),
            fact(profile, "issue_active"),
            fact(profile, "kind_share:control"),
        ),
        (
            "Make the condition the same for all lanes of a warp: assign work in groups of 32, not by odd and even threads.",
            "Sort or bin items by the path they take, or compact the active ones, before the loop.",
            "For short branches compute both sides and select.",
        ),
        "Active lanes near 32; fewer instructions for the same work.",
        locations=locate(profile, _idle_lanes, "idle lane slots"),
    )


def _idle_lanes(row: object) -> float:
    executed, threads = getattr(row, "executed", None), getattr(row, "threads", None)
    return (
        max(0.0, executed * figures.WARP - threads)
        if executed is not None and threads is not None
        else 0.0
    )
