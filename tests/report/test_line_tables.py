"""Damaged line tables: refused before NVIDIA's module loops on them or ends the process."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import recorded

from ncu_toolkit.base.core.errors import EXIT_INPUT, InputProblem
from ncu_toolkit.kernel.report import cubin, framing, messages, reader

REPORT = recorded.ROOT / "tests" / "origins" / "reports" / "source-imported.ncu-rep.xz"


@pytest.fixture(scope="module")
def whole() -> bytes:
    return framing.read_bytes(REPORT)


def tables(data: bytes) -> list[tuple[int, int]]:
    """Offset and size of each line table."""
    found = []
    for block in framing.parse(data).blocks:
        for offset, length in block.sources:
            message = data[offset : offset + length]
            code = dict(framing.fields(message)).get(messages.SOURCE_CODE)
            if not isinstance(code, bytes):
                continue  # the driver's own, as of a memset
            start = offset + message.index(code)
            found += [
                (start + each.start, each.size)
                for each in messages.elf_sections(code)
                if each.name in cubin.TABLES
            ]
    return found


def flipped(data: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


@pytest.mark.parametrize("path", sorted(REPORT.parent.glob("*.xz")), ids=lambda path: path.name)
def test_every_table_of_real_reports_makes_sense(path: Path) -> None:
    data = framing.read_bytes(path)
    frame = framing.parse(data)
    assert cubin.broken(frame, messages.sources(frame)) == ()


def test_a_flipped_bit_that_ends_the_module_is_named(tmp_path: Path, whole: bytes) -> None:
    """The 8th byte of the table is of its header's length; the module aborts on this one."""
    at, _ = tables(whole)[0]
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(flipped(whole, at + 8, 3))
    with pytest.raises(InputProblem, match="in a line table: a header runs past the end") as caught:
        reader.load_report(path)
    assert caught.value.exit_code == EXIT_INPUT
    report = reader.load_report(path, allow_partial=True)
    assert f"at offset {at}, in a line table" in report.damage
    assert len(report.profiles) == report.declared_launches
    rows = [row for profile in report.profiles for row in profile.instructions]
    assert len(rows) > 50
    assert all(row.sass for row in rows), "the code itself is read"


@pytest.mark.parametrize(
    ("what", "place", "value"),
    [
        ("a unit runs past the end", 0, b"\xff\xff\x00\x00"),
        ("version 9", 4, b"\x09\x00"),
        ("a header with a step of 0", 13, b"\x00"),
        ("a header with a step of 0", 10, b"\x00"),
    ],
)
def test_headers_that_make_no_sense(whole: bytes, what: str, place: int, value: bytes) -> None:
    at, size = tables(whole)[0]
    table = bytearray(whole[at : at + size])
    assert cubin._wrong(bytes(table)) == ""
    table[place : place + len(value)] = value
    assert cubin._wrong(bytes(table)) == what


def test_a_program_that_goes_too_far_or_never_ends(whole: bytes) -> None:
    at, size = tables(whole)[0]
    table = whole[at : at + size]
    (header,) = struct.unpack_from("<I", table, 6)
    head = table[4 : 10 + header]
    for program, fine in (
        (b"\x02\x10\x00\x01\x01", True),
        (b"\x02" + b"\xff" * 6 + b"\x01", False),
        (b"\x03" + b"\xff" * 5 + b"\x1f", False),
        (b"\x00\x00" * 9, False),
        (b"\x02\xff", False),
    ):
        unit = head + program
        found = cubin._wrong(struct.pack("<I", len(unit)) + unit)
        assert (found == "") == fine, program
