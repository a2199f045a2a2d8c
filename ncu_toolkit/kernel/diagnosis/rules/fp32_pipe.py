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

from dataclasses import replace
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.hardware.specs import spec
from ncu_toolkit.base.model import Finding
from ncu_toolkit.kernel.diagnosis.kernel import (
    TENTH,
    WORTH,
    Given,
    Kernel,
    Outcome,
    Removal,
    capital,
    keep,
    percent,
)
from ncu_toolkit.kernel.diagnosis.rules import Roof
from ncu_toolkit.kernel.diagnosis.rules._launch import computing, is_fp32_product, is_multiply_add
from ncu_toolkit.kernel.diagnosis.thresholds import (
    BUSY,
    COMPULSORY,
    LANES,
    NEAR,
    WEAK_STALL,
    WORKING,
    Threshold,
)
from ncu_toolkit.kernel.diagnosis.time_model import NOISE, SUSTAINED

TITLE: Final = "FP32 pipe"
LIMIT: Final = "compute"
VENDOR: Final = Threshold(0.9 * 0.78, "nine tenths of the 78% of peak that the vendor's FP32 matrix product reaches on an H200")  # fmt: skip
REQUIRES: Final = ("fma_pipe_active",)
OPTIONAL: Final = ("opcodes", "lanes_predicated_on", "issue_active", "stalls")
COSTS: Final = (("fp32",), ("math_pipe_throttle", "wait", "not_selected"))
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
ON_INTEGERS: Final = "The pipe is busy with integer multiply-adds."


CALL: Final = {
    "torch": ('If it is a matrix product and TF32 (10-bit mantissa) is accurate enough: torch.set_float32_matmul_precision("high").',
              "Otherwise only fewer operations or a smaller dtype would be much faster."),
    "xla": ('If it is a matrix product and TF32 is accurate enough: jax.default_matmul_precision("tensorfloat32").',
            "Otherwise only fewer operations or a smaller dtype would be much faster."),
    "library": ("If it is a matrix product and TF32 (10-bit mantissa) is accurate enough, allow it: in cuBLAS the compute type "
                'CUBLAS_COMPUTE_32F_FAST_TF32, in PyTorch torch.set_float32_matmul_precision("high").',
                "Otherwise only fewer operations or a smaller data type would be much faster."),
}  # fmt: skip


def find(k: Kernel) -> Outcome:
    busy, measured = k.model.busy("fma"), k.fact("fma_pipe_active", ">=", VENDOR)
    if reason := _not_the_limit(k):
        shown = "kind_share:integer" if reason == ON_INTEGERS else None
        return k.ruled_out(reason, measured, shown)
    held_back = k.model.waiting("dispatch_stall") >= WEAK_STALL.value
    evidence = (
        measured,
        "issue_active flops_fp32 lanes_predicated_on",
        k.stall("dispatch_stall", WEAK_STALL) if held_back else None,
    )
    if waste := _waste(k):
        return k.roof(
            f"The FP32 pipe is {percent(busy)} busy, but {waste}.",
            evidence,
            "Remove the redundant operations. The other findings say which.",
            "Fewer FFMA.",
        )
    if _lanes(k) is None and not k.context.flops:
        return k.roof(
            f"The FP32 pipe is {percent(busy)} busy. The report does not show how many lanes do useful work.",
            evidence,
            k.collect("which counts active lanes and instructions"),
            "Active lanes per instruction, and the instruction mix.",
            confidence="low",
        )
    if busy < VENDOR.value or (held_back and 1 - busy / BEST.value >= WORTH):
        return _close(k, held_back, evidence)
    return _at_roof(k, evidence)


def _not_the_limit(k: Kernel) -> str:
    """Why the pipe is not what limits this launch, or not to be made better use of; "" where it is."""
    busy, issuing = k.model.busy("fma"), k.model.busy("issue")
    pipes = ("fma", "alu", "fp64", "fp16", "xu", "tensor", "lsu", "l1_data", "l2", "fill", "dram")
    close = busy >= BUSY.value and issuing >= NEAR.value
    close = close and k.model.busiest(*pipes)[1] - busy <= NOISE
    if busy < VENDOR.value and not close:
        return f"The FMA pipe is {percent(busy)} busy."
    if k.model.working < WORKING.value:
        return f"The pipe is full while SMs have work, but they have none for {percent(1 - k.model.working)} of the time."
    floats = k.executed("fp32")
    if floats is not None and k.of_base("IMAD") > floats:
        return ON_INTEGERS
    if k.context.dtype in ("float16", "bfloat16"):
        return "The data are 16-bit. The tensor cores would be many times faster."
    return ""


def _lanes(k: Kernel) -> float | None:
    return k["lanes_predicated_on"] or k["lanes_per_instruction"]


def _waste(k: Kernel) -> str:
    """What the pipe does beyond the problem's work, in words; "" for nothing."""
    executed, needed, lanes = k["flops_fp32"], k.context.flops, _lanes(k)
    if executed and needed and executed > needed * COMPULSORY.value:
        return f"it executes {units.ratio(executed / needed)} the operations that the problem needs"
    if lanes is not None and lanes < LANES.value:
        return f"only {units.significant(lanes)} of 32 lanes do useful work"
    return ""


def _close(k: Kernel, held_back: bool, evidence: Given) -> Outcome:
    """Close to the roof, with instructions around the arithmetic that could go."""
    busy, issuing = k.model.busy("fma"), k.model.busy("issue")
    removal = Removal(
        "with no overhead around the arithmetic",
        stalls=dict.fromkeys(k.model.stalls, min(1.0, busy / BEST.value)),
        # Special functions and conversions are no overhead either.
        loads={"issue": keep(1 - max(busy / issuing, min(1.0, computing(k))), STEP)},
    )
    sign = "Fewer dispatch stalls" if held_back else "FFMA is a larger share of the instructions"
    close_to = k.finding(
        f"The kernel is close to the FP32 roof: the pipe is {percent(busy)} busy while SMs have work, the issue "
        f"slots {percent(issuing)}. {_between(k, busy)}.",
        removal,
        evidence,
        k.advice(
            *_advice(k),
            *_precision(k),
            triton=(
                *_precision(k),
                "Spend fewer instructions on anything but multiply-adds: a larger BLOCK_M and BLOCK_N, with num_warps to match.",
                "Raise num_stages, so that the operands of the next step are in flight during this one.",
            ),
        ),
        f"The FMA pipe reaches {percent(BEST.value, 2)}. {sign}.",
        confidence="medium",
        locations=k.locate_stall("dispatch_stall") if held_back else (),
    )
    # A keyword makes it TF32 in Triton; in CUDA C++ that is another kernel.
    if isinstance(close_to, Finding) and k.language == "triton":
        return _in_tf32(close_to, k)
    return close_to


def _at_roof(k: Kernel, evidence: Given) -> Finding:
    """At the roof, and what tensor cores would gain."""
    busy = k.model.busy("fma")
    overhead = f"Remove the remaining overhead to match the best kernels. {_between(k, busy)}."
    at_roof = k.roof(
        f"the FP32 pipe is {percent(busy)} busy while SMs have work, near the most that well-written kernels reach.",
        evidence,
        (
            *_precision(k),
            "Only fewer operations, or a type that tensor cores support, would be much faster.",
            *((overhead,) if 1 - busy / BEST.value >= WORTH else ()),
        ),
        "Most instructions are FFMA, and the FMA pipe is near its peak.",
        good=True,
        confidence="high" if k.context.flops and k["flops_fp32"] else "medium",
        resource="fma",
        best=BEST,
    )
    return _in_tf32(at_roof, k) if at_roof.good else at_roof


def _in_tf32(at_roof: Finding, k: Kernel) -> Finding:
    """A product of matrices at or near this pipe's roof, with what tensor cores would gain in TF32: the
    roof is the pipe's, not the task's. Unchanged where the type is the problem's own (`context`), where
    these tensor cores are not WIDE_TENSOR, and where less than a TENTH is gained.

    Its multiply-adds then take the tensor pipe at half the rate of 16-bit operands (data sheets of A100
    to B200), and bytes come as before. A kernel at its roof is tuned, so a tuned one is expected there
    too, such as a library's: the tensor pipe or memory is its limit, not its instructions."""
    rate = spec(k.device.cc, "tensor")
    fused = sum(row.threads for row in k.rows if is_multiply_add(row.opcode))
    sms = k.device.sm_count
    wide = k.device.cc in WIDE_TENSOR and is_fp32_product(k)
    if k.profile.context or not wide or not rate or not sms or not fused:
        return at_roof
    # The rate of tensor cores is in operations on 16-bit operands.
    faster = rate / 2 / FLOPS / (spec(k.device.cc, "fp32") or 1.0)
    prediction = k.model.without(
        Removal(
            "on tensor cores in TF32",
            stalls=dict.fromkeys(k.model.stalls, 0.0),
            loads=dict.fromkeys(ON_SM, 0.0),
            added={"tensor": fused * FLOPS / (rate / 2) / sms},
            basis=f"Tensor cores multiply TF32 at {units.ratio(faster)} the rate of the FMA pipe.",
        )
    )
    if prediction.saved <= TENTH:
        return at_roof
    return replace(
        at_roof,
        summary=f"{capital(at_roof.statement or at_roof.summary)} Tensor cores multiply in TF32 (10-bit mantissa) "
        f"at {units.ratio(faster)} the rate.",
        speedup=prediction.speedup,
        provided="TF32 is accurate enough",
        # All waiting is taken to go: the sum over its reasons says nothing.
        arithmetic=(*at_roof.arithmetic, *prediction.arithmetic[:2], *prediction.arithmetic[-3:]),
    )


#: Floating-point operations of a multiply-add.
FLOPS: Final = 2
#: What works for multiply-adds in the SMs and is idle in a tuned product on tensor cores.
ON_SM: Final = ("issue", "fma", "fmaheavy", "alu", "lsu", "l1_data", "l1_writeback", "l1_tag", "l1")
#: GPUs whose tensor cores multiply TF32 at 7 to 14 times the FP32 rate of the FMA pipe, by their
#: data sheets; on others it is one to two times, and 16-bit types gain more.
WIDE_TENSOR: Final = ((8, 0), (9, 0), (10, 0), (10, 3))


def _precision(k: Kernel) -> tuple[str, ...]:
    """The choice of a smaller type, where tensor cores would take the kernel's products in it."""
    if k.device.cc < (8, 0) or not is_fp32_product(k):
        return ()
    gain = "several times faster" if k.device.cc in WIDE_TENSOR else "faster"
    if k.language == "triton":
        text = f'If TF32 (10-bit mantissa) is accurate enough, use input_precision="tf32" in tl.dot: tensor cores are {gain} on this GPU.'
    else:
        text = (
            "If TF32 (10-bit mantissa) or BF16 (7-bit) products are accurate enough, use the tensor cores. They sum in FP32 "
            f"and are {gain} on this GPU."
        )
    return (text,)


def _between(k: Kernel, busy: float) -> str:
    """What keeps the pipe from being busier, as far as the profile tells."""
    issuing, held_back = k.model.busy("issue"), k.model.waiting("dispatch_stall")
    others = ""
    if issuing and busy < issuing:
        others = f"Instructions other than FP32 arithmetic take {percent(1 - busy / issuing)} of the used issue slots"
    if held_back < WEAK_STALL.value:
        return others or "The rest is overhead between the multiply-adds"
    words = f"Dispatch stalls take {percent(held_back)} of a warp's time: the next instruction is ready, but the dispatcher holds it back"
    return f"{words}. {others}" if others and busy < issuing * (1 - WEAK_STALL.value) else words


def _advice(k: Kernel) -> tuple[str, ...]:
    held_back = (
        "Let neighbouring multiply-adds share an operand, so that it is read once and reused. Walk each thread's tile "
        "back and forth. Try other tile shapes and unroll factors, which change how the compiler assigns registers to banks."
    )
    return (
        *((held_back,) if k.model.waiting("dispatch_stall") >= WEAK_STALL.value else ()),
        "Spend fewer instructions on anything but multiply-adds: larger tiles per thread, wider loads, addresses stepped by constants.",
        "Prefetch the operands of the next step into registers during the arithmetic of this one.",
    )
