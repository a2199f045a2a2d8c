"""The FP32 pipe works nearly all the time: the arithmetic roof.

What it is
The kernel mostly executes multiply-adds. The FMA pipe, or the issue slots that feed it, is nearly
as busy as in well-written kernels.

Why it costs time
Time is then operations over the pipe's rate.

How to confirm
The FMA pipe above 70% of its peak, most of its instructions floating-point, and all lanes active.
The vendor's own FP32 matrix product reaches 78% on an H200.

What to change
Below 80%, reduce the overhead between the multiply-adds: other instructions and dispatch stalls. In
a dispatch stall an instruction is ready but held back, for example because its operands share a
register bank. Above 80%, only fewer operations (a better algorithm) or a type that tensor cores
support help.

When the advice is wrong
Busy with redundant work is not good: compare the operations executed with those the problem needs.
Registers are assigned by the compiler: which operands share a bank can only be steered, by the
shape of the tile, the order of the multiply-adds and the unrolling.

Source
Williams et al., "Roofline"; CUDA C++ Programming Guide, "Arithmetic Instructions"; Nsight Compute
Kernel Profiling Guide, "Warp Stall Reasons" (dispatch stall); Jia et al., "Dissecting the NVIDIA
Volta GPU Architecture via Microbenchmarking" (register banks and the reuse cache).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules import Roof
from ncu_toolkit.diagnosis.rules._arithmetic import computing, is_fp32_product, is_multiply_add
from ncu_toolkit.diagnosis.rules._roof import COMPULSORY, NEAR, TENTH, WORKING, roof
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    COLLECT,
    LANES,
    WEAK_STALL,
    WORTH,
    Threshold,
    fact,
    finding,
    keep,
    locate_stall,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import NOISE, SUSTAINED, Removal, TimeModel
from ncu_toolkit.hardware.specs import spec
from ncu_toolkit.model import Finding, NoFinding, Profile

ID: Final = "fp32-pipe"
TITLE: Final = "FP32 pipe"
LIMIT: Final = "compute"
VENDOR: Final = Threshold(
    0.9 * 0.78,
    "nine tenths of the 78% of peak that the vendor's FP32 matrix product reaches on an H200",
)
REQUIRES: Final = ("fma_pipe_active",)
OPTIONAL: Final = ("opcodes", "lanes_predicated_on", "issue_active", "stalls")
NCU: Final = (("HighPipeUtilization", "fma"),)
ROOF: Final = Roof("the FP32 pipe", "fma_pipe_active", "flops")
UNITS: Final = ("fma",)
#: What the best products keep the pipe busy with operands to fetch beside: the vendor's 0.78 to
#: 0.79, register_blocked 0.80, on an H200.
BEST: Final = Threshold(
    SUSTAINED,
    "the utilisation of the best FP32 matrix products on an H200: 78 to 79% for the vendor's, 80% for register_blocked",
)
#: What stays of the instructions around the arithmetic after one step: a loop unrolled twice, or a
#: tile with one side doubled, has half of them for each operation.
STEP: Final = 0.5


class Words:
    not_busy = "The FMA pipe is {busy} busy."
    idle = "The pipe is full while SMs have work, but they have none for {part} of the time."
    integers = "The pipe is busy with integer multiply-adds."
    sixteen_bit = "The data are 16-bit. The tensor cores would be many times faster."
    redundant = "it executes {ratio} the operations that the problem needs"
    lanes = "only {lanes} of 32 lanes do useful work"
    wasteful = "The FP32 pipe is {busy} busy, but {waste}."
    wasteful_advice = ("Remove the redundant operations. The other findings say which.",)
    unsure = "The FP32 pipe is {busy} busy. The report does not show how many lanes do useful work."
    unsure_look_for = "Active lanes per instruction, and the instruction mix."
    found = "The kernel is close to the FP32 roof: the pipe is {busy} busy while SMs have work, the issue slots {issuing}. {between}."
    more_ffma = "FFMA is a larger share of the instructions."
    fewer = "Only fewer operations, or a type that tensor cores support, would be much faster."
    good = "the FP32 pipe is {busy} busy while SMs have work, near the most that well-written kernels reach."
    below = "Remove the remaining overhead to match the best kernels. {between}."
    look_for = "Most instructions are FFMA, and the FMA pipe is near its peak."
    precision = (
        "If TF32 (10-bit mantissa) or BF16 (7-bit) products are accurate enough, use the tensor cores. They sum in FP32 and are "
        "{gain} on this GPU."
    )
    tensor = "On tensor cores it would be about {ratio} faster in TF32, if its 10-bit mantissa is accurate enough."
    tensor_basis = "Tensor cores multiply TF32 at {ratio} the rate of the FMA pipe."
    others = "Instructions other than FP32 arithmetic take {part} of the used issue slots"
    held_back = (
        "Dispatch stalls take {held_back} of a warp's time: the next instruction is ready, but its operands may share a "
        "register bank"
    )
    between_others = "{others}"
    between = "The rest is overhead between the multiply-adds"
    operands = (
        "Let neighbouring multiply-adds share an operand, so that it is read once and reused. Walk each thread's tile back and "
        "forth. Try other tile shapes and unroll factors, which change how the compiler assigns registers to banks."
    )
    lean = (
        "Spend fewer instructions on anything but multiply-adds: larger tiles per thread, wider loads, addresses stepped by "
        "constants."
    )
    elsewhere: ClassVar[language.Elsewhere] = {
        "triton": (
            "Spend fewer instructions on anything but multiply-adds: a larger BLOCK_M and BLOCK_N, with num_warps to match.",
            "Raise num_stages, so that the operands of the next step are under way during this one.",
        ),
    }
    tf32_triton = (
        'If TF32 (10-bit mantissa) is accurate enough, use input_precision="tf32" in tl.dot.'
    )
    call: ClassVar[language.Elsewhere] = {
        "torch": (
            'If it is a matrix product and TF32 (10-bit mantissa) is accurate enough: torch.set_float32_matmul_precision("high").',
            "Otherwise only fewer operations or a smaller dtype would be much faster.",
        ),
        "xla": (
            'If it is a matrix product and TF32 is accurate enough: jax.default_matmul_precision("tensorfloat32").',
            "Otherwise only fewer operations or a smaller dtype would be much faster.",
        ),
        "library": (
            "If it is a matrix product and TF32 (10-bit mantissa) is accurate enough, allow it: in cuBLAS the compute type "
            'CUBLAS_COMPUTE_32F_FAST_TF32, in PyTorch torch.set_float32_matmul_precision("high").',
            "Otherwise only fewer operations or a smaller data type would be much faster.",
        ),
    }
    overlap = (
        "Prefetch the operands of the next step into registers during the arithmetic of this one."
    )


CALL: Final = Words.call


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    busy, issuing = model.busy("fma"), model.busy("issue")
    measured = fact(profile, "fma_pipe_active", "", VENDOR, ">=")
    pipes = ("fma", "alu", "fp64", "fp16", "xu", "tensor", "lsu", "l1_data", "l2", "fill", "dram")
    close = busy >= BUSY.value and issuing >= NEAR.value
    close = close and model.busiest(*pipes)[1] - busy <= NOISE
    if busy < VENDOR.value and not close:
        return ruled_out(ID, Words.not_busy.format(busy=units.percent(busy)), measured)
    if model.working < WORKING.value:
        return ruled_out(ID, Words.idle.format(part=units.percent(1 - model.working)), measured)
    floats = figures.executed(profile, ("fp32",))
    integers = sum(row.warps for row in figures.rows(profile) if row.opcode.split(".")[0] == "IMAD")
    if floats is not None and integers > floats:
        return ruled_out(ID, Words.integers, measured, fact(profile, "kind_share:integer"))
    if profile.context and profile.context.dtype in ("float16", "bfloat16"):
        return ruled_out(ID, Words.sixteen_bit, measured)
    executed, needed = (
        figures.value(profile, "flops_fp32"),
        profile.context.flops if profile.context else None,
    )
    lanes = figures.value(profile, "lanes_predicated_on") or figures.value(
        profile, "lanes_per_instruction"
    )
    waste = ""
    if executed and needed and executed > needed * COMPULSORY.value:
        waste = Words.redundant.format(ratio=units.ratio(executed / needed))
    elif lanes is not None and lanes < LANES.value:
        waste = Words.lanes.format(lanes=units.significant(lanes))
    held_back = model.waiting("dispatch_stall")
    evidence = (
        measured,
        fact(profile, "issue_active"),
        fact(profile, "flops_fp32"),
        fact(profile, "lanes_predicated_on"),
        stall_fact(profile, "dispatch_stall", WEAK_STALL)
        if held_back >= WEAK_STALL.value
        else None,
    )
    if waste:
        return roof(
            ID,
            Words.wasteful.format(busy=units.percent(busy), waste=waste),
            model,
            evidence,
            Words.wasteful_advice,
            "Fewer FFMA.",
            good=False,
            confidence="medium",
        )
    if lanes is None and not needed:
        return roof(
            ID,
            Words.unsure.format(busy=units.percent(busy)),
            model,
            evidence,
            (
                f"Collect ncu-toolkit's own set, which counts active lanes and instructions: {COLLECT}",
            ),
            Words.unsure_look_for,
            good=False,
            confidence="low",
        )
    below = 1 - busy / BEST.value
    if busy < VENDOR.value or (held_back >= WEAK_STALL.value and below >= WORTH):
        removal = Removal(
            "with no overhead around the arithmetic",
            stalls=dict.fromkeys(model.stalls, min(1.0, busy / BEST.value)),
            # Special functions and conversions are no overhead either.
            loads={"issue": keep(1 - max(busy / issuing, min(1.0, computing(profile))), STEP)},
        )
        return finding(
            ID,
            Words.found.format(
                issuing=units.percent(issuing),
                busy=units.percent(busy),
                between=_between(model, busy),
            ),
            model.without(removal),
            evidence,
            (*language.advice(profile, _advice(model), Words.elsewhere), *_precision(profile)),
            f"The FMA pipe reaches {units.percent(BEST.value, 2)}. "
            + ("Fewer dispatch stalls." if held_back >= WEAK_STALL.value else Words.more_ffma),
            confidence="medium",
            locations=locate_stall(profile, "dispatch_stall")
            if held_back >= WEAK_STALL.value
            else (),
        )
    at_roof = roof(
        ID,
        Words.good.format(busy=units.percent(busy)),
        model,
        evidence,
        (
            *_precision(profile),
            Words.fewer,
            *((Words.below.format(between=_between(model, busy)),) if below >= WORTH else ()),
        ),
        Words.look_for,
        good=True,
        confidence="high" if needed and executed else "medium",
        resource="fma",
        best=BEST,
    )
    return _in_tf32(at_roof, profile, model) if at_roof.good else at_roof


def _in_tf32(at_roof: Finding, profile: Profile, model: TimeModel) -> Finding:
    """A product of matrices at this pipe's roof, with what tensor cores would gain in TF32: the
    roof is the pipe's, not the task's. As it stands where the type is the problem's own
    (`context`), where these tensor cores are not WIDE_TENSOR, and where less than a TENTH is
    gained.

    Its multiply-adds then take the tensor pipe at half the rate of 16-bit operands (data sheets of
    A100 to B200), and bytes come as before. A kernel at its roof is tuned, so a tuned one is
    expected there too, such as a library's: the tensor pipe or memory is its limit, not its
    instructions."""
    rate = spec(profile.device.cc, "tensor")
    fused = sum(row.threads for row in figures.rows(profile) if is_multiply_add(row.opcode))
    sms = profile.device.sm_count
    wide = profile.device.cc in WIDE_TENSOR and is_fp32_product(profile)
    if profile.context or not wide or not rate or not sms or not fused:
        return at_roof
    prediction = model.without(
        Removal(
            "on tensor cores in TF32",
            stalls=dict.fromkeys(model.stalls, 0.0),
            loads=dict.fromkeys(ON_SM, 0.0),
            added={"tensor": fused * FLOPS / (rate / 2) / sms},
            basis=Words.tensor_basis.format(ratio=units.ratio(_ratio(profile, rate))),
        )
    )
    if prediction.saved <= TENTH:
        return at_roof
    return replace(
        at_roof,
        summary=f"{at_roof.summary} {Words.tensor.format(ratio=units.ratio(prediction.speedup))}",
        speedup=prediction.speedup,
        # All waiting is taken to go: the sum over its reasons says nothing.
        arithmetic=(*at_roof.arithmetic, *prediction.arithmetic[:2], *prediction.arithmetic[-3:]),
    )


def _ratio(profile: Profile, rate: float) -> float:
    """How many times the FMA pipe's rate that of tensor cores in TF32 is; `rate` is theirs for
    16-bit operands, in operations."""
    return rate / 2 / FLOPS / (spec(profile.device.cc, "fp32") or 1.0)


#: Floating-point operations of a multiply-add.
FLOPS: Final = 2
#: What works for multiply-adds in the SMs and is idle in a tuned product on tensor cores.
ON_SM: Final = ("issue", "fma", "fmaheavy", "alu", "lsu", "l1_data", "l1_writeback", "l1_tag", "l1")
#: GPUs whose tensor cores multiply TF32 at 7 to 14 times the FP32 rate of the FMA pipe, by their
#: data sheets; on others it is one to two times, and 16-bit types gain more.
WIDE_TENSOR: Final = ((8, 0), (9, 0), (10, 0), (10, 3))


def _precision(profile: Profile) -> tuple[str, ...]:
    """The choice of a smaller type, where tensor cores would take the kernel's products in it."""
    if profile.device.cc < (8, 0) or not is_fp32_product(profile):
        return ()
    if language.language(profile) == "triton":
        return (Words.tf32_triton,)
    gain = "several times faster" if profile.device.cc in WIDE_TENSOR else "faster"
    return (Words.precision.format(gain=gain),)


def _between(model: TimeModel, busy: float) -> str:
    """What keeps the pipe from being busier, as far as the profile tells."""
    issuing, held_back = model.busy("issue"), model.waiting("dispatch_stall")
    others = Words.others.format(part=units.percent(1 - busy / issuing)) if issuing else ""
    if held_back >= WEAK_STALL.value:
        words = Words.held_back.format(held_back=units.percent(held_back))
        return f"{words}. {others}" if others and busy < issuing * (1 - WEAK_STALL.value) else words
    return (
        Words.between_others.format(others=others) if others and busy < issuing else Words.between
    )


def _advice(model: TimeModel) -> tuple[str, ...]:
    held_back = Words.operands
    return (
        *((held_back,) if model.waiting("dispatch_stall") >= WEAK_STALL.value else ()),
        Words.lean,
        Words.overlap,
    )
