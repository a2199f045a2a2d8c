"""Rows of a history, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ncu_toolkit.guests.history.history import Row

PLAIN = Row(
    report="r", launch="0.0", run="a", date="2026-11-01T10:00:00Z", tool="0.1", gpu="NVIDIA H200", gpu_uuid="GPU-1",
    driver="580", git_commit="c0ffee", git_dirty=False, name="naive", kernel="void naive<4>(int)", code="", size="1024",
    dtype="float32", grid="1x1x1", block="32x1x1", status="complete", time_us=100.0, spread=0.02, profiled_us=120.0,
    verdict="dram-bandwidth", title="DRAM bandwidth", gain=1.5, confidence="high", occupancy_percent=50.0, registers=32, dram_percent=40.0,
    l2_percent=30.0, l1_percent=20.0, stall="long_scoreboard", stall_percent=60.0,
)  # fmt: skip


def day(number: int, **values: Any) -> Row:
    run = f"run{number}"
    return replace(PLAIN, report=run, run=run, date=f"2026-11-{number:02}T10:00:00Z", **values)
