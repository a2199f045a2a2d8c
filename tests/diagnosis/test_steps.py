"""What a step is said to have changed, and predictions held against what was achieved: true in all
cases, one speedup a step."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import diagnosis_cases as cases
import pytest
import recorded

from ncu_toolkit.base.model import Diagnosis, Finding, Profile, Timing
from ncu_toolkit.kernel.diagnosis.compare import Launches
from ncu_toolkit.kernel.diagnosis.steps import StepExplanation
from ncu_toolkit.kernel.pages.book import Book, open_book
from ncu_toolkit.kernel.pages.step_view import explained, step_fold


def found(bottleneck: str, speedup: float, *, good: bool = False) -> Finding:
    return Finding(bottleneck, "", "high", (), speedup, (), (), good=good)


def told(*verdicts: tuple[Finding, ...]) -> Callable[[Profile], Diagnosis]:
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
    assert "under the profiler" in step.text[0], "which clock is said"
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
        timed(300.0, 1000.0), timed(100.0, 500.0), "memory-latency", told((LATENCY,), (PRESSURE,))
    )
    assert (step.speedup, step.clock) == (pytest.approx(3.0), "timed")
    assert "3.00× faster" in step.text[0]
    assert "2.00×" not in " ".join(step.text[:-2]), "the profiler's own ratio is not said beside it"


def test_beyond_the_prediction_says_what_else_went() -> None:
    step = StepExplanation(
        timed(400.0),
        timed(100.0, registers_per_thread=200),
        "memory-latency",
        told((LATENCY, CONFLICT), (PRESSURE,)),
    )
    text = " ".join(step.text)
    assert "Removing this cause (memory latency) was predicted to give 2.00×" in text
    assert "The step saved more" in text
    assert "The step also removed shared-memory bank conflicts (1.20×)" in text
    assert "also changed registers per thread" in text
    assert "at most" not in text


def test_a_few_points_of_a_large_speedup_are_not_alike() -> None:
    step = StepExplanation(
        timed(950.0),
        timed(10.0),
        "atomic-contention",
        told((found("atomic-contention", 19.0),), (PRESSURE,)),
    )
    assert "The step saved more" in " ".join(step.text)


def test_slower_says_so_and_why() -> None:
    fast, slow = (
        timed(100.0, 100.0, sm_cycles=1e5, sm_active_cycles=99e3),
        timed(200.0, 200.0, sm_cycles=2e5, sm_active_cycles=99e3),
    )
    step = StepExplanation(
        fast, slow, "shared-bank-conflict", told((LATENCY, PRESSURE, CONFLICT), (LATENCY,))
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


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("regression", "shows a regression"),
        ("planted", "a planted defect"),
        ("step", "no known cause"),
    ],
)
def test_no_declared_cause_is_not_told_as_a_removal(kind: str, word: str) -> None:
    step = StepExplanation(timed(100.0), timed(1000.0), "", told((LATENCY,), (PRESSURE,)), kind)
    text = " ".join(step.text)
    assert (step.rank, step.expected) == (None, None)
    assert word in text.lower()
    assert "was predicted to give" not in text
    assert "10.0× slower" in text


def test_a_roof_is_not_removed() -> None:
    roof = found("fp32-pipe", 1.0, good=True)
    step = StepExplanation(
        timed(110.0, fma_pipe_active=0.6),
        timed(100.0, fma_pipe_active=0.7),
        "fp32-pipe",
        told((roof,), (roof,)),
    )
    text = " ".join(step.text)
    assert "Removing" not in text
    assert "The limit is still the FP32 pipe" in text
    assert "FMA pipe active 60.0" in text
    assert "The step saved 9.09" in text


def test_a_runner_up_is_told_as_such() -> None:
    step = StepExplanation(
        timed(125.0), timed(100.0), "shared-bank-conflict", told((LATENCY, CONFLICT), (LATENCY,))
    )
    assert (
        "targets cause 2 of the earlier kernel's diagnosis: shared-memory bank conflicts. The verdict there was memory latency"
        in " ".join(step.text)
    )


def test_waiting_that_hardly_fell_is_not_told() -> None:
    before = cases.build(
        {"metrics": {"duration": 1000.0}, "stalls": {"long_scoreboard": 100.0, "misc": 0.001}}
    )
    after = cases.build(
        {"metrics": {"duration": 500.0}, "stalls": {"long_scoreboard": 50.0, "misc": 0.0005}}
    )
    sentence = next(
        line
        for line in StepExplanation(Launches((before,)), Launches((after,))).text
        if line.startswith("Waiting that fell")
    )
    assert "long scoreboard" in sentence
    assert "misc" not in sentence


@pytest.fixture(scope="module")
def books() -> dict[str, Book]:
    def unknown(profile: Profile) -> Diagnosis:
        return Diagnosis((found("launch-overhead", 4.0),))

    return {
        folder.name: open_book(recorded.run_of(folder), unknown)
        for folder in recorded.FOLDERS
        if "fp32" not in folder.name
    }


def _explained(books: dict[str, Book], rung: str) -> tuple[str, ...]:
    entry = next(
        e
        for b in books.values()
        for e in b.entries
        if e.rung == rung and e.profiles and (f := e.before) and f.profiles
    )
    before = entry.before
    assert before is not None
    step = explained(before, entry)
    assert step is not None
    fold = step_fold(entry)
    assert fold is not None
    achieved = dict(fold.parts)["facts"][0].cell.text
    assert f"{step.speedup:.3g}"[:4] in achieved
    assert "timed" in achieved
    return step.text


def test_launches_of_a_rung_are_summed(books: dict[str, Book]) -> None:
    """64 launches became one: the time of all of them fell, though one of them is as long as the
    new one."""
    lines = _explained(books, "launch_overhead_fixed")
    assert "25.7× faster" in lines[0]
    assert "all launches together" in lines[0]
    assert "launch_overhead takes 64 launches, launch_overhead_fixed takes 1 launch" in lines[1]
    assert not any("slower" in line for line in lines)
    waiting = next(
        line for line in _explained(books, "gelu_fused") if line.startswith("Waiting that fell")
    )
    found = re.search(r"long scoreboard \((\d+\.\d) µs → (\d+\.\d\d) µs", waiting)
    assert found is not None
    assert 6 < float(found[1]) / float(found[2]) < 12, (
        "eight launches, each of which waits about as long as the one that takes their place"
    )


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
