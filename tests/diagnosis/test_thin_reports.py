"""Verdicts on reports that lack sections: what is there is used, with less confidence, and what to
collect is said."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import diagnosis_cases as cases
import pytest
import recorded

from benchmarks.heldout import score
from ncu_toolkit.base.model import Diagnosis, Finding, InstructionMix, Presence, Profile
from ncu_toolkit.kernel.diagnosis.engine import diagnose, rivals
from ncu_toolkit.kernel.diagnosis.kernel import COLLECT, Kernel
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.diagnosis.rules._launch import warp_latency
from ncu_toolkit.kernel.report.reader import load_report

STRANGERS = recorded.ROOT.parent / "shared" / "strangers2"

#: What the speed-of-light section does not hold: `--set basic` has it, the launch and the
#: occupancy.
NOT_BASIC = (
    "lanes_per_instruction", "lanes_predicated_on", "instructions", "dram_read_bytes", "dram_write_bytes", "l2_sectors", "l2_sectors_from_sm",
    "l2_hit_rate", "l1_hit_rate", "global_load_sectors", "global_load_requests", "global_store_sectors", "global_store_requests",
    "local_load_sectors", "local_store_sectors", "shared_wavefronts", "shared_load_wavefronts", "shared_store_wavefronts",
    "shared_load_conflicts", "shared_store_conflicts",
)  # fmt: skip


def basic(**values: float) -> Diagnosis:
    return diagnose(
        cases.build(
            {"metrics": {**dict.fromkeys(NOT_BASIC), **values}, "stalls": {}, "opcodes": {}}
        )
    )


@pytest.mark.parametrize("name", cases.names())
def test_no_case_is_surer_without_stalls(name: str) -> None:
    case: dict[str, Any] = cases.read(name)
    found = diagnose(
        cases.build(
            {
                **case,
                "metrics": {**case.get("metrics", {}), **dict.fromkeys(NOT_BASIC)},
                "stalls": {},
                "opcodes": {},
                "instructions": (),
            }
        )
    )
    assert found.findings
    sure = [f.bottleneck for f in found.findings if f.confidence == "high"]
    assert all(load_rules()[name].FROM_SHAPE for name in sure)
    # All lanes take part in a matrix instruction.
    assert not [f.bottleneck for f in found.findings if f.good and f.bottleneck != "tensor-pipe"], (
        "nothing tells useful from wasteful work"
    )
    assert any(f"To collect them: {COLLECT}" in note for note in found.notes)


def test_many_passes_an_instruction_are_no_useful_bytes() -> None:
    """As a strided walk in a report of `--set basic`: the data stage full, one request in 32
    cycles."""
    primary = basic(l1_data_pipe_active=0.99, l1_request_active=0.03, lsu_pipe_active=0.03).primary
    assert primary.bottleneck == "l1-bandwidth"
    assert "33 wavefronts" in primary.summary
    assert "scattered global addresses" in primary.summary
    assert COLLECT in primary.advice[0]
    assert "passes_per_request" in [evidence.metric for evidence in primary.evidence]


@pytest.mark.parametrize(
    ("passes", "shared", "first"),
    [
        (8.0, 0, "uncoalesced-global-access"),
        (8.0, 8192, "shared-bank-conflict"),
        (1.1, 0, "global-instruction-pressure"),
        (1.1, 8192, "shared-instruction-pressure"),
        (5.0, 8192, "l1-bandwidth"),  # wide accesses with mild conflicts
        (3.0, 0, "l1-bandwidth"),
        (8.0, 64, "l1-bandwidth"),  # too little for a tile
    ],
)
def test_passes_a_request_and_shared_memory_say_what_fills_l1(
    passes: float, shared: int, first: str
) -> None:
    busy = {"l1_data_pipe_active": 0.9, "l1_request_active": 0.9 / passes}
    case = {
        "metrics": {**dict.fromkeys(NOT_BASIC), **busy, "lsu_pipe_active": 0.9 / passes},
        "stalls": {},
        "opcodes": {},
        "launch": {"shared_static": shared},
    }
    found = diagnose(cases.build(case))
    assert found.primary.bottleneck == first
    assert found.primary.confidence == "low"
    assert "l1-bandwidth" in [each.bottleneck for each in found.findings]
    assert found.primary.speedup in (None, 1.0)


def test_a_busy_pipe_is_not_good_before_its_lanes_are_known() -> None:
    primary = basic(fma_pipe_active=0.95, issue_active=0.95).primary
    assert (primary.bottleneck, primary.good, primary.confidence) == ("fp32-pipe", False, "low")


def test_few_warps_and_nothing_busy() -> None:
    few = {
        "theoretical_occupancy": 0.0625,
        "achieved_occupancy": 0.0625,
        "active_warps": 1.0,
        "block_limit_shared": 1.0,
    }
    primary = basic(**few).primary
    assert (primary.bottleneck, primary.confidence) == ("low-occupancy", "low")
    assert "does not show for what" in primary.summary
    assert basic(**few, dram_utilization=0.7).primary.bottleneck != "low-occupancy"


def test_a_full_constant_cache_serves_lanes_one_by_one() -> None:
    primary = basic(constant_cache_active=0.95, issue_active=0.02).primary
    assert (primary.bottleneck, primary.confidence, primary.good) == (
        "constant-cache-divergence",
        "low",
        False,
    )


def test_a_block_for_each_sm_needs_a_wait_to_be_a_cause() -> None:
    few = {"grid": [264, 1, 1]}
    metrics = {"waves": 0.25, "achieved_occupancy": 0.12}

    def found(stalls: dict[str, float], blocks: dict[str, Any] = few) -> list[str]:
        case = {"metrics": metrics, "stalls": stalls, "launch": blocks}
        return [f.bottleneck for f in diagnose(cases.build(case)).findings]

    assert "grid-too-small" not in found({})
    assert "grid-too-small" not in found({"barrier": 20.0, "selected": 1.0})
    assert "grid-too-small" in found({"long_scoreboard": 20.0, "selected": 1.0})
    assert "grid-too-small" in found({}, {"grid": [33, 1, 1]})


def test_short_blocks_show_where_nothing_else_is_busy() -> None:
    """Half a block starts each cycle, and the SMs are half empty: on a GPU whose limit is not known."""
    short = {"block_rate": None, "achieved_occupancy": 0.36, "waves": 60.0}
    launch = {"grid": [850_000, 1, 1]}
    built = cases.build(
        {"metrics": short | {"duration": 1000.0}, "stalls": {}, "opcodes": {}, "launch": launch}
    )
    primary = diagnose(built).primary
    assert primary.bottleneck == "launch-overhead"
    full = cases.build(
        {
            "metrics": {**short, "achieved_occupancy": 0.79},
            "stalls": {},
            "opcodes": {},
            "launch": launch,
        }
    )
    assert diagnose(full).primary.bottleneck != "launch-overhead"
    busy = cases.build(
        {
            "metrics": {**short, "dram_utilization": 0.8},
            "stalls": {},
            "opcodes": {},
            "launch": launch,
        }
    )
    assert diagnose(busy).primary.bottleneck != "launch-overhead"


def test_a_busy_level_of_memory_may_be_busy_with_anything() -> None:
    primary = basic(l2_utilization=0.95).primary
    assert (primary.bottleneck, primary.confidence, primary.speedup) == (
        "l2-bandwidth",
        "low",
        None,
    )
    assert "cannot tell them apart" in primary.summary


def test_latency_without_a_stall_stack() -> None:
    """Little's law: 48 of 64 warps are 12 a scheduler, which issues in 30% of the cycles: 40 cycles
    an instruction."""
    assert warp_latency(Kernel.of(cases.build({"stalls": {}}))) == pytest.approx(40.0)
    assert warp_latency(Kernel.of(cases.build({"stalls": {"selected": 1.0, "wait": 2.0}}))) == 3.0
    assert (
        warp_latency(Kernel.of(cases.build({"stalls": {}, "metrics": {"issue_active": None}})))
        is None
    )


#: What a report lacks without a section of Nsight Compute's, by our names of its figures.
SECTIONS_HOLD = {
    "WarpStateStats": r"stall_|warp_latency$|lanes_",
    "SchedulerStats": r"issue_active$|eligible_warps$|active_warps$",
    "SourceCounters": r"(uniform|divergent)_branches",
    "MemoryWorkloadAnalysis_Tables": r"(global|local|shared|texture|surface|bulk|constant|host|peer)_(load|store|atomic|reduction|hits"
    r"|sectors|requests|wavefronts|read|write)|l2_(sectors|atomic|reduction|read|write)|l1_(request|data)",
    "MemoryWorkloadAnalysis": r"dram_(read|write|total)_bytes|l[12]_hit_rate|l1_(fill|writeback|request|data)"
    r"|l2_(to_sm|utilization|sectors)|host_|device_fill",
    "ComputeWorkloadAnalysis": r"\w+_pipe_active$|mio_active",
    "Occupancy": r"(theoretical|achieved)_occupancy|block_limit",
}


def without(profile: Profile, section: str) -> Profile:
    gone = re.compile(SECTIONS_HOLD[section])
    readings = {
        name: replace(each, value=None, presence=Presence.NOT_COLLECTED)
        if gone.match(name)
        else each
        for name, each in profile.readings.items()
    }
    thin = replace(profile, readings=readings)
    if section == "WarpStateStats":
        return replace(thin, stalls=None)
    return (
        replace(thin, instructions=(), mix=InstructionMix({}))
        if section == "SourceCounters"
        else thin
    )


def size(finding: Finding) -> float:
    return max(finding.saved, finding.weight)


def surer(profile: Profile, section: str) -> str:
    """What is called clear without a section and is no clear cause of the whole report; of a whole
    report's clear causes another may go first, if it saves half as much."""
    whole = diagnose(profile)
    thin, first = diagnose(without(profile, section)).primary, whole.primary
    if (thin.bottleneck, thin.good) == (first.bottleneck, first.good) or thin.confidence != "high":
        return ""
    clear = (each for each in whole.findings if each.confidence == "high")
    known = any(e.bottleneck == thin.bottleneck and size(e) >= size(first) / 2 for e in clear)
    return "" if known else f"{section}: {first.bottleneck} is {thin.bottleneck}"


HELDOUT = [each.report for each in score.RECORDINGS if each.name == "h200"][:3]


@pytest.mark.slow
@pytest.mark.parametrize("report", HELDOUT, ids=lambda path: path.parent.name)
def test_no_verdict_is_clear_that_a_section_changes(report: Path) -> None:
    profiles = recorded._profiles(report, [report])
    assert len(profiles) > 10
    wrong = [surer(each, name) for each in profiles for name in SECTIONS_HOLD if each.launch.single]
    assert not list(filter(None, wrong))


@pytest.mark.parametrize("section", ["SourceCounters", "WarpStateStats"])
def test_a_skipped_rule_that_may_save_more_makes_a_cause_likely(section: str) -> None:
    """Waiting for loads, of which a report of one section does not show what it is due to."""
    report = recorded.ROOT / "tests" / "report" / "sections" / f"{section}.ncu-rep.xz"
    (profile,) = load_report(report).profiles
    found = diagnose(profile).primary
    assert (found.bottleneck, found.confidence) == ("memory-latency", "medium")
    assert "The report cannot show whether other causes cost more (" in found.summary
    assert "To find out, collect " in found.summary
    assert rivals(found, Kernel.of(cases.build({})), ("missing-data-reuse",)) == (), (
        "it lacks nothing"
    )


@pytest.mark.corpus
@pytest.mark.skipif(not STRANGERS.is_dir(), reason="the reports of others are not here")
def test_a_real_report_of_few_sections_is_not_clear() -> None:
    for name in ("rtx4090-block-start", "rtx3080ti-few-sections"):
        for profile in load_report(STRANGERS / f"{name}.ncu-rep.xz").profiles:
            assert diagnose(profile).primary.confidence != "high"
