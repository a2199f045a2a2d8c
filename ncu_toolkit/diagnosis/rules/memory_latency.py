"""Warps wait for loads one after another, with too few under way to cover the time that each takes.

What it is
A load from L2 takes some 200 to 300 cycles, from device memory 600 to 800. A warp that needs the
value stops. The hardware hides this by running other warps, and by letting one warp issue several
independent loads before it needs the first.

Why it costs time
By Little's law throughput is (loads in flight) / latency. With few warps, or with each load waiting
for the one before, neither the memory nor the arithmetic is busy, and all warps wait.

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
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules import Specificity, _code
from ncu_toolkit.diagnosis.rules._access import (
    ENOUGH,
    busiest_with_loads,
    dependent_loads,
    is_coalesced,
    loads_in_flight,
    queued_behind_atomics,
    shared_wavefront_part,
)
from ncu_toolkit.diagnosis.rules._code import (
    KernelFacts,
    StaticFinding,
    evidence,
    locations,
    memory_levels,
)
from ncu_toolkit.diagnosis.rules._support import (
    SATURATED,
    WEAK_STALL,
    blame,
    capital,
    fact,
    finding,
    keep,
    locate_stall,
    memory_load,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import RESOURCES, Removal, TimeModel
from ncu_toolkit.model import Finding, NoFinding, Profile
from ncu_toolkit.sass import attribution
from ncu_toolkit.sass.opcodes import GLOBAL_LOADS

ID: Final = "memory-latency"
TITLE: Final = "Memory latency"
REQUIRES: Final = ("stalls",)
OPTIONAL: Final = ("issue_active", "active_warps", "dram_utilization")
NCU: Final = (
    ("CPIStall", "long scoreboard"),
    ("SOLBottleneck", "latency"),
    ("IssueSlotUtilization", ""),
)
WAITS: Final = {"long_scoreboard": "", "membar": "", "drain": ""}
CODE_RANK: Final = 7
open_in_code = memory_levels
#: Loads in flight a warp where there was one: the usual first step, an unroll by four, for four
#: registers.
IN_FLIGHT: Final = 4


class Words:
    few = "Warps wait for global loads for only {waiting} of their time."
    bandwidth = "Loads wait for bandwidth, not for latency ({unit}, {busy} busy)."
    scattered = (
        "Scattered accesses keep memory busy and delay loads: see Uncoalesced global access."
    )
    atomics = "Loads queue behind atomic updates: see Atomic contention."
    tile_ahead = "with the next tile fetched ahead"
    more_loads = "with {many} loads in flight instead of {few}"
    copied = "Asynchronous copies do not pass through registers. That is {part} of the work of L1's data stage."
    chain = " {chased} of the waiting is for loads whose address comes from another load."
    several = "Each warp already has {few} loads in flight. Issue twice as many, or run more warps."
    copies = "Issue the asynchronous copies of the next tile before computing on this one. Wait only for the oldest."
    next_tile = "Load the next tile while computing on this one (into registers, or by cp.async into a second buffer)."
    next_round = "Load the data of the next iteration while computing on this one."
    independent = "Issue several independent loads before using the first: unroll the loop, or give each thread several elements."
    break_chain = (
        "Break the chain: compute addresses instead of loading them, follow several chains at once, or store the data next to "
        "the index."
    )
    staged = "Raise num_stages to 3 or 4, so that the next tiles are under way during the products of this one."
    in_loop = "If it loads in a loop, raise num_stages (tl.range(..., num_stages=3)), so that the next loads are under way during this step."
    larger_block = "Give each program more independent loads: a larger block, or fewer warps for it (num_warps)."
    into_registers = "Load the next tile into registers while computing on this one."
    found = "Too few loads are in flight to hide memory latency. Warps spend {waiting} of their time waiting for loads.{chain}"
    look_for = "Several LDG in a row before the first use, fewer long scoreboard stalls, busier issue slots and memory."
    code = "In the loop, each load's address comes from the load before it, so every load waits for the full memory latency."
    code_advice = "Compute the address instead of loading it, or follow several chains at once."
    code_look_for = "Long scoreboard is the largest stall, and no memory level is busy."


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    part = blame(profile, "long_scoreboard", ("global", "texture"))
    waiting = model.waiting("long_scoreboard") * part
    measured = stall_fact(profile, "long_scoreboard", WEAK_STALL)
    if waiting < WEAK_STALL.value:
        return ruled_out(ID, Words.few.format(waiting=units.percent(waiting)), measured)
    busiest, busy = busiest_with_loads(profile, model)
    if busy >= SATURATED.value:
        return ruled_out(
            ID,
            Words.bandwidth.format(unit=capital(RESOURCES[busiest][2]), busy=units.percent(busy)),
            measured,
        )
    if not is_coalesced(profile) and memory_load(model) > 0.5:
        return ruled_out(ID, Words.scattered, measured)
    if queued_behind_atomics(profile, model) >= 0.5:
        return ruled_out(ID, Words.atomics, measured)
    # What is spent in queues stays: more loads in flight only make them longer.
    queued = model.queue(busy)
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
    how = Words.tile_ahead if ahead else Words.more_loads.format(many=many, few=few)
    passed = _through_registers(profile) * staged / part if ahead else 0.0
    removal = Removal(
        how,
        stalls={"long_scoreboard": left},
        loads=dict.fromkeys(("l1_data", "l1_writeback"), keep(passed, 0.0)) if passed else {},
        basis=Words.copied.format(part=units.percent(passed)) if passed else "",
    )
    chased = dependent_loads(profile)
    chain = Words.chain.format(chased=units.percent(chased)) if chased >= 0.1 else ""
    several = Words.several.format(few=few)
    advice = [several] if now >= 2 else []
    written = language.language(profile)
    if written == "triton":
        product = figures.executed(profile, ("tensor",))
        advice = [Words.staged] if product else [Words.larger_block, Words.in_loop]
    elif figures.executed(profile, ("copy",)):
        advice.append(Words.copies)
    elif figures.executed(profile, ("shared",)) != 0:
        advice.append(Words.next_tile if written == "cuda" else Words.into_registers)
    else:
        advice.append(Words.next_round)
    if now < 2 and written != "triton":
        one = Words.independent
        advice.insert(1 if ahead else 0, one)
    if chased >= 0.5:
        advice.insert(0, Words.break_chain)
    return finding(
        ID,
        Words.found.format(waiting=units.percent(waiting), chain=chain),
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
        Words.look_for,
        confidence="high" if waiting >= 0.3 else "medium",
        locations=locate_stall(profile, "long_scoreboard", ("global", "texture")),
    )


def specificity(finding: Finding) -> Specificity:
    return Specificity.SYMPTOM


def in_code(facts: KernelFacts) -> StaticFinding | None:
    dependent = _code.dependent_loads(facts.main)
    loads = sum(i.base in GLOBAL_LOADS for i in facts.main.code)
    if not dependent or len(dependent) * 2 < loads:
        return None
    in_flight = facts.main.loads_in_flight
    return StaticFinding(
        ID, "likely" if in_flight <= 1 else "possible",
        Words.code,
        (
            evidence("chased_loads", "Loads with a loaded address", len(dependent), "count", f"Of {loads} global loads in the main loop.", 0, ">"),
            evidence("loads_in_flight", "Loads in flight a thread", in_flight, "count", "The most that one thread can have in flight in the loop."),
        ),
        Words.code_advice, Words.code_look_for, locations(dependent, "dependent loads"),
    )  # fmt: skip


def _through_registers(profile: Profile) -> float:
    """Part (0-1) of the work of L1's data stage that is to bring what is loaded from global memory
    into registers. Asynchronous copies, which GPUs have from compute capability 8.0 on, write it to
    shared memory at once (CUDA C++ Programming Guide, "Asynchronous Data Copies"). 0 where it
    cannot be told."""
    if profile.device.cc < (8, 0) or not profile.value("shared_wavefronts"):
        return 0.0
    return 1 - shared_wavefront_part(profile)


def _staged_part(profile: Profile) -> float:
    """Part of the long-scoreboard waiting that is at stores to shared memory."""
    sampled = [
        (attribution.kind(row.opcode) == "shared", row.samples.get("long_scoreboard", 0))
        for row in profile.instructions
    ]
    total = sum(n for _, n in sampled)
    return sum(n for shared, n in sampled if shared) / total if total else 0.0
