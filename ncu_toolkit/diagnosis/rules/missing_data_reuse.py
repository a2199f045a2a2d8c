"""The same bytes are fetched again and again from the caches or from device memory instead of being
kept in shared memory or registers.

What it is
Threads of a block often need the same data: each element of a matrix tile is used by a whole row of
results. When every thread loads its own operands from global memory, each byte is loaded many
times, and the caches deliver it at their bandwidth and latency.

Why it costs time
Every repeated load takes a slot of the load/store pipe, a lookup in L1, and, where L1 does not hold
the line, a trip to L2 or DRAM. The arithmetic waits for redundant loads.

How to confirm
Loads request many times the bytes that the problem needs, accesses are coalesced, and a level of
the memory hierarchy is busy, or the queue in front of it is full.

What to change
Stage tiles in shared memory and let each thread compute several results from registers, so that
each loaded value is used many times. For stencils keep a column in registers; for small tables use
shared memory. Fusing kernels reuses data across passes.

When the advice is wrong
When L1 serves the reuse and something else is the limit. When the working set of a block does not
fit into shared memory. When the reuse is across launches that cannot be fused.

Source
CUDA C++ Programming Guide, "Shared Memory" (tiled matrix product); Volkov, "Better Performance at
Lower Occupancy" (reuse in registers).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules._access import (
    busiest_with_loads,
    dependent_loads,
    global_waiting,
    is_broadcast,
    is_coalesced,
)
from ncu_toolkit.diagnosis.rules._arithmetic import MULTIPLY_ADDS, computing, is_multiply_add
from ncu_toolkit.diagnosis.rules._code import (
    FP32_BALANCE,
    KernelFacts,
    StaticFinding,
    evidence,
    locations,
    memory_levels,
)
from ncu_toolkit.diagnosis.rules._roof import COMPULSORY
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    WEAK_STALL,
    Threshold,
    blame,
    fact,
    finding,
    keep,
    load_fact,
    locate_stall,
    pipe_part,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import MEMORY, NOISE, PIPES, RESOURCES, Removal, TimeModel
from ncu_toolkit.model import Evidence, Finding, NoFinding, Profile
from ncu_toolkit.sass import attribution
from ncu_toolkit.sass.opcodes import GLOBAL_LOADS

#: Side of the patch of results that is advised where a thread computes one, and how near to two a
#: product's loads for each multiply-add are then (rules/shared_instruction_pressure.py).
SMALL_PATCH: Final = 4
ONE_RESULT: Final = 1.25
ID: Final = "missing-data-reuse"
TITLE: Final = "Missing data reuse"
LIMIT: Final = "memory"
REQUIRES: Final = ("load_reuse",)
OPTIONAL: Final = ("stalls", "opcodes", "global_sector_excess", "l1_hit_rate", "l1_fill_sectors")
NCU: Final = (("CPIStall", "long scoreboard"),)
CODE_RANK: Final = 4
open_in_code = memory_levels
REUSE: Final = Threshold(
    4.0,
    "staging an element costs a store and a load: a reuse of 2 breaks even, a reuse of 4 halves the accesses",
)
#: What stays of the work on the load path inside the SM: a value staged in shared memory is still
#: loaded from there, but one of two operands can then be read 16 bytes at a time: 1 + 1/4
#: instructions where there were 2.
ON_CHIP: Final = (1 + 1 / 4) / 2
#: What stays where each value loaded serves twice the results: the usual first step.
TWICE: Final = 0.5
#: Operations that a tile of 128 x 128 does for each byte of its 16-bit operands; tiles of that size
#: are the usual ones of libraries.
TILE: Final = 64.0
SMALL_TILE: Final = Threshold(
    TILE / 2,
    "operations a byte of a 64 x 64 tile of 16-bit operands, the least of common libraries",
)


class Words:
    found_tile = "The tiles of the product are small: tensor cores do {now} operations for each byte that comes into an SM."
    tile_basis = "A tile of 128 x 128 does {then} operations for each byte of 16-bit operands, this one {now}."
    tile_meaning = "Grows with the side of the tile that a block computes."
    tile_advice = "Let each block compute a larger tile, such as 128 x 128, and each warp a larger part of it."
    tile_look_for = (
        "Fewer instructions and bytes for the same matrix operations, a busier tensor pipe."
    )
    once = "Few bytes are loaded more than once."
    other_blocks = (
        "Other blocks load the same data: one SM's L1 serves almost none of it twice. A tile per block would not help. Larger "
        "tiles or another block order may."
    )
    scattered = "Scattered lanes inflate the traffic. Coalesce first, then measure again."
    broadcasts = "Loads broadcast one value to all lanes, so their number costs, not their bytes. See global-instruction-pressure."
    chased = "Warps wait for loads whose address comes from another load, so latency is the limit, not traffic."
    few = "The caches serve the reuse. Warps spend only {waiting} of their time waiting for global memory."
    idle = "Latency is the limit, not traffic: every memory level is at most {busy} busy."
    found_by_lanes = "Each byte is loaded about {asked} times instead of being kept in shared memory or registers. "
    found = "Loads request about {reuse} bytes from L1, in whole sectors, per byte that device memory must deliver. "
    found_once = (
        "Loads request about {reuse} bytes from L1 per byte that device memory must deliver. Each passes through shared memory "
        "and is read there once, so shared memory saves no load."
    )
    once_basis = "Half of the loads go, and with each its store to shared memory, its read there and its barriers."
    larger_tile = (
        "Make the tile that a block shares larger, or stage the reloaded data in shared memory too."
    )
    tile = "Load each tile into shared memory once per block, synchronise, and compute from there."
    several = "Let each thread compute several results, so that one loaded value in a register feeds several operations."
    patch_basis = (
        "A thread computes one result, so each multiply-add loads two values. A 4x4 tile of them needs a quarter of the loads, and "
        "shares the instructions around them."
    )
    elsewhere: ClassVar[language.Elsewhere] = {
        "triton": (
            "Let each program compute a larger block, so that a value once loaded serves several results.",
            "Order the programs so that those that run together read the same rows (grouped program ids), which L2 then holds.",
        ),
        "warp": (
            "Load each tile once per block (wp.tile_load), and compute from it (wp.tile_matmul, wp.tile_map).",
            several,
        ),
    }
    tile_elsewhere: ClassVar[language.Elsewhere] = {
        "triton": ("Use a larger tile, such as BLOCK_M = BLOCK_N = 128 with num_warps=4 or 8.",)
    }
    look_for = (
        "Fewer global loads, by the tile's width. Stalls move from long scoreboard and LG throttle to shared memory, then to "
        "arithmetic."
    )
    code = (
        "The loop loads each byte of the problem about {times} times. It does {requested} operations per byte, the problem "
        "allows {needed}."
    )
    code_advice = (
        "Stage tiles in shared memory, and keep a tile of results per thread in registers."
    )
    code_look_for = (
        "Far more sectors from L1 and L2 than the problem needs, and long scoreboard stalls at LDG."
    )
    asked = (
        "Bytes that lanes load from global memory, over the bytes that device memory must deliver. Scattered sectors do not "
        "count."
    )


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    reuse = figures.value(profile, "load_reuse") or 0.0
    measured = fact(
        profile,
        "load_reuse",
        (
            "Bytes of the sectors that loads request from L1, over the bytes that device memory must deliver. The excess is "
            "reloaded or unused."
        ),
        REUSE,
        ">=",
    )
    if reuse < REUSE.value:
        return ruled_out(ID, Words.once, measured)
    within = _reuse_within(profile)
    intensity = _tile_intensity(profile)
    if intensity is not None and intensity < SMALL_TILE.value:
        return _small_tile(profile, model, intensity, measured)
    if within is not None and within < COMPULSORY.value:
        return ruled_out(ID, Words.other_blocks, measured, fact(profile, "l1_hit_rate"))
    asked = _asked_again(profile)
    if not is_coalesced(profile) and (asked is None or asked < REUSE.value):
        return ruled_out(ID, Words.scattered, fact(profile, "global_sector_excess"))
    if is_broadcast(profile):
        return ruled_out(ID, Words.broadcasts, measured)
    if dependent_loads(profile) >= 0.5:
        return ruled_out(ID, Words.chased, measured)
    waiting = global_waiting(profile, model) if model.stalls else 1.0
    if waiting < WEAK_STALL.value:
        return ruled_out(ID, Words.few.format(waiting=units.percent(waiting)), measured)
    busiest, busy = busiest_with_loads(profile, model)
    # Loads queue in front of L1 in a line of their own, or behind shared memory's in the MIO queue.
    queue = model.waiting("lg_throttle")
    queue += model.waiting("mio_throttle") * blame(profile, "mio_throttle", ("global", "texture"))
    if busy < BUSY.value and queue < WEAK_STALL.value:
        return ruled_out(ID, Words.idle.format(busy=units.percent(busy)), measured)
    if _read_once(profile):
        return _passed_on(profile, model, reuse, measured)
    hit = figures.value(profile, "l1_hit_rate") or 0.0
    beyond = min(1.0, 1 / reuse * (1 / (1 - hit) if hit < 1 else reuse))
    one = _one_result(profile)
    served = 1 / SMALL_PATCH if one else ON_CHIP
    left = hit * served + (1 - hit) * beyond
    own = pipe_part(profile, "global", 1.0)
    on_chip = keep(own, served)
    moved, compulsory = (
        figures.value(profile, "dram_bytes"),
        profile.context.compulsory_bytes if profile.context else None,
    )
    stalls = {
        reason: keep(blame(profile, reason, ("global", "texture")), left)
        for reason in ("long_scoreboard", "lg_throttle", "mio_throttle")
    }
    removal = Removal(
        "with tiles in shared memory and in registers" if one else "with tiles in shared memory",
        stalls=stalls,
        loads={
            **dict.fromkeys(("lsu", "l1_data", "l1_writeback"), on_chip),
            "l1_tag": 1 / reuse,
            "l1": on_chip,
            "fill": beyond,
            "l2": beyond,
            "dram": min(1.0, compulsory / moved) if compulsory and moved else 1.0,
        },
        instructions=keep(1 - (figures.value(profile, "kind_share:fp32") or 0.0), served)
        if one
        else keep((figures.value(profile, "kind_share:global") or 0.0) * 2, ON_CHIP),
        basis=Words.patch_basis
        if one
        else f"Estimate: tiling removes {units.percent(1 - ON_CHIP)} of the loads that L1 serves ({units.percent(hit)}). A staged value is still "
        "read from shared memory, one of two operands 16 bytes at a time: 1 + 1/4 loads instead of 2. Tiles in registers gain more.",
    )
    where = RESOURCES[busiest][2] if busiest else "memory"
    counted = model.counted(busiest) if busiest else 0.0
    used = min(busy, counted)
    others = " and shared memory" if used < counted - NOISE else ""
    loaded = load_fact(model, busiest, BUSY) if busiest else None
    return finding(
        ID,
        (
            Words.found_by_lanes.format(asked=units.significant(asked, 2))
            if asked is not None
            else Words.found.format(reuse=units.significant(reuse, 2))
        )
        + f"Such loads{others} keep {where} {units.percent(counted)} busy.",
        model.without(removal),
        (
            measured,
            _asked_fact(asked),
            replace(loaded, value=used if others else counted) if loaded else None,
            stall_fact(profile, "long_scoreboard"),
            stall_fact(profile, "lg_throttle"),
            fact(profile, "l1_hit_rate"),
            fact(profile, "dram_per_compulsory"),
        ),
        language.advice(
            profile,
            (
                Words.larger_tile if figures.executed(profile, ("shared", "copy")) else Words.tile,
                Words.several,
            ),
            Words.elsewhere,
        ),
        Words.look_for,
        confidence="high" if model.stalls else "medium",
        locations=locate_stall(profile, "long_scoreboard", ("global",)),
    )


def _read_once(profile: Profile) -> bool:
    """Whether what is loaded passes through shared memory and is read there once: it is handed
    from lane to lane, and not kept for use again."""
    passes = {"LDS": 0.0, "STS": 0.0}
    for row in profile.instructions:
        kind = attribution.base(row.opcode).replace("LDSM", "LDS")
        if kind in passes:
            passes[kind] += row.counters.get("shared_wavefronts", 0.0)
    stored = sum(r.warps for r in figures.rows(profile) if attribution.base(r.opcode) == "STS")
    loaded = figures.executed(profile, ("global",)) or 0.0
    return (
        0 < passes["STS"] <= passes["LDS"] * COMPULSORY.value
        and passes["LDS"] <= passes["STS"] * COMPULSORY.value
        and stored * 2 >= loaded
    )


def _passed_on(
    profile: Profile, model: TimeModel, reuse: float, measured: Evidence | None
) -> Finding | NoFinding:
    """Loads of the same bytes again and again, each handed on through shared memory for one use.
    With twice the results for each of them half of the loads go, and with a load the store, the
    read and the barriers that hand it on."""
    kinds = ("global", "texture", "shared")
    waits = ("long_scoreboard", "lg_throttle", "mio_throttle", "short_scoreboard")
    removal = Removal(
        "with twice the results for each value loaded",
        stalls={reason: keep(blame(profile, reason, kinds), TWICE) for reason in waits}
        | {"barrier": TWICE},
        loads=dict.fromkeys((*MEMORY, "l1"), TWICE) | {"dram": 1.0},
        instructions=keep(1 - computing(profile), TWICE),
        basis=Words.once_basis,
    )
    return finding(
        ID,
        Words.found_once.format(reuse=units.significant(reuse, 2)),
        model.without(removal),
        (
            measured,
            stall_fact(profile, "long_scoreboard"),
            stall_fact(profile, "mio_throttle"),
            stall_fact(profile, "short_scoreboard"),
            fact(profile, "kind_share:global"),
            fact(profile, "kind_share:shared"),
        ),
        language.advice(profile, (Words.several, Words.larger_tile), Words.elsewhere),
        Words.look_for,
        confidence="high" if model.stalls else "medium",
        locations=locate_stall(profile, "long_scoreboard", ("global",)),
    )


def _tile_intensity(profile: Profile) -> float | None:
    """Operations of tensor cores for each byte that comes into an SM, which is what the tiles of
    its blocks make of a product; None without matrix instructions, and where the loads' own L1
    serves them (wmma straight from global memory), so that tiles are not what sets it."""
    operations, sectors = figures.value(profile, "flops_tensor"), profile.value("l1_fill_sectors")
    copied = figures.executed(profile, ("copy",))
    if not operations or not sectors or not copied:
        return None
    return operations / (sectors * figures.SECTOR_BYTES)


def _small_tile(
    profile: Profile, model: TimeModel, intensity: float, measured: Evidence | None
) -> Finding | NoFinding:
    """A product whose block tile is so small that tensor cores wait for its operands. With a
    larger one each byte and each instruction around the matrix instructions serves as many more
    operations.

    Kerr et al., "CUTLASS: Fast Linear Algebra in CUDA C++" (tiles decide the intensity)."""
    left = intensity / TILE
    products = figures.value(profile, "kind_share:tensor") or 0.0
    kinds = ("global", "copy", "texture")
    removal = Removal(
        "with tiles of 128 x 128",
        stalls={
            reason: keep(blame(profile, reason, (*kinds, "shared")), left)
            for reason in ("long_scoreboard", "lg_throttle", "mio_throttle", "short_scoreboard")
        },
        loads=dict.fromkeys((*PIPES, *MEMORY, "l1"), left) | {"dram": 1.0},
        instructions=keep(1 - products, left),
        basis=Words.tile_basis.format(now=units.significant(intensity, 2), then=units.count(TILE)),
    )
    return finding(
        ID,
        Words.found_tile.format(now=units.significant(intensity, 2)),
        model.without(removal),
        (
            measured,
            Evidence(
                "tile_intensity",
                "Matrix operations per byte into the SM",
                intensity,
                "ratio",
                Words.tile_meaning,
                SMALL_TILE.value,
                "<",
                SMALL_TILE.source,
            ),
            fact(profile, "tensor_pipe_active"),
            fact(profile, "kind_share:tensor"),
            stall_fact(profile, "long_scoreboard"),
        ),
        language.advice(profile, (Words.tile_advice,), Words.tile_elsewhere),
        Words.tile_look_for,
        confidence="high" if model.stalls else "medium",
        locations=locate_stall(profile, "long_scoreboard", kinds),
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    region, needed = facts.main, facts.intensity
    requested = region.flops_per_global_byte
    if not requested or needed is None or region.shared_load_bytes:
        return None
    times = needed / requested
    if not requested < FP32_BALANCE <= needed or times < REUSE.value:
        return None
    return StaticFinding(
        ID, "likely",
        Words.code.format(times=units.count(times), requested=units.significant(requested), needed=units.significant(needed)),
        (
            evidence("requested_intensity", "Operations per requested byte", requested, "",
                     "In the loop, before any cache.", FP32_BALANCE, "<"),
            evidence("problem_intensity", "Operations per compulsory byte", needed, "",
                     "Of the problem, each input read once and each output written once."),
        ),
        Words.code_advice, Words.code_look_for, locations([i for i in region.code if i.base in GLOBAL_LOADS], "global loads"),
    )  # fmt: skip


def _asked_fact(asked: float | None) -> Evidence | None:
    if asked is None:
        return None
    meaning = Words.asked
    return Evidence("lane_reuse", "Loads by lanes per compulsory byte", asked, "ratio", meaning)


def _asked_again(profile: Profile) -> float | None:
    """How often lanes ask for each byte that device memory must deliver: unlike sectors, this does
    not grow with scatter. None where not known."""
    asked, compulsory = (
        figures.value(profile, "lane_load_bytes"),
        profile.context.compulsory_bytes if profile.context else None,
    )
    floor = compulsory or profile.value("dram_read_bytes")
    return asked / floor if asked is not None and floor else None


def _one_result(profile: Profile) -> bool:
    """Whether each thread computes one result of a product from global memory: two loads for each
    multiply-add (shared_instruction_pressure.patch_side tells the same of shared memory)."""
    rows = figures.rows(profile)
    fused = sum(row.threads for row in rows if is_multiply_add(row.opcode))
    loads = sum(row.threads for row in rows if attribution.base(row.opcode) in GLOBAL_LOADS)
    shared = figures.executed(profile, ("shared", "copy"))
    product = fused >= MULTIPLY_ADDS.value * sum(row.threads for row in rows)
    return product and not shared and fused * 2 / ONE_RESULT <= loads <= fused * 2 * ONE_RESULT


def _reuse_within(profile: Profile) -> float | None:
    """How often the sectors that come into an SM are loaded there before they are fetched again;
    None where not known."""
    asked, filled = profile.value("global_load_sectors"), profile.value("l1_fill_sectors")
    return asked / filled if asked is not None and filled else None
