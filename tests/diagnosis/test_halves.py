"""16-bit data differ from 32-bit data in how they become floats; lines of SASS as nvcc 13.0
writes them for sm_80 and sm_90."""

from __future__ import annotations

from typing import Any

import diagnosis_cases as cases
import pytest

from ncu_toolkit.kernel.diagnosis.kernel import Kernel
from ncu_toolkit.kernel.diagnosis.rules._launch import is_widening, widened


@pytest.mark.parametrize(
    "sass",
    [
        "SHF.L.U32 R16, R16, 0x10, RZ",
        "IMAD.U32 R9, R9, 0x10000, RZ",
        "LOP3.LUT R8, R9.reuse, 0xffff0000, RZ, 0xc0, !PT",
        "PRMT R9, RZ, 0x5410, R9",
        "PRMT R9, R9, 0x1044, RZ",
        "PRMT R9, RZ, 0x7610, R9",  # the upper half
    ],
)
def test_a_half_brought_into_the_upper_half_over_zeros(sass: str) -> None:
    assert is_widening(sass)


@pytest.mark.parametrize(
    "sass",
    [
        "SHF.L.U32 R16, R16, 0x8, RZ",
        "SHF.R.U32.HI R16, RZ, 0x10, R16",
        "IMAD.U32 R9, R9, 0x1000, RZ",
        "IMAD.WIDE R8, R9, 0x10000, R4",
        "LOP3.LUT R8, R9, 0xffff, RZ, 0xc0, !PT",
        "LOP3.LUT R8, R9, 0xffff0000, R4, 0x96, !PT",  # an exclusive or
        "PRMT R9, R8, 0x5410, R9",  # two halves packed
        "PRMT R9, RZ, 0x1054, R9",  # into the lower half
        "PRMT R9, RZ, 0x4510, R9",  # its bytes swapped
    ],
)
def test_other_integer_work(sass: str) -> None:
    assert not is_widening(sass)


def rows(*lines: str) -> list[dict[str, Any]]:
    return [{"sass": sass, "executed": 10, "threads": 320} for sass in (*lines, "EXIT")]


def test_counted_are_those_that_bring_a_load_to_float_arithmetic() -> None:
    product = rows(
        "LDG.E.U16.CONSTANT R4, desc[UR4][R2.64]",
        "LDG.E.U16.CONSTANT R5, desc[UR4][R6.64]",
        "SHF.L.U32 R8, R4, 0x10, RZ",
        "IMAD.U32 R9, R5, 0x10000, RZ",
        "FFMA R10, R8, R9, R10",
    )
    assert widened(Kernel.of(cases.build({"instructions": product}))) == (20, 640)


def test_a_hash_is_no_bfloat16() -> None:
    mixed = rows(
        "LDG.E R4, desc[UR4][R2.64]",
        "SHF.L.U32 R8, R4, 0x10, RZ",
        "LOP3.LUT R10, R8, R4, R10, 0x96, !PT",
    )
    assert widened(Kernel.of(cases.build({"instructions": mixed}))) == (0, 0)


def test_an_index_that_becomes_an_offset_is_no_bfloat16() -> None:
    computed = rows("S2R R4, SR_TID.X", "SHF.L.U32 R8, R4, 0x10, RZ", "FADD R10, R8, R10")
    assert widened(Kernel.of(cases.build({"instructions": computed}))) == (0, 0)


def test_conversions_of_halves_count_as_before() -> None:
    halves = rows(
        "LDG.E.U16 R4, desc[UR4][R2.64]", "HADD2.F32 R8, -RZ, R4.H0_H0", "FFMA R10, R8, R8, R10"
    )
    counted = {"opcodes": {"HADD2.F32": 10}, "thread_opcodes": {"HADD2.F32": 320}}
    assert widened(Kernel.of(cases.build({"instructions": halves, **counted}))) == (10, 320)
