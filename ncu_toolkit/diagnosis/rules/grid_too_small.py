"""The launch has too few blocks or threads to fill the GPU, so SMs stand idle from the start.

What it is
Blocks are dealt out to SMs. With fewer blocks than SMs some get none; with fewer than fit, each SM
runs fewer warps than it could.

Why it costs time
Idle SMs do nothing, and a block on an SM of its own has few warps to hide its latencies with.

How to confirm
Less than one wave, blocks fewer than the SMs or few for each, low achieved occupancy next to the
theoretical one.

What to change
More, smaller blocks: one output element or tile a block rather than a long loop; split the
reduction dimension (split-K, grid-stride with more blocks); process several problems in one launch,
or run other kernels beside it in streams.

When the advice is wrong
When the problem is that small, a few microseconds of latency are all there is: fuse it with its
neighbours or leave it.

Source
CUDA C++ Best Practices Guide, "Thread and Block Heuristics"; Nsight Compute's LaunchConfiguration
rule ("Small Grid").
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules._idle import by_grid
from ncu_toolkit.diagnosis.rules._support import (
    SATURATED,
    Threshold,
    abstain,
    fact,
    finding,
    missing,
    ruled_out,
)
from ncu_toolkit.diagnosis.time_model import RESOURCES, Removal, TimeModel
from ncu_toolkit.model import Evidence, Finding, Profile, Ruled

ID: Final = "grid-too-small"
TITLE: Final = "Grid too small"
REQUIRES: Final = ("waves",)
OPTIONAL: Final = ("sm_active_cycles", "achieved_occupancy", "stalls")
FILLED: Final = Threshold(
    1.0, "below one wave the blocks that fit on the GPU at once outnumber the grid's"
)


def find(profile: Profile, model: TimeModel) -> Finding | Ruled:
    if absent := missing(profile, REQUIRES):
        return abstain(ID, absent)
    waves = figures.value(profile, "waves") or 0.0
    measured = fact(profile, "waves", "", FILLED, "<")
    if waves >= FILLED.value:
        return ruled_out(ID, "There are blocks enough to fill the GPU at least once.", measured)
    sms, blocks = profile.device.sm_count, profile.launch.blocks
    spread = min(1.0, blocks / sms) if sms else 1.0
    # Where every SM has a block, only one block more on some of them is the grid's: other idle time
    # is the blocks', or start and end of the launch.
    even = 1 / by_grid(profile)
    balance = min(even, model.active) if spread < 1 else max(even, model.active)
    busiest, busy = model.busiest()
    if spread == 1.0 and busy >= SATURATED.value:
        return ruled_out(
            ID,
            f"Every SM has a block, and {RESOURCES[busiest][2]} are {units.percent(busy)} busy: more warps would not help.",
            measured,
        )
    # Where there is a block for each SM, the SM still has room for more: the warps of a full SM
    # hide each other's waiting.
    room = max(1.0, spread / waves) if waves else 1.0
    counted = Evidence(
        "grid_size",
        "Blocks",
        float(blocks),
        "count",
        f"Blocks of the launch, for {sms} SMs.",
        float(sms) if sms else None,
        "<" if sms else "",
        "one for each SM",
    )
    removal = Removal("with blocks enough to fill the GPU", balance=balance, parallelism=room)
    idle = (
        "most of it stands idle" if waves < 0.5 else "warps that could run beside these are missing"
    )
    few = f"{blocks} blocks for {sms} SMs" if sms else f"{blocks} blocks"
    return finding(
        ID,
        f"The launch is too small for this GPU: {few}, {units.percent(waves)} of what it can run at once, so {idle}.",
        model.without(removal),
        (
            measured,
            counted,
            fact(profile, "active_fraction"),
            fact(profile, "achieved_occupancy"),
            fact(profile, "theoretical_occupancy"),
        ),
        (
            "Cut the work into more and smaller blocks, at least as many as there are SMs, better a few for each.",
            "Split a long loop (over K, or over elements) among blocks, and combine the partial results.",
            "Where the problem itself is small: batch several into one launch, or run independent kernels side by side in streams.",
        ),
        "At least one wave; active SMs near 100 %; achieved occupancy near the theoretical one.",
        confidence="high" if spread < 1 else "medium",
    )
