"""The launch has too few blocks or threads to fill the GPU, so SMs are idle from the start.

What it is
Blocks are distributed to SMs. With fewer blocks than SMs some get none; with fewer than fit, each SM runs fewer warps
than it could.

Why it costs time
Idle SMs do nothing, and a block alone on an SM has few warps to hide its latencies with.

How to confirm
Less than one wave, and fewer blocks than SMs. If every SM has a block: warps wait for results (scoreboards, fixed
latencies) for a good part of their time, which more warps would hide.

What to change
Split a block's loop over more blocks, by a second dimension of the grid, and combine (split-K); or smaller blocks, with
fewer results each. If nothing can be split, several problems in one launch, or other kernels concurrently in streams.

When the advice is wrong
When the problem is that small, a few microseconds of latency are all there is: fuse it with its neighbours or leave it.

Source
CUDA C++ Best Practices Guide, "Thread and Block Heuristics"; Nsight Compute's LaunchConfiguration rule ("Small Grid").
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Finding, Launch
from ncu_toolkit.kernel.diagnosis.kernel import HIDDEN_BY_WARPS, Kernel, Outcome, Removal, percent
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, Specificity, StaticFinding, grid
from ncu_toolkit.kernel.diagnosis.rules._launch import chain
from ncu_toolkit.kernel.diagnosis.thresholds import ONE_WAVE, SATURATED, STALL, WORKING, Threshold
from ncu_toolkit.kernel.diagnosis.time_model import RESOURCES

TITLE: Final = "Grid too small"
REQUIRES: Final = ("waves",)
OPTIONAL: Final = ("sm_active_cycles", "achieved_occupancy", "stalls")
NCU: Final = (
    ("AchievedOccupancy", ""), ("LaunchConfiguration", "small grid"), ("SOLBottleneck", "small grid"),
)  # fmt: skip
FROM_SHAPE: Final = True
CONFIRMED_BY: Final = ()
CODE_RANK: Final = 9
FEW: Final = Threshold(64.0, "threads for each SM: two warps, of which none hides much")
#: What the kernel's author does, and then what its caller does.
SPLIT: Final = (
    "Split each block's loop over more blocks, by a second dimension of the grid. There should be several blocks per SM. "
    "A second kernel combines the partial results (in a scan, it adds to each chunk the total of the chunks before it).",
    "Or give each thread fewer results. Where one thread loops over a row for one result, let a warp or a block compute it.",
    "If nothing can be split, run independent kernels concurrently in streams.",
)
_TRITON: Final = (
    SPLIT[0].replace("block", "program"), "Or give each program a smaller part of the output (BLOCK), so that there are more.", SPLIT[2],
)  # fmt: skip
_SHARE: Final = "Give each result to a block instead of a thread: its threads share the loop, and add up in shared memory."
CALL: Final = {
    "torch": ("Give it more to do at once: a larger batch, one batched call instead of a loop, or a reduction over the longer dimension.",
              "Run independent calls concurrently in streams, or capture many small ones in a CUDA graph."),
    "xla": ("Give it more to do at once: jax.vmap over a batch, or a form with less dependence from step to step (jax.lax.associative_scan).",),
    "library": ("Give it more to do at once: a batched or grouped routine instead of many small calls.",
                "Run independent calls concurrently in streams."),
}  # fmt: skip


def find(k: Kernel) -> Outcome:
    waves = k["waves"] or 0.0
    measured = k.fact("waves", "<", ONE_WAVE)
    if waves >= ONE_WAVE.value:
        return k.ruled_out("The grid fills the GPU at least once.", measured)
    if reason := chain(k):
        return k.ruled_out(reason, measured)
    sms, blocks = k.device.sm_count, k.blocks
    spread = min(1.0, blocks / sms) if sms else 1.0
    # Where every SM has a block, only one block more on some of them is the grid's: other idle time
    # is the blocks', or start and end of the launch.
    even = 1 / k.by_grid
    balance = min(even, k.model.active) if spread < 1 else max(even, k.model.active)
    busiest, busy = k.model.busiest()
    # Where there is a block for each SM, the SM still has room for more: the warps of a full SM
    # hide each other's waiting, where they wait.
    hidden = sum(
        share * (1 - k.model.queued(reason))
        for reason, share in k.model.stalls.items()
        if reason in HIDDEN_BY_WARPS
    )
    why = ""
    if busy >= SATURATED.value:
        why = f"a unit is near its peak ({RESOURCES[busiest][2]}, {percent(busy)} busy). More warps would not help."
    elif not k.model.stalls:
        why = "the report does not show whether warps wait for what more warps would hide."
    elif hidden < STALL.value:
        why = f"warps wait {percent(hidden)} of their time for what more warps would hide: too little to call the grid the cause."
    if spread == 1.0 and why:
        return k.ruled_out(f"Every SM has a block, and {why}", measured)
    room = max(1.0, spread / waves) if waves else 1.0
    few, one_each = units.counted(blocks, "block"), Threshold(float(sms), "one per SM")
    # With a block on nearly every SM what is gained is room in busy SMs, not idle ones.
    idle = spread < WORKING.value
    counted = k.stated("grid_size", blocks, "<", one_each, f"Blocks of the launch, for {sms} SMs.")
    return k.finding(
        f"The grid is too small: {few} for {sms} SMs leave the other SMs idle."
        if idle
        else f"The grid is too small: {few} fill {percent(waves)} of the block slots of the SMs, which have room for more warps.",
        Removal("with enough blocks to fill the GPU", balance=balance, parallelism=room),
        (measured, counted, "active_fraction achieved_occupancy theoretical_occupancy"),
        k.advice(*split(k.launch, sms), triton=_TRITON),
        "At least one wave, active SMs near 100 %, achieved occupancy near the theoretical one.",
        confidence="high" if idle else "medium",
    )


def split(launch: Launch, sms: int, triton: bool = False) -> tuple[str, ...]:
    """What the author does. Few threads that share nothing have a result each, of its own loop."""
    threads = (launch.blocks or 0) * (launch.threads_per_block or 0)
    if triton or launch.shared or not threads or threads >= FEW.value * sms:
        return _TRITON if triton else SPLIT
    return (_SHARE, f"Or {SPLIT[0][0].lower()}{SPLIT[0][1:]}", SPLIT[2])


def specificity(finding: Finding) -> Specificity:
    """A grid that leaves a tenth of the SMs without a block, of which the finding is sure, says what to change; room in
    busy SMs does not: of the warps of further blocks as few would work, and whether there is work
    for them the profile does not say."""
    return Specificity.CHANGE if finding.confidence == "high" else Specificity.SYMPTOM


def in_code(facts: KernelFacts) -> StaticFinding | None:
    blocks, sms = facts.grid_blocks or 0, facts.sm_count or 0
    if facts.waves is None or blocks >= sms:
        return None
    return facts.finding(
        "certain",
        f"The grid has {units.counted(blocks, 'block')} for {sms} SMs, so the others stay idle.",
        grid(facts),
        "Split the work into more blocks.",
        "Fewer active SMs than the GPU has.",
    )  # fmt: skip
