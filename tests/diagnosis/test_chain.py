"""Consecutive launches that one launch could replace."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import diagnosis_cases as cases
import pytest

from ncu_toolkit.base.model import Origin
from ncu_toolkit.kernel.analysis import answers
from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, Options, judge
from ncu_toolkit.kernel.diagnosis import chain
from ncu_toolkit.kernel.diagnosis.chain import ChainLink, chains, link
from ncu_toolkit.kernel.diagnosis.rules.launch_overhead import BETWEEN_US
from ncu_toolkit.kernel.diagnosis.time_model import FLOOR_US
from ncu_toolkit.kernel.pages import json as writer

#: A pass over 100 MB, and over the same with its own input; a product; 3 µs of nearly nothing.
PASS = ChainLink("pass", ("range",), 60.0, 1e8, 1e8, 55.0, 2.0)
SMALL = ChainLink("small", ("range",), 3.0, 1e3, 1e3, 0.05, 0.0)


def named(*links: ChainLink) -> list[ChainLink | None]:
    return [replace(each, kernel=f"{each.kernel} {at}") for at, each in enumerate(links)]


def test_what_is_handed_on_need_not_move() -> None:
    (found,) = chains(named(PASS, PASS, PASS, PASS))
    assert (found.first, found.last, found.launches) == (0, 3, 4)
    assert found.handed == pytest.approx(6 / 8)
    # The first still reads and the last still writes; between them arithmetic alone is left.
    assert found.fused_us == pytest.approx(FLOOR_US + BETWEEN_US + 55 / 2 + 2 + 2 + 55 / 2)
    assert found.now_us == pytest.approx(4 * (60 + BETWEEN_US))


def test_other_inputs_and_own_work_stay() -> None:
    (plain,) = chains(named(PASS, PASS, PASS))
    (inputs,) = chains(named(PASS, replace(PASS, read=2e8), replace(PASS, own_us=20.0)))
    assert inputs.fused_us > plain.fused_us + 10


def test_small_launches_cost_their_starts() -> None:
    (found,) = chains([SMALL] * 8)
    assert found.handed == 0
    assert found.fused_us == pytest.approx(FLOOR_US + BETWEEN_US + 8 * 0.05)


@pytest.mark.parametrize(
    "links",
    [
        named(PASS, PASS),
        [PASS] * 5,
        named(PASS, replace(PASS, place=("other",)), PASS),
        named(PASS, replace(PASS, read=1e9), PASS),
        [*named(PASS, PASS), None, *named(PASS, PASS)],
        named(*[replace(PASS, own_us=50.0)] * 4),
    ],
    ids=["two", "a benchmark's loop", "two ranges", "weights", "an unknown launch", "arithmetic"],
)
def test_no_chain(links: list[ChainLink | None]) -> None:
    assert chains(links) == []


def test_only_launches_of_a_range_are_asked() -> None:
    assert link(cases.build({})) is None
    inside = {"launch": {"nvtx": ("step", "layer 1")}}
    found = link(cases.build({**inside, "metrics": {"l1_fill_sectors": 6e6}}))
    assert found is not None
    assert found.place == (0, 0, "step")
    assert found.read + found.written == 1e7 * chain.SECTOR_BYTES
    unknown = link(cases.build(inside))
    assert unknown is not None
    assert unknown.written == 0, "what was read is not known, so neither is what was written"
    assert link(cases.build({"launch": {"nvtx": ("step",)}, "context": {}})) is None


def steps(profiles: bool = False, **file: Any) -> Analysis:
    """Four passes over the same bytes in one range, as a report of four launches."""
    metrics = {
        "duration": 60.0, "l1_fill_sectors": 4e6, "l2_sectors_from_sm": 8e6, "dram_utilization": 0.9,
        "sm_cycles": 102_000, "sm_active_cycles": 100_000, "sm_active_cycles_max": 101_000,
    }  # fmt: skip
    found = []
    for at in range(4):
        launch = {"nvtx": ("step",), "kernel": f"pass_{at}(float*)", "function": f"pass_{at}"}
        profile = cases.build({"metrics": metrics, "launch": launch})
        found.append(
            judge(
                replace(profile, origin=Origin("", 0, at)), "a.ncu-rep", Options(profiles=profiles)
            )
        )
    read = {"read": 4, "declared": 4, **file}
    return Analysis((FileResult("a.ncu-rep", tuple(found), **read),))


def test_the_answer_and_its_json_tell_a_chain() -> None:
    analysis = steps()
    (point,) = answers.of_analysis(analysis).points
    assert "4 launches of one NVTX range (pass_0 to pass_3)" in point
    assert "If each reads what the one before wrote, 75" in point
    (reported,) = json.loads(writer.analysis_document(analysis))["chains"]
    assert reported["launches"] == ["0.0", "0.1", "0.2", "0.3"]
    assert reported["fused_us"] < reported["now_us"] / 2


def test_launches_that_were_chosen_are_no_chain() -> None:
    by_name = "Profiled 4 launches (ncu --kernel-name pass)."
    assert not answers.of_analysis(steps(left_out=by_name)).points
    assert not answers.of_analysis(steps(read=9)).points, "--kernel left others out"
    counted = "Profiled 4 launches (ncu --launch-count 4)."
    assert answers.of_analysis(steps(left_out=counted)).points
