"""Threads were launched for which there is no work: lanes that a block does not fill, lanes past the
edge of the problem, and warps that leave at once.

What it is
A block takes whole warps of 32 lanes. A block of 16 threads fills half of one; a block of 16 by 16
over a matrix 22 wide has rows of which six lanes lie past the edge; a grid sized for more threads
than there are results starts warps that compare an index with a bound and leave.

Why it costs time
An empty lane takes part in every instruction of its warp and does nothing, so the warps need more
instructions for the same work. A warp that has left makes no room for a new block: its block stays
until its last warp is done, and meanwhile the SM runs few warps.

How to confirm
A block of fewer than 32 threads, or no multiple of 32. Few active lanes an instruction although no
branch diverges, and an exit behind a comparison with a bound at the kernel's beginning. Achieved
occupancy far below the theoretical one although there are many waves and all SMs work.

What to change
Make blocks a multiple of 32 threads, 128 or 256 where nothing asks for another size. Give the block
the shape of the problem: its x a divisor of the row, or one index for rows and columns together.
Launch as many threads as there are results.

When the advice is wrong
A few empty lanes at the edge of a large problem cost nothing. Where memory is the limit, full warps
move the same bytes and wait for them as long: only the instructions become fewer. Lanes that are
switched off by predicates, or parted by branches, have work; for the latter see Warp divergence.

Source
CUDA C++ Best Practices Guide, "Thread and Block Heuristics" (a multiple of the warp size); Nsight
Compute's LaunchConfiguration rule.
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules import _lanes
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    LANES,
    ONE_WAVE,
    Threshold,
    fact,
    facts,
    finding,
    locate,
    ruled_out,
)
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.model import Evidence, Finding, Location, NoFinding, Profile

ID: Final = "idle-threads"
TITLE: Final = "Threads without work"
REQUIRES: Final = ()
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
WAVES: Final = Threshold(
    10.0, "start and end of a launch, and a partial last wave, are a tenth of it then at most"
)
WORKING: Final = Threshold(
    0.8, "SMs that work for most of the time have blocks, so that their warps have left"
)
SLOW: Final = Threshold(
    0.25, "half of the 0.5 blocks a cycle at which short blocks keep GPUs at their limit"
)


class Words:
    one_block = "The launch is one block: its size matters less than that there are no others."
    full = "The launch has work for nearly all of its threads."
    few_warps = "Blocks of {threads} ({shape}) fill {lanes} of the 32 lanes of a warp. The others are empty in every instruction."
    edge = (
        "Lanes past the edge of the problem leave at once. Of each warp that goes on, {lanes} of 32 lanes work: blocks are {shape} "
        "threads, the grid is {width} threads wide and {height} high."
    )
    leave = "{gone} of the warps leave at once: the grid has more threads than there is work for."
    vanish = (
        "Warps fill only {used} of the SMs although the launch allows {allowed}, over {waves} waves in which the SMs work. Most warps of a "
        "block leave long before its last one."
    )
    fill = (
        "Make the block a multiple of 32 threads: 128 or 256 where nothing asks for another size."
    )
    shape = "Give the block the shape of the problem: an x that divides the row, or one index over rows and columns."
    fewer = (
        "Launch as many threads as there are results: smaller blocks, or a grid sized by the work."
    )
    look_for = "Active lanes near 32, and achieved occupancy near the theoretical one."
    basis = "Full warps have {more} the lanes at work, at the same number of warps."


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    filled, gone = _lanes.filled(profile), _lanes.left(profile)
    if profile.launch.blocks <= 1:
        return ruled_out(ID, Words.one_block, *_measured(profile))
    if filled < LANES.value:
        return _part_filled(profile, model, filled)
    active = profile.value("lanes_per_instruction")
    past = gone is not None and gone.edge and gone.lanes < LANES.value
    if gone and past and active is not None and active >= _lanes.NEARLY * gone.lanes:
        return _past_edge(profile, model, gone)
    several = (profile.value("waves") or 0.0) >= ONE_WAVE.value
    if gone is not None and gone.warps < HALF.value and several:
        return _leaving(
            profile, model, Words.leave.format(gone=units.percent(1 - gone.warps)), gone
        )
    if not profile.instructions and _vanish(profile, model):
        said = Words.vanish.format(
            used=units.percent(profile.value("achieved_occupancy") or 0.0),
            allowed=units.percent(profile.value("theoretical_occupancy") or 0.0),
            waves=units.significant(profile.value("waves") or 0.0, 2),
        )
        return _leaving(profile, model, said, None)
    return ruled_out(ID, Words.full, *_measured(profile))


def _measured(profile: Profile) -> tuple[Evidence, ...]:
    return facts(
        fact(profile, "lanes_per_instruction", "", LANES, "<"),
        fact(profile, "branch_uniformity"),
        fact(profile, "occupancy_fill"),
        fact(profile, "waves"),
    )


def _part_filled(profile: Profile, model: TimeModel, lanes: float) -> Finding | NoFinding:
    """Blocks that fill no warp: of full ones as many run at a time, each with more lanes at work."""
    threads, left = profile.launch.threads_per_block, lanes / figures.WARP
    empty = Evidence(
        "block_size",
        "Threads a block",
        float(threads),
        "count",
        "A block takes whole warps of 32 lanes.",
        float(figures.WARP),
        "<",
        "one warp",
    )
    removal = Removal(
        "with full warps",
        stalls=dict.fromkeys(("not_selected", "math_pipe_throttle", "dispatch_stall"), left),
        loads=dict.fromkeys(COMPUTE, left),
        parallelism=1 / left,
        basis=Words.basis.format(more=units.ratio(1 / left)),
    )
    return finding(
        ID,
        Words.few_warps.format(
            threads=units.counted(threads, "thread"),
            shape=_shape(profile),
            lanes=units.significant(lanes),
        ),
        model.without(removal),
        (empty, *_measured(profile)),
        (Words.fill, Words.shape),
        Words.look_for,
    )


def _past_edge(profile: Profile, model: TimeModel, gone: _lanes.Left) -> Finding | NoFinding:
    """Full warps are fewer, with fewer instructions; what they move and wait for stays."""
    left = gone.lanes / figures.WARP
    grid, block = profile.launch.grid, profile.launch.block
    return finding(
        ID,
        Words.edge.format(
            lanes=units.significant(gone.lanes),
            shape=_shape(profile),
            width=units.count(grid[0] * block[0]),
            height=units.count(grid[1] * block[1]),
        ),
        model.without(
            Removal("with full warps", loads=dict.fromkeys(COMPUTE, left), instructions=left)
        ),
        _measured(profile),
        (Words.shape, Words.fewer),
        Words.look_for,
        locations=_places(profile, gone),
    )


def _leaving(
    profile: Profile, model: TimeModel, summary: str, gone: _lanes.Left | None
) -> Finding | NoFinding:
    """Blocks without the warps that leave: the SMs have room for as many more that stay."""
    fill = figures.value(profile, "occupancy_fill") or 1.0
    return finding(
        ID,
        summary,
        model.without(Removal("with working warps alone", parallelism=max(1.0, 1 / fill))),
        (
            *_measured(profile),
            fact(profile, "achieved_occupancy"),
            fact(profile, "theoretical_occupancy"),
        ),
        (Words.fewer, Words.shape),
        Words.look_for,
        confidence="high" if gone is not None else "medium",
        locations=_places(profile, gone) if gone is not None else (),
    )


def _vanish(profile: Profile, model: TimeModel) -> bool:
    """Whether warps leave blocks that go on, by the counters alone: the SMs work over many waves of
    blocks, each of several warps, nothing is busy, and yet most warp slots are empty."""
    fill = figures.value(profile, "occupancy_fill")
    return (
        fill is not None
        and fill < EMPTY.value
        and (profile.value("waves") or 0.0) >= WAVES.value
        and profile.launch.threads_per_block > figures.WARP
        and model.working >= WORKING.value
        and model.busy("blocks") < SLOW.value
        and model.busiest()[1] < BUSY.value
    )


def _places(profile: Profile, gone: _lanes.Left) -> tuple[Location, ...]:
    test = profile.instructions[gone.at]
    return locate(profile, lambda row: float(row is test), "the tests by which lanes leave at once")


def _shape(profile: Profile) -> str:
    return "×".join(map(str, profile.launch.block))
