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
the mbarrier of its stage), and give each stage its own buffer and barrier. Check that buffers
do not alias.

When the advice is wrong
When memory bandwidth is the limit, a deeper pipeline only queues. More stages take shared memory,
which may cost occupancy.

Source
CUDA C++ Programming Guide, "Asynchronous Data Copies"; CUTLASS documentation, "Efficient GEMM"
(pipelining).
"""

from typing import Final

from ncu_toolkit.base.model import Location
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, percent
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, StaticFinding, evidence
from ncu_toolkit.kernel.diagnosis.rules._launch import after_copy_wait, barrier_part
from ncu_toolkit.kernel.diagnosis.thresholds import SATURATED, WEAK_STALL
from ncu_toolkit.kernel.diagnosis.time_model import ACCURACY, RESOURCES
from ncu_toolkit.kernel.sass import attribution
from ncu_toolkit.kernel.sass.cost import copy_overlap
from ncu_toolkit.kernel.sass.opcodes import BULK

TITLE: Final = "Waiting for asynchronous copies"
REQUIRES: Final = ("opcodes", "stalls")
OPTIONAL: Final = ("dram_utilization",)
COSTS: Final = (("copy",), ("long_scoreboard", "barrier", "sleeping"))
NCU: Final = (("CPIStall", "long scoreboard"), ("CPIStall", "barrier"))
CODE_RANK: Final = 6
#: Part of a loop's arithmetic below which nothing worth the name lies between issuing a copy and
#: waiting for it.
OVERLAP: Final = 0.1


def find(k: Kernel) -> Outcome:
    if not k.executed("copy"):
        return k.ruled_out("The kernel makes no asynchronous copies.")
    at_barrier = barrier_part(k)
    part = k.blame("long_scoreboard", "copy")
    waiting = k.model.waiting("long_scoreboard") * part + k.model.waiting("barrier") * at_barrier
    evidence = "stall_share:long_scoreboard stall_share:barrier kind_share:copy issue_active"
    if waiting < WEAK_STALL.value:
        return k.ruled_out(
            f"Copies land in time: warps wait for them for only {percent(waiting)} of their time.",
            evidence,
        )
    stalls = {"long_scoreboard": 1 - part, "barrier": 1 - at_barrier}
    without = k.model.without(Removal("with copies issued early enough", stalls=stalls))
    busiest, busy = k.model.busiest("fill", "l2", "dram")
    # Near its peak a unit soon takes over, and the model says how soon; what is left below ACCURACY
    # is no pipeline's fault.
    if busy >= SATURATED.value and without.saved < ACCURACY:
        reason = f"Copies wait for bandwidth ({RESOURCES[busiest][2]}, {percent(busy)} busy). A deeper pipeline would not help."
        return k.ruled_out(reason, evidence)
    how = (
        "The kernel waits for each copy right after issuing it, so no arithmetic overlaps the copy"
        if _unpipelined(k)
        else "The kernel prefetches, but too few tiles ahead"
    )
    return k.finding(
        f"{how}. Warps spend {percent(waiting)} of their time waiting for copies.",
        without,
        (evidence,),
        k.advice(
            *_advice(k),
            triton=(
                "Raise num_stages, so that the compiler issues the copies of later tiles earlier.",
                "If shared memory is then too small, use a smaller BLOCK_K.",
            ),
        ),
        "Stalls at the wait and its barrier disappear. If short scoreboard stalls replace them, shared memory is the next limit.",
        locations=_locations(k),
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    for region in facts.regions:
        overlapped = copy_overlap(region.code)
        if overlapped is not None and overlapped < OVERLAP:
            return facts.finding(
                "likely",
                f"The loop waits for its asynchronous copies right after issuing them. Only {percent(overlapped)} of its arithmetic runs in between.",
                (
                    evidence("copy_overlap", "Arithmetic between copy and wait", overlapped, "fraction",
                             "Of the loop's arithmetic.", (OVERLAP, "<")),
                    evidence("loads_in_flight", "Copies in flight per thread", region.loads_in_flight, "count",
                             "The most that one thread has in flight."),
                ),
                "Issue copies at least one tile ahead. Wait only for the oldest group: cp.async.wait_group N, where N is the "
                "number of younger groups.",
                "Long scoreboard or barrier stalls at DEPBAR and the barrier behind it.",
                [i for i in region.code if i.base == "DEPBAR"], "waits for copies",
            )  # fmt: skip
    return None


def _advice(k: Kernel) -> tuple[str, ...]:
    """By the instructions: bulk copies complete on an mbarrier, cp.async in groups."""
    own = "Give every stage its own buffer{}. Check that no two stages share an allocation."
    if k.of_base(*BULK):
        return (
            "Issue each bulk copy at least two tiles before its use. Wait on the mbarrier of that stage, for the phase of its oldest copy.",
            own.format(" and its own two mbarriers (full and empty)"),
            "Dedicate one warp to issuing the copies, so that they do not wait for the arithmetic.",
        )
    ahead = (
        "Issue each copy at least two tiles before its use. Wait only for the oldest group: cp.async.wait_group N, where "
        "N is the number of younger groups."
    )
    return ahead, own.format("")


def _unpipelined(k: Kernel) -> bool:
    """Whether at the wait with most samples every copy is issued right before it."""
    waits = attribution.consumers(k.profile, ("copy",))
    if not waits:
        return False
    flow = attribution.flow_of(k.instructions)
    return flow.copies_at_the_last_moment(max(waits, key=lambda i: waits[i]), k.instructions)


def _locations(k: Kernel) -> tuple[Location, ...]:
    """Both ends: where warps wait for copies (long scoreboard, and barriers behind a copy wait),
    and the copies."""
    rows, near = k.instructions, after_copy_wait(k)
    at = {id(rows[i]): n for i, n in attribution.consumers(k.profile, ("copy",)).items()}
    for i in near:
        at[id(rows[i])] = at.get(id(rows[i]), 0) + rows[i].samples.get("barrier", 0)
    waited = k.locate(lambda row: float(at.get(id(row), 0)), "samples that wait here for copies", 2)
    copies = k.locate_executed("copy", "executed copies", 4)
    return (*waited, *copies) if waited else k.locate_stall("barrier")
