"""What the roofs share: how near is near, and the verdict that a kernel is good there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from ncu_toolkit.model import Evidence, Finding
from ncu_toolkit.rules._support import Threshold, facts
from ncu_toolkit.time_model import SUSTAINED, Removal, TimeModel

#: Within a tenth of what well-written kernels keep up (time_model.SUSTAINED).
NEAR: Final = Threshold(0.9 * SUSTAINED, "nine tenths of the 80% of peak that well-written kernels keep up")
#: Large copies reach 0.88 of an H200's datasheet bandwidth, and keep its DRAM and L2 0.88 to 0.93 busy.
COPIES: Final = 0.9
NEAR_BYTES: Final = Threshold(0.9 * COPIES, "nine tenths of the 90% of peak that copies reach in device memory and L2 alike")
WORKING: Final = Threshold(0.9, "a unit in an SM is the limit only where SMs have work for all but a tenth of the time")
#: Traffic over the compulsory that still counts as compulsory: a quarter covers halo rows, partial sectors and write-backs.
COMPULSORY: Final = Threshold(1.25, "a quarter more than compulsory: halos, partial sectors and write-backs")


#: How the summary of a good kernel begins.
GOOD: Final = "This kernel is good: "
#: Where another cause would save more than this, a roof is not all there is: nearness to a roof leaves no more than a tenth.
TENTH: Final = 0.1


def demoted(finding: Finding) -> Finding:
    """A roof that is near, but not what to stop at."""
    summary = finding.summary.removeprefix(GOOD)
    return replace(finding, good=False, confidence="low", summary=f"Near a roof: {summary} Another finding says what to do first.")


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
