"""What bounds a launch from below: memory that is only read, bytes that L2 still owes it, counters
that are no amount of work, start and end."""

from __future__ import annotations

from typing import Any

import diagnosis_cases as cases
import pytest

from ncu_toolkit.base.model import Finding
from ncu_toolkit.kernel.diagnosis import figures, time_model
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.time_model import Removal

QUIET = {
    name: 0.01
    for name in cases.METRICS
    if name.endswith(("_active", "_utilization")) and name != "constant_cache_active"
}
WAITS = {"selected": 0.1, "long_scoreboard": 9.9}


def model(metrics: dict[str, Any], **case: Any) -> time_model.TimeModel:
    return time_model.build(
        cases.build(
            {
                "metrics": {**QUIET, **metrics},
                "stalls": WAITS,
                "launch": {"grid": [1056, 1, 1]},
                **case,
            }
        )
    )


def findings(metrics: dict[str, Any], **case: Any) -> dict[str, Finding]:
    """What rules find: not a verdict by a wait alone, which has no figure."""
    return {
        found.bottleneck: found
        for found in diagnose(cases.build({"metrics": {**QUIET, **metrics}, **case})).findings
        if found.speedup is not None
    }


def test_a_stream_of_words_that_only_reads_is_not_at_its_roof() -> None:
    """Four fifths of the peak are near a copy's roof, and a tenth short of that of wide loads."""
    stream: dict[str, Any] = {
        "stalls": {"selected": 0.1, "long_scoreboard": 9.9, "wait": 0.1},
        "opcodes": {"LDG.E": 1_600_000, "FADD": 1_600_000, "IADD3": 1_600_000},
    }
    moved = {
        "dram_utilization": 0.82,
        "dram_read_bytes": 2e8,
        "dram_write_bytes": 0.0,
        "issue_active": 0.15,
        "global_store_sectors": 0,
    }
    found = findings(moved, **stream)
    assert next(iter(found)) == "narrow-access"
    assert found["narrow-access"].saved == pytest.approx(1 - 0.82 / 0.95, abs=0.01)
    stored = {**stream, "opcodes": {**stream["opcodes"], "STG.E": 1_600_000}}
    copy = findings({**moved, "dram_write_bytes": 2e8, "global_store_sectors": 6.4e6}, **stored)
    assert next(iter(copy)) == "dram-bandwidth"
    assert copy["dram-bandwidth"].good


def test_what_l2_has_still_to_write_is_no_load_but_lowers_the_roof() -> None:
    stores = {
        "opcodes": {"LDG.E": 500_000, "STG.E": 500_000},
        "thread_opcodes": {"LDG.E": 16_000_000, "STG.E": 16_000_000},
    }
    metrics = {"dram_utilization": 0.6, "dram_read_bytes": 64e6, "dram_write_bytes": 40e6}
    held = cases.build({"metrics": metrics, "device": {"l2_bytes": 50_000_000}, **stores})
    assert figures.value(held, "dram_owed_bytes") == pytest.approx(24e6)
    small = cases.build({"metrics": metrics, "device": {"l2_bytes": 4_000_000}, **stores})
    assert figures.value(small, "dram_owed_bytes") == pytest.approx(4e6)
    large, little = time_model.build(held), time_model.build(small)
    assert large.utilization("dram") == little.utilization("dram") == pytest.approx(0.6)
    assert large.reach("dram") == pytest.approx((0.9 + 0.05 * (1 - 80 / 104)) * 104 / 128)
    assert large.reach("dram") < little.reach("dram")


def test_l2_is_not_the_roof_of_what_device_memory_moves() -> None:
    """A copy that keeps device memory 0.76 busy keeps L2's roll-up at 0.87."""
    copy = {
        "dram_utilization": 0.76,
        "dram_read_bytes": 2e8,
        "dram_write_bytes": 2e8,
        "l2_utilization": 0.4,
    }
    found = diagnose(cases.build({"metrics": {**QUIET, **copy, "l2_throughput": 0.87}})).primary
    assert (found.bottleneck, found.good) == ("dram-bandwidth", False)
    own = {**copy, "dram_utilization": 0.6, "l2_throughput": 0.87}
    assert diagnose(cases.build({"metrics": {**QUIET, **own}})).primary.bottleneck == "l2-bandwidth"


def test_start_and_end_are_no_time_for_memory() -> None:
    """Of three microseconds 1.2 are start and end, so memory that is busy for half of them has
    little to spare."""
    short = model(
        {
            "duration": 3.0,
            "sm_cycles": 5100,
            "sm_active_cycles": 5000,
            "dram_utilization": 0.5,
            "dram_write_bytes": 2e8,
        }
    )
    prediction = short.without(Removal("at once", stalls={"long_scoreboard": 0.0}))
    assert prediction.limit == "dram"
    assert prediction.speedup == pytest.approx(1 / (0.5 / 0.9 + 0.4), rel=1e-3)


def test_arithmetic_is_not_charged_to_the_accesses() -> None:
    """Forty integer instructions for each load are not addresses: wider loads leave most of
    them."""

    def saved(integer: int) -> float:
        opcodes = {"LDG.E": 1_000_000, "IADD3": integer, "FFMA": 1_000_000}
        found = findings(
            {"issue_active": 0.5, "global_load_sectors": 4e6, "global_store_sectors": 0},
            stalls={"selected": 5.0, "long_scoreboard": 2.0, "wait": 3.0},
            opcodes=opcodes,
        )
        return found["narrow-access"].saved if "narrow-access" in found else 0.0

    assert saved(40_000_000) < saved(5_000_000) - 0.1


AGAIN = {
    "global_load_sectors": 6.4e8,
    "dram_read_bytes": 2e8,
    "l1_fill_active": 0.7,
    "l1_hit_rate": 0.0,
    "issue_active": 0.2,
}


def test_what_other_blocks_load_again_is_no_matter_of_a_tile() -> None:
    waits = {"selected": 1.0, "long_scoreboard": 9.0, "lg_throttle": 3.0}
    wide = {"LDG.E.128": 4_000_000, "FFMA": 8_000_000}
    assert "missing-data-reuse" not in findings(
        {**AGAIN, "l1_fill_sectors": 6.3e8}, stalls=waits, opcodes=wide
    )
    assert "missing-data-reuse" in findings(
        {**AGAIN, "l1_fill_sectors": 1e8, "l1_hit_rate": 0.85}, stalls=waits, opcodes=wide
    )


def test_updates_that_meet_are_no_bank_conflict() -> None:
    """Sixteen passes for each shared atomic, because lanes update one counter: no layout of the
    banks fixes that."""
    update = {
        "sass": "ATOMS.POPC.INC.32 RZ, [R4]",
        "executed": 1_000_000,
        "samples": {"mio_throttle": 900},
        "counters": {"shared_wavefronts": 1.6e7, "shared_wavefronts_ideal": 1e6},
    }
    metrics = {"shared_wavefronts": 1.6e7, "l1_data_pipe_active": 0.9, "issue_active": 0.05}
    found = findings(
        metrics,
        stalls={"selected": 0.5, "mio_throttle": 9.5},
        instructions=[update],
        opcodes={"ATOMS.POPC.INC.32": 1_000_000, "LDG.E": 100_000},
    )
    assert next(iter(found)) == "atomic-contention"
    assert "shared-bank-conflict" not in found


def test_a_full_unit_is_no_matter_of_warps_or_chains() -> None:
    full = {
        "dram_utilization": 0.85, "dram_write_bytes": 2e8, "issue_active": 0.3, "waves": 0.3,
        "achieved_occupancy": 0.2, "theoretical_occupancy": 0.7,
    }  # fmt: skip
    found = findings(
        full,
        stalls={"selected": 1.0, "wait": 4.0, "long_scoreboard": 5.0},
        launch={"grid": [264, 1, 1]},
    )
    assert "instruction-dependency" not in found
    assert "grid-too-small" not in found


def test_arithmetic_on_integers_from_memory_is_the_work_itself() -> None:
    """Addresses from a thread's index, a hash of what they bring, and one that is stored: the same
    counts, another source or another use."""

    def named(operand: str, stored: str = "[R6.64], R8") -> bool:
        rows = [
            {"sass": "S2R R0, SR_TID.X", "executed": 1_000_000},
            {"sass": "LDG.E R4, [R2.64]", "executed": 1_000_000},
            {"sass": f"IMAD R6, {operand}, 0x5, R6", "executed": 40_000_000},
            {"sass": f"STG.E {stored}", "executed": 1_000_000},
        ]
        opcodes = {"IMAD": 40_000_000, "LDG.E": 1_000_000, "STG.E": 1_000_000, "S2R": 1_000_000}
        stalls = {"selected": 5.0, "not_selected": 5.0, "math_pipe_throttle": 2.0}
        return "integer-arithmetic" in findings(
            {"issue_active": 0.55}, stalls=stalls, instructions=rows, opcodes=opcodes
        )

    assert named("R0")
    assert not named("R4")
    assert not named("R0", "[R8.64], R6")
