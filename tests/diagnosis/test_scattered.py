"""What scattered accesses explain beside waiting: until which load of memory latency is the cause, what
they cost where L1 serves the rest of each sector, and what comes first where nothing gains much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import diagnosis_cases as cases

from ncu_toolkit.base.model import Diagnosis, Finding, Profile
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.engine import _headed, diagnose, ranked
from ncu_toolkit.kernel.diagnosis.kernel import Kernel
from ncu_toolkit.kernel.diagnosis.rules import _launch

WAITING = {"selected": 1.0, "not_selected": 0.5, "wait": 1.0, "long_scoreboard": 40.0}
OPCODES = {"LDG.E": 3_200_000, "IMAD.WIDE": 1_600_000, "FADD": 1_600_000}


def gathered(part: float, **metrics: float) -> list[dict[str, Any]]:
    """b += x[idx[i]]: samples at the sum, `part` of them at the address of the gather."""
    loads = {"executed": 1_600_000, "threads": 51_200_000}
    side = {"l2_sectors": 6.4e6, "l2_sectors_ideal": 6.4e6, "l1_tag_requests": 1.6e6}
    apart = {"l2_sectors": 51.2e6, "l2_sectors_ideal": 6.4e6, "l1_tag_requests": 51.2e6}
    return [
        {"sass": "LDG.E R4, desc[UR4][R2.64]", **loads, "counters": side},
        {"sass": "IMAD.WIDE R6, R4, 0x4, R8", **loads, "samples": {"long_scoreboard": round(8000 * (1 - part))}},
        {"sass": "LDG.E R5, desc[UR4][R6.64]", **loads, "counters": apart},
        {"sass": "FADD R10, R5, R10", **loads, "samples": {"long_scoreboard": round(8000 * part)}},
    ]  # fmt: skip


def of(found: Diagnosis, name: str) -> Finding:
    return next(each for each in found.findings if each.bottleneck == name)


def test_a_gather_waits_for_latency_until_a_memory_unit_is_busy() -> None:
    """Between half and 60% of its peak no unit is the limit, so nothing hides what the index and then
    the gather take."""
    case = {"stalls": WAITING, "opcodes": OPCODES, "instructions": gathered(0.9)}
    for l2, waits in ((0.3, True), (0.55, True), (0.65, False)):
        found = diagnose(
            cases.build({**case, "metrics": {"l2_utilization": l2, "issue_active": 0.05}})
        )
        assert (found.primary.bottleneck == "memory-latency") == waits
        assert of(found, "uncoalesced-global-access").confidence == "medium"


def strided(stores: float) -> dict[str, Any]:
    """Loads of every other word, of which L1 serves the second half; `stores` sectors for each that
    their bytes need."""
    half = {"l2_sectors": 25.6e6, "l2_sectors_ideal": 12.8e6, "l1_tag_requests": 6.4e6}
    out = {"l2_sectors": 6.4e6 * stores, "l2_sectors_ideal": 6.4e6, "l1_tag_requests": 1.6e6}
    each = {"executed": 3_200_000, "threads": 102_400_000}
    return {
        "metrics": {
            "issue_active": 0.74, "dram_read_bytes": 4.1e8, "dram_write_bytes": 2.05e8, "dram_utilization": 0.5,
            "l2_utilization": 0.62, "l2_sectors_from_sm": 1.92e7, "l2_sectors": 1.92e7, "l1_fill_sectors": 1.28e7, "l1_hit_rate": 0.5,
            "global_load_sectors": 25.6e6, "global_load_requests": 3.2e6, "global_store_sectors": 6.4e6 * stores, "global_store_requests": 1.6e6,
        },
        "stalls": {"selected": 1.0, "not_selected": 2.0, "wait": 2.0, "long_scoreboard": 7.0},
        "opcodes": {"LDG.E": 3_200_000, "STG.E": 1_600_000, "IADD3": 60_000_000, "FADD": 90_000_000},
        "thread_opcodes": {"LDG.E": 102_400_000, "STG.E": 51_200_000, "IADD3": 1_920_000_000, "FADD": 2_880_000_000},
        "instructions": [
            {"sass": "LDG.E R4, desc[UR4][R2.64]", **each, "counters": half},
            {"sass": "FADD R10, R4, R10", "executed": 90_000_000, "samples": {"long_scoreboard": 8000}},
            {"sass": "STG.E desc[UR4][R6.64], R10", "executed": 1_600_000, "threads": 51_200_000, "counters": out},
        ],
    }  # fmt: skip


def test_sectors_that_l1_serves_are_no_load_of_l2() -> None:
    """Stores pass L1, so what they waste is L2's."""
    relieved = {}
    for stores in (1.0, 2.0):
        profile = cases.build(strided(stores))
        assert _launch.within_l1(Kernel.of(profile))
        scattered = cases.outcome("uncoalesced-global-access", profile)
        relieved[stores] = scattered.relieves["l2"] if isinstance(scattered, Finding) else 1.0
    assert relieved[1.0] > 0.95
    assert relieved[2.0] < 0.7
    assert diagnose(cases.build(strided(1.0))).primary.bottleneck != "uncoalesced-global-access"


def test_loads_of_one_value_are_no_missing_reuse() -> None:
    found = diagnose(cases.build(cases.read("global-instruction-pressure.alike")))
    (why,) = (each for each in found.considered if each.bottleneck == "missing-data-reuse")
    assert "broadcast one value" in why.reason


def test_where_nothing_gains_much_the_largest_gain_is_first() -> None:
    """A particular cause goes before a general one within the accuracy of gains, but no headline is made
    of 1.04x."""
    case = {"stalls": WAITING, "opcodes": OPCODES, "instructions": gathered(0.1)}
    some = diagnose(cases.build({**case, "metrics": {"l2_utilization": 0.3, "issue_active": 0.05}}))
    scattered, latency = (
        of(some, name) for name in ("uncoalesced-global-access", "memory-latency")
    )
    idle = Kernel.of(cases.build({}))
    for gains in ((1.04, 1.09), (1.25, 1.3)):
        small = [
            replace(f, speedup=g, weight=1 - 1 / g)
            for f, g in zip((scattered, latency), gains, strict=True)
        ]
        first = _headed(ranked(small), idle, 0)[0].bottleneck
        assert first == ("memory-latency" if gains[0] < 1.1 else "uncoalesced-global-access")


#: Compare-and-swap on random slots: nearly all waiting is for its results, a microsecond each.
SLOTS: dict[str, Any] = {
    "metrics": {
        "l2_atomic_unit_active": 0.14, "l2_atomic_unit_busiest": 0.141, "l2_utilization": 0.4, "issue_active": 0.05,
        "instructions": 16_000_000, "l2_sectors_from_sm": 4.0e7,
    },
    "stalls": {"selected": 1.0, "wait": 2.0, "long_scoreboard": 170.0},
    "opcodes": {"LDG.E": 800_000, "ATOMG.E.CAS.STRONG.GPU": 800_000, "ISETP": 14_400_000},
    "thread_opcodes": {"LDG.E": 25_600_000, "ATOMG.E.CAS.STRONG.GPU": 25_600_000},
    "instructions": [
        {"sass": "LDG.E R3, desc[UR4][R2.64]", "executed": 800_000, "threads": 25_600_000,
         "counters": {"l2_sectors": 3.2e6, "l2_sectors_ideal": 3.2e6}},
        {"sass": "ATOMG.E.CAS.STRONG.GPU PT, R6, [R4], R2, R3", "executed": 800_000, "threads": 25_600_000,
         "counters": {"l2_sectors": 25.6e6, "l2_sectors_ideal": 3.2e6}},
        {"sass": "ISETP.NE.AND P0, PT, R6, R9, PT", "executed": 800_000, "threads": 25_600_000, "samples": {"long_scoreboard": 9000}},
    ],
}  # fmt: skip


def slots(sectors: float = 25.6e6, **metrics: float) -> Profile:
    """The launch with other metrics, and atomics that touch other sectors."""
    load, atomic, test = SLOTS["instructions"]
    counters = {"l2_sectors": sectors, "l2_sectors_ideal": 3.2e6}
    rows = [load, {**atomic, "counters": counters}, test]
    return cases.build({**SLOTS, "metrics": {**SLOTS["metrics"], **metrics}, "instructions": rows})


def test_updates_that_never_meet_wait_for_their_sectors() -> None:
    apart, few, met = slots(), slots(l2_atomic_unit_active=0.01), slots(3.2e6)
    assert [figures.updates_apart(each) for each in (apart, few, met)] == [True, False, False]
    first = diagnose(apart).primary
    assert first.bottleneck == "uncoalesced-global-access"
    assert first.confidence == "medium"
    assert any(
        "long scoreboard" in line and "removed by the change" in line for line in first.arithmetic
    )
    assert _launch.queued_behind_atomics(Kernel.of(apart)) == 0
    assert _launch.queued_behind_atomics(Kernel.of(few)) > 0.4
    for each in (few, met):
        assert diagnose(each).primary.bottleneck == "atomic-contention"


def test_blocks_skip_a_part_only_where_none_of_theirs_wait() -> None:
    """Behind the part all pass a barrier. With a few warps of each block at work the others wait there."""
    case = cases.read("idle-threads.blocks")

    def found(waiting: int, opcode: str = "BAR.SYNC") -> set[str]:
        rows = [dict(row) for row in case["instructions"]]
        rows[7]["sass"] = rows[7]["sass"].replace("BAR.SYNC", opcode)
        rows[8]["samples"] = {"barrier": waiting, "short_scoreboard": 600}
        stalls = {**case["stalls"], "barrier": 4.0 * waiting / 1200}
        shown = diagnose(cases.build({**case, "instructions": rows, "stalls": stalls})).findings
        facts = {
            fact.metric
            for each in shown
            for fact in each.evidence
            if each.bottleneck == "barrier-imbalance"
        }
        return {each.bottleneck for each in shown} | facts & {"warps_at_work"}

    assert "idle-threads" in found(1200)
    assert "warps_at_work" not in found(1200)
    assert {"barrier-imbalance", "warps_at_work"} <= found(60000)
    assert "idle-threads" not in found(60000) | found(1200, "NOP")


def test_blocks_have_no_work_only_where_most_reach_no_memory() -> None:
    """Not where as many lanes load as there are blocks, each perhaps of another; nor where all compute
    first, and those that found something read and write then."""
    case = cases.read("idle-threads.unread")

    def found(rows: list[dict[str, Any]]) -> set[str]:
        return {
            f.bottleneck for f in diagnose(cases.build({**case, "instructions": rows})).findings
        }

    first, load, *loop, store, end = case["instructions"]
    assert "idle-threads" in found([first, load, *loop, store, end])
    assert "idle-threads" not in found([first, {**load, "threads": 10560}, *loop, store, end])
    assert "idle-threads" not in found([first, *loop, load, store, end])


def test_more_blocks_shorten_no_chain_of_loads() -> None:
    """Where all threads run at once. Where addresses are counted the loop can be split over more."""
    case = cases.read("memory-latency")
    load, step = case["instructions"]

    def found(waves: float, sass: str) -> set[str]:
        metrics = {
            "waves": waves,
            "active_fraction": 0.4,
            "imbalance": 2.5,
            "sm_active_cycles": 7e5,
        }
        rows = [load, {**step, "sass": sass}]
        few = {"grid": [64, 1, 1], "block": [32, 1, 1]}
        changed = {**case, "metrics": {**case["metrics"], **metrics}, "instructions": rows}
        return {f.bottleneck for f in diagnose(cases.build({**changed, "launch": few})).findings}

    chased, counted = "IMAD.WIDE R2, R4, R8, R6", "IMAD.WIDE R2, R9, R8, R6"
    assert "memory-latency" in found(0.02, chased)
    assert not {"grid-too-small", "load-imbalance"} & found(0.02, chased)
    assert "grid-too-small" in found(0.02, counted)


def test_full_warps_run_no_more_threads_than_there_are() -> None:
    """With blocks that wait for room they do; where all run at once, as many threads in fewer warps wait
    as long."""
    case = cases.read("idle-threads")
    waiting = {"selected": 1.0, "long_scoreboard": 30.0}

    def saved(waves: float) -> float:
        metrics = {**case["metrics"], "waves": waves, "issue_active": 0.1}
        found = diagnose(cases.build({**case, "metrics": metrics, "stalls": waiting})).findings
        return sum(each.saved for each in found if each.bottleneck == "idle-threads")

    assert saved(20.0) > 0.5
    assert saved(0.5) == 0.0
