"""The tables for people: one row per launch, metric, instruction or timing, with missing values
missing."""

from __future__ import annotations

import math

import pytest
import recorded

from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.kernel.analysis import frames


@pytest.fixture(scope="module")
def run() -> Run:
    assert recorded.FP32 is not None
    return recorded.run_of(recorded.FP32)


def test_launches(run: Run) -> None:
    table = frames.launches_frame(run.profiles)
    assert len(table) == len(run.profiles)
    assert set(registry.REGISTRY) <= set(table.columns)
    row = table[(table["rung"] == "naive") & (table["size"] == "1024")].iloc[0]
    profile = recorded.profile(run, "naive", "1024")
    assert row["duration"] == profile.duration_us
    assert row["status"] == "complete"
    assert row["grid"] == "x".join(map(str, profile.launch.grid))
    missing = next(name for name, reading in profile.readings.items() if reading.value is None)
    assert math.isnan(float(row[missing] if row[missing] is not None else "nan")), (
        "a missing value is NaN, never 0"
    )


def test_metrics_keep_presence(run: Run) -> None:
    table = frames.metrics_frame(run.profiles[:1])
    assert len(table) == len(registry.REGISTRY)
    assert set(table["presence"]) >= {"present"}
    absent = table[table["presence"] != "present"]
    assert absent["value"].isna().all()


def test_instructions(run: Run) -> None:
    profile = recorded.profile(run, "vectorized", "1024")
    table = frames.instructions_frame([profile])
    assert len(table) == len(profile.instructions)
    assert table["executed"].sum() == profile.mix.total
    assert table["samples"].sum() == sum(profile.samples.values())
    run_of_them = table[table["opcode"].str.startswith("STS") & (table["executed"] > 0)]
    assert set(run_of_them["opcode"]) == {"STS.128"}, (
        "the edge path's scalar stores do not run at a multiple of the tile"
    )


def test_timings(run: Run) -> None:
    table = frames.timings_frame(run.timings)
    assert len(table) == len(run.timings)
    assert (table["p10_us"] <= table["median_us"]).all()
    assert (table["median_us"] <= table["p90_us"]).all()
    first = run.timings[0]
    assert table.iloc[0]["flop_per_s"] == pytest.approx(first.flops / (first.median_us * 1e-6))
