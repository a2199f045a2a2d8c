"""Double precision in a part of a step that is single elsewhere: a kernel's cause of which counters show
nothing where memory limits it.

One array of doubles makes all that is computed from it double in PyTorch and CuPy, and NumPy makes
them of numbers without a type. A step in double throughout is meant so."""

import re
from functools import lru_cache
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.hardware.specs import spec
from ncu_toolkit.kernel.diagnosis.rules import title
from ncu_toolkit.kernel.diagnosis.rules.double_precision import CALL
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Edit, StepFinding
from ncu_toolkit.program.rules._facts import StepFacts
from ncu_toolkit.program.rules._patterns import PASSES

RULE: Final = "double-precision"
BESIDE: Final = Threshold(0.1, "a step meant to be double has less in what it reads and writes")
#: Types of what kernels of PyTorch, cuFFT, cuBLAS and CuPy compute, in their names. `double2` and z are
#: complex.
_DOUBLE: Final = re.compile(
    r"(?:<|lambda\()double2?\b|(?<![a-z])z(?:gemm|884)|complex<double>|fft\w*<.*\bdouble\b|^cupy_\w+_(?:float64|complex128)(?![a-z\d])"
)
_SINGLE: Final = re.compile(
    r"\bfloat2?\b|(?<![a-z])c(?:gemm|1688gemm)|c10::(?:Half|BFloat16)|^cupy_\w+_(?:float16|float32|complex64)(?![a-z\d])"
)
#: Single precision has half the bytes.
_HALF: Final = 0.5


@lru_cache(maxsize=4096)
def _type(kernel: str) -> str:
    """Of both types: CuPy's kernels convert, others may sum in double, or scale by a float."""
    if not _SINGLE.search(kernel):
        return "fp64" if _DOUBLE.search(kernel) else ""
    return "fp32" if kernel.startswith("cupy_") or not _DOUBLE.search(kernel) else ""


def find(s: StepFacts) -> StepFinding | None:
    if s.framework not in ("torch", "cupy"):
        return None
    types = [proven or _type(s.kernel(at)) for at, proven in enumerate(s.arithmetic)]
    double = [at for at, each in enumerate(types) if each == "fp64"]
    single = [at for at, each in enumerate(types) if each not in ("", "fp64", "int8")]
    us, beside = s.us(double), s.us(single)
    fp64, fp32 = (spec(s.device.cc, rate) if s.device else None for rate in ("fp64", "fp32"))
    rate = min(_HALF, (fp64 or 1) / (fp32 or 1))
    edit = Edit(keeps={at: _HALF if s.classes[at] in PASSES else rate for at in double})
    if not s.worth(us - s.left(edit, double)) or not s.worth(beside, BESIDE):
        return None
    begins = s.where({*double}.difference(at + 1 for at in double))
    return s.finding(
        f"{units.counted(len(double), 'launch')} in double precision, {s.of_step(us)}, among others in single or half, "
        f"{s.of_step(beside)}. One array of doubles makes double of all that is computed from it{': see where it begins' if begins else ''}.",
        "low",
        edit,
        ops=double,
        evidence=(
            s.part("double", "In double precision", us, "in kernels whose names prove it."),
            s.part("single", "In single or half", beside, "in kernels whose names prove it.", BESIDE),
        ),
        arithmetic="In single precision passes over data move half the bytes, and other kernels compute at its rate.",
        advice=CALL[s.framework],
        rule=RULE,
        title=title(RULE),
        where=begins,
    )  # fmt: skip
