"""The lanes of a warp touch memory that lies apart, so one instruction turns into many memory transactions.

What it is
A warp's 32 lanes access global memory together. The hardware fetches whole 32-byte sectors, grouped in 128-byte lines.
When neighbouring lanes read neighbouring elements, 32 floats are 4 sectors of one line. When they stride through
memory, every lane needs its own sector, and often its own line: 32 sectors for the same 128 bytes.

Why it costs time
Every line is a separate lookup in L1 (one per cycle), every sector a separate transfer from L2, and most of the bytes
fetched are thrown away. The load/store queue fills (lg throttle), and loads come back late (long scoreboard).

How to confirm
Sectors per request far above what the access width needs (4 for 4-byte lanes, 8 for 8-byte, 16 for 16-byte), and
sectors beyond the ideal at particular lines. Throughput may look high: busy with useless sectors is still busy.

What to change
Let the lane index (threadIdx.x) run along the contiguous dimension: swap indices, store the array transposed, or turn
an array of structures into a structure of arrays. Where both a row and a column walk are needed, read in rows and
transpose through shared memory.

When the advice is wrong
A gather through an index array is scattered by nature: sort or bin the indices, or accept it. A few scattered accesses
outside the hot loop do not matter, whatever their sectors per request: look at the predicted saving.

Source
CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"; Nsight Compute Kernel Profiling Guide, "Memory
Tables" (sectors, requests, tags).
"""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Instruction
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.figures import SECTOR_BYTES, WARP
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, at, keep, percent
from ncu_toolkit.kernel.diagnosis.rules import (
    KernelFacts,
    StaticFinding,
    _addresses,
    _launch,
    evidence,
)
from ncu_toolkit.kernel.diagnosis.thresholds import COMPULSORY, WEAK_STALL, Threshold
from ncu_toolkit.kernel.diagnosis.time_model import ON_CHIP
from ncu_toolkit.kernel.sass import attribution
from ncu_toolkit.kernel.sass.opcodes import GLOBAL_STORES, kind

TITLE: Final = "Uncoalesced global access"
LIMIT: Final = "memory"
FILLS_L1: Final = (False, True)
REQUIRES: Final = ("global_sector_excess",)
OPTIONAL: Final = ("l1_tag_excess", "lane_bytes", "dram_bytes", "stalls")
COSTS: Final = (("global", "copy"), ("long_scoreboard", "lg_throttle", "mio_throttle"))
NCU: Final = (
    ("UncoalescedGlobalAccess", ""), ("MemoryCacheAccessPattern", ""), ("CPIStall", "lg throttle"),
)  # fmt: skip
EXCESS: Final = Threshold(0.1, "Nsight Compute's memory rules report waste from 10% of the traffic on")  # fmt: skip
CODE_RANK: Final = 0
QUEUED: Final = Threshold(_launch.COALESCED, "accesses with up to half as many sectors again as they need count as coalesced")  # fmt: skip
WALK: Final = Threshold(WARP, "a row of 32 accesses or more feeds all lanes of a warp")


#: What passes the queue in which scattered accesses wait, and the cycles that it takes without one:
#: shared loads take 19 to 33 on Volta to Hopper (microbenchmarks of Jia et al.; Luo et al.).
BEHIND: Final = ("shared", "shuffle")
ALONE: Final = 33.0
#: Times the sectors of lanes side by side from which lanes lie apart: misaligned ones touch a
#: quarter more.
APART: Final = 2
LINE: Final = 128
#: Lines for each sector from which lanes lie a line apart; some sectors hold words of two lanes.
OWN: Final = 0.8
#: How lanes come to lie side by side, and what to do where they cannot, by language.
_COLUMN: Final = "If the algorithm has to walk down columns, load rows and transpose the tile through shared memory."
_SWAP: Final = {
    "cuda": ("threadIdx.x run along the contiguous dimension", _COLUMN),
    "numba": ("the first index of cuda.grid run along the last axis of the arrays (j, i = cuda.grid(2) for a[i, j])", _COLUMN),
    "triton": ("the last axis of tl.arange run along the dimension of stride 1",
               "If the algorithm needs the other order, load the block as it lies and transpose it (tl.trans)."),
    "warp": ("the last index of wp.tid() run along the last axis of the arrays",
             "If the algorithm has to walk down columns, load tiles (wp.tile_load) and transpose them (wp.tile_transpose)."),
}  # fmt: skip


CALL: Final = {
    "torch": ("Keep the operand contiguous in the dimension that operators walk, once and before them. If this kernel is a copy (contiguous(), "
              "reshape() after a permute), leave it out so.",
              "Index and gather along the first dimension, so that whole rows are copied.",
              "Of complex numbers, x.real and x.imag skip every other word: torch.view_as_real(x) reads both at once."),
    "xla": ("Transpose the operand once, so that the operation walks its last axis.",
            "Gather along the first axis, so that whole rows are copied."),
    "cupy": ("Make the operand contiguous in the axis that the function walks (cupy.ascontiguousarray), or keep it in that layout.",
             "Index along the first axis, so that whole rows are copied."),
}  # fmt: skip


def find(k: Kernel) -> Outcome:
    excess = k["global_sector_excess"] or 0.0
    meaning = "Sectors that coalesced lanes would not need."
    measured = k.fact("global_sector_excess", ">", EXCESS, meaning)
    # Samples tell which accesses fill the queue, also where they are few among coalesced ones.
    few = 0.0
    if excess <= EXCESS.value and k.model.waiting("lg_throttle") >= WEAK_STALL.value:
        few = at_queue if (at_queue := _launch.queued_excess(k)) > _launch.COALESCED else 0.0
    if excess <= EXCESS.value and not few:
        reason = "Global accesses touch close to the fewest sectors that their bytes need."
        return k.ruled_out(reason, measured)
    if _launch.loads_fragments(k):
        reason = "Lanes load the fragments of matrix instructions, whose layout is given: see Missing data reuse."
        return k.ruled_out(reason, measured)
    if _launch.read_in_pieces(k) >= _launch.MOST:
        reason = "Lanes read neighbouring bytes one by one, and each load fetches their sectors again: see Narrow memory accesses."
        return k.ruled_out(reason, measured)
    lie, sectors = (
        "scattered addresses",
        "About 4 sectors per load of 4-byte elements (16 for 16-byte)",
    )
    if _side_by_side(k):
        lie, sectors = "runs of words that do not fill their sectors", "Fewer sectors per request"
    wasted = f"Lanes of a warp access {lie}: {percent(max(excess, few))} of the memory sectors"
    twice = ""
    if again := _launch.rewritten(k):
        stored = "bytes that are stored" if k["lane_store_bytes"] else "sectors that stores touch"
        twice = f" Device memory writes {units.ratio(again)} the {stored}: sectors that a store fills only in part are fetched and written again."
    places = k.locate(
        lambda row: row.counters.get("l2_sectors", 0.0) - row.counters.get("l2_sectors_ideal", 0.0),
        "the excess sectors",
    )
    return k.finding(
        f"{wasted} {'that warps queue for' if few > excess else 'fetched'} are wasted.{twice}",
        _coalesced(k, excess, few),
        (
            measured,
            k.stated("queued_sector_excess", few, ">", QUEUED) if few else None,
            "l1_tag_excess ld_sectors_per_request st_sectors_per_request stall_share:lg_throttle stall_share:long_scoreboard",
        ),
        _advice(k, at(places) if k.language == "cuda" or (places and places[0].file) else ""),
        f"{sectors}, fewer LG throttle and long scoreboard stalls.",
        locations=places,
    )


def _coalesced(k: Kernel, excess: float, few: float) -> Removal:
    """Without the sectors beyond the ideal: `excess` of all, or `few` of those that warps queue for."""
    sectors, kept = 1 - excess, _launch.within_l1(k) and not _stores_in_part(k)
    tag_excess = k["l1_tag_excess"]
    tags = sectors if tag_excess is None else 1 - tag_excess
    # Where L1 serves what a sector holds beside, the queue in front of L2 stays.
    queued = k.model.queue(k.model.busiest(*ON_CHIP)[1]) if kept else _launch.queueing(k)
    # The queue in front of L1 drains one line at a time; a load that waits for its data waits for
    # queues only in part.
    throttle = 1 - few if few else keep(k.blame("lg_throttle", "global"), tags)
    kinds = ("global", "atomic") if figures.updates_apart(k.profile) else ("global",)
    waiting = keep(k.blame("long_scoreboard", *kinds), keep(queued, min(sectors, tags)))
    counted, all_sectors = k["global_sectors"], k["l2_sectors_from_sm"]
    # Local memory and atomic updates pass the same link.
    copied, part = figures.copied_sectors(k.profile), 1.0
    if counted is not None and copied is not None and all_sectors:
        part = min(1.0, (counted + copied) / all_sectors)
    moved, asked = k["dram_bytes"], figures.asked_bytes(k.profile)
    least = min(1.0, (asked or 0.0) / (k["l2_bytes"] or math.inf)) if kept else 0.0
    beyond = max(keep(part, sectors), least)
    # No placement needs more from device memory than the lanes ask for; how much less depends on
    # caches, so nothing beyond that is claimed.
    dram = min(1.0, asked / moved) if moved and asked else 1.0
    data = keep(_launch.global_wavefront_part(k), tags)
    rows = _more_warps(k)
    left = keep(_behind(k), tags)
    behind = {"mio_throttle": left, **k.shrink(left, BEHIND, "short_scoreboard")}
    return Removal(
        "with coalesced accesses",
        stalls={"lg_throttle": throttle, "long_scoreboard": waiting, "drain": sectors, **behind},
        loads={"l1_tag": tags, "l1_data": data, "l2": beyond, "fill": beyond}
        | {"dram": dram, "l1": data},
        parallelism=rows,
        basis=f"Lanes walk a row each. A warp for a row runs {units.ratio(rows)} as many warps at once, as many as fit."
        if rows > 1
        else "",
    )


def _stores_in_part(k: Kernel) -> bool:
    """Whether stores fill sectors in part, each of which goes on to L2."""
    stores = [row.counters for row in k.instructions if row.base in GLOBAL_STORES]
    touched, ideal = (
        sum(c.get(name, 0.0) for c in stores) for name in ("l2_sectors", "l2_sectors_ideal")
    )
    return touched > COMPULSORY.value * ideal


def _behind(k: Kernel) -> float:
    """Part (0-1) of the waiting for shuffles and shared memory that is queueing behind global accesses:
    what such an instruction takes beyond ALONE, by the part of the queue's passes that is theirs."""
    passing = k.executed(*BEHIND) or math.inf
    waited = k.waiting_for(BEHIND, "short_scoreboard") * (_launch.warp_latency(k) or 0.0) * k.total
    return (
        max(0.0, 1 - ALONE * passing / waited) * _launch.global_wavefront_part(k) if waited else 0.0
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    if facts.has("tensor"):
        return None  # fragments of matrix instructions, whose layout is given
    found = _addresses.wasteful(facts, shared=False, tolerated=1 / (1 - _launch.COALESCED))
    if found is None or found.excess <= _launch.COALESCED:
        return None
    row, worst = found.rows[0], found.accesses[0]
    sectors, least = worst.sectors or 0.0, worst.least_sectors
    words = _addresses.apart(worst)
    return facts.finding(
        "likely",
        f"Lanes of a warp access scattered addresses: {row.base} touches {units.significant(sectors)} sectors per request where "
        f"{units.significant(least)} would do{f' ({words})' if words else ''}.",
        (
            evidence("sectors", "Sectors per request", sectors, "", "Sectors of 32 bytes, at the worst access.", (least, ">")),
            evidence("sector_excess", "Excess sectors", found.excess, "fraction", "Of the sectors at known addresses.", (_launch.COALESCED, ">")),
        ),
        "Let threadIdx.x run along the contiguous dimension, read rows and transpose through shared memory, or store a structure of arrays.",
        "Sectors beyond the ideal at these lines, and LG throttle or long scoreboard stalls.",
        found.rows, "scattered accesses",
    )  # fmt: skip


def open_in_code(facts: KernelFacts) -> str:
    left = any(
        access.stopped and kind(facts.function.instructions[n].opcode) in ("global", "copy")
        for n, access in _addresses.in_code(facts).items()
    )
    return "Whether the lanes of a warp access neighbouring addresses." if left else ""


def _advice(k: Kernel, where: str) -> tuple[str, ...]:
    """By what the lanes' addresses are: their own runs, what other loads point to, fields of
    structures, or columns: the distance between lanes tells the last two. Only columns are fixed by the
    order of the lanes."""
    if shape := _tall_block(k, where):
        return shape, _COLUMN
    apart, long = _runs(k)
    hits = k["l1_hit_rate"] or 0.0
    if apart >= _launch.MOST and long and hits >= _launch.MOST:
        rows = (
            f"Each lane walks its own row or structure{where}. Let neighbouring lanes read neighbouring words: store a "
            "structure of arrays (transposed rows), or give each row to a warp."
        )
        wide = "Where neither fits, load 16 bytes per lane at a time, so that each sector is fetched less often."
        return rows, wide
    if _launch.gathers(k):
        lists = "If each lane reads its own list, such as a row of a sparse matrix, give the list to a warp."
        sort = (
            f"Accesses{where} take their addresses from other loads. Sort or bin the requests, so that neighbouring lanes ask "
            "for neighbouring elements."
        )
        together = "Store together what one lane reads together. Keep the table in shared memory, or small enough for L2."
        return (lists, sort, together) if hits >= _launch.MOST else (sort, together)
    stride = _stride(k.instructions)
    if apart >= _launch.MOST and stride < LINE:
        each = sorted(filter(None, (_stride([row]) for row in k.instructions)))
        far = " to ".join(dict.fromkeys(map(units.significant, each[:1] + each[-1:]))) or "many"
        first = (
            f"Neighbouring lanes are {far} bytes apart{where}, as where each has its own structure. Store each field in its own "
            "array (structure of arrays)."
        )
        wide = "Or move the whole structure at once by 16-byte loads and stores, so that each sector is fetched once."
        return first, wide
    if _side_by_side(k):
        block = "make the block 32 threads wide, or " * (k.block[0] < WARP)
        return (
            "Neighbouring lanes access neighbouring words, in runs that do not start or end at a sector"
            f"{where}. Pad the rows to a multiple of {SECTOR_BYTES} bytes.",
            f"Or {block}let a warp's lanes run on from one row into the next (one index over both dimensions).",
        )
    axis, column = _SWAP.get(k.language, _SWAP["cuda"])
    slow = f"Neighbouring lanes access addresses {LINE} bytes or more apart, as when their index runs along the slow dimension. "
    fields = "If each lane reads its own structure, store each field in its own array."
    return (
        f"{slow * (stride >= LINE)}Let {axis}{where}.",
        column,
        *(fields,) * (k.language != "triton"),
    )


def _stride(rows: Iterable[Instruction]) -> float:
    """Bytes between neighbouring lanes by the lines and sectors that they touch, LINE where nearly every
    sector is on its own line; 0 where lines were not counted, or lanes lie side by side."""
    lines = sectors = lanes = 0.0
    for row in rows:
        if _apart(row) and (on := row.counters.get("l1_tag_requests")):
            lines, sectors = lines + on, sectors + row.counters["l2_sectors"]
            lanes += row.threads or 0
    return (
        float(LINE) if lines and lines >= OWN * sectors else LINE * lines / lanes if lanes else 0.0
    )


def _apart(row: Instruction) -> bool:
    """Whether an access touches APART times the sectors of lanes side by side."""
    touched, least = (row.counters.get(name, 0.0) for name in ("l2_sectors", "l2_sectors_ideal"))
    return touched >= max(1.0, APART * least)


def _side_by_side(k: Kernel) -> bool:
    """Whether all lanes lie side by side: sectors beyond the ideal are those at the ends of runs."""
    counted = [row for row in figures.placed(k.profile) if row.counters.get("l2_sectors")]
    return bool(counted) and not any(map(_apart, counted)) and not _launch.gathers(k)


def _tall_block(k: Kernel, where: str) -> str:
    """What to say of a block so narrow in x that a row of it does not fill a sector with words; ""
    for all others, and where the compiler lays out the lanes."""
    x, y, _ = k.block
    rows = min(WARP, k.threads) // x
    written = k.language
    if x * _launch.WORD >= SECTOR_BYTES or y < 2 or rows < 2 or written not in ("cuda", "numba"):
        return ""
    better = max(2, k.threads // WARP)
    return (
        f"The block is {x} × {y}: a warp's lanes lie in {rows} rows, and each row is in separate sectors. Make x the "
        f"long side, such as 32 × {better}, and let threadIdx.x run along the contiguous dimension{where}."
    )


def _runs(k: Kernel) -> tuple[float, bool]:
    """Part (0-1) of the sectors beyond the ideal of lanes that access neighbouring words each, and
    whether most of these runs are longer than a sector or walked again and again.

    They show as accesses from one address register, less than a sector apart, each of which touches
    twice the sectors of lanes side by side: the lanes' strides are wider than an access. Rows of a
    matrix look the same as structures; a structure has few fields, each accessed once."""
    runs: dict[str, dict[int, float]] = {}
    walked: dict[str, float] = {}
    warps = k.warps
    total = 0.0
    for row in k.instructions:
        sectors = row.counters.get("l2_sectors", 0.0)
        ideal = row.counters.get("l2_sectors_ideal", 0.0)
        if sectors <= ideal or not row.executed or attribution.kind(row.opcode) != "global":
            continue
        total += sectors - ideal
        found = _launch.ADDRESS.search(row.sass.partition("], ")[0].removesuffix("]") + "]")
        if found and _apart(row):
            base = found["base"]
            at = runs.setdefault(base, {})
            offset = int(found["offset"] or "0", 16)
            at[offset] = at.get(offset, 0.0) + sectors - ideal
            walked[base] = max(walked.get(base, 0.0), row.executed / warps if warps else 0.0)
    mine = long = 0.0
    for base, at in runs.items():
        offsets = sorted(at)
        gaps = [after - before for before, after in pairwise(offsets)]
        if not gaps or min(gaps) >= SECTOR_BYTES:
            continue
        wasted = sum(at.values())
        mine += wasted
        if walked[base] * len(offsets) >= WALK.value:
            long += wasted
    return (mine / total, long > mine / 2) if total else (0.0, False)


def _more_warps(k: Kernel) -> float:
    """How many times the warps run at once where lanes share the row that each lane walks now: as
    many as the GPU has room for, at most 32; 1 where the grid fills the GPU.

    A lane walks a row where it makes many accesses (WALK), most of them to a sector that the one
    before fetched, and most sectors of a warp's access serve one lane alone. Coalescing then means
    that a warp takes a row instead of 32 of them, which makes 32 times the warps. Not where the
    lanes fill a tile in shared memory, which is the whole block's, nor where they follow indices."""
    waves, hits = k["waves"], k["l1_hit_rate"] or 0.0
    excess = k["global_sector_excess"] or 0.0
    warps = k.warps
    accesses = k.executed("global") or 0.0
    walks = accesses >= WALK.value * warps and min(excess, hits) >= _launch.MOST
    tile = k.executed("shared", "copy")
    if not waves or waves >= 1 or not walks or tile or _launch.gathers(k):
        return 1.0
    return min(WARP, 1 / waves)
