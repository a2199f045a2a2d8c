"""What the roofs share: how near is near, and the verdict that a kernel is good there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from ncu_toolkit.model import Evidence, Finding
from ncu_toolkit.rules._support import Threshold, facts
from ncu_toolkit.time_model import ACHIEVABLE, SUSTAINED, Removal, TimeModel

#: Within a tenth of what well-written kernels keep up (time_model.SUSTAINED).
NEAR: Final = Threshold(0.9 * SUSTAINED, "nine tenths of the 80% of peak that well-written kernels keep up")
NEAR_DRAM: Final = Threshold(0.9 * ACHIEVABLE, "nine tenths of the 90% of peak that large copies reach")
WORKING: Final = Threshold(0.9, "a unit in an SM is the limit only where SMs have work for all but a tenth of the time")
#: Traffic over the compulsory that still counts as compulsory: a quarter covers halo rows, partial sectors and write-backs.
COMPULSORY: Final = Threshold(1.25, "a quarter more than compulsory: halos, partial sectors and write-backs")


def roof(
    bottleneck: str,
    summary: str,
    model: TimeModel,
    evidence: Sequence[Evidence | None],
    advice: Sequence[str],
    look_for: str,
    *,
    good: bool,
    confidence: Literal["high", "medium", "low"],
) -> Finding:
    """The verdict at a roof. The speedup is what is left to the achievable part of the peak: near 1."""
    prediction = model.without(Removal("at this roof"))
    arithmetic = (
        prediction.arithmetic if prediction.speedup > 1 else ("The limit is this unit itself: nothing but less work for it shortens the time.",)
    )
    return Finding(bottleneck, summary, confidence, facts(*evidence), 1.0, arithmetic, tuple(advice), look_for, (), good)
