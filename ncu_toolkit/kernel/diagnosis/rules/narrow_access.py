"""Each lane moves a few bytes where sixteen would do, so too few bytes are in flight to keep memory busy.

What it is
A load or store instruction can move 1 to 16 bytes per lane (32 on the newest GPUs). Moving 4 bytes at a time takes four
instructions, four address computations and four slots in the load/store queue for what one 16-byte access does.

Why it costs time
By Little's law memory delivers at most (bytes in flight) / latency. The number of requests that an SM can have in
flight is limited, so narrow requests mean few bytes in flight, and bandwidth stays unused while warps wait. Each narrow
request also costs issue slots.

How to confirm
The mean width of global loads is 4 bytes or less, accesses are coalesced, neither DRAM nor L2 is near its roof, and
warps wait on global memory.

What to change
Load float4, int4 or uint4 (16-byte aligned): LDG.E.128 in the SASS. Let each thread handle several neighbouring
elements, or several independent ones (unroll by 4) where alignment forbids wide loads.

When the advice is wrong
Gathers and pointer chases cannot be widened. A kernel already at the DRAM roof gains nothing. Sixteen bytes per lane
need as many registers, and rows must be aligned.

Source
CUDA Pro Tip "Increase Performance with Vectorized Memory Access"; Little's law; CUDA C++ Programming Guide, "Device
Memory Accesses".
"""

from collections.abc import Sequence
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Evidence, Finding, NoFinding
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, capital, keep, percent
from ncu_toolkit.kernel.diagnosis.rules import (
    KernelFacts,
    Specificity,
    StaticFinding,
    _addresses,
    _launch,
    dependent_loads_in,
    evidence,
    memory,
)
from ncu_toolkit.kernel.diagnosis.rules._launch import WIDEST
from ncu_toolkit.kernel.diagnosis.thresholds import (
    LANES,
    LOW_OCCUPANCY,
    ONE_WAVE,
    REUSE,
    STARTING,
    WEAK_STALL,
    Threshold,
)
from ncu_toolkit.kernel.diagnosis.time_model import queue_share
from ncu_toolkit.kernel.sass import attribution
from ncu_toolkit.kernel.sass.opcodes import GLOBAL_LOADS, GLOBAL_STORES, SassInstruction

TITLE: Final = "Narrow memory accesses"
LIMIT: Final = "memory"
REQUIRES: Final = ("opcodes", "stalls")
OPTIONAL: Final = ("global_sector_excess", "dram_utilization", "load_reuse")
COSTS: Final = (("global", "copy"), ("long_scoreboard", "lg_throttle", "mio_throttle"))
NCU: Final = (("MemoryCacheAccessPattern", ""), ("CPIStall", "long scoreboard"))
CODE_RANK: Final = 13
NARROW: Final = Threshold(4.0, "a quarter of the 16 bytes that one lane's access can move (CUDA C++ Programming Guide)")  # fmt: skip
#: Instructions that an access brings along at most: two for a 64-bit address, and its part of a
#: loop's step, compare and branch. What else is integer or control belongs to the work on the data,
#: which wider accesses leave as it is.
AROUND: Final = 5
#: Loads of a warp from which they are those of a loop.
STEPS: Final = 4
#: Name of the evidence for a grid whose threads run all at once: those that move more would be
#: fewer, with as many bytes under way as before, unless each of them runs along the row in a loop
#: of its own. So a cause that adds loads to each thread is the surer one (`specificity`).
ALL_AT_ONCE: Final = "waves"


def find(k: Kernel) -> Outcome:
    width = k["load_bytes_per_lane"] or k["store_bytes_per_lane"]
    meaning = "Bytes that a lane loads by one instruction."
    measured = k.fact("load_bytes_per_lane", "<=", NARROW, meaning)
    if width is None:
        return k.ruled_out("The kernel does not load from global memory.")
    if width > NARROW.value:
        return k.ruled_out("Loads are wider than four bytes per lane.", measured)
    if reason := _not_to_widen(k):
        return k.ruled_out(reason, measured, "global_sector_excess")
    return _few_in_flight(k, width, measured) or _wider(k, width, measured)


def _not_to_widen(k: Kernel) -> str:
    """Why the loads are not waited for, or are no neighbours that one wide load could bring; "" where they are."""
    waiting, chased = _launch.global_waiting(k), _launch.dependent_loads(k)
    if waiting < WEAK_STALL.value:
        return f"Warps wait on global memory for only {percent(waiting)} of their time."
    if (not _launch.is_coalesced(k) or _launch.rewritten(k)) and not _in_pieces(k):
        return "Lanes are scattered, so they have no neighbouring elements to load. Coalesce first."
    loads = k.of_base("LDG", "LD")
    if loads >= STEPS * k.warps and k.of_base("BAR") >= 0.5 * loads:
        return "Barriers separate the loads: a thread has one in flight at each step, however wide. See Memory latency."
    if chased >= 0.5:
        return f"{percent(chased)} of the waiting is for loads whose address comes from another load. These cannot be widened."
    few = _launch.late_part(
        k, lambda _, i: i.threads is not None and i.threads < LANES.value * (i.executed or 0)
    )
    if few >= 0.5:
        return "Most waiting is for loads of few lanes: the elements beside theirs are not needed. See Memory latency."
    queued = _launch.queued_behind_atomics(k) >= 0.5
    return "Loads queue behind atomic updates: see Atomic contention." if queued else ""


def _few_in_flight(k: Kernel, width: float, measured: Evidence | None) -> NoFinding | None:
    """What else keeps too few bytes in flight, or loads the same bytes again."""
    occupancy, reuse = k["theoretical_occupancy"], k["load_reuse"]
    few_fit = occupancy is not None and occupancy < LOW_OCCUPANCY.value
    if width >= NARROW.value and few_fit and not _at_once(k):
        return k.ruled_out(
            f"Too few bytes are in flight because only {percent(occupancy or 0.0)} of the warps fit: see Low occupancy. One word per lane is normal.",
            measured,
            k.fact("theoretical_occupancy", "<", LOW_OCCUPANCY),
        )
    if width >= NARROW.value and k.model.busy("blocks") >= STARTING.value:
        reason = "Too few bytes are in flight because blocks are short: see Kernel or block launch overhead. One word per lane is normal."
        return k.ruled_out(reason, measured, k.fact("block_start_active", "<", STARTING))
    if reuse is not None and reuse >= REUSE.value and not _in_pieces(k):
        return k.ruled_out(
            "The same bytes are loaded many times. Loading them once saves more than wider loads.",
            "load_reuse",
        )
    return None


def _wider(k: Kernel, width: float, measured: Evidence | None) -> Outcome:
    at_once, left = _at_once(k), width / WIDEST
    cuda = [
        f"{_verbs(k)} where rows are 16-byte aligned, with a scalar path for the rest.",
        f"Let each thread process {units.significant(max(4.0, 1 / left), 2)} neighbouring elements, or issue four "
        "independent loads before the first use.",
    ]
    if at_once:
        loop = "Widen along a loop that each thread runs. Do not use fewer threads, since the grid already does not fill the GPU."
        cuda.append(loop)
    return k.finding(
        f"Each memory instruction moves only {_bytes(width)} per thread, of 16 possible: more instructions than needed, and too few bytes in flight.",
        _widened(k, left),
        (
            measured,
            "store_bytes_per_lane stall_share:long_scoreboard stall_share:lg_throttle dram_utilization",
            k.fact(ALL_AT_ONCE, "<", ONE_WAVE) if at_once else None,
        ),
        k.advice(
            *(cuda if k.language == "cuda" else cuda[1:]),
            triton=(
                "Give each thread 16 contiguous bytes: a larger block for the same num_warps, with offsets from tl.arange in the inner axis.",
                "Pass addresses and strides that are multiples of 16 bytes, or promise it (tl.multiple_of, tl.max_contiguous).",
            ),
        ),
        _look_for(k, left),
        confidence="medium",
        locations=k.locate_stall("long_scoreboard", ("global",)),
    )


def _widened(k: Kernel, left: float) -> Removal:
    """With accesses of 16 bytes, `left` of as many instructions."""
    memory = k["kind_share:global"] or 0.0
    around = sum(k[f"kind_share:{kind}"] or 0.0 for kind in ("integer", "control"))
    throttle = keep(k.blame("lg_throttle", "global"), left)
    # Wide accesses bring as many bytes, so the queues of what moves bytes stay as long.
    queued = queue_share(k.model.busiest("fill", "l2", "dram")[1])
    # Where one thread has many loads under way, wide ones are so many fewer: as many bytes as before.
    under_way = _launch.loads_in_flight(k) or 1.0
    # What a list of indices points to lies apart: only loads whose address no other load delivers
    # can be widened.
    widened = max(0.0, k.blame("long_scoreboard", "global") - _launch.dependent_loads(k))
    late = keep(widened, keep(1 - queued, left)) if under_way < _launch.ENOUGH else 1.0
    passes = keep(_launch.global_wavefront_part(k), left)
    # Barriers that outnumber the loads have other work before them, which stays.
    beside = {"barrier": 1.0} if k.of_base("BAR") > k.of_base("LDG", "LD") else {}
    return Removal(
        "with 16-byte accesses",
        stalls={"long_scoreboard": late, "lg_throttle": throttle, "drain": left, **beside},
        # A thread that moves more is one of fewer.
        loads={"lsu": keep(memory, left), "blocks": left}
        | (dict.fromkeys(("l1_tag", "l1_data"), passes) if _in_pieces(k) else {}),
        # Addresses, bounds checks and loop steps are computed once a wide access, so they shrink
        # with the accesses; arithmetic on the data stays.
        instructions=keep(min(1.0, memory + min(around, AROUND * memory)), left),
    )


def _in_pieces(k: Kernel) -> bool:
    return _launch.read_in_pieces(k) >= _launch.MOST


def _at_once(k: Kernel) -> bool:
    """Whether all threads of the grid run at once."""
    waves = k["waves"]
    return waves is not None and waves < ONE_WAVE.value


def _bytes(width: float) -> str:
    return "1 byte" if width == 1 else f"{units.significant(width)} bytes"


def specificity(finding: Finding) -> Specificity:
    """Wider accesses of a grid that runs all at once may only take threads away."""
    at_once = any(evidence.metric == ALL_AT_ONCE for evidence in finding.evidence)
    return Specificity.SHADOW if at_once else Specificity.CHANGE


def in_code(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    everywhere = [i for i in facts.function.instructions if i.base in GLOBAL_LOADS | GLOBAL_STORES]
    # A kernel with a wide path is taken to use it: its narrow code is for what is left over.
    if any(i.bulk_copies for i in facts.regions) or any(
        attribution.width(i.opcode) > NARROW.value for i in everywhere
    ):
        return None
    mean = region.mean_width(GLOBAL_LOADS)
    busiest = max(region.cycles.values(), default=0.0)
    if mean is None or (mean == NARROW.value and region.memory_cycles < busiest):
        return None
    loads = [i for i in region.code if i.base in GLOBAL_LOADS]
    if len(dependent_loads_in(region)) * 2 > len(loads) or not _widens(facts, loads):
        return None
    return facts.finding(
        "possible",
        f"Every global load moves {_bytes(mean)} per thread or fewer, of 16 possible.",
        (
            evidence("load_width", "Mean width of a global load", mean, "B", "Bytes a thread loads by one instruction.", (NARROW.value, "<=")),
            evidence("bytes_in_flight", "Bytes in flight per thread", region.bytes_in_flight, "B", "Of global loads outstanding at once."),
            memory(region),
        ),
        "Load and store float4 if neighbouring elements belong to one thread and are 16-byte aligned.",
        "Long scoreboard or LG throttle stalls at LDG, and DRAM is not near its roof.",
        loads, "global loads",
    )  # fmt: skip


def _widens(facts: KernelFacts, loads: Sequence[SassInstruction]) -> bool:
    """Whether wider loads would bring what is loaded: words of less than four bytes that lanes have side
    by side, or neighbours that one thread loads one after the other, if those of the next lane begin at
    a multiple of two of them: a sliding window has no alignment."""
    found = _addresses.in_code(facts)
    code = facts.function.instructions
    apart = {
        i.address
        for n, i in enumerate(code)
        if n in found and (found[n].sectors or 0.0) > found[n].least_sectors
    }
    index = {i.address: n for n, i in enumerate(code)}

    def aligned(i: SassInstruction) -> bool:
        access = found.get(index[i.address])
        lanes = [lane for lane in access.lanes if lane >= 0] if access else []
        return all((lane - lanes[0]) % (2 * attribution.width(i.opcode)) == 0 for lane in lanes)

    parts = [(found_in, i) for i in loads if (found_in := _launch.ADDRESS.search(i.operands))]
    bytes_of: dict[str, set[int]] = {}
    for place, i in parts:
        size = attribution.width(i.opcode)
        bytes_of.setdefault(place["base"], set()).add(int(place["offset"] or "0", 16) // size)
    neighbours = sum(
        int(place["offset"] or "0", 16) // size + 1 in bytes_of[place["base"]]
        for place, i in parts
        if (size := attribution.width(i.opcode)) and aligned(i)
    )
    small = sum(
        attribution.width(i.opcode) < NARROW.value and i.address not in apart for i in loads
    )
    return max(small, 2 * neighbours) * 2 > len(loads)


def _verbs(k: Kernel) -> str:
    """What to widen: not what is wide already."""
    widths = {verb: k[f"{verb}_bytes_per_lane"] for verb in ("load", "store")}
    narrow = [verb for verb, w in widths.items() if w is not None and w <= 2 * NARROW.value]
    return f"{capital(' and '.join(narrow) or 'load')} float4, int4 or uint4"


def _look_for(k: Kernel, left: float) -> str:
    """The narrow opcodes that run, their wide ones, and the part of the loads that wide ones are."""
    opcodes = {row.opcode for row in k.rows if row.base in ("LDG", "STG")}
    narrow = sorted(name for name in opcodes if attribution.width(name) <= 2 * NARROW.value)
    swaps = [
        f"{base}.E.128 instead of {' and '.join(names)}"
        for base in ("LDG", "STG")
        if (names := _plain(narrow, base))
    ]
    return f"{', '.join(swaps)}, one memory instruction instead of {units.significant(1 / left, 2)}, higher DRAM throughput."


def _plain(opcodes: list[str], base: str) -> list[str]:
    """Opcodes of one base without hints on caching, each once."""
    plain = (base, "E", "U8", "S8", "U16", "S16", "64")
    kept = {".".join(part for part in name.split(".") if part in plain) for name in opcodes}
    return sorted(name for name in kept if name.split(".")[0] == base)
