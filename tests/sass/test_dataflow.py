"""Reaching definitions over SASS branches, and what is found with them: dependent loads, dead
address arithmetic, waits behind copies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ncu_toolkit.base.model import Instruction
from ncu_toolkit.kernel.sass.attribution import Flow, flow_of

BASE = 0x7F00


def flow(*lines: str, ends: bool = True) -> Flow:
    """The flow of a function: `@N` in a line stands for the address of its N-th instruction; `ends`
    appends the branch to itself."""
    texts = [*lines, "BRA `(.L_x_0) @" + str(len(lines))] if ends else [*lines]
    rows = []
    for i, text in enumerate(texts):
        head, mark, target = text.rpartition("@") if "@" in text.lstrip("@") else (text, "", "")
        sass = f"{head}0x{BASE + 16 * int(target):x}" if mark and target.isdigit() else text
        opcode = next(word for word in sass.split() if not word.startswith("@"))
        rows.append(Instruction(i, 16 * i, sass, opcode))
    return flow_of(rows)


CHAIN = "MOV R7, R2; IMAD.WIDE R4, R7, 0x4, R2; LDG.E R7, desc[UR4][R4.64]; @P0 BRA @1; EXIT"
SHUFFLED = "LDG.E R4, desc[UR4][R2.64]; SHFL.DOWN PT, R7, R4, 0x10, 0x1f; IMAD.WIDE R8, R7, 0x4, R10; LDG.E R6, desc[UR4][R8.64]; EXIT"
#: The load of the pass before does not feed it, though the move is conditional.
GUARDED = "@!P0 MOV R2, R4; @!P0 LDG.E R2, desc[UR4][R2.64]; @P1 BRA @0; EXIT"
JOIN = "@P0 BRA @3; MOV R5, R1; BRA @4; MOV R5, R2; FADD R6, R5, R5; EXIT"


@pytest.mark.parametrize(
    ("code", "at", "register", "sources"),
    [
        (CHAIN, 1, 7, {0, 2}),  # a branch to itself gives the function's start
        (SHUFFLED, 2, 7, {1}),
        # a warpgroup's product writes all its registers
        ("LDG.E R60, desc[UR4][R2.64]; HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, UP0; FADD R9, R60, R8; EXIT", 2, 60, {1}),
        (GUARDED, 1, 2, {0}),
        ("LDG.E R2, desc[UR4][R6.64]; @P0 MOV R2, R4; LDG.E R8, desc[UR4][R2.64]; EXIT", 2, 2, {0, 1}),
        (JOIN, 4, 5, {1, 3}),
    ],
)  # fmt: skip
def test_sources_of_a_register(code: str, at: int, register: int, sources: set[int]) -> None:
    assert flow(*code.split("; ")).graph.known
    assert flow(*code.split("; ")).sources(at, register) == sources


def test_a_subroutine_s_return_gives_the_function_s_start_too() -> None:
    """`RET.REL` names the start of the kernel: what to take from targets to get addresses."""
    named = flow(*CHAIN.split("; "), f"RET.REL.NODEC R4 0x{BASE:x}", ends=False)
    assert named.graph.known
    assert named.sources(1, 7) == {0, 2}


@pytest.mark.parametrize(
    ("code", "at", "depends"),
    [
        (CHAIN, 2, True),
        ("MOV R4, R2; LDG.E R8, desc[UR4][R4.64]; FADD R9, R8, R9; IADD3 R4, R4, 0x80, RZ; @P0 BRA @1; EXIT", 1, False),
        (SHUFFLED, 3, True),
        (GUARDED, 1, False),
    ],
)  # fmt: skip
def test_an_address_that_comes_from_a_load(code: str, at: int, depends: bool) -> None:
    assert flow(*code.split("; ")).address_depends_on_load(at) == depends


@pytest.mark.parametrize(
    ("code", "at", "kinds", "producers"),
    [
        ("LDSM.16.M88.4 R4, [R2]; FADD R9, R7, R8; EXIT", 1, ("shared",), [0]),
        # a wait for copies is seen at the instruction behind it
        ("LDGSTS.E.BYPASS.128 [R7], desc[UR8][R8.64]; LDGDEPBAR; DEPBAR.LE SB0, 0x0; @P2 BRA @4; EXIT", 3, ("copy", "global"), [0]),
    ],
)  # fmt: skip
def test_producers(code: str, at: int, kinds: tuple[str, ...], producers: list[int]) -> None:
    assert flow(*code.split("; ")).producers(at, kinds) == producers


def test_counts_tell_where_a_branch_goes() -> None:
    """Several starts of a function make its only branch lead to an instruction; at one more warps run it
    than the one before."""
    texts = [
        "MOV R2, R1",
        f"@P0 BRA 0x{BASE + 160:x}",
        *["MOV R2, R3"] * 8,
        *["FADD R4, R2, R2"] * 9,
    ]
    rows = [
        Instruction(i, 16 * i, text, text.split()[text[0] == "@"]) for i, text in enumerate(texts)
    ]
    assert not flow_of(rows).graph.known
    counted = [replace(row, executed=1 if 1 < row.index < 10 else 2) for row in rows]
    assert flow_of(counted).graph.targets == {1: (10,)}
    assert flow_of(counted).sources(10, 2) == {0, 9}


def test_without_targets_code_is_a_straight_line_that_repeats() -> None:
    rows = ("FADD R6, R4, R6", "LDG.E R4, desc[UR4][R2.64]", "@P0 BRA `(.L_1)")
    code = flow(*rows, ends=False)
    assert not code.graph.known
    assert code.producers(0, ("global",)) == [1]


def test_addresses_of_local_memory_are_dead_without_it() -> None:
    rows = (
        "IADD3 R5, R5, 0x1, RZ", "SHF.L.U32 R6, R5, 0x2, RZ", "LOP3.LUT R6, R6, 0x7c, RZ, 0xc0, !PT", "IADD3 R7, R1, R6, RZ",
        "LDL R8, [R7]", "FADD R9, R8, R9", "ISETP.NE.AND P0, PT, R10, 0x8, PT", "IADD3 R10, R10, 0x1, RZ", "@P0 BRA @0",
        "STG.E desc[UR4][R2.64], R9", "EXIT",
    )  # fmt: skip
    assert flow(*rows).only_for_addresses_of({4}, set()) == {0, 1, 2, 3}
    # the value of a spill is no part of its address
    spill = (
        "FMUL R4, R2, R3",
        "STL [R1], R4",
        "LDL R5, [R1]",
        "STG.E desc[UR4][R6.64], R5",
        "EXIT",
    )
    assert flow(*spill).only_for_addresses_of({1, 2}, set()) == frozenset()


def test_unrolled_loops_over_local_memory_need_no_tests_and_no_loads_of_constants() -> None:
    rows = (
        "MOV R20, 0xc", "MOV R30, 0x20", "LDL R8, [R7]", "LDC R12, c[0x3][R21]", "FFMA R9, R8, R12, R9", "IADD3 R7, R7, 0x4, RZ",
        "IADD3 R21, R21, 0x4, RZ", "IADD3 R20, R20, -0x1, RZ", "ISETP.NE.AND P0, PT, R20, RZ, PT", "@P0 BRA @2",
        "IADD3 R30, R30, -0x1, RZ", "ISETP.NE.AND P1, PT, R30, RZ, PT", "@P1 BRA @2", "STG.E desc[UR4][R2.64], R9", "EXIT",
    )  # fmt: skip
    control, constants = flow(*rows).gone_if_unrolled([2])
    assert (control, constants) == ({8, 9}, {3})  # the outer loop does not step through the array
    assert flow(*rows).only_for_addresses_of({2, *constants}, control) >= {0, 5, 6, 7}
    assert not flow(*rows).only_for_addresses_of({2, *constants}, control) & {1, 10, 11}
    # what the data decides stays: a search leaves its loop by what it finds
    search = [row.replace("R20, RZ, PT", "R8, RZ, PT") for row in rows]
    assert flow(*search).gone_if_unrolled([2])[0] == frozenset()


def test_what_ends_in_a_stored_value_is_no_address() -> None:
    rows = (
        "IMAD.WIDE R2, R0, 0x4, R4", "VIMNMX R8, R8, R9, !PT", "IADD3 R8, R8, 0x1, RZ", "LDG.E R9, desc[UR4][R2.64]",
        "ISETP.NE.AND P0, PT, R10, 0x8, PT", "@P0 BRA @1", "STG.E desc[UR4][R2.64], R8", "EXIT",
    )  # fmt: skip
    assert flow(*rows).into_stored_values() & {0, 1, 2, 4} == {1, 2}
