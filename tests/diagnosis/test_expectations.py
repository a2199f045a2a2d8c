"""Checks of kernel headers against measured values made up for the purpose: what holds, what does
not, and what cannot be told."""

from __future__ import annotations

from dataclasses import replace

import pytest
import recorded
from msgspec import structs

from ncu_toolkit.base.model import (
    Context,
    Device,
    InstructionMix,
    Launch,
    Origin,
    Presence,
    Profile,
    Reading,
    StallStack,
    Timing,
)
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.kernel.diagnosis.compare import Launches
from ncu_toolkit.kernel.diagnosis.expectations import check, checks_of
from ncu_toolkit.kernel.ladder.catalogue import find_rung
from ncu_toolkit.kernel.pages.book import open_book
from ncu_toolkit.kernel.pages.page_view import outcomes


def launch(
    duration: float,
    opcodes: dict[str, int],
    stalls: dict[str, float] | None = None,
    index: int = 0,
    rung: str = "vectorized",
) -> Profile:
    stack = (
        StallStack(tuple(sorted(stalls.items(), key=lambda item: -item[1])), None)
        if stalls
        else None
    )
    readings = {
        "duration": Reading("duration", duration, "us", Presence.PRESENT),
        "l1_hit_rate": Reading("l1_hit_rate", 0.25, "fraction", Presence.PRESENT),
    }
    context = Context(
        "gemm_fp32", rung, "64", "float32", {"M": 64, "N": 64, "K": 64}, {"BM": 32}, index, 2
    )
    device = Device("a GPU", (9, 0), sm_count=132)
    return Profile(
        Origin("f", 0, index),
        device,
        Launch("k", "k", (1, 1, 1), (32, 1, 1)),
        readings,
        stack,
        InstructionMix(opcodes),
        context=context,
    )


def timing(rung: str, microseconds: float) -> Timing:
    return Timing(
        "gemm_fp32",
        rung,
        "64",
        "float32",
        {"M": 64, "N": 64, "K": 64},
        {"BM": 32},
        (microseconds,),
        "warm",
        1.0,
        1.0,
        0.0,
    )


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
        (
            "executed('LDS') < prev_executed('LDS')",
            None,
            "the rung it is compared with was not profiled",
        ),
        ("time_us < prev_time_us", None, "not both measured"),
        ("metric('dram_read_bytes') > 0", BEFORE, "dram_read_bytes of this rung was not collected"),
        ("metric('no_such_thing') > 0", BEFORE, "no figure 'no_such_thing'"),
        ("stall('tea_break') > 0", BEFORE, "no stall reason 'tea_break'"),
        ("Q > 0", BEFORE, "no 'Q' here"),
        ("1 / (M - N) > 0", BEFORE, "division by zero"),
    ],
)
def test_what_cannot_be_told_says_why(
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
        "an unprofiled time is never held against a profiled one"
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


def test_a_run_is_checked_rung_by_rung() -> None:
    profiles = (
        *HERE.profiles,
        *(
            replace(p, context=replace(p.context, rung="mini_tile"))
            for p in BEFORE.profiles
            if p.context
        ),
    )
    run = Run(
        "r",
        "r",
        "2026-01-01",
        device=Device("a GPU", (9, 0)),
        profiles=(*profiles, replace(profiles[0], context=None)),
    )
    book = open_book(run, recorded.diagnosed)
    found = {
        (entry.rung, outcome.check): outcome
        for entry in book.entries
        for outcome in outcomes(entry)
    }
    assert {rung for rung, _ in found} == {"vectorized", "mini_tile"}
    assert found["vectorized", "executed('STS.128') == executed('STS')"].passed is False
    assert found["vectorized", "executed('STS') * 4 == prev_executed('STS')"].numbers == {
        "executed('STS')": 9,
        "prev_executed('STS')": 32,
    }
