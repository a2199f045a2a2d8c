"""Too many shared-memory instructions for the arithmetic they feed: warps wait for the queue, for the results, or for
issue slots.

What it is
Every load and store of shared memory passes through the memory input/output (MIO) queue and the load/store pipe, which
takes one warp instruction a cycle for the four schedulers together, or one in two cycles on Turing, GA10x, Ada and RTX
Blackwell. With two loads for each multiply-add the schedulers could issue 2.7 loads per cycle, and 128 FP32 lanes could
use eight.

Why it costs time
The arithmetic pipes could do four warp instructions per cycle; they wait until the queue has room (MIO throttle) and
until operands arrive (short scoreboard).

How to confirm
MIO throttle and short scoreboard stalls at LDS and STS, no bank conflicts, and the load/store pipe the busiest unit.

What to change
Use fewer and wider loads with more work per load: keep an N x M tile of results in registers, so that N + M loads feed
N x M multiply-adds; read four floats by LDS.128; keep the operand that does not change in a register; use shuffles
where neighbours hold the value.

When the advice is wrong
A larger register tile costs registers and so occupancy; at 8x8 and wide loads the pipe is no longer the limit. Wide
stores that conflict are slower than narrow ones that do not.

Source
Nsight Compute Kernel Profiling Guide, "Warp Stall Reasons" (MIO throttle, short scoreboard); Volkov, "Better
Performance at Lower Occupancy".
"""

from collections.abc import Mapping
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Location
from ncu_toolkit.kernel.diagnosis.kernel import (
    MOST_REGISTERS,
    WORTH,
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
    cycles,
    evidence,
    place,
)
from ncu_toolkit.kernel.diagnosis.rules._launch import (
    ONE_RESULT,
    SMALL_PATCH,
    WIDEST,
    WORD,
    is_multiply_add,
)
from ncu_toolkit.kernel.diagnosis.thresholds import (
    MULTIPLY_ADDS,
    NEAR,
    SATURATED,
    STALL,
    WEAK_STALL,
)
from ncu_toolkit.kernel.diagnosis.time_model import NOISE
from ncu_toolkit.kernel.sass import attribution
from ncu_toolkit.kernel.sass.cost import NEVER

TITLE: Final = "Shared-memory instruction pressure"
LIMIT: Final = "memory"
FILLS_L1: Final = (True, False)
REQUIRES: Final = ("stalls",)
OPTIONAL: Final = ("opcodes", "shared_conflict_excess", "lsu_pipe_active")
NCU: Final = (("CPIStall", "mio throttle"), ("CPIStall", "short scoreboard"))
WAITS: Final = {"short_scoreboard": "", "mio_throttle": ""}
CODE_RANK: Final = 11
#: Shared-memory cycles for each cycle of arithmetic from which the shared-memory path is the limit.
SHARED_RATIO: Final = 1.0
#: What stays after one step: doubling one side of the register patch halves that operand's loads
#: for each multiply-add, and a second step in the other direction does so again; one such step is
#: what a prediction may count on where loads are wide already.
STEP: Final = 0.5
#: From this part of the widest on, accesses count as wide: the rest are edges.
WIDE_ENOUGH: Final = 0.8
#: Other arithmetic of a product for each multiply-add at most; particles and stencils add and multiply.
OTHERS: Final = 0.2
#: Side of the largest patch of results that registers hold: 8 x 8, with two rows of operands and
#: what else is needed, is some 100 of 255.
LARGEST: Final = 7


def find(k: Kernel) -> Outcome:
    parts = {reason: k.blame(reason, "shared") for reason in ("mio_throttle", "short_scoreboard")}
    waits = {reason: k.model.waiting(reason) * part for reason, part in parts.items()}
    waiting = sum(waits.values())
    used = k.executed("shared")
    share = k["kind_share:shared"] or 0.0
    if used == 0:
        return k.ruled_out("The kernel does not use shared memory.")
    crowding = k.model.busy("issue") >= NEAR.value and share >= WEAK_STALL.value
    crowded = waiting < WEAK_STALL.value
    if crowded and not crowding:
        reason = f"Warps wait on shared memory for only {percent(waiting)} of their time."
        return k.ruled_out(reason, "stall_share:mio_throttle stall_share:short_scoreboard")
    conflict_free = 1 - (k["shared_conflict_excess"] or 0.0)
    width = k["shared_load_bytes_per_lane"] or k["shared_store_bytes_per_lane"] or WIDEST
    side = patch_side(k)
    small = side is not None and side < ONE_RESULT and not k.executed("tensor")
    patch = side / SMALL_PATCH if side is not None and small else STEP
    step = min(patch, max(0.25, width / WIDEST))
    if width > WORD and k.of_base("STS") * 2 > k.of_base("LDS") and not k.executed("tensor"):
        # An exchange: each value passes once each way, by several passes an instruction.
        patch = 1.0
    left = max(step, _balance_point(k, conflict_free, share, step)) if not crowding else step
    if left >= 1 - WORTH:
        return k.ruled_out(
            "Without bank conflicts, shared memory would be less busy than the arithmetic it feeds.",
            "l1_data_active issue_active",
        )
    # Conflicts are another rule's: only the passes that a conflict-free layout also needs are claimed here.
    claimed = {reason: keep(part, 1 - conflict_free * (1 - left)) for reason, part in parts.items()}
    part_of_pipe = k.pipe_part("shared", 1.0)
    falls = f"fewer {'MIO throttle' if _queued(waits) else 'short scoreboard'} stalls and busier issue slots"
    removal = Removal(
        f"with {percent(1 - left, 2)} fewer shared-memory instructions",
        stalls=claimed,
        loads=dict.fromkeys(("lsu",), keep(part_of_pipe, left))
        | dict.fromkeys(("l1_data", "l1_writeback", "l1"), keep(part_of_pipe, max(left, patch))),
        # A patch also shares what is around the multiply-adds: addresses, loops, branches.
        instructions=keep(1 - (k["kind_share:fp32"] or 0.0) if small else share, left),
        basis=_basis(width, step, left, small),
    )
    return k.finding(
        _summary(waits, share),
        removal,
        (
            None if crowded else k.stated("shared_waiting", waiting, ">=", WEAK_STALL),
            k.fact("issue_active", ">=", NEAR) if crowded else None,
            "stall_share:mio_throttle stall_share:short_scoreboard kind_share:shared",
            "shared_load_bytes_per_lane shared_store_bytes_per_lane lsu_pipe_active",
            "shared_conflict_excess",
        ),
        _advice(k),
        f"Fewer LDS and STS for the same arithmetic, {'fewer instructions in total, and more of them arithmetic' if crowded else falls}.",
        confidence="high"
        if waiting >= STALL.value and k.model.busy("issue") < SATURATED.value
        else "medium",
        locations=_locations(k, waits),
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    shared, arithmetic = region.cycles.get("shared", 0.0), region.arithmetic_cycles
    # Where each byte feeds much arithmetic it comes from L2 mostly, at twice the rate of device memory or more.
    reused = region.flops_per_global_byte is None or region.flops_per_global_byte >= FP32_BALANCE
    memory_floor = region.memory_cycles / (2 if reused else 1)
    issue = 0.0 if arithmetic else region.cycles["issue"]
    least = max(SHARED_RATIO * arithmetic, memory_floor, issue)
    if not region.shared_load_bytes or shared < least:
        return None
    ratio = shared / arithmetic if arithmetic else None
    used = [
        i for i in region.code if i.predicate != NEVER and attribution.kind(i.opcode) == "shared"
    ]
    width = region.mean_width(frozenset({"LDS", "LDSM"}))
    busiest, label = (
        "Cycles of the busiest floating-point pipe.",
        "Shared-memory cycles per arithmetic cycle",
    )
    shown = [
        cycles(region, "shared", "Shared-memory path"),
        evidence("arithmetic_cycles", "Arithmetic", arithmetic, "cycles", busiest),
    ]
    if ratio is not None:
        meaning = "At 1 or more, arithmetic waits for operands."
        shown.append(evidence("shared_ratio", label, ratio, "ratio", meaning, (SHARED_RATIO, ">=")))
    if width is not None:
        meaning = "Bytes a thread loads by one instruction; 16 at most."
        shown.append(evidence("shared_width", "Mean width of a shared load", width, "B", meaning))
    product = region.share("fp32", "fp16", "fp64") >= MULTIPLY_ADDS.value
    return facts.finding(
        "likely" if ratio is not None and ratio >= 2 * SHARED_RATIO and product else "possible",
        f"In the {place(region)}, loads from shared memory take {units.significant(shared)} cycles per warp and the "
        f"arithmetic takes {units.significant(arithmetic)}.",
        tuple(shown),
        "Compute a larger tile of results per thread in registers, and load 16 bytes at a time.",
        "MIO throttle and short scoreboard stalls at LDS.",
        used, "shared-memory instructions",
    )  # fmt: skip


def _basis(width: float, step: float, left: float, small: bool) -> str:
    """Where the number of instructions that go comes from, in words."""
    gone, text = (
        percent(1 - step, 2),
        "Doubling one side of each thread's tile halves the loads per multiply-add",
    )
    if small:
        text = f"A thread computes one result. A 4x4 tile of them needs {gone} fewer loads, and shares the instructions around them"
    elif step < STEP:
        text = f"Accesses move {units.significant(width)} bytes per lane; at {WIDEST:g} bytes {gone} of them go"
    if left > step:
        text += f"; the estimate counts {percent(1 - left, 2)} fewer, since other pipes become the limit then"
    return f"{text}."


def _balance_point(k: Kernel, conflict_free: float, share: float, left: float) -> float:
    """The part of the shared-memory work at which it keeps the data path as busy as the arithmetic pipes
    and issue slots are without the rest.

    Below that more is not gained: the next limit is reached. 0 where the loads were not collected."""
    data = max(k.model.busy("l1_data") * conflict_free, k.model.busy("lsu"))
    issue = k.model.busy("issue") * keep(share, left)
    others = max(issue, k.model.busy("fma"), k.model.busy("tensor"))
    return min(1.0, others / data) if data else 0.0


def _exchange(k: Kernel) -> tuple[str, ...]:
    """Values that lanes exchange through shared memory, where nothing is multiplied."""
    words = "Keep running values in registers, and exchange values between lanes by shuffles (__shfl_sync)."
    if k.profile.mix.executed("SHFL"):
        words = "Keep running values in registers. Lanes exchange some by shuffles already: let them exchange the rest so."
    return k.advice(
        words,
        triton=(
            "Reduce or reorder less often: keep partial results elementwise in the loop, and reduce once after it.",
            "Use fewer warps per block (num_warps), so that less passes from warp to warp through shared memory.",
        ),
        numba="Keep running values in registers, and exchange values between lanes by cuda.shfl_down_sync or cuda.shfl_xor_sync.",
        warp="Keep running values in registers, and let tile operations (wp.tile_sum, wp.tile_reduce) exchange values.",
    )


def _advice(k: Kernel) -> tuple[str, ...]:
    """What the profile does not show as done: a patch of results as large as registers hold,
    accesses of 16 bytes, an operand that is kept."""
    side, tensor = patch_side(k), k.executed("tensor")
    if tensor:
        words = "Let each warp compute a larger tile (64x64 or more), so that one fragment feeds several matrix instructions."
    elif side is None:
        words = ""
    elif k.of_base("FADD", "FMUL", "MUFU") > OTHERS * k.of_base("FFMA", "FFMA2", "HFMA2"):
        words = (
            f"Each 4-byte word read from shared memory feeds about {units.significant(side / 2)} multiply-adds. Let each thread compute two to "
            "four results, so that each word feeds all of them."
        )
    elif side < 2:
        words = "Compute a tile of results per thread (4x4, then 8x8) in registers, so that each shared load feeds several multiply-adds."
    elif side < LARGEST:
        words = f"Each thread computes about a {side:.0f}x{side:.0f} tile. Double one side, then the other, up to 8x8."
    else:
        words = (
            f"Each thread already computes about a {side:.0f}x{side:.0f} tile. To go further, share values across a warp tile "
            "by broadcast, or use tensor cores."
        )
    advice = [words] if words else [*_exchange(k)]
    widths = {"Read": k["shared_load_bytes_per_lane"], "write": k["shared_store_bytes_per_lane"]}
    wide = WIDEST * WIDE_ENOUGH
    narrow = [verb for verb, width in widths.items() if width is not None and width < wide]
    if narrow and not tensor and k.language == "cuda":
        verbs = capital(" and ".join(narrow))
        advice.append(f"{verbs} shared memory 16 bytes at a time (float4: LDS.128, STS.128).")
    if side is not None and side < 2:
        advice.append("Keep the operand that does not change in a register across the inner loop.")
    if side is None and not tensor:
        return tuple(advice)
    return k.advice(
        *advice,
        triton=(
            "Use a larger BLOCK_M and BLOCK_N (with num_warps to match), so that each value from shared memory feeds more products.",
            'If the products are full float32, allow TF32 (input_precision="tf32" in tl.dot), which needs far fewer of these loads.',
        ),
    )


def patch_side(k: Kernel) -> float | None:
    """Side of the square patch of results that has as many multiply-adds for each value loaded from
    shared memory; None where there are few, or where their operands come from elsewhere.

    A patch of s x s results needs 2 s values for s^2 multiply-adds, and as many registers: a thread has
    255 at most."""
    fused = sum(row.threads for row in k.rows if is_multiply_add(row.opcode))
    reads = [row for row in k.rows if row.base == "LDS"]
    loaded = sum(row.threads * attribution.width(row.opcode) / WORD for row in reads)
    if not loaded or fused < MULTIPLY_ADDS.value * sum(row.threads for row in k.rows):
        return None
    side = 2 * fused / loaded
    return side if side * side <= MOST_REGISTERS else None


def _queued(waits: Mapping[str, float]) -> bool:
    """Whether warps wait for room in the queue, and not only for what they have asked for."""
    return waits["mio_throttle"] >= WEAK_STALL.value


def _summary(waits: Mapping[str, float], share: float) -> str:
    """Three cases: the queue is full, results are late though it is not, or issue slots are what
    the instructions cost."""
    queue, results = waits["mio_throttle"], waits["short_scoreboard"]
    if queue + results < WEAK_STALL.value:
        moving = f"{percent(share)} of all instructions only move values between shared memory and registers."
        return f"Shared-memory instructions take up issue slots and the load/store pipe: {moving}"
    if _queued(waits):
        at = f"At these loads alone, warps spend {percent(queue)} of their time waiting to issue and {percent(results)} waiting for the data."
        return f"Shared-memory loads fill the MIO queue. {at}"
    late = f"Warps spend {percent(results)} of their time waiting for shared-memory loads, with too little arithmetic in between to hide it."
    return late + f" They spend another {percent(queue)} in the queue." * (queue >= NOISE)


def _locations(k: Kernel, waits: Mapping[str, float]) -> tuple[Location, ...]:
    """Where most of what the finding names is: the throttled, the late, or the executed instructions."""
    shared = ("shared",)
    if sum(waits.values()) < WEAK_STALL.value:
        ran = k.locate_executed("shared", "shared-memory instructions")
        if ran:
            return ran
    first, second = sorted(waits, key=lambda reason: -waits[reason])
    return k.locate_stall(first, shared) or k.locate_stall(second, shared)
