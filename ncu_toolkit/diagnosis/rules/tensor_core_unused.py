"""A matrix product in a type that tensor cores take is computed on the ordinary arithmetic pipe.

What it is
Tensor cores multiply small matrices of 16-bit (and other) types with one instruction, at 4 to 16
times the rate of the FMA pipe. A product of half-precision matrices written as scalar multiply-adds
leaves them idle.

Why it costs time
One m16n8k16 matrix instruction does the 2048 multiply-adds of 64 FFMA instructions, and its
operands need far fewer loads.

How to confirm
Multiply-adds fill the FMA or FP16 pipe, or the loads that feed them fill the load/store pipe; the
operands are 16-bit; no HMMA, HGMMA or the like is executed.

What to change
Use wmma or mma.sync (all GPUs since Volta), wgmma on Hopper, a library (cuBLAS, CUTLASS), with
float accumulation.

When the advice is wrong
Not every loop of multiply-adds is a matrix product. Float input would have to be rounded to TF32 or
less. Tiny matrices do not fill a tile.

Source
CUDA C++ Programming Guide, "Warp Matrix Functions"; PTX ISA, "mma"; architecture white papers
(rates by SM).
"""

from __future__ import annotations

import re
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules._access import shared_wavefront_part
from ncu_toolkit.diagnosis.rules._halves import widened
from ncu_toolkit.diagnosis.rules._support import (
    Threshold,
    abstain,
    blame,
    fact,
    finding,
    keep,
    locate,
    missing,
    ruled_out,
)
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.model import Finding, Profile, Ruled
from ncu_toolkit.sass import attribution

ID: Final = "tensor-core-unused"
TITLE: Final = "Tensor cores unused"
REQUIRES: Final = ("opcodes",)
OPTIONAL: Final = ("fma_pipe_active", "dram_bytes", "stalls")
MULTIPLY_ADDS: Final = Threshold(
    0.15,
    "a matrix product written for one result a thread executes a multiply-add in about every sixth instruction or more often",
)
INTENSITY: Final = Threshold(
    16.0,
    "operations a device-memory byte: above the FP32 machine balance of current GPUs (10 to 15), so memory is not what bounds it",
)
#: Instructions of a tensor-core version for each multiply-add of the scalar one: an m16n8k16
#: product does the work of 64 FFMA and needs about seven more for its operands.
INSTRUCTIONS_LEFT: Final = 1 / 8
#: Passes of 128 bytes through shared memory for each scalar multiply-add: an m16n8k16 product, the
#: work of 64, reads 16x16 and 16x8 halves.
FRAGMENT_PASSES: Final = (16 * 16 + 16 * 8) * 2 / 128 / 64
HALF_BYTES: Final = 2
#: Times that a product's operands are at least loaded, by as many tiles: see missing-data-reuse,
#: which asks for as many.
REUSE: Final = 4.0
TENSOR_TYPES: Final = ("float16", "bfloat16")


def find(profile: Profile, model: TimeModel) -> Finding | Ruled:
    if absent := missing(profile, REQUIRES):
        return abstain(ID, absent)
    if profile.device.cc < (7, 0):
        return ruled_out(ID, "This GPU has no tensor cores.")
    if figures.executed(profile, ("tensor",)):
        return ruled_out(
            ID, "The kernel uses the tensor cores.", fact(profile, "tensor_pipe_active")
        )
    total = sum(row.warps for row in figures.rows(profile))
    fused = sum(row.warps for row in figures.rows(profile) if is_multiply_add(row.opcode))
    evidence = (
        fact(profile, "kind_share:fp32"),
        fact(profile, "kind_share:fp16"),
        fact(profile, "fma_pipe_active"),
        fact(profile, "flops_fp32"),
        fact(profile, "flops_fp16"),
    )
    if not total or fused / total < MULTIPLY_ADDS.value:
        return ruled_out(
            ID,
            "Multiply-adds are a small part of the instructions: not a matrix product.",
            *evidence,
        )
    halves = _sixteen_bit(profile)
    if not halves:
        return ruled_out(
            ID,
            "The operands are not of a 16-bit type, so tensor cores would change the result's precision.",
            *evidence,
        )
    flops = (figures.value(profile, "flops_fp32") or 0.0) + (
        figures.value(profile, "flops_fp16") or 0.0
    )
    moved = figures.value(profile, "dram_bytes")
    if moved and flops / moved < INTENSITY.value:
        return ruled_out(
            ID,
            f"Only {units.significant(flops / moved)} operations for each byte of device memory: too little reuse for a matrix product.",
            *evidence,
        )
    # Only multiply-adds and the conversions of their operands go, and what these read from shared
    # memory beyond what fragments need; tiles are loaded as before, and waited for as long.
    passes = profile.value("shared_load_wavefronts")
    operands = min(1.0, FRAGMENT_PASSES * fused / passes) if passes else 1.0
    shared = keep(_shared_loads(profile), operands)
    converted, _ = widened(profile)
    replaced = (fused + converted) / total
    removal = Removal(
        "on the tensor cores",
        stalls={
            reason: keep(blame(profile, reason, ("shared",)), shared)
            for reason in ("short_scoreboard", "mio_throttle")
        },
        loads=dict.fromkeys(("fma", "fmaheavy", "fp16"), INSTRUCTIONS_LEFT)
        | dict.fromkeys(
            ("l1_data", "l1_writeback", "l1", "lsu"),
            keep(shared_wavefront_part(profile) if passes else 0.0, operands),
        ),
        instructions=keep(replaced, INSTRUCTIONS_LEFT),
    )
    return finding(
        ID,
        "The kernel multiplies 16-bit numbers with ordinary instructions; the tensor cores, which do such products many times faster, are idle.",
        model.without(removal),
        evidence,
        (
            "Use the tensor cores: wmma or mma.sync with 16-bit operands and float accumulators, wgmma on Hopper, or a library (cuBLAS, CUTLASS).",
            "Load fragments with ldmatrix from a swizzled shared tile.",
        ),
        "HMMA (HGMMA on Hopper) in place of FFMA and HFMA2; the tensor pipe is active.",
        confidence="high"
        if profile.context and profile.context.dtype in TENSOR_TYPES
        else "medium",
        locations=locate(
            profile,
            lambda row: float(row.executed or 0) if is_multiply_add(row.opcode) else 0.0,
            "multiply-adds",
        ),
    )


def _shared_loads(profile: Profile) -> float:
    """Loads among the instructions on shared memory; all of them where they were not counted."""
    of_shared = [
        (attribution.base(row.opcode) == "LDS", row.warps)
        for row in figures.rows(profile)
        if attribution.kind(row.opcode) == "shared"
    ]
    total = sum(n for _, n in of_shared)
    return sum(n for loads, n in of_shared if loads) / total if total else 1.0


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


def is_fp32_product(profile: Profile) -> bool:
    """Whether the kernel is like a product of FP32 matrices: multiply-adds are most of its
    instructions, they sum up, and each byte of device memory reaches them many times over through
    shared memory. False where opcodes were not counted."""
    rows = list(figures.rows(profile))
    total = sum(row.warps for row in rows)
    fused = sum(row.warps for row in rows if attribution.base(row.opcode) in ("FFMA", "FFMA2"))
    if not total or fused / total < PRODUCT or figures.executed(profile, ("tensor",)):
        return False
    read = profile.value("dram_read_bytes")
    shared = figures.value(profile, "lane_shared_load_bytes")
    if not read or not shared or shared / read < REUSE:
        return False
    counted = [
        (row.executed, _SUM.search(row.sass))
        for row in profile.instructions
        if row.executed and attribution.base(row.opcode) in ("FFMA", "FFMA2")
    ]
    sums = sum(n for n, found in counted if found and found[1] == found[2])
    return not counted or sums >= SUMS * sum(n for n, _ in counted)


def _sixteen_bit(profile: Profile) -> bool:
    """Whether the operands are 16-bit: the ladder says so, half arithmetic does the work, or 16-bit
    loads or conversions feed the multiply-adds."""
    if profile.context and profile.context.dtype in TENSOR_TYPES:
        return True
    half, single = (
        figures.value(profile, "flops_fp16") or 0.0,
        figures.value(profile, "flops_fp32") or 0.0,
    )
    if half > single:
        return True
    loads = [
        (row.opcode, row.warps)
        for row in figures.rows(profile)
        if attribution.base(row.opcode) in ("LDG", "LDS")
    ]
    narrow = sum(
        n for opcode, n in loads if "U16" in opcode.split(".") or "S16" in opcode.split(".")
    )
    converted, threads = widened(profile)
    fused = sum(row.warps for row in figures.rows(profile) if is_multiply_add(row.opcode))
    # Tiles may be converted on their way into shared memory, each value once: as many as the loads
    # brought, and each used many times.
    brought, reuse = (
        figures.value(profile, "lane_load_bytes") or 0.0,
        figures.value(profile, "load_reuse") or 0.0,
    )
    if threads * HALF_BYTES > brought / 2 > 0 and reuse >= REUSE:
        return True
    # Each multiply-add of two converted operands takes up to two conversions; an eighth still means
    # that values fetched as halves feed it.
    return narrow > sum(n for _, n in loads) / 2 or converted > fused / 8
