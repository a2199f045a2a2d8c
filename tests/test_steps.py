"""What a step is said to have changed, and predictions held against what was achieved."""

from __future__ import annotations

import diagnosis_cases as cases
import pytest

from ncu_toolkit.steps import explain_step


def test_step_is_explained() -> None:
    slow = cases.build(cases.read("uncoalesced-global-access"))
    fast = cases.build(
        {
            "metrics": {"duration": 100.0, "sm_cycles": 170_000, "sm_active_cycles": 169_000, "issue_active": 0.5},
            "stalls": {"selected": 1.0, "long_scoreboard": 8.0},
        }
    )
    step = explain_step(slow, fast, "uncoalesced-global-access")
    assert step.speedup == pytest.approx(10.0)
    assert step.was.bottleneck == "uncoalesced-global-access"
    assert step.became.bottleneck != step.was.bottleneck
    text = " ".join(step.text)
    assert "10.0× faster" in text
    assert "lg throttle" in text
    assert "predicted to bring" in text
    assert "undeclared" not in text


def test_step_without_times_says_so() -> None:
    step = explain_step(cases.build({"metrics": {"duration": None}}), cases.build({}))
    assert step.speedup is None
    assert "cannot be judged" in step.text[0]
