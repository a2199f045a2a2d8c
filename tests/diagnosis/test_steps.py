"""What a step changed, and predictions compared with what was achieved: true in all
cases, one speedup a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import diagnosis_cases as cases
import pytest

from ncu_toolkit.base.model import Diagnosis, Finding, Profile, Timing
from ncu_toolkit.kernel.diagnosis.compare import Launches
from ncu_toolkit.kernel.diagnosis.steps import StepExplanation


def found(bottleneck: str, speedup: float, *, good: bool = False) -> Finding:
    return Finding(bottleneck, "", "high", (), speedup, (), (), good=good)


def diagnosing(*verdicts: tuple[Finding, ...]) -> Callable[[Profile], Diagnosis]:
    """A stand-in for the diagnosis: one list of findings a call, in order."""
    waiting = iter(verdicts)
    return lambda profile: Diagnosis(next(waiting))


def timed(us: float, duration: float = 1000.0, **metrics: float) -> Launches:
    timing = Timing("", "", "", "", {}, {}, (us,), "warm", 1.0, 1.0, 0.0)
    return Launches((cases.build({"metrics": {"duration": duration, **metrics}}),), timing)


CONFLICT, PRESSURE, LATENCY = (
    found("shared-bank-conflict", 1.2),
    found("shared-instruction-pressure", 1.8),
    found("memory-latency", 2.0),
)


def test_step_is_explained() -> None:
    slow = cases.build(cases.read("uncoalesced-global-access"))
    fast = cases.build(
        {
            "metrics": {
                "duration": 100.0,
                "sm_cycles": 170_000,
                "sm_active_cycles": 169_000,
                "issue_active": 0.5,
            },
            "stalls": {"selected": 1.0, "long_scoreboard": 8.0},
        }
    )
    step = StepExplanation(Launches((slow,)), Launches((fast,)), "uncoalesced-global-access")
    assert step.speedup == pytest.approx(10.0)
    text = " ".join(step.text)
    assert "10.0× faster" in text
    assert "under the profiler" in step.text[0], "which clock is stated"
    assert "LG throttle" in text
    assert "predicted to give" in text
    assert "undeclared" not in text


def test_step_without_times_says_so() -> None:
    step = StepExplanation(
        *(Launches((cases.build(each),)) for each in ({"metrics": {"duration": None}}, {}))
    )
    assert step.speedup is None
    assert "not known" in step.text[0]


def test_timed_goes_before_profiled() -> None:
    step = StepExplanation(
        timed(300.0, 1000.0),
        timed(100.0, 500.0),
        "memory-latency",
        diagnosing((LATENCY,), (PRESSURE,)),
    )
    assert (step.speedup, step.clock) == (pytest.approx(3.0), "timed")
    assert "3.00× faster" in step.text[0]
    assert "2.00×" not in " ".join(step.text[:-2]), (
        "the profiler's own ratio is not shown next to it"
    )


def test_beyond_the_prediction_says_what_else_went() -> None:
    step = StepExplanation(
        timed(400.0),
        timed(100.0, registers_per_thread=200),
        "memory-latency",
        diagnosing((LATENCY, CONFLICT), (PRESSURE,)),
    )
    text = " ".join(step.text)
    assert "Removing this cause (memory latency) was predicted to give 2.00×" in text
    assert "The step saved more" in text
    assert "The step also removed shared-memory bank conflicts (1.20×)" in text
    assert "also changed registers per thread" in text
    assert "at most" not in text


def test_slower_says_so_and_why() -> None:
    fast, slow = (
        timed(100.0, 100.0, sm_cycles=1e5, sm_active_cycles=99e3),
        timed(200.0, 200.0, sm_cycles=2e5, sm_active_cycles=99e3),
    )
    step = StepExplanation(
        fast, slow, "shared-bank-conflict", diagnosing((LATENCY, PRESSURE, CONFLICT), (LATENCY,))
    )
    text = " ".join(step.text)
    assert "2.00× slower" in text
    assert (
        "Reasons for the slowdown, from the two profiles: share of the time in which SMs had work 99.0"
        in text
    )
    assert "The step is slower instead" in text
    assert "targets cause 3" in text
    assert "-" not in text.replace("shared-memory", "")


def test_a_roof_is_not_removed() -> None:
    roof = found("fp32-pipe", 1.0, good=True)
    step = StepExplanation(
        timed(110.0, fma_pipe_active=0.6),
        timed(100.0, fma_pipe_active=0.7),
        "fp32-pipe",
        diagnosing((roof,), (roof,)),
    )
    text = " ".join(step.text)
    assert "Removing" not in text
    assert "The limit is still the FP32 pipe" in text
    assert "FMA pipe active 60.0" in text
    assert "The step saved 9.09" in text


def test_a_rung_of_which_a_launch_is_missing_is_not_summed() -> None:
    chain = cases.build({"context": {"launch_count": 8}})
    assert chain.context is not None
    side = Launches((chain,))
    assert (side.count, side.whole, side.profiled_us) == (8, False, None)
    repeated = Launches((replace(chain, context=replace(chain.context, launch_count=1, repeat=5)),))
    assert repeated.profiled_us == pytest.approx(5 * (chain.duration_us or 0))
    assert "Some were not profiled" in " ".join(
        StepExplanation(side, Launches((cases.build({}),))).text
    )
