"""The last wave of blocks fills only part of the GPU, which waits for it.

What it is
When the grid is not a multiple of the blocks that fit at once, the last wave leaves SMs empty. With few waves that is a
large part of the time: 1.1 waves take as long as 2.

Why it costs time
The launch ends when the last block ends; until then, SMs without a block are idle.

How to confirm
Waves per SM is just above a small whole number (such as 1.1), and achieved occupancy is below the theoretical one, or
SM active cycles are below the elapsed cycles.

What to change
Choose a tile or block size that gives a whole number of waves, or a little less; split work more finely; use a
persistent grid (as many blocks as fit) that takes tiles from a queue; split along the reduction dimension (stream-K).

When the advice is wrong
With many waves the tail is small. Where memory is the limit, the blocks that remain run faster, and the tail costs less
than the number of waves suggests.

Source
Nsight Compute's LaunchConfiguration rule ("Tail Effect": it warns where the partial wave is 20% of the time or more);
Osama et al., "Stream-K".
"""

import math
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, percent
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, Specificity, StaticFinding, grid
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold

TITLE: Final = "Tail effect"
REQUIRES: Final = ("waves", "tail_fraction")
OPTIONAL: Final = ("active_fraction", "occupancy_fill")
NCU: Final = (("LaunchConfiguration", "tail"),)
FROM_SHAPE: Final = True
#: A tail lasts as long as its blocks do, so it shrinks with whatever makes these slow.
specificity = Specificity.SYMPTOM.always
CODE_RANK: Final = 9
#: Idle part of the last wave from which Nsight Compute's LaunchConfiguration rule speaks: nothing
#: ranks what the code alone shows.
IN_CODE: Final = 0.2
TAIL: Final = Threshold(0.1, "half of the 20% from which Nsight Compute's LaunchConfiguration rule speaks: the prediction ranks it")  # fmt: skip


def find(k: Kernel) -> Outcome:
    waves, tail = k["waves"] or 0.0, k["tail_fraction"] or 0.0
    measured = k.fact("tail_fraction", ">", TAIL)
    if waves <= 1:
        return k.ruled_out("The grid is one wave or less.", "waves")
    if tail <= TAIL.value:
        few = "The last wave is nearly full, or there are many waves."
        return k.ruled_out(few, "waves", measured)
    fill = k["occupancy_fill"]
    if fill is None and k["active_fraction"] is None:
        return k.abstain("active_fraction", "occupancy_fill")
    # The measured emptiness bounds the loss: an SM with one block of several left is not idle, and
    # its block runs faster alone. What start and end leave empty is no tail.
    used = fill * k.model.working if fill is not None else 1 - tail
    balance = max(1 - tail, min(1.0, used))
    return k.finding(
        f"The grid is {_waves(waves, k.blocks)}, so the last wave fills only part of the GPU.",
        Removal("with the last wave full", balance=balance),
        ("waves", measured, "active_fraction occupancy_fill"),
        (
            f"Choose a tile or block size that gives a whole number of waves: {math.floor(waves)} or {math.ceil(waves)} times the blocks that fit.",
            "Use smaller blocks, or a persistent kernel that takes tiles from a queue, so that the SMs finish together.",
        ),
        "Just below a whole number of waves, and achieved occupancy near the theoretical one.",
        confidence="medium",
    )


def _waves(waves: float, blocks: int) -> str:
    """Waves in words; those that round to a whole number as what is beyond it."""
    shown, whole = units.significant(waves), math.floor(waves)
    if float(shown.replace(",", "")) > whole:
        return f"{shown} waves"
    more = max(1, round(blocks * (1 - whole / waves)))
    return f"just over {units.counted(whole, 'wave')} ({units.counted(more, 'block')} more)"


def in_code(facts: KernelFacts) -> StaticFinding | None:
    waves = facts.waves
    if waves is None or waves <= 1 or (facts.grid_blocks or 0) < (facts.sm_count or 0):
        return None
    whole = math.ceil(waves)
    lost = 1 - waves / whole
    if lost < IN_CODE:
        return None
    return facts.finding(
        "possible",
        f"The grid is {_waves(waves, facts.grid_blocks or 0)} and takes as long as {whole}. The last, partial wave wastes "
        f"up to {percent(lost)} of the time.",
        grid(facts),
        "Choose another tile or block size, or launch a persistent grid of as many blocks as fit.",
        "SMs idle towards the end.",
    )  # fmt: skip
