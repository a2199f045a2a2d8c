"""Too few warps are resident on each SM to hide latency, and a resource of the launch says how many
fit.

What it is
An SM holds as many blocks as fit by registers, shared memory, threads (warps), block slots and
barriers; the scarcest decides. Theoretical occupancy is that number of warps over the most the SM
can hold.

Why it costs time
Each waiting warp leaves the scheduler to the others. With few warps all of them wait at the same
time, and the scheduler idles.

How to confirm
Theoretical occupancy is low, the schedulers idle, stalls are latencies (scoreboards, wait), and no
unit is near its peak.

What to change
The limiter named: registers (smaller tile, __launch_bounds__), shared memory (smaller or fewer
buffers), block size (more, smaller blocks, or a size that divides the SM's warps), block slots
(larger blocks).

When the advice is wrong
High occupancy is a means. Kernels with much independent work in each warp run best at 12-25%: if
issue slots or a pipe are busy, leave it. Cutting registers until they spill costs more than it
gains.

Source
CUDA C++ Best Practices Guide, "Occupancy"; Volkov, "Better Performance at Lower Occupancy"; Nsight
Compute's Occupancy rules (below 80% theoretical).
"""

from __future__ import annotations

import math
from typing import ClassVar, Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules import Specificity
from ncu_toolkit.diagnosis.rules._arithmetic import MULTIPLY_ADDS, is_multiply_add
from ncu_toolkit.diagnosis.rules._code import KernelFacts, StaticFinding, evidence
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    HIDDEN_BY_WARPS,
    LOW_OCCUPANCY,
    SATURATED,
    Threshold,
    fact,
    finding,
    ruled_out,
)
from ncu_toolkit.diagnosis.time_model import RESOURCES, Removal, TimeModel
from ncu_toolkit.hardware.occupancy import next_steps
from ncu_toolkit.model import Evidence, Finding, NoFinding, Profile
from ncu_toolkit.sass import attribution

ID: Final = "low-occupancy"
TITLE: Final = "Low occupancy"
REQUIRES: Final = ("theoretical_occupancy",)
OPTIONAL: Final = (
    "stalls", "issue_active", "block_limit_registers", "block_limit_shared", "block_limit_warps",
    "block_limit_blocks",
)  # fmt: skip
NCU: Final = (("TheoreticalOccupancy", ""), ("AchievedOccupancy", ""), ("SOLBottleneck", "latency"))
CODE_RANK: Final = 14
SLOTS: Final = Threshold(
    0.8,
    "Nsight Compute's TheoreticalOccupancy rule; larger blocks fill more of the SM at the same registers per thread",
)
ISSUING: Final = Threshold(
    0.6,
    "Nsight Compute's IssueSlotUtilization rule: at 0.6 instructions a cycle or more, the schedulers are not the limit",
)
TILE: Final = Threshold(
    64.0,
    "twice the 32 registers that each thread of a full SM gets (65,536 for 2,048): the rest holds a tile",
)
SLOT: Final = "block_limit_blocks"


class Words:
    advice: ClassVar = {
        "block_limit_registers": "Use fewer registers per thread: a smaller tile, or __launch_bounds__ with the number of blocks you want per SM.",
        "block_limit_shared": ("Use less shared memory per block: smaller tiles, fewer stages, narrower types, or one larger block that shares the "
"tile."),
        "block_limit_warps": "Choose a block size that divides the SM's warps evenly: 128 or 256 threads rather than 768 or 1024.",
        "block_limit_blocks": "Use larger blocks. The SM runs out of block slots before it runs out of warp slots.",
        "block_limit_barriers": "Use fewer named barriers per block.",
    }  # fmt: skip
    elsewhere: ClassVar = {
        "triton": {
            "block_limit_registers": "Use fewer registers per thread: a smaller block, more warps for it (num_warps), or a limit (maxnreg).",
            "block_limit_shared": "Use less shared memory per block: a smaller block, fewer stages (num_stages), or a narrower type.",
            "block_limit_warps": "Choose another num_warps: 4 or 8 warps per block divide the SM's warps evenly.",
            "block_limit_blocks": "Use larger blocks with more warps (num_warps). The SM runs out of block slots before it runs out of warp slots.",
        },
        "numba": {
            "block_limit_registers": "Use fewer registers per thread: a smaller tile, or @cuda.jit(max_registers=...).",
        },
        "warp": {
            "block_limit_registers": "Use fewer registers per thread: less work per thread, or @wp.kernel(launch_bounds=(threads, blocks)).",
            "block_limit_warps": "Choose a block_dim in wp.launch that divides the SM's warps evenly: 128 or 256.",
            "block_limit_blocks": "Use a larger block_dim in wp.launch. The SM runs out of block slots before it runs out of warp slots.",
        },
    }  # fmt: skip
    nothing_busy = "No unit is busy, so warps wait. The report does not show for what."
    enough = "The launch's resources allow enough warps."
    small_grid = "The grid does not fill the blocks that fit: see Grid too small."
    tile = (
        "Registers and shared memory hold the tile of a matrix product. More warps would mean smaller tiles and more traffic. "
        "Independent operations within each warp hide its latency instead."
    )
    busy = "A unit is near its peak ({words}, {busy} busy). More warps would not help."
    issuing = "The schedulers issue in {part} of the cycles, so there are enough warps."
    not_known = "A unit is busy ({unit}, {busy}). The report does not show what warps wait for."
    found = "Only {occupancy} of an SM's warp slots are used, limited by {words}. "
    waiting = "Warps wait for results {overlapped} of their time, and too few others can issue."
    collect = ("Collect the Occupancy section to see what limits the blocks.",)
    look_for = "Higher theoretical and achieved occupancy, more than one eligible warp, busier issue slots."
    never = "No block fits on an SM, so the launch will fail."
    code = "{active} of {most} warps fit on an SM, limited by {limiters}. That is enough if each warp has much independent work."
    code_advice = "Choose another block size, so that more warps fit."
    code_look_for = "Few eligible warps and idle issue slots."


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    occupancy = figures.value(profile, "theoretical_occupancy") or 0.0
    measured = fact(profile, "theoretical_occupancy", "", LOW_OCCUPANCY, "<")
    limiters = figures.occupancy_limiters(profile)
    # What a block hardly uses is counted as allowing as many blocks as there are slots.
    if larger := SLOT in limiters:
        limiters = (SLOT,)
    enough = SLOTS if larger else LOW_OCCUPANCY
    if occupancy >= enough.value or occupancy <= 0:
        return ruled_out(ID, Words.enough, measured)
    waves = profile.value("waves")
    if waves is not None and waves < 1:
        return ruled_out(ID, Words.small_grid, measured, fact(profile, "waves"))
    if _is_tiled_product(profile):
        return ruled_out(ID, Words.tile, measured, fact(profile, "registers_per_thread"))
    # Larger blocks are fewer, so that they need not start as fast.
    busiest, busy = model.busiest(*(name for name in RESOURCES if name != "blocks" or not larger))
    if busy >= SATURATED.value:
        words = RESOURCES[busiest][2]
        return ruled_out(
            ID,
            Words.busy.format(words=words, busy=units.percent(busy)),
            measured,
            fact(profile, "issue_active"),
        )
    if model.busy("issue") >= ISSUING.value:
        return ruled_out(
            ID,
            Words.issuing.format(part=units.percent(model.busy("issue"))),
            measured,
            fact(profile, "issue_active"),
        )
    if not model.stalls and busy >= BUSY.value:
        return ruled_out(
            ID,
            Words.not_known.format(unit=RESOURCES[busiest][2], busy=units.percent(busy)),
            measured,
        )
    factor = _gain(profile, limiters, occupancy)
    overlapped = model.waiting(*HIDDEN_BY_WARPS)
    removal = Removal(
        f"with {units.ratio(factor)} as many warps",
        parallelism=factor,
        loads={"blocks": _blocks_left(profile, factor)} if larger else {},
    )
    words = " and ".join(figures.BLOCK_LIMITS[name] for name in limiters) or "its resources"
    return finding(
        ID,
        Words.found.format(occupancy=units.percent(occupancy), words=words)
        + (
            Words.waiting.format(overlapped=units.percent(overlapped))
            if model.stalls
            else Words.nothing_busy
        ),
        model.without(removal),
        (
            measured,
            *(fact(profile, name) for name in limiters),
            Evidence(
                "waiting_for_results",
                "Waiting that more warps overlap",
                overlapped,
                "fraction",
                "Part of a warp's time in scoreboard, fixed-latency and similar stalls, without barriers and full queues.",
            )
            if model.stalls
            else None,
            fact(profile, "active_warps"),
            fact(profile, "issue_active"),
            fact(profile, "registers_per_thread"),
        ),
        _advice(profile, limiters),
        Words.look_for,
        confidence="medium",
    )


def specificity(finding: Finding) -> Specificity:
    return Specificity.WARPS


def in_code(facts: KernelFacts) -> StaticFinding | None:
    found = facts.occupancy
    if found is None or found.fraction >= LOW_OCCUPANCY.value:
        return None
    hints = [
        f"{resource} down to {units.count(value)}"
        + (" bytes a block" if resource == "shared memory" else " a thread")
        for resource, value in next_steps(found).items()
    ]
    never = found.active_blocks == 0
    return StaticFinding(
        ID, "certain" if never else "possible",
        Words.never if never else Words.code.format(active=found.active_warps, most=found.max_warps, limiters=" and ".join(found.limiters)),
        (
            evidence("theoretical_occupancy", "Theoretical occupancy", found.fraction, "fraction",
                     "Warps that fit over the most an SM holds.", LOW_OCCUPANCY.value, "<"),
            evidence("registers", "Registers a thread", found.registers, "count", "As ptxas gives them."),
            evidence("shared", "Shared memory a block", found.shared, "B", "Static and dynamic."),
        ),
        f"One more block fits with {' or '.join(hints)}." if hints else Words.code_advice, Words.code_look_for,
    )  # fmt: skip


def _advice(profile: Profile, limiters: tuple[str, ...]) -> tuple[str, ...]:
    words = Words.advice | Words.elsewhere.get(language.language(profile), {})
    return tuple(words[name] for name in limiters) or Words.collect


def _is_tiled_product(profile: Profile) -> bool:
    """Whether multiply-adds on operands from shared memory are what the registers are for."""
    total = sum(row.warps for row in figures.rows(profile))
    products = sum(
        row.warps
        for row in figures.rows(profile)
        if attribution.kind(row.opcode) == "tensor" or is_multiply_add(row.opcode)
    )
    registers = figures.value(profile, "registers_per_thread") or 0.0
    return (
        registers >= TILE.value
        and bool(figures.executed(profile, ("shared",)))
        and products >= MULTIPLY_ADDS.value * total
    )


def _blocks_left(profile: Profile, factor: float) -> float:
    """Part (0-1) of the blocks that there are where each has `factor` times the warps, and no warp
    lacks lanes."""
    threads = profile.launch.threads_per_block
    return threads / (factor * figures.WARP * math.ceil(threads / figures.WARP)) if threads else 1.0


def _gain(profile: Profile, limiters: tuple[str, ...], occupancy: float) -> float:
    """How many times the warps would fit if the limiter named did not limit: the next limiter
    decides, at most a full SM."""
    now = figures.value(profile, "blocks_per_sm")
    # As the driver split L1 for this launch: it has not been asked for a split for more blocks.
    others = [
        v
        for name in figures.BLOCK_LIMITS
        if name not in limiters and (v := profile.value(name)) is not None and v != now
    ]
    if "block_limit_warps" in limiters or not now or not others:
        return 1 / occupancy
    return max(1.0, min(1 / occupancy, min(others) / now))
