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

from __future__ import annotations

from typing import ClassVar, Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules import Roof, Specificity
from ncu_toolkit.diagnosis.rules._roof import COMPULSORY, NEAR, TENTH, WORKING, roof
from ncu_toolkit.diagnosis.rules._support import WORTH, Threshold, abstain, fact, finding, ruled_out
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.model import Finding, NoFinding, Profile
from ncu_toolkit.sass import attribution

ID: Final = "tensor-pipe"
TITLE: Final = "Tensor pipe"
LIMIT: Final = "compute"
REQUIRES: Final = ()
OPTIONAL: Final = ("tensor_pipe_active", "hmma_pipe_active", "opcodes")
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


class Words:
    not_busy = "The tensor pipe is {busy} busy."
    idle = "The pipe is full while SMs have work, but they have none for {part} of the time."
    warp_level = (
        "Warp-level matrix instructions keep the tensor cores {busy} busy. On this GPU only warpgroup instructions (wgmma) can "
        "fill them."
    )
    warpgroup = (
        "Use wgmma: operands straight from shared memory, one instruction for four warps, fed by TMA.",
    )
    warpgroup_elsewhere: ClassVar[language.Elsewhere] = {
        "triton": (
            "Let Triton emit wgmma: tl.dot with BLOCK_M of at least 64 and num_warps of 4 or 8.",
            "Use a current version of Triton, and operands that come straight from loads.",
        ),
    }
    warpgroup_look_for = "HGMMA instead of HMMA, UTMALDG instead of LDGSTS, no LDSM."
    redundant = "The tensor cores are {busy} busy, but they execute {ratio} the operations that the problem needs."
    redundant_advice = (
        "Remove the redundant operations: tiles beyond the edge, padding, products computed twice.",
    )
    redundant_look_for = "Fewer matrix instructions for the same result."
    overlap = "Keep the pipe busy: let some warps issue matrix products while others compute, load or store."
    fewer = "Only fewer operations or a narrower type would be much faster."
    fed = "Keep the pipe busy between tiles: let a persistent block store one result while it computes the next."
    good = "the tensor cores are {busy} busy while SMs have work, near the most that well-written kernels reach."
    look_for = "The tensor pipe near its peak."


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    if "tensor" not in model.loads:
        return abstain(ID, ("tensor_pipe_active",))
    busy = model.busy("tensor")
    old = _only_warp_level(profile)
    limit = NEAR_MMA_SYNC if old else NEAR
    name = (
        "tensor_pipe_active"
        if profile.value("tensor_pipe_active") is not None
        else "hmma_pipe_active"
    )
    measured = fact(profile, name, "", limit, ">=")
    evidence = (
        measured,
        fact(profile, "kind_share:tensor"),
        fact(profile, "flops_tensor"),
        fact(profile, "issue_active"),
    )
    if busy < limit.value:
        return ruled_out(ID, Words.not_busy.format(busy=units.percent(busy)), measured)
    if model.working < WORKING.value:
        return ruled_out(ID, Words.idle.format(part=units.percent(1 - model.working)), measured)
    if old:
        removal = Removal(
            "with warpgroup instructions",
            stalls=dict.fromkeys(
                ("math_pipe_throttle", "short_scoreboard", "mio_throttle", "wait"), MMA_SYNC
            ),
            loads={"tensor": MMA_SYNC},
            instructions=MMA_SYNC,
        )
        return finding(
            ID,
            Words.warp_level.format(busy=units.percent(busy)),
            model.without(removal),
            evidence,
            language.advice(profile, Words.warpgroup, Words.warpgroup_elsewhere),
            Words.warpgroup_look_for,
            confidence="medium",
        )
    executed, needed = (
        figures.value(profile, "flops_tensor"),
        profile.context.flops if profile.context else None,
    )
    if executed and needed and executed > needed * COMPULSORY.value:
        return roof(
            ID,
            Words.redundant.format(busy=units.percent(busy), ratio=units.ratio(executed / needed)),
            model,
            evidence,
            Words.redundant_advice,
            Words.redundant_look_for,
            good=False,
            confidence="medium",
        )
    left = 1 - busy / BEST.value
    advice = (Words.overlap,) if left > TENTH else (Words.fed,) if left >= WORTH else ()
    return roof(
        ID,
        Words.good.format(busy=units.percent(busy)),
        model,
        evidence,
        (*advice, Words.fewer),
        Words.look_for,
        good=True,
        confidence="medium",
        resource="tensor",
        best=BEST,
    )


def specificity(finding: Finding) -> Specificity:
    return Specificity.CHANGE if finding.good else Specificity.SYMPTOM


def _only_warp_level(profile: Profile) -> bool:
    if profile.device.cc != (9, 0):
        return False
    names = {
        attribution.base(row.opcode)
        for row in figures.rows(profile)
        if attribution.kind(row.opcode) == "tensor"
    }
    return bool(names) and not names & set(WARPGROUP)
