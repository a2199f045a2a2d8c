"""The tensor cores work nearly all the time: the matrix roof.

What it is
Matrix instructions fill the tensor pipe close to what well-written kernels reach. On Hopper the
older warp-level instructions (mma.sync: HMMA) cannot fill it: only warpgroup instructions (wgmma:
HGMMA) can.

Why it costs time
Time is then matrix operations over the pipe's rate.

How to confirm
The tensor pipe above 72% of peak; or, on Hopper, HMMA without HGMMA and the pipe near two thirds.

What to change
If the pipe is full, the instructions cannot be improved. Below 97%, reduce the work between tiles:
the start and the end of each block, the stores of results. Where a tenth or more is left, overlap:
let some warps issue matrix products while others compute, load or store. On Hopper move from mma.sync to wgmma
with operands in shared memory, fed by TMA.

When the advice is wrong
Padding tiles count as work: compare the operations executed with those the problem needs.

Source
PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"; measured on an H200: mma.sync kernels
end near 65% of the peak that wgmma reaches.
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Finding
from ncu_toolkit.kernel.diagnosis.kernel import (
    TENTH,
    WORTH,
    Given,
    Kernel,
    Outcome,
    Removal,
    percent,
)
from ncu_toolkit.kernel.diagnosis.rules import Roof, Specificity
from ncu_toolkit.kernel.diagnosis.thresholds import COMPULSORY, NEAR, WORKING, Threshold

TITLE: Final = "Tensor pipe"
LIMIT: Final = "compute"
OPTIONAL: Final = ("tensor_pipe_active", "hmma_pipe_active", "opcodes")
COSTS: Final = (("tensor",), ())
NCU: Final = (("HighPipeUtilization", "tensor"),)
ROOF: Final = Roof("the tensor pipe", "tensor_pipe_active", "flops")
UNITS: Final = ("tensor",)
WAITS: Final = {"gmma": "", "barrier": "tensor"}
#: Part of Hopper's matrix rate that mma.sync reaches at most, measured on an H200.
MMA_SYNC: Final = 0.65
NEAR_MMA_SYNC: Final = Threshold(
    0.9 * 0.8 * MMA_SYNC,
    "nine tenths of the 80% that well-written kernels reach of mma.sync's 65% of Hopper's peak",
)
BEST: Final = Threshold(
    0.97,
    "the utilisation of the best bfloat16 products on an H200 at 8192: 97 to 98% for the vendor's, 97% for wgmma_persistent",
)
WARPGROUP: Final = ("HGMMA", "QGMMA", "IGMMA", "BGMMA")


def find(k: Kernel) -> Outcome:
    if "tensor" not in k.model.loads:
        return k.abstain("tensor_pipe_active")
    busy, names = k.model.busy("tensor"), {row.base for row in k.rows if row.kind == "tensor"}
    old = k.device.cc == (9, 0) and bool(names) and not names & set(WARPGROUP)
    limit = NEAR_MMA_SYNC if old else NEAR
    name = "tensor_pipe_active" if k["tensor_pipe_active"] is not None else "hmma_pipe_active"
    measured = k.fact(name, ">=", limit)
    evidence = (measured, "kind_share:tensor flops_tensor issue_active")
    if busy < limit.value:
        return k.ruled_out(f"The tensor pipe is {percent(busy)} busy.", measured)
    if k.model.working < WORKING.value:
        reason = f"The pipe is full while SMs have work, but they have none for {percent(1 - k.model.working)} of the time."
        return k.ruled_out(reason, measured)
    if old:
        return _warpgroup(k, busy, evidence)
    executed, needed = k["flops_tensor"], k.context.flops
    if executed and needed and executed > needed * COMPULSORY.value:
        return k.roof(
            f"The tensor cores are {percent(busy)} busy, but they execute {units.ratio(executed / needed)} the operations that the problem needs.",
            evidence,
            "Remove the redundant operations: tiles beyond the edge, padding, products computed twice.",
            "Fewer matrix instructions for the same result.",
        )
    left, advice = 1 - busy / BEST.value, []
    if left >= WORTH:
        busier = (
            "between tiles: let a persistent block store one result while it computes the next."
        )
        advice = [f"Keep the pipe busy {busier}"]
    if left > TENTH:
        busier = "let some warps issue matrix products while others compute, load or store."
        advice = [f"Keep the pipe busy: {busier}"]
    return k.roof(
        f"the tensor cores are {percent(busy)} busy while SMs have work, near the most that well-written kernels reach.",
        evidence,
        (*advice, "Only fewer operations or a narrower type would be much faster."),
        "The tensor pipe near its peak.",
        good=True,
        resource="tensor",
        best=BEST,
    )


def _warpgroup(k: Kernel, busy: float, evidence: Given) -> Outcome:
    """Warp-level instructions on a GPU that only warpgroup instructions can fill."""
    stalls = ("math_pipe_throttle", "short_scoreboard", "mio_throttle", "wait")
    removal = Removal(
        "with warpgroup instructions",
        stalls=dict.fromkeys(stalls, MMA_SYNC),
        loads={"tensor": MMA_SYNC},
        instructions=MMA_SYNC,
    )
    return k.finding(
        f"Warp-level matrix instructions keep the tensor cores {percent(busy)} busy. On this GPU only warpgroup instructions (wgmma) can fill them.",
        removal,
        evidence,
        k.advice(
            "Use wgmma: operands straight from shared memory, one instruction for four warps, fed by TMA.",
            triton=(
                "Let Triton emit wgmma: tl.dot with BLOCK_M of at least 64 and num_warps of 4 or 8.",
                "Use a current version of Triton, and operands that come straight from loads.",
            ),
        ),
        "HGMMA instead of HMMA, UTMALDG instead of LDGSTS, no LDSM.",
        confidence="medium",
    )


def specificity(finding: Finding) -> Specificity:
    return Specificity.CHANGE if finding.good else Specificity.SYMPTOM
