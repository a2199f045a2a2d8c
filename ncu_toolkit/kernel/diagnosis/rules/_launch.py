"""What several rules ask of a launch: its global memory accesses; the lanes that it has work for, by
the shape of its blocks and by who leaves at once; and numbers of 16 bits that are widened to floats,
which tell a kernel whose data are halves from one whose data are floats.

A half is converted by `HADD2.F32`. A bfloat16 is the upper half of the float of the same value, so
that widening it is integer work: a shift by 16 bits, a mask of the upper half, or a permutation of
bytes with two zeros below. The same instructions serve hashes and indices; they count here only
where they take what a load brought and give it to float arithmetic or to shared memory."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Evidence, Instruction
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.figures import SECTOR_BYTES, WARP
from ncu_toolkit.kernel.diagnosis.kernel import GLOBAL_WAITS, Kernel, Outcome, Removal, percent
from ncu_toolkit.kernel.diagnosis.thresholds import (
    BUSY,
    COMPULSORY,
    NEAR,
    NEAR_BYTES,
    ONE_WAVE,
    REUSE,
    SMALL_TILE,
    WORKING,
    Threshold,
)
from ncu_toolkit.kernel.diagnosis.time_model import (
    MEMORY,
    ON_CHIP,
    RESOURCES,
    UNLOADED,
    queue_share,
)
from ncu_toolkit.kernel.sass import attribution
from ncu_toolkit.kernel.sass.opcodes import (
    BULK,
    GLOBAL_LOADS,
    GLOBAL_STORES,
    SHARED,
    SHARED_STORES,
    parts,
    registers,
    split,
)

#: Excess of sectors below which accesses count as coalesced: a third, i.e. 1.5 times the sectors
#: needed. Misaligned rows (5 sectors for 4) and edge tiles stay below it.
COALESCED: Final = 1 / 3


#: Device memory writes this much more than SMs store before sectors count as written twice: halos and
#: write-backs of what was there before take a quarter (_roof.COMPULSORY).
REWRITTEN: Final = 1.25


def rewritten(k: Kernel) -> float:
    """How often device memory writes what lanes store, or if unknown the sectors, where it also moves more
    than passes L2: sectors that stores fill in part leave before the rest arrives. 0 where not so."""
    moved, passed = k["dram_bytes"], k["l2_bytes"]
    written = k["dram_write_bytes"]
    stored = (k["global_store_sectors"] or 0.0) * SECTOR_BYTES
    if not moved or not passed or not written or not stored:
        return 0.0
    twice = min(moved / passed, written / stored)
    return written / (k["lane_store_bytes"] or stored) if twice >= REWRITTEN else 0.0


def is_coalesced(k: Kernel) -> bool:
    """Whether global accesses touch at most 1.5 times the sectors they need; true where that is not known.

    Lanes of one or two bytes may skip some, as one colour of interleaved pixels does: what counts then is
    that they stay on the fewest lines, for the loads beside them use the rest of each."""
    excess = k["global_sector_excess"]
    width = k["load_bytes_per_lane"]
    tags = k["l1_tag_excess"]
    return (
        excess is None
        or excess <= COALESCED
        or (width is not None and width < WORD and tags is not None and tags <= COALESCED)
    )


def within_l1(k: Kernel) -> bool:
    """Whether wasted sectors stay in L1, where the next access uses the rest of them: L2 and device
    memory move what lanes ask for, and no more."""
    asked, moved, passed = figures.asked_bytes(k.profile), k["dram_bytes"], k["l2_bytes"]
    if not asked or moved is None or passed is None:
        return False
    return asked <= moved * COMPULSORY.value and max(moved, passed) <= asked * COMPULSORY.value


#: L2's roll-up counts cycles of traffic to device memory too: where kernels only move bytes between
#: that and the SMs, it is at most this much above DRAM's utilisation (time_model.ACTIVITY).
FOLLOWS: Final = 0.15
#: Part of the excess that a pattern of accesses makes up where it is called by that: more than half.
MOST: Final = 0.5
#: Fewest neighbouring loads of a lane that count as a run.
RUN: Final = 4
#: By which part their sectors may differ from those of lanes side by side: rows end.
NEARLY: Final = 0.1
#: Register and constant offset of an address at the end of an instruction.
ADDRESS: Final = re.compile(r"\[(?P<base>[^]+]*?)(?:\+(?P<offset>-?0x[0-9a-f]+))?\]$")


def read_in_pieces(k: Kernel) -> float:
    """Part (0-1) of the sectors beyond the ideal that are fetched again and again because lanes read
    neighbouring bytes one by one: runs of RUN loads and more, narrower than a WORD, from one address
    register at offsets of their own width.

    Where the lanes' runs of R bytes lie side by side, a warp covers 32 R bytes, so each of its loads
    touches R sectors, and one wide load instead of a run touches them once. Lanes elsewhere touch
    another number. A run of a sector or more touches one for each lane wherever they are."""
    runs: dict[tuple[str, int], dict[int, tuple[float, float]]] = {}
    total = 0.0
    for row in k.instructions:
        sectors = row.counters.get("l2_sectors", 0.0)
        ideal = row.counters.get("l2_sectors_ideal", 0.0)
        if sectors <= ideal or not row.executed or attribution.kind(row.opcode) == "atomic":
            continue
        total += sectors - ideal
        width, found = int(attribution.width(row.opcode)), ADDRESS.search(row.sass)
        if row.base in GLOBAL_LOADS and width < WORD and found:
            at = runs.setdefault((found["base"], width), {})
            before = at.get(offset := int(found["offset"] or "0", 16), (0.0, 0.0))[0]
            at[offset] = before + sectors - ideal, sectors / row.executed
    mine = 0.0
    for (_, width), at in runs.items():
        joined = [n for n in at if {n - width, n + width} & at.keys()]
        length = len(joined) * width
        side_by_side = all(abs(at[n][1] / length - 1) <= NEARLY for n in joined)
        if len(joined) >= RUN and length < SECTOR_BYTES and side_by_side:
            mine += sum(at[n][0] for n in joined)
    return mine / total if total else 0.0


def queued_excess(k: Kernel) -> float:
    """Part (0-1) of the sectors beyond the ideal where warps queue for global memory: each access
    counts by its lg_throttle samples, so that many coalesced accesses elsewhere do not hide the
    scattered one that fills the queue. 0 without samples."""
    weights = attribution.weights_by_culprit(k.profile, "lg_throttle")
    wasted = 0.0
    for i, samples in weights.items():
        row = k.instructions[i].counters
        sectors, ideal = row.get("l2_sectors", 0.0), row.get("l2_sectors_ideal", 0.0)
        if sectors > ideal and attribution.kind(k.instructions[i].opcode) == "global":
            wasted += samples * (1 - ideal / sectors)
    return wasted / sum(weights.values()) if weights else 0.0


#: Bytes of a word, from which a warp's lanes fill whole lines.
WORD: Final = 4.0
#: Bytes that a lane moves at most by one instruction.
WIDEST: Final = 16.0
#: Below this side a thread computes one result of a product: two loads for each multiply-add.
#: Stencils, and patches of 1 x 8, are at 1.6 and above.
ONE_RESULT: Final = 1.25
#: Side of the patch that is advised then: 4 x 4 results need 8 values for 16 multiply-adds.
SMALL_PATCH: Final = 4
#: Bytes of distinct sectors over bytes asked for by lanes, below which loads are mostly broadcasts
#: of one value to all lanes: one sector of four is a pure broadcast of 4-byte values, two and more
#: are a matrix product's mix of a broadcast and a distinct operand; this is half way between.
BROADCAST: Final = 1.5 / 4
#: Loads of one value among all: a product written for one result a thread has one for each other load.
MOSTLY: Final = 0.75


def memory_load(k: Kernel) -> float:
    """Utilisation of the busiest resource on the way of a global access."""
    return k.model.busiest(*MEMORY)[1]


def queueing(k: Kernel) -> float:
    """The part of a memory access's time that is spent in queues, and so shrinks with the traffic
    (TimeModel.queue)."""
    return k.model.queue(memory_load(k))


def streams(k: Kernel) -> bool:
    """Whether L2 is near its peak by its roll-up alone, and the traffic of device memory, which is
    busier than L2's own work, accounts for that."""
    dram, active = k.model.busy("dram"), k.model.activity.get("l2", 0.0)
    return active >= NEAR_BYTES.value and k.model.worked("l2") < dram and active - dram <= FOLLOWS


def is_broadcast(k: Kernel) -> bool:
    """Whether global loads mostly give one value to all lanes, so that their number matters and not
    their bytes: by all bytes, or by MOSTLY of the loads where the others are scattered. False where that
    is not known."""
    loads = [row for row in k.instructions if row.base in GLOBAL_LOADS and row.executed]
    alike = sum(
        row.executed or 0
        for row in loads
        if (sectors := row.counters.get("l2_sectors")) is not None
        and sectors * SECTOR_BYTES < BROADCAST * attribution.width(row.opcode) * (row.threads or 0)
    )
    if loads and alike >= MOSTLY * sum(row.executed or 0 for row in loads):
        return True
    moved, asked = k["global_load_sectors"], k["lane_load_bytes"]
    return moved is not None and bool(asked) and moved * SECTOR_BYTES < BROADCAST * (asked or 1.0)


def global_waiting(k: Kernel) -> float:
    """Share of a warp's time spent waiting on or queueing for global memory (not local, not
    asynchronous copies, not atomics)."""
    return k.waiting_for(("global", "texture"), *GLOBAL_WAITS)


def gathers(k: Kernel) -> bool:
    """Whether most waiting is for loads whose address another load delivered: no tile holds what
    they will need."""
    return dependent_loads(k) >= 0.5


#: Clocks of an addition of floats, each of which needs the sum before it: as in the SMs since Volta
#: (Jia et al.).
ADD: Final = 4
FLOAT: Final = re.compile(r"\.B?F(16|32|64)")


PASSES: Final = Threshold(4.0, "the widest access of a warp, 16 bytes per lane, takes four passes of 128 bytes")  # fmt: skip
CONFLICTS: Final = Threshold(PASSES.value / (1 - COALESCED), "mild conflicts of wide accesses stay below: a third of the passes is more")  # fmt: skip
SINGLE: Final = Threshold(1.5, "most requests take one pass: half way to the two of an access of 8 bytes per lane")  # fmt: skip
#: Figures that tell useful work of L1 from waste.
USEFULNESS: Final = (
    "ld_sectors_per_request", "global_sector_excess", "shared_conflict_excess", "lane_bytes",
)  # fmt: skip


def fills_l1(k: Kernel, tiled: bool, apart: bool) -> Outcome | None:
    """What may keep L1 near its peak, where the report holds no more than how busy its stages are: requests
    whose lanes lie `apart`, which take more passes than any others, or too many requests, of little more than one
    pass. They are to shared memory (`tiled`) where a block has a word of it for each thread, to global memory
    where it has none; between, and between the passes, nothing is said."""
    passes, shared = k["passes_per_request"], k.launch.shared
    name, busy = k.model.busiest(*ON_CHIP)
    if not k.knows_none("stalls", *USEFULNESS) or passes is None or shared is None:
        return None
    least = max(NEAR.value, k.model.busy("dram"), k.model.busy("l2"))
    if busy < least or k.model.working < WORKING.value:
        return None
    limit = (CONFLICTS if tiled else PASSES) if apart else SINGLE
    here = shared >= WORD * (k.launch.threads_per_block or 1) if tiled else not shared
    if not here or not (passes > limit.value if apart else passes < limit.value):
        return None
    why = "so requests are too many: operands may be loaded again, not kept in registers"
    if apart:
        why = "and the widest coalesced access takes 4: lanes lie apart, or update one address"
    left = limit.value / passes if apart else 0.5
    found = k.model.without(Removal("without it", loads=dict.fromkeys(ON_CHIP, left)))
    none = ("No estimate. Stall reasons were not collected.",)
    return k.finding(
        f"A request takes {units.significant(passes)} wavefronts on average, {why}. They keep {RESOURCES[name][2]} {percent(busy)} busy. "
        f"Blocks have {units.si(shared, 'B') + ' of' if shared else 'no'} shared memory.",
        replace(found, arithmetic=none, quantified=False),
        (k.fact("passes_per_request", ">" if apart else "<", limit), "l1_data_active lsu_pipe_active"),
        k.collect("which shows the cause"),
        "A verdict that names the cause, from sectors per request, wavefronts beyond the ideal, and stall reasons.",
        confidence="low",
    )  # fmt: skip


def queued_behind_atomics(k: Kernel) -> float:
    """Part (0-1) of the waiting for global memory that is a queue in front of atomic updates,
    whichever access of the warp waits in it.

    A slice of L2 updates one address once a clock, sums of floats once in ADD clocks, and what
    comes behind waits, loads too, at last in front of the load/store unit. An average over all
    slices does not show one hot slice, but the time an access takes does: beyond UNLOADED it is
    queueing, and where no level of memory is busy, and there are enough updates to fill the time if
    they meet, nothing else can be the queue. 0 where that is not known."""
    atomics = [row for row in k.rows if row.base in ("ATOM", "ATOMG", "RED", "REDG")]
    updates = sum(row.threads * (ADD if FLOAT.search(row.opcode) else 1) for row in atomics)
    accesses = k.executed(*attribution.LONG_PRODUCERS)
    instructions = k["instructions"] or float(k.profile.mix.total)
    apart = figures.updates_apart(k.profile)
    if not updates or not accesses or not k.model.stalls or apart or memory_load(k) >= BUSY.value:
        return 0.0
    # Where one slice's unit is busy, what queues for it is known, and all waiting is behind it, but for
    # loads that L1 serves.
    unit = k.model.busy("atomic")
    hot = queue_share(unit) * (1 - (k["l1_hit_rate"] or 0.0)) if unit >= BUSY.value else 0.0
    latency = warp_latency(k)
    if latency is None:
        return hot
    waited = k.model.waiting("long_scoreboard", "lg_throttle", "drain")
    waited += k.model.waiting("mio_throttle") * k.blame("mio_throttle", "global", "atomic")
    each = waited * latency * instructions / accesses
    slow = max(0.0, 1 - UNLOADED / each) * min(1.0, updates / k.model.cycles) if each else 0.0
    return max(hot, slow)


def dependent_loads(k: Kernel) -> float:
    """Part of the long-scoreboard waiting that is for loads whose address comes from another load.
    0 where that is not known."""
    flow = attribution.flow_of(k.instructions)
    return late_part(
        k,
        lambda i, row: attribution.kind(row.opcode) == "global" and flow.address_depends_on_load(i),
    )


def chain(k: Kernel) -> str:
    """Why neither more blocks nor fuller warps shorten a launch: all of its threads run at once, and
    mostly wait for loads, each of which needs what the one before brought; "" where not so."""
    flow, waiting = attribution.flow_of(k.instructions), k.model.waiting("long_scoreboard")
    if (k["waves"] or 1.0) >= ONE_WAVE.value or waiting < HALF.value:
        return ""
    part = late_part(k, lambda i, row: row.base in GLOBAL_LOADS and flow.is_chained(i))
    why = "Threads follow chains of loads, which take as long on more SMs: see Memory latency."
    return why if waiting * part >= HALF.value else ""


def late_part(k: Kernel, counts: Callable[[int, Instruction], bool]) -> float:
    """Part (0-1) of the long-scoreboard waiting that is for the instructions that count; 0 where it is
    not known."""
    weights = attribution.weights_by_culprit(k.profile, "long_scoreboard")
    mine = sum(weight for i, weight in weights.items() if counts(i, k.instructions[i]))
    return mine / total if (total := sum(weights.values())) else 0.0


def atomic_wavefronts(k: Kernel) -> tuple[float, float]:
    """Part of the passes through the shared-memory banks that atomic updates make, and part of theirs
    that would do if no two met.

    (0, 1) where not known."""
    name, ideal = "shared_wavefronts", "shared_wavefronts_ideal"
    total = sum(row.counters.get(name, 0.0) for row in k.instructions)
    mine = [
        row.counters for row in k.instructions if row.base == "ATOMS" and row.counters.get(name)
    ]
    passes = sum(counters[name] for counters in mine)
    needed = sum(min(counters[name], counters.get(ideal, counters[name])) for counters in mine)
    return (passes / total, needed / passes) if passes else (0.0, 1.0)


def shared_wavefront_part(k: Kernel) -> float:
    """Part of the data stage's wavefronts that shared memory causes; all of them where the total is
    not known."""
    wavefronts, busy = k["shared_wavefronts"], k["l1_data_pipe_active"]
    cycles = k["sm_active_cycles"]
    if wavefronts is None or not busy or not cycles or not k.device.sm_count:
        return 1.0
    return min(1.0, wavefronts / (busy * cycles * k.device.sm_count))


def global_wavefront_part(k: Kernel) -> float:
    """Part of the data stage's wavefronts that global accesses cause; all of them where shared
    memory causes none, or is not counted."""
    return 1 - shared_wavefront_part(k) if k["shared_wavefronts"] else 1.0


def busiest_with_loads(k: Kernel) -> tuple[str, float]:
    """The memory unit that global accesses keep busiest, without what shared memory does in the
    units that both pass."""
    data = global_wavefront_part(k)
    own = {"lsu": k.pipe_part("global", 1.0), "l1_data": data, "l1_writeback": data}
    loads = {
        name: k.model.busy(name) * own.get(name, 1.0)
        for name in (*MEMORY, "l1")
        if name in k.model.loads
    }
    return max(loads.items(), key=lambda item: item[1], default=("", 0.0))


def loads_in_flight(k: Kernel) -> float | None:
    """Global loads that a warp has under way where it waits for one, mean over the samples of that
    waiting; None where they tell nothing.

    Loads are taken to return in the order in which they were issued, and the code to run in the program
    order: what a loop has under way from its last round is not seen, so this is a lower bound."""
    under_way: list[frozenset[int]] = []
    weighted, samples = 0.0, 0
    for row in k.instructions:
        written, read = registers(row.opcode, parts(row.sass)[1])
        last = max(
            (at for at, registers in enumerate(under_way) if registers & (read | written)),
            default=-1,
        )
        if last >= 0:
            here = row.samples.get("long_scoreboard", 0)
            weighted += len(under_way) * here
            samples += here
            del under_way[: last + 1]
        if row.base in ("LDG", "LD") and written:
            under_way.append(written)
    return weighted / samples if samples else None


def warp_latency(k: Kernel) -> float | None:
    """Cycles a warp spends for each instruction: the stall stack's height, else by Little's law
    warps over instructions per cycle of one scheduler."""
    if k.profile.stalls is not None and k.profile.stalls.total > 0:
        return k.profile.stalls.total
    filled, issued = k["achieved_occupancy"], k["issue_active"]
    warps = k.device.max_warps_per_sm / k.device.schedulers_per_sm
    return filled * warps / issued if filled and issued and warps else None


#: Twice that: with half of an SM's 64 warps, 8 loads of 4 bytes per lane are 32 KiB under way; a latency
#: of 800 cycles asks for 16 KiB at an SM's part of the bandwidth (20 bytes per cycle on an H200).
ENOUGH: Final = 8


#: Instructions behind a copy wait within which a barrier belongs to it: compilers put the block
#: barrier right after DEPBAR, with few moves between.
NEAR_WAIT: Final = 8


def after_copy_wait(k: Kernel) -> set[int]:
    """Indices of instructions at or shortly behind a wait for copies."""
    waits = [i for i, row in enumerate(k.instructions) if row.base in ("DEPBAR", "SYNCS")]
    return {i for at in waits for i in range(at, min(at + NEAR_WAIT, len(k.instructions)))}


def barrier_part(k: Kernel) -> float:
    """Part of the barrier stalls that are at a barrier behind a copy wait; without samples 0, for
    nothing then ties them to copies."""
    return k.sampled_at("barrier", after_copy_wait(k))


#: A comparison by order in the name of an instruction: an index with a bound.
ORDER: Final = re.compile(r"\.(LT|LE|GT|GE)U?\b")
#: Executed lanes an instruction this close to those there are count as all of them: the code before
#: the test runs with those that leave, too.
NEARLY_ALL: Final = 0.9
#: Part of the executed instructions up to the last test at most: behind more, lanes end their work.
AT_ONCE: Final = 0.5


@dataclass(frozen=True)
class Left:
    """The lanes after the tests with which a kernel begins, by which some leave. `lanes`: lanes of each
    warp that goes on, mean; `warps`: part (0-1) of the warps that go on; `edge`: whether an index is
    compared with a bound there, as at the edge of a problem. `at` is the index of the last such test."""

    lanes: float
    warps: float
    edge: bool
    at: int


def filled_lanes(k: Kernel) -> float:
    """Lanes of a warp that a block of this size has threads for, mean over the block's warps; 32
    where the size is not known."""
    threads = k.launch.threads_per_block
    return threads / -(-threads // WARP) if threads else float(WARP)


def lanes_left(k: Kernel) -> Left | None:
    """What is left of the warps after the tests at a kernel's beginning; None where none of them lets lanes
    leave, or the code was not counted.

    Such a test is a guarded exit, or a branch to one. The first branch to anything else ends the beginning."""
    table = k.instructions
    if not table or not table[0].executed:
        return None
    targets = attribution.flow_of(table).graph.targets
    warps, tests, edge, ordered, i, at = table[0].executed, 0, False, False, 0, 0
    while i < len(table) and table[i].executed:
        row = table[i]
        base = row.base
        ordered = ordered or ("SETP" in base and bool(ORDER.search(row.opcode)))
        guarded = row.sass.startswith("@")
        following = i + 1
        leaves = base == "EXIT" and guarded
        end = max(targets.get(i, ()), default=0)
        if base == "BRA" and guarded and end > i:
            leaves = _leaves(table, end)
            if not leaves and base_at(table, following) == "EXIT":
                leaves, following = True, end
        if leaves:
            tests, at, edge, ordered = tests + 1, i, edge or ordered, False
        elif base in ("EXIT", "BRA", "BRX", "JMP", "JMX", "CALL", "RET"):
            break
        i = following
    after = next(
        (row for row in table[at + 1 :] if row.executed and not row.sass.startswith("@") and row.threads),
        None,
    ) if tests else None  # fmt: skip
    if after is None or after.threads is None or not after.executed:
        return None
    if sum(row.executed or 0 for row in table[:at]) > AT_ONCE * k.profile.mix.total:
        return None
    return Left(after.threads / after.executed, min(1.0, after.executed / warps), edge, at)


def base_at(table: tuple[Instruction, ...], at: int) -> str:
    """The base of an unguarded instruction; empty for a guarded one or none."""
    if at >= len(table) or table[at].sass.startswith("@"):
        return ""
    return table[at].base


def _leaves(table: tuple[Instruction, ...], at: int) -> bool:
    """Whether a lane that goes on at an instruction leaves at once: lanes may first meet there."""
    while base_at(table, at) in ("BSYNC", "NOP", "WARPSYNC"):
        at += 1
    return base_at(table, at) == "EXIT"


#: Name of the evidence for a part that few warps run.
FEW: Final = "warps_at_work"
BLOCKS: Final = "blocks_at_work"
HALF: Final = Threshold(0.5, "if more than half of the warps work, balancing the work cannot halve the time")  # fmt: skip


def few_at_work(k: Kernel) -> tuple[Evidence, range] | None:
    """The part (0-1) of the warps that enter code which a branch lets the others skip, and the
    indices of its instructions, if what warps do besides waiting at barriers is mostly there.

    Warps that come to the branch, and those that go on behind it, are counted; None where no such
    part is, or it is not known."""
    table = k.instructions
    beside = [row.sample_count - row.samples.get("barrier", 0) for row in table]
    half = sum(beside) * HALF.value
    for branch, ends in attribution.flow_of(table).graph.targets.items():
        target = max(ends)
        came = table[branch].executed or 0
        entered = (table[branch + 1].executed or 0) if branch + 1 < target else 0
        if 0 < entered <= came * HALF.value and sum(beside[branch + 1 : target]) > half:
            return k.stated(FEW, entered / came, "<=", HALF), range(branch + 1, target)
    return None


def blocks_skip(k: Kernel, part: range) -> bool:
    """Whether it is whole blocks that skip a part: all warps pass a barrier behind it, where at least as
    many would wait for the few of their block, and fewer do."""
    table = k.instructions
    waiting = sum(row.samples.get("barrier", 0) for row in table)
    working = sum(
        r.sample_count - r.samples.get("barrier", 0) for r in table[part.start : part.stop]
    )
    came = table[part.start - 1].executed or 0
    behind = any(r.base == "BAR" and (r.executed or 0) >= came for r in table[part.stop :])
    return behind and waiting < working


def blocks_at_work(k: Kernel) -> Evidence | None:
    """The part (0-1) of the blocks that have work, where more than half neither read nor write memory: an
    access is of no more blocks than warps execute it, or lanes. For the part, warps are taken as full.

    None where the first load comes late: what searches, and writes what it finds, has its work before."""
    table = k.instructions
    reach = [
        (i, row.executed, row.executed * WARP if row.threads is None else row.threads)
        for i, row in enumerate(table)
        if row.executed
        and row.base not in SHARED
        and attribution.kind(row.opcode) in ("global", "copy", "texture", "atomic")
    ]
    first = next((i for i, _, lanes in reach if lanes and table[i].base not in GLOBAL_STORES), None)
    if (
        first is None
        or k.launch.cluster > 1
        or sum(min(warps, lanes) for _, warps, lanes in reach) > k.blocks * HALF.value
        or sum(row.executed or 0 for row in table[:first]) > k.profile.mix.total * AT_ONCE
    ):
        return None
    part = sum(min(warps, lanes / WARP) for _, warps, lanes in reach) / k.blocks
    return k.stated(BLOCKS, part, "<=", HALF)


#: `HADD2.F32 R4, -RZ, R5.H0_H0`: compilers convert a half to a float so.
CONVERTS: Final = "HADD2.F32"
_SHIFT: Final = re.compile(
    r"(?:SHF\.L\.U32|SHL|SHL\.U32|USHF\.L\.U32)\s+R\d+, R\d+(?:\.reuse)?, 0x10\b"
)
_TIMES: Final = re.compile(r"IMAD(?:\.SHL)?(?:\.U32)?\s+R\d+, R\d+(?:\.reuse)?, 0x10000, RZ")
_MASK: Final = re.compile(
    r"LOP3?(?:\.LUT)?\s+R\d+, R\d+(?:\.reuse)?, (?:0xffff0000|-0x10000)(?:, RZ, 0xc0\b|\b(?!,))"
)
_PERMUTE: Final = re.compile(r"PRMT\s+R\d+, (RZ|R\d+)(?:\.reuse)?, 0x([0-7]{1,4}), (RZ|R\d+)")
#: Moves of a loaded word on its way: a half is brought into place first.
_MOVES: Final = ("MOV", "PRMT", "IMAD", "SHF")
_STEPS: Final = 3


def widened(k: Kernel) -> tuple[float, float]:
    """Conversions of 16-bit numbers to floats: (warp instructions, thread instructions)."""
    converting = [row for row in k.rows if row.opcode.startswith(CONVERTS)]
    warps, threads = sum(row.warps for row in converting), sum(row.threads for row in converting)
    for row in _bfloat16(k):
        executed = float(row.executed or 0)
        warps += executed
        threads += float(row.threads) if row.threads is not None else executed * WARP
    return warps, threads


@lru_cache(maxsize=1 << 16)
def is_widening(sass: str) -> bool:
    """Whether a line of SASS puts one half of a register into the upper half of another, with zeros below."""
    if _SHIFT.search(sass) or _TIMES.search(sass) or _MASK.search(sass):
        return True
    found = _PERMUTE.search(sass)
    if not found or "RZ" not in (found[1], found[3]) or found[1] == found[3]:
        return False
    # The selector's lowest digit picks the lowest byte: 0 to 3 of the first operand, 4 to 7 of the last.
    low, next_low, high, top = (int(digit) for digit in reversed(found[2].zfill(4)))
    zeros = range(4) if found[1] == "RZ" else range(4, 8)
    below = low in zeros and next_low in zeros
    return below and high not in zeros and high % 2 == 0 and top == high + 1


def _bfloat16(k: Kernel) -> list[Instruction]:
    table = k.instructions
    candidates = {i for i, row in enumerate(table) if row.executed and is_widening(row.sass)}
    if not candidates:
        return []
    flow = attribution.flow_of(table)
    users = (
        i
        for i, row in enumerate(table)
        if row.executed and (attribution.kind(row.opcode) == "fp32" or row.base == "STS")
    )
    used = candidates & set[int]().union(*map(flow.made_from, users))
    return [table[i] for i in sorted(used) if _of_load(flow, i)]


def _of_load(flow: attribution.Flow, index: int) -> bool:
    """Whether what an instruction takes comes from a load of global or shared memory, at most moved
    on its way."""
    waiting = {index}
    for _ in range(_STEPS):
        waiting = set[int]().union(*map(flow.made_from, waiting))
        if any(attribution.base(flow.code[j].opcode) in ("LDG", "LD", "LDS") for j in waiting):
            return True
        waiting = {j for j in waiting if attribution.base(flow.code[j].opcode) in _MOVES}
    return False


def is_double(opcode: str) -> bool:
    """FP64 arithmetic, conversions to or from it, and the 64-bit helpers of MUFU."""
    return (
        attribution.kind(opcode) == "fp64"
        or is_conversion(opcode)
        or opcode.startswith(("MUFU.RCP64H", "MUFU.RSQ64H"))
    )


def is_conversion(opcode: str) -> bool:
    base, *modifiers = opcode.split(".")
    return base in ("F2F", "I2F", "F2I", "FRND") and "F64" in modifiers


def converts_doubles(k: Kernel) -> bool:
    """Whether most work of the special-function kind is conversion to or from double, or its 64-bit helpers."""
    special = [row for row in k.rows if attribution.kind(row.opcode) == "special"]
    double = sum(row.warps for row in special if is_double(row.opcode))
    return double > sum(row.warps for row in special) / 2 > 0


def computing(k: Kernel) -> float:
    """Part (0-1) of the executed instructions that compute, special functions and conversions
    included; integers, which mostly are addresses, are not."""
    kinds = ("fp32", "fp16", "fp64", "special", "tensor")
    return sum(k[f"kind_share:{kind}"] or 0.0 for kind in kinds)


def is_multiply_add(opcode: str) -> bool:
    """A multiply-add of floats or halves on the ordinary pipes."""
    return attribution.base(opcode) in ("FFMA", "HFMA2", "FFMA2")


#: Multiply-adds among the instructions of a product near the roof of the FMA pipe: 85 to 93% on an
#: H200; n-body sums and stencils, whose operands are reused too, stay below a half.
PRODUCT: Final = 0.5


#: Multiply-adds that add to the register they write: all of a sum of products, a third of it where
#: an unrolled loop renames registers; none of a polynomial, which multiplies its result instead.
SUMS: Final = 0.25


_SUM: Final = re.compile(
    r"\bFFMA2?\S*\s+(R\d+)[^,]*,\s*[-|]*R\d+[^,]*,\s*[-|]*R\d+[^,]*,\s*[-|]*(R\d+)\b"
)


#: Multiply-adds whose last operand is the sum so far, and a register at the beginning of an operand.
_SUMMING: Final = ("HMMA", "IMMA", "DMMA", "QMMA", "FFMA")
_REGISTER: Final = re.compile(r"R\d+")


#: Operations for each special function, below which it belongs to the sums (a softmax) and not to their
#: results: an activation comes once for each sum of 2 K operations.
FUNCTIONS: Final = 1024
#: How much of a tile's loads its longer side makes at most: tiles are up to four times as wide as high.
LONGER: Final = 0.8


def product_bytes(k: Kernel) -> float | None:
    """Bytes of a matrix product's operands and results, each once, by its tiles: each loads its rows of
    one operand and its columns of the other, so that both are loaded once for each tile beside it. None
    for what is no product, and where the grid does not say how the tiles lie (clusters, one dimension).

    Of 44 recorded products it is never less than 0.88 of what they need, 21 times exact, and up to 6.6
    times as much for blocks with several tiles."""
    lanes, copied = k["lane_load_bytes"], figures.copied_sectors(k.profile)
    grid, block = k.launch.grid, k.launch.block
    if lanes is None or copied is None or grid is None or block is None:
        return None
    if k.launch.cluster > 1 or not is_product(k):
        return None
    wide, high, _ = grid
    if loads_fragments(k):  # each warp is a tile
        across, down, _ = block
        wide, high = wide * math.ceil(across / WARP), high * down
    fewer, more = sorted((wide, high))
    loaded = lanes + copied * SECTOR_BYTES
    if fewer <= 1 or not loaded:
        return None
    return loaded * (LONGER / fewer + (1 - LONGER) / more) + (k["lane_store_bytes"] or 0.0)


def is_product(k: Kernel) -> bool:
    """Whether the kernel is one matrix product, by matrix instructions or in FP32, and no attention,
    which has a softmax between two."""
    tensor = k.executed("tensor")
    operations = k["flops_tensor" if tensor else "flops_fp32"] or 0.0
    functions = k.of_base("MUFU") * WARP * FUNCTIONS
    return functions <= operations and (bool(tensor) or is_fp32_product(k))


def accumulators(k: Kernel) -> int:
    """Independent sums of a product's inner loop: registers that its multiply-adds write, those that one
    adds to another's counted once. 0 for what is no product, and where no instructions are known."""
    if not is_product(k):
        return 0
    sums = [row for row in k.instructions if row.executed and row.base in _SUMMING]
    most = max((row.executed or 0 for row in sums), default=0)
    chain: dict[str, str] = {}

    def first(register: str) -> str:
        while (before := chain.setdefault(register, register)) != register:
            register = before
        return register

    for row in sums:
        found = [
            name[0] if (name := _REGISTER.match(each)) else "" for each in split(parts(row.sass)[1])
        ]
        if 2 * (row.executed or 0) >= most and len(found) > 3 and found[0]:
            chain[first(found[3] or found[0])] = first(found[0])
    return len({first(register) for register in list(chain)})


def loads_fragments(k: Kernel) -> bool:
    """Whether warps load the operands of matrix instructions from global memory, each for itself: less
    than half of what is loaded is put into shared memory, and is used less than in a SMALL_TILE. Generic
    loads may be of shared memory. No tile holds what a sparse product gathers."""

    def moved(*bases: str) -> float:
        rows = (row for row in k.rows if row.base in bases)
        return sum(row.threads * attribution.width(row.opcode) for row in rows)

    loaded, operations = moved("LDG", "LDGSTS"), k["flops_tensor"]
    if not loaded or not operations or gathers(k) or any(row.base in BULK for row in k.rows):
        return False
    return moved(*SHARED_STORES) < loaded / 2 and operations < SMALL_TILE.value * loaded


def is_fp32_product(k: Kernel) -> bool:
    """Whether the kernel is like a product of FP32 matrices: multiply-adds are most of its
    instructions, they sum up, and each byte of device memory reaches them many times over through
    shared memory. False where opcodes were not counted."""
    rows = list(k.rows)
    total = sum(row.warps for row in rows)
    fused = sum(row.warps for row in rows if row.base in ("FFMA", "FFMA2"))
    if not total or fused / total < PRODUCT or k.executed("tensor"):
        return False
    read = k["dram_read_bytes"]
    shared = k["lane_shared_load_bytes"]
    if not read or not shared or shared / read < REUSE.value:
        return False
    counted = [
        (row.executed, _SUM.search(row.sass))
        for row in k.instructions
        if row.executed and row.base in ("FFMA", "FFMA2")
    ]
    sums = sum(n for n, found in counted if found and found[1] == found[2])
    return not counted or sums >= SUMS * sum(n for n, _ in counted)
