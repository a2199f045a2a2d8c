"""Derived figures: every name computes or is None, exact values on small inputs, matrix shapes, and
attribution of stalls to producers."""

from __future__ import annotations

import diagnosis_cases as cases
import pytest

from ncu_toolkit.diagnosis import figures
from ncu_toolkit.metrics import registry
from ncu_toolkit.model import Presence
from ncu_toolkit.sass import attribution


@pytest.mark.parametrize("name", sorted(figures.DERIVED))
def test_every_figure_says_what_it_is(name: str) -> None:
    unit, label, meaning = figures.describe(name)
    assert unit in registry.UNITS
    assert label
    assert meaning.endswith(".")
    empty = cases.build({"metrics": dict.fromkeys(cases.METRICS), "stalls": {}, "opcodes": {}})
    assert figures.value(empty, name) is None
    assert figures.reading(empty, name).presence is not Presence.PRESENT


def test_unknown_name_is_a_programming_error() -> None:
    for name in ("nonsense", "stall_share:nonsense", "kind_share:nonsense"):
        with pytest.raises(KeyError):
            figures.value(cases.build({}), name)


def test_widths_and_lanes() -> None:
    profile = cases.build(
        {
            "opcodes": {"LDG.E.128": 10, "LDG.E": 30, "STG.E.64": 5},
            "thread_opcodes": {"LDG.E.128": 320, "LDG.E": 480, "STG.E.64": 160},
        }
    )
    assert figures.value(profile, "load_bytes_per_lane") == pytest.approx((10 * 16 + 30 * 4) / 40)
    assert figures.value(profile, "lane_load_bytes") == 320 * 16 + 480 * 4
    assert figures.value(profile, "lane_store_bytes") == 160 * 8


def test_excess_prefers_per_instruction_counts() -> None:
    counted = {
        "sass": "LDG.E R4, [R2.64]",
        "executed": 10,
        "counters": {"l2_sectors": 320.0, "l2_sectors_ideal": 40.0, "l1_tag_requests": 320.0},
    }
    profile = cases.build({"instructions": [counted]})
    assert figures.value(profile, "global_sector_excess") == pytest.approx(1 - 40 / 320)
    assert figures.value(profile, "l1_tag_excess") == pytest.approx(1 - 10 / 320)


def test_shared_excess_falls_back_to_the_conflict_counter() -> None:
    profile = cases.build(
        {
            "metrics": {
                "shared_load_wavefronts": 100,
                "shared_store_wavefronts": 0,
                "shared_load_conflicts": 25,
                "shared_store_conflicts": 0,
            }
        }
    )
    assert figures.value(profile, "shared_conflict_excess") == pytest.approx(0.25)


def test_ffma_counts_two_per_active_lane() -> None:
    profile = cases.build(
        {"opcodes": {"FFMA": 10, "FADD": 4}, "thread_opcodes": {"FFMA": 160, "FADD": 128}}
    )
    assert figures.value(profile, "flops_fp32") == 160 * 2 + 128


def test_matrix_operations_are_the_warp_s() -> None:
    mix = {"HMMA.16816.F32": 10, "HGMMA.64x128x16.F32": 4, "FFMA": 7}
    profile = cases.build({"opcodes": mix, "thread_opcodes": {"HMMA.16816.F32": 160}})
    assert (
        figures.value(profile, "flops_tensor") == 10 * 2 * 16 * 8 * 16 + 4 * 2 * 64 * 128 * 16 / 4
    )
    assert figures.value(cases.build({"opcodes": {"UTCHMMA.2CTA": 1}}), "flops_tensor") is None


def _rows(*lines: tuple[str, dict[str, int]]) -> list[dict[str, object]]:
    return [{"sass": sass, "executed": 100, "samples": samples} for sass, samples in lines]


def test_scoreboard_stalls_belong_to_the_producer() -> None:
    rows = _rows(
        ("LDG.E R4, [R2.64]", {}),
        ("LDL R5, [R1+0x10]", {}), ("FADD R6, R4, R4", {"long_scoreboard": 30}), ("FADD R7, R5, R5", {"long_scoreboard": 10}),
        ("LDS R8, [R9]", {}), ("FMUL R8, R8, R8", {"short_scoreboard": 5}), ("MUFU.SIN R10, R11", {"mio_throttle": 7}),
    )  # fmt: skip
    profile = cases.build({"instructions": rows})
    assert attribution.waits(profile, "long_scoreboard") == pytest.approx(
        {"global": 0.75, "local": 0.25}
    )
    assert attribution.waits(profile, "short_scoreboard") == {"shared": 1.0}
    assert attribution.waits(profile, "mio_throttle") == {"special": 1.0}


def test_a_loop_carried_producer_is_found() -> None:
    rows = _rows(
        ("FADD R6, R4, R6", {"long_scoreboard": 9}), ("LDG.E R4, [R2.64]", {}), ("BRA 0x0", {})
    )
    assert attribution.waits(cases.build({"instructions": rows}), "long_scoreboard") == {
        "global": 1.0
    }


def test_barriers_behind_copies_wait_for_the_copy() -> None:
    rows = _rows(
        ("LDGSTS.E [R8], [R2.64]", {}), ("LDGDEPBAR", {}), ("BAR.SYNC 0x0", {"long_scoreboard": 9})
    )
    assert attribution.waits(cases.build({"instructions": rows}), "long_scoreboard") == {
        "copy": 1.0
    }


def test_wide_results_span_registers() -> None:
    rows = _rows(("LDG.E.128 R4, [R2.64]", {}), ("FADD R9, R7, R9", {"long_scoreboard": 9}))
    assert attribution.waits(cases.build({"instructions": rows}), "long_scoreboard") == {
        "global": 1.0
    }
