"""Addresses from machine code: what is computed of a few lines, and that it is what was counted."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from benchmarks import parsed
from benchmarks.addresses import compare
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.kernel.sass import addresses
from ncu_toolkit.kernel.sass.addresses import (
    Access,
    accesses,
    sectors_of,
    wavefronts_of,
)
from ncu_toolkit.kernel.sass.branches import targets_of
from ncu_toolkit.kernel.sass.opcodes import CodeRow
from tests.recorded import FOLDERS, modules, run_of

LANES = np.arange(32)
TID = "S2R R0, SR_TID.X"
POINTER = "LDC.64 R2, c[0x0][0x210]"


def code(*lines: str) -> tuple[CodeRow, ...]:
    """A kernel of some lines; `@N` stands for the address of the N-th."""
    rows = []
    for n, line in enumerate(lines):
        sass = re.sub(r"(?<= )@(\d+)", lambda found: hex(16 * int(found[1])), line)
        opcode = next(word for word in sass.split() if not word.startswith("@"))
        rows.append(CodeRow(16 * n, opcode, sass))
    return tuple(rows)


def last(*lines: str, block: tuple[int, int, int] = (256, 1, 1)) -> Access:
    """What the last access of some lines is found to be."""
    rows = code(*lines, "EXIT")
    found = accesses(rows, targets_of(rows) or {}, (9, 0), block, (64, 1, 1))
    return found[max(found)]


@pytest.mark.parametrize(
    ("stride", "size", "passes"),
    [
        (4, 4, 1), (8, 4, 2), (128, 4, 32), (132, 4, 1), (0, 4, 1), (8, 8, 2), (16, 16, 4), (128, 16, 32), (144, 16, 4),
        # lanes that read the same 16 bytes are done 16 at a time
        (0, 16, 2), (0, 8, 1),
    ],
)  # fmt: skip
def test_passes_through_the_banks(stride: int, size: int, passes: int) -> None:
    assert wavefronts_of(LANES * stride, size, LANES) == passes


@pytest.mark.parametrize(
    ("stride", "size", "sectors"), [(4, 4, 4), (16, 16, 16), (0, 4, 1), (64, 4, 32), (12, 4, 12)]
)
def test_sectors(stride: int, size: int, sectors: int) -> None:
    assert sectors_of(1 << 20 | LANES * stride, size) == sectors


def test_a_row_and_a_column() -> None:
    row = last(TID, POINTER, "IMAD.WIDE R4, R0, 0x4, R2", "LDG.E R6, desc[UR4][R4.64]")
    assert (row.sectors, row.least_sectors, row.stopped) == (4, 4, "")
    scaled = (TID, POINTER, "LDC R1, c[0x0][0x218]", "IMAD R5, R0, R1, RZ")
    column = last(*scaled, "IMAD.WIDE R4, R5, 0x4, R2", "LDG.E R6, desc[UR4][R4.64]")
    assert column.sectors == 32


def test_a_stride_in_bytes_may_be_that_of_neighbours() -> None:
    scaled = (TID, POINTER, "LDC R1, c[0x0][0x218]", "IMAD.WIDE R4, R0, R1, R2")
    assert last(*scaled, "LDG.E R6, desc[UR4][R4.64]").stopped == "c[0x0][0x218]"


def test_data_that_decides_is_named() -> None:
    load = (TID, POINTER, "IMAD.WIDE R4, R0, 0x4, R2", "LDG.E R6, desc[UR4][R4.64]")
    gather = last(*load, "IMAD.WIDE R8, R6, 0x4, R2", "LDG.E R9, desc[UR4][R8.64]")
    assert gather.sectors is None
    assert gather.stopped == "R6 (LDG.E)"


def test_a_swizzle_is_followed_bit_by_bit() -> None:
    tile = (TID, "LOP3.LUT R1, R0, 0x1f, RZ, 0xc0, !PT", "IMAD.SHL.U32 R2, R1, 0x80, RZ")
    assert last(*tile, "LDS R3, [R2]").wavefronts == 32
    swizzled = (*tile, "LEA R4, R1, R2, 0x2", "LDS R3, [R4]")
    assert last(*swizzled).wavefronts == 1


@pytest.mark.parametrize("places", ["[R6][R4.64]", "[R6], desc[UR4][R4.64]"])
def test_both_ends_of_a_copy(places: str) -> None:
    shared = (TID, POINTER, "IMAD.SHL.U32 R6, R0, 0x10, RZ", "IMAD.WIDE R4, R0, 0x10, R2")
    found = last(*shared, f"LDGSTS.E.BYPASS.128 {places}")
    assert (found.sectors, found.wavefronts) == (16, 4)


def test_operands_of_an_unknown_form_are_not_followed() -> None:
    found = last(TID, "IMAD R1, R0", "LDS R2, [R1]")
    assert found.stopped == "IMAD R1, R0"


def test_lanes_of_a_reduction_drop_out() -> None:
    loop = (TID, "MOV R1, 0x10", "ISETP.GE.AND P0, PT, R0, R1, PT", "IMAD.SHL.U32 R2, R0, 0x8, RZ")
    test = ("@!P0 LDS R3, [R2]", "SHF.R.U32.HI R1, RZ, 0x1, R1", "ISETP.NE.AND P1, PT, R1, RZ, PT")
    found = last(*loop, *test, "@P1 BRA @2", block=(32, 1, 1))
    assert found.active == 1
    assert found.wavefronts == 1  # 16 lanes, two words apart


@pytest.mark.parametrize(
    "ladder", ["h200-transpose", pytest.param("h200-pathology", marks=pytest.mark.slow)]
)
def test_recorded_counters_agree(ladder: str) -> None:
    """benchmarks/addresses.py has the table of all recordings."""
    profiles = run_of(store.recordings_root() / ladder).profiles
    found = Counter(column for each in profiles for _, column in compare(each, Counter()))
    counted, judged, equal = (found[column] for column in ("instructions", "judged", "equal"))
    assert judged >= 0.8 * counted
    assert equal >= 0.95 * judged


SMALL = next(folder for folder in FOLDERS if "transpose" in folder.name)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is computed from now on, with nothing known."""
    done: list[object] = []
    compute = addresses._computed

    def noted(*asked: object) -> object:
        done.append(asked)
        return compute(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(addresses, "KEPT", {})
    monkeypatch.setattr(addresses, "_computed", noted)
    addresses.answer.cache_clear()
    return done


def test_what_a_recording_keeps_is_not_computed(computed: list[object]) -> None:
    launches = store.load_parsed(SMALL, store.load_manifest(SMALL)) or ()
    assert parsed.answers(launches) == parsed.kept_answers(SMALL)[1]
    assert launches
    assert not computed
    assert last(TID, "LEA R2, R0, RZ, 0x2", "LDS R4, [R2]").wavefronts == 1  # other code
    assert computed


def test_what_other_code_answered_is_computed(
    computed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "source", lambda: "as it was")
    launches = store.load_parsed(SMALL, store.load_manifest(SMALL)) or ()
    found = parsed.answers(launches)
    assert found == parsed.kept_answers(SMALL)[1]
    assert len(computed) == len(found) > 0


def test_answers_are_kept_by_all_code_that_they_follow_from() -> None:
    """What else is imported has no part in an answer: values of a report, and what is remembered."""
    found = modules("kernel.sass.addresses")
    assert {path.stem for path in found if path.parent.name == "sass"} - {"__init__"} == {
        *addresses.MODULES
    }
