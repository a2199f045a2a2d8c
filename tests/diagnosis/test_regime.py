"""What a regime is told from: responses to pressure, and the shape of a launch."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import recorded

from ncu_toolkit.diagnosis import regime
from ncu_toolkit.diagnosis.rules import load_rules
from ncu_toolkit.model import Device
from ncu_toolkit.model.profile import Launch
from ncu_toolkit.model.trace import KINDS, KernelTrace
from ncu_toolkit.runs.store import recordings_root

DATA = recorded.ROOT / "docs" / "data" / "probe.json"
H200 = Device("NVIDIA H200", (9, 0), sm_count=132)


def kernel(
    slower: dict[str, float], *, follows: float = 1.0, grid: int = 4096, us: float = 100.0
) -> KernelTrace:
    """A kernel that each kind of pressure in `slower` makes longer by a fraction, and whose time
    goes with the multiprocessors to the power of `follows`."""
    noise = (0.998, 1.0, 1.001, 1.002, 1.0)
    conditions = {"plain": us, "plain_again": us, "beside": us * 1.05}
    for name, kind in KINDS.items():
        if kind.alone:
            alone = us * (1 / (1 - kind.alone)) ** follows
            conditions[name] = alone * (1 + slower.get(name, 0.0))
        else:
            conditions[name] = us * 1.05 * (1 + slower.get(name, 0.0))
    times = {name: tuple(middle * each for each in noise) for name, middle in conditions.items()}
    launch = Launch("k", "k", (grid, 1, 1), (256, 1, 1), 32)
    return KernelTrace(launch, 1, us, us, us, us, times)


def test_responses_are_against_the_control() -> None:
    found = regime.responses(kernel({"dram": 0.6, "fma2": 0.2}).conditions)
    assert found["dram"].slope == pytest.approx(0.6)
    assert found["fma2"].slope == pytest.approx(0.2)
    assert found["l2"].slope == pytest.approx(0.0)
    assert found["alone"].slope == pytest.approx(1 / 3)
    assert found["plain_again"].slope == pytest.approx(0.0)
    assert 0 < found["dram"].spread < 0.01
    assert found["dram"].runs == 5


def test_a_wider_scatter_is_a_wider_spread() -> None:
    narrow = regime.responses({"plain": (1.0, 1.01, 0.99, 1.0), "alone": (2.0, 2.01, 1.99, 2.0)})
    wide = regime.responses({"plain": (1.0, 1.2, 0.8, 1.0), "alone": (2.0, 2.4, 1.6, 2.0)})
    assert wide["alone"].spread > 5 * narrow["alone"].spread


@pytest.mark.parametrize(
    ("slower", "follows", "grid", "us", "first", "rule"),
    [
        ({"dram": 1.0, "l2": 0.8}, 0.1, 4096, 100.0, "DRAM", "dram-bandwidth"),
        ({"dram": 0.1, "l2": 1.2}, 0.1, 4096, 100.0, "L2", "l2-bandwidth"),
        ({"shared2": 3.0, "shared1": 0.6}, 1.0, 4096, 100.0, "on-chip memory", "l1-bandwidth"),
        ({"constant": 4.0}, 1.0, 4096, 100.0, "on-chip memory", "constant-cache-divergence"),
        ({"fma2": 0.9}, 1.0, 4096, 100.0, "arithmetic", "instruction-throughput"),
        ({"special": 1.2}, 1.0, 4096, 100.0, "arithmetic", "special-function-pressure"),
        ({}, 1.0, 4224, 100.0, "latency", "memory-latency"),
        ({}, 0.0, 16, 100.0, "launch or idle", "grid-too-small"),
        ({}, 0.0, 4224, 100.0, "launch or idle", "load-imbalance"),
        ({}, 0.5, 4224, 2.0, "launch or idle", "launch-overhead"),
        ({}, 0.5, 4224, 12.0, "launch or idle", "launch-overhead"),
    ],
)
def test_regimes(
    slower: dict[str, float], follows: float, grid: int, us: float, first: str, rule: str
) -> None:
    found, told = regime.verdict(kernel(slower, follows=follows, grid=grid, us=us), H200)
    assert told is not None
    assert (told.first, told.bottleneck) == (first, rule)
    assert found.primary.bottleneck == rule
    assert found.primary.confidence in ("medium", "low")
    assert found.primary.speedup is None


def test_two_that_are_close_are_both_said() -> None:
    _, told = regime.verdict(kernel({"shared2": 0.2, "fma2": 0.5}), H200)
    assert told is not None
    assert set(told.either) == {"on-chip memory", "arithmetic"}
    assert told.confidence == "low"


def test_what_pressure_loses_tells_a_unit_that_the_kernel_keeps_to_itself() -> None:
    """An FP32 kernel that leaves no issue slot is hardly slower beside FFMAs: they are."""
    plain = kernel({"fma2": 0.04})
    rates = {"dram": (0.95,), "l2": (1.0,), "fma2": (0.12,), "shared2": (0.13,)}
    told = regime.tell(replace(plain, rates=rates), H200)
    assert told is not None
    assert told.first == "arithmetic"
    rates["fma2"] = (0.7,)
    told = regime.tell(replace(plain, rates=rates), H200)
    assert told is not None
    assert told.first == "on-chip memory"


def _measured() -> list[dict[str, Any]]:
    kernels: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))["kernels"]
    return kernels


def test_measured_kernels_are_told_as_the_page_says() -> None:
    text = (DATA.parents[1] / "probe.md").read_text(encoding="utf-8")
    counts: Counter[tuple[str, str, bool]] = Counter()
    for row in _measured():
        answers = {kind: regime.Response(*pair, 15) for kind, pair in row["responses"].items()}
        made = regime.scores(regime.seen(answers, row["kept"], row["unused"]))
        first = max(made, key=lambda name: made[name])
        assert first == row["first"], row["name"]
        where = row["name"].split("/")[0]
        counts[where, row["half"], first == row["counters"]] += 1
    for where, half in {(where, half) for where, half, _ in counts}:
        right, wrong = counts[where, half, True], counts[where, half, False]
        share = f"{right / (right + wrong):.0%}"
        assert f"| {where} | {half} | {right} ({share}) |" in text
    held_out = counts["pathology", "held out", True], counts["pathology", "held out", False]
    assert held_out[0] >= 0.8 * sum(held_out)


def test_without_experiments_the_shape_is_all() -> None:
    plain = KernelTrace(Launch("k", "k", (16, 1, 1), (256, 1, 1), 32), 1, 9e2, 9e2, 9e2, 9e2)
    found, told = regime.verdict(plain, H200)
    assert told is None
    assert found.primary.bottleneck == "grid-too-small"


def test_a_kind_with_few_runs_says_nothing() -> None:
    few = kernel({"dram": 1.0})
    conditions = {**few.conditions, "dram": few.conditions["dram"][:3]}
    assert "dram" not in regime.responses(conditions)


def test_every_resource_has_a_regime_and_every_rule_one_that_it_agrees_with() -> None:
    for name, rule in load_rules().items():
        assert all(unit in regime.OF_RESOURCE for unit in rule.UNITS), name
        if name != "unknown":
            assert any(regime.agrees(rule, each) for each in regime.REGIMES), name


def test_regimes_of_recorded_counters() -> None:
    wanted = {
        "shared_bank_conflict": "on-chip memory", "dram_bandwidth": "DRAM",
        "l2_bandwidth": "L2", "fp32_pipe": "arithmetic", "memory_latency": "latency",
        "grid_too_small": "launch or idle", "launch_overhead": "launch or idle",
    }  # fmt: skip
    found = {}
    for profile in recorded.run_of(recordings_root() / "h200-pathology").profiles:
        assert profile.context is not None
        if profile.context.rung in wanted:
            diagnosis = recorded.diagnosed(profile)
            found[profile.context.rung] = regime.of_counters(profile, diagnosis)
    assert found == wanted
