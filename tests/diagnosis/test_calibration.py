"""The figures of docs/calibration.md are held: ranks and errors over every recorded pair, false
alarms at roofs, the command and its gate."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache, partial

import pytest
import recorded

from benchmarks import calibrate
from benchmarks.calibrate import Accuracy, Calibration, CalibrationGoals
from benchmarks.heldout import fit
from ncu_toolkit.kernel.diagnosis.calibrate import Estimate, Judged
from ncu_toolkit.kernel.ladder.catalogue import load_families
from ncu_toolkit.kernel.runs import store

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


def test_every_error_above_ten_points_is_explained() -> None:
    """docs/calibration.md names the slow kernel of each."""
    text = (recorded.ROOT / "docs" / "calibration.md").read_text(encoding="utf-8")
    _, _, listed = text.partition("Errors above ten points")
    heads = [line.partition(":")[0] for line in listed.splitlines() if line.startswith("- ")]
    told = [name for head in heads for name in re.findall(r"`(\w+)`", head.partition(" before")[0])]
    off = {o.pair.before for o in calibration().outcomes if o.counts and o.error(o.ours) > 10}
    assert sorted(told) == sorted(off)


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
    """The cause that a pair's fix removes is not what the fixed kernel is said to suffer from,
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


def _outcome(
    rank: int | None, saved: float | None, achieved: float = 0.5, before: str = "slow"
) -> Judged:
    pair = next(o.pair for o in calibration().outcomes)
    pair = replace(pair, before=before, before_us=1.0, after_us=1.0 - achieved)
    return Judged(pair, Estimate(("x",), rank, saved))


def test_scores_add_up() -> None:
    found = calibrate.score(
        [
            _outcome(1, 0.5),
            _outcome(2, 0.4),
            _outcome(None, None),
            replace(_outcome(3, 0.1), ranked=False),
        ]
    )
    assert (found.cases, found.ranked, found.first, found.first_two) == (4, 3, 1, 2)
    assert found.median_error == pytest.approx(25.0)
    assert found.worst_error == pytest.approx(50.0)


def test_statistics() -> None:
    gains = [(0.1, 0.2), (0.5, 0.4), (0.9, 0.9)]
    assert calibrate.skill(gains) == pytest.approx(1 - 0.2 / 0.7)
    assert calibrate.spearman(gains) == pytest.approx(1.0)
    assert calibrate.spearman([(0.5, each) for _, each in gains]) is None
    assert calibrate.skill([(0.1, 0.5)]) is None
    bounds = [((0.0, 0.5), 0.5), ((0.5, 0.75), 0.2)]
    assert calibrate.covered(bounds) == 0.5
    assert calibrate.width(bounds) == pytest.approx(2.0)
    assert (calibrate.covered([]), calibrate.width([])) == (None, None)


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


def test_a_step_that_gains_nothing_proves_nothing() -> None:
    assert calibrate.score([_outcome(1, 0.5, achieved=0.01)]).cases == 0


def test_shortfalls_are_named() -> None:
    assert (
        CalibrationGoals().shortfalls(Accuracy(20, 20, 20, 20, 5.0, 30.0, 0.6, 0.8, 0.8, 2.0)) == []
    )
    missed = CalibrationGoals().shortfalls(Accuracy(20, 20, 17, 18, 11.0, 36.0, 0.4, 0.7, 0.7, 3.6))
    assert len(missed) == 7
    assert CalibrationGoals().shortfalls(Accuracy(20, 20, 20, 20, 5.0, 30.0)) == [
        "no case could be scored"
    ]
    assert CalibrationGoals().shortfalls(Accuracy(0, 0, 0, 0, None, None)) == [
        "no case could be scored"
    ]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings that are read and diagnosed already, for the command."""
    monkeypatch.setattr(store, "load_run", lambda folder, *, live: recorded.run_of(folder))
    known = partial(calibrate.calibrate, diagnosed=recorded.diagnosed)
    monkeypatch.setattr(calibrate, "calibrate", known)


@pytest.mark.usefixtures("quick")
def test_command_shows_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrate.main(["--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ours"]["ranked"] == calibration().ours.ranked
    assert {"rank", "predicted", "achieved", "ncu_rank"} <= data["cases"][0].keys()


@pytest.mark.usefixtures("quick")
def test_gate_fails_below_what_is_held(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate.CalibrationGoals, "shortfalls", lambda self, found: ["made up"])
    assert calibrate.main(["--gate"]) == 1
    assert "made up" in capsys.readouterr().err
