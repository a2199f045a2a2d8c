"""Too few warps are resident on each SM to hide latency, and a resource of the launch says how many fit.

What it is
An SM holds as many blocks as fit by registers, shared memory, threads (warps), block slots and barriers; the scarcest
decides. Theoretical occupancy is that number of warps over the most the SM can hold.

Why it costs time
Each waiting warp leaves the scheduler to the others. With few warps all of them wait at the same time, and the
scheduler idles.

How to confirm
Theoretical occupancy is low, the schedulers idle, stalls are latencies (scoreboards, wait), and no unit is near its
peak.

What to change
Relax the limit that the verdict names: registers (smaller tile, __launch_bounds__), shared memory (smaller or fewer
buffers), block size (more, smaller blocks, or a size that divides the SM's warps), block slots (larger blocks).

When the advice is wrong
High occupancy is only a means to hide latency. Kernels with much independent work in each warp run best at 12-25%: if
issue slots or a pipe are busy, leave occupancy as it is. Cutting registers until they spill costs more than it gains.

Source
CUDA C++ Best Practices Guide, "Occupancy"; Volkov, "Better Performance at Lower Occupancy"; Nsight Compute's Occupancy
rules (below 80% theoretical).
"""

from collections.abc import Mapping
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.hardware.specs import next_steps, what_if_block
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.figures import WARP
from ncu_toolkit.kernel.diagnosis.kernel import HIDDEN_BY_WARPS, Kernel, Outcome, Removal, percent
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, Specificity, StaticFinding, evidence
from ncu_toolkit.kernel.diagnosis.rules._launch import filled_lanes, is_multiply_add
from ncu_toolkit.kernel.diagnosis.thresholds import (
    BUSY,
    LOW_OCCUPANCY,
    MULTIPLY_ADDS,
    SATURATED,
    Threshold,
)
from ncu_toolkit.kernel.diagnosis.time_model import RESOURCES

TITLE: Final = "Low occupancy"
REQUIRES: Final = ("theoretical_occupancy",)
OPTIONAL: Final = (
    "stalls", "issue_active", "block_limit_registers", "block_limit_shared", "block_limit_warps",
    "block_limit_blocks",
)  # fmt: skip
COSTS: Final = ((), HIDDEN_BY_WARPS)
NCU: Final = (("TheoreticalOccupancy", ""), ("AchievedOccupancy", ""), ("SOLBottleneck", "latency"))
CODE_RANK: Final = 14
SLOTS: Final = Threshold(
    0.8,
    "Nsight Compute's TheoreticalOccupancy rule; blocks of another size fill more of the SM at the same registers per thread",
)
ISSUING: Final = Threshold(
    0.6,
    "Nsight Compute's IssueSlotUtilization rule: at 0.6 instructions per cycle or more, the schedulers are not the limit",
)
TILE: Final = Threshold(64.0, "twice the 32 registers that each thread of a full SM gets (65,536 for 2,048): the rest holds a tile")  # fmt: skip
SLOT: Final = "block_limit_blocks"

#: What to do by the name of the limiter.
_CUDA: Final = {
    "block_limit_registers": "Use fewer registers per thread: a smaller tile, or __launch_bounds__ with the number of blocks you want per SM.",
    "block_limit_shared": "Use less shared memory per block: smaller tiles, fewer stages, narrower types, or one larger block that "
    "shares the tile.",
    "block_limit_warps": "Choose a block size that divides the SM's warps evenly: 128 or 256 threads rather than 768 or 1024.",
    "block_limit_blocks": "Use larger blocks. The SM runs out of block slots before it runs out of warp slots.",
    "block_limit_barriers": "Use fewer named barriers per block.",
}
_ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = {
    "triton": {
        "block_limit_registers": "Use fewer registers per thread: a smaller block, more warps for it (num_warps), or a limit (maxnreg).",
        "block_limit_shared": "Use less shared memory per block: a smaller block, fewer stages (num_stages), or a narrower type.",
        "block_limit_warps": "Choose another num_warps: 4 or 8 warps per block divide the SM's warps evenly.",
        "block_limit_blocks": "Use larger blocks with more warps (num_warps). The SM runs out of block slots before it runs out of warp slots.",
    },
    "numba": {
        "block_limit_registers": "Use fewer registers per thread: a smaller tile, or @cuda.jit(max_registers=...)."
    },
    "warp": {
        "block_limit_registers": "Use fewer registers per thread: less work per thread, or @wp.kernel(launch_bounds=(threads, blocks)).",
        "block_limit_warps": "Choose a block_dim in wp.launch that divides the SM's warps evenly: 128 or 256.",
        "block_limit_blocks": "Use a larger block_dim in wp.launch. The SM runs out of block slots before it runs out of warp slots.",
    },
}


def find(k: Kernel) -> Outcome:
    occupancy = k["theoretical_occupancy"] or 0.0
    measured = k.fact("theoretical_occupancy", "<", LOW_OCCUPANCY)
    limiters = figures.occupancy_limiters(k.profile)
    # What a block hardly uses is counted as allowing as many blocks as there are slots.
    if larger := SLOT in limiters:
        limiters = (SLOT,)
    smaller = _by_smaller(k) if occupancy >= LOW_OCCUPANCY.value else 1.0
    enough = SLOTS if larger or smaller > 1 else LOW_OCCUPANCY
    if occupancy >= enough.value or occupancy <= 0:
        return k.ruled_out("The launch's resources allow enough warps.", measured)
    waves = k["waves"]
    if waves is not None and waves < 1:
        reason = "The grid does not fill the blocks that fit: see Grid too small."
        return k.ruled_out(reason, measured, "waves")
    if "block_limit_registers" in limiters and _is_tiled_product(k):
        return k.ruled_out(
            "Registers and shared memory hold the tile of a matrix product. More warps would mean smaller tiles and more "
            "traffic. Independent operations within each warp hide its latency instead.",
            measured,
            "registers_per_thread",
        )
    # Larger blocks are fewer, so that they need not start as fast.
    unit, busy = k.model.busiest(*(name for name in RESOURCES if name != "blocks" or not larger))
    words, issuing, why = RESOURCES[unit][2] if unit else "", k.model.busy("issue"), ""
    if busy >= SATURATED.value:
        why = f"A unit is near its peak ({words}, {percent(busy)} busy). More warps would not help."
    elif issuing >= ISSUING.value:
        issues = f"The schedulers issue in {percent(issuing)} of the cycles"
        why = f"{issues}, so there are enough warps."
    elif not k.model.stalls and busy >= BUSY.value:
        why = f"A unit is busy ({words}, {percent(busy)}). The report does not show what warps wait for."
    if why:
        return k.ruled_out(why, measured, "issue_active")
    factor = smaller if smaller > 1 else _gain(k, limiters, occupancy)
    advice = {**_CUDA, **_ELSEWHERE.get(k.language, {})}
    overlapped = k.model.waiting(*HIDDEN_BY_WARPS)
    words = " and ".join(figures.BLOCK_LIMITS[name] for name in limiters) or "its resources"
    waits, shown = "No unit is busy, so warps wait. The report does not show for what.", None
    if k.model.stalls:
        waits = f"Warps wait for results {percent(overlapped)} of their time, and too few others can issue."
        shown = k.stated("waiting_for_results", overlapped)
    return k.finding(
        f"Only {percent(occupancy)} of an SM's warp slots are used, limited by {words}. {waits}",
        Removal(
            f"with {units.ratio(factor)} as many warps",
            parallelism=factor,
            loads={"blocks": filled_lanes(k) / (factor * WARP)} if larger else {},
        ),
        (measured, " ".join(limiters), shown, "active_warps issue_active registers_per_thread"),
        [advice[name] for name in ("block_limit_warps",) * (smaller > 1) + limiters]
        or "Collect the Occupancy section to see what limits the blocks.",
        "Higher theoretical and achieved occupancy, more than one eligible warp, busier issue slots.",
        confidence="medium",
    )


specificity = Specificity.WARPS.always


def in_code(facts: KernelFacts) -> StaticFinding | None:
    found = facts.occupancy
    if found is None or found.fraction >= LOW_OCCUPANCY.value:
        return None
    hints = [
        f"{resource} down to {units.count(value)}"
        + (" bytes per block" if resource == "shared memory" else " per thread")
        for resource, value in next_steps(found).items()
    ]
    never = found.active_blocks == 0
    return facts.finding(
        "certain" if never else "possible",
        "No block fits on an SM, so the launch will fail." if never else
        f"{found.active_warps} of {found.max_warps} warps fit on an SM, limited by {' and '.join(found.limiters)}. "
        "That is enough if each warp has much independent work.",
        (
            evidence("theoretical_occupancy", "Theoretical occupancy", found.fraction, "fraction",
                     "Warps that fit over the most an SM holds.", (LOW_OCCUPANCY.value, "<")),
            evidence("registers", "Registers per thread", found.registers, "count", "As ptxas gives them."),
            evidence("shared", "Shared memory per block", found.shared, "B", "Static and dynamic."),
        ),
        f"One more block fits with {' or '.join(hints)}." if hints else "Choose another block size, so that more warps fit.",
        "Few eligible warps and idle issue slots.",
    )  # fmt: skip


def _is_tiled_product(k: Kernel) -> bool:
    """Whether multiply-adds on operands from shared memory are what the registers are for."""
    products = sum(r.warps for r in k.rows if r.kind == "tensor" or is_multiply_add(r.opcode))
    large = (k["registers_per_thread"] or 0.0) >= TILE.value
    return large and bool(k.executed("shared")) and products >= MULTIPLY_ADDS.value * k.total


def _by_smaller(k: Kernel) -> float:
    """How many times the warps fit in smaller blocks with as many registers per thread, where what one
    block leaves of them is too little for a second; else 1."""
    found = figures.occupancy_of(k.profile)
    if found is None or found.limiters != ("registers",) or found.active_blocks > 1:
        return 1.0
    sizes = what_if_block(found).items()
    return max(o.fraction for size, o in sizes if size <= found.block_threads) / found.fraction


def _gain(k: Kernel, limiters: tuple[str, ...], occupancy: float) -> float:
    """How many times the warps would fit if the limiter named did not limit: the next limiter
    decides, at most a full SM."""
    now = k["blocks_per_sm"]
    # As the driver split L1 for this launch: it has not been asked for a split for more blocks.
    limits = [k[name] for name in figures.BLOCK_LIMITS if name not in limiters]
    others = [limit for limit in limits if limit is not None and limit != now]
    if "block_limit_warps" in limiters or not now or not others:
        return 1 / occupancy
    return max(1.0, min(1 / occupancy, min(others) / now))
