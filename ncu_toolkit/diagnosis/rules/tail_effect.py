"""The last wave of blocks fills only part of the GPU, which waits for it.

What it is
When the grid is not a multiple of the blocks that fit at once, the last wave leaves SMs empty. With
few waves that is a large part of the time: 1.1 waves take as long as 2.

Why it costs time
The launch ends when the last block ends; until then SMs without a block idle.

How to confirm
The waves figure just above a small whole number, and achieved occupancy or active cycles below what
the launch allows.

What to change
Choose a tile or block size that gives a whole number of waves, or a little less; split work more
finely; use a persistent grid (as many blocks as fit) that takes tiles from a queue; split along the
reduction dimension (stream-K).

When the advice is wrong
With many waves the tail is small. Where memory is the limit, the blocks that remain run faster, and
the tail costs less than the figure says.

Source
Nsight Compute's LaunchConfiguration rule ("Tail Effect": a partial wave from 20% of the time);
Osama et al., "Stream-K".
"""

from __future__ import annotations

import math
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules._code import KernelFacts, StaticFinding, grid
from ncu_toolkit.diagnosis.rules._support import Threshold, abstain, fact, finding, ruled_out
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.model import Finding, NoFinding, Profile

ID: Final = "tail-effect"
TITLE: Final = "Tail effect"
REQUIRES: Final = ("waves", "tail_fraction")
OPTIONAL: Final = ("active_fraction", "occupancy_fill")
NCU: Final = (("LaunchConfiguration", "tail"),)
FROM_SHAPE: Final = True
CODE_RANK: Final = 9
#: Idle part of the last wave from which Nsight Compute's LaunchConfiguration rule speaks: nothing
#: ranks what the code alone shows.
IN_CODE: Final = 0.2
TAIL: Final = Threshold(
    0.1,
    "half of the 20% from which Nsight Compute's LaunchConfiguration rule speaks: the prediction ranks it",
)


class Words:
    one_wave = "The grid is one wave or less."
    full = "The last wave is nearly full, or there are many waves."
    found = "The grid is {waves}, so the last wave fills only part of the GPU."
    whole = "Choose a tile or block size that gives a whole number of waves: {below} or {above} times the blocks that fit."
    smaller = "Use smaller blocks, or a persistent kernel that takes tiles from a queue, so that the SMs finish together."
    look_for = (
        "Just below a whole number of waves, and achieved occupancy near the theoretical one."
    )
    just_over = "just over {whole} ({more} more)"
    code = "The grid is {waves} and takes as long as {whole}. The last, partial wave wastes up to {lost} of the time."
    code_advice = (
        "Choose another tile or block size, or launch a persistent grid of as many blocks as fit."
    )


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    waves, tail = (
        figures.value(profile, "waves") or 0.0,
        figures.value(profile, "tail_fraction") or 0.0,
    )
    measured = fact(profile, "tail_fraction", "", TAIL, ">")
    if waves <= 1:
        return ruled_out(ID, Words.one_wave, fact(profile, "waves"))
    if tail <= TAIL.value:
        return ruled_out(ID, Words.full, fact(profile, "waves"), measured)
    fill, active = (
        figures.value(profile, "occupancy_fill"),
        figures.value(profile, "active_fraction"),
    )
    if fill is None and active is None:
        return abstain(ID, ("active_fraction", "occupancy_fill"))
    # The measured emptiness bounds the loss: an SM with one block of several left is not idle, and
    # its block runs faster alone. What start and end leave empty is no tail.
    used = fill * model.working if fill is not None else 1 - tail
    balance = max(1 - tail, min(1.0, used))
    return finding(
        ID,
        Words.found.format(waves=_waves(waves, math.prod(profile.launch.grid))),
        model.without(Removal("with the last wave full", balance=balance)),
        (
            fact(profile, "waves"),
            measured,
            fact(profile, "active_fraction"),
            fact(profile, "occupancy_fill"),
        ),
        (Words.whole.format(below=math.floor(waves), above=math.ceil(waves)), Words.smaller),
        Words.look_for,
        confidence="medium",
    )


def _waves(waves: float, blocks: int) -> str:
    """Waves in words; those that round to a whole number as what is beyond it."""
    shown, whole = units.significant(waves), math.floor(waves)
    if float(shown.replace(units.THIN_SPACE, "")) > whole:
        return f"{shown} waves"
    more = max(1, round(blocks * (1 - whole / waves)))
    return Words.just_over.format(
        whole=units.counted(whole, "wave"), more=units.counted(more, "block")
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    waves = facts.waves
    if waves is None or waves <= 1 or (facts.grid_blocks or 0) < (facts.sm_count or 0):
        return None
    whole = math.ceil(waves)
    lost = 1 - waves / whole
    if lost < IN_CODE:
        return None
    return StaticFinding(
        ID, "possible",
        Words.code.format(waves=_waves(waves, facts.grid_blocks or 0), whole=whole, lost=units.percent(lost)),
        grid(facts),
        Words.code_advice, "SMs idle towards the end.",
    )  # fmt: skip
