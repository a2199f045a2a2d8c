"""The scores of changed programs, on made-up times: no GPU and no version of an agent is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.programs import advice
from ncu_toolkit.kernel.diagnosis import achieved


def ran(us: float, result: float = 1.0, steps: int = 4, **other: object) -> dict[str, Any]:
    return {"us": [us, us * 1.01, us * 0.99], "result": [result], "steps": steps, **other}


def trial(name: str = "cuda_a", note: str = "yes", **sides: Mapping[str, Any]) -> advice.Trial:
    found = {"before": ran(100.0), "after": ran(20.0), **sides}
    notes = {"followed": {"followed": note}}
    return advice.Trial(advice.Versions(name, found, 1e-3), notes, "launch-bound", "launch-bound")


def test_a_right_version_gains_what_it_saves() -> None:
    found = trial(answer=ran(50.0)).versions
    assert found.speedup("answer") == pytest.approx(2.0)
    assert found.share("answer") == pytest.approx(50 / 80)
    assert found.faster("answer")


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        (ran(10.0, result=1.1), "another result"),
        (ran(10.0, steps=1), "runs 1 steps, not 4"),
        ({"us": [], "code": 1, "error": "Traceback\nValueError: no"}, "failed: ValueError: no"),
    ],
)
def test_a_wrong_version_gains_nothing(version: Mapping[str, Any], problem: str) -> None:
    found = trial(answer=version).versions
    assert found.problems["answer"] == problem
    assert (found.speedup("answer"), found.share("answer")) == (1.0, 0.0)
    assert found.best == 20.0


def test_a_slower_version_is_not_kept() -> None:
    assert trial(answer=ran(300.0)).versions.speedup("answer") == 1.0


def test_a_rule_s_record_counts_programs_whose_advice_was_followed() -> None:
    trials = [
        trial("cuda_a", "yes", followed=ran(50.0)),
        trial("cuda_b", "Partly: no graph", followed=ran(99.0)),
        trial("cuda_c", "no", followed=ran(20.0)),
    ]
    assert advice.records(trials) == {"launch-bound": (2, 1, 1.51)}


def test_the_records_in_the_package_are_those_of_the_times() -> None:
    trials = advice.read(advice.ADVISED)
    assert advice.SHIPPED.read_text(encoding="utf-8") == advice.shipped(trials), (
        "run python -m benchmarks.programs.advice score benchmarks/programs/advised"
    )
    assert {rule: tuple(each) for rule, each in achieved.FOLLOWED.items()} == advice.records(trials)
    text = advice.PAGE.read_text(encoding="utf-8")
    assert f"\n{advice.page(trials)}\n" in text, "the page has the same figures"


def test_the_control_has_another_cause_at_the_program_s_own_line() -> None:
    text = "{} · step\n\n{} · clear\nEvidence.\n\nwhere the step goes\n  A 9 %\n\nwhere   before.py:{}\ndo      {}.\n\nStep: 2."
    mixed = advice.swapped(
        text.format("mine", "Mine", 7, "mine"), text.format("o", "Other", 90, "other")
    )
    assert mixed == text.format("mine", "Other", 7, "other")
