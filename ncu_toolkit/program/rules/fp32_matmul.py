"""Matrix products in FP32 run on CUDA cores, where tensor cores could take them.

What it is
Since Ampere, tensor cores multiply FP32 matrices rounded to TF32 (a mantissa of 10 bits, sums in
FP32): at 8 times the rate of the CUDA cores on A100 and H100, 16 on B200, 2 on professional cards of
GA10x, Ada and RTX Blackwell, and no faster on their GeForce cards, where 16-bit types are twice as
fast. Volta and Turing have no TF32: their tensor cores take FP16. PyTorch computes products in full
FP32 by default.

Why it costs time
The products take the time that the CUDA cores need, with the tensor cores idle.

How to confirm
The kernels' names say so: sgemm, simt or ffma. Under a profiler the tensor pipe is idle.

What to change
Allow TF32, where the GPU has it. Or compute in BF16 or FP16 by automatic mixed precision, which halves the bytes as well.

When the advice is wrong
A product of few columns or rows (K, M or N below 16) is limited by memory or by launching, not by its multiply-adds:
counters show it. PyTorch's matrix_power keeps FP32, whatever is allowed. Solvers, and losses that
subtract close numbers, may need all 23 bits of the mantissa: compare results.

Source
NVIDIA A100, H100 and GA102 architecture white papers (rates by type); PyTorch documentation, "CUDA
semantics: TensorFloat-32".
"""

import re
from collections.abc import Sequence
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.hardware.specs import spec
from ncu_toolkit.base.model import Device
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Edit
from ncu_toolkit.program.rules._facts import Confidence, StepFacts, StepOutcome, fact

TITLE: Final = "FP32 matrix products on CUDA cores"
#: A matrix times a vector reads each element once: memory limits it.
_VECTOR: Final = re.compile(r"(?i)gemv|dot_kernel|gevm|_dot_")
#: Products that XLA compiles itself say no type: that of all others, if these take a quarter of the time.
_OF_XLA: Final = "gemm_fusion_dot"
_GEFORCE: Final = re.compile(r"(?i)geforce|titan|\bRTX [2-5]0[5-9]0\b")
#: TF32 since this compute capability.
_TF32: Final = (8, 0)
#: Times the rate of FP32 at most, on B200: for a GPU that is not named.
_MOST: Final = 16.0
LIMITED: Final = Threshold(
    0.5,
    "of the FMA pipe's peak: products of libraries that multiply-adds limit reach 0.58 to 0.82 on an H100, one of 3 columns 0.33",
)


def rates(device: Device) -> tuple[str, float] | None:
    """The type that tensor cores take instead of FP32 with the least change of results, and how
    many times faster they are than the CUDA cores by the data sheet. None where it is not known.

    TF32 has half the rate of 16-bit types. `Sm.tensor` of CC 8.6, 8.9 and 12.0 is that with 16-bit
    sums, of which GeForce cards do half with 32-bit sums; their TF32 is half of that, as fast as FP32
    (GA102 white paper: 35.6 TFLOPS of TF32 and of FP32 for the RTX 3090; 74.8 and 37.4 for the A40)."""
    fp32, tensor = spec(device.cc, "fp32"), spec(device.cc, "tensor")
    agreed = spec(device.cc, "tensor_fp32")
    if not fp32 or not tensor:
        return None
    wide = agreed or (tensor / 2 if _GEFORCE.search(device.name) else tensor)
    narrow = wide / (2 * fp32)  # flops of a multiply-add
    if device.cc < _TF32:
        return "FP16", narrow
    return ("TF32", narrow / 2) if narrow / 2 > 1 else ("BF16", narrow)


def _of(s: StepFacts, at: int, name: str, otherwise: float) -> float:
    """A figure of a launch's kernel, where a report has it."""
    known = s.profiles.get(s.ops[at].shape)
    figure = figures.value(known, name) if known else None
    return otherwise if figure is None else figure


def find(s: StepFacts) -> StepOutcome:
    products = s.of_class("product", "convolution")
    if not products:
        return s.ruled_out(f"The {s.word} has no matrix product of a library.")
    plain = [at for at in products if s.arithmetic[at] == "fp32"]
    plain = [at for at in plain if not _VECTOR.search(s.kernel(at))]
    types = {s.arithmetic[at] for at in products if s.classes[at] == "product"}
    if types == {"fp32", ""} and 4 * s.us(plain) >= s.us(products):
        plain += [at for at in products if s.kernel(at).startswith(_OF_XLA)]
    if s.framework == "torch" and "tf32" in types:  # it is allowed: matrix_power does without it
        plain = [at for at in plain if s.classes[at] == "convolution"]
    limited = [at for at in plain if _of(s, at, "fma_pipe_active", 1.0) >= LIMITED.value]
    us, others = s.us(limited), s.us(products)
    evidence = (
        s.part("fp32_products", "FP32 products", us,
               "in products whose names prove FP32 on CUDA cores, and whose counters, if known, say that it limits them."),
        fact("products", "All products", s.share(others), "fraction", f"Part of the {s.word} in matrix products and convolutions."),
    )  # fmt: skip
    if not s.worth(us):
        return s.ruled_out(_reason(s, products, plain), *evidence)
    named = s.device is not None and s.device.cc > (0, 0)
    rate = rates(s.device) if s.device and named else ("TF32", _MOST)
    if rate is None:
        return s.abstain("The rates of this GPU's tensor cores are not known.", "device")
    kind, ratio = rate
    # what memory moves takes as long then
    keeps = {at: max(1 / ratio, _of(s, at, "dram_utilization", 0.0)) for at in limited}
    convolutions = s.us(at for at in plain if s.classes[at] == "convolution")
    sure: Confidence = "high" if kind == "TF32" and convolutions < us / 2 else "medium"
    unnamed = " The trace does not name the GPU: what its tensor cores gain is not known."
    return s.finding(
        f"{units.counted(len(limited), 'product')} in FP32: {s.of_step(us)}. None uses tensor cores.{unnamed * (not named)}",
        sure if named else "low",
        Edit(keeps=keeps),
        ops=limited,
        evidence=(
            *evidence,
            fact("tensor_ratio", f"{kind} over FP32", ratio, "x",
                 f"Rate of {kind} on tensor cores over that of FP32 on CUDA cores, by the data sheet."),
        ),
        arithmetic=f"{kind} on tensor cores has {'' if named else 'at most '}{units.ratio(ratio)} the rate of FP32 on CUDA cores. The products "
            "take as long as that rate says, or as memory is busy.",
        advice=_advice(s, kind, bool(convolutions)),
    )  # fmt: skip


def _reason(s: StepFacts, products: Sequence[int], plain: Sequence[int]) -> str:
    """Why there is nothing to gain from tensor cores, of all products and of those in FP32."""
    if s.worth(s.us(plain)):
        return "Something else than multiply-adds limits the products in FP32."
    if s.worth(s.us(products)) and not any(s.arithmetic[at] for at in products):
        return "No product's name proves FP32 on CUDA cores."
    return f"Products use tensor cores, or take little of the {s.word}."


def _advice(s: StepFacts, kind: str, convolutions: bool) -> tuple[str, ...]:
    """How to use tensor cores for inputs of a `kind`, by framework."""
    dtype = "float16" if kind == "FP16" else "bfloat16"
    mixed = f'torch.autocast("cuda", dtype=torch.{dtype}) around the forward pass'
    scaled = ", and torch.amp.GradScaler in training" * (kind == "FP16")
    words = {"kind": kind, "dtype": dtype, "mixed": mixed, "scaled": scaled}
    more = [f"Faster still, if BF16 (7-bit mantissa) is accurate enough: {mixed}."]
    more += ["For convolutions, leave torch.backends.cudnn.allow_tf32 = True."] * convolutions
    return (
        *s.advice("fp32-matmul" + " TF32" * (kind == "TF32"), **words),
        *more * (kind == "TF32" and s.framework == "torch"),
        f"Compare the results: {kind} keeps {7 if kind == 'BF16' else 10} of the 23 mantissa bits.",
    )
