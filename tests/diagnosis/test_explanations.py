"""What a verdict says is what the figures say: no more than is known, and nothing that the profile
contradicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import diagnosis_cases as cases
import pytest
import recorded

from ncu_toolkit.base.model import Finding
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.sass import attribution


def found(bottleneck: str, case: dict[str, Any]) -> Finding:
    profile = cases.build(case)
    outcome = cases.outcome(bottleneck, profile)
    assert isinstance(outcome, Finding), outcome.reason
    return outcome


def product(fma: float, issue: float, dispatch: float) -> dict[str, Any]:
    """A product in FP32 whose instructions are ready, but held back for part of a warp's time."""
    base = cases.read("fp32-pipe")
    stalls = {
        "selected": 1.0,
        "not_selected": 2 * (1 - dispatch),
        "wait": 1 - dispatch,
        "dispatch_stall": 4 * dispatch,
    }
    return {
        **base,
        "metrics": {**base["metrics"], "fma_pipe_active": fma, "issue_active": issue},
        "stalls": stalls,
    }


def test_dispatch_stalls_near_the_roof_are_what_is_left() -> None:
    held = diagnose(cases.build(product(0.71, 0.76, 0.2))).primary
    assert (held.bottleneck, held.good) == ("fp32-pipe", False)
    assert "Dispatch stalls" in held.summary
    assert held.speedup == pytest.approx(0.8 / 0.71, rel=0.01), (
        "up to what the best products keep up"
    )
    assert "share an operand" in held.advice[0]
    assert "stall_share:dispatch_stall" in [evidence.metric for evidence in held.evidence]


@pytest.mark.parametrize(("busy", "good"), [(0.83, False), (0.91, True), (0.98, True)])
def test_tensor_cores_at_their_roof(busy: float, good: bool) -> None:
    case = cases.read("tensor-pipe")
    finding = diagnose(
        cases.build({**case, "metrics": {**case["metrics"], "tensor_pipe_active": busy}})
    ).primary
    assert (finding.bottleneck, finding.good) == ("tensor-pipe", good)
    left = max(1.0, 0.97 / busy)
    assert finding.speedup == pytest.approx(left)
    assert finding.interval == (None if good else (pytest.approx(1.0), pytest.approx(left)))
    assert ("let some warps issue matrix products" in finding.advice[0]) == (not good)


WAITING = {"selected": 1.0, "short_scoreboard": 8.0, "mio_throttle": 6.0}


@pytest.mark.parametrize(
    ("sass", "passes", "ideal", "rows_first"),
    [
        ("LDS.128 R36, [R48]", 8, 4, False),
        ("LDS R5, [R4]", 4, 1, False),
        ("LDS.128 R24, [R52]", 32, 4, True),
        ("LDS R5, [R0]", 32, 1, True),
    ],
)
def test_a_pad_is_for_lanes_in_rows_of_their_own(
    sass: str, passes: int, ideal: int, rows_first: bool
) -> None:
    """Lanes that meet in part of the banks lie apart within a row, which neither a pad nor an XOR
    with the row fixes."""
    counters = {"shared_wavefronts": 1000.0 * passes, "shared_wavefronts_ideal": 1000.0 * ideal}
    case = {
        "stalls": WAITING,
        "instructions": [{"sass": sass, "executed": 1000, "counters": counters}],
        "opcodes": {"LDS": 1000, "FFMA": 4000},
    }
    metrics = {"l1_data_pipe_active": 0.95, "issue_active": 0.1, "shared_wavefronts": 8e7}
    advice = found("shared-bank-conflict", {**case, "metrics": metrics}).advice
    assert [("neighbouring lanes" in text, "reads another row" in text) for text in advice] == [
        (not rows_first, rows_first),
        (rows_first, not rows_first),
    ]


def loads(**executed: int) -> dict[str, Any]:
    """Two loads of one register, of which a branch takes one, and the instruction that waits for
    it."""
    sass = {"wide": "@!P0 LDG.E.128 R8, [R40.64]", "edge": "@P6 LDG.E.U16 R8, [R40.64]"}
    rows: list[dict[str, Any]] = [
        {"sass": text, "executed": executed[name]} for name, text in sass.items()
    ]
    rows.append({"sass": "STS.128 [R2], R8", "executed": 1000, "samples": {"long_scoreboard": 500}})
    return {
        "instructions": rows,
        "stalls": {"selected": 1.0, "long_scoreboard": 9.0},
        "metrics": {"issue_active": 0.1},
    }


@pytest.mark.parametrize(("edge", "share"), [(0, 1.0), (1000, 0.5), (250, 0.8)])
def test_what_never_ran_is_not_to_blame(edge: int, share: float) -> None:
    profile = cases.build(loads(wide=1000, edge=edge))
    weights = attribution.weights_by_culprit(profile, "long_scoreboard")
    assert weights == pytest.approx({0: 500 * share} | ({1: 500 * (1 - share)} if edge else {}))
    assert attribution.consumers(profile, ("global",)) == {2: 500}
    where = found("memory-latency", loads(wide=1000, edge=edge)).locations
    assert all(place.what == "the long scoreboard samples wait for it" for place in where)
    assert len(where) == (2 if edge else 1)


def copying(copy: str, wait: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [{"sass": copy.format(n), "executed": 100} for n in (1, 2)]
    rows.append({"sass": wait, "executed": 100})
    rows.append(
        {
            "sass": "BAR.SYNC.DEFER_BLOCKING 0x0",
            "executed": 100,
            "samples": {"long_scoreboard": 400, "barrier": 100},
        }
    )
    opcodes = {copy.split()[0]: 200, wait.split()[0]: 100, "BAR.SYNC": 100, "FFMA": 1000}
    return {
        "instructions": rows,
        "stalls": {"selected": 1.0, "long_scoreboard": 8.0, "barrier": 1.0},
        "opcodes": opcodes,
    }


def test_late_copies_are_shown_at_both_ends() -> None:
    finding = found(
        "async-copy-wait", copying("LDGSTS.E.128 [R7{}], [R2.64]", "DEPBAR.LE SB0, 0x0")
    )
    assert [
        (round(place.share, 2), place.sass.split()[0], place.what) for place in finding.locations
    ] == [
        (1.0, "BAR.SYNC.DEFER_BLOCKING", "samples that wait here for copies"),
        (0.5, "LDGSTS.E.128", "executed copies"),
        (0.5, "LDGSTS.E.128", "executed copies"),
    ]
    assert "cp.async" in " ".join(finding.advice)


@pytest.mark.parametrize("folder", recorded.FOLDERS, ids=lambda folder: folder.name)
def test_no_finding_states_a_comparison_that_does_not_hold(folder: Path) -> None:
    for profile in recorded.run_of(folder).profiles:
        for finding in recorded.diagnosed(profile).findings:
            assert [fact for fact in finding.evidence if not fact.holds] == [], (
                f"{profile.launch.function}: {finding.bottleneck}"
            )


def test_a_roof_states_the_load_that_it_was_found_by() -> None:
    """Of a kernel of tens of microseconds the counter is low, since start and end count; what the rule
    judges by is stated."""
    run = recorded.run_of(
        next(folder for folder in recorded.FOLDERS if folder.name == "h200-pathology")
    )
    (profile,) = [
        p for p in run.profiles if p.context and p.context.rung == "uncoalesced_global_access_fixed"
    ]
    stated = {
        fact.metric: fact
        for fact in next(
            f for f in recorded.diagnosed(profile).findings if f.bottleneck == "dram-bandwidth"
        ).evidence
    }
    assert stated["load:dram"].value >= (stated["load:dram"].threshold or 1.0)
    assert stated["dram_utilization"].threshold is None


def test_what_is_left_below_a_roof_is_said() -> None:
    other = {"device": {"cc": (8, 6), "sm_count": 82}}  # tensor cores no faster than the pipe
    near, full = (
        diagnose(cases.build(product(fma, 0.9, 0.02) | other)).primary for fma in (0.74, 0.8)
    )
    assert near.good
    assert full.good
    assert near.speedup == pytest.approx(0.8 / 0.74)
    assert "1.08" in near.summary
    assert full.speedup == 1.0
    assert not any("Nothing to fix" in text for finding in (near, full) for text in finding.advice)


def pressed(queue: float, results: float, issue: float) -> Finding:
    metrics = {
        "lsu_pipe_active": 0.5,
        "l1_data_pipe_active": 0.5,
        "issue_active": issue,
        "fma_pipe_active": 0.3,
    }
    stalls = {
        "selected": 1.0,
        "not_selected": 10 * (1 - queue - results) - 1,
        "mio_throttle": 10 * queue,
        "short_scoreboard": 10 * results,
    }
    return found(
        "shared-instruction-pressure",
        {"metrics": metrics, "stalls": stalls, "opcodes": {"LDS": 4_000_000, "FFMA": 8_000_000}},
    )


@pytest.mark.parametrize(
    ("queue", "results", "issue", "message", "falls"),
    [
        (0.4, 0.1, 0.3, "loads alone, warps spend 40", "fewer MIO throttle stalls"),
        (
            0.01,
            0.4,
            0.3,
            "Warps spend 40",
            "fewer short scoreboard stalls",
        ),
        (0.01, 0.05, 0.8, "instructions take up issue slots", "fewer instructions in total"),
    ],
)
def test_pressure_says_which_it_is(
    queue: float, results: float, issue: float, message: str, falls: str
) -> None:
    finding = pressed(queue, results, issue)
    assert message in finding.summary
    assert falls in finding.look_for
    shown = {evidence.metric: evidence for evidence in finding.evidence}
    if queue + results >= 0.1:
        assert shown["shared_waiting"].value == pytest.approx(queue + results)
    else:
        assert shown["issue_active"].threshold is not None
        assert "shared_waiting" not in shown
    assert finding.confidence == ("high" if queue + results >= 0.3 else "medium")
