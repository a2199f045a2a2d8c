"""Many threads update the same few addresses by atomic operations, which then happen one after another.

What it is
An atomic update is done in the L2 slice (or the SM's shared memory) that owns the address. Updates to one address are
serial, however many threads ask.

Why it costs time
Thousands of threads queue for one counter: the queue to L1 fills (LG throttle), results come back late (long
scoreboard), or, in shared memory, lanes retry in turn (short scoreboard, MIO throttle).

How to confirm
The stalls are at ATOM, RED or ATOMS instructions, or at loads behind them; the busiest of the L2 atomic units is busy,
whatever the mean of all; or shared atomics repeat; or samples are in a loop of LDS, ATOMS.CAST.SPIN (ATOM.CAS) and BRA
that warps pass many times for each update.

What to change
Where lanes scatter over few addresses (a histogram), count in a copy per block in shared memory, and add it up at the
block's end; a grid stride makes such ends few. Where all lanes add to one address, reduce within the warp first
(shuffles, __reduce_add_sync), then within the block. Sums of floats and of 64 bits in shared memory are
compare-and-swap loops: use 32-bit integers there, or one lane per warp.

When the advice is wrong
When addresses are spread, atomics run at close to the speed of stores. Aggregation costs instructions that a rare
atomic does not repay.

Source
CUDA Pro Tip "Optimized Filtering with Warp-Aggregated Atomics"; CUDA C++ Programming Guide, "Atomic Functions".
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, capital, keep, percent
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, _launch
from ncu_toolkit.kernel.diagnosis.thresholds import BUSY, WEAK_STALL, Threshold
from ncu_toolkit.kernel.sass import attribution

TITLE: Final = "Atomic contention"
LIMIT: Final = "memory"
REQUIRES: Final = ("opcodes",)
OPTIONAL: Final = (
    "stalls", "l2_atomic_unit_active", "l2_atomic_unit_busiest", "l2_reduction_sectors", "l2_atomic_sectors",
)  # fmt: skip
COSTS: Final = (
    ("atomic",),
    ("long_scoreboard", "lg_throttle", "mio_throttle", "drain", "membar", "short_scoreboard"),
)
NCU: Final = (("CPIStall", "lg throttle"), ("CPIStall", "membar"))
UNITS: Final = ("atomic",)
#: One update a warp instead of one per lane: what aggregation by shuffles leaves.
AGGREGATED: Final = 1 / 32
#: Through which queue updates of global and of shared memory go, per the profiler's documentation
#: of stalls.
GLOBAL: Final = ("long_scoreboard", "lg_throttle")
SHARED: Final = ("short_scoreboard", "mio_throttle")
REASONS: Final = (*GLOBAL, *SHARED)
#: Sectors of an update from which its lanes scatter; below, they meet in an address or two.
ONE: Final = 1.5
AGAIN: Final = Threshold(2.0, "with half of the passes done again, combining lanes first breaks even")  # fmt: skip
#: An update whose old value is used.
_OLD: Final = re.compile(r"\bATOMG?\b\S*\.(?:ADD|INC)\b\S* (?:P\w+, )?R\d")
_PLACES: Final = (
    "The old value gives each thread its place: count the places within the block first (shared memory), and reserve them "
    "by one update per block and address. Or sort."
)
_WARPS: Final = (
    "Give each warp its own copy in shared memory, and add the copies up at the block's end. If all lanes add to one "
    "address, reduce within the warp instead."
)
_ONE_LANE: Final = (
    "Let one lane update for all lanes of its warp with the same address: reduce within the warp first (__reduce_add_sync or "
    "shuffles; to count or to reserve places, __ballot_sync and __popc)."
)
_POLLED: Final = (
    "Start blocks whose inputs are ready: a launch for each step of the dependency, or block numbers from a counter in that order.",
    "Where blocks must wait, let one lane of a block ask by a load (cuda::atomic_ref, load with memory_order_acquire) with "
    "__nanosleep between, and the others wait at the barrier.",
)
_NATIVE: Final = "Use 32-bit integers for updates in shared memory, if they suffice: these take one instruction, floats and 64-bit types a CAS loop."
#: A histogram, a sum, and how few blocks end with updates, by language.
_COMBINED: Final[Mapping[str, tuple[str, str, str]]] = {
    "cuda": ("count in a copy per block in shared memory, and add it to global memory once, at the block's end.",
             "reduce within the warp (__reduce_add_sync or shuffles), then within the block. Update global memory once per block.",
             "Launch only as many blocks as fit on the GPU, with a grid-stride loop, so that there is one update per resident block."),
    "triton": ("count within the program (tl.histogram), and do one tl.atomic_add per address.",
               "reduce within the program (tl.sum), and do one tl.atomic_add.",
               "Let each program loop over many blocks of the data, so that few results are added up."),
    "numba": ("count in a copy per block (cuda.shared.array, cuda.atomic.add on it), and add it to global memory once, at the block's end.",
              "reduce within the block (cuda.shared.array). Update global memory once per block.",
              "Launch only as many blocks as fit on the GPU, with a grid-stride loop (cuda.gridsize): then there is one update per resident block."),
    "warp": ("give each group of threads a copy of the counters, and add the copies up in a second launch.",
             "reduce within the block (wp.tile_sum over a tile). Do one wp.atomic_add per block.",
             "Let each thread loop over many elements, so that few results are added up."),
}  # fmt: skip


CALL: Final = {
    "torch": ("Replace index_add or scatter_add where few targets are hit often: sort the indices first, or multiply by a one-hot matrix.",
              "Sum in larger groups first, so that fewer updates meet."),
    "xla": ("Replace the scatter (.at[].add): with few targets compare with each and sum, else sort the indices first.",
            "Use jax.ops.segment_sum with indices_are_sorted=True where the indices are sorted."),
}  # fmt: skip
EVIDENCE: Final = (
    "kind_share:atomic l2_atomic_unit_active l2_atomic_unit_busiest stall_share:lg_throttle stall_share:long_scoreboard",
    "stall_share:short_scoreboard stall_share:mio_throttle stall_share:drain stall_share:membar l2_reduction_sectors l2_atomic_sectors",
)


def find(k: Kernel) -> Outcome:
    count = k.executed("atomic")
    if not count:
        return k.ruled_out("The kernel executes no atomic operations.")
    if figures.updates_apart(k.profile) and not k.of_base("ATOMS"):
        reason = "Updates go to different addresses, over all of L2: see Uncoalesced global access."
        return k.ruled_out(reason, EVIDENCE)
    if found := _again(k):
        return found
    # One hot address keeps everything behind it waiting, the loads that bring the next index too.
    queued = _launch.queued_behind_atomics(k)
    parts = {reason: max(queued, k.blame(reason, "atomic")) for reason in REASONS}
    waiting = sum(k.model.waiting(reason) * part for reason, part in parts.items())
    # A warp that has issued its last update cannot leave before it is done; fences wait for it too.
    after = k.model.waiting("drain", "membar")
    unit = k.model.busy("atomic")
    if waiting + after < WEAK_STALL.value and unit < BUSY.value:
        reason = f"Warps wait for atomic operations for only {percent(waiting)} of their time."
        return k.ruled_out(reason, EVIDENCE)
    stores = k.executed("global", "local") or 0.0
    share_after = max(queued, count / (count + stores))
    return k.finding(
        "Many threads update the same few addresses, so the updates run one after another. Warps spend "
        f"{percent(waiting + after * share_after)} of their time waiting for atomics{', or for what queues behind them' * bool(queued)}.",
        _combined(k, parts, share_after),
        EVIDENCE,
        _advice(k),
        "Fewer RED or ATOM instructions, and no stalls at them.",
        confidence="high" if waiting >= 0.3 or unit >= BUSY.value else "medium",
        locations=k.locate_stall("lg_throttle", ("atomic",))
        or k.locate_stall("long_scoreboard", ("atomic",))
        or k.locate_stall("short_scoreboard", ("atomic",)),
    )


def _combined(k: Kernel, parts: Mapping[str, float], share_after: float) -> Removal:
    """Updates combined first; `parts` of the waiting, `share_after` of that at the end, is for them."""
    # In shared memory private copies keep updates apart, but each still takes its pass through the
    # banks.
    passes, apart = _launch.atomic_wavefronts(k)
    banks = _launch.shared_wavefront_part(k) * passes
    private = max(AGGREGATED, apart) if passes else AGGREGATED
    left = dict.fromkeys(GLOBAL, AGGREGATED) | dict.fromkeys(SHARED, private)
    in_pipe = k.pipe_part("atomic", 0.0)
    pipe_left = keep(in_pipe, AGGREGATED)
    updates = (k["l2_atomic_sectors"] or 0.0) + (k["l2_reduction_sectors"] or 0.0)
    of_l2 = min(1.0, updates / (k["l2_sectors"] or math.inf))
    how = "with updates combined in each warp first"
    return Removal(
        how if banks < 0.5 else "with updates to different addresses",
        stalls={reason: keep(part, left[reason]) for reason, part in parts.items()}
        | dict.fromkeys(("drain", "membar"), keep(share_after, AGGREGATED)),
        loads={"atomic": AGGREGATED, "l2": keep(of_l2, AGGREGATED), "lsu": pipe_left}
        | {"l1_tag": pipe_left, "l1_data": keep(max(in_pipe, banks), private)},
        instructions=1.0 if passes else keep(k["kind_share:atomic"] or 0.0, AGGREGATED),
    )


def _again(k: Kernel) -> Outcome | None:
    """Updates by compare-and-swap in a loop, as those of floats and of 64 bits in shared memory are: of
    the lanes that meet at an address one gets through, and the others go round again. Or atomics that
    only ask whether others are done. None where few samples are in such loops, or warps mostly pass
    them once."""
    rows, inside, entered, passed, polled = k.instructions, set[int](), 0, 0, 0
    for loop in attribution.polls(rows):
        asked = [row for i in loop if attribution.kind((row := rows[i]).opcode) == "atomic"]
        if asked and loop[0] > 0:
            # Lanes that are done wait behind the loop for the others.
            inside.update(loop, [loop.stop] * (_launch.base_at(rows, loop.stop) == "BSYNC"))
            passed += (times := asked[-1].executed or 0)
            entered += rows[loop[0] - 1].executed or 0
            polled += times * (".CAS" not in asked[-1].opcode)
    parts = {reason: k.sampled_at(reason, inside) for reason in k.model.stalls}
    waiting = sum(k.model.waiting(reason) * part for reason, part in parts.items())
    if not entered or passed < AGAIN.value * entered or waiting < WEAK_STALL.value:
        return None
    left, shared, polls = entered / passed, k.of_base("ATOMS") > 0, polled > passed / 2
    again = sum(rows[i].executed or 0 for i in inside) / k.total
    elsewhere = {name: (capital(one),) for name, (_, one, _) in _COMBINED.items() if name != "cuda"}
    without = k.model.without(
        Removal(
            "with each update done at once",
            stalls={reason: keep(part, left) for reason, part in parts.items() if part},
            loads=_combined(k, {}, 1.0).loads if polls else {},
            instructions=keep(again, left),
        )
    )
    how = f"Lanes that update the same addresses retry: warps spend {percent(waiting)} of their time in a compare-and-swap loop"
    if polls:  # what it waits for takes as long as it takes
        without = replace(
            without, quantified=False, arithmetic=("How long the others take is not known.",)
        )
        how = f"Warps ask by atomics whether others are done, and spend {percent(waiting)} of their time in such a loop"
    return k.finding(
        f"{how}, with {units.significant(passed / entered, 2)} iterations per {'wait' if polls else 'update'}.",
        without,
        (
            k.stated("retries", passed / entered, ">=", AGAIN),
            "kind_share:atomic stall_share:short_scoreboard stall_share:long_scoreboard stall_share:wait",
        ),
        _POLLED if polls else (*k.advice(_ONE_LANE, **elsewhere), *(_NATIVE,) * shared),
        "No such loop, or one iteration per update.",
        locations=k.locate(
            lambda row: float(row.sample_count * (row.index in inside)), "the samples in the loop"
        ),
    )


def open_in_code(facts: KernelFacts) -> str:
    return "Whether atomic operations hit the same addresses." if facts.has("atomic") else ""


def _advice(k: Kernel) -> tuple[str, ...]:
    """By what tells a histogram from a sum: the sectors that an update of a warp touches, one where its
    lanes meet in one address. The general case first where that was not counted."""
    if k.of_base("ATOMS") > k.of_base("ATOM", "ATOMG", "RED", "REDG"):
        return (_WARPS,)
    rows = [row for row in k.instructions if attribution.kind(row.opcode) == "atomic"]
    counted = sum(row.executed or 0 for row in rows if "l2_sectors" in row.counters)
    sectors = sum(row.counters.get("l2_sectors", 0.0) for row in rows)
    old = sum(row.executed or 0 for row in rows if _OLD.search(row.sass))
    if old > counted / 2:
        return (_PLACES,)
    copies, one, loop = _COMBINED.get(k.language, _COMBINED["cuda"])
    if k.language == "cuda" and k.profile.mix.executed("SHFL|REDUX"):
        one = "each warp reduces its values already. Combine the warps' sums in shared memory, and update global memory once per block."
    if not counted:
        scattered = f"If lanes scatter over few addresses (a histogram): {copies}"
        return scattered, f"If all add to one: {one}", loop
    return capital(copies if sectors > ONE * counted else one), loop
