"""Warps wait for loads one after another, with too few in flight to cover the time that each takes.

What it is
A load from L2 takes some 200 to 300 cycles, from device memory 600 to 800. A warp that needs the value stops. The
hardware hides this by running other warps, and by letting one warp issue several independent loads before it needs the
first.

Why it costs time
By Little's law throughput is (loads in flight) / latency. With few warps, or with each load waiting for the one before,
neither the memory nor the arithmetic is busy, and all warps wait.

How to confirm
Long scoreboard is the largest stall, issue slots are idle, and no level of memory is near its peak. The instructions
named are the loads waited for.

What to change
Issue several independent loads before the first use (unroll, process several elements per thread), prefetch the next
tile into registers or by asynchronous copy while computing on this one, and raise occupancy where it is low. Replace
chains of pointers by indices that can be computed.

When the advice is wrong
When memory is already busy, more loads in flight only wait longer: reduce or widen the traffic instead.

Source
Little's law; CUDA C++ Best Practices Guide, "Latency hiding"; latencies: Jia et al., "Dissecting the NVIDIA Volta GPU
Architecture via Microbenchmarking", and its successors.
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, capital, keep, percent
from ncu_toolkit.kernel.diagnosis.rules import (
    KernelFacts,
    Specificity,
    StaticFinding,
    _launch,
    dependent_loads_in,
    evidence,
    memory_levels,
)
from ncu_toolkit.kernel.diagnosis.thresholds import BUSY, SATURATED, WEAK_STALL
from ncu_toolkit.kernel.diagnosis.time_model import RESOURCES
from ncu_toolkit.kernel.sass.opcodes import GLOBAL_LOADS

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
#: Loads in flight per warp where there was one: the usual first step, an unroll by four, for four
#: registers.
IN_FLIGHT: Final = 4
TRITON_PRODUCT: Final = (
    "Raise num_stages to 3 or 4, so that the next tiles are in flight during the products of this one.",
)
TRITON: Final = (
    "Give each program more independent loads: a larger block, or fewer warps for it (num_warps).",
    "If it loads in a loop, raise num_stages (tl.range(..., num_stages=3)), so that the next loads are in flight during this step.",
)


def find(k: Kernel) -> Outcome:
    part = k.blame("long_scoreboard", "global", "texture")
    waiting = k.model.waiting("long_scoreboard") * part
    measured = k.stall("long_scoreboard", WEAK_STALL)
    if reason := _not_the_limit(k, waiting):
        return k.ruled_out(reason, measured)
    chased = _launch.dependent_loads(k)
    chain = (
        f" {percent(chased)} of the waiting is for loads whose address comes from another load."
        if chased >= 0.1
        else ""
    )
    # A value on its way to a shared tile can be fetched a tile ahead, so that nobody waits; others,
    # a few at a time.
    staged = min(part, k.sampled_at("long_scoreboard", k.places("shared")))
    return k.finding(
        f"Too few loads are in flight to hide memory latency. Warps spend {percent(waiting)} of their time waiting for loads.{chain}",
        _in_flight(k, part, staged),
        (measured, "issue_active active_warps dram_utilization l2_hit_rate l1_hit_rate"),
        _advice(k, staged > part / 2),
        "Several LDG in a row before the first use, fewer long scoreboard stalls, busier issue slots and memory.",
        confidence="high" if waiting >= 0.3 else "medium",
        locations=k.locate_stall("long_scoreboard", ("global", "texture")),
    )


specificity = Specificity.SYMPTOM.always


def _not_the_limit(k: Kernel, waiting: float) -> str:
    """Why the latency of loads is not what warps wait for; "" where it is."""
    if waiting < WEAK_STALL.value:
        return f"Warps wait for global loads for only {percent(waiting)} of their time."
    busiest, busy = _launch.busiest_with_loads(k)
    if busy >= SATURATED.value:
        return f"Loads wait for bandwidth, not for latency ({capital(RESOURCES[busiest][2])}, {percent(busy)} busy)."
    if not _launch.is_coalesced(k) and _launch.memory_load(k) >= BUSY.value:
        return "Scattered accesses keep memory busy and delay loads: see Uncoalesced global access."
    queued = _launch.queued_behind_atomics(k) >= 0.5
    return "Loads queue behind atomic updates: see Atomic contention." if queued else ""


def _in_flight(k: Kernel, part: float, staged: float) -> Removal:
    """More loads under way, or the next tile, where most of `part` is for values of tiles (`staged`)."""
    # What is spent in queues stays: more loads in flight only make them longer.
    queued = k.model.queue(_launch.busiest_with_loads(k)[1])
    now = _launch.loads_in_flight(k) or 1.0
    # One load becomes four, more become twice as many; those that have ENOUGH under way do not wait
    # for want of loads.
    more = 1.0 if now >= _launch.ENOUGH else max(1 / IN_FLIGHT, min(1 / 2, now / IN_FLIGHT))
    left = 1 - (1 - queued) * (staged + (part - staged) * (1 - more))
    passed, basis, loads = 0.0, "", {}
    few, many = units.significant(now, 2), units.significant(now / more, 2)
    how = f"with {many} loads in flight instead of {few}"
    if staged > part / 2:
        how = "with the next tile fetched ahead"
        # Asynchronous copies write to shared memory at once (CUDA C++ Programming Guide, "Asynchronous Data Copies").
        if k.device.cc >= (8, 0) and k["shared_wavefronts"]:
            passed = (1 - _launch.shared_wavefront_part(k)) * staged / part
    if passed:
        basis = f"Asynchronous copies do not pass through registers. That is {percent(passed)} of the work of L1's data stage."
        loads = dict.fromkeys(("l1_data", "l1_writeback"), keep(passed, 0.0))
    return Removal(how, stalls={"long_scoreboard": left}, loads=loads, basis=basis)


def _advice(k: Kernel, ahead: bool) -> list[str]:
    """What puts more loads in flight, first where the next tile is to be fetched `ahead`."""
    now = _launch.loads_in_flight(k) or 1.0
    several = "Issue several independent loads before using the first: unroll the loop, or give each thread several elements."
    if now >= 2:
        several = f"Each warp already has {units.significant(now, 2)} loads in flight. Issue twice as many, or run more warps."
    words = "Load the data of the next iteration while computing on this one."
    if k.executed("copy"):
        words = "Issue the asynchronous copies of the next tile before computing on this one. Wait only for the oldest."
    elif k.executed("shared") != 0:
        words = "Load the next tile while computing on this one (into registers, or by cp.async into a second buffer)."
        if k.language != "cuda":
            words = "Load the next tile into registers while computing on this one."
    advice = [words, several] if ahead and now < 2 else [several, words]
    if k.language == "triton":
        advice = [*(TRITON_PRODUCT if k.executed("tensor") else TRITON)]
    chain = "Break the chain: compute addresses instead of loading them, follow several chains at once, or store the data next to the index."
    return [chain, *advice] if _launch.gathers(k) else advice


def in_code(facts: KernelFacts) -> StaticFinding | None:
    dependent = dependent_loads_in(facts.main)
    loads = sum(i.base in GLOBAL_LOADS for i in facts.main.code)
    if not dependent or len(dependent) * 2 < loads:
        return None
    in_flight = facts.main.loads_in_flight
    return facts.finding(
        "likely" if in_flight <= 1 else "possible",
        "In the loop, each load's address comes from the load before it, so every load waits for the full memory latency.",
        (
            evidence("chased_loads", "Loads with a loaded address", len(dependent), "count", f"Of {loads} global loads in the main loop.", (0, ">")),
            evidence("loads_in_flight", "Loads in flight per thread", in_flight, "count", "The most that one thread can have in flight in the loop."),
        ),
        "Compute the address instead of loading it, or follow several chains at once.",
        "Long scoreboard is the largest stall, and no memory level is busy.",
        dependent, "dependent loads",
    )  # fmt: skip
