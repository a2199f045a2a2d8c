"""Runs with and without a switch: times, and what was printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.program.analysis.trial import (
    TryRun,
    compare_printed,
    judged,
    load_trial,
    save_trial,
    trial_path,
)
from ncu_toolkit.program.model import ProgramTrial, Tried


def runs(
    *us: float, steps: int = 20, printed: str = "loss 7.086\n", word: str = "step"
) -> list[TryRun]:
    return [TryRun(each, steps, word, printed) for each in us]


SLOW = runs(46600.0, 46500.0, 46700.0, 46650.0, 46550.0)


def verdict(after: list[TryRun], tolerance: float = 0.01, work: float = 1.0) -> Tried:
    return judged(("tf32",), "TF32", SLOW, after, tolerance, work)


def test_a_faster_step() -> None:
    found = verdict(runs(17900.0, 17800.0, 18000.0, 17950.0, 17850.0, printed="loss 7.087\n"))
    assert (found.outcome, found.results, found.good) == ("faster", "within", True)
    assert (found.before, found.after) == (46600.0, 17900.0)
    assert found.p is not None
    assert found.p < 0.01
    assert "2.60× as fast" in found.description
    assert "7.086 → 7.087" in found.compared
    assert "chance" not in found.description


def test_few_runs_are_reported() -> None:
    found = judged(("x",), "X", SLOW[:3], runs(17900.0, 17800.0, 18000.0))
    assert found.outcome == "faster"
    assert found.p is None
    assert "3 runs per side cannot rule out chance" in found.description


def test_few_runs_that_overlap_or_nearly_do_are_no_difference() -> None:
    assert judged(("x",), "X", SLOW[:3], runs(45000.0, 45100.0, 45050.0)).outcome == "same"  # 3 %
    assert judged(("x",), "X", SLOW[:3], runs(40000.0, 46550.0, 40100.0)).outcome == "same"


def test_noise_and_small_differences_are_none() -> None:
    assert verdict(runs(46500.0, 46700.0, 46610.0, 46580.0, 46620.0)).outcome == "same"
    assert verdict(runs(46100.0, 46110.0, 46120.0, 46105.0, 46115.0)).outcome == "same"  # 1 %


def test_a_slower_step() -> None:
    found = verdict(runs(56600.0, 56500.0, 56700.0, 56650.0, 56550.0))
    assert (found.outcome, found.good) == ("slower", False)
    assert "21 % slower" in found.description


def test_other_results_are_no_gain() -> None:
    found = verdict(runs(17900.0, 17800.0, 18000.0, 17950.0, 17850.0, printed="loss 8.1\n"))
    assert (found.outcome, found.results, found.good) == ("faster", "differ", False)


def test_a_program_that_fails() -> None:
    found = verdict([*runs(17900.0), TryRun(None, code=1, problem="exit code 1: CUDA error")])
    assert found.outcome == "broke"
    assert found.description == "The program fails with it: exit code 1: CUDA error."


def test_another_step_is_not_compared() -> None:
    found = verdict(runs(15000.0, 15100.0, 15050.0, 15010.0, 15020.0, steps=60))
    assert (found.outcome, found.good) == ("other step", False)
    assert verdict(runs(900.0, 910.0, 905.0, 901.0, 902.0, word="run")).outcome == "other step"


def test_of_a_larger_batch_the_time_of_the_first_counts() -> None:
    found = verdict(runs(50000.0, 50100.0, 50200.0, 50050.0, 50010.0, steps=10), float("inf"), 2.0)
    assert found.outcome == "faster"
    assert found.after == pytest.approx(25025.0)
    assert found.results == "not compared"


@pytest.mark.parametrize(
    ("before", "after", "expected", "message"),
    [
        (["loss 7.086"] * 3, ["loss 7.086"] * 3, "equal", "1 number"),
        (["loss 7.086"] * 3, ["loss 7.087"] * 3, "within", "0.014"),
        (["x 4.25761515"] * 3, ["x 4.25761519"], "within", "4.25761515 → 4.25761519"),
        (["loss 7.086"] * 3, ["loss 8"] * 3, "differ", "7.086 → 8"),
        (["loss 7.086"] * 3, ["loss nan"] * 3, "differ", "7.086 → nan (no number)"),
        (["loss 1 2"], ["loss 1 nan"], "differ", "2 → nan"),
        (["ok"] * 2, ["ok"], "not compared", "no number"),
        (["ok"] * 2, ["no"], "differ", "'no' instead of 'ok'"),
        ([""], [""], "not compared", "prints nothing"),
        (["a 1\nb 2"] * 2, ["a 1"], "differ", "1 line instead of 2"),
        # timings are no results, by their names or units
        (["step 46.6 ms"] * 2, ["step 17.9 ms"], "not compared", "no number"),
        (['{"us": 46600, "loss": 2.5}'] * 2, ['{"us": 17900, "loss": 2.5}'], "equal", "1 number"),
        (["elapsed: 12.5"] * 2, ["elapsed: 3.5"], "not compared", "no number"),
        (["39.2 pages/ms"] * 2, ["28.4 pages/ms"], "not compared", "no number"),
        (["pages/ms: 39.2"] * 2, ["pages/ms: 28.4"], "not compared", "no number"),
        # what varies by itself is none either
        (["x 1.0", "x 2.0"], ["x 9.0"], "not compared", "no number"),
        (["x 1.0000", "x 1.0001"], ["x 1.0002"], "equal", "1 number"),
        (["seed abc\nx 1", "seed def\nx 1"], ["seed xyz\nx 1"], "equal", "1 number"),
        (["50%\r100%\rx 1"], ["70%\rx 1"], "equal", "1 number"),
    ],
)  # fmt: skip
def test_what_is_printed(before: list[str], after: list[str], expected: str, message: str) -> None:
    found, sentence = compare_printed(before, after, 0.01)
    assert (found, message in sentence) == (expected, True), sentence


def trial() -> ProgramTrial:
    return ProgramTrial(
        program="train.py",
        gpu="NVIDIA H100",
        word="step",
        before_us=(46600.0,),
        tried=(verdict(runs(17900.0, 17800.0, 18000.0, 17950.0, 17850.0)),),
    )


def test_it_lies_beside_the_trace(tmp_path: Path) -> None:
    trace = tmp_path / "program.ncu-trace"
    assert load_trial(trace) is None
    save_trial(trial(), trial_path(trace))
    assert load_trial(trace) == trial()


@pytest.mark.parametrize("text", ["[]", '{"version": 1}', '{"version": 99}', "{"])
def test_a_damaged_file(tmp_path: Path, text: str) -> None:
    trace = tmp_path / "program.ncu-trace"
    trial_path(trace).write_text(text)
    with pytest.raises(InputProblem):
        load_trial(trace)
