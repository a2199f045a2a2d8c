"""The figures of docs/lab/calibration.md are held: ranks and errors over every recorded pair, false
alarms at roofs, the command and its gate."""

from __future__ import annotations

from functools import cache

import pytest
import recorded

from benchmarks import calibrate
from benchmarks.calibrate import Calibration, CalibrationGoals
from benchmarks.heldout import fit
from ncu_toolkit.kernel.ladder.catalogue import load_families

pytestmark = pytest.mark.skipif(not recorded.FOLDERS, reason="no recording is shipped")


@cache
def calibration() -> Calibration:
    steps = [rung for family in load_families().values() for rung in family.rungs]
    return calibrate.calibrate(
        calibrate.judging.pairs([recorded.run_of(folder) for folder in recorded.FOLDERS], steps),
        recorded.diagnosed,
    )


@pytest.mark.slow
def test_reach_is_held() -> None:
    found = calibration().ours
    assert found.cases >= 30
    assert CalibrationGoals().shortfalls(found) == []


def test_every_ladder_by_itself_is_diagnosed() -> None:
    """No family may hide behind another one: half of its ranks at least, and a median within 15
    points."""
    families = {o.pair.family for o in calibration().outcomes}
    for family in families:
        found = calibrate.score([o for o in calibration().outcomes if o.pair.family == family])
        assert found.first >= 0.5 * found.ranked, family
        assert found.median_error is not None
        assert found.median_error <= 15, family


def test_ours_is_far_better_than_the_profilers_own() -> None:
    ours, theirs = (
        calibrate.score([o for o in calibration().outcomes if o.pair.main.rules], theirs=theirs)
        for theirs in (False, True)
    )
    if not theirs.ranked:
        pytest.skip("no recording holds Nsight Compute's rule results")
    assert ours.first >= 1.5 * theirs.first
    assert ours.median_error is not None
    assert theirs.median_error is not None
    assert ours.median_error <= theirs.median_error / 2


def test_no_false_alarm_at_a_roof() -> None:
    """Kernels written to sit at a roof with useful work are called good; the tensor roof only where
    warp-level instructions can fill the pipe."""
    for folder in recorded.FOLDERS:
        for profile in recorded.run_of(folder).profiles:
            context = profile.context
            if context is None or context.family != "pathology" or not profile.launch.complete:
                continue
            primary = recorded.diagnosed(profile).primary
            if context.rung in ("dram_bandwidth", "l2_bandwidth", "l1_bandwidth", "fp32_pipe"):
                assert (primary.bottleneck, primary.good) == (context.rung.replace("_", "-"), True)
            if context.rung == "tensor_pipe":
                assert primary.bottleneck == "tensor-pipe"


def test_what_was_fixed_is_not_found_again() -> None:
    """The cause that a pair's fix removes is not what the fixed kernel is diagnosed with,
    unless more of the same would help on."""
    for folder in recorded.FOLDERS:
        steps = {
            rung.name: rung
            for family in load_families().values()
            for rung in family.rungs
            if rung.removes and family.name == "pathology"
        }
        for profile in recorded.run_of(folder).profiles:
            if profile.context is not None and profile.context.rung in steps:
                primary = recorded.diagnosed(profile).primary
                if primary.bottleneck == steps[profile.context.rung].removes:
                    assert primary.saved < 0.25 or primary.bottleneck == "launch-overhead", (
                        profile.context.rung
                    )


def test_rivals_are_scored_on_the_same_cases() -> None:
    found = calibration()
    assert found.ours.cases == found.constant.cases == found.thresholds.cases
    assert found.constant.skill == pytest.approx(0.0)
    assert found.constant.spearman is None
    assert found.thresholds.first > found.constant.first
    assert found.ours.skill is not None
    assert found.ours.skill > max(found.thresholds.skill or 0.0, found.ncu.skill or 0.0)


def test_cases_on_record_are_current() -> None:
    """Those of the recordings; test_heldout.py has the others."""
    report = "h200"
    held = [e for e in fit.read() if e.source.startswith("ladders/") and e.report == report]
    assert fit.of_ladders(report, calibration().outcomes) == held, "run benchmarks/heldout/fit.py"
