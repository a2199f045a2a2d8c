"""What a regime follows from: responses to pressure, and the shape of a launch."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import recorded

from ncu_toolkit.base.core import guests
from ncu_toolkit.base.document.views import Kind, answer
from ncu_toolkit.base.model import Device
from ncu_toolkit.base.model.profile import Launch
from ncu_toolkit.base.model.trace import KINDS, KernelTimes, KernelTrace
from ncu_toolkit.cli._common import shown_as
from ncu_toolkit.kernel.diagnosis import regime
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.explain.verdict import card
from ncu_toolkit.kernel.runs.store import recordings_root

DATA = recorded.ROOT / "docs" / "data" / "probe.json"
H200 = Device("NVIDIA H200", (9, 0), sm_count=132)


def kernel(
    slower: dict[str, float], *, follows: float = 1.0, grid: int = 4096, us: float = 100.0
) -> KernelTrace:
    """A kernel that each kind of pressure in `slower` makes longer by a fraction, and whose time
    goes with the multiprocessors to the power of `follows`."""
    noise = (0.998, 1.0, 1.001, 1.002, 1.0)
    conditions = {"plain": us, "half_occupancy": us, "beside": us * 1.05}
    for name, kind in KINDS.items():
        if kind.alone:
            alone = us * (1 / (1 - kind.alone)) ** follows
            conditions[name] = alone * (1 + slower.get(name, 0.0))
        else:
            conditions[name] = us * 1.05 * (1 + slower.get(name, 0.0))
    times = {name: tuple(middle * each for each in noise) for name, middle in conditions.items()}
    launch = Launch("k", "k", (grid, 1, 1), (256, 1, 1), 32, 0, 0)
    return KernelTrace(launch, 1, us, us, us, us, times)


def test_responses_are_against_the_control() -> None:
    found = regime.responses(kernel({"dram": 0.6, "fp32": 0.2}).conditions)
    assert found["dram"].slope == pytest.approx(0.6)
    assert found["fp32"].slope == pytest.approx(0.2)
    assert found["l2"].slope == pytest.approx(0.0)
    assert found["alone"].slope == pytest.approx(1 / 3)
    assert 0 < found["dram"].spread < 0.01


@pytest.mark.parametrize(
    ("slower", "follows", "grid", "us", "first", "rule"),
    [
        ({"dram": 1.0, "l2": 0.8}, 0.1, 4096, 100.0, "DRAM", "dram-bandwidth"),
        ({"dram": 0.1, "l2": 1.2}, 0.1, 4096, 100.0, "L2", "l2-bandwidth"),
        ({"shared": 3.0}, 1.0, 4096, 100.0, "on-chip memory", "l1-bandwidth"),
        ({"constant": 4.0}, 1.0, 4096, 100.0, "on-chip memory", "constant-cache-divergence"),
        ({"fp32": 0.9}, 1.0, 4096, 100.0, "arithmetic", "instruction-throughput"),
        ({"special": 1.2}, 1.0, 4096, 100.0, "arithmetic", "special-function-pressure"),
        ({"integer": 1.5}, 1.0, 4096, 100.0, "arithmetic", "instruction-throughput"),
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
    found, reported = regime.verdict(kernel(slower, follows=follows, grid=grid, us=us), H200)
    assert reported is not None
    assert (reported.first, reported.bottleneck) == (first, rule)
    assert found.primary.bottleneck == rule
    assert found.primary.confidence in ("medium", "low")
    assert found.primary.speedup is None


def test_many_short_blocks_are_a_matter_of_starting_them() -> None:
    found, reported = regime.verdict(kernel({"dram": 0.4}, grid=1 << 18, us=160.0), H200)
    assert reported is not None
    assert reported.first == "launch or idle"
    assert "Handing out its many short blocks" in found.primary.summary
    _, reported = regime.verdict(kernel({"dram": 0.4}, grid=1 << 16, us=160.0), H200)
    assert reported is not None
    assert reported.first != "launch or idle"


def test_what_clogs_the_l2_is_the_l2() -> None:
    """Contended atomics hold up all traffic; no traffic holds them up."""
    plain = kernel({"dram": 0.25}, follows=0.0)
    rates = {"dram": (0.3,), "l2": (0.3,), "fp32": (0.1,), "shared": (0.06,)}
    reported = regime.regime_of(replace(plain, rates=rates), H200)
    assert reported is not None
    assert reported.first == "L2"
    reported = regime.regime_of(replace(plain, rates={**rates, "l2": (0.9,)}), H200)
    assert reported is not None
    assert reported.first == "DRAM"


def test_what_the_stream_loses_is_what_the_kernel_takes() -> None:
    """A kernel that moves 0.7 of what the memory can, and the stream, share it: together they move
    all. One that the stream slows as much but that takes little of it waits for memory."""
    filling = replace(kernel({"dram": 0.5}, follows=0.1), rates={"dram": (0.55,)})
    found = regime.look(filling, H200)
    assert found.taken("dram") == pytest.approx(0.45 * 1.5 * (4 / 3) ** 0.1, rel=0.01)
    reported = regime.regime_of(filling, H200)
    assert reported is not None
    assert reported.first == "DRAM"
    waiting = regime.regime_of(replace(filling, rates={"dram": (0.8,)}), H200)
    assert waiting is not None
    assert waiting.first == "latency"


def test_two_that_are_close_are_both_said() -> None:
    _, reported = regime.verdict(kernel({"shared": 0.25, "fp32": 0.5}), H200)
    assert reported is not None
    assert set(reported.either) == {"on-chip memory", "arithmetic"}
    assert reported.confidence == "low"


def test_warps_that_wait_in_a_small_grid_are_both_said() -> None:
    """128 blocks of 256 threads leave four multiprocessors without one; the others have room for eight."""
    diagnosis, reported = regime.verdict(kernel({}, grid=128), H200)
    assert reported is not None
    assert reported.either == ("latency", "launch or idle")
    assert reported.confidence == "low"
    assert "Or it leaves much of the GPU unused" in diagnosis.primary.summary
    _, filled = regime.verdict(kernel({}), H200)
    assert filled is not None
    assert filled.either == ("latency",)


def _measured() -> list[dict[str, Any]]:
    kernels: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))["kernels"]
    return kernels


def test_measured_kernels_are_reported_as_the_page_says() -> None:
    text = (DATA.parents[1] / "probe.md").read_text(encoding="utf-8")
    counts: Counter[tuple[str, str, bool]] = Counter()
    for row in _measured():
        answers = {kind: regime.Response(*pair) for kind, pair in row["responses"].items()}
        made = regime.scores(regime.seen(answers, row["kept"], row["unused"]))
        first = max(made, key=lambda name: made[name]) if row["first"] else None
        assert first == row["first"], row["name"]
        where = row["name"].split("/")[0]
        where = where if where in ("pathology", "program", "field") else "ladders"
        counts[where, row["half"], first == row["counters"]] += 1
    for where, half in {(where, half) for where, half, _ in counts}:
        right, wrong = counts[where, half, True], counts[where, half, False]
        share = f"{right / (right + wrong):.0%}"
        assert f"| {where} | {half} | {right} ({share}) |" in text
    held_out = counts["pathology", "held out", True], counts["pathology", "held out", False]
    assert held_out[0] >= 0.8 * sum(held_out)


@pytest.mark.parametrize(
    ("slower", "follows", "words"),
    [
        ({"dram": 1.0, "l2": 0.8}, 0.1, "Confirmed: DRAM by experiments too (time alongside DRAM traffic +100 %"),
        ({"fp32": 0.9}, 1.0, "Contradicted: arithmetic by experiments, DRAM by counters (time alongside FP32 work +90 %"),
        ({"dram": 0.3, "fp32": 0.45}, 0.2, "Undecided: arithmetic or DRAM by experiments, DRAM by counters"),
    ],
)  # fmt: skip
def test_experiments_confirm_or_contradict_a_verdict(
    slower: dict[str, float], follows: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (profile,) = (
        profile
        for profile in recorded.run_of(recordings_root() / "h200-pathology").profiles
        if profile.context is not None and profile.context.rung == "dram_bandwidth"
    )
    assert profile.context is not None
    assert not card(profile, recorded.diagnosed(profile)).pressure
    times = kernel(slower, follows=follows, us=profile.duration_us or 0.0).conditions
    pressed = replace(profile, context=replace(profile.context, pressure_us=times))
    assert card(pressed, recorded.diagnosed(profile)).pressure.startswith(words)
    whole = answer([Kind(card(pressed, recorded.diagnosed(profile)), 1, 1.0, 1)])
    assert all(words in str(shown_as(whole, form)) for form in ("markdown", "brief"))
    mangled = replace(profile.launch, function="dram_bandwidth<float>")
    found = KernelTimes(
        profile.device, (replace(kernel({}), launch=mangled, conditions=times),), 1, 1, 1
    )
    if trace := guests.guest("probe.trace"):
        monkeypatch.setattr(trace, "run", lambda *_: 0)
        monkeypatch.setattr(trace, "plan", lambda _: {})
        monkeypatch.setattr(trace, "read", lambda _: found)
        confirmations = guests.guest("probe.command").confirmations
        (line,) = confirmations([profile, profile], ("python", "x.py"))
        assert line.startswith(f"dram_bandwidth: {words}")
    few = {name: times[name][:3] for name in times}
    pressed = replace(profile, context=replace(profile.context, pressure_us=few))
    assert "too few runs" in card(pressed, recorded.diagnosed(profile)).pressure


def test_a_kind_with_few_runs_says_nothing() -> None:
    few = kernel({"dram": 1.0})
    conditions = {**few.conditions, "dram": few.conditions["dram"][:3]}
    assert "dram" not in regime.responses(conditions)


def test_a_kernel_that_leaves_no_room_is_reported_with_low_confidence() -> None:
    whole = kernel({"dram": 1.0, "l2": 0.8}, follows=0.1)
    some = {name: us for name, us in whole.conditions.items() if name not in ("fp32", "shared")}
    found, reported = regime.verdict(replace(whole, conditions=some), H200)
    assert reported is not None
    assert (reported.first, reported.confidence) == ("DRAM", "low")
    message = "There was no room to test arithmetic and on-chip memory."
    assert message in found.primary.summary
    assert "no room" not in regime.verdict(whole, H200)[0].primary.summary
    none = kernel({}, follows=1.2)
    beside = ("beside", "fp32", "special", "shared", "constant")
    alone = {name: us for name, us in none.conditions.items() if name not in beside}
    reported = regime.regime_of(replace(none, conditions=alone), H200)
    assert reported is not None
    assert (reported.first, reported.second, reported.confidence) == (
        "arithmetic",
        "latency",
        "low",
    )
    del some["dram"]
    found, reported = regime.verdict(replace(whole, conditions=some), H200)
    assert reported is not None
    assert (reported.first, reported.confidence) == ("L2", "low")
    assert "no room to test DRAM and arithmetic" in found.primary.summary


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
