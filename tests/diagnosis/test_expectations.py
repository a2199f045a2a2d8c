"""Checks of kernel headers against measured values made up for the purpose: what holds, what does
not, and checks that cannot be made."""

from __future__ import annotations

from dataclasses import replace

import diagnosis_cases as cases
import pytest
from msgspec import structs

from ncu_toolkit.base.model import (
    Context,
    InstructionMix,
    Profile,
    Timing,
)
from ncu_toolkit.kernel.diagnosis.compare import Launches
from ncu_toolkit.kernel.diagnosis.expectations import check, checks_of
from ncu_toolkit.kernel.ladder.catalogue import find_rung

WHERE = ("gemm_fp32", "vectorized", "64", "float32", {"M": 64, "N": 64, "K": 64}, {"BM": 32})


def launch(
    duration: float, opcodes: dict[str, int], stalls: dict[str, float], index: int = 0
) -> Profile:
    metrics = {**dict.fromkeys(cases.METRICS), "duration": duration, "l1_hit_rate": 0.25}
    made = cases.build({"metrics": metrics, "stalls": stalls, "opcodes": opcodes})
    return replace(made, context=Context(*WHERE, index, 2))


def timing(rung: str, microseconds: float) -> Timing:
    return replace(Timing(*WHERE, (microseconds,), "warm", 1.0, 1.0, 0.0), rung=rung)


HERE = Launches(
    (
        launch(10, {"STS.128": 8, "FFMA": 100}, {"mio_throttle": 3.0, "selected": 1.0}),
        launch(2, {"STS": 1, "FFMA": 5}, {"drain": 9.0}, 1),
    ),
)
BEFORE = Launches((launch(30, {"STS": 32}, {"mio_throttle": 6.0, "selected": 2.0}),))


@pytest.mark.parametrize(
    ("expression", "passed", "numbers"),
    [
        (
            "executed('STS') == 9",
            True,
            {"executed('STS')": 9},
        ),  # summed over both launches, widths included
        (
            "executed('STS.128') * 4 == prev_executed('STS')",
            True,
            {"executed('STS.128')": 8, "prev_executed('STS')": 32},
        ),
        ("executed('FFMA') == M * N * K / 32", False, {"executed('FFMA')": 105}),
        (
            "stall('mio_throttle') < prev_stall('mio_throttle')",
            True,
            {"stall('mio_throttle')": 3.0, "prev_stall('mio_throttle')": 6.0},
        ),
        (
            "stall_share('mio_throttle') > 0.7",
            True,
            {"stall_share('mio_throttle')": 0.75},
        ),  # of the longest launch
        ("metric('l1_hit_rate') > 0.5", False, {"metric('l1_hit_rate')": 0.25}),
        ("time_us < 0.5 * prev_time_us", True, {"time_us": 12.0, "prev_time_us": 30.0}),
        ("BM == 32 and sm_count == 132", True, {}),
    ],
)
def test_outcomes_carry_what_was_measured(
    expression: str, passed: bool, numbers: dict[str, float]
) -> None:
    outcome = check("says", expression, HERE, BEFORE)
    assert (outcome.passed, outcome.numbers, outcome.reason) == (passed, numbers, "")
    assert outcome.measured == ", ".join(f"{name} = {value:g}" for name, value in numbers.items())


@pytest.mark.parametrize(
    ("expression", "before", "reason"),
    [
        ("executed('LDS') < prev_executed('LDS')", None, "the rung it is compared with was not profiled"),
        ("time_us < prev_time_us", None, "not both measured"),
        ("metric('dram_read_bytes') > 0", BEFORE, "dram_read_bytes of this rung was not collected"),
        ("metric('no_such_thing') > 0", BEFORE, "no figure 'no_such_thing'"),
        ("stall('tea_break') > 0", BEFORE, "no stall reason 'tea_break'"),
        ("Q > 0", BEFORE, "no 'Q' here"),
        ("1 / (M - N) > 0", BEFORE, "division by zero"),
    ],
)  # fmt: skip
def test_a_check_that_cannot_be_made_says_why(
    expression: str, before: Launches | None, reason: str
) -> None:
    outcome = check("says", expression, HERE, before)
    assert outcome.passed is None
    assert reason in outcome.reason


def test_missing_tables_make_it_abstain() -> None:
    bare = Launches((replace(HERE.profiles[0], stalls=None, mix=InstructionMix({})),))
    assert check("", "stall_share('wait') < 1", bare, None).passed is None
    assert check("", "stall('wait') < 1", bare, None).passed is None
    assert check("", "executed('LDS') == 0", bare, None).passed is None, (
        "0 is not what a table that was not collected holds"
    )


def test_times_of_both_come_from_one_clock() -> None:
    timed = Launches(HERE.profiles, timing("vectorized", 5.0))
    one_sided = check("", "time_us < prev_time_us", timed, BEFORE)
    assert one_sided.numbers == {"time_us": 12.0, "prev_time_us": 30.0}, (
        "an unprofiled time is never compared with a profiled one"
    )
    both = check(
        "",
        "time_us < prev_time_us",
        timed,
        Launches(BEFORE.profiles, timing("mini_tile", 4.0)),
    )
    assert both.numbers == {"time_us": 5.0, "prev_time_us": 4.0}
    assert both.passed is False


def test_sizes_choose_checks_and_the_ratio_is_one_of_them() -> None:
    rung = find_rung("gemm_fp32/vectorized")
    expected = rung.expect.profile[0]
    narrowed = structs.replace(
        rung,
        expect=structs.replace(
            rung.expect, profile=(structs.replace(expected, sizes=("4096",)),), ratio_at_least=2.0
        ),
    )
    timed = (
        Launches((), timing("vectorized", 5.0)),
        Launches((), timing("mini_tile", 11.0)),
    )
    assert [outcome.passed for outcome in checks_of(narrowed, "64", *timed)] == [True]
    assert len(checks_of(narrowed, "4096", *timed)) == 2
