"""Threads were launched for which there is no work: lanes that a block does not fill, lanes past the
edge of the problem, and warps that leave at once.

What it is
A block takes whole warps of 32 lanes. A block of 16 threads fills half of one; a block of 16 by 16
over a matrix 22 wide has rows of which six lanes lie past the edge; a grid sized for more threads than there
are results starts warps that leave at a bound, or blocks that run the code without reading or writing memory.

Why it costs time
An empty lane takes part in every instruction of its warp and does nothing, so the warps need more
instructions for the same work. A warp that has left makes no room for a new block: its block stays
until its last warp is done, and meanwhile the SM runs few warps.

How to confirm
A block of fewer than 32 threads, or not a multiple of 32. Few active lanes an instruction although no
branch diverges, and an exit behind a comparison with a bound at the kernel's beginning. Achieved
occupancy far below the theoretical one although there are many waves and all SMs work.

What to change
Make blocks a multiple of 32 threads, 128 or 256 where nothing asks for another size. Give the block
the shape of the problem: its x a divisor of the row, or one index for rows and columns together.
Launch as many threads as there are results.

When the advice is wrong
A few empty lanes at the edge of a large problem cost nothing. Where memory is the limit, full warps
move the same bytes and wait for them as long: only the instructions become fewer. Lanes that are
switched off by predicates, or split by branches, have work; for the latter see Warp divergence.

Source
CUDA C++ Best Practices Guide, "Thread and Block Heuristics" (a multiple of the warp size); Nsight
Compute's LaunchConfiguration rule.
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Evidence, Location
from ncu_toolkit.kernel.diagnosis.figures import WARP
from ncu_toolkit.kernel.diagnosis.kernel import Given, Kernel, Outcome, Removal, keep, percent
from ncu_toolkit.kernel.diagnosis.rules import _launch
from ncu_toolkit.kernel.diagnosis.thresholds import BUSY, LANES, ONE_WAVE, Threshold
from ncu_toolkit.kernel.diagnosis.time_model import OFF_CHIP, RESOURCES

TITLE: Final = "Idle threads"
OPTIONAL: Final = ("lanes_per_instruction", "occupancy_fill", "waves", "stalls")
NCU: Final = (("LaunchConfiguration", "block size"), ("ThreadDivergence", ""))
FROM_SHAPE: Final = True
CONFIRMED_BY: Final = ()
#: Units whose work is the instructions' own, so that it goes where full warps need fewer.
COMPUTE: Final = ("issue", "fma", "fmaheavy", "alu", "fp64", "fp16", "xu", "uniform")
HALF: Final = Threshold(0.5, "most of the warps launched then do nothing")
EMPTY: Final = Threshold(
    0.4,
    "of public launches that start blocks slowly and keep no unit busy, those of equal warps fill 0.5 of their slots and more",
)
WAVES: Final = Threshold(10.0, "start and end of a launch, and a partial last wave, are a tenth of it then at most")  # fmt: skip
WORKING: Final = Threshold(0.8, "SMs that work for most of the time have blocks, so that their warps have left")  # fmt: skip
SLOW: Final = Threshold(0.3, "half of the 0.5 blocks per cycle, of 0.84, at which short blocks keep GPUs at their limit")  # fmt: skip
FITS: Final = "Give the block the shape of the problem: an x that divides the row, or one index over rows and columns."
FEWER: Final = (
    "Launch as many threads as there are results: smaller blocks, or a grid sized by the work."
)
LOOK_FOR: Final = "Active lanes near 32, and achieved occupancy near the theoretical one."


def find(k: Kernel) -> Outcome:
    lanes = k.fact("lanes_per_instruction", "<", LANES)
    measured = (lanes, "branch_uniformity occupancy_fill waves")
    if k.blocks <= 1:
        reason = "The launch is one block: its size matters less than that there are no others."
        return k.ruled_out(reason, measured)
    if _launch.filled_lanes(k) < LANES.value:
        return _empty_lanes(k, measured)
    gone, active = _launch.lanes_left(k), k["lanes_per_instruction"]
    past = gone is not None and gone.edge and gone.lanes < LANES.value
    if gone and past and active is not None and active >= _launch.NEARLY_ALL * gone.lanes:
        return _past_the_edge(k, gone, measured)
    part = _launch.few_at_work(k)
    if part and _launch.blocks_skip(k, part[1]):
        return _blocks(k, *part, measured)
    if (few := _launch.blocks_at_work(k)) is not None:
        return _blocks(k, few, range(0), measured)
    waves = k["waves"] or 0.0
    if gone is not None and gone.warps < HALF.value and waves >= ONE_WAVE.value:
        summary = f"{percent(1 - gone.warps)} of the warps leave at once: the grid has more threads than there is work for."
    elif not k.instructions and _vanish(k):
        summary = (
            f"Warps fill only {percent(k['achieved_occupancy'] or 0.0)} of the SMs although the launch allows "
            f"{percent(k['theoretical_occupancy'] or 0.0)}, over {units.significant(waves, 2)} waves in "
            "which the SMs work. Most warps of a block leave long before its last one."
        )
    else:
        return k.ruled_out("The launch has work for nearly all of its threads.", measured)
    # Without the warps that leave the SMs have room for as many more that stay.
    more = max(1.0, 1 / (k["occupancy_fill"] or 1.0))
    return k.finding(
        summary,
        Removal("with working warps alone", parallelism=more),
        (measured, "achieved_occupancy theoretical_occupancy"),
        (FEWER, FITS),
        LOOK_FOR,
        confidence="high" if k.instructions else "medium",
        locations=_tests(k, gone),
    )


def _blocks(k: Kernel, few: Evidence, part: range, measured: Given) -> Outcome:
    """Blocks that skip the part where the time goes, or reach no memory, for which no part is given.
    Without them what all execute is that much less."""
    inside = k.instructions[part.start : part.stop]
    sampled = [x for x in k.model.stalls if k.sampled_at(x, range(len(k.instructions)))]
    stalls = {reason: keep(1 - k.sampled_at(reason, part), few.value) for reason in sampled}
    words = f"Only {percent(few.value)} of the blocks have work: the others skip the code where most of the time is spent."
    if not inside:
        words = f"No more than {percent(few.value)} of the blocks have work: the others neither read nor write memory."
    return k.finding(
        words,
        Removal(
            "with working blocks alone",
            stalls=stalls,
            loads={} if inside else dict.fromkeys({*RESOURCES}.difference(OFF_CHIP), few.value),
            instructions=keep(1 - sum(row.executed or 0 for row in inside) / k.total, few.value),
        ),
        (few, measured),
        ("Launch as many blocks as there are parts of the work.", FEWER),
        "Fewer blocks for the same work.",
        confidence="medium",
    )


def _empty_lanes(k: Kernel, measured: Given) -> Outcome:
    """Blocks whose warps are not full: of full ones as many run at a time, with more lanes at work."""
    filled = _launch.filled_lanes(k)
    left, shape = filled / WARP, "×".join(map(str, k.block))
    more = 1.0
    basis = "All threads run at once already: full warps are fewer, and none gets done earlier."
    if (k["waves"] or 1.0) >= ONE_WAVE.value:
        more = 1 / left
        basis = f"Full warps have {units.ratio(more)} the lanes at work, and are as many."
    size = k.stated("block_size", k.threads, "<", Threshold(float(WARP), "one warp"))
    multiple = (
        "Make the block a multiple of 32 threads: 128 or 256 where nothing asks for another size."
    )
    return k.finding(
        f"Blocks of {units.counted(k.threads, 'thread')} ({shape}) fill {units.significant(filled)} of the 32 "
        "lanes of a warp. The others are empty in every instruction.",
        Removal(
            "with full warps",
            stalls=dict.fromkeys(("not_selected", "math_pipe_throttle", "dispatch_stall"), left),
            loads=dict.fromkeys(COMPUTE, left),
            parallelism=more,
            basis=basis,
        ),
        (size, measured),
        (multiple, FITS),
        LOOK_FOR,
    )


def _past_the_edge(k: Kernel, gone: _launch.Left, measured: Given) -> Outcome:
    """Lanes outside of the problem. Full warps are fewer, with fewer instructions; what they move and
    wait for stays."""
    left, shape = gone.lanes / WARP, "×".join(map(str, k.block))
    wide, high = (units.count(k.grid[axis] * k.block[axis]) for axis in (0, 1))
    return k.finding(
        f"Lanes past the edge of the problem leave at once. Of each warp that goes on, {units.significant(gone.lanes)} of "
        f"32 lanes work: blocks are {shape} threads, the grid is {wide} threads wide and {high} high.",
        Removal("with full warps", loads=dict.fromkeys(COMPUTE, left), instructions=left),
        measured,
        (FITS, FEWER),
        LOOK_FOR,
        locations=_tests(k, gone),
    )


def _tests(k: Kernel, gone: _launch.Left | None) -> tuple[Location, ...]:
    test = k.instructions[gone.at] if gone else None
    return k.locate(lambda row: float(row is test), "the tests by which lanes leave at once")


def _vanish(k: Kernel) -> bool:
    """Whether warps leave blocks that go on, by the counters alone: the SMs work over many waves of
    blocks, each of several warps, nothing is busy, and yet most warp slots are empty."""
    return (
        (k["occupancy_fill"] or 1.0) < EMPTY.value
        and (k["waves"] or 0.0) >= WAVES.value
        and k.threads > WARP
        and k["active_fraction"] is not None
        and k.model.working >= WORKING.value
        and (k["block_start_active"] or 1.0) < SLOW.value
        and k.model.busiest()[1] < BUSY.value
    )
