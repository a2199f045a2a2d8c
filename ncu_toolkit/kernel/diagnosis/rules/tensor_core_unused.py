"""A matrix product in a type that tensor cores take is computed on the ordinary arithmetic pipe.

What it is
Tensor cores multiply small matrices of 16-bit (and other) types with one instruction: at 8 times
the rate of the FMA pipe on V100 and T4, 16 on A100 and H100, 32 on B200, and 4 on GA10x, Ada and
RTX Blackwell (2 on their GeForce cards where sums are float). A product of half-precision matrices written as scalar multiply-adds
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

from collections.abc import Mapping
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, keep
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, StaticFinding, _launch, evidence
from ncu_toolkit.kernel.diagnosis.thresholds import MULTIPLY_ADDS, REUSE, Threshold
from ncu_toolkit.kernel.diagnosis.time_model import PER_INSTRUCTION
from ncu_toolkit.kernel.sass import attribution

TITLE: Final = "Tensor cores unused"
LIMIT: Final = "compute"
REQUIRES: Final = ("opcodes",)
OPTIONAL: Final = ("fma_pipe_active", "dram_bytes", "stalls")
COSTS: Final = (("fp32", "fp16"), PER_INSTRUCTION)
NCU: Final = (("CPIStall", "math pipe throttle"),)
CODE_RANK: Final = 3
INTENSITY: Final = Threshold(
    16.0,
    "operations per DRAM byte: above the FP32 machine balance of current GPUs (10 to 15), so memory is not the limit",
)
#: Instructions of a tensor-core version for each multiply-add of the scalar one: an m16n8k16
#: product does the work of 64 FFMA and needs about seven more for its operands.
INSTRUCTIONS_LEFT: Final = 1 / 8
#: Passes of 128 bytes through shared memory for each scalar multiply-add: a warp's tile of 32x32,
#: the smallest that uses its fragments more than once, reads 32x16 and 16x32 halves for eight
#: m16n8k16 products, each the work of 64.
FRAGMENT_PASSES: Final = (32 * 16 + 16 * 32) * 2 / 128 / (8 * 64)
HALF_BYTES: Final = 2
TENSOR_TYPES: Final = ("float16", "bfloat16")
_ADVICE: Final[Mapping[str, tuple[str, ...]]] = {
    "cuda": ("Use the tensor cores: wmma, mma.sync or (Hopper) wgmma with float accumulators, or a library (cuBLAS, CUTLASS).",
             "Load fragments with ldmatrix from a swizzled shared tile."),
    "triton": ("Multiply by tl.dot with 16-bit operands, which uses the tensor cores and sums in float32.",
               "Its blocks must be at least 16 on each side."),
    "numba": ("Leave the product to a library (cupy.matmul, torch.matmul): Numba has no tensor-core instructions.",),
    "warp": ("Multiply tiles by wp.tile_matmul, which can use the tensor cores.",),
}  # fmt: skip


def find(k: Kernel) -> Outcome:
    if k.device.cc < (7, 0):
        return k.ruled_out("This GPU has no tensor cores.")
    if k.executed("tensor"):
        return k.ruled_out("The kernel uses the tensor cores.", "tensor_pipe_active")
    total = k.total
    fused = sum(row.warps for row in k.rows if _launch.is_multiply_add(row.opcode))
    evidence = ("kind_share:fp32 kind_share:fp16 fma_pipe_active flops_fp32 flops_fp16",)
    if not total or fused / total < MULTIPLY_ADDS.value:
        return k.ruled_out(
            "Multiply-adds are a small part of the instructions, so this is not a matrix product.",
            evidence,
        )
    halves = _sixteen_bit(k)
    if not halves:
        reason = "The operands are not 16-bit, so tensor cores would change the result's precision."
        return k.ruled_out(reason, evidence)
    flops = (k["flops_fp32"] or 0.0) + (k["flops_fp16"] or 0.0)
    moved = k["dram_bytes"]
    if moved and flops / moved < INTENSITY.value:
        reason = f"Only {units.significant(flops / moved)} operations per DRAM byte, too little reuse for a matrix product."
        return k.ruled_out(reason, evidence)
    # Only multiply-adds and the conversions of their operands go, and what these read from shared
    # memory beyond what fragments need; tiles are loaded as before, and waited for as long.
    passes = k["shared_load_wavefronts"]
    operands = min(1.0, FRAGMENT_PASSES * fused / passes) if passes else 1.0
    shared = keep(_shared_loads(k), operands)
    converted, _ = _launch.widened(k)
    replaced = (fused + converted) / total
    removal = Removal(
        "on the tensor cores",
        stalls={
            reason: keep(k.blame(reason, "shared"), shared)
            for reason in ("short_scoreboard", "mio_throttle")
        },
        loads=dict.fromkeys(("fma", "fmaheavy", "fp16"), INSTRUCTIONS_LEFT)
        | dict.fromkeys(
            ("l1_data", "l1_writeback", "l1", "lsu"),
            keep(_launch.shared_wavefront_part(k) if passes else 0.0, operands),
        ),
        # With the passes go the loads that make them.
        instructions=keep(replaced, INSTRUCTIONS_LEFT)
        - (k["kind_share:shared"] or 0.0) * (1 - shared),
    )
    return k.finding(
        "The kernel multiplies 16-bit numbers on the ordinary pipes. The tensor cores are idle, and many times faster.",
        removal,
        evidence,
        k.advice(**_ADVICE),
        "HMMA (HGMMA on Hopper) instead of FFMA and HFMA2, and an active tensor pipe.",
        confidence="high"
        if k.profile.context and k.profile.context.dtype in TENSOR_TYPES
        else "medium",
        locations=k.locate_executed(_launch.is_multiply_add, "multiply-adds"),
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    if facts.cc < (7, 0) or facts.has("tensor"):
        return None
    fused = [i for i in region.code if _launch.is_multiply_add(i.opcode) and i.flops]
    if not region.depth or len(fused) < MULTIPLY_ADDS.value * region.instructions:
        return None
    half = sum(i.flops for i in fused if i.base == "HFMA2")
    narrow = [i for r in facts.regions for i in r.code if i.base in ("LDG", "LDS")]
    sixteen = sum("U16" in i.modifiers or "S16" in i.modifiers for i in narrow)
    converted = sum(i.opcode.startswith(_launch.CONVERTS) for i in region.code)
    declared = facts.dtype in TENSOR_TYPES
    # The tests of a profile: half arithmetic does the work, or 16-bit loads or conversions feed it.
    if not (
        declared
        or half > sum(i.flops for i in fused) / 2
        or sixteen > len(narrow) / 2
        or converted > len(fused) / 8
    ):
        return None
    return facts.finding(
        "likely" if declared else "possible",
        "A loop multiplies and adds 16-bit numbers on the ordinary pipes. The code has no matrix instruction.",
        (
            evidence("multiply_adds", "Multiply-adds in the loop", len(fused) / region.instructions, "fraction",
                     "FFMA and HFMA2 among its instructions.", (MULTIPLY_ADDS.value, ">=")),
            evidence("matrix_instructions", "Matrix instructions", 0, "count", "HMMA, HGMMA and the like."),
            evidence("half_conversions", "Conversions from half, per iteration", converted, "count",
                     "16-bit operands widened before multiplication."),
        ),
        "Use wmma, mma.sync or (on Hopper) wgmma with 16-bit operands and float accumulators, or a library.",
        "The tensor pipe is idle, and the FMA or FP16 pipe works.",
        fused, "multiply-adds",
    )  # fmt: skip


def _shared_loads(k: Kernel) -> float:
    """Loads among the instructions on shared memory; all of them where they were not counted."""
    shared = [row for row in k.rows if attribution.kind(row.opcode) == "shared"]
    total = sum(row.warps for row in shared)
    return sum(row.warps for row in shared if row.base == "LDS") / total if total else 1.0


def _sixteen_bit(k: Kernel) -> bool:
    """Whether the operands are 16-bit: the ladder says so, half arithmetic does the work, or 16-bit
    loads or conversions feed the multiply-adds."""
    if k.profile.context and k.profile.context.dtype in TENSOR_TYPES:
        return True
    half = k["flops_fp16"] or 0.0
    single = k["flops_fp32"] or 0.0
    if half > single:
        return True
    loads = [(row.opcode, row.warps) for row in k.rows if row.base in ("LDG", "LDS")]
    narrow = sum(
        n for opcode, n in loads if "U16" in opcode.split(".") or "S16" in opcode.split(".")
    )
    converted, threads = _launch.widened(k)
    fused = sum(row.warps for row in k.rows if _launch.is_multiply_add(row.opcode))
    # Tiles may be converted on their way into shared memory, each value once: as many as the loads
    # brought, and each used many times.
    brought = k["lane_load_bytes"] or 0.0
    reuse = k["load_reuse"] or 0.0
    if threads * HALF_BYTES > brought / 2 > 0 and reuse >= REUSE.value:
        return True
    # Each multiply-add of two converted operands takes up to two conversions; an eighth still means
    # that values fetched as halves feed it.
    return narrow > sum(n for _, n in loads) / 2 or converted > fused / 8
