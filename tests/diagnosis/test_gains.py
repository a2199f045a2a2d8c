"""The laws that gains follow from beyond what a busy unit shows (docs/decisions/15-gains.md): each
on a made-up launch, with the one beside it that lacks what the law asks for."""

from __future__ import annotations

from typing import Any

import diagnosis_cases as cases
import pytest

from ncu_toolkit.base.model import Finding
from ncu_toolkit.kernel.diagnosis import time_model
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.time_model import UNLOADED, queue_share


def found(bottleneck: str, case: dict[str, Any]) -> Finding:
    profile = cases.build(case)
    result = cases.outcome(bottleneck, profile)
    assert isinstance(result, Finding), result.reason
    return result


def waiting(cycles: float, extra: dict[str, int] | None = None) -> time_model.TimeModel:
    """One instruction in four is a load, which a warp waits for `cycles`."""
    case = {
        "metrics": {"l2_utilization": 0.3, "dram_utilization": 0.2, "issue_active": 0.05},
        "stalls": {"selected": 1.0, "long_scoreboard": cycles / 4, "short_scoreboard": 10.0},
        "opcodes": {"LDG.E": 1_000_000, "IADD3": 3_000_000, **(extra or {})},
    }
    return time_model.build(cases.build(case))


def test_an_access_slower_than_idle_memory_waits_in_a_queue() -> None:
    assert waiting(10 * UNLOADED).queue(0.3) == pytest.approx(0.9)
    assert waiting(0.5 * UNLOADED).queue(0.3) == pytest.approx(queue_share(0.3))
    assert waiting(10 * UNLOADED, {"RED.E.ADD": 10}).queue(0.3) == pytest.approx(queue_share(0.3))


PRODUCT = cases.read("fp32-pipe")
OTHER_GPU = {"device": {"cc": (8, 6), "sm_count": 82}}
OWN_TYPE = {"context": {"dtype": "float32"}}


def test_a_product_at_the_fp32_roof_is_reported_what_tensor_cores_would_gain() -> None:
    finding = diagnose(cases.build(PRODUCT)).primary
    assert (finding.bottleneck, finding.good) == ("fp32-pipe", True)
    assert finding.speedup is not None
    assert 5 < finding.speedup < 12, "8 times the rate, at nine tenths of it"
    assert "TF32" in finding.summary


@pytest.mark.parametrize("other", [OTHER_GPU, OWN_TYPE], ids=["slow tensor cores", "type given"])
def test_no_other_type_is_promised(other: dict[str, Any]) -> None:
    finding = diagnose(cases.build({**PRODUCT, **other})).primary
    assert finding.good
    assert finding.speedup == pytest.approx(1.0, abs=0.12)
    assert "TF32 at" not in " ".join(finding.arithmetic)


def issuing(dram: float) -> Finding:
    return diagnose(
        cases.build(
            {
                "metrics": {"issue_active": 0.9, "alu_pipe_active": 0.6, "dram_utilization": dram},
                "stalls": {
                    "selected": 1.0,
                    "not_selected": 6.0,
                    "wait": 1.0,
                    "long_scoreboard": 1.0,
                },
                "opcodes": {"FFMA": 4_000_000, "LOP3.LUT": 5_000_000, "LDG.E": 100_000},
            }
        )
    ).primary


def test_leaner_code_gains_up_to_the_memory_roof() -> None:
    gains = issuing(0.45)
    assert gains.bottleneck == "instruction-throughput"
    assert gains.speedup == pytest.approx(2.0, abs=0.25)
    assert "fewer instructions" in gains.summary
    assert issuing(0.1).speedup is None, "how few instructions would do is not known"


def test_a_chain_of_doubles_waits_half_as_long_in_floats() -> None:
    def saved(at: str) -> float:
        rows = [
            {"sass": "DFMA R2, R4, R6, R2", "executed": 40_000_000},
            {"sass": f"{at} R8, R2, R4, R8", "executed": 40_000_000, "samples": {"wait": 900}},
        ]
        case = {
            "metrics": {"issue_active": 0.3, "fp64_pipe_active": 0.6},
            "stalls": {"selected": 1.0, "wait": 6.0, "math_pipe_throttle": 0.5},
            "opcodes": {"DFMA": 40_000_000, "FFMA": 40_000_000},
        }
        return found("double-precision", {**case, "instructions": rows}).saved

    case = {
        "metrics": {"issue_active": 0.3, "fp64_pipe_active": 0.6},
        "stalls": {"selected": 1.0, "wait": 6.0, "math_pipe_throttle": 0.5},
        "opcodes": {"DFMA": 40_000_000, "FFMA": 40_000_000},
    }
    assert saved("DADD") > found("double-precision", case).saved + 0.2


def shared(fused: int) -> Finding:
    return found(
        "shared-instruction-pressure",
        {
            "metrics": {
                "issue_active": 0.45, "fma_pipe_active": 0.15, "lsu_pipe_active": 0.9,
                "l1_data_pipe_active": 0.95, "shared_load_bytes_per_lane": 4.0,
            },
            "stalls": {"selected": 1.0, "mio_throttle": 12.0, "short_scoreboard": 3.0},
            "opcodes": {"LDS": 2_000_000, "FFMA": fused, "IADD3": 500_000},
        },
    )  # fmt: skip


def tiled(operations: float) -> dict[str, Any]:
    return {
        "metrics": {
            "issue_active": 0.3, "tensor_pipe_active": 0.06, "l1_data_pipe_active": 0.7,
            "l1_fill_sectors": 1e8, "global_load_sectors": 1e8, "dram_read_bytes": 1e8,
            "l2_utilization": 0.4, "flops_tensor": operations,
        },
        "stalls": {"selected": 1.0, "long_scoreboard": 15.0},
        "opcodes": {
            "HMMA.16816.F32": round(operations / 4096), "LDGSTS.E": 3_000_000, "IMAD": 9_000_000,
        },
    }  # fmt: skip


def test_a_small_tile_gains_by_a_large_one() -> None:
    finding = found("missing-data-reuse", tiled(16 * 32 * 1e8))
    assert "tiles" in finding.summary
    assert finding.saved > 0.4
    profile = cases.build(tiled(60 * 32 * 1e8))
    outcome = cases.outcome("missing-data-reuse", profile)
    assert "tiles of the product" not in getattr(outcome, "summary", "")


def scan(accesses: int) -> Finding:
    return found(
        "barrier-imbalance",
        {
            "metrics": {"issue_active": 0.4, "lsu_pipe_active": 0.6, "l1_data_pipe_active": 0.1},
            "stalls": {"selected": 1.0, "barrier": 12.0, "short_scoreboard": 4.0, "wait": 1.0},
            "opcodes": {
                "BAR.SYNC": 2_000_000,
                "LDS": accesses,
                "STS": accesses // 2,
                "FADD": 900_000,
            },
        },
    )


def test_exchanges_at_each_barrier_become_shuffles() -> None:
    step_by_step, between = scan(2_000_000), scan(9_000_000)
    assert {"lsu", "issue"} <= set(step_by_step.relieves)
    assert not between.relieves
    assert step_by_step.saved > between.saved


@pytest.mark.parametrize(("blocks", "sure"), [(128, False), (64, True)])
def test_a_block_on_nearly_every_sm_is_no_idle_gpu(blocks: int, sure: bool) -> None:
    case = {
        "metrics": {"waves": blocks / 528, "issue_active": 0.1, "sm_active_cycles": None},
        "stalls": {"selected": 1.0, "long_scoreboard": 20.0},
        "launch": {"grid": (blocks, 1, 1)},
    }
    assert (found("grid-too-small", case).confidence == "high") is sure


def test_whatever_waits_behind_one_hot_address_goes_with_it() -> None:
    """Constants too, whose latency is short: here they wait for half of the time."""

    def saved(updates: int) -> float:
        case = {
            "metrics": {"sm_cycles": 3e7, "l2_utilization": 0.02, "dram_utilization": 0.01},
            "stalls": {"selected": 1.0, "long_scoreboard": 20000.0, "short_scoreboard": 20000.0},
            "opcodes": {"LDG.E": 1_000_000, "REDG.E.ADD": updates, "LDC": 1_000_000},
            "thread_opcodes": {"REDG.E.ADD": updates * 32},
        }
        return found("atomic-contention", case).saved

    assert saved(1_000_000) > 0.6
    assert saved(300_000) < 0.5, "too few updates to fill the time"


def rows_walked(waves: float, hits: float = 0.87) -> Finding:
    """Lanes that walk a row each: 64 loads of a lane, each to its own sector."""
    warps = 256 * 8
    row = {
        "sass": "LDG.E R2, [R4.64]",
        "executed": 64 * warps,
        "counters": {"l2_sectors": 2048.0 * warps, "l2_sectors_ideal": 256.0 * warps},
    }
    case = {
        "metrics": {"waves": waves, "l1_hit_rate": hits, "l1_data_pipe_active": 0.6, "issue_active": 0.03},
        "stalls": {"selected": 1.0, "long_scoreboard": 60.0},
        "opcodes": {"LDG.E": 64 * warps, "FADD": 64 * warps},
        "launch": {"grid": (256, 1, 1)},
        "instructions": [row],
    }  # fmt: skip
    return found("uncoalesced-global-access", case)


def test_a_warp_for_a_row_is_more_warps() -> None:
    finding = rows_walked(0.25)
    assert finding.saved > rows_walked(4.0).saved + 0.15, "a full GPU has no room for more"
    assert finding.saved > rows_walked(0.25, hits=0.0).saved + 0.15, "gathers are no walk"
    assert any("A warp for a row" in line for line in finding.arithmetic)


def one_stage(wavefronts: float) -> dict[str, Any]:
    """Tiles loaded through registers: the data stage of L1 is full, `wavefronts` of it with shared
    memory's."""
    rows = [
        {"sass": "LDG.E.128 R4, [R2.64]", "executed": 1_000_000},
        {"sass": "STS.128 [R8], R4", "executed": 1_000_000, "samples": {"long_scoreboard": 900}},
    ]
    return {
        "metrics": {"l1_data_pipe_active": 0.84, "shared_wavefronts": wavefronts},
        "stalls": {"selected": 2.0, "long_scoreboard": 5.0, "wait": 4.0, "short_scoreboard": 3.0},
        "opcodes": {"LDG.E.128": 1_000_000, "STS.128": 1_000_000, "HMMA.16816.F32": 5_000_000},
        "instructions": rows,
    }


def test_loads_do_not_wait_for_what_shared_memory_keeps_busy() -> None:
    passes = 0.84 * 1_690_000 * 132
    finding = found("memory-latency", one_stage(0.6 * passes))
    assert {"l1_data", "l1_writeback"} <= set(finding.relieves), "copies do not pass registers"
    profile = cases.build(one_stage(0.01 * passes))
    outcome = cases.outcome("memory-latency", profile)
    assert "wait for bandwidth" in getattr(outcome, "reason", "")


def product(loads: int) -> Finding:
    """A product from global memory, `loads` for two multiply-adds."""
    case = cases.read("missing-data-reuse")
    count = loads * 12_500_000
    metrics = {"global_load_sectors": 4.0 * count, "global_load_requests": float(count)}
    return found(
        "missing-data-reuse",
        {
            **case,
            "metrics": {**case["metrics"], **metrics},
            "opcodes": {**case["opcodes"], "LDG.E": count},
        },
    )


def test_one_slice_that_is_full_is_contention_whatever_the_mean() -> None:
    """Updates that return nothing: warps wait for loads alone, each for less than UNLOADED."""

    def hot(busiest: float) -> dict[str, Any]:
        return {
            "metrics": {
                "l2_atomic_unit_active": 0.06, "l2_atomic_unit_busiest": busiest, "l2_utilization": 0.1,
                "dram_utilization": 0.07,
            },
            "stalls": {"selected": 1.0, "long_scoreboard": 18.0, "wait": 4.0},
            "opcodes": {"LDG.E": 4_000_000, "REDG.E.ADD.F32": 2_000_000, "IMAD": 200_000_000},
            "thread_opcodes": {"REDG.E.ADD.F32": 64_000_000},
        }  # fmt: skip

    assert diagnose(cases.build(hot(0.73))).primary.bottleneck == "atomic-contention"
    spread = [finding.bottleneck for finding in diagnose(cases.build(hot(0.11))).findings]
    assert spread.index("memory-latency") < spread.index("atomic-contention")


def in_pieces(sectors: float) -> str:
    """Eight loads of two bytes each from one address on, each touching `sectors` of 32."""
    rows = [
        {
            "sass": f"LDG.E.U16 R{20 + at}, desc[UR4][R2.64{f'+0x{2 * at:x}' if at else ''}]",
            "executed": 1_000_000,
            "samples": {"long_scoreboard": 100, "lg_throttle": 100},
            "counters": {"l2_sectors": sectors * 1e6, "l2_sectors_ideal": 2e6},
        }
        for at in range(8)
    ]
    case = {
        "metrics": {"load_bytes_per_lane": 2.0, "l1_data_pipe_active": 0.9, "l1_tag_active": 0.7},
        "stalls": {"selected": 1.0, "long_scoreboard": 4.0, "lg_throttle": 2.0},
        "opcodes": {"LDG.E.U16": 8_000_000, "HMMA.16816.F32": 8_000_000},
        "instructions": rows,
    }
    return diagnose(cases.build(case)).primary.bottleneck


def test_lanes_side_by_side_that_read_in_pieces_are_narrow_not_scattered() -> None:
    assert in_pieces(16.0) == "narrow-access"
    assert in_pieces(32.0) == "uncoalesced-global-access"
