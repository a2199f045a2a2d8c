"""What the roofs share: how near is near, the verdict that a kernel is good there, and the nearest
roof of a launch that no rule explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis.rules._support import Threshold, capital, facts
from ncu_toolkit.diagnosis.time_model import NOISE, RESOURCES, SUSTAINED, Removal, TimeModel
from ncu_toolkit.model import Evidence, Finding

#: Within a tenth of what well-written kernels keep up (time_model.SUSTAINED).
NEAR: Final = Threshold(0.9 * SUSTAINED, "90% of the 80% of peak that well-written kernels sustain")
#: Large copies reach 0.88 of an H200's datasheet bandwidth, and keep its DRAM and L2 0.88 to 0.93
#: busy.
COPIES: Final = 0.9
NEAR_BYTES: Final = Threshold(
    0.9 * COPIES, "90% of the 90% of peak that copies reach in device memory and L2"
)
WORKING: Final = Threshold(
    0.9, "a unit in an SM is the limit only if SMs have work for 90% of the time"
)
#: Traffic over the compulsory that still counts as compulsory: a quarter covers halo rows, partial
#: sectors and write-backs.
COMPULSORY: Final = Threshold(
    1.25, "a quarter more than compulsory: halos, partial sectors and write-backs"
)
#: L2's roll-up counts cycles of traffic to device memory too: where kernels only move bytes between
#: that and the SMs, it is at most this much above DRAM's utilisation (time_model.ACTIVITY).
FOLLOWS: Final = 0.15


#: Where another cause would save more than this, a roof is not all there is: nearness to a roof
#: leaves no more than a tenth.
TENTH: Final = 0.1


def streams(model: TimeModel) -> bool:
    """Whether L2 is near its peak by its roll-up alone, and the traffic of device memory, which is
    busier than L2's own work, accounts for that."""
    dram, active = model.busy("dram"), model.activity.get("l2", 0.0)
    return active >= NEAR_BYTES.value and model.worked("l2") < dram and active - dram <= FOLLOWS


def outranked(finding: Finding) -> Finding:
    """A roof that is near, where another finding says what to do first."""
    return replace(
        finding,
        good=False,
        confidence="low",
        speedup=1.0,
        arithmetic=("The other finding says what to do first.",),
        summary=f"Near a roof: {finding.statement or finding.summary} The other finding says what to do first.",
        left=None,
    )


def roof(
    bottleneck: str,
    statement: str,
    model: TimeModel,
    evidence: Sequence[Evidence | None],
    advice: Sequence[str],
    look_for: str,
    *,
    good: bool,
    confidence: Literal["high", "medium", "low"],
    resource: str = "",
    best: Threshold | None = None,
) -> Finding:
    """The verdict at a roof. `statement` says what the unit does; where it is `good`, the summary says
    before it that the kernel is at its roof.

    The speedup is 1, or what lies between the load of `resource` and the `best` that kernels of
    this kind reach, where that is known: what a kernel near its roof can still gain is then said,
    not rounded to nothing. Where that is more than a TENTH, it is not good."""
    busy = model.busy(resource) if resource else 0.0
    if best is not None and busy and 1 - busy / best.value >= NOISE:
        left, reach = best.value / busy, units.percent(best.value, 2)
        demoted = good and 1 - 1 / left > TENTH
        tail = f" The best kernels reach {reach}, so up to {units.ratio(left)} is left."
        arithmetic: tuple[str, ...] = (
            f"{capital(RESOURCES[resource][2])} is {units.percent(busy)} busy while SMs have work. "
            f"The best known kernel reaches {reach} ({best.source}).",
            f"{units.percent(best.value)} / {units.percent(busy)} = {units.ratio(left)} at most, {units.percent(1 - 1 / left)} of the time saved.",
        )
    else:
        left, demoted, tail = None, False, ""
        prediction = model.without(Removal("at this roof"))
        arithmetic = (
            prediction.arithmetic
            if prediction.speedup > 1
            else ("This unit is the limit. Only less work for it shortens the time.",)
        )
    standing = "Near a roof: " if demoted else "At its roof: " if good else ""
    return Finding(
        bottleneck,
        f"{standing}{statement}{tail}",
        "medium" if demoted else confidence,
        facts(*evidence),
        left or 1.0,
        arithmetic,
        tuple(advice),
        look_for,
        (),
        good and not demoted,
        statement=statement,
        left=left,
    )
