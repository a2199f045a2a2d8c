"""What holds of every verdict, whatever the launch: it names a unit that is full, or a wait that
takes half of the time; it says no figure that was not measured; no load is above its counter.

The cases are in tests/cases/verdicts: metric values in, the verdict out, and the change that makes
another one of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import diagnosis_cases as cases
import pytest
import recorded

from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model import Diagnosis, Profile
from ncu_toolkit.kernel.diagnosis import figures, time_model
from ncu_toolkit.kernel.diagnosis.engine import _headroom, diagnose
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.diagnosis.time_model import BEYOND_FIX
from ncu_toolkit.kernel.pages.json import diagnosis as as_json

FOLDER = cases.CASES / "verdicts"
FILES = sorted(FOLDER.glob("*.json"))
RECORDINGS = pytest.mark.parametrize("folder", recorded.FOLDERS, ids=lambda folder: folder.name)


def check(found: Diagnosis, expect: dict[str, Any]) -> None:
    """Hold a verdict to what a case says of it."""
    primary = found.primary
    message = f"{primary.bottleneck} {primary.speedup}: {primary.summary}"
    assert primary.bottleneck == expect.get("bottleneck", primary.bottleneck), message
    assert primary.bottleneck != expect.get("not"), message
    assert primary.good == expect.get("good", primary.good), message
    assert (primary.speedup is not None) == expect.get("figure", primary.speedup is not None), (
        message
    )
    for words in expect.get("says", ()):
        assert words in primary.summary, message
    for words in expect.get("says_not", ()):
        assert words not in primary.summary, message
    for words in expect.get("advises", ()):
        assert any(words in advice for advice in primary.advice), primary.advice
    for words in expect.get("advises_not", ()):
        assert not any(words in advice for advice in primary.advice), primary.advice


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_verdict(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    check(diagnose(cases.build(case)), case["expect"])
    other = {**case, **case["other"]}
    other["metrics"] = {**case.get("metrics", {}), **case["other"].get("metrics", {})}
    check(diagnose(cases.build(other)), case["other"]["expect"])


def full_or_waiting(profile: Profile) -> str:
    """The unit at 80% of its peak or more, or the stall reason of half of a warp's time or more."""
    model = time_model.build(profile)
    reasons = {
        reason: share
        for reason, share in model.stalls.items()
        # Issuing is no wait, readiness to issue neither, and misc is what the profiler cannot name.
        if reason not in ("selected", "not_selected", "misc")
    }
    busy = {
        name: profile.value(name) or 0.0
        for names, _, _ in time_model.RESOURCES.values()
        for name in names
        if name in registry.REGISTRY
    }
    if profile.launch.complete and model.working > 0.9 and max(busy.values()) >= 0.8:
        return max(busy, key=busy.__getitem__)
    reason = max(reasons, key=reasons.__getitem__, default="")
    return reason if profile.launch.complete and reason and reasons[reason] >= 0.5 else ""


@RECORDINGS
def test_no_verdict_is_empty(folder: Path) -> None:
    for profile in recorded.run_of(folder).profiles:
        primary = recorded.diagnosed(profile).primary
        assert primary.bottleneck != "unknown" or not full_or_waiting(profile), primary.summary


@pytest.mark.parametrize(
    "reason", sorted({wait for rule in load_rules().values() for wait in rule.WAITS})
)
def test_each_wait_has_a_verdict(reason: str) -> None:
    """Half of a warp's time, and nothing else known of the launch."""
    absent = dict.fromkeys(cases.METRICS) | {"duration": 100.0, "sm_cycles": 170_000.0}
    stalls = {"selected": 1.0, "wait": 1.0, reason: 9.0}
    found = diagnose(cases.build({"metrics": absent, "stalls": stalls, "opcodes": {}}))
    assert found.primary.bottleneck != "unknown"
    words = reason.replace("_", " ")
    assert (
        found.primary.speedup is not None
        or words in found.primary.summary
        or any(evidence.metric == f"stall_share:{reason}" for evidence in found.primary.evidence)
    )


@pytest.mark.parametrize("resource", sorted(time_model.RESOURCES))
def test_each_full_unit_has_a_verdict_without_stall_reasons(resource: str) -> None:
    """A report of one counter at 86%."""
    name = next(
        (n for n in time_model.RESOURCES[resource][0] if n in registry.REGISTRY), "sm_throughput"
    )
    absent = dict.fromkeys(cases.METRICS) | {"duration": 100.0, "sm_cycles": 170_000.0}
    found = diagnose(cases.build({"metrics": {**absent, name: 0.86}, "stalls": {}, "opcodes": {}}))
    assert found.primary.bottleneck != "unknown"
    assert not found.primary.good
    assert "86" in found.primary.summary


def test_each_unit_and_wait_goes_by_one_rule() -> None:
    units = [unit for rule in load_rules().values() for unit in rule.UNITS]
    waits = [
        wait for rule in load_rules().values() for wait, kind in rule.WAITS.items() if not kind
    ]
    assert sorted(units) == sorted(time_model.RESOURCES)
    assert sorted(waits) == sorted(
        set(registry.STALL_REASONS) - {"selected", "not_selected", "misc"}
    )


@RECORDINGS
def test_no_load_is_above_its_counter(folder: Path) -> None:
    for profile in recorded.run_of(folder).profiles:
        model = time_model.build(profile)
        for resource, (names, per_sm, _) in time_model.RESOURCES.items():
            counted = [v for name in names if (v := figures.value(profile, name)) is not None]
            if not counted:
                continue
            most = min(1.0, max(counted)) * (model.active if per_sm else 1.0)
            assert (model.utilization(resource) or 0.0) <= most * (1 + 1e-9), resource
            assert model.counted(resource) <= min(1.0, max(counted)) * (1 + 1e-9), resource


@RECORDINGS
def test_no_gain_is_beyond_the_headroom(folder: Path) -> None:
    for profile in recorded.run_of(folder).profiles:
        found, model = recorded.diagnosed(profile), time_model.build(profile)
        assert sum(model.floor) <= model.cycles
        if found.headroom is None:
            continue
        first, most = found.primary, found.headroom.factor * (1 + 1e-9)
        assert found.headroom.resource in found.bounds
        assert most >= max(1.0, first.speedup or 1.0, *(first.interval or ()))
        assert first.confidence != "high" or first.interval is None or first.interval[0] > 1
        if time_model.LAUNCH not in first.relieves and "blocks" not in first.relieves:
            floor = found.bounds[time_model.LAUNCH]
            assert (profile.duration_us or 0.0) / (first.speedup or 1.0) >= 0.99 * floor


def test_a_unit_that_keeps_most_of_its_work_is_still_a_roof() -> None:
    """Local memory is a tenth of what L1 moves: without it L1 is nearly as full as before, and the
    headroom says how much of that a fix may take besides."""
    case = {
        "metrics": {"lsu_pipe_active": 0.2, "l1_data_pipe_active": 0.85, "l1_writeback_active": 0.6, "local_load_sectors": 1e6},
        "stalls": {"selected": 1.0, "lg_throttle": 3.0, "long_scoreboard": 6.0, "wait": 1.0},
        "opcodes": {"LDG.E": 1_600_000, "LDL": 300_000, "FFMA": 3_000_000, "IADD3": 1_000_000},
    }  # fmt: skip
    profile = cases.build(case)
    found = diagnose(profile)
    local = next(f for f in found.findings if f.bottleneck == "local-memory-traffic")
    assert 0.5 < local.relieves["l1_data"] < 1
    busy = time_model.build(profile).utilization("l1_data") or 0.0
    room = 1 / (busy * local.relieves["l1_data"])
    assert (local.speedup or 1.0) <= room
    bounded = _headroom(local, time_model.build(profile))
    assert bounded is not None
    assert bounded.resource == "l1_data"
    assert bounded.factor == pytest.approx(BEYOND_FIX * room)


def test_no_fix_saves_bytes_that_are_stored_or_read_once() -> None:
    """A copy moves its bytes however its blocks start. Loads of ten times what memory reads may be
    repeated reads, of which another fix may take some."""
    metrics = {"dram_read_bytes": 1e8, "dram_write_bytes": 1e8, "global_store_sectors": 3.2e6}
    for loads, needed in ((800_000, (0.5, 1.0)), (8_000_000, (0.5, 0.5))):
        opcodes = {"LDG.E": loads, "STG.E": 800_000}
        profile = cases.build({"metrics": metrics, "opcodes": opcodes})
        assert time_model.build(profile).needed == pytest.approx(needed, rel=0.01)
    model = replace(time_model.build(profile), loads={"issue": 1.0, "dram": 60.0}, cycles=100.0)
    model = replace(model, floor=(0.0, 0.0))
    cause = replace(diagnose(profile).primary, bottleneck="barrier-imbalance", speedup=1.5)
    cause = replace(cause, good=False, provided="", relieves={})
    for stays, room in ((1.0, 100 / 60), (0.5, 100 / 48)):
        found = _headroom(cause, replace(model, needed=(0.5, stays)))
        assert found is not None
        assert found.factor == pytest.approx(room)
    found = _headroom(replace(cause, relieves={"dram": 0.6}), replace(model, needed=(0.5, 1.0)))
    assert found is not None
    assert found.factor == pytest.approx(100 / 30)


def test_divergence_leaves_what_full_warps_execute() -> None:
    profile = cases.build(cases.read("warp-divergence"))
    model = replace(time_model.build(profile), loads={"alu": 90.0, "issue": 1.0, "dram": 1.0})
    model = replace(model, cycles=100.0, floor=(0.0, 0.0))
    found = cases.outcome("warp-divergence", profile)
    cause = replace(found, relieves={"alu": 0.5})
    for bottleneck, room in (("warp-divergence", 100 / 45), ("integer-arithmetic", 400 / 45)):
        bounded = _headroom(replace(cause, bottleneck=bottleneck), model)
        assert bounded is not None
        assert bounded.factor == pytest.approx(room)


def test_half_of_the_code_on_two_paths_is_divergence() -> None:
    """25.3 of 32 lanes in the mean, 40 % of the instructions with half of them; the step saved 21 %
    where droplets are sorted by component."""
    folder = recorded.ROOT / "benchmarks" / "programs" / "recordings"
    (launch,) = recorded.launches(folder / "cuda_spray_droplets.before.ncu-rep.xz")[:1]
    first = launch.diagnosis.primary
    assert first.bottleneck == "warp-divergence"
    assert first.saved == pytest.approx(0.21, abs=0.01)
    assert first.evidence[0].threshold is None
    assert launch.profile is not None
    rare = tuple(  # the same, with one path of few lanes
        replace(row, threads=2 * (row.executed or 0))
        if (row.threads or 0) < 24 * (row.executed or 0)
        else row
        for row in launch.profile.instructions
    )
    outcome = cases.outcome("warp-divergence", replace(launch.profile, instructions=rare))
    assert outcome.outcome == "ruled out"


@pytest.mark.parametrize("report", ["cupy", "principles-basic", "principles-full-1"])
def test_what_the_card_does_not_know_the_data_do_not_give(report: str) -> None:
    """At a unit's limit with work that may not all be needed; a roof with useful work has 1."""
    path = recorded.ROOT / "tests" / "origins" / "reports" / f"{report}.ncu-rep.xz"
    launches = recorded.launches(path)
    assert launches
    for launch in launches:
        assert launch.card is not None
        plain = as_json(launch.diagnosis)
        known = launch.card.factor is not None or launch.card.state == "roof"
        assert (plain["predicted_speedup"] is not None) is known, launch.function
        for other in plain["runners_up"]:
            assert other["good"] or other["predicted_speedup"] != 1.0
