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
from ncu_toolkit.diagnosis.rules._code import paths
from ncu_toolkit.diagnosis.rules._support import LANES, STALL, fact, finding, locate, ruled_out
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.model import Finding, Instruction, NoFinding, Profile

ID: Final = "warp-divergence"
TITLE: Final = "Warp divergence"
LIMIT: Final = "compute"
REQUIRES: Final = ("lanes_per_instruction",)
OPTIONAL: Final = ("lanes_predicated_on", "issue_active", "stalls")
NCU: Final = (("ThreadDivergence", ""),)
open_in_code = paths
#: Waiting that belongs to instructions executed, and so goes with those that more lanes would
#: share.
WITH_INSTRUCTIONS: Final = (
    "short_scoreboard", "mio_throttle", "lg_throttle", "long_scoreboard", "tex_throttle",
    "barrier", "sleeping",
)  # fmt: skip


class Words:
    all = "Nearly all lanes are active in nearly all instructions."
    small_blocks = (
        "Lanes are idle because blocks are smaller than a warp. Use a multiple of 32 threads."
    )
    found = "Lanes of a warp take different branches. On average only {lanes} of 32 lanes do useful work."
    advice = (
        "Make the condition the same for all lanes of a warp: assign work in groups of 32, not by odd and even threads.",
        "Before the loop, sort or bin items by the path they take, or compact the active ones.",
        "Compute both sides of short branches, and select.",
    )
    look_for = "Active lanes near 32, and fewer instructions for the same work."


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    active = figures.value(profile, "lanes_per_instruction") or float(figures.WARP)
    on = figures.value(profile, "lanes_predicated_on")
    lanes = min(active, on) if on is not None else active
    name = "lanes_predicated_on" if on is not None and on < active else "lanes_per_instruction"
    measured = fact(profile, name, "", LANES, "<")
    if lanes >= LANES.value:
        return ruled_out(ID, Words.all, measured)
    if (
        profile.launch.threads_per_block % figures.WARP
        and profile.launch.threads_per_block < figures.WARP
    ):
        return ruled_out(ID, Words.small_blocks, measured)
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
        Words.found.format(lanes=units.significant(lanes)),
        model.without(removal),
        (
            measured,
            fact(profile, "lanes_per_instruction"),
            fact(profile, "issue_active"),
            fact(profile, "kind_share:control"),
        ),
        Words.advice,
        Words.look_for,
        locations=locate(profile, _idle_lanes, "idle lane slots"),
    )


def _idle_lanes(row: Instruction) -> float:
    idle = (row.executed or 0) * figures.WARP - (row.threads or 0)
    return max(0.0, idle) if row.threads is not None else 0.0
