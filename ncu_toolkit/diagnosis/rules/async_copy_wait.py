"""A pipeline of asynchronous copies is too short: warps wait at the place where the copy should
already have landed.

What it is
Asynchronous copies (cp.async, TMA) move tiles from global to shared memory while the warps compute
on an earlier tile. The prefetch distance is how many tiles ahead a copy is issued. At distance zero
the warp issues a copy and waits for it at once: a pipeline in name only.

Why it costs time
Each tile then costs the full latency of memory, with the arithmetic idle meanwhile.

How to confirm
LDGSTS or TMA instructions in the mix, and long scoreboard or barrier stalls at the wait (DEPBAR,
the barrier behind it, or an mbarrier test).

What to change
Issue copies at least two tiles ahead, wait only for the oldest (cp.async.wait_group N-1; for TMA
the mbarrier of its stage), and give each stage a buffer and barrier of its own. Check that buffers
do not alias.

When the advice is wrong
When memory bandwidth is the limit, a deeper pipeline only queues. More stages take shared memory,
which may cost occupancy.

Source
CUDA C++ Programming Guide, "Asynchronous Data Copies"; CUTLASS documentation, "Efficient GEMM"
(pipelining).
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules._support import (
    SATURATED,
    WEAK_STALL,
    abstain,
    blame,
    fact,
    finding,
    keep,
    locate,
    locate_stall,
    missing,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import ACCURACY, RESOURCES, Removal, TimeModel
from ncu_toolkit.model import Finding, Location, Profile, Ruled
from ncu_toolkit.sass import attribution

ID: Final = "async-copy-wait"
TITLE: Final = "Waiting for asynchronous copies"
REQUIRES: Final = ("opcodes", "stalls")
OPTIONAL: Final = ("dram_utilization",)
#: Instructions behind a copy wait within which a barrier belongs to it: compilers put the block
#: barrier right after DEPBAR, with few moves between.
NEAR_WAIT: Final = 8
#: Copies of whole tiles, which report to an mbarrier.
BULK: Final = ("UBLKCP", "UTMALDG", "UBLKRED")


def find(profile: Profile, model: TimeModel) -> Finding | Ruled:
    if absent := missing(profile, REQUIRES):
        return abstain(ID, absent)
    copies = figures.executed(profile, ("copy",))
    if not copies:
        return ruled_out(ID, "The kernel makes no asynchronous copies.")
    at_barrier = barrier_part(profile)
    part = blame(profile, "long_scoreboard", ("copy",))
    waiting = model.waiting("long_scoreboard") * part + model.waiting("barrier") * at_barrier
    evidence = (
        stall_fact(profile, "long_scoreboard"),
        stall_fact(profile, "barrier"),
        fact(profile, "kind_share:copy"),
        fact(profile, "issue_active"),
    )
    if waiting < WEAK_STALL.value:
        return ruled_out(
            ID,
            f"Copies land in time: warps wait for them for only {units.percent(waiting)} of their time.",
            *evidence,
        )
    removal = Removal(
        "with copies issued early enough",
        stalls={"long_scoreboard": keep(part, 0.0), "barrier": keep(at_barrier, 0.0)},
    )
    without = model.without(removal)
    busiest, busy = model.busiest("fill", "l2", "dram")
    # Near its peak a unit soon takes over, and the model says how soon; what is left below ACCURACY
    # is no pipeline's fault.
    if busy >= SATURATED.value and without.saved < ACCURACY:
        return ruled_out(
            ID,
            f"{RESOURCES[busiest][2]} is {units.percent(busy)} busy: copies wait for bandwidth, a deeper pipeline does not help.",
            *evidence,
        )
    how = (
        "The kernel starts each copy right before it needs the data, so that nothing is computed meanwhile"
        if _unpipelined(profile)
        else "The kernel copies data ahead of time, but not far enough"
    )
    return finding(
        ID,
        f"{how}: {units.percent(waiting)} of a warp's time goes by waiting where the copy should have landed.",
        without,
        evidence,
        _advice(profile),
        "Stalls at the wait and its barrier vanish; if short scoreboard takes their place, shared memory is next.",
        locations=_locations(profile),
    )


def _advice(profile: Profile) -> tuple[str, ...]:
    """By the instructions: bulk copies complete on an mbarrier, cp.async in groups."""
    ran = {attribution.base(row.opcode) for row in figures.rows(profile)}
    own = "Give every stage its own buffer{}, and check that they do not share one allocation."
    if ran & set(BULK):
        return (
            "Issue each bulk copy at least two tiles before its use, and wait on the mbarrier of that stage alone, for the phase of its oldest copy.",
            own.format(" and its own mbarriers, one for full and one for empty"),
            "Let a warp that does nothing else issue the copies, so that they do not wait for the arithmetic.",
        )
    return (
        "Issue each copy at least two tiles before its use, and wait only for the oldest group (cp.async.wait_group with the number of "
        "younger groups).",
        own.format(""),
    )


def _unpipelined(profile: Profile) -> bool:
    """Whether at the wait with most samples every copy is issued right before it."""
    waits = attribution.consumers(profile, "long_scoreboard", ("copy",))
    if not waits:
        return False
    flow = attribution.flow_of(profile.instructions)
    return flow.copies_at_the_last_moment(max(waits, key=lambda i: waits[i]))


def _after_copy_wait(profile: Profile) -> set[int]:
    """Indices of instructions at or shortly behind a wait for copies."""
    waits = [
        i
        for i, row in enumerate(profile.instructions)
        if attribution.base(row.opcode) in ("DEPBAR", "SYNCS")
    ]
    return {i for at in waits for i in range(at, min(at + NEAR_WAIT, len(profile.instructions)))}


def barrier_part(profile: Profile) -> float:
    """Part of the barrier stalls that are at a barrier behind a copy wait; without samples 0, for
    nothing then ties them to copies."""
    samples = {i: row.samples.get("barrier", 0) for i, row in enumerate(profile.instructions)}
    total = sum(samples.values())
    near = _after_copy_wait(profile)
    return sum(n for i, n in samples.items() if i in near) / total if total else 0.0


def _locations(profile: Profile) -> tuple[Location, ...]:
    """Both ends: where warps wait for copies (long scoreboard, and barriers behind a copy wait),
    and the copies."""
    rows, near = profile.instructions, _after_copy_wait(profile)
    at = {
        id(rows[i]): n
        for i, n in attribution.consumers(profile, "long_scoreboard", ("copy",)).items()
    }
    for i in near:
        at[id(rows[i])] = at.get(id(rows[i]), 0) + rows[i].samples.get("barrier", 0)
    waited = locate(
        profile, lambda row: float(at.get(id(row), 0)), "samples that wait here for copies", 2
    )
    copies = locate(
        profile,
        lambda row: float(row.executed or 0) if attribution.kind(row.opcode) == "copy" else 0.0,
        "copies, by executions: issued here",
        4,
    )
    return (*waited, *copies) if waited else locate_stall(profile, "barrier")
