"""What a verdict says is what the figures say: no more than is known, and nothing that the profile contradicts."""

from __future__ import annotations

from typing import Any

import diagnosis_cases as cases
import pytest

from ncu_toolkit import time_model
from ncu_toolkit.diagnose import diagnose
from ncu_toolkit.model import Finding
from ncu_toolkit.rules import load_rules


def found(bottleneck: str, case: dict[str, Any]) -> Finding:
    profile = cases.build(case)
    outcome = load_rules()[bottleneck].find(profile, time_model.build(profile))
    assert isinstance(outcome, Finding), outcome.reason
    return outcome


def product(fma: float, issue: float, dispatch: float) -> dict[str, Any]:
    """A product in FP32 whose instructions are ready, but held back for part of a warp's time."""
    base = cases.read("fp32-pipe")
    stalls = {"selected": 1.0, "not_selected": 2 * (1 - dispatch), "wait": 1 - dispatch, "dispatch_stall": 4 * dispatch}
    return {**base, "metrics": {**base["metrics"], "fma_pipe_active": fma, "issue_active": issue}, "stalls": stalls}


def test_dispatch_stalls_near_the_roof_are_what_is_left() -> None:
    held = diagnose(cases.build(product(0.71, 0.76, 0.2))).primary
    assert (held.bottleneck, held.good) == ("fp32-pipe", False)
    assert "dispatch stall" in held.summary
    assert held.speedup == pytest.approx(0.8 / 0.71, rel=0.01), "up to what the best products keep up"
    assert "operand in common" in held.advice[0]
    assert "stall_share:dispatch_stall" in [evidence.metric for evidence in held.evidence]


def test_what_is_left_below_a_roof_is_said() -> None:
    near, full = (diagnose(cases.build(product(fma, 0.9, 0.02))).primary for fma in (0.74, 0.8))
    assert near.good
    assert full.good
    assert near.speedup == pytest.approx(0.8 / 0.74)
    assert "1.08" in near.summary
    assert full.speedup == 1.0
    assert not any("Nothing to mend" in text for finding in (near, full) for text in finding.advice)


@pytest.mark.parametrize(("busy", "good"), [(0.83, False), (0.91, True), (0.98, True)])
def test_tensor_cores_at_their_roof(busy: float, good: bool) -> None:
    case = cases.read("tensor-pipe")
    finding = diagnose(cases.build({**case, "metrics": {**case["metrics"], "tensor_pipe_active": busy}})).primary
    assert (finding.bottleneck, finding.good) == ("tensor-pipe", good)
    assert finding.speedup == pytest.approx(max(1.0, 0.97 / busy))
