"""Two profiles: parts that add up, warnings where they cannot be compared."""

from __future__ import annotations

import math

import diagnosis_cases as cases
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncu_toolkit.base.model import Profile
from ncu_toolkit.kernel.diagnosis.compare import attribute, comparability

POSITIVE = st.floats(0.1, 100.0)


def profile(
    duration: float | None = 1000.0, stalls: dict[str, float] | None = None, **metrics: float | None
) -> Profile:
    return cases.build(
        {
            "metrics": {"duration": duration, **metrics},
            "stalls": cases.STALLS if stalls is None else stalls,
        }
    )


def test_parts_add_up_and_name_the_stall() -> None:
    slow = profile(1000.0, {"selected": 1.0, "lg_throttle": 9.0})
    fast = profile(200.0, {"selected": 1.0, "lg_throttle": 1.0})
    parts = attribute(slow, fast)
    assert sum(part.microseconds for part in parts) == pytest.approx(-800.0)
    assert parts[0].name == "stall_lg_throttle"
    assert parts[-1].name == "residual"
    assert parts[-1].microseconds == pytest.approx(0.0, abs=1e-6)


def test_fewer_instructions_explain_a_faster_kernel() -> None:
    parts = attribute(profile(1000.0, instructions=2e9), profile(500.0, instructions=1e9))
    assert math.prod(part.factor for part in parts) == pytest.approx(0.5)
    assert parts[0].name == "instructions"
    assert parts[0].microseconds == pytest.approx(-500.0)


def test_what_figures_do_not_explain_is_the_residual() -> None:
    parts = attribute(profile(1000.0), profile(500.0))
    assert parts[-1].name == "residual"
    assert parts[-1].microseconds == pytest.approx(-500.0)


@settings(deadline=None)
@given(
    t0=POSITIVE,
    t1=POSITIVE,
    n0=POSITIVE,
    n1=POSITIVE,
    w0=POSITIVE,
    w1=POSITIVE,
    a=POSITIVE,
    b=POSITIVE,
)
def test_parts_always_add_up(
    t0: float, t1: float, n0: float, n1: float, w0: float, w1: float, a: float, b: float
) -> None:
    before = profile(
        t0, {"selected": 1.0, "wait": a, "barrier": b}, instructions=n0 * 1e6, active_warps=w0
    )
    after = profile(
        t1, {"selected": 1.0, "wait": b, "barrier": a + 1}, instructions=n1 * 1e6, active_warps=w1
    )
    assert sum(part.microseconds for part in attribute(before, after)) == pytest.approx(
        t1 - t0, abs=1e-6 * max(t0, t1)
    )


def test_same_time_needs_no_explanation() -> None:
    assert all(part.microseconds == pytest.approx(0.0) for part in attribute(profile(), profile()))


def test_missing_time_or_stalls() -> None:
    assert attribute(profile(None), profile()) == []
    parts = attribute(profile(1000.0, {}), profile(500.0, {}))
    assert sum(part.microseconds for part in parts) == pytest.approx(-500.0)


def test_warnings_speak_up() -> None:
    other = cases.build(
        {
            "device": {"name": "Another GPU", "cc": [8, 0], "sm_count": 108},
            "metrics": {"sm_clock": 1.2e9},
            "context": {"size": "2048"},
        }
    )
    text = " ".join(comparability(cases.build({"context": {"size": "1024"}}), other))
    for word in ("Different GPUs", "SM clock", "sizes"):
        assert word in text
    assert comparability(profile(), profile()) == []
