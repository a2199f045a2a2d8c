"""Tidy pandas tables: one row per launch, metric, instruction or timing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pandas

from ncu_toolkit.base.metrics.registry import REGISTRY
from ncu_toolkit.base.model import Profile, Timing
from ncu_toolkit.kernel.analysis.gate import Comparison

_KEY: Final = ("file", "launch", "kernel")
#: Columns that each table has, whatever a report holds; a table without rows has these alone.
LAUNCHES: Final = (
    *_KEY, "status", "contradictions", "gpu", "grid", "block", "shared_static", "shared_dynamic", *REGISTRY
)  # fmt: skip
COMPARISON: Final = (
    "kernel", "old_us", "new_us", "change", "noise", "old_bottleneck", "new_bottleneck", "problem"
)  # fmt: skip
TIMINGS: Final = (
    "family", "rung", "size", "dtype", "cache", "median_us", "p10_us", "p90_us", "spread", "runs", "flop_per_s", "byte_per_s", "baseline_us",
    "of_baseline", "sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c", "throttle", "rested", "energy_mj", "pj_per_flop",
    "pj_per_byte", "verified_worst",
)  # fmt: skip
METRICS: Final = (*_KEY, "metric", "value", "unit", "presence")
INSTRUCTIONS: Final = (
    *_KEY, "address", "opcode", "sass", "source_file", "line", "executed", "threads", "samples"
)  # fmt: skip


def frame(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> pandas.DataFrame:
    """The rows in the order of their own columns, those that none of them has after these."""
    found = dict.fromkeys((*(name for row in rows for name in row), *columns))
    return pandas.DataFrame(list(rows), columns=list(found))


def _key(profile: Profile) -> dict[str, object]:
    row: dict[str, object] = {
        "file": profile.origin.file,
        "launch": profile.origin.key,
        "kernel": profile.launch.kernel,
    }
    if rung := profile.rung:
        row |= {name: getattr(rung, name) for name in ("family", "rung", "size", "dtype")}
    return row


def launches_frame(profiles: Iterable[Profile]) -> pandas.DataFrame:
    """One row a launch: identity, shape, status, and every metric by its short name (missing ones
    are NaN)."""
    rows = []
    for profile in profiles:
        launch = profile.launch
        row = _key(profile) | {
            "status": launch.status,
            "contradictions": "; ".join(profile.contradictions),
            "gpu": profile.device.name,
            "grid": "x".join(map(str, launch.grid or ())),
            "block": "x".join(map(str, launch.block or ())),
            "shared_static": launch.shared_static,
            "shared_dynamic": launch.shared_dynamic,
        }
        rows.append(row | {name: reading.value for name, reading in profile.readings.items()})
    return frame(rows, LAUNCHES)


def metrics_frame(profiles: Iterable[Profile]) -> pandas.DataFrame:
    """One row a launch and metric: value, unit, and whether it is present, not collected, not
    available or undefined."""
    rows = [
        _key(profile)
        | {
            "metric": reading.name,
            "value": reading.value,
            "unit": reading.unit,
            "presence": reading.presence.value,
        }
        for profile in profiles
        for reading in profile.readings.values()
    ]
    return frame(rows, METRICS)


def instructions_frame(profiles: Iterable[Profile]) -> pandas.DataFrame:
    """One row an instruction, none where a report has no source counters: SASS, line, executions,
    samples in all and by stall, other counters."""
    rows = []
    for profile in profiles:
        for instruction in profile.instructions:
            row = _key(profile) | {
                "address": instruction.address,
                "opcode": instruction.opcode,
                "sass": instruction.sass,
                "source_file": instruction.file,
                "line": instruction.line,
                "executed": instruction.executed,
                "threads": instruction.threads,
                "samples": instruction.sample_count,
            }
            row |= {f"samples_{reason}": count for reason, count in instruction.samples.items()}
            rows.append(row | dict(instruction.counters))
    return frame(rows, INSTRUCTIONS)


def timings_frame(timings: Iterable[Timing]) -> pandas.DataFrame:
    """One row a timing: median, quantiles and spread in microseconds, rates, baseline, clocks,
    power, energy of one run and of its useful work."""
    rows = []
    for timing in timings:
        base, median = timing.baseline_us, timing.median_us
        made = {
            "p10_us": timing.quantile_us(0.1),
            "p90_us": timing.quantile_us(0.9),
            "runs": len(timing.times_us),
            "flop_per_s": timing.flop_rate,
            "byte_per_s": timing.byte_rate,
            "of_baseline": base / median if base else None,
        }
        rows.append({name: made.get(name, getattr(timing, name, None)) for name in TIMINGS})
    return pandas.DataFrame(rows)


def comparison_frame(comparison: Comparison) -> pandas.DataFrame:
    """One row a pair of kernels, the one whose time moved most first. Times in microseconds; change
    and noise as fractions of the old time; NaN where the two cannot be compared."""
    rows = []
    for pair in comparison.ordered:
        time = pair.time
        values = (
            pair.name,
            time.old if time else None,
            time.new if time else None,
            time.change if time else None,
            time.noise / time.old if time and time.old else None,
            pair.old.bottleneck,
            pair.new.bottleneck,
            pair.problem or pair.gpus,
        )
        rows.append(dict(zip(COMPARISON, values, strict=True)))
    return frame(rows, COMPARISON)
