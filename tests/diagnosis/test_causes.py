"""Causes that look alike, told apart by physics: what waits behind what, which remedy is there, and
when a full unit is no roof."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import diagnosis_cases as cases
import pytest

from ncu_toolkit.base.model import Evidence, Finding
from ncu_toolkit.kernel.diagnosis import time_model
from ncu_toolkit.kernel.diagnosis.engine import diagnose, ranked
from ncu_toolkit.kernel.diagnosis.time_model import Removal

QUIET = {
    name: 0.01
    for name in cases.METRICS
    if name.endswith(("_active", "_utilization")) and name != "constant_cache_active"
}


def named(**case: Any) -> list[str]:
    case["metrics"] = {**QUIET, **case.get("metrics", {})}
    return [finding.bottleneck for finding in diagnose(cases.build(case)).findings]


HOT = {
    "opcodes": {"LDG.E": 500_000, "ATOMG.E.ADD.STRONG.GPU": 500_000, "IMAD.WIDE": 1_000_000, "BRA": 500_000},
    "stalls": {"selected": 1.0, "long_scoreboard": 12000.0, "lg_throttle": 400.0},
    "metrics": {"issue_active": 0.002, "instructions": 2_500_000},
}  # fmt: skip


def test_a_line_in_front_of_one_address_is_no_latency_of_loads() -> None:
    """30,000 cycles per access with every unit idle, and sixteen million updates in under two
    million cycles."""
    found = named(**HOT)
    assert found[0] == "atomic-contention"
    assert "memory-latency" not in found
    assert "narrow-access" not in found


def test_few_updates_explain_no_queue() -> None:
    few = {**HOT, "opcodes": {**HOT["opcodes"], "ATOMG.E.ADD.STRONG.GPU": 50}}
    assert named(**few)[0] != "atomic-contention"


def test_usual_latency_is_no_queue() -> None:
    usual = {**HOT, "stalls": {"selected": 1.0, "long_scoreboard": 100.0}}
    assert "memory-latency" in named(**usual)


FEW_WARPS = {
    "stalls": {"selected": 1.0, "long_scoreboard": 40.0, "wait": 1.0},
    "metrics": {
        "issue_active": 0.07,
        "theoretical_occupancy": 0.19,
        "achieved_occupancy": 0.18,
        "block_limit_shared": 3,
        "block_limit_registers": 16,
        "block_limit_warps": 16,
        "dram_utilization": 0.15,
    },
    "opcodes": {"LDG.E": 1_600_000, "STG.E": 800_000, "FFMA": 1_000_000, "IADD3": 1_000_000},
}


def test_few_warps_come_before_the_width_of_a_word() -> None:
    assert named(**FEW_WARPS)[0] == "low-occupancy"
    assert "narrow-access" not in named(**FEW_WARPS)


def test_with_all_warps_the_width_is_what_is_left() -> None:
    full = {
        **FEW_WARPS,
        "metrics": {**FEW_WARPS["metrics"], "theoretical_occupancy": 1.0, "achieved_occupancy": 0.97, "block_limit_shared": 32},
    }  # fmt: skip
    assert named(**full)[0] == "narrow-access"


def test_a_pipe_that_is_full_in_some_sms_is_no_roof() -> None:
    metrics = {
        "fma_pipe_active": 0.85,
        "issue_active": 0.97,
        "waves": 1.01,
        "sm_active_cycles": 1_130_000,
        "achieved_occupancy": 0.75,
    }
    diagnosis = diagnose(
        cases.build(
            {"metrics": {**QUIET, **metrics}, "opcodes": {"FFMA": 20_000_000, "LDG.E": 100_000}}
        )
    )
    assert diagnosis.primary.bottleneck == "tail-effect"
    assert not any(finding.good for finding in diagnosis.findings)


def test_more_warps_do_not_shorten_queues() -> None:
    def gain(l1: float) -> float:
        metrics = {**QUIET, "issue_active": 0.05, "l1_data_pipe_active": l1}
        model = time_model.build(
            cases.build({"metrics": metrics, "stalls": {"selected": 0.1, "short_scoreboard": 9.0}})
        )
        return model.without(Removal("more warps", parallelism=2.0)).speedup

    assert gain(0.05) == pytest.approx(2.0, rel=0.1)
    assert gain(0.4) < gain(0.05)
    throttled = time_model.build(
        cases.build(
            {
                "metrics": {**QUIET, "issue_active": 0.05},
                "stalls": {"selected": 0.1, "lg_throttle": 9.0},
            }
        )
    )
    assert throttled.without(Removal("more warps", parallelism=2.0)).speedup < 1.05


def _finding(
    bottleneck: str, speedup: float, *, good: bool = False, confidence: Any = "high"
) -> Finding:
    return Finding(bottleneck, "", confidence, (), speedup, (), (), good=good)


def test_order_is_by_saving_then_by_how_specific() -> None:
    near = [
        _finding("memory-latency", 2.0),
        _finding("narrow-access", 1.97),
        _finding("low-occupancy", 2.02, confidence="medium"),
    ]
    assert [f.bottleneck for f in ranked(near)] == [
        "narrow-access",
        "low-occupancy",
        "memory-latency",
    ]
    room = [
        _finding("grid-too-small", 2.02, confidence="medium"),
        _finding("memory-latency", 2.0),
        _finding("barrier-imbalance", 2.03),
    ]
    assert [f.bottleneck for f in ranked(room)] == [
        "memory-latency",
        "grid-too-small",
        "barrier-imbalance",
    ]
    assert [
        f.bottleneck
        for f in ranked([_finding("memory-latency", 2.0), _finding("grid-too-small", 1.97)])
    ] == ["grid-too-small", "memory-latency"]
    apart = [
        _finding("narrow-access", 1.5),
        _finding("memory-latency", 2.0),
        _finding("dram-bandwidth", 1.0, good=True),
    ]
    assert [f.bottleneck for f in ranked(apart)] == [
        "dram-bandwidth",
        "memory-latency",
        "narrow-access",
    ]


def test_wider_accesses_yield_where_they_only_take_threads_away() -> None:
    """A loop with one load under way, narrow lanes, and a grid that runs all at once: loads ahead
    are surer than threads that move more."""
    late = _finding("memory-latency", 2.1)
    wave = Evidence("waves", "Waves", 0.4, "count", "", 1.0, "<", "")
    narrow = _finding("narrow-access", 2.2, confidence="medium")
    assert [f.bottleneck for f in ranked([narrow, late])] == ["narrow-access", "memory-latency"]
    assert [f.bottleneck for f in ranked([replace(narrow, evidence=(wave,)), late])] == [
        "memory-latency",
        "narrow-access",
    ]
    assert [
        f.bottleneck for f in ranked([replace(narrow, evidence=(wave,), speedup=3.0), late])
    ] == ["narrow-access", "memory-latency"]


def test_a_product_s_few_warps_are_by_design() -> None:
    metrics = {
        "theoretical_occupancy": 0.25,
        "achieved_occupancy": 0.24,
        "block_limit_registers": 2,
        "registers_per_thread": 128,
        "waves": 4.0,
    }
    stalls = {"selected": 1.0, "long_scoreboard": 12.0}
    tile = {
        "HMMA.16816.F32": 4_000_000,
        "LDS.128": 2_000_000,
        "LDG.E.128": 500_000,
        "IADD3": 3_000_000,
    }
    assert "low-occupancy" not in named(metrics=metrics, stalls=stalls, opcodes=tile)
    assert "low-occupancy" in named(
        metrics=metrics, stalls=stalls, opcodes={"LDG.E": 4_000_000, "IADD3": 3_000_000}
    )


def test_a_near_roof_is_not_called_good_where_more_can_be_had() -> None:
    metrics = {**QUIET, "l1_data_pipe_active": 0.75, "issue_active": 0.2}
    known = {"compulsory_bytes": 1e9}
    near = diagnose(
        cases.build(
            {"metrics": metrics, "context": known, "stalls": {"selected": 1.0, "not_selected": 4.0}}
        )
    )
    assert (near.primary.bottleneck, near.primary.good) == ("l1-bandwidth", True)
    held_up = diagnose(
        cases.build(
            {
                "metrics": metrics,
                "context": known,
                "stalls": {"selected": 1.0, "wait": 1.0, "barrier": 4.0},
            }
        )
    )
    assert held_up.primary.bottleneck == "barrier-imbalance"
    roof = next(f for f in held_up.findings if f.bottleneck == "l1-bandwidth")
    assert not roof.good
    assert not roof.summary.startswith("At its roof")


def test_a_feeling_yields_to_a_remedy_that_saves_nearly_as_much() -> None:
    close = [_finding("barrier-imbalance", 1.2), _finding("shared-instruction-pressure", 1.16)]
    assert [f.bottleneck for f in ranked(close)] == [
        "shared-instruction-pressure",
        "barrier-imbalance",
    ]
    far = [_finding("barrier-imbalance", 1.5), _finding("shared-instruction-pressure", 1.16)]
    assert [f.bottleneck for f in ranked(far)] == [
        "barrier-imbalance",
        "shared-instruction-pressure",
    ]
