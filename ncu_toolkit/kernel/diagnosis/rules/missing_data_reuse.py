"""The same bytes are fetched again and again from the caches or from device memory instead of being kept in shared memory
or registers.

What it is
Threads of a block often need the same data: each element of a matrix tile is used by a whole row of results. When every
thread loads its own operands from global memory, each byte is loaded many times, and the caches deliver it at their
bandwidth and latency.

Why it costs time
Every repeated load takes a slot of the load/store pipe, a lookup in L1, and, where L1 does not hold the line, a trip to
L2 or DRAM. The arithmetic waits for redundant loads.

How to confirm
Loads request many times the bytes that the problem needs, accesses are coalesced, and a level of the memory hierarchy
is busy, or the queue in front of it is full.

What to change
Stage tiles in shared memory and let each thread compute several results from registers, so that each loaded value is
used many times. For stencils keep a column in registers; for small tables use shared memory. Fusing kernels reuses data
from one to the next.

When the advice is wrong
When L1 serves the reuse and something else is the limit. When the working set of a block does not fit into shared
memory. When the reuse is across launches that cannot be fused.

Source
CUDA C++ Programming Guide, "Shared Memory" (tiled matrix product); Volkov, "Better Performance at Lower Occupancy"
(reuse in registers).
"""

from dataclasses import replace
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Evidence, NoFinding
from ncu_toolkit.kernel.diagnosis.figures import SECTOR_BYTES
from ncu_toolkit.kernel.diagnosis.kernel import (
    GLOBAL_WAITS,
    Kernel,
    Outcome,
    Removal,
    capital,
    keep,
    percent,
)
from ncu_toolkit.kernel.diagnosis.rules import (
    FP32_BALANCE,
    KernelFacts,
    StaticFinding,
    _launch,
    evidence,
    memory_levels,
)
from ncu_toolkit.kernel.diagnosis.rules._launch import ONE_RESULT
from ncu_toolkit.kernel.diagnosis.thresholds import (
    BUSY,
    COMPULSORY,
    MULTIPLY_ADDS,
    REREAD,
    REUSE,
    SMALL_TILE,
    TILE,
    WEAK_STALL,
)
from ncu_toolkit.kernel.diagnosis.time_model import MEMORY, NOISE, OFF_CHIP, PIPES, RESOURCES
from ncu_toolkit.kernel.sass.opcodes import GLOBAL_LOADS

TITLE: Final = "Missing data reuse"
LIMIT: Final = "memory"
REQUIRES: Final = ("load_reuse",)
OPTIONAL: Final = ("stalls", "opcodes", "global_sector_excess", "l1_hit_rate", "l1_fill_sectors")
COSTS: Final = (("global", "copy"), ("long_scoreboard", "lg_throttle"))
NCU: Final = (("CPIStall", "long scoreboard"),)
CODE_RANK: Final = 4
open_in_code = memory_levels
#: What stays of the work on the load path inside the SM: a value staged in shared memory is still
#: loaded from there, but one of two operands can then be read 16 bytes at a time: 1 + 1/4
#: instructions where there were 2.
ON_CHIP: Final = (1 + 1 / 4) / 2
#: What stays where each value loaded serves twice the results: the usual first step.
TWICE: Final = 0.5
SEVERAL: Final = "Let each thread compute several results, so that one loaded value in a register feeds several operations."
LARGER: Final = (
    "Make the tile that a block shares larger, or stage the reloaded data in shared memory too."
)
LOOK_FOR: Final = "Stalls on shared memory or arithmetic, not long scoreboard or LG throttle."


def find(k: Kernel) -> Outcome:
    meaning = "Bytes of the sectors that loads request from L1, over the bytes that device memory must deliver. The excess is reloaded or unused."
    measured = k.fact("load_reuse", ">=", REUSE, meaning)
    intensity = _tile_intensity(k)
    if intensity is not None and _launch.loads_fragments(k):
        return _small_tile(k, intensity, measured)
    if order := _order(k, measured):
        return order
    if (k["load_reuse"] or 0.0) < REUSE.value:
        return k.ruled_out("Few bytes are loaded more than once.", measured)
    if intensity is not None and intensity < SMALL_TILE.value:
        return _small_tile(k, intensity, measured)
    if absent := _not_by_a_tile(k, measured):
        return absent
    if reason := _not_the_limit(k):
        return k.ruled_out(reason, measured)
    return _passed_on(k, measured) if _read_once(k) else _untiled(k, measured)


def _not_by_a_tile(k: Kernel, measured: Evidence | None) -> NoFinding | None:
    """Why a tile would not serve the loads that repeat."""
    loaded, filled, asked = k["global_load_sectors"], k["l1_fill_sectors"], _asked_again(k)
    if loaded is not None and filled and loaded / filled < COMPULSORY.value:
        return k.ruled_out(
            "Other blocks load the same data: one SM's L1 serves almost none of it twice. A tile per block would not help. "
            "Larger tiles or another block order may.",
            measured,
            "l1_hit_rate",
        )
    if not _launch.is_coalesced(k) and (asked is None or asked < REUSE.value):
        reason = "Scattered lanes inflate the traffic. Coalesce first, then measure again."
        return k.ruled_out(reason, "global_sector_excess")
    if _launch.is_broadcast(k):
        reason = "Loads broadcast one value to all lanes, so their number costs, not their bytes. See global-instruction-pressure."
        return k.ruled_out(reason, measured)
    return None


def _not_the_limit(k: Kernel) -> str:
    """Why the traffic of loads is not what warps wait for; "" where it is."""
    if _launch.gathers(k):
        return "Warps wait for loads whose address comes from another load, so latency is the limit, not traffic."
    waiting = _launch.global_waiting(k) if k.model.stalls else 1.0
    if waiting < WEAK_STALL.value:
        return f"The caches serve the reuse. Warps spend only {percent(waiting)} of their time waiting for global memory."
    busy = _launch.busiest_with_loads(k)[1]
    # Loads queue in front of L1 in their own line, or behind shared memory's in the MIO queue.
    queue = k.model.waiting("lg_throttle")
    queue += k.model.waiting("mio_throttle") * k.blame("mio_throttle", "global", "texture")
    if busy < BUSY.value and queue < WEAK_STALL.value:
        return f"Latency is the limit, not traffic: every memory level is at most {percent(busy)} busy."
    return ""


def _untiled(k: Kernel, measured: Evidence | None) -> Outcome:
    """Bytes that are loaded again where a tile could keep them."""
    reuse, asked = k["load_reuse"] or 0.0, _asked_again(k)
    busiest, busy = _launch.busiest_with_loads(k)
    where = RESOURCES[busiest][2] if busiest else "memory"
    counted = k.model.counted(busiest) if busiest else 0.0
    used = min(busy, counted)
    others = " and shared memory" if used < counted - NOISE else ""
    keeps = f"{capital(where)} is" if busiest in OFF_CHIP else f"Such loads{others} keep {where}"
    loaded = k.load(busiest, BUSY) if busiest else None
    again = f"Loads request about {units.significant(reuse, 2)} bytes from L1, in whole sectors, per byte that device memory must deliver."
    if asked is not None:
        again = f"Each byte is loaded about {units.significant(asked, 2)} times instead of being kept in shared memory or registers."
    tile = "Load each tile into shared memory once per block, synchronise, and compute from there."
    return k.finding(
        f"{again} {keeps} {percent(counted)} busy.",
        _tiled(k, reuse),
        (
            measured,
            None if asked is None else k.stated("lane_reuse", asked),
            replace(loaded, value=used if others else counted) if loaded else None,
            "stall_share:long_scoreboard stall_share:lg_throttle l1_hit_rate dram_per_compulsory",
        ),
        _advice(k, LARGER if k.executed("shared", "copy") else tile, SEVERAL),
        f"Fewer global loads, by a factor of up to about {units.significant(asked or reuse, 2)}. {LOOK_FOR}",
        confidence="high" if k.model.stalls else "medium",
        locations=k.locate_stall("long_scoreboard", ("global",)),
    )


def _tiled(k: Kernel, reuse: float) -> Removal:
    """With tiles in shared memory, and in registers where a thread computes one result."""
    hit, one = k["l1_hit_rate"] or 0.0, _one_result(k)
    beyond = min(1.0, 1 / reuse * (1 / (1 - hit) if hit < 1 else reuse))
    served = 1 / _launch.SMALL_PATCH if one else ON_CHIP
    on_chip = keep(k.pipe_part("global", 1.0), served)
    moved, compulsory = k["dram_bytes"], k.context.compulsory_bytes
    how, around = "with tiles in shared memory", (k["kind_share:global"] or 0.0) * 2
    basis = (
        f"Estimate: tiling removes {percent(1 - ON_CHIP)} of the loads that L1 serves ({percent(hit)}). A staged value is still "
        "read from shared memory, one of two operands 16 bytes at a time: 1 + 1/4 loads instead of 2. Tiles in registers gain more."
    )
    if one:
        how, around = f"{how} and in registers", 1 - (k["kind_share:fp32"] or 0.0)
        basis = (
            "A thread computes one result, so each multiply-add loads two values. A 4x4 tile of them needs a quarter of the "
            "loads, and shares the instructions around them."
        )
    return Removal(
        how,
        stalls=k.shrink(hit * served + (1 - hit) * beyond, ("global", "texture"), *GLOBAL_WAITS),
        loads=dict.fromkeys(("lsu", "l1_data", "l1_writeback"), on_chip)
        | {"l1_tag": 1 / reuse, "l1": on_chip, "fill": beyond, "l2": beyond}
        | {"dram": min(1.0, compulsory / moved) if compulsory and moved else 1.0},
        instructions=keep(around, served),
        basis=basis,
    )


def _advice(k: Kernel, *cuda: str) -> tuple[str, ...]:
    return k.advice(
        *cuda,
        triton=(
            "Let each program compute a larger block, so that a value once loaded serves several results.",
            "Order the programs so that those that run together read the same rows (grouped program ids), which L2 then holds.",
        ),
        warp=(
            "Load each tile once per block (wp.tile_load), and compute from it (wp.tile_matmul, wp.tile_map).",
            SEVERAL,
        ),
    )


def _read_once(k: Kernel) -> bool:
    """Whether what is loaded passes through shared memory and is read there once: it is handed
    from lane to lane, and not kept for use again."""
    passes = {"LDS": 0.0, "STS": 0.0}
    for row in k.instructions:
        kind = row.base.replace("LDSM", "LDS")
        if kind in passes:
            passes[kind] += row.counters.get("shared_wavefronts", 0.0)
    stored, loaded = k.of_base("STS"), k.executed("global") or 0.0
    return (
        0 < passes["STS"] <= passes["LDS"] * COMPULSORY.value
        and passes["LDS"] <= passes["STS"] * COMPULSORY.value
        and stored * 2 >= loaded
    )


def _passed_on(k: Kernel, measured: Evidence | None) -> Outcome:
    """Loads of the same bytes again and again, each handed on through shared memory for one use.
    With twice the results for each of them half of the loads go, and with a load the store, the
    read and the barriers that hand it on."""
    kinds = ("global", "texture", "shared")
    removal = Removal(
        "with twice the results for each value loaded",
        stalls=k.shrink(TWICE, kinds, *GLOBAL_WAITS, "short_scoreboard") | {"barrier": TWICE},
        loads=dict.fromkeys((*MEMORY, "l1"), TWICE) | {"dram": 1.0},
        instructions=keep(1 - _launch.computing(k), TWICE),
        basis="Half of the loads go, and with each its store to shared memory, its read there and its barriers.",
    )
    return k.finding(
        f"Loads request about {units.significant(k['load_reuse'] or 0.0, 2)} bytes from L1 per byte that device memory must deliver. Each "
        "passes through shared memory and is read there once, so shared memory saves no load.",
        removal,
        (
            measured,
            "stall_share:long_scoreboard stall_share:mio_throttle stall_share:short_scoreboard kind_share:global kind_share:shared",
        ),
        _advice(k, SEVERAL, LARGER),
        f"Fewer global loads. {LOOK_FOR}",
        confidence="high" if k.model.stalls else "medium",
        locations=k.locate_stall("long_scoreboard", ("global",)),
    )


def _tile_intensity(k: Kernel) -> float | None:
    """Operations of tensor cores for each byte that comes into an SM, which is what the tiles of
    its blocks make of a product, or for each byte that warps load, where each has its own tile
    (wmma straight from global memory); None without matrix instructions, and where loads pass
    through registers into shared memory."""
    operations, sectors, asked = k["flops_tensor"], k["l1_fill_sectors"], k["lane_load_bytes"]
    if operations and asked and _launch.loads_fragments(k):
        return operations / asked
    if not operations or not sectors or not k.executed("copy"):
        return None
    return operations / (sectors * SECTOR_BYTES)


def _order(k: Kernel, measured: Evidence | None) -> Outcome | None:
    """A product whose blocks read the same rows and columns from device memory again and again: those
    that run together share too few of them for L2. None where that is not so.

    Kerr et al., "CUTLASS: Fast Linear Algebra in CUDA C++" (rasterisation of thread blocks); Tillet
    et al., Triton tutorial "Matrix Multiplication" (L2 cache optimizations)."""
    moved, busy = k["dram_bytes"], k.model.busy("dram")
    needed = k.context.compulsory_bytes or _launch.product_bytes(k)
    if not moved or not needed or moved <= needed * REREAD.value or busy < BUSY.value:
        return None
    if not _launch.is_product(k) or k["local_sectors"]:
        return None
    return k.finding(
        f"Device memory moves {units.si(moved, 'B')} for a product whose matrices have {units.si(needed, 'B')}: blocks that "
        "run together share too few rows and columns for L2 to hold them.",
        Removal(
            "with each byte read from device memory once",
            loads={"dram": needed / moved},
            basis=f"The product needs {percent(needed / moved)} of the bytes that device memory moves.",
        ),
        (
            measured,
            k.stated("product_bytes", needed),
            "dram_bytes l2_hit_rate tensor_pipe_active stall_share:long_scoreboard",
        ),
        k.advice(
            "Order the blocks so that those that run together form a square of tiles: give each group of 8 rows of tiles to "
            "consecutive blocks (rasterisation, swizzle).",
            LARGER,
            triton="Order the programs so that those that run together form a square of tiles (grouped program ids, GROUP_M = 8).",
        ),
        "Far fewer bytes from device memory and a higher hit rate of L2 for the same operations.",
        confidence="high" if k.model.stalls else "medium",
        locations=k.locate_stall("long_scoreboard", ("global", "copy", "texture")),
    )


def _small_tile(k: Kernel, intensity: float, measured: Evidence | None) -> Outcome:
    """A product whose block tile is so small that tensor cores wait for its operands. With a larger one
    each byte and each instruction around the matrix instructions serves as many more operations.

    Kerr et al., "CUTLASS: Fast Linear Algebra in CUDA C++" (tiles decide the intensity)."""
    fragments = _launch.loads_fragments(k)
    side, most = ("64 x 64", SMALL_TILE.value) if fragments else ("128 x 128", TILE)
    left, moved = intensity / most, k["dram_bytes"]
    products = k["kind_share:tensor"] or 0.0
    kinds = ("global", "copy", "texture")
    # Of what warps load again L1 and L2 held some, so that device memory moves less than all of it.
    loaded = (k["lane_load_bytes"] or 0.0) * left
    removal = Removal(
        f"with tiles of {side}",
        stalls=k.shrink(left, (*kinds, "shared"), *GLOBAL_WAITS, "short_scoreboard"),
        loads=dict.fromkeys((*PIPES, *MEMORY, "l1"), left)
        | {"dram": min(1.0, loaded / moved) if fragments and moved else 1.0},
        instructions=keep(1 - products, left),
        basis=f"A tile of {side} does {units.count(most)} operations for each byte of 16-bit operands, this one "
        f"{units.significant(intensity, 2)}.",
    )
    summary = f"The tiles of the product are small: tensor cores do {units.significant(intensity, 2)} operations for each byte that comes into an SM."
    larger = "Let each block compute a larger tile, such as 128 x 128, and each warp a larger part of it."
    advice: tuple[str, ...] = (larger,)
    if fragments:
        summary = (
            "Each warp loads its operands of matrix instructions straight from global memory: tensor cores do only "
            f"{units.significant(intensity, 2)} operations per byte loaded."
        )
        stage = "Load tiles of both operands into shared memory once per block, and the fragments from there (load_matrix_sync, ldmatrix)."
        advice = (stage, larger)
    return k.finding(
        summary,
        removal,
        (
            measured,
            k.stated("tile_intensity", intensity, "<", SMALL_TILE),
            "tensor_pipe_active kind_share:tensor stall_share:long_scoreboard",
        ),
        k.advice(
            *advice,
            triton=("Use a larger tile, such as BLOCK_M = BLOCK_N = 128 with num_warps=4 or 8.",),
        ),
        "Fewer instructions and bytes for the same matrix operations, a busier tensor pipe.",
        confidence="high" if k.model.stalls else "medium",
        locations=k.locate_stall("long_scoreboard", kinds),
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    region, needed = facts.main, facts.intensity
    requested = region.flops_per_global_byte
    if not requested or needed is None or region.shared_load_bytes:
        return None
    times = needed / requested
    if not requested < FP32_BALANCE <= needed or times < REUSE.value:
        return None
    return facts.finding(
        "likely",
        f"The loop loads each byte of the problem about {units.count(times)} times. It does {units.significant(requested)} "
        f"operations per byte, the problem allows {units.significant(needed)}.",
        (
            evidence("requested_intensity", "Operations per requested byte", requested, "",
                     "In the loop, before any cache.", (FP32_BALANCE, "<")),
            evidence("problem_intensity", "Operations per compulsory byte", needed, "",
                     "Of the problem, each input read once and each output written once."),
        ),
        "Stage tiles in shared memory, and keep a tile of results per thread in registers.",
        "Far more sectors from L1 and L2 than the problem needs, and long scoreboard stalls at LDG.",
        [i for i in region.code if i.base in GLOBAL_LOADS], "global loads",
    )  # fmt: skip


def _asked_again(k: Kernel) -> float | None:
    """How often lanes ask for each byte that device memory must deliver: unlike sectors, this does
    not grow with scatter. None where not known."""
    asked, floor = k["lane_load_bytes"], k.context.compulsory_bytes or k["dram_read_bytes"]
    return asked / floor if asked is not None and floor else None


def _one_result(k: Kernel) -> bool:
    """Whether each thread computes one result of a product from global memory: two loads for each
    multiply-add (shared_instruction_pressure.patch_side tells the same of shared memory)."""
    rows = k.rows
    fused = sum(row.threads for row in rows if _launch.is_multiply_add(row.opcode))
    loads = sum(row.threads for row in rows if row.base in GLOBAL_LOADS)
    shared = k.executed("shared", "copy")
    product = fused >= MULTIPLY_ADDS.value * sum(row.threads for row in rows)
    return product and not shared and 1 / ONE_RESULT <= loads / (fused * 2) <= ONE_RESULT
