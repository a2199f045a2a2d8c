"""Profiles from case files: metric values in, expected finding out. One JSON file a bottleneck in
tests/cases/, and one for each further case: `bottleneck.what-is-special.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model import (
    Context,
    Device,
    Finding,
    Instruction,
    InstructionMix,
    Launch,
    NoFinding,
    Origin,
    Presence,
    Profile,
    Reading,
    StallStack,
)
from ncu_toolkit.kernel.diagnosis.kernel import Kernel
from ncu_toolkit.kernel.diagnosis.rules import load_rules

CASES = Path(__file__).parent / "cases"

#: A launch in which nothing is busy and nothing waits, on a data-centre GPU: each case says what
#: differs.
METRICS = {
    "duration": 1000.0,
    "sm_cycles": 1_700_000,
    "sm_active_cycles": 1_690_000,
    "sm_active_cycles_max": 1_700_000,
    "sm_clock": 1.7e9,
    "dram_clock": 3.2e9,
    "issue_active": 0.3,
    "instructions": 270_000_000,
    "active_warps": 12.0,
    "achieved_occupancy": 0.75,
    "theoretical_occupancy": 0.8,
    "lanes_per_instruction": 32.0,
    "lanes_predicated_on": 31.5,
    "fma_pipe_active": 0.1,
    "alu_pipe_active": 0.05,
    "fp64_pipe_active": 0.0,
    "xu_pipe_active": 0.0,
    "lsu_pipe_active": 0.1,
    "tensor_pipe_active": 0.0,
    "constant_cache_active": 0.001,
    "dram_read_bytes": 2e8,
    "dram_write_bytes": 1e8,
    "dram_utilization": 0.1,
    "l2_utilization": 0.1,
    "l2_sectors": 1e7,
    "l2_sectors_from_sm": 1e7,
    "l2_hit_rate": 0.5,
    "l1_hit_rate": 0.2,
    "l1_data_pipe_active": 0.1,
    "l1_writeback_active": 0.1,
    "l1_fill_active": 0.1,
    "global_load_sectors": 6.4e6,
    "global_load_requests": 1.6e6,
    "global_store_sectors": 3.2e6,
    "global_store_requests": 8e5,
    "local_load_sectors": 0,
    "local_store_sectors": 0,
    "l2_atomic_unit_active": 0.0,
    "shared_wavefronts": 0,
    "shared_load_wavefronts": 0,
    "shared_store_wavefronts": 0,
    "shared_load_conflicts": 0,
    "shared_store_conflicts": 0,
    "registers_per_thread": 40,
    "waves": 20.0,
    "block_limit_registers": 6,
    "block_limit_shared": 16,
    "block_limit_warps": 8,
    "block_limit_blocks": 32,
}
STALLS = {"selected": 1.0, "not_selected": 1.0, "wait": 1.0}
OPCODES = {
    "LDG.E": 1_600_000,
    "STG.E": 800_000,
    "FFMA": 20_000_000,
    "IADD3": 3_000_000,
    "BRA": 1_000_000,
}


def names() -> list[str]:
    return sorted(path.stem for path in CASES.glob("*.json"))


def bottleneck(name: str) -> str:
    """The bottleneck that a case is about."""
    return name.partition(".")[0]


def read(name: str) -> dict[str, Any]:
    return json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def build(case: Mapping[str, Any]) -> Profile:
    """A profile from a case's `metrics`, `stalls`, `opcodes`, `instructions`, `device`, `launch`
    and `context`; null takes a default away."""
    values = {**METRICS, **case.get("metrics", {})}
    device = Device(
        **{
            "name": "Test GPU",
            "cc": (9, 0),
            "sm_count": 132,
            "max_warps_per_sm": 64,
            **_tuples(case.get("device", {})),
        }
    )
    readings = {name: _reading(name, values.get(name)) for name in registry.REGISTRY}
    stalls = case.get("stalls", STALLS)
    stack = None
    if stalls:
        reasons = tuple(sorted(stalls.items(), key=lambda item: -item[1]))
        stack = StallStack(reasons, values.get("warp_latency", sum(stalls.values())))
    rows = tuple(_instruction(i, row) for i, row in enumerate(case.get("instructions", ())))
    return Profile(
        origin=Origin("case.ncu-rep", 0, 0, "2025.3.1"),
        device=device,
        launch=Launch(
            **{
                "kernel": "kernel(float*)",
                "function": "kernel",
                "grid": (10560, 1, 1),
                "block": (256, 1, 1),
                **_tuples(case.get("launch", {})),
            }
        ),
        readings=readings,
        stalls=stack,
        mix=InstructionMix(case.get("opcodes", OPCODES), case.get("thread_opcodes", {})),
        instructions=rows,
        context=Context(**{**_CONTEXT, **case["context"]}) if "context" in case else None,
    )


_CONTEXT: dict[str, Any] = {
    "family": "case",
    "rung": "case",
    "size": "1",
    "dtype": "",
    "dims": {},
    "parameters": {},
}


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }


def _reading(name: str, value: float | None) -> Reading:
    unit = registry.REGISTRY[name].unit
    return Reading(
        name,
        None if value is None else float(value),
        unit,
        Presence.NOT_COLLECTED if value is None else Presence.PRESENT,
    )


def _instruction(index: int, row: Mapping[str, Any]) -> Instruction:
    return Instruction(
        index,
        16 * index,
        row["sass"],
        next(word for word in row["sass"].split() if not word.startswith("@")),
        row.get("file", "kernel.cu"),
        row.get("line", index + 1),
        row.get("executed"),
        row.get("threads"),
        row.get("samples", {}),
        {},
        row.get("counters", {}),
    )


def outcome(bottleneck: str, profile: Profile) -> Finding | NoFinding:
    """What one rule says of a profile."""
    return load_rules()[bottleneck].find(Kernel.of(profile, bottleneck))
