"""What a finding says to change is not what the profile shows as done."""

from __future__ import annotations

from typing import Any

import diagnosis_cases as cases
import pytest

from ncu_toolkit.diagnosis import time_model
from ncu_toolkit.diagnosis.engine import diagnose
from ncu_toolkit.diagnosis.rules import load_rules
from ncu_toolkit.diagnosis.rules._access import loads_in_flight
from ncu_toolkit.diagnosis.rules.shared_instruction_pressure import patch_side
from ncu_toolkit.model import Finding

QUEUE = {"selected": 1.0, "mio_throttle": 4.0, "short_scoreboard": 2.0, "wait": 1.0}


def found(bottleneck: str, case: dict[str, Any]) -> Finding:
    profile = cases.build(case)
    outcome = load_rules()[bottleneck].find(profile, time_model.build(profile))
    assert isinstance(outcome, Finding), outcome.reason
    return outcome


def shared(opcodes: dict[str, int]) -> str:
    """Advice of the rule on shared-memory instructions for an executed mix."""
    metrics = {
        "lsu_pipe_active": 0.9,
        "l1_data_pipe_active": 0.9,
        "issue_active": 0.4,
        "fma_pipe_active": 0.3,
    }
    return " ".join(
        found(
            "shared-instruction-pressure", {"metrics": metrics, "stalls": QUEUE, "opcodes": opcodes}
        ).advice
    )


def test_narrow_loads_and_one_result_a_thread() -> None:
    text = shared({"LDS": 20_000_000, "STS": 500_000, "FFMA": 10_000_000})
    assert "Compute a tile of results per thread (4x4, then 8x8)" in text
    assert "Read and write shared memory 16 bytes at a time" in text
    assert "Keep the operand that does not change" in text


def test_wide_loads_and_a_patch_in_registers() -> None:
    """Four values of each operand for 16 multiply-adds: a patch of 4 x 4, read by two LDS.128."""
    text = shared({"LDS.128": 2_000_000, "STS.128": 100_000, "FFMA": 16_000_000})
    assert "16 bytes at a time" not in text
    assert "about a 4x4 tile" in text
    assert "4x4, then" not in text
    assert "Keep the operand" not in text


def test_wide_loads_and_narrow_stores() -> None:
    text = shared({"LDS.128": 2_000_000, "STS": 400_000, "FFMA": 32_000_000})
    assert "Write shared memory 16 bytes at a time" in text
    assert "about a 8x8 tile" in text


def test_no_patch_where_nothing_is_multiplied() -> None:
    text = shared({"LDS": 5_000_000, "STS": 5_000_000, "IADD3": 10_000_000})
    assert "tile" not in text
    assert "shuffles" in text


@pytest.mark.parametrize(
    ("loads", "fused", "side"), [("LDS", 8, 2), ("LDS.64", 8, 1), ("LDS.128", 128, 8)]
)
def test_patch_side(loads: str, fused: int, side: float) -> None:
    profile = cases.build({"opcodes": {loads: 8, "FFMA": fused}})
    assert patch_side(profile) == pytest.approx(side)


def test_no_patch_is_larger_than_the_registers_of_a_thread() -> None:
    """Few values of a product come from shared memory: the others come from elsewhere."""
    assert patch_side(cases.build({"opcodes": {"LDS": 8, "FFMA": 4096}})) is None


def waiting(*code: str, at: int) -> dict[str, Any]:
    """Straight code whose long-scoreboard samples are all at one instruction."""
    rows = [
        {"sass": sass, "executed": 1000, "samples": {"long_scoreboard": 500} if i == at else {}}
        for i, sass in enumerate(code)
    ]
    return {
        "instructions": rows,
        "stalls": {"selected": 1.0, "long_scoreboard": 20.0},
        "metrics": {"issue_active": 0.1},
    }


LOAD = "LDG.E R{}, [R{}.64]"
ONE_BY_ONE = (LOAD.format(4, 2), "FADD R8, R8, R4", LOAD.format(4, 6), "FADD R8, R8, R4")
TWO = (LOAD.format(4, 2), LOAD.format(5, 6), "FADD R8, R8, R4", "FADD R8, R8, R5")
NINE = (*(LOAD.format(20 + i, 2) for i in range(9)), "FADD R8, R8, R20")


@pytest.mark.parametrize(
    ("code", "at", "expected"), [(ONE_BY_ONE, 3, 1.0), (TWO, 2, 2.0), (TWO, 3, 1.0), (NINE, 9, 9.0)]
)
def test_loads_in_flight(code: tuple[str, ...], at: int, expected: float) -> None:
    assert loads_in_flight(cases.build(waiting(*code, at=at))) == expected


def test_loads_in_flight_are_not_known_without_samples() -> None:
    assert loads_in_flight(cases.build({})) is None


def test_memory_latency_counts_what_is_under_way() -> None:
    one, two = (
        found("memory-latency", waiting(*code, at=at)) for code, at in ((ONE_BY_ONE, 3), (TWO, 2))
    )
    assert "before using the first" in one.advice[0]
    assert (
        "already has 2.0 loads in flight" in two.advice[0]
        or "already has 2 loads in flight" in two.advice[0]
    )
    assert not any("before using the first" in text for text in two.advice)
    assert one.saved > two.saved, (
        "four loads where there was one save more than four where there were two"
    )
    nine = diagnose(cases.build(waiting(*NINE, at=9))).findings
    names = [f.bottleneck for f in nine if f.speedup is not None]
    assert "memory-latency" not in names


def test_what_is_wide_is_not_to_be_widened() -> None:
    narrow = {"selected": 1.0, "long_scoreboard": 30.0}
    case = {
        "stalls": narrow,
        "metrics": {"issue_active": 0.05},
        "opcodes": {"LDG.E": 2_000_000, "STG.E.128": 500_000, "FFMA": 4_000_000},
    }
    assert found("narrow-access", case).advice[0].startswith("Load float4")
    case["opcodes"] = {"LDG.E": 2_000_000, "STG.E": 500_000, "FFMA": 4_000_000}
    assert found("narrow-access", case).advice[0].startswith("Load and store float4")


SCATTERED = {
    "sass": "LDG.E R4, desc[UR4][R2.64]",
    "executed": 1_600_000,
    "counters": {"l2_sectors": 51.2e6, "l2_sectors_ideal": 6.4e6, "l1_tag_requests": 51.2e6},
}


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"file": "/src/app/gather.cu", "line": 12}, " at gather.cu:12."),
        ({"file": "C:\\work\\gather.cu", "line": 12}, " at gather.cu:12."),
        ({"file": "", "line": 0}, " at +0x0 LDG.E R4, desc[UR4][R2.64]."),
    ],
)
def test_advice_names_the_line(place: dict[str, Any], words: str) -> None:
    case = {
        "stalls": {"selected": 1.0, "wait": 1.0, "lg_throttle": 6.0},
        "instructions": [{**SCATTERED, **place}],
    }
    finding = found("uncoalesced-global-access", case)
    assert finding.advice[0].endswith(words)
    assert finding.locations[0].sass == SCATTERED["sass"]


def test_advice_without_counters_of_instructions_names_no_line() -> None:
    case = {
        "metrics": {"global_load_sectors": 51.2e6},
        "stalls": {"selected": 1.0, "wait": 1.0, "lg_throttle": 6.0},
    }
    assert found("uncoalesced-global-access", case).advice[0].endswith("the contiguous dimension.")
