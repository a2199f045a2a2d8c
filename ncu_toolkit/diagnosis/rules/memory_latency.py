"""Warps wait for loads one after another, with too few under way to cover the time that each takes.

What it is
A load from L2 takes some 200 to 300 cycles, from device memory 500 to 800. A warp that needs the
value stops. The hardware hides this by running other warps, and by letting one warp issue several
independent loads before it needs the first.

Why it costs time
By Little's law throughput is (loads in flight) / latency. With few warps, or with each load waiting
for the one before, neither the memory nor the arithmetic is busy: everybody waits.

How to confirm
Long scoreboard is the largest stall, issue slots are idle, and no level of memory is near its peak.
The instructions named are the loads waited for.

What to change
Issue several independent loads before the first use (unroll, process several elements a thread),
prefetch the next tile into registers or by asynchronous copy while computing on this one, and raise
occupancy where it is low. Replace chains of pointers by indices that can be computed.

When the advice is wrong
When memory is already busy, more loads in flight only wait longer: reduce or widen the traffic
instead.

Source
Little's law; CUDA C++ Best Practices Guide, "Latency hiding"; latencies: Jia et al., "Dissecting
the NVIDIA Volta GPU Architecture via Microbenchmarking", and its successors.
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules._access import (
    dependent_loads,
    is_coalesced,
    loads_in_flight,
    queued_behind_atomics,
)
from ncu_toolkit.diagnosis.rules._support import (
    SATURATED,
    WEAK_STALL,
    abstain,
    blame,
    fact,
    finding,
    locate_stall,
    memory_load,
    missing,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import RESOURCES, Removal, TimeModel
from ncu_toolkit.model import Finding, Profile, Ruled
from ncu_toolkit.sass import attribution

ID: Final = "memory-latency"
TITLE: Final = "Memory latency"
REQUIRES: Final = ("stalls",)
OPTIONAL: Final = ("issue_active", "active_warps", "dram_utilization")
#: Loads in flight a warp where there was one: the usual first step, an unroll by four, for four
#: registers.
IN_FLIGHT: Final = 4
#: Twice that: with half of an SM's 64 warps, 8 loads of 4 bytes a lane are 32 KiB under way; a
#: latency of 800 cycles asks for 16 KiB at an SM's part of the bandwidth (20 bytes a cycle on an
#: H200).
ENOUGH: Final = 8


def find(profile: Profile, model: TimeModel) -> Finding | Ruled:
    if absent := missing(profile, REQUIRES):
        return abstain(ID, absent)
    part = blame(profile, "long_scoreboard", ("global", "texture"))
    waiting = model.waiting("long_scoreboard") * part
    measured = stall_fact(profile, "long_scoreboard", WEAK_STALL)
    if waiting < WEAK_STALL.value:
        return ruled_out(
            ID,
            f"Warps wait for global loads for only {units.percent(waiting)} of their time.",
            measured,
        )
    busiest, busy = model.busiest(
        "lsu", "l1_tag", "l1_data", "l1_writeback", "l1", "fill", "l2", "dram"
    )
    if busy >= SATURATED.value:
        return ruled_out(
            ID,
            f"{RESOURCES[busiest][2][:1].upper()}{RESOURCES[busiest][2][1:]} is {units.percent(busy)} busy: loads wait for bandwidth, not for "
            "latency.",
            measured,
        )
    if not is_coalesced(profile) and memory_load(model) > 0.5:
        return ruled_out(
            ID,
            "Scattered accesses keep memory busy, which is why loads are late: see uncoalesced-global-access.",
            measured,
        )
    if queued_behind_atomics(profile, model) >= 0.5:
        return ruled_out(
            ID,
            "Loads are late because they wait in line behind atomic updates: see atomic-contention.",
            measured,
        )
    # What is spent in queues stays: more loads in flight only make them longer.
    queued = model.queued("long_scoreboard")
    # A value on its way to a shared tile can be fetched a tile ahead, so that nobody waits; others,
    # a few at a time.
    staged = min(part, _staged_part(profile))
    now = loads_in_flight(profile) or 1.0
    # One load becomes four, more become twice as many; those that have ENOUGH under way do not wait
    # for want of loads.
    more = 1.0 if now >= ENOUGH else max(1 / IN_FLIGHT, min(1 / 2, now / IN_FLIGHT))
    left = 1 - (1 - queued) * (staged + (part - staged) * (1 - more))
    ahead = staged > part / 2
    few, many = units.significant(now, 2), units.significant(now / more, 2)
    how = (
        "with the next tile fetched ahead"
        if ahead
        else f"with {many} loads in flight where there were {few}"
    )
    removal = Removal(how, stalls={"long_scoreboard": left})
    chased = dependent_loads(profile)
    chain = (
        f" {units.percent(chased)} of it is for loads whose address comes from another load."
        if chased >= 0.1
        else ""
    )
    several = f"Where warps wait, {few} loads are under way already: issue twice as many, or run more warps."
    advice = [several] if now >= 2 else []
    if figures.executed(profile, ("copy",)):
        advice.append(
            "Start the asynchronous copies of the next tile before computing on this one, and wait only for the oldest."
        )
    elif figures.executed(profile, ("shared",)) != 0:
        advice.append(
            "Load the next tile while computing on this one (registers, or cp.async into a second buffer)."
        )
    else:
        advice.append("Load what the next round of the loop needs while computing on this one.")
    if now < 2:
        one = "Issue several independent loads before using the first: unroll the loop, or give each thread several elements."
        advice.insert(1 if ahead else 0, one)
    if chased >= 0.5:
        advice.insert(
            0,
            "Break the chain: compute addresses instead of loading them, follow several chains at once, or store what is needed next to the index.",
        )
    return finding(
        ID,
        f"Threads stand still until data arrive from memory, and too few loads are under way to cover that: {units.percent(waiting)} of a warp's "
        f"time.{chain}",
        model.without(removal),
        (
            measured,
            fact(profile, "issue_active"),
            fact(profile, "active_warps"),
            fact(profile, "dram_utilization"),
            fact(profile, "l2_hit_rate"),
            fact(profile, "l1_hit_rate"),
        ),
        advice,
        "Several LDG in a row before the first use; long scoreboard shrinks, issue slots and memory throughput rise.",
        confidence="high" if waiting >= 0.3 else "medium",
        locations=locate_stall(profile, "long_scoreboard", ("global", "texture")),
    )


def _staged_part(profile: Profile) -> float:
    """Part of the long-scoreboard waiting that is at stores to shared memory."""
    sampled = [
        (attribution.kind(row.opcode) == "shared", row.samples.get("long_scoreboard", 0))
        for row in profile.instructions
    ]
    total = sum(n for _, n in sampled)
    return sum(n for shared, n in sampled if shared) / total if total else 0.0
