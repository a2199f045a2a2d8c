"""Theoretical occupancy: against hand-worked cases, its own properties, and what ncu reports in
every file we hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.base.hardware.specs import (
    REGISTERS,
    SPECS,
    limits_of,
    next_steps,
    occupancy,
    what_if_block,
    what_if_registers,
    what_if_shared,
)

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"
if not CORPUS.is_dir():
    CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"


@pytest.mark.parametrize(
    ("cc", "threads", "registers", "shared", "limits", "blocks"),
    [
        # H100: 80 registers are 2560 per warp, 6 warps a partition, 24 warps; 256 threads are 8
        # warps.
        ((9, 0), 256, 80, 32768, {"warps": 8, "blocks": 32, "registers": 3, "shared memory": 6}, 3),
        # A100: 100 registers round up to 104, 3328 per warp, 4 warps a partition.
        ((8, 0), 128, 100, 0, {"warps": 16, "blocks": 32, "registers": 4, "shared memory": 164}, 4),
        # RTX 30: 16 block slots hold 16 warps of 32 threads.
        ((8, 6), 32, 32, 0, {"warps": 48, "blocks": 16, "registers": 64, "shared memory": 100}, 16),
        # Turing: 256-byte units, no driver part, and no shared memory means no limit by it.
        ((7, 5), 512, 64, 20000, {"warps": 2, "blocks": 16, "registers": 2, "shared memory": 3}, 2),
        ((7, 0), 1024, 32, 0, {"warps": 2, "blocks": 32, "registers": 2, "shared memory": 32}, 2),
        # 1024 threads at 65 registers need 72 * 1024 registers: more than a block may have.
        ((9, 0), 1024, 65, 0, {"warps": 2, "blocks": 32, "registers": 0, "shared memory": 228}, 0),
        # 5 warps are checked as 8: 5 * 255 registers would fit by themselves, and do.
        ((9, 0), 160, 255, 0, {"warps": 12, "blocks": 32, "registers": 1, "shared memory": 228}, 1),
        (
            (12, 0),
            256,
            128,
            49152,
            {"warps": 6, "blocks": 24, "registers": 2, "shared memory": 2},
            2,
        ),
    ],
)
def test_worked_cases(
    cc: tuple[int, int],
    threads: int,
    registers: int,
    shared: int,
    limits: dict[str, int],
    blocks: int,
) -> None:
    result = occupancy(cc, threads, registers, shared)
    assert {name: result.limits[name] for name in limits} == limits
    assert result.active_blocks == blocks
    assert result.active_warps == blocks * math.ceil(threads / 32)


def test_limiters_and_waves() -> None:
    result = occupancy((9, 0), 256, 80, 32768)
    assert result.limiters == ("registers",)
    assert result.percent == 37.5
    assert result.waves(132 * 3, 132) == 1.0
    assert result.waves(132 * 3 + 1, 132) > 1.0
    assert occupancy((9, 0), 1024, 65).waves(1, 132) == math.inf
    assert occupancy((9, 0), 1024, 65).limiters == ("registers",)
    assert occupancy((9, 0), 256, 32).limiters == ()
    assert occupancy((12, 0), 256, 128, 49152).limiters == ("registers", "shared memory")


def test_shared_configuration_limits_and_grows_to_fit_one_block() -> None:
    assert occupancy((9, 0), 256, 32, 0, shared_config=32768).limits["shared memory"] == 32
    assert occupancy((8, 6), 1024, 36, 8192, shared_config=16384).limits["shared memory"] == 1
    assert occupancy((8, 6), 256, 36, 20000, shared_config=8192).limits["shared memory"] == 1
    assert occupancy((8, 6), 256, 36, 20000).limits["shared memory"] == 4


def test_most_shared_memory_of_a_block() -> None:
    for cc, sm in SPECS.items():
        assert occupancy(cc, 128, 32, sm.shared_per_block).active_blocks == 1
        assert occupancy(cc, 128, 32, 0, sm.shared_per_block + 1).limits["shared memory"] == 0


def test_barriers() -> None:
    assert occupancy((9, 0), 128, 32, barriers=9).limits["barriers"] == 7
    assert occupancy((8, 9), 128, 32, barriers=16).limits["barriers"] == 1
    assert occupancy((9, 0), 128, 32, barriers=0).limits["barriers"] == 32


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (((6, 1), 128, 32), r"6\.1 is not known.*7\.0"),
        (((13, 0), 128, 32), r"13\.0 is not known"),
        (((9, 0), 0, 32), "block size 0 is out of range"),
        (((9, 0), 1025, 32), "block size 1025"),
        (((9, 0), 128, 300), "registers per thread 300"),
        (((9, 0), 128, 32, -1), "static shared memory -1"),
        (((9, 0), 128, 32, 0, 0, None, 17), "barriers 17"),
    ],
)
def test_nonsense_is_refused(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        occupancy(*arguments)


@given(
    st.sampled_from(sorted(SPECS)),
    st.integers(1, 1024),
    st.integers(0, 255),
    st.integers(0, 60000),
)
def test_never_more_than_the_multiprocessor_has(
    cc: tuple[int, int], threads: int, registers: int, shared: int
) -> None:
    sm, result = limits_of(cc), occupancy(cc, threads, registers, shared)
    assert 0 <= result.active_warps <= sm.warps
    assert result.active_blocks * result.warps_per_block * result.registers_allocated <= REGISTERS
    assert result.active_blocks * result.shared_allocated <= sm.shared
    fewer = occupancy(cc, threads, max(0, registers - 8), max(0, shared - 1024))
    assert fewer.active_blocks >= result.active_blocks


def test_what_if_and_the_nearest_step() -> None:
    base = occupancy((9, 0), 256, 80, 32768)
    assert what_if_registers(base)[73].active_blocks == 3
    assert what_if_registers(base)[65].active_blocks == 3, (
        "allocations round up: 64 is the last that fits four"
    )
    assert what_if_block(base)[256] == base
    assert what_if_shared(base)[32768].active_blocks == 3
    assert max(what_if_shared(base)) == 227 * 1024
    assert next_steps(base) == {"registers": 64}
    by_shared = occupancy((9, 0), 128, 32, 50000)
    assert by_shared.limiters == ("shared memory",)
    step = next_steps(by_shared)["shared memory"]
    assert occupancy((9, 0), 128, 32, step).active_blocks == by_shared.active_blocks + 1
    assert occupancy((9, 0), 128, 32, step + 128).active_blocks == by_shared.active_blocks


def launches() -> Iterator[Any]:
    """(file, launch, ncu_report action) of every complete launch in the corpus."""
    ncu_report = pytest.importorskip("ncu_report")
    for path in sorted(CORPUS.glob("*.ncu-rep")):
        context = ncu_report.load_report(str(path))
        for r in range(context.num_ranges()):
            for a in range(context.range_by_idx(r).num_actions()):
                action = context.range_by_idx(r).action_by_idx(a)
                if "launch__occupancy_limit_registers" in action.metric_names():
                    yield path.name, a, action


needs_corpus = pytest.mark.skipif(
    not any(CORPUS.glob("*.ncu-rep")), reason=f"no reports of other GPUs in {CORPUS.name}/"
)

#: Before 2022 ncu held shared memory against the largest configuration, later against the one in
#: use.
LARGEST_CONFIG = ("rtx3070-2020.3.ncu-rep", "a100-a.ncu-rep")


def inputs(file: str, action: Any) -> dict[str, Any]:
    def value(name: str) -> int:
        return int(action.metric_by_name(name).as_double())

    cc = (
        value("device__attribute_compute_capability_major"),
        value("device__attribute_compute_capability_minor"),
    )
    names = action.metric_names()
    return {
        "cc": cc,
        "block_threads": value("launch__block_size"),
        "registers": value("launch__registers_per_thread"),
        "shared_static": value("launch__shared_mem_per_block_static"),
        "shared_dynamic": value("launch__shared_mem_per_block_dynamic"),
        "shared_config": None
        if file in LARGEST_CONFIG
        else value("launch__shared_mem_config_size"),
        "barriers": value("launch__barrier_count") if "launch__barrier_count" in names else 1,
    }


@pytest.mark.corpus
@needs_corpus
def test_agrees_with_every_report() -> None:
    checked = 0
    for file, index, action in launches():
        result = occupancy(**inputs(file, action))
        reported = {
            "warps": "warps",
            "blocks": "blocks",
            "registers": "registers",
            "shared memory": "shared_mem",
            "barriers": "barriers",
        }
        for resource, name in reported.items():
            metric = action.metric_by_name(f"launch__occupancy_limit_{name}")
            if metric is not None:
                assert result.limits[resource] == metric.as_double(), (
                    f"{file} launch {index}: {resource}"
                )
        assert result.percent == pytest.approx(
            action.metric_by_name("sm__maximum_warps_per_active_cycle_pct").as_double()
        ), f"{file} launch {index}"
        waves = action.metric_by_name("launch__waves_per_multiprocessor").as_double()
        sm_count = int(action.metric_by_name("device__attribute_multiprocessor_count").as_double())
        grid = int(action.metric_by_name("launch__grid_size").as_double())
        assert result.waves(grid, sm_count) == pytest.approx(waves), f"{file} launch {index}"
        checked += 1
    assert checked >= 40


def table(action: Any, name: str) -> dict[int, float]:
    metric = action.metric_by_name(name)
    if metric is None or not metric.num_instances():
        return {}
    keys = metric.correlation_ids()
    return {int(keys.as_double(i)): metric.as_double(i) for i in range(metric.num_instances())}


@pytest.mark.corpus
@needs_corpus
def test_what_if_tables_agree_with_every_report() -> None:
    compared = 0
    for file, index, action in launches():
        arguments = inputs(file, action)
        base = occupancy(**arguments)
        sm = limits_of(base.cc)
        # ncu holds a kernel that did not opt in to the 48 KiB that need no opting in; ours assumes
        # that whoever asks for more opts in ncu also counts the driver's part into the most a block
        # may opt in to; CUDA does not (a block may ask for all 163 KiB of an A100)
        most_shared = (sm.shared_per_block if base.shared > 49152 else 49152) - sm.shared_reserved
        for name, changed, low, high, ours_is_less in (
            ("launch__occupancy_per_register_count", "registers", 1, 255, 0),
            ("launch__occupancy_per_block_size", "block_threads", 1, 1024, 0),
            # ncu counts the driver's part of each block into the size
            (
                "launch__occupancy_per_shared_mem_size",
                "shared_static",
                0,
                most_shared,
                sm.shared_reserved,
            ),
        ):
            reported = {
                k - ours_is_less: v
                for k, v in table(action, name).items()
                if low <= k - ours_is_less <= high
            }
            whole = {**arguments, "shared_static": base.shared, "shared_dynamic": 0}
            ours = {k: occupancy(**{**whole, changed: k}) for k in reported}
            wrong = {
                k: (v, ours[k].active_warps)
                for k, v in reported.items()
                if ours[k].active_warps != v
            }
            assert not wrong, (
                f"{file} launch {index}: {name}: (theirs, ours) {dict(list(wrong.items())[:8])}"
            )
            compared += len(reported)
    assert compared > 1000
