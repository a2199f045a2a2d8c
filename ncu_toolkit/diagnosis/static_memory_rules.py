"""Static diagnoses about memory: local, global, shared and constant, and asynchronous copies."""

from __future__ import annotations

import re
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis.static_facts import (
    KernelFacts,
    StaticFinding,
    cycles,
    dependent_loads,
    evidence,
    locations,
    memory,
    place,
)
from ncu_toolkit.sass import attribution
from ncu_toolkit.sass.cost import NEVER, copy_overlap
from ncu_toolkit.sass.opcodes import GLOBAL_LOADS, GLOBAL_STORES, LOCAL, width

#: Shared-memory cycles for each cycle of arithmetic from which the shared-memory path is the limit,
#: and from which it is close to it.
SHARED_RATIO: Final = 1.0
NARROW_BYTES: Final = 4
"""A quarter of the 16 bytes that one lane's access can move (CUDA C++ Programming Guide)."""
FP32_BALANCE: Final = 10.0
"""FP32 operations for each byte of device memory that current GPUs can do (10 to 15 by data
sheets)."""
REUSE: Final = 4.0
"""As in rules/missing_data_reuse.py: staging breaks even at 2, and at 4 half is profit."""
MULTIPLY_ADDS: Final = 0.15
"""As in rules/tensor_core_unused.py: a matrix product executes a multiply-add in about every sixth
instruction or more often."""
OVERLAP: Final = 0.1
"""Part of a loop's arithmetic below which nothing worth the name lies between issuing a copy and
waiting for it."""


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
        if facts.resources.stack
        else "registers are spilled, or an array is indexed at run time"
    )
    where = (
        f"{len(inside)} of its loads and stores are inside loops"
        if inside
        else "but no loop touches it"
        if facts.looped
        else "once a thread"
    )
    return StaticFinding(
        "local-memory-traffic",
        "certain" if inside and spilled else "likely" if inside or not facts.looped else "possible",
        f"Local memory is used: {why}; {where}.",
        (
            evidence(
                "spilled_bytes",
                "Spilled bytes",
                spilled,
                "B",
                "Bytes that ptxas stores and loads because registers ran out.",
                0,
                ">",
            ),
            evidence(
                "local_instructions",
                "LDL and STL in the code",
                len(used),
                "count",
                "Loads and stores of local memory.",
            ),
            evidence(
                "local_in_loops",
                "of these in loops",
                len(inside),
                "count",
                "Executed again in every pass.",
                0,
                ">",
            ),
            evidence(
                "stack",
                "Stack frame",
                facts.resources.stack,
                "B",
                "Bytes of local memory a thread has.",
            ),
        ),
        "Where ptxas spills: allow more registers (__launch_bounds__) or give each thread less work. Where an "
        "array is indexed: unroll fully, so that every index is a constant.",
        "Local sectors above 0; LG throttle and long scoreboard at LDL and STL.",
        locations(inside or used, "local-memory instructions"),
    )


def data_reuse(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    requested = region.flops_per_global_byte
    if (
        not requested
        or facts.intensity is None
        or region.shared_load_bytes
        or requested >= FP32_BALANCE
        or facts.intensity < FP32_BALANCE
    ):
        return None
    times = facts.intensity / requested
    if times < REUSE:
        return None
    return StaticFinding(
        "missing-data-reuse",
        "likely",
        f"The loop asks global memory for each byte of the problem about {units.count(times)} times: it does "
        f"{units.significant(requested)} operations a byte where the problem has {units.significant(facts.intensity)}.",
        (
            evidence(
                "requested_intensity",
                "Operations a requested byte",
                requested,
                "",
                "In the loop, before any cache.",
                FP32_BALANCE,
                "<",
            ),
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
    if any(i.bulk_copies for i in facts.regions) or any(
        width(i.opcode) > NARROW_BYTES for i in everywhere
    ):
        return None  # a kernel with a wide path is taken to use it: its narrow code is for what is left over
    mean = region.mean_width(GLOBAL_LOADS)
    if mean is None or (
        mean == NARROW_BYTES and region.memory_cycles < max(region.cycles.values(), default=0.0)
    ):
        return None
    loads = [i for i in region.code if i.base in GLOBAL_LOADS]
    if len(dependent_loads(region)) * 2 > len(loads):
        return None
    return StaticFinding(
        "narrow-access",
        "possible",
        f"Every global load moves {units.significant(mean)} bytes a thread or fewer where 16 are possible.",
        (
            evidence(
                "load_width",
                "Mean width of a global load",
                mean,
                "B",
                "Bytes a thread loads by one instruction.",
                NARROW_BYTES,
                "<=",
            ),
            evidence(
                "bytes_in_flight",
                "Bytes in flight a thread",
                region.bytes_in_flight,
                "B",
                "Of global loads outstanding at once.",
            ),
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
            evidence(
                "chased_loads",
                "Loads with a loaded address",
                len(dependent),
                "count",
                f"Of {loads} global loads in the main loop.",
                0,
                ">",
            ),
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
                "The loop waits for its asynchronous copies right after issuing them: "
                f"{units.percent(overlapped)} of its arithmetic lies in between.",
                (
                    evidence(
                        "copy_overlap",
                        "Arithmetic between copy and wait",
                        overlapped,
                        "fraction",
                        "Of the loop's arithmetic.",
                        OVERLAP,
                        "<",
                    ),
                    evidence(
                        "loads_in_flight",
                        "Copies in flight a thread",
                        region.loads_in_flight,
                        "count",
                        "Most that one thread has outstanding.",
                    ),
                ),
                "Issue copies a tile or more ahead, and wait only for the oldest group (cp.async.wait_group with the number of younger ones).",
                "Long scoreboard or barrier stalls at DEPBAR and the barrier behind it.",
                locations([i for i in region.code if i.base == "DEPBAR"], "waits for copies"),
            )
    return None


def shared_pressure(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    shared, arithmetic = region.cycles.get("shared", 0.0), region.arithmetic_cycles
    # Where each byte feeds much arithmetic it comes from L2 mostly, at twice the rate of device
    # memory or more.
    reused = region.flops_per_global_byte is None or region.flops_per_global_byte >= FP32_BALANCE
    memory_floor = region.memory_cycles / (2 if reused else 1)
    if not region.shared_load_bytes or shared < max(
        SHARED_RATIO * arithmetic, memory_floor, 0.0 if arithmetic else region.cycles["issue"]
    ):
        return None
    ratio = shared / arithmetic if arithmetic else None
    used = [
        i for i in region.code if attribution.kind(i.opcode) == "shared" and i.predicate != NEVER
    ]
    width = region.mean_width(frozenset({"LDS", "LDSM"}))
    shown = [
        cycles(region, "shared", "Shared-memory path"),
        evidence(
            "arithmetic_cycles",
            "Arithmetic",
            arithmetic,
            "cycles",
            "Cycles of the busiest floating-point pipe.",
        ),
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
        shown.append(
            evidence(
                "shared_width",
                "Mean width of a shared load",
                width,
                "B",
                "Bytes a thread loads by one instruction; 16 at most.",
            )
        )
    return StaticFinding(
        "shared-instruction-pressure",
        "likely"
        if ratio is not None
        and ratio >= 2 * SHARED_RATIO
        and region.share("fp32", "fp16", "fp64") >= MULTIPLY_ADDS
        else "possible",
        f"In the {place(region)} the path from shared memory to the registers needs "
        f"{units.significant(shared)} cycles a warp, arithmetic {units.significant(arithmetic)}.",
        tuple(shown),
        "Compute a larger patch of results a thread from registers, and load 16 bytes at a time.",
        "MIO throttle and short scoreboard at LDS.",
        locations(used, "shared-memory instructions"),
    )


def constant_indexed(facts: KernelFacts) -> StaticFinding | None:
    used = [
        i
        for i in facts.main.code
        if i.base == "LDC" and re.search(r"c\[0x[0-9a-f]+\]\[R\d", i.operands)
    ]
    if not used:
        return None
    return StaticFinding(
        "constant-cache-divergence",
        "possible",
        "Constant memory is indexed by a register: where lanes of a warp differ in it, they are served one after another.",
        (
            evidence(
                "indexed_constants",
                "Indexed constant loads",
                len(used),
                "count",
                "LDC with a register in its address.",
                0,
                ">",
            ),
        ),
        "Index constants by what is the same for a whole warp, or put the table into shared memory.",
        "Many cycles for each constant load; short scoreboard at LDC.",
        locations(used, "indexed constant loads"),
    )
