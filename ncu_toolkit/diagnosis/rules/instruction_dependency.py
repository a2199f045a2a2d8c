"""Each instruction needs the result of the one before, and there are too few independent ones to
fill the gap.

What it is
An arithmetic result is ready four or more cycles after issue (more for FP64, special functions and
shuffles). A warp whose next instruction needs it waits. Other warps, or independent instructions of
the same warp, can use the cycles.

Why it costs time
With one chain of dependent operations a warp issues once in four cycles at best; with few warps a
scheduler then idles most of the time, although no memory access is pending.

How to confirm
The wait stall (fixed-latency dependency), or short scoreboard at special functions or FP64, is the
largest; issue slots are idle; memory is not busy.

What to change
Keep several independent accumulators (four or more) and combine them at the end; interleave
independent elements in one thread; unroll, so that the compiler can reorder. Or run more warps.

When the advice is wrong
With enough warps the chain is hidden already (issue slots are busy). Reordering floating-point sums
changes rounding.

Source
CUDA C++ Programming Guide, "Multiprocessor Level" (four-cycle latency of arithmetic, number of
warps needed); Volkov, "Better Performance at Lower Occupancy".
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules._code import KernelFacts, StaticFinding, evidence
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    SATURATED,
    STALL,
    WEAK_STALL,
    blame,
    fact,
    finding,
    keep,
    locate_stall,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import RESOURCES, Removal, TimeModel
from ncu_toolkit.model import Finding, NoFinding, Profile
from ncu_toolkit.sass import attribution
from ncu_toolkit.sass.cost import SCHEDULERS

ID: Final = "instruction-dependency"
TITLE: Final = "Instruction dependency"
REQUIRES: Final = ("stalls",)
OPTIONAL: Final = ("issue_active", "active_warps")
NCU: Final = (("CPIStall", "wait"), ("CPIStall", "imc miss"), ("IssueSlotUtilization", ""))
WAITS: Final = {"wait": "", "branch_resolving": "", "imc_miss": ""}
CODE_RANK: Final = 8
#: Independent chains that the advice asks for: one for each of the four cycles that arithmetic
#: takes since Volta.
CHAINS: Final = 4
#: Part of a launch up to which its start is no matter.
START: Final = 0.1


class Words:
    few = "Warps wait for arithmetic results for only {waiting} of their time."
    busy = "Other warps fill the gaps between instructions ({unit}, {busy} busy)."
    found = "Each instruction needs the result of the one before it. Warps spend {waiting} of their time waiting for such results"
    constants = ", {constants} of it for constants."
    share_constants = ("Apply each constant to several elements before fetching the next one.",)
    accumulators = "Use four or more independent accumulators, and add them up at the end."
    independent = "Process several independent elements per thread, and unroll, so that the compiler can interleave them."
    larger_block = "Give each thread several independent elements: a larger block, or fewer warps for it (num_warps)."
    more_warps = "Run more warps, if the launch and the registers allow it."
    look_for = "Fewer wait stalls and busier issue slots for the same number of instructions."
    code = (
        "Each pass of the loop takes a warp at least {cycles} cycles, because its arithmetic is a dependent chain. {warps} "
        "warps per scheduler issue {issued} instructions in that time."
    )
    code_advice = "Keep several independent accumulators, unroll, or run more warps."
    code_look_for = "The wait stall is the largest and issue slots are idle."


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    part = blame(profile, "short_scoreboard", ("special", "fp64", "shuffle"))
    # A constant that a chain needs is fetched once for several chains. What a launch waits for its
    # parameters is another matter, and short.
    constants = (
        model.waiting("imc_miss")
        if model.waiting("imc_miss") >= WEAK_STALL.value and model.ramp < START
        else 0.0
    )
    waiting = model.waiting("wait") + model.waiting("short_scoreboard") * part + constants
    measured = stall_fact(profile, "wait", STALL)
    if waiting < STALL.value:
        return ruled_out(ID, Words.few.format(waiting=units.percent(waiting)), measured)
    busiest, busy = model.busiest()
    if busy >= SATURATED.value:
        return ruled_out(
            ID, Words.busy.format(unit=RESOURCES[busiest][2], busy=units.percent(busy)), measured
        )
    stalls = {"wait": _gap_left(model), "short_scoreboard": keep(part, 1 / CHAINS)} | (
        {"imc_miss": 1 / CHAINS} if constants else {}
    )
    fetched = _constant_loads(profile) if constants else 0.0
    removal = Removal(
        f"with {CHAINS} independent chains", stalls=stalls, instructions=keep(fetched, 1 / CHAINS)
    )
    return finding(
        ID,
        Words.found.format(waiting=units.percent(waiting))
        + (Words.constants.format(constants=units.percent(constants)) if constants else "."),
        model.without(removal),
        (
            measured,
            stall_fact(profile, "imc_miss") if constants else None,
            stall_fact(profile, "short_scoreboard"),
            fact(profile, "issue_active"),
            fact(profile, "active_warps"),
            fact(profile, "eligible_warps"),
        ),
        (
            *(Words.share_constants if constants else ()),
            Words.accumulators,
            *language.advice(profile, (Words.independent,), {"triton": (Words.larger_block,)}),
            Words.more_warps,
        ),
        Words.look_for,
        locations=locate_stall(profile, "wait"),
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    region, warps = facts.main, facts.warps
    if warps is None or not region.depth or warps <= 0:
        return None
    issued = warps / SCHEDULERS * region.instructions
    if issued >= BUSY.value * region.dependency_cycles:
        return None
    return StaticFinding(
        ID, "likely",
        Words.code.format(cycles=region.dependency_cycles, warps=units.significant(warps / SCHEDULERS), issued=units.significant(issued)),
        (
            evidence("dependency_cycles", "Cycles a pass by dependencies", region.dependency_cycles, "cycles",
                     "Arithmetic latency along the chain. Loads count as immediate."),
            evidence("issue_share", "Issue slots used at most", issued / region.dependency_cycles, "fraction",
                     "With all resident warps.", BUSY.value, "<"),
        ),
        Words.code_advice, Words.code_look_for,
    )  # fmt: skip


def _gap_left(model: TimeModel) -> float:
    """Part of the gap between dependent instructions that CHAINS chains leave: a chain's turn comes
    once a latency, which the others fill."""
    issued = model.waiting("selected")
    if not issued or not model.waiting("wait"):
        return 1 / CHAINS
    gap = model.waiting("wait") / issued  # each instruction is selected for one cycle
    return max(0.0, (1 + gap) / CHAINS - 1) / gap


def _constant_loads(profile: Profile) -> float:
    """Part of the executed instructions that fetch constants, for one chain at a time."""
    total = sum(row.warps for row in figures.rows(profile))
    return (
        sum(
            row.warps
            for row in figures.rows(profile)
            if attribution.base(row.opcode) in ("ULDC", "LDC")
        )
        / total
        if total
        else 0.0
    )
