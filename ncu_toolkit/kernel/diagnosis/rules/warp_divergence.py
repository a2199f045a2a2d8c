"""The lanes of a warp take different paths, so the warp executes all of them, each with idle lanes.

What it is
A warp executes one instruction for its 32 lanes at a time. When a branch splits them, the paths run one after another,
each with only its own lanes active.

Why it costs time
Each path costs issue slots and latency as if all lanes took it. With half of the lanes active the warp needs twice the
instructions for the same work.

How to confirm
Active lanes per instruction well below 32, and branches that diverge (Nsight's branch uniformity below 100%, or few
lanes that execute the instructions after a branch, between BSSY and BSYNC). A high uniformity does not rule divergence
out: the few lanes that are left in a loop all branch alike, which counts as uniform.

What to change
Branch on something that is the same for a whole warp (groups of 32 consecutive threads rather than odd and even ones);
sort or bin the data by path; compute both sides and select; compact the active items first.

When the advice is wrong
Predicated instructions, blocks that are not a multiple of 32 threads, and lanes that leave at once past the edge of the
problem leave lanes idle without divergence: see Idle threads. Code that only some lanes need anyway (one lane writing a
result) is not a defect. When memory is the limit, idle lanes cost little: merging the paths moves the same bytes, and
takes as long.

Source
CUDA C++ Programming Guide, "SIMT Architecture"; Nsight Compute's ThreadDivergence rule (below 24 of 32 lanes; above it
a kernel counts where a fifth of its instructions run for half of the lanes).
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Instruction
from ncu_toolkit.kernel.diagnosis.figures import WARP
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, keep
from ncu_toolkit.kernel.diagnosis.rules import _launch, paths
from ncu_toolkit.kernel.diagnosis.thresholds import LANES, STALL, Threshold
from ncu_toolkit.kernel.diagnosis.time_model import PER_INSTRUCTION

TITLE: Final = "Warp divergence"
LIMIT: Final = "compute"
REQUIRES: Final = ("lanes_per_instruction",)
OPTIONAL: Final = ("branch_uniformity", "lanes_predicated_on", "issue_active", "stalls")
COSTS: Final = ((), PER_INSTRUCTION)
NCU: Final = (("ThreadDivergence", ""),)
WHOLE_CAUSE: Final = True
open_in_code = paths
SPLIT: Final = Threshold(
    0.2, "a fifth of the instructions for half of the lanes: on one path a tenth of all would go"
)
#: Waiting that belongs to instructions executed, and so goes with those that more lanes would
#: share. Waiting for global memory is for bytes, which stay.
WITH_INSTRUCTIONS: Final = ("short_scoreboard", "mio_throttle", "barrier", "sleeping")


def find(k: Kernel) -> Outcome:
    active = k["lanes_per_instruction"] or float(WARP)
    of = [(r.executed or 0, r.threads or 0) for r in k.instructions if not r.sass.startswith("@")]
    half = sum(warps for warps, lanes in of if WARP / 4 <= lanes / max(warps, 1) < LANES.value)
    split = active >= LANES.value and half > SPLIT.value * k.total
    measured = k.fact("lanes_per_instruction", *(() if split else ("<", LANES)))
    uniform = k.fact("branch_uniformity")
    if active >= LANES.value and not split:
        text = "Nearly all lanes are active in nearly all instructions."
        if (k["lanes_predicated_on"] or WARP) < LANES.value:
            text = "Nearly all lanes walk through all instructions. Predicates switch some off for part of them, which is not divergence."
        return k.ruled_out(text, measured, "lanes_predicated_on", uniform)
    gone = _launch.lanes_left(k)
    parted = gone is not None and not gone.edge and gone.lanes < LANES.value
    there = gone.lanes if gone is not None and gone.edge else _launch.filled_lanes(k)
    if active >= _launch.NEARLY_ALL * there:
        text = "Lanes that have work take the same path. The others have none: see Idle threads."
        return k.ruled_out(text, measured, uniform)
    if not parted and k["branch_uniformity"] == 1.0:
        text = "No branch splits the lanes of a warp. Lanes are idle because they have no work: see Idle threads."
        return k.ruled_out(text, measured, uniform)
    left = active / there
    # Warps that wait at barriers for longer than that wait for one that works alone: see
    # barrier-imbalance.
    alone = {"barrier": 1.0} if k.model.waiting("barrier") >= STALL.value else {}
    # Where lanes leave at once, full warps are fewer, each as long as now: of waiting for memory only
    # what is spent in queues stays.
    fewer = keep(1 - k.model.queued("long_scoreboard"), left) if parted else 1.0
    removal = Removal(
        "with all lanes of each warp on one path",
        stalls={**dict.fromkeys(WITH_INSTRUCTIONS, left), **alone, "long_scoreboard": fewer},
        loads=dict.fromkeys(
            ("fma", "fmaheavy", "alu", "fp64", "fp16", "xu", "lsu", "uniform"), left
        ),
        instructions=left,
    )
    counted = uniform is not None or any(row.threads for row in k.instructions)
    how = "take different branches, or run loops of different length"
    if parted:
        how = "leave by a test that splits neighbours"
    elif not counted:
        how = "take different branches, run loops of different length, or have no work: the report does not show which"
    return k.finding(
        f"Lanes of a warp {how}. On average only {units.significant(active)} of {units.significant(there)} lanes are active.",
        removal,
        (measured, uniform, "lanes_predicated_on issue_active kind_share:control"),
        (
            "Sort or bin the items by the path that they take, or by the length of their loops, so that lanes of a warp agree. "
            "Or compact the active ones.",
            "Make the condition the same for all lanes of a warp: assign work in groups of 32, not by odd and even threads.",
            "Compute both sides of short branches, and select.",
        ),
        "Active lanes near 32, and fewer instructions for the same work.",
        confidence="high" if counted else "low",
        locations=k.locate(lambda row: row.counters.get("divergent", 0.0), "divergent branches")
        or k.locate(_idle_lanes, "all idle lane slots of the kernel"),
    )


def _idle_lanes(row: Instruction) -> float:
    """Lane slots that were not active, and so not counted where the instruction has no predicate."""
    if row.threads is None or row.sass.startswith("@"):
        return 0.0
    return max(0.0, float((row.executed or 0) * WARP - row.threads))
