"""What scattered accesses explain beside waiting: until which load of memory latency is the cause, what
they cost where L1 serves the rest of each sector, and what comes first where nothing gains much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import diagnosis_cases as cases

from ncu_toolkit.base.model import Diagnosis, Finding
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
