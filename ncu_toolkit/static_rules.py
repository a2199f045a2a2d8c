"""Diagnoses that need no counters: what a kernel's code and resources alone prove or suggest, and what they cannot tell.

Ids are those of the profile rules (`rules/`), whose pages say what each means and what to change. A static finding carries no predicted speedup:
the code does not say how often a loop runs or what its warps wait for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ncu_toolkit import attribution, units
from ncu_toolkit.occupancy import next_steps
from ncu_toolkit.sass import GLOBAL_LOADS, GLOBAL_STORES, LOCAL, MATRIX, access_bytes, flops
from ncu_toolkit.static_facts import CERTAINTIES, KernelFacts, StaticFinding, cycles, dependent_loads, evidence, locations, memory, place
from ncu_toolkit.static_loops import NEVER, SCHEDULERS, copy_overlap, unit_cycles

#: Shared-memory cycles for each cycle of arithmetic from which the shared-memory path is the limit, and from which it is close to it.
SHARED_RATIO: Final = 1.0
#: Integer instructions: as in rules/integer_arithmetic.py, more than all others together; half of that where divisions are among them.
INTEGER_SHARE: Final = 0.5
NARROW_BYTES: Final = 4
"""A quarter of the 16 bytes that one lane's access can move (CUDA C++ Programming Guide)."""
LOW_OCCUPANCY: Final = 0.5
"""As in rules/low_occupancy.py: half of what an SM holds hides arithmetic latency on every GPU since Volta."""
BUSY: Final = 0.6
"""Nsight Compute's SpeedOfLight rule: below 60% a unit is not the limit."""
FP32_BALANCE: Final = 10.0
"""FP32 operations for each byte of device memory that current GPUs can do (10 to 15 by data sheets)."""
REUSE: Final = 4.0
"""As in rules/missing_data_reuse.py: staging breaks even at 2, and at 4 half is profit."""
MULTIPLY_ADDS: Final = 0.15
"""As in rules/tensor_core_unused.py: a matrix product executes a multiply-add in about every sixth instruction or more often."""
CACHED_CODE: Final = 128 * 1024
"""Bytes of instructions held next to an SM (Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking": L1.5, 128 KiB)."""
OVERLAP: Final = 0.1
"""Part of a loop's arithmetic below which nothing worth the name lies between issuing a copy and waiting for it."""
TAIL: Final = 0.2
"""Idle part of the last wave from which Nsight Compute's LaunchConfiguration rule speaks."""


def diagnose_static(facts: KernelFacts) -> tuple[StaticFinding, ...]:
    """Every finding of every rule, the most certain first."""
    found = [finding for rule in RULES if (finding := rule(facts)) is not None]
    return tuple(sorted(found, key=lambda finding: CERTAINTIES.index(finding.certainty)))


def local_memory(facts: KernelFacts) -> StaticFinding | None:
    used = [i for i in facts.function.instructions if i.base in LOCAL]
    spilled = facts.resources.spill_stores + facts.resources.spill_loads
    if not used and not spilled:
        return None
    inside = [i for region in facts.regions if region.depth for i in region.code if i.base in LOCAL]
    why = (
        f"ptxas ran out of registers and spills {units.count(spilled)} bytes"
        if spilled
        else f"an array of {units.count(facts.resources.stack)} bytes on the stack is indexed at run time, or a call saves registers there"
    )
    where = f"{len(inside)} of its loads and stores are inside loops" if inside else "but no loop touches it" if facts.looped else "once a thread"
    return StaticFinding(
        "local-memory-traffic",
        "certain" if inside and spilled else "likely" if inside or not facts.looped else "possible",
        f"Local memory is used: {why}; {where}.",
        (
            evidence("spilled_bytes", "Spilled bytes", spilled, "B", "Bytes that ptxas stores and loads because registers ran out.", 0, ">"),
            evidence("local_instructions", "LDL and STL in the code", len(used), "count", "Loads and stores of local memory."),
            evidence("local_in_loops", "of these in loops", len(inside), "count", "Executed again in every pass.", 0, ">"),
            evidence("stack", "Stack frame", facts.resources.stack, "B", "Bytes of local memory a thread has."),
        ),
        "Where ptxas spills: allow more registers (__launch_bounds__) or give each thread less work. Where an array is indexed: unroll fully, so that every index is a constant.",
        "Local sectors above 0; LG throttle and long scoreboard at LDL and STL.",
        locations(inside or used, "local-memory instructions"),
    )


def double_precision(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    double = [i for i in region.code if attribution.kind(i.opcode) == "fp64"]
    converted = [i for i in region.code if "F64" in i.modifiers and i.base in ("F2F", "I2F", "F2I", "FRND")]
    # Conversions take the special-function pipe: they belong to the double precision that needs them.
    for_double = unit_cycles(converted, facts.cc).get("special", 0.0)
    others = max([region.cycles.get("special", 0.0) - for_double, *(c for unit, c in region.cycles.items() if unit not in ("special", "fp64"))])
    if facts.dtype == "float64" or not double or max(region.cycles.get("fp64", 0.0), for_double) < others:
        return None
    return StaticFinding(
        "double-precision",
        "likely",
        f"Double-precision arithmetic takes more of the {place(region)} than any other unit's work"
        + (", with conversions to or from it." if converted else "."),
        (
            evidence("fp64_instructions", "FP64 instructions a pass", len(double), "count", "DADD, DMUL, DFMA and comparisons."),
            cycles(region, "fp64", "FP64 pipe"),
            cycles(region, "fma", "FP32 pipe"),
            evidence(
                "fp64_conversions",
                "Conversions to or from FP64",
                len(converted),
                "count",
                "Where float values are widened, a literal without f is often the reason.",
            ),
        ),
        "Write float literals and functions (0.5f, sqrtf), unless double is meant.",
        "The FP64 pipe is the busiest; math pipe throttle or short scoreboard at DFMA.",
        locations(double, "FP64 instructions"),
    )


def tensor_core(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    if facts.cc < (7, 0) or any(i.base in MATRIX for i in facts.function.instructions):
        return None
    fused = [i for i in region.code if i.base in ("FFMA", "FFMA2", "HFMA2") and flops(i)]
    if not region.depth or len(fused) < MULTIPLY_ADDS * region.instructions:
        return None
    half = sum(flops(i) for i in fused if i.base == "HFMA2")
    narrow = [i for r in facts.regions for i in r.code if i.base in ("LDG", "LDS")]
    sixteen = sum("U16" in i.modifiers or "S16" in i.modifiers for i in narrow)
    converted = sum(i.opcode.startswith("HADD2.F32") for i in region.code)
    declared = facts.dtype in ("float16", "bfloat16")
    # the same tests as the profile rule's: half arithmetic does the work, or 16-bit loads or conversions feed it
    if not (declared or half > sum(flops(i) for i in fused) / 2 or sixteen > len(narrow) / 2 or converted > len(fused) / 8):
        return None
    return StaticFinding(
        "tensor-core-unused",
        "likely" if declared else "possible",
        "16-bit numbers are multiplied and added in a loop on the ordinary pipes; no matrix instruction is in the code.",
        (
            evidence(
                "multiply_adds",
                "Multiply-adds in the loop",
                len(fused) / region.instructions,
                "fraction",
                "FFMA and HFMA2 among its instructions.",
                MULTIPLY_ADDS,
                ">=",
            ),
            evidence("matrix_instructions", "Matrix instructions", 0, "count", "HMMA, HGMMA and the like."),
            evidence("half_conversions", "Conversions from half a pass", converted, "count", "16-bit operands widened before they are multiplied."),
        ),
        "Use wmma, mma.sync or (on Hopper) wgmma with 16-bit operands and float accumulators, or a library.",
        "The tensor pipe is idle while the FMA or FP16 pipe works.",
        locations(fused, "multiply-adds"),
    )


def special_functions(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    busy = region.cycles.get("special", 0.0)
    others = max([region.memory_cycles, *(c for unit, c in region.cycles.items() if unit != "special")])
    if not busy or busy < others:
        return None
    used = [i for i in region.code if attribution.kind(i.opcode) == "special"]
    return StaticFinding(
        "special-function-pressure",
        "likely",
        f"Roots, exponentials, divisions and conversions need more cycles in the {place(region)} than anything else, memory included.",
        (
            cycles(region, "special", "Special-function pipe"),
            cycles(region, "fma", "FP32 pipe"),
            cycles(region, "issue", "Issue slots"),
            memory(region),
        ),
        "Compute each once and keep it; use the fast variants (__expf, __fdividef) where their accuracy is enough; replace some by polynomials.",
        "The XU pipe is the busiest; MUFU in the mix.",
        locations(used, "special-function instructions"),
    )


def integer(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    if facts.dtype.startswith(("int", "uint")) or (region.flops and region.limit not in ("issue", "alu", "special")):
        return None
    back = sum(i.base == "F2I" for i in region.code)
    divisions = min(back, sum(i.base == "I2F" for i in region.code), sum(i.opcode.startswith("MUFU.RCP") for i in region.code))
    share = region.share("integer", "special") if divisions else region.share("integer")
    threshold = INTEGER_SHARE / 2 if divisions else INTEGER_SHARE
    busiest = max(region.cycles.values(), default=0.0)
    if share < threshold or busiest < region.memory_cycles:
        return None
    rows = [i for i in region.code if attribution.kind(i.opcode) == "integer"]
    return StaticFinding(
        "integer-arithmetic",
        "likely" if divisions else "possible",
        f"{units.percent(share)} of the instructions in the {place(region)} are integer arithmetic"
        + (f", {divisions} divisions or modulo operations among them." if divisions else "."),
        (
            evidence("integer_share", "Integer instructions", share, "fraction", "Addresses, indices, comparisons.", threshold, ">="),
            evidence(
                "divisions",
                "Integer divisions",
                divisions,
                "count",
                "I2F, MUFU.RCP and F2I together: a division by a value not known at compile time.",
            ),
            cycles(region, "alu", "Integer pipe"),
            memory(region),
        ),
        "Use 2-D indices, shifts, masks or constants in place of division; step addresses by a constant; unroll, so that elements share an address.",
        "Issue slots or the integer pipe are busy while memory is not.",
        locations(rows, "integer instructions"),
    )


def shared_pressure(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    shared, arithmetic = region.cycles.get("shared", 0.0), region.arithmetic_cycles
    # Where each byte feeds much arithmetic it comes from L2 mostly, at twice the rate of device memory or more.
    reused = region.flops_per_global_byte is None or region.flops_per_global_byte >= FP32_BALANCE
    memory_floor = region.memory_cycles / (2 if reused else 1)
    if not region.shared_load_bytes or shared < max(SHARED_RATIO * arithmetic, memory_floor, 0.0 if arithmetic else region.cycles["issue"]):
        return None
    ratio = shared / arithmetic if arithmetic else None
    used = [i for i in region.code if attribution.kind(i.opcode) == "shared" and i.predicate != NEVER]
    width = region.mean_width(frozenset({"LDS", "LDSM"}))
    shown = [
        cycles(region, "shared", "Shared-memory path"),
        evidence("arithmetic_cycles", "Arithmetic", arithmetic, "cycles", "Cycles of the busiest floating-point pipe."),
    ]
    if ratio is not None:
        shown.append(
            evidence(
                "shared_ratio",
                "Shared-memory cycles per arithmetic cycle",
                ratio,
                "ratio",
                "From 1 on, arithmetic waits for operands.",
                SHARED_RATIO,
                ">=",
            )
        )
    if width is not None:
        shown.append(evidence("shared_width", "Mean width of a shared load", width, "B", "Bytes a thread loads by one instruction; 16 at most."))
    return StaticFinding(
        "shared-instruction-pressure",
        "likely" if ratio is not None and ratio >= 2 * SHARED_RATIO and region.share("fp32", "fp16", "fp64") >= MULTIPLY_ADDS else "possible",
        f"In the {place(region)} the path from shared memory to the registers needs {units.significant(shared)} cycles a warp, arithmetic {units.significant(arithmetic)}.",
        tuple(shown),
        "Compute a larger patch of results a thread from registers, and load 16 bytes at a time.",
        "MIO throttle and short scoreboard at LDS.",
        locations(used, "shared-memory instructions"),
    )


def data_reuse(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    requested = region.flops_per_global_byte
    if not requested or facts.intensity is None or region.shared_load_bytes or requested >= FP32_BALANCE or facts.intensity < FP32_BALANCE:
        return None
    times = facts.intensity / requested
    if times < REUSE:
        return None
    return StaticFinding(
        "missing-data-reuse",
        "likely",
        f"The loop asks global memory for each byte of the problem about {units.count(times)} times: it does {units.significant(requested)} operations a byte where the problem has {units.significant(facts.intensity)}.",
        (
            evidence("requested_intensity", "Operations a requested byte", requested, "", "In the loop, before any cache.", FP32_BALANCE, "<"),
            evidence(
                "problem_intensity",
                "Operations a compulsory byte",
                facts.intensity,
                "",
                "Of the problem, each input read once and each output written once.",
            ),
        ),
        "Stage tiles in shared memory and keep a patch of results a thread in registers.",
        "Far more sectors from L1 and L2 than the problem has; long scoreboard at LDG.",
        locations([i for i in region.code if i.base in GLOBAL_LOADS], "global loads"),
    )


def narrow(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    everywhere = [i for i in facts.function.instructions if i.base in GLOBAL_LOADS | GLOBAL_STORES]
    if any(i.bulk_copies for i in facts.regions) or any(access_bytes(i) > NARROW_BYTES for i in everywhere):
        return None  # a kernel with a wide path is taken to use it: its narrow code is for what is left over
    width = region.mean_width(GLOBAL_LOADS)
    if width is None or (width == NARROW_BYTES and region.memory_cycles < max(region.cycles.values(), default=0.0)):
        return None
    loads = [i for i in region.code if i.base in GLOBAL_LOADS]
    if len(dependent_loads(region)) * 2 > len(loads):
        return None
    return StaticFinding(
        "narrow-access",
        "possible",
        f"Every global load moves {units.significant(width)} bytes a thread or fewer where 16 are possible.",
        (
            evidence("load_width", "Mean width of a global load", width, "B", "Bytes a thread loads by one instruction.", NARROW_BYTES, "<="),
            evidence("bytes_in_flight", "Bytes in flight a thread", region.bytes_in_flight, "B", "Of global loads outstanding at once."),
            memory(region),
        ),
        "Load and store float4 where neighbouring elements belong to one thread and are 16-byte aligned.",
        "Long scoreboard or LG throttle at LDG while DRAM is not near its roof.",
        locations(loads, "global loads"),
    )


def memory_latency(facts: KernelFacts) -> StaticFinding | None:
    dependent = dependent_loads(facts.main)
    loads = sum(i.base in GLOBAL_LOADS for i in facts.main.code)
    if not dependent or len(dependent) * 2 < loads:
        return None
    return StaticFinding(
        "memory-latency",
        "likely" if facts.main.loads_in_flight <= 1 else "possible",
        "In the loop, a load's address comes from the load before it: each waits for the full latency of memory.",
        (
            evidence("chased_loads", "Loads with a loaded address", len(dependent), "count", f"Of {loads} global loads in the main loop.", 0, ">"),
            evidence(
                "loads_in_flight",
                "Loads in flight a thread",
                facts.main.loads_in_flight,
                "count",
                "Most that one thread can have outstanding in the loop.",
            ),
        ),
        "Compute the address instead of loading it, or follow several chains at once.",
        "Long scoreboard is the largest stall while no memory level is busy.",
        locations(dependent, "dependent loads"),
    )


def copy_wait(facts: KernelFacts) -> StaticFinding | None:
    for region in facts.regions:
        overlapped = copy_overlap(region.code)
        if overlapped is not None and overlapped < OVERLAP:
            return StaticFinding(
                "async-copy-wait",
                "likely",
                f"The loop waits for its asynchronous copies right after issuing them: {units.percent(overlapped)} of its arithmetic lies in between.",
                (
                    evidence("copy_overlap", "Arithmetic between copy and wait", overlapped, "fraction", "Of the loop's arithmetic.", OVERLAP, "<"),
                    evidence(
                        "loads_in_flight", "Copies in flight a thread", region.loads_in_flight, "count", "Most that one thread has outstanding."
                    ),
                ),
                "Issue copies a tile or more ahead, and wait only for the oldest group (cp.async.wait_group with the number of younger ones).",
                "Long scoreboard or barrier stalls at DEPBAR and the barrier behind it.",
                locations([i for i in region.code if i.base == "DEPBAR"], "waits for copies"),
            )
    return None


def dependency(facts: KernelFacts) -> StaticFinding | None:
    region, warps = facts.main, facts.warps
    if warps is None or not region.depth or warps <= 0:
        return None
    issued = warps / SCHEDULERS * region.instructions
    if issued >= BUSY * region.dependency_cycles:
        return None
    return StaticFinding(
        "instruction-dependency",
        "likely",
        f"Each pass of the loop takes a warp at least {region.dependency_cycles} cycles of waiting for its own arithmetic, and {units.significant(warps / SCHEDULERS)} warps a scheduler "
        f"issue {units.significant(issued)} instructions in that time.",
        (
            evidence(
                "dependency_cycles",
                "Cycles a pass by dependencies",
                region.dependency_cycles,
                "cycles",
                "Arithmetic latency along the chain, loads taken as there at once.",
            ),
            evidence("issue_share", "Issue slots used at most", issued / region.dependency_cycles, "fraction", "With all resident warps.", BUSY, "<"),
        ),
        "Keep several independent accumulators, unroll, or run more warps.",
        "The wait stall is the largest and issue slots are idle.",
    )


def occupancy_low(facts: KernelFacts) -> StaticFinding | None:
    found = facts.occupancy
    if found is None or found.fraction >= LOW_OCCUPANCY:
        return None
    steps = next_steps(found)
    hints = [
        f"{resource} down to {units.count(value)}" + (" bytes a block" if resource == "shared memory" else " a thread")
        for resource, value in steps.items()
    ]
    never = found.active_blocks == 0
    return StaticFinding(
        "low-occupancy",
        "certain" if never else "possible",
        "No block fits on a multiprocessor: the launch will fail."
        if never
        else f"{found.active_warps} of {found.max_warps} warps fit on a multiprocessor, limited by {' and '.join(found.limiters)}. Enough where each warp has much independent work.",
        (
            evidence(
                "theoretical_occupancy",
                "Theoretical occupancy",
                found.fraction,
                "fraction",
                "Warps that fit over the most an SM holds.",
                LOW_OCCUPANCY,
                "<",
            ),
            evidence("registers", "Registers a thread", found.registers, "count", "As ptxas gives them."),
            evidence("shared", "Shared memory a block", found.shared, "B", "Static and dynamic."),
        ),
        f"One more block fits with {' or '.join(hints)}." if hints else "Choose another block size, so that more blocks or warps fit.",
        "Few eligible warps and idle issue slots.",
    )


def launch_shape(facts: KernelFacts) -> StaticFinding | None:
    if facts.occupancy is None or facts.grid_blocks is None or not facts.sm_count or not facts.occupancy.active_blocks:
        return None
    waves = facts.occupancy.waves(facts.grid_blocks, facts.sm_count)
    shown = (
        evidence("waves", "Waves", waves, "", "Blocks of the grid over those that fit on the GPU at once."),
        evidence("blocks", "Blocks", facts.grid_blocks, "count", "Of the grid."),
    )
    if facts.grid_blocks < facts.sm_count:
        idle = f"The grid has {units.count(facts.grid_blocks)} blocks for {facts.sm_count} multiprocessors: the others have nothing to do."
        return StaticFinding("grid-too-small", "certain", idle, shown, "Split the work into more blocks.", "Fewer SMs active than there are.")
    whole = -(-facts.grid_blocks // (facts.occupancy.active_blocks * facts.sm_count))
    lost = 1 - waves / whole
    if waves > 1 and lost >= TAIL:
        text = f"{units.significant(waves)} waves take the time of {whole}: up to {units.percent(lost)} of it goes by in the last, partial one."
        return StaticFinding(
            "tail-effect",
            "possible",
            text,
            shown,
            "Choose another tile or block size, or a persistent grid of as many blocks as fit.",
            "SMs idle towards the end.",
        )
    return None


def instruction_cache(facts: KernelFacts) -> StaticFinding | None:
    size = len(facts.main.code) * 16
    if not facts.looped or size <= CACHED_CODE:
        return None
    return StaticFinding(
        "instruction-cache",
        "likely",
        f"The loop's code takes {units.count(size)} bytes, more than the instruction cache next to an SM holds: every pass fetches it again.",
        (evidence("loop_bytes", "Code of the loop", size, "B", "16 bytes an instruction.", CACHED_CODE, ">"),),
        "Unroll less.",
        "The no-instruction stall is large.",
    )


def constant_indexed(facts: KernelFacts) -> StaticFinding | None:
    used = [i for i in facts.main.code if i.base == "LDC" and re.search(r"c\[0x[0-9a-f]+\]\[R\d", i.operands)]
    if not used:
        return None
    return StaticFinding(
        "constant-cache-divergence",
        "possible",
        "Constant memory is indexed by a register: where lanes of a warp differ in it, they are served one after another.",
        (evidence("indexed_constants", "Indexed constant loads", len(used), "count", "LDC with a register in its address.", 0, ">"),),
        "Index constants by what is the same for a whole warp, or put the table into shared memory.",
        "Many cycles for each constant load; short scoreboard at LDC.",
        locations(used, "indexed constant loads"),
    )


#: In the order in which findings of the same certainty are shown.
RULES: Final[tuple[Callable[[KernelFacts], StaticFinding | None], ...]] = (
    local_memory, double_precision, tensor_core, data_reuse, special_functions, copy_wait, memory_latency, dependency, launch_shape, instruction_cache,
    shared_pressure, integer, narrow, occupancy_low, constant_indexed,
)  # fmt: skip
