"""Confidence that means something: what a report lacks lowers it, evidence is never nothing, and the
published readings say how often each word was right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import diagnosis_cases as cases
import pytest
import recorded
from test_thin_reports import basic

from benchmarks import readings
from benchmarks.heldout import score
from ncu_toolkit.base.model import NOT_MEASURED, Finding, Profile
from ncu_toolkit.kernel.diagnosis import time_model
from ncu_toolkit.kernel.diagnosis.engine import diagnose, outcome_of
from ncu_toolkit.kernel.diagnosis.kernel import Kernel
from ncu_toolkit.kernel.diagnosis.rules import load_rules

SHARED = recorded.ROOT.parent / "shared"
#: Below this a share or a pipe's load rounds to nothing where it is shown.
NOTHING = 0.0005


def reports() -> list[Path]:
    return [
        *(recording.report for recording in score.RECORDINGS),
        *sorted((recorded.ROOT / "tests" / "origins" / "reports").glob("*.ncu-rep.xz")),
        *sorted(SHARED.glob("strangers/*.ncu-rep")),
        *sorted(SHARED.glob("corpus/*.ncu-rep")),
    ]


def found_in(profile: Profile) -> Iterator[Finding]:
    """What rules find before the engine hides comparisons that do not hold."""
    model = time_model.build(profile)
    for rule in load_rules().values():
        outcome = outcome_of(rule, profile, model)
        if isinstance(outcome, Finding):
            yield outcome


def empty(finding: Finding) -> bool:
    """Whether a finding rests on nothing: all its lower bounds are of zeros, or all that it measures
    but stalls is nothing."""
    least = [e.value for e in finding.evidence if e.comparison in (">", ">=")]
    parts = [e.value for e in finding.evidence if not e.metric.startswith("stall_share")]
    return (bool(least) and not any(least)) or (bool(parts) and max(parts) < NOTHING)


@pytest.mark.parametrize(
    "report",
    [
        each if "three" in each.parts else pytest.param(each, marks=pytest.mark.slow)
        for each in reports()
    ],
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_no_finding_rests_on_nothing(report: Path) -> None:
    profiles = recorded._profiles(
        report, [each for each in report.parent.glob(f"{report.name}*") if each.is_file()]
    )
    for profile in profiles:
        if profile.launch.complete and not profile.launch.workload:
            wrong = [f.bottleneck for f in found_in(profile) if empty(f)]
            assert not wrong, f"{profile.origin.key}: {wrong}"


#: A launch of which a few warps convert an index through FP64, and whose samples have no source.
FEW_DOUBLES: dict[str, Any] = {
    "device": {"cc": (7, 0), "sm_count": 80},
    "opcodes": {**cases.OPCODES, "I2F.F64": 2048, "DMUL": 2048, "F2I.F64.CEIL": 2048},
    "stalls": {"selected": 1.0, "wait": 4.0, "math_pipe_throttle": 0.5, "long_scoreboard": 4.0},
    "instructions": [{"sass": "LDG.E R2, [R4]", "samples": {"long_scoreboard": 900}}],
}


def test_a_handful_of_fp64_instructions_are_no_cause() -> None:
    profile = cases.build(FEW_DOUBLES)
    assert profile.samples
    assert "double-precision" not in [f.bottleneck for f in diagnose(profile).findings]
    assert Kernel.of(profile).blame("wait", "fp64") < 0.001
    assert Kernel.of(profile).blame("barrier", "barrier") == 0.0, "none was executed"


TAIL = cases.read("tail-effect")


def test_a_partial_wave_is_only_possible_where_nothing_shows_that_warps_wait() -> None:
    reported = basic(**TAIL["metrics"]).primary
    assert (reported.bottleneck, reported.confidence) == ("tail-effect", "low")
    assert diagnose(cases.build(TAIL)).primary.confidence == "medium"
    nothing = dict.fromkeys(("sm_active_cycles", "achieved_occupancy"))
    assert "tail-effect" not in [
        f.bottleneck for f in basic(**{**TAIL["metrics"], **nothing}).findings
    ]


def test_unequal_blocks_are_only_possible_without_the_busiest_sm() -> None:
    idle = {"sm_active_cycles": 800_000.0, "waves": 20.0}
    known = cases.build({"metrics": idle})
    assert diagnose(known).primary.confidence == "high"
    unknown = basic(**idle, sm_active_cycles_max=None)
    assert (unknown.primary.bottleneck, unknown.primary.confidence) == ("load-imbalance", "low")
    # The last blocks run for one wave in 13, in which SMs may be idle.
    ends = basic(sm_active_cycles=1_500_000.0, waves=12.8, sm_active_cycles_max=None)
    assert "load-imbalance" not in [f.bottleneck for f in ends.findings]


def test_what_explains_less_than_a_fifth_is_not_clear() -> None:
    for name in cases.names():
        for finding in diagnose(cases.build(cases.read(name))).findings:
            if finding.confidence == "high" and finding.speedup is not None and not finding.good:
                assert finding.speedup >= 1.25, name


def test_a_memory_roof_comes_before_what_it_allows() -> None:
    """A partial wave of 1.1x beside device memory at its roof, as in a short streaming kernel."""
    found = basic(
        waves=3.2, dram_utilization=0.8, achieved_occupancy=0.7, sm_active_cycles=1_450_000.0
    )
    assert found.primary.bottleneck == "dram-bandwidth"


def test_words_meant_what_they_say_on_public_reports() -> None:
    rows = [row for row in readings.read() if row.half == "dev"]
    assert len(rows) >= 50
    for word, least in (("clear", 0.95), ("likely", 0.8), ("possible", 0.55)):
        mine = [row.right for row in rows if row.word == word]
        assert sum(mine) >= least * len(mine), word
    assert all(
        row.word == readings.UNREAD or row.right <= row.right_second for row in readings.read()
    )


def test_a_launch_that_was_not_measured_has_no_word() -> None:
    """That it cannot be diagnosed is certain, which is no "clear" cause."""
    ended = cases.build({})
    refused = replace(ended, launch=replace(ended.launch, status=f"{NOT_MEASURED}: no pass"))
    verdict = diagnose(refused).primary
    assert (verdict.bottleneck, verdict.confidence) == ("unknown", "high")
    assert readings.word(verdict) == readings.word(None) == readings.UNREAD
    assert readings.word(replace(verdict, confidence="low")) == "possible"
    assert readings.word(replace(verdict, bottleneck="memory-latency")) == "clear"
