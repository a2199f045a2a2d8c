"""What is expected of a fix, from what others achieved of what they could save."""

from __future__ import annotations

import random

import program_traces
import pytest

from ncu_toolkit.kernel.diagnosis import achieved, glossary
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.program.diagnosis import diagnose_program
from ncu_toolkit.program.model import ProgramDiagnosis, Trace
from ncu_toolkit.program.rules import step_rules
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.step import find_step


def _found(trace: Trace) -> ProgramDiagnosis:
    step = find_step(trace)
    return diagnose_program(step, account_of(step))


def test_the_table_is_of_known_causes() -> None:
    causes = {*step_rules(), *load_rules()}
    assert {cause for cause, _, _ in achieved.CASES} <= causes
    assert all(share > 0 for _, _, share in achieved.CASES)
    assert len({case[:2] for case in achieved.CASES}) == len(achieved.CASES)
    assert set(achieved.FOLLOWED) <= causes
    assert all(0 <= faster <= programs > 0 for programs, faster, _ in achieved.FOLLOWED.values())


def test_few_programs_make_no_record_of_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"host-sync": (2, 2, 3.0), "host-copy": (3, 0, 1.0)}
    monkeypatch.setattr(achieved, "FOLLOWED", known)
    assert achieved.tested("host-sync") is None
    assert "In 2 short test programs" in glossary.record("host-sync")
    assert achieved.tested("host-copy") == (0, 3), "that none became faster is shown too"
    assert "0 became faster, median speedup 1.00×" in glossary.record("host-copy")
    assert achieved.tested("fp32-matmul") is None
    assert glossary.record("fp32-matmul") == ""


def test_a_cause_with_enough_cases_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = tuple(("host-sync", f"p{i}", 0.5 + i / 100) for i in range(8))
    others = tuple(("host-copy", f"q{i}", 1.0) for i in range(7))
    monkeypatch.setattr(achieved, "CASES", own + others)
    assert achieved.alike("host-sync") == [(program, share) for _, program, share in own]
    assert len(achieved.alike("host-sync", but="p0")) == 14, "7 are too few, so all of them"
    assert len({name for name, _ in achieved.alike("launch-bound")}) == 15
    monkeypatch.setattr(achieved, "CASES", (*own, *others, ("host-copy", "p0", 1.0)))
    assert len({name for name, _ in achieved.alike("launch-bound")}) == 15, "one has two causes"
    monkeypatch.setattr(achieved, "CASES", others)
    assert achieved.alike("host-copy") == []
    assert achieved.expected("host-copy", 10.0, 40.0) is None


def test_an_interval_is_never_more_than_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        achieved, "CASES", tuple(("host-sync", f"p{i}", 0.5 + i / 4) for i in range(9))
    )
    assert achieved.expected("host-sync", 10.0, 100.0) == (5.0, 15.0, 25.0)
    assert achieved.expected("host-sync", 10.0, 20.0) == (5.0, 15.0, 20.0)


def test_other_causes_fixes_make_no_more_than_the_ceiling_likely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares = tuple(("host-sync", f"p{i}", 0.9 + i / 20) for i in range(9))
    monkeypatch.setattr(achieved, "CASES", shares)
    for rule, likely in (("host-sync", 11.0), ("host-copy", 10.0)):
        low, middle, high = achieved.expected(rule, 10.0, 100.0) or (0.0, 0.0, 0.0)
        assert (low, middle, high) == pytest.approx((9.0, likely, 13.0))


@pytest.mark.parametrize("count", [8, 9, 12, 19, 40])
def test_intervals_hold_four_fifths_of_further_cases(count: int) -> None:
    pick, held = random.Random(count), 0
    for _ in range(2000):
        *known, further = (pick.lognormvariate(0, 0.4) for _ in range(count + 1))
        low, high = achieved.ends(sorted(known))
        held += low <= further <= high
    assert 0.75 <= held / 2000 <= 0.93


def test_the_first_cause_alone_has_an_expected_saving() -> None:
    found = _found(program_traces.gpt(steps=5, layers=2, parameters=6))
    first, *others = found.costly
    assert first.expected_us is not None
    assert first.expected_us[0] < first.ceiling_us < first.expected_us[2]
    assert others
    assert not any(each.expected_us for each in others)


def test_nothing_is_expected_where_no_step_was_found() -> None:
    found = _found(program_traces.no_step())
    assert not any(each.expected_us for each in found.findings)


def test_nothing_is_expected_of_several_gpus() -> None:
    """No case had collectives."""
    for kernel, known in (("sort_kernel(int*)", True), ("ncclDevKernel_AllReduce_Sum_f32", False)):
        machine = program_traces.Machine("train.py")
        for _ in range(9):
            for at in range(40):
                machine.launch(f"k{at}", 2.0, 100)
                machine.host(20.0)
            machine.launch(kernel, 50.0, 100)
        found = _found(machine.trace())
        assert found.costly[0].confidence != "low"
        assert (found.costly[0].expected_us is not None) is known
