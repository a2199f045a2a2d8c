"""The code does not fit into the instruction cache, so warps wait for their next instruction.

What it is
Instructions are fetched through small caches: about 128 instructions for each scheduler, some 128
KiB for an SM, then L2. Loops unrolled too far, or many long paths taken by different warps,
overflow them.

Why it costs time
A warp whose next instruction is not there cannot issue, whatever else is ready.

How to confirm
The no-instruction stall is a large part of a warp's time in a loop that runs long, and the hot code
is larger than the cache.

What to change
Unroll less (#pragma unroll with a number), keep rare paths out of line (__noinline__), use one code
path for all warps at a time, split the kernel.

When the advice is wrong
A short launch runs its code for the first time: the stall is the cold start, and unrolling is not
to blame.

Source
Nsight Compute Kernel Profiling Guide, "Warp Stall Reasons" (no instruction); Jia et al.,
"Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking" (L0 12 KiB, L1.5 128 KiB).
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis.rules._support import (
    WEAK_STALL,
    abstain,
    fact,
    finding,
    locate_stall,
    missing,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.model import Evidence, Finding, Profile, Ruled

ID: Final = "instruction-cache"
TITLE: Final = "Instruction cache"
REQUIRES: Final = ("stalls",)
OPTIONAL: Final = ("issue_active",)
#: Bytes of one instruction since Volta, and of a scheduler's own cache (Jia et al., as above).
INSTRUCTION_BYTES: Final = 16
L0_BYTES: Final = 12 * 1024
#: Bytes of the cache behind it, which the schedulers of an SM share: straight code that is longer
#: is fetched anew for each group of warps.
L1_BYTES: Final = 128 * 1024
#: Executions of the most executed instruction by a warp below which a launch only meets its code
#: for the first time.
REPEATS: Final = 4


def find(profile: Profile, model: TimeModel) -> Finding | Ruled:
    if absent := missing(profile, REQUIRES):
        return abstain(ID, absent)
    waiting = model.waiting("no_instruction")
    measured = stall_fact(profile, "no_instruction", WEAK_STALL)
    if waiting < WEAK_STALL.value:
        return ruled_out(
            ID,
            f"Warps wait for instructions for only {units.percent(waiting)} of their time.",
            measured,
        )
    executed = [row.executed for row in profile.instructions if row.executed]
    most = max(executed, default=0)
    hot = sum(INSTRUCTION_BYTES for n in executed if n * 2 >= most)
    warps = profile.launch.blocks * -(-profile.launch.threads_per_block // 32)
    if executed and warps and most / warps < REPEATS and hot <= L1_BYTES:
        return ruled_out(
            ID,
            "Each warp runs through the code about once: the wait is for the first fetch, not for a loop that does not fit.",
            measured,
        )
    size = Evidence(
        "hot_code_bytes",
        "Hot code",
        float(hot),
        "B",
        "Code executed at least half as often as the hottest instruction.",
        float(L0_BYTES),
        ">",
        "a scheduler's cache",
    )
    small = bool(executed) and hot <= L0_BYTES
    return finding(
        ID,
        f"Warps wait for their next instruction to be fetched for {units.percent(waiting)} of their time: the code that is hot does not fit into "
        "the instruction cache.",
        model.without(Removal("with instructions at hand", stalls={"no_instruction": 0.0})),
        (measured, size if executed else None, fact(profile, "issue_active")),
        (
            "Unroll less: give #pragma unroll a number, or 1 for the outer loop.",
            "Keep rare paths out of line, and let all warps of a block take the same path at a time.",
        ),
        "The no-instruction stall shrinks; the code is smaller.",
        confidence="low" if small or not executed else "high",
        locations=locate_stall(profile, "no_instruction"),
    )
