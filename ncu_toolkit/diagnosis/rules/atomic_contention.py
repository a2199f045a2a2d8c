"""Many threads update the same few addresses by atomic operations, which then happen one after
another.

What it is
An atomic update is done in the L2 slice (or the SM's shared memory) that owns the address. Updates
to one address are serial, however many threads ask.

Why it costs time
Thousands of threads queue for one counter: the queue to L1 fills (LG throttle), results come back
late (long scoreboard), or, in shared memory, lanes retry in turn (short scoreboard, MIO throttle).

How to confirm
The stalls are at ATOM, RED or ATOMS instructions, or at loads behind them; the busiest of the L2
atomic units is busy, whatever the mean of all; or shared atomics repeat.

What to change
Combine first: reduce within the warp (shuffles, __reduce_add_sync), then in shared memory, and
update once a block. Spread a histogram over private copies, one a block or warp, and add them up at
the end.

When the advice is wrong
When addresses are spread, atomics run at close to the speed of stores. Aggregation costs
instructions that a rare atomic does not repay.

Source
CUDA Pro Tip "Optimized Filtering with Warp-Aggregated Atomics"; CUDA C++ Programming Guide, "Atomic
Functions".
"""

from typing import Final

from ncu_toolkit.diagnosis.kernel import Kernel, Outcome, Removal, keep, percent
from ncu_toolkit.diagnosis.rules import KernelFacts, _launch
from ncu_toolkit.diagnosis.thresholds import BUSY, WEAK_STALL

TITLE: Final = "Atomic contention"
LIMIT: Final = "memory"
REQUIRES: Final = ("opcodes",)
OPTIONAL: Final = (
    "stalls", "l2_atomic_unit_active", "l2_atomic_unit_busiest", "l2_reduction_sectors", "l2_atomic_sectors",
)  # fmt: skip
NCU: Final = (("CPIStall", "lg throttle"), ("CPIStall", "membar"))
UNITS: Final = ("atomic",)
#: One update a warp in place of one a lane: what aggregation by shuffles leaves.
AGGREGATED: Final = 1 / 32
#: Through which queue updates of global and of shared memory go, per the profiler's documentation
#: of stalls.
GLOBAL: Final = ("long_scoreboard", "lg_throttle")
SHARED: Final = ("short_scoreboard", "mio_throttle")
REASONS: Final = (*GLOBAL, *SHARED)


CALL: Final = {
    "torch": (
        "Replace index_add or scatter_add where few targets are hit often: sort the indices first, or multiply by a one-hot matrix.",
        "Sum in larger groups first, so that fewer updates meet.",
    ),
    "xla": (
        "Replace the scatter (.at[].add): with few targets compare with each and sum, else sort the indices first.",
        "Use jax.ops.segment_sum with indices_are_sorted=True where the indices are sorted.",
    ),
}


def find(k: Kernel) -> Outcome:
    count = k.executed("atomic")
    if not count:
        return k.ruled_out("The kernel executes no atomic operations.")
    parts = {reason: k.blame(reason, "atomic") for reason in REASONS}
    # One hot address keeps everything behind it waiting, the loads that bring the next index too.
    queued = _launch.queued_behind_atomics(k)
    for reason in REASONS:
        parts[reason] = max(parts[reason], queued)
    waiting = sum(k.model.waiting(reason) * part for reason, part in parts.items())
    # A warp that has issued its last update cannot leave before it is done; fences wait for it too.
    after = k.model.waiting("drain", "membar")
    unit = k.model.busy("atomic")
    evidence = (
        "kind_share:atomic l2_atomic_unit_active l2_atomic_unit_busiest",
        "stall_share:lg_throttle stall_share:long_scoreboard stall_share:short_scoreboard",
        "stall_share:mio_throttle stall_share:drain stall_share:membar l2_reduction_sectors",
        "l2_atomic_sectors",
    )
    if waiting + after < WEAK_STALL.value and unit < BUSY.value:
        return k.ruled_out(
            f"Warps wait for atomic operations for only {percent(waiting)} of their time.", evidence
        )
    stores = k.executed("global", "local") or 0.0
    share_after = max(queued, count / (count + stores))
    repeats = k["kind_share:atomic"] or 0.0
    # In shared memory private copies keep updates apart, but each still takes its pass through the
    # banks.
    passes, apart = _launch.atomic_wavefronts(k)
    banks = _launch.shared_wavefront_part(k) * passes
    private = max(AGGREGATED, apart) if passes else AGGREGATED
    left = dict.fromkeys(GLOBAL, AGGREGATED) | dict.fromkeys(SHARED, private)
    in_pipe = k.pipe_part("atomic", 0.0)
    removal = Removal(
        "with updates combined in each warp first"
        if banks < 0.5
        else "with updates to different addresses",
        stalls={reason: keep(part, left[reason]) for reason, part in parts.items()}
        | dict.fromkeys(("drain", "membar"), keep(share_after, AGGREGATED)),
        loads={
            "atomic": AGGREGATED,
            "l2": keep(_l2_part(k), AGGREGATED),
            "lsu": keep(in_pipe, AGGREGATED),
        }
        | {"l1_tag": keep(in_pipe, AGGREGATED), "l1_data": keep(max(in_pipe, banks), private)},
        instructions=1.0 if passes else keep(repeats, AGGREGATED),
    )
    within_warp, *others = (
        "Reduce within the warp first (shuffles or __reduce_add_sync), then in shared memory. Update global memory once per block.",
        "Give each block or warp a private copy of the counters. Combine the copies at the end.",
    )
    first = (
        "Each warp reduces its values already. Combine the sums of the warps in shared memory, and update global memory once per block."
        if k.profile.mix.executed("SHFL|REDUX")
        else within_warp
    )
    return k.finding(
        "Many threads update the same few addresses, so the updates run one after another. Warps spend "
        f"{percent(waiting + after * share_after)} of their time waiting for atomics.",
        removal,
        evidence,
        k.advice(
            first,
            *others,
            triton=(
                "Reduce within the block first (tl.sum, tl.histogram). Then do one tl.atomic_add per block and address.",
                "Give each block a private row of the counters. Sum the rows in a second kernel.",
            ),
            numba=(
                "Count in a shared array first (cuda.shared.array, cuda.atomic.add on it). Update global memory once per block.",
                "Give each block a private copy of the counters. Combine the copies at the end.",
            ),
            warp=(
                "Reduce within the block first (wp.tile_sum over a tile). Then do one wp.atomic_add per block.",
                "Give each group of threads a private copy of the counters. Combine the copies at the end.",
            ),
        ),
        "Fewer RED or ATOM instructions, no stalls at them, idle L2 atomic units.",
        confidence="high" if waiting >= 0.3 or unit >= BUSY.value else "medium",
        locations=k.locate_stall("lg_throttle", ("atomic",))
        or k.locate_stall("long_scoreboard", ("atomic",))
        or k.locate_stall("short_scoreboard", ("atomic",)),
    )


def open_in_code(facts: KernelFacts) -> str:
    return "Whether atomic operations hit the same addresses." if facts.has("atomic") else ""


def _l2_part(k: Kernel) -> float:
    mine = [
        v for name in ("l2_atomic_sectors", "l2_reduction_sectors") if (v := k[name]) is not None
    ]
    total = k["l2_sectors"]
    return min(1.0, sum(mine) / total) if mine and total else 0.0
