"""Which idle time of the SMs is the grid's."""

from __future__ import annotations

import math

from ncu_toolkit.model import Profile


def by_grid(profile: Profile) -> float:
    """How much longer the busiest SM works than the mean (>= 1) because of the number of blocks
    alone, all being equal: some SMs have no block, or one block less. 1 where it is not known.

    An upper bound: where blocks on one SM do not slow each other down, it makes no difference."""
    blocks, sms = profile.launch.blocks, profile.device.sm_count
    return math.ceil(blocks / sms) / (blocks / sms) if blocks and sms else 1.0
