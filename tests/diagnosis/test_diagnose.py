"""Verdicts: total, ranked, honest about what is missing; calibration on shipped recordings."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import diagnosis_cases as cases
import pytest
import recorded

from benchmarks import calibrate
from ncu_toolkit.base.model import Finding, RuleMessage
from ncu_toolkit.kernel.diagnosis.engine import IMPOSSIBLE, diagnose
from ncu_toolkit.kernel.diagnosis.kernel import COLLECT
from ncu_toolkit.kernel.diagnosis.time_model import NOISE


def test_incomplete_launch_says_what_to_do() -> None:
    diagnosis = diagnose(
        cases.build({"launch": {"status": "incomplete: its duration is not a number"}})
    )
    assert diagnosis.primary.bottleneck == "unknown"
    assert "incomplete" in diagnosis.primary.summary
    assert any(COLLECT in advice for advice in diagnosis.primary.advice)


def test_basic_set_says_what_to_collect() -> None:
    """The stock basic set: duration, roll-ups and occupancy only."""
    kept = (
        "duration", "sm_cycles", "achieved_occupancy", "theoretical_occupancy", "waves",
        "registers_per_thread",
    )  # fmt: skip
    metrics = {name: None for name in cases.METRICS if name not in kept} | {
        "sm_throughput": 0.1,
        "memory_throughput": 0.2,
    }
    diagnosis = diagnose(cases.build({"metrics": metrics, "stalls": {}, "opcodes": {}}))
    assert diagnosis.primary.bottleneck == "unknown"
    assert "WarpStateStats" in " ".join(diagnosis.notes)
    assert any(COLLECT in advice for advice in diagnosis.primary.advice)


def test_figures_that_cannot_all_be_true_cost_a_rule_not_the_verdict() -> None:
    """As in a damaged report: more bank conflicts than passes through the banks."""
    metrics = {
        "shared_load_conflicts": 9e6,
        "shared_store_conflicts": 9e6,
        "shared_load_wavefronts": 1e6,
        "shared_store_wavefronts": 1e6,
    }
    found = diagnose(cases.build({"metrics": metrics}))
    assert found.findings
    (reported,) = [
        ruled for ruled in found.considered if ruled.bottleneck == "shared-bank-conflict"
    ]
    assert reported.outcome == "abstained"
    assert reported.reason.startswith(IMPOSSIBLE)


def test_good_comes_first() -> None:
    case = cases.read("fp32-pipe")
    diagnosis = diagnose(
        cases.build(
            {
                **case,
                "metrics": {**case["metrics"], "l1_data_pipe_active": 0.9, "fma_pipe_active": 0.9},
            }
        )
    )
    assert diagnosis.primary.good
    assert diagnosis.runners_up


def test_ranked_by_time_saved() -> None:
    for name in cases.names():
        findings = [
            f
            for f in diagnose(cases.build(cases.read(name))).findings
            if not f.good and f.bottleneck != "debug-build"
        ]
        assert all(a.saved >= b.saved - NOISE for a, b in pairwise(findings))


def test_busy_with_waste_is_not_good() -> None:
    """95% of L1's tag stage with eight times the sectors needed is the coalescing defect, not a
    roof."""
    assert not diagnose(cases.build(cases.read("uncoalesced-global-access"))).primary.good
    copy = cases.read("dram-bandwidth")
    redundant = {**copy, "context": {"compulsory_bytes": 1e9}}
    assert not any(f.good for f in diagnose(cases.build(redundant)).findings)


def test_double_precision_that_is_meant_is_told_apart() -> None:
    case = {
        "metrics": {"fp64_pipe_active": 0.9, "issue_active": 0.4},
        "stalls": {"selected": 1.0, "math_pipe_throttle": 9.0},
        "opcodes": {"DFMA": 90_000_000, "LDG.E.64": 1_000_000},
    }
    finding = diagnose(cases.build(case)).primary
    assert finding.bottleneck == "double-precision"
    assert "not intended" not in finding.summary
    assert "not intended" in diagnose(cases.build(cases.read("double-precision"))).primary.summary


def test_doubles_that_nothing_waits_for_are_no_cause_where_memory_is_busier() -> None:
    def named(dram: float, waiting: float = 0.3) -> bool:
        case = {
            "metrics": {"fp64_pipe_active": 0.53, "issue_active": 0.8, "dram_utilization": dram},
            "stalls": {"selected": 1.0, "long_scoreboard": 6.0, "math_pipe_throttle": waiting},
            "opcodes": {"DFMA": 90_000_000, "LDG.E.64": 1_000_000},
        }
        return isinstance(cases.outcome("double-precision", cases.build(case)), Finding)

    assert named(0.3)
    assert not named(0.74)
    assert named(0.74, waiting=6.0)


def test_conversions_that_nobody_meant_are_reported_where_they_cost_little() -> None:
    """A literal without f in a kernel that mostly waits for its integer pipe; doubles that are
    loaded as such are meant, and are not reported there."""

    def named(load: str) -> bool:
        case = {
            "metrics": {"fp64_pipe_active": 0.08, "xu_pipe_active": 0.3, "issue_active": 0.95},
            "stalls": {"selected": 4.0, "not_selected": 4.0, "short_scoreboard": 0.4},
            "opcodes": {
                "F2F.F64.F32": 6_000_000,
                "DADD": 6_000_000 if load == "LDG.E" else 60_000_000,
                "IADD3": 90_000_000,
                load: 1_000_000,
            },
        }
        findings = diagnose(cases.build(case)).findings
        return "double-precision" in [finding.bottleneck for finding in findings]

    assert named("LDG.E")
    assert not named("LDG.E.64")


def test_stall_residual_is_shown() -> None:
    profile = cases.build({"metrics": {"warp_latency": 4.0}})
    assert any("add up" in note for note in diagnose(profile).notes)


def test_ncu_rules_are_mapped_to_causes() -> None:
    message = RuleMessage("CPIStall", "Long Scoreboard Stalls", "", "optimization", 40.0, "global")
    assert "memory-latency" in calibrate.ncu_means(message)
    assert calibrate.ncu_means(RuleMessage("SomethingElse", "", "", "ok")) == ()
    local = RuleMessage("MemoryCacheAccessPattern", "Local Load Access Pattern", "", "", 9.0, "")
    assert calibrate.ncu_means(local) == ("local-memory-traffic",)


@pytest.mark.parametrize("folder", recorded.FOLDERS, ids=lambda folder: folder.name)
def test_no_rule_stumbles_over_a_whole_report(folder: Path) -> None:
    """A rule that an arithmetic error keeps from judging is reported as the report's fault: it must
    be."""
    reported = [
        ruled
        for profile in recorded.run_of(folder).profiles
        for ruled in recorded.diagnosed(profile).considered
        if ruled.reason.startswith(IMPOSSIBLE)
    ]
    assert reported == []
