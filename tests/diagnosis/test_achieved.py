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
    assert {cause for cause, *_ in achieved.CASES} <= causes
    assert all(0 < part <= 1 for *_, most, saved in achieved.CASES for part in (most, saved))
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


def _cases(*times: float) -> list[achieved.Case]:
    """Programs of which half could be saved, and so many times as much was, over what was left."""
    return [("host-sync", f"p{i}", 0.5, x / (1 + x)) for i, x in enumerate(times)]


def test_fixes_multiply_what_is_saved_over_what_is_left() -> None:
    """A third of what is left is as likely of a small cause as of one that is nearly the whole step."""
    known = _cases(*(i / 4 for i in range(1, 10)))
    for most in (10.0, 50.0, 96.0):
        bounds = achieved.expected(most, 100.0, known=known)
        times = [saved / (100 - saved) / (most / (100 - most)) for saved in bounds]
        assert times == pytest.approx([0.25, 1.0, 2.25]), "likely is no more than can be saved"
        assert all(0 < saved < 100 for saved in bounds), "never more than the step"


def test_a_fix_that_leaves_nothing_predicts_no_more_than_others() -> None:
    low, likely, high = achieved.expected(100.0, 100.0, known=_cases(*[1.0] * 9))
    assert (low, likely, high) == pytest.approx((99.0, 99.0, 99.0))
    known = [*_cases(*[1.0] * 8), ("host-copy", "all", 0.5, 1.0)]
    assert achieved.expected(50.0, 100.0, known=known)[1] == pytest.approx(50.0)


def test_a_program_is_predicted_without_its_own_case() -> None:
    known = _cases(*[0.5] * 9, *[1 / 9] * 9)
    known += [("host-copy", name, 0.5, 0.1) for _, name, *_ in known[:9]]
    assert achieved.expected(50.0, 100.0, "p0", known)[1] < 15.0
    assert achieved.expected(50.0, 100.0, "p17", known)[1] < 15.0


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
