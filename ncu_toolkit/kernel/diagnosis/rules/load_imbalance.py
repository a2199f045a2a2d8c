"""Some blocks or SMs work long after others have finished.

What it is
Blocks get unequal work: triangular loops, sparse rows, early exits, data-dependent iteration counts. The hardware deals
out new blocks as old ones end, which evens out many small differences, but not a few long blocks at the end.

Why it costs time
The launch lasts as long as its slowest SM. Meanwhile the others are empty.

How to confirm
The busiest SM is active far longer than the mean. Achieved occupancy below the theoretical one shows nothing of it:
warps that leave early, and blocks that start slowly, leave slots empty too.

What to change
Cut long items into pieces; start the longest first; let blocks take work from a queue (atomic counter); assign rows by
length (one warp for short, a block for long ones).

When the advice is wrong
When the grid is smaller than the GPU, or the last wave is partial, that is the cause, not the work in the blocks. The
effects of the number of blocks and of the start and end of a launch are subtracted first. Fewer than two waves show
nothing without the active cycles of the busiest SM.

Source
Nsight Compute's WorkloadImbalance rule (5% between the busiest and the mean); CUDA C++ Best Practices Guide.
"""

import math
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, percent
from ncu_toolkit.kernel.diagnosis.rules import Specificity, paths
from ncu_toolkit.kernel.diagnosis.rules._launch import chain
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.kernel.diagnosis.time_model import FLOOR_US

TITLE: Final = "Load imbalance"
REQUIRES: Final = ("active_fraction", "waves")
OPTIONAL: Final = ("imbalance", "occupancy_fill", "achieved_occupancy", "theoretical_occupancy")
NCU: Final = (("AchievedOccupancy", ""), ("WorkloadImbalance", ""))
FROM_SHAPE: Final = True
CONFIRMED_BY: Final = ("stalls", "imbalance")
open_in_code = paths
IDLE: Final = Threshold(
    0.1,
    "twice the 5% of Nsight Compute's WorkloadImbalance rule, because start and end leave SMs idle in every launch",
)
UNEVEN: Final = Threshold(1.05, "Nsight Compute's WorkloadImbalance rule: the busiest SM 5% above the mean")  # fmt: skip
SEVERAL: Final = Threshold(2.0, "from two waves on an SM gets new blocks as its blocks end, so that equal ones keep all SMs busy")  # fmt: skip


def find(k: Kernel) -> Outcome:
    active, waves = k["active_fraction"] or 1.0, k["waves"] or 0.0
    # Start and end of a launch leave SMs empty without any block being to blame.
    duration = k.profile.duration_us
    ramp = 1 - min(0.9, FLOOR_US / duration) if duration else 1.0
    busy = min(1.0, active / ramp)
    # Idle time of SMs is unequal work only as far as the grid's own shape does not explain it.
    sms = k.device.sm_count
    even = waves / math.ceil(waves) if waves >= 1 else min(1.0, k.blocks / sms) if sms else 1.0
    if k["imbalance"] is None:
        # Equal blocks end up to one block's time apart, which only the busiest SM tells from long ones.
        even *= 1 - 1 / (1 + waves)
    balance = min(1.0, busy / even) if even else 1.0
    evidence = "active_fraction imbalance occupancy_fill waves"
    equal = _equal_blocks(k, waves) or chain(k)
    if not equal and balance >= 1 - IDLE.value:
        equal = "The SMs work about equally long."
    if not equal and busy <= 0:
        equal = "No SM was active for long enough to compare."
    if equal:
        return k.ruled_out(equal, evidence)
    return k.finding(
        f"Some blocks run much longer than others, and the launch waits for the slowest. SMs work for only {percent(busy)} of the time.",
        Removal("with the work spread evenly", balance=balance),
        evidence,
        k.advice(
            "Split the longest pieces of work, and start them first.",
            "Let blocks take items from a shared counter instead of a fixed share. Or give a block to each long row and a warp to each short one.",
            triton=(
                "Split the longest pieces of work, and start them first: give them the lowest program ids.",
                "Let as many programs as fit take items from a shared counter (tl.atomic_add) instead of a fixed share.",
            ),
        ),
        "Active cycles of the busiest SM near the mean, and achieved occupancy near the theoretical one.",
        confidence="medium" if active > 1 - IDLE.value else "high",
    )


specificity = Specificity.SYMPTOM.always


def _equal_blocks(k: Kernel, waves: float) -> str:
    """Why idle SM time is not the blocks' doing; "" where some do work longer.

    Of idle time, what the grid leaves empty (fewer blocks than SMs, or one block more on some SMs)
    and what start and end take is split off first."""
    uneven, mean = k["imbalance"], k["sm_active_cycles"]
    if uneven is None:
        if waves >= SEVERAL.value:
            return ""
        return (
            "Active cycles of the busiest SM were not collected. With less than two waves the grid itself leaves SMs idle, "
            "so unequal blocks cannot be shown."
        )
    own = uneven / k.by_grid
    if own < UNEVEN.value:
        return "All SMs with blocks work equally long, apart from the effect of the number of blocks. Blocks that end early were issued first."
    longer = None if mean is None else k.model.microseconds((own - 1) * mean)
    if longer is not None and longer < FLOOR_US:
        return (
            f"The busiest SM works {units.duration(longer)} longer than the mean. That is within the start and end of any "
            f"launch ({units.duration(FLOOR_US)})."
        )
    return ""
