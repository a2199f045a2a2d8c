"""Operations by opcode: what one execution of an arithmetic or matrix instruction computes, from
its mnemonic."""

from __future__ import annotations

import re
from typing import Final

from ncu_toolkit.sass.attribution import kind

_TENSOR_SHAPE: Final = re.compile(r"^(\d+)x(\d+)x(\d+)$")
#: Mnemonic shape -> (m, n, k), PTX ISA "mma" shapes as SASS spells them.
_SHAPES: Final = {
    "16816": (16, 8, 16), "1688": (16, 8, 8), "1684": (16, 8, 4), "884": (8, 8, 4), "8816": (8, 8, 16), "8832": (8, 8, 32), "16832": (16, 8, 32),
    "16864": (16, 8, 64), "88128": (8, 8, 128), "168128": (16, 8, 128), "168256": (16, 8, 256),
}  # fmt: skip
#: Warps that execute one warpgroup instruction together.
_WARPGROUP: Final = 4


def tensor_flops(opcode: str) -> float | None:
    """Operations of one warp-level execution of a matrix instruction (multiply and add counted
    apart); None where its shape is not in the name.

    HGMMA and its kin are counted once for each of the four warps of the warpgroup. Sparse forms
    count the operations skipped as done."""
    name, *modifiers = opcode.split(".")
    if kind(name) != "tensor":
        return None
    for token in modifiers:
        wide = _TENSOR_SHAPE.match(token)
        if wide:
            m, n, k = (int(part) for part in wide.groups())
            return 2.0 * m * n * k / _WARPGROUP
        if token in _SHAPES:
            m, n, k = _SHAPES[token]
            if (
                name == "HMMA" and token == "884"
            ):  # Volta: one of the steps of four 8x8x4 products done by a warp's quads
                return 2.0 * m * n * k * 4 / (2 if "F16" in modifiers[1:2] else 4)
            return 2.0 * m * n * k * (2 if "SP" in modifiers else 1)
    return None


#: Floating-point operations a thread does by base opcode (an FMA is two; H..2 work on two halves;
#: F..2 on two floats).
FLOPS: Final[dict[str, dict[str, int]]] = {
    "fp32": {
        "FFMA": 2,
        "FADD": 1,
        "FMUL": 1,
        "FFMA32I": 2,
        "FADD32I": 1,
        "FMUL32I": 1,
        "FFMA2": 4,
        "FADD2": 2,
        "FMUL2": 2,
    },
    "fp64": {"DFMA": 2, "DADD": 1, "DMUL": 1},
    "fp16": {"HFMA2": 4, "HADD2": 2, "HMUL2": 2},
}


def is_arithmetic(opcode: str) -> bool:
    """Compilers use HADD2.F32 to convert a half to a float."""
    return not opcode.startswith("HADD2.F32")
