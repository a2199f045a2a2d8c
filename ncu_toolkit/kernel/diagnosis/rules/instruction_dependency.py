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

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, keep, percent
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, StaticFinding, _launch, evidence
from ncu_toolkit.kernel.diagnosis.thresholds import (
    BUSY,
    CONSTANT_MISSES,
    RAMP,
    SATURATED,
    STALL,
    WEAK_STALL,
    Threshold,
)
from ncu_toolkit.kernel.diagnosis.time_model import RESOURCES
from ncu_toolkit.kernel.sass.cost import SCHEDULERS

TITLE: Final = "Instruction dependency"
REQUIRES: Final = ("stalls",)
OPTIONAL: Final = ("issue_active", "active_warps")
NCU: Final = (("CPIStall", "wait"), ("CPIStall", "imc miss"), ("IssueSlotUtilization", ""))
WAITS: Final = {"wait": "", "branch_resolving": "", "imc_miss": ""}
CODE_RANK: Final = 8
#: Independent chains that the advice asks for: one for each of the four cycles that arithmetic
#: takes since Volta.
CHAINS: Final = 4
ENOUGH: Final = Threshold(8.0, "twice the four that hide the latency; recorded kernels that wait for results keep 1 to 7")  # fmt: skip


def find(k: Kernel) -> Outcome:
    part = k.blame("short_scoreboard", "special", "fp64", "shuffle")
    constants = k.model.waiting("imc_miss")
    # A chain may wait for constants, fetched once for several chains. For a launch's parameters all wait, but not long.
    if not WEAK_STALL.value <= constants <= CONSTANT_MISSES.value or k.model.ramp >= RAMP:
        constants = 0.0
    waiting = k.model.waiting("wait") + k.model.waiting("short_scoreboard") * part + constants
    measured = k.stall("wait", STALL)
    if waiting < STALL.value:
        reason = f"Warps wait for arithmetic results for only {percent(waiting)} of their time."
        return k.ruled_out(reason, measured)
    busiest, busy = k.model.busiest()
    if busy >= SATURATED.value:
        reason = f"Other warps fill the gaps between instructions ({RESOURCES[busiest][2]}, {percent(busy)} busy)."
        return k.ruled_out(reason, measured)
    if (sums := _launch.accumulators(k)) >= ENOUGH.value:
        return k.ruled_out(
            f"The loop keeps {sums} independent accumulators. Where warps wait all the same, more warps or fewer instructions help.",
            measured,
            k.stated("accumulators", sums, ">=", ENOUGH),
            "active_warps",
        )
    of_it = f", {percent(constants)} of it for constants" if constants else ""
    apply = "Apply each constant to several elements before fetching the next one."
    return k.finding(
        f"Each instruction needs the result of the one before it. Warps spend {percent(waiting)} of their time waiting for such results{of_it}.",
        _chains(k, part, constants),
        (
            measured,
            k.stall("imc_miss") if constants else None,
            "stall_share:short_scoreboard issue_active active_warps eligible_warps",
        ),
        (
            *((apply,) if constants else ()),
            "Use four or more independent accumulators, and add them up at the end.",
            *k.advice(
                "Process several independent elements per thread, and unroll, so that the compiler can interleave them.",
                triton="Give each thread several independent elements: a larger block, or fewer warps for it (num_warps).",
            ),
            "Run more warps, if the launch and the registers allow it.",
        ),
        "Fewer wait stalls and busier issue slots for the same number of instructions.",
        locations=k.locate_stall("wait"),
    )


def _chains(k: Kernel, part: float, constants: float) -> Removal:
    """Several chains side by side; what fetches constants does so for all of them."""
    stalls = {"wait": _gap_left(k), "short_scoreboard": keep(part, 1 / CHAINS)}
    fetched = 0.0
    if constants:
        stalls["imc_miss"] = 1 / CHAINS
        fetched = k.of_base("ULDC", "LDC") / k.total if k.total else 0.0
    several = f"with {CHAINS} independent chains"
    return Removal(several, stalls=stalls, instructions=keep(fetched, 1 / CHAINS))


def in_code(facts: KernelFacts) -> StaticFinding | None:
    region, warps = facts.main, facts.warps
    if warps is None or not region.depth or warps <= 0:
        return None
    issued = warps / SCHEDULERS * region.instructions
    if issued >= BUSY.value * region.dependency_cycles:
        return None
    return facts.finding(
        "likely",
        f"Each iteration of the loop takes a warp at least {region.dependency_cycles} cycles, because its arithmetic is a "
        f"dependent chain. {units.significant(warps / SCHEDULERS)} warps per scheduler issue {units.significant(issued)} instructions in that time.",
        (
            evidence("dependency_cycles", "Cycles per iteration by dependencies", region.dependency_cycles, "cycles",
                     "Arithmetic latency along the chain. Loads count as immediate."),
            evidence("issue_share", "Issue slots used at most", issued / region.dependency_cycles, "fraction",
                     "With all resident warps.", (BUSY.value, "<")),
        ),
        "Keep several independent accumulators, unroll, or run more warps.",
        "The wait stall is the largest and issue slots are idle.",
    )  # fmt: skip


def _gap_left(k: Kernel) -> float:
    """Part of the gap between dependent instructions that CHAINS chains leave: a chain's turn comes
    once a latency, which the others fill."""
    issued = k.model.waiting("selected")
    if not issued or not k.model.waiting("wait"):
        return 1 / CHAINS
    gap = k.model.waiting("wait") / issued  # each instruction is selected for one cycle
    return max(0.0, (1 + gap) / CHAINS - 1) / gap
