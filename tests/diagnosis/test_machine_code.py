"""What the machine code in a report tells where no instruction was counted, and of local memory."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import diagnosis_cases as cases
import pytest

from ncu_toolkit.base.model import Finding, MachineCode, Profile
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.sass import words

THIN: dict[str, Any] = {"stalls": {}, "opcodes": {}}
DEBUG = MachineCode(122, {"MOV": 80, "R2UR": 2, "ERRBAR": 1})


def with_code(code: MachineCode, **case: Any) -> Profile:
    return replace(cases.build({**THIN, **case}), code=code)


def test_a_debug_build_shows_in_its_code() -> None:
    first = diagnose(with_code(DEBUG)).primary
    assert first.bottleneck == "debug-build"
    assert first.speedup is None
    assert first.confidence == "medium", "executions were not counted"


def test_what_was_counted_says_more_than_what_is_there() -> None:
    counted = replace(cases.build({}), code=DEBUG)
    assert diagnose(counted).primary.bottleneck != "debug-build"


def instruction(opcode: int, register: int = 255) -> bytes:
    return struct.pack("<QQ", opcode | register << 24, 0)


def test_words_of_machine_code() -> None:
    text = b"".join(
        (
            instruction(0xA02),  # MOV R1, c[0x0][0x28]
            instruction(0x387, 1),  # STL [R1], R4
            instruction(0x983, 1),  # LDL R4, [R1]
            instruction(0x983, 7),  # LDL R4, [R7]
            instruction(0x9AB),  # ERRBAR
            instruction(0x94D),  # EXIT
            instruction(0x918),  # NOP
            b"cut off",
        )
    )
    read = words.read(memoryview(text))
    assert read == MachineCode(6, {"MOV": 1, "STL": 1, "LDL": 2, "ERRBAR": 1}, 1)
    assert read.part("MOV") == pytest.approx(1 / 6)


LOCAL: dict[str, Any] = cases.read("local-memory-traffic")


def local(*sass: str, code: MachineCode | None = None) -> Finding:
    rows = [{"sass": text, "executed": 1000} for text in sass]
    profile = cases.build({**LOCAL, "instructions": rows})
    found = diagnose(profile if code is None else replace(profile, code=code)).findings
    return next(each for each in found if each.bottleneck == "local-memory-traffic")


@pytest.mark.parametrize(
    ("sass", "message", "advice"),
    [
        (("STL [R1+0x8], R4", "LDL R4, [R1+0x8]", "EXIT"), "Registers spill:", 1),
        (("STL [R1+0x8], R4", "CALL.REL.NOINC 0x100", "LDL R4, [R1+0x8]", "EXIT"), "Registers spill, or are saved around calls:", 1),
        (("IADD3 R6, R1, 0x20, RZ", "STL [R6], R4", "LDL R4, [R6+0x8]", "EXIT"), "Registers spill:", 1),
        (("STL [R1], R4", "IMAD R7, R0, 0x4, R1", "LDL R4, [R7]", "EXIT"), "An array is indexed at run time:", 1),
        ((), "Registers spill, or an array is indexed at run time:", 2),
    ],
)  # fmt: skip
def test_local_memory_says_what_lies_there(
    sass: tuple[str, ...], message: str, advice: int
) -> None:
    found = local(*sass)
    assert found.summary.startswith(message)
    assert len(found.advice) == advice


def test_local_memory_is_reported_by_the_code_alone() -> None:
    spilled = local(code=MachineCode(100, {"LDL": 8, "STL": 8}))
    assert spilled.summary.startswith("Registers spill:")
    array = local(code=MachineCode(100, {"LDL": 8, "STL": 8}, 12))
    assert array.summary.startswith("An array is indexed at run time:")
    unclear = local(code=MachineCode(100, {"LDL": 8, "STL": 8}, 2))
    assert "or an array" in unclear.summary
