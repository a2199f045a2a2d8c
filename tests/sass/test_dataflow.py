"""Reaching definitions over SASS branches, and what is found with them: dependent loads, dead
address arithmetic, waits behind copies."""

from __future__ import annotations

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


CHAIN = (
    "MOV R7, R2",
    "IMAD.WIDE R4, R7, 0x4, R2",
    "LDG.E R7, desc[UR4][R4.64]",
    "@P0 BRA @1",
    "EXIT",
)


def test_a_branch_to_itself_gives_the_function_s_start() -> None:
    assert flow(*CHAIN).graph.known
    assert flow(*CHAIN).sources(1, 7) == {0, 2}


def test_a_subroutine_s_return_gives_it_too() -> None:
    """`RET.REL` names the start of the kernel: what to take from targets to get addresses."""
    named = flow(*CHAIN, f"RET.REL.NODEC R4 0x{BASE:x}", ends=False)
    assert named.graph.known
    assert named.sources(1, 7) == {0, 2}


def test_a_pointer_chase_through_a_loop_depends_on_itself() -> None:
    assert flow(*CHAIN).address_depends_on_load(2)


def test_a_counter_in_a_loop_is_no_chase() -> None:
    rows = (
        "MOV R4, R2",
        "LDG.E R8, desc[UR4][R4.64]",
        "FADD R9, R8, R9",
        "IADD3 R4, R4, 0x80, RZ",
        "@P0 BRA @1",
        "EXIT",
    )
    assert not flow(*rows).address_depends_on_load(1)


def test_an_address_from_a_shuffle_depends_on_the_load_before_it() -> None:
    rows = (
        "LDG.E R4, desc[UR4][R2.64]",
        "SHFL.DOWN PT, R7, R4, 0x10, 0x1f",
        "IMAD.WIDE R8, R7, 0x4, R10",
        "LDG.E R6, desc[UR4][R8.64]",
        "EXIT",
    )
    code = flow(*rows)
    assert code.sources(2, 7) == {1}
    assert code.address_depends_on_load(3)


def test_a_matrix_load_is_the_producer_of_all_its_registers() -> None:
    rows = ("LDSM.16.M88.4 R4, [R2]", "FADD R9, R7, R8", "EXIT")
    assert flow(*rows).producers(1, ("shared",)) == [0]


def test_results_of_a_warpgroup_s_product_come_from_it() -> None:
    rows = (
        "LDG.E R60, desc[UR4][R2.64]",
        "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, UP0",
        "FADD R9, R60, R8",
        "EXIT",
    )
    assert flow(*rows).sources(2, 60) == {1}


def test_the_same_guard_hides_what_came_before() -> None:
    """`@!P0 MOV R2` feeds `@!P0 LDG R2, [R2]`: the load of the pass before does not, though the
    move is conditional."""
    rows = ("@!P0 MOV R2, R4", "@!P0 LDG.E R2, desc[UR4][R2.64]", "@P1 BRA @0", "EXIT")
    assert flow(*rows).sources(1, 2) == {0}
    assert not flow(*rows).address_depends_on_load(1)


def test_another_guard_does_not() -> None:
    rows = ("LDG.E R2, desc[UR4][R6.64]", "@P0 MOV R2, R4", "LDG.E R8, desc[UR4][R2.64]", "EXIT")
    assert flow(*rows).sources(2, 2) == {0, 1}


def test_without_targets_code_is_a_straight_line_that_repeats() -> None:
    rows = ("FADD R6, R4, R6", "LDG.E R4, desc[UR4][R2.64]", "@P0 BRA `(.L_1)")
    code = flow(*rows, ends=False)
    assert not code.graph.known
    assert code.producers(0, ("global",)) == [1]


def test_both_arms_of_a_branch_reach_their_join() -> None:
    rows = ("@P0 BRA @3", "MOV R5, R1", "BRA @4", "MOV R5, R2", "FADD R6, R5, R5", "EXIT")
    assert flow(*rows).sources(4, 5) == {1, 3}


def test_a_wait_for_copies_is_seen_at_the_instruction_behind_it() -> None:
    rows = (
        "LDGSTS.E.BYPASS.128 [R7], desc[UR8][R8.64]",
        "LDGDEPBAR",
        "DEPBAR.LE SB0, 0x0",
        "@P2 BRA @4",
        "EXIT",
    )
    assert flow(*rows).producers(3, ("copy", "global")) == [0]


def test_addresses_of_local_memory_are_dead_without_it() -> None:
    rows = (
        "IADD3 R5, R5, 0x1, RZ",
        "SHF.L.U32 R6, R5, 0x2, RZ",
        "LOP3.LUT R6, R6, 0x7c, RZ, 0xc0, !PT",
        "IADD3 R7, R1, R6, RZ",
        "LDL R8, [R7]",
        "FADD R9, R8, R9",
        "ISETP.NE.AND P0, PT, R10, 0x8, PT",
        "IADD3 R10, R10, 0x1, RZ",
        "@P0 BRA @0",
        "STG.E desc[UR4][R2.64], R9",
        "EXIT",
    )
    assert flow(*rows).only_for_addresses_of([4]) == {0, 1, 2, 3}


def test_what_ends_in_a_stored_value_is_no_address() -> None:
    rows = (
        "IMAD.WIDE R2, R0, 0x4, R4",
        "VIMNMX R8, R8, R9, !PT",
        "IADD3 R8, R8, 0x1, RZ",
        "LDG.E R9, desc[UR4][R2.64]",
        "ISETP.NE.AND P0, PT, R10, 0x8, PT",
        "@P0 BRA @1",
        "STG.E desc[UR4][R2.64], R8",
        "EXIT",
    )
    assert flow(*rows).into_stored_values() & {0, 1, 2, 4} == {1, 2}


def test_the_value_of_a_spill_is_not_part_of_its_address() -> None:
    rows = ("FMUL R4, R2, R3", "STL [R1], R4", "LDL R5, [R1]", "STG.E desc[UR4][R6.64], R5", "EXIT")
    assert flow(*rows).only_for_addresses_of([1, 2]) == frozenset()
