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

from typing import ClassVar, Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules._access import after_copy_wait, barrier_part
from ncu_toolkit.diagnosis.rules._code import KernelFacts, StaticFinding, evidence, locations
from ncu_toolkit.diagnosis.rules._support import (
    SATURATED,
    WEAK_STALL,
    blame,
    fact,
    finding,
    keep,
    locate,
    locate_executed,
    locate_stall,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import ACCURACY, RESOURCES, Removal, TimeModel
from ncu_toolkit.model import Finding, Location, NoFinding, Profile
from ncu_toolkit.sass import attribution
from ncu_toolkit.sass.cost import copy_overlap
from ncu_toolkit.sass.opcodes import BULK

ID: Final = "async-copy-wait"
TITLE: Final = "Waiting for asynchronous copies"
REQUIRES: Final = ("opcodes", "stalls")
OPTIONAL: Final = ("dram_utilization",)
NCU: Final = (("CPIStall", "long scoreboard"), ("CPIStall", "barrier"))
CODE_RANK: Final = 6
#: Part of a loop's arithmetic below which nothing worth the name lies between issuing a copy and
#: waiting for it.
OVERLAP: Final = 0.1


class Words:
    none = "The kernel makes no asynchronous copies."
    landed = "Copies land in time: warps wait for them for only {waiting} of their time."
    bandwidth = "Copies wait for bandwidth ({unit}, {busy} busy). A deeper pipeline would not help."
    unpipelined = (
        "The kernel waits for each copy right after issuing it, so no arithmetic overlaps the copy"
    )
    too_late = "The kernel prefetches, but too few tiles ahead"
    found = "{how}. Warps spend {waiting} of their time waiting for copies."
    look_for = (
        "Stalls at the wait and its barrier disappear. If short scoreboard stalls replace them, shared memory is the next "
        "limit."
    )
    code = (
        "The loop waits for its asynchronous copies right after issuing them. Only {overlapped} of its arithmetic runs in "
        "between."
    )
    code_advice = (
        "Issue copies at least one tile ahead. Wait only for the oldest group: cp.async.wait_group N, where N is the number of "
        "younger groups."
    )
    code_look_for = "Long scoreboard or barrier stalls at DEPBAR and the barrier behind it."
    buffers = "Give every stage its own buffer{}. Check that no two stages share an allocation."
    bulk_ahead = (
        "Issue each bulk copy at least two tiles before its use. Wait on the mbarrier of that stage, for the phase of its "
        "oldest copy."
    )
    own_warp = (
        "Dedicate one warp to issuing the copies, so that they do not wait for the arithmetic."
    )
    ahead = (
        "Issue each copy at least two tiles before its use. Wait only for the oldest group: cp.async.wait_group N, where N is "
        "the number of younger groups."
    )
    elsewhere: ClassVar[language.Elsewhere] = {
        "triton": (
            "Raise num_stages, so that the compiler issues the copies of later tiles earlier.",
            "If shared memory is then too small, use a smaller BLOCK_K.",
        )
    }


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    copies = figures.executed(profile, ("copy",))
    if not copies:
        return ruled_out(ID, Words.none)
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
        return ruled_out(ID, Words.landed.format(waiting=units.percent(waiting)), *evidence)
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
            Words.bandwidth.format(unit=RESOURCES[busiest][2], busy=units.percent(busy)),
            *evidence,
        )
    how = Words.unpipelined if _unpipelined(profile) else Words.too_late
    return finding(
        ID,
        Words.found.format(how=how, waiting=units.percent(waiting)),
        without,
        evidence,
        language.advice(profile, _advice(profile), Words.elsewhere),
        Words.look_for,
        locations=_locations(profile),
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    for region in facts.regions:
        overlapped = copy_overlap(region.code)
        if overlapped is not None and overlapped < OVERLAP:
            return StaticFinding(
                ID, "likely",
                Words.code.format(overlapped=units.percent(overlapped)),
                (
                    evidence("copy_overlap", "Arithmetic between copy and wait", overlapped, "fraction",
                             "Of the loop's arithmetic.", OVERLAP, "<"),
                    evidence("loads_in_flight", "Copies in flight a thread", region.loads_in_flight, "count",
                             "The most that one thread has in flight."),
                ),
                Words.code_advice, Words.code_look_for, locations([i for i in region.code if i.base == "DEPBAR"], "waits for copies"),
            )  # fmt: skip
    return None


def _advice(profile: Profile) -> tuple[str, ...]:
    """By the instructions: bulk copies complete on an mbarrier, cp.async in groups."""
    ran = {attribution.base(row.opcode) for row in figures.rows(profile)}
    own = Words.buffers
    if ran & BULK:
        return (
            Words.bulk_ahead,
            own.format(" and its own two mbarriers (full and empty)"),
            Words.own_warp,
        )
    return (Words.ahead, own.format(""))


def _unpipelined(profile: Profile) -> bool:
    """Whether at the wait with most samples every copy is issued right before it."""
    waits = attribution.consumers(profile, ("copy",))
    if not waits:
        return False
    flow = attribution.flow_of(profile.instructions)
    return flow.copies_at_the_last_moment(max(waits, key=lambda i: waits[i]))


def _locations(profile: Profile) -> tuple[Location, ...]:
    """Both ends: where warps wait for copies (long scoreboard, and barriers behind a copy wait),
    and the copies."""
    rows, near = profile.instructions, after_copy_wait(profile)
    at = {id(rows[i]): n for i, n in attribution.consumers(profile, ("copy",)).items()}
    for i in near:
        at[id(rows[i])] = at.get(id(rows[i]), 0) + rows[i].samples.get("barrier", 0)
    waited = locate(
        profile, lambda row: float(at.get(id(row), 0)), "samples that wait here for copies", 2
    )
    copies = locate_executed(profile, "copy", "executed copies", 4)
    return (*waited, *copies) if waited else locate_stall(profile, "barrier")
