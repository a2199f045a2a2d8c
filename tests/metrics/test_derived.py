"""Derived figures: every name computes or is None, exact values on small inputs, matrix shapes, and
attribution of stalls to producers."""

from __future__ import annotations

import diagnosis_cases as cases
import pytest

from ncu_toolkit.base.metrics import registry
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.sass import attribution


@pytest.mark.parametrize("name", sorted(figures.DERIVED))
def test_every_figure_says_what_it_is(name: str) -> None:
    unit, label, meaning = figures.describe(name)
    assert unit in registry.UNITS
    assert label
    assert meaning.endswith(".")
    empty = cases.build({"metrics": dict.fromkeys(cases.METRICS), "stalls": {}, "opcodes": {}})
    assert figures.value(empty, name) is None
    assert figures.fact(empty, name).why


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


UNKNOWN_WORK: dict[str, dict[str, object]] = {
    "a reason that the stall stack lacks": {"of": "stall_share:gmma"},
    "stores missing from a sum": {"of": "l1_global_bytes", "gone": ["global_store_sectors"]},
    "requests missing beside sectors": {
        "of": "global_sector_excess", "gone": ["global_store_requests"], "opcodes": {},
        "metrics": {"global_load_sectors": 3e8},
    },
    "opcodes that name no access": {"of": "global_sector_excess", "opcodes": {"???": 1_000_000}},
    "one side of the conflicts": {"of": "shared_conflict_excess", "gone": ["shared_store_conflicts"]},
    "no lanes beside opcodes": {
        "of": "lane_bytes", "gone": ["lanes_predicated_on", "lanes_per_instruction"],
    },
    "operations without lanes": {
        "of": "flops_fp32", "gone": ["lanes_predicated_on", "lanes_per_instruction"],
    },
    "one block limit of four": {"of": "blocks_per_sm", "gone": ["block_limit_registers"]},
    "branches, none of them counted": {"of": "branch_uniformity", "metrics": {"uniform_branches": 0.0}},
}  # fmt: skip


@pytest.mark.parametrize("what", UNKNOWN_WORK)
def test_a_figure_without_an_operand_is_absent(what: str) -> None:
    case = UNKNOWN_WORK[what]
    gone = dict.fromkeys(case.get("gone", ()))
    given = {name: value for name, value in case.items() if name in ("opcodes", "metrics")}
    profile = cases.build(given)
    metrics = {**dict(case.get("metrics", {})), **gone}
    lacking = cases.build({**given, "metrics": metrics})
    assert figures.value(lacking, str(case["of"])) is None
    if gone:  # with the operand it is there, so that the figure is not absent for another reason
        assert figures.value(profile, str(case["of"])) is not None


def test_bulk_copies_are_not_all_that_was_not_counted() -> None:
    opcodes = {"UBLKCP": 1_000, "LDG.E": 1_000_000}
    assert figures.copied_sectors(cases.build({"opcodes": opcodes})) is None
    assert figures.asked_bytes(cases.build({"opcodes": opcodes})) is None
    row = {"sass": "LDG.E R4, [R2.64]", "executed": 1, "counters": {"l2_sectors": 4e6}}
    counted = cases.build({"opcodes": opcodes, "instructions": [row]})
    assert figures.copied_sectors(counted) == 6e6


@pytest.mark.parametrize(
    ("share", "divergent", "expected"), [(0.0, 0, 1.0), (0.97, 12, 0.97), (0.9, None, 0.9)]
)
def test_no_divergent_branch_is_full_uniformity(
    share: float, divergent: float | None, expected: float
) -> None:
    metrics = {"uniform_branches": share, "divergent_branches": divergent}
    assert figures.value(cases.build({"metrics": metrics}), "branch_uniformity") == expected
