"""Warps of a block wait at a barrier for a slower sibling.

What it is
__syncthreads() holds every warp of the block until the last arrives. When one warp has more to do (a reduction's last
warp, a loader warp, a serial part by thread 0), the others wait for it.

Why it costs time
Waiting warps issue nothing. With few blocks on the SM, no other warp can run.

How to confirm
Barrier stalls are a large part of a warp's time, right after particular BAR instructions, and what precedes them is
uneven.

What to change
Fewer barriers (__syncwarp or shuffles within a warp), equal work before each, smaller blocks so that more of them
overlap, split arrive and wait, and no serial part by one thread between barriers.

When the advice is wrong
When all warps wait for the same late load, the barrier only shows the latency: prefetch. When warps wait longer for
shuffles than at barriers, they arrive late because of the shuffles. When warps wait for a copy before the barrier, see
Waiting for asynchronous copies. Samples at WARPGROUP.DEPBAR are time of the tensor cores, which the profiler counts as
barrier; they are left out here.

Source
Nsight Compute Kernel Profiling Guide, "Warp Stall Reasons" (barrier); CUDA C++ Programming Guide, "Synchronization
Functions".
"""

from dataclasses import replace
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Finding, Location
from ncu_toolkit.kernel.diagnosis.figures import WARP
from ncu_toolkit.kernel.diagnosis.kernel import (
    SHARED_WAITS,
    Kernel,
    Outcome,
    Removal,
    at,
    keep,
    percent,
)
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, Specificity
from ncu_toolkit.kernel.diagnosis.rules._launch import (
    FEW,
    barrier_part,
    blocks_skip,
    few_at_work,
    shared_wavefront_part,
)
from ncu_toolkit.kernel.diagnosis.thresholds import WEAK_STALL
from ncu_toolkit.kernel.sass import attribution

TITLE: Final = "Waiting at barriers"
REQUIRES: Final = ("stalls",)
OPTIONAL: Final = ("issue_active", "opcodes")
NCU: Final = (("CPIStall", "barrier"),)
WAITS: Final = {"barrier": "", "sleeping": ""}


def find(k: Kernel) -> Outcome:
    measured = k.stall("barrier", WEAK_STALL)
    products = attribution.waits(k.profile, "barrier").get("tensor", 0.0)
    own = max(0.0, 1 - barrier_part(k) - products)
    waiting = k.model.waiting("barrier") * own
    beside = ""
    if k.model.waiting("barrier") * products >= WEAK_STALL.value:
        beside = " The other barrier stalls wait for results of tensor cores (WARPGROUP.DEPBAR)."
    if waiting < WEAK_STALL.value:
        reason = f"Warps wait at barriers for only {percent(waiting)} of their time.{beside}"
        return k.ruled_out(reason, measured)
    alone = few_at_work(k)
    if alone and blocks_skip(k, alone[1]):
        alone = None
    shuffling = k.waiting_for(("shuffle",), *SHARED_WAITS)
    if alone is None and shuffling >= waiting and k.executed("shuffle"):
        return k.ruled_out(
            f"Warps wait longer for shuffles ({percent(shuffling)} of their time) than at barriers ({percent(waiting)}), "
            "and come late to these for that.",
            measured,
            "stall_share:short_scoreboard kind_share:shuffle",
        )
    few, lone = None, ""
    if alone:
        few = alone[0]
        lone = f" Most of the time outside the barriers is in code that only {percent(few.value)} of the warps execute."
    kinds = tuple(kind for kind in (*attribution.KINDS, "other") if kind != "tensor")
    places = k.locate_stall("barrier", kinds)
    removal = Removal("without waiting at barriers", stalls={"barrier": 1 - own})
    return k.finding(
        f"Warps spend {percent(waiting)} of their time at barriers, waiting for the slowest warp of their block.{beside}{lone}",
        _spread(removal, k, alone[1]) if alone else _shuffled(removal, k),
        (measured, few, "issue_active active_warps kind_share:barrier"),
        _advice(k, places),
        "Fewer barrier stalls, busier issue slots.",
        confidence="high" if waiting >= 0.3 else "medium",
        locations=places,
    )


def _advice(k: Kernel, places: tuple[Location, ...]) -> tuple[str, ...]:
    even = f"Give every warp the same work between barriers. Avoid serial work by one thread or warp while the others wait{at(places)}."
    smaller = "Use smaller blocks, so that other blocks run while one block waits."
    fewer = "Use fewer warps per block (num_warps), so that fewer wait for each other."
    once = "Reduce once: keep partial results elementwise in the loop, and reduce after it. Triton puts barriers around each reduction."
    return k.advice(
        even,
        "Replace __syncthreads by __syncwarp or shuffles where data is exchanged only within a warp.",
        smaller,
        triton=(fewer,) if k.executed("tensor") else (once, fewer),
        numba=(
            even,
            "Replace cuda.syncthreads by cuda.syncwarp or shuffles where data is exchanged only within a warp.",
            smaller,
        ),
        warp=(even, smaller),
    )


def specificity(finding: Finding) -> Specificity:
    """It says what to change where it is known which part a few warps run alone. Where it is not,
    the barrier may only show how unevenly warps wait for something else (the time model lets it
    shrink with that)."""
    few = any(evidence.metric == FEW for evidence in finding.evidence)
    return Specificity.CHANGE if few else Specificity.SHADOW


def open_in_code(facts: KernelFacts) -> str:
    looped = any(i.base == "BAR" for r in facts.regions if r.depth for i in r.code)
    return "How long warps wait for each other at the barrier in the loop." if looped else ""


def _spread(removal: Removal, k: Kernel, part: range) -> Removal:
    """The removal, and what stays of the work of a part that few warps run alone: its lanes over
    32, since lanes that share it do in one instruction what each did in one of its own."""
    table = k.instructions
    rows = [row for row in table[part.start : part.stop] if row.executed and row.threads]
    run = float(sum(row.executed or 0 for row in rows))
    left = sum(float(row.threads or 0) for row in rows) / run / WARP if run else 1.0
    if left >= 1:
        return removal

    def stays(*kinds: str) -> float:
        """Of all instructions of some kinds."""
        mine, total = (
            sum(float(row.executed or 0) for row in some if attribution.kind(row.opcode) in kinds)
            for some in (rows, table)
        )
        return keep(mine / total, left) if total else 1.0

    through_l1 = stays("shared", "global", "local", "shuffle")
    return replace(
        removal,
        loads={
            **dict.fromkeys(("lsu", "l1_data", "l1_writeback", "l1_tag", "l1"), through_l1),
            **dict.fromkeys(("fma", "fmaheavy"), stays("fp32", "integer")),
            "alu": stays("integer"),
            "constant": stays("constant"),
            "xu": stays("special"),
        },
        instructions=keep(run / sum(float(row.executed or 0) for row in table), left),
        basis=f"The part that few warps run uses {units.significant(left * WARP, 2)} of 32 lanes. Shared by all lanes, "
        "it takes as many fewer instructions.",
    )


#: Most accesses to shared memory for each barrier of a scan or a tree, step by step: each thread
#: stores a value and loads another's, or two.
EXCHANGE: Final = 3.0
#: Least barriers of such a scan or tree: the steps within a warp alone.
STEPS: Final = 5
#: Steps over a block that stay for all its warps: five of ten for 1024 threads are within a warp;
#: one warp does the others.
STEPS_LEFT: Final = 0.5


def _shuffled(removal: Removal, k: Kernel) -> Removal:
    """The removal, and what shuffles take the place of where nearly each access to shared memory has its
    barrier: such code exchanges values between threads step by step. Unchanged elsewhere, where shuffles
    do so already, and where matrix instructions take what is stored.

    Harris, "Optimizing Parallel Reduction in CUDA"; CUDA C++ Programming Guide, "Warp Shuffle
    Functions"."""
    accesses, barriers = k.executed("shared") or 0.0, k.of_base("BAR")
    done = k.executed("tensor") or (k.executed("shuffle") or 0.0) >= STEPS_LEFT * barriers
    if not accesses or done or barriers < STEPS * k.warps or accesses > EXCHANGE * barriers:
        return removal
    shuffles = barriers * STEPS_LEFT
    left = min(1.0, shuffles / accesses)
    through_l1 = keep(shared_wavefront_part(k), left)
    return replace(
        removal,
        stalls={**removal.stalls, **k.shrink(left, ("shared",), *SHARED_WAITS)},
        loads={
            "lsu": keep(k.pipe_part("shared", 1.0), left),
            **dict.fromkeys(("l1_data", "l1_writeback"), through_l1),
        },
        instructions=1 - (barriers + accesses - shuffles) / k.total,
        basis="There is a barrier for every one to three accesses to shared memory, so values are exchanged step by step. "
        "Shuffles do the steps within a warp, and one warp does the others.",
    )
