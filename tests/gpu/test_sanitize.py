"""What the sanitizers run, chosen without a GPU."""

from __future__ import annotations

from sanitize import _cases

from ncu_toolkit.kernel.ladder.catalogue import find_rung
from ncu_toolkit.kernel.ladder.problems import problem_for

SM_COUNT = 132


def test_forms_that_only_a_model_chooses_are_run() -> None:
    rung = find_rung("gemm_tensor/wgmma_fitted")
    cases = _cases(problem_for("gemm_tensor"), [rung], "bfloat16", SM_COUNT)
    assert {case.parameters["SPLIT"] > 1 for case in cases if case.parameters} == {True, False}
    assert {case.parameters["ACROSS"] for case in cases if case.parameters} == {0, 1, 2}
    # Cut along k for real: several parts, each with steps.
    assert any(
        case.parameters["SPLIT"] > 2 and case.dims["K"] > 1000 for case in cases if case.parameters
    )
    assert len({(case.size, repr(case.parameters)) for case in cases}) == len(cases), "each once"


def test_a_rung_without_a_model_runs_as_its_header_says() -> None:
    rung = find_rung("reduction/reduce_dealt")
    cases = _cases(problem_for("reduction"), [rung], "int32", SM_COUNT)
    assert cases
    assert not any(case.parameters for case in cases)
