"""The code does not fit into the instruction cache, so warps wait for their next instruction.

What it is
Instructions are fetched through small caches: about 768 instructions of 16 bytes for each scheduler, about 128 KiB per
SM, then L2. Loops unrolled too far, or many long paths taken by different warps, overflow them.

Why it costs time
A warp whose next instruction is not there cannot issue, whatever else is ready.

How to confirm
The no-instruction stall is a large part of a warp's time in a loop that runs long, and the hot code is larger than 768
instructions.

What to change
Unroll less (#pragma unroll with a number), keep rare paths out of line (__noinline__), use one code path for all warps
at a time, split the kernel.

When the advice is wrong
A short launch runs its code for the first time: the stall comes from the cold start, not from unrolling.

Source
Nsight Compute Kernel Profiling Guide, "Warp Stall Reasons" (no instruction); Jia et al., "Dissecting the NVIDIA Volta
GPU Architecture via Microbenchmarking" (L0 12 KiB, L1.5 128 KiB).
"""

from collections.abc import Mapping
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, percent
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, StaticFinding, evidence
from ncu_toolkit.kernel.diagnosis.thresholds import WEAK_STALL, Threshold

TITLE: Final = "Instruction-cache misses"
REQUIRES: Final = ("stalls",)
OPTIONAL: Final = ("issue_active",)
NCU: Final = (("CPIStall", "no instruction"),)
WAITS: Final = {"no_instruction": ""}
CODE_RANK: Final = 10
#: Bytes of one instruction since Volta, and of a scheduler's own cache (Jia et al., as above).
INSTRUCTION_BYTES: Final = 16
L0_BYTES: Final = 12 * 1024
#: Bytes of the cache behind it, which the schedulers of an SM share: straight code that is longer
#: is fetched again for each group of warps.
L1_BYTES: Final = 128 * 1024
#: Executions of the most executed instruction by a warp below which a launch only meets its code
#: for the first time.
REPEATS: Final = 4
_ADVICE: Final[Mapping[str, tuple[str, ...]]] = {
    "cuda": ("Unroll less: give #pragma unroll a number, or 1 for the outer loop.",
             "Move rare paths out of line (__noinline__), and let all warps of a block take the same path at a time."),
    "triton": ("Unroll less: tl.range instead of tl.static_range, and a smaller block or more warps for it (num_warps).",
               "Move rare paths into a separate kernel."),
    "numba": ("Make the hot loop's body smaller: fewer inlined functions, and loop bounds that are not literals.",
              "Let all threads of a block take the same path at a time."),
    "warp": ('Unroll less: lower wp.config.max_unroll, or the module option "max_unroll".',
             "Let all threads of a block take the same path at a time."),
}  # fmt: skip


def find(k: Kernel) -> Outcome:
    waiting = k.model.waiting("no_instruction")
    measured = k.stall("no_instruction", WEAK_STALL)
    if waiting < WEAK_STALL.value:
        reason = f"Warps wait for instructions for only {percent(waiting)} of their time."
        return k.ruled_out(reason, measured)
    executed = [row.executed for row in k.instructions if row.executed]
    most = max(executed, default=0)
    hot = sum(INSTRUCTION_BYTES for n in executed if n * 2 >= most)
    warps = k.warps
    if executed and warps and most / warps < REPEATS and hot <= L1_BYTES:
        reason = "Each warp runs the code about once, so the wait is for the first fetch. The loop fits the cache."
        return k.ruled_out(reason, measured)
    size = k.stated("hot_code_bytes", hot, ">", Threshold(float(L0_BYTES), "a scheduler's cache"))
    small = bool(executed) and hot <= L0_BYTES
    return k.finding(
        f"Warps spend {percent(waiting)} of their time waiting for instruction fetches. The hot code does not fit into the instruction cache.",
        Removal("with the code in the cache", stalls={"no_instruction": 0.0}),
        (measured, size if executed else None, "issue_active"),
        k.advice(**_ADVICE),
        "Fewer no-instruction stalls, and smaller code.",
        confidence="low" if small or not executed else "high",
        locations=k.locate_stall("no_instruction"),
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    size = len(facts.main.code) * INSTRUCTION_BYTES
    if not facts.looped or size <= L1_BYTES:
        return None
    return facts.finding(
        "likely",
        f"The loop's code takes {units.count(size)} bytes, more than the scheduler's instruction cache holds. Every iteration fetches it again.",
        (
            evidence("loop_bytes", "Code of the loop", size, "B", "16 bytes per instruction.", (L1_BYTES, ">")),
        ),
        "Unroll less.",
        "The no-instruction stall is large.",
    )  # fmt: skip
