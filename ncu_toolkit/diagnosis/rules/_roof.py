"""What the roofs share: how near is near, the verdict that a kernel is good there, and the nearest
roof of a launch that no rule explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from ncu_toolkit.diagnosis.kernel import Kernel
from ncu_toolkit.diagnosis.thresholds import NEAR_BYTES, Threshold
from ncu_toolkit.diagnosis.time_model import TimeModel
from ncu_toolkit.model import Evidence, Finding

#: L2's roll-up counts cycles of traffic to device memory too: where kernels only move bytes between
#: that and the SMs, it is at most this much above DRAM's utilisation (time_model.ACTIVITY).
FOLLOWS: Final = 0.15


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
    return Kernel(None, model, bottleneck).roof(  # type: ignore[arg-type]
        statement,
        evidence,
        advice,
        look_for,
        good=good,
        confidence=confidence,
        resource=resource,
        best=best,
    )
