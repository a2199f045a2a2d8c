"""The line tables in a report's machine code, checked before NVIDIA's module reads them: one
flipped bit makes it loop forever or end the process.

A DWARF table (version 2 to 5) has units of a header and a program. The checks hold in every table
of every real report there is (docs/integrity.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from ncu_toolkit.report.framing import Framing, Malformed, read_varint
from ncu_toolkit.report.messages import SourceMessage
from ncu_toolkit.sass import elf

TABLES: Final = (b".debug_line", b".nv_debug_line_sass")
_VERSIONS: Final = range(2, 6)
#: Farthest address and line that a program may reach: code of 256 MiB, and a file of 16 million lines.
_FARTHEST: Final = 1 << 28
_LAST_LINE: Final = 1 << 24
#: A table of more bytes gets its headers checked alone: a program takes a second for each 2 MB.
_LONGEST: Final = 8 << 20


class BrokenTable(NamedTuple):
    """A line table that makes no sense: its offset in the file, that of its size, and why."""

    offset: int
    size_at: int
    why: str


def broken(frame: Framing, sources: Iterable[SourceMessage]) -> tuple[BrokenTable, ...]:
    """The line tables that make no sense."""
    found = []
    sound: set[bytes] = set()
    for source in sources:
        start = frame.data.find(source.code, source.offset)
        for section in source.sections:
            at, end = section.start, section.start + section.size
            table = source.code[at:end]
            if section.name not in TABLES or table in sound:
                continue
            if why := "it runs past the end" if end > len(source.code) else _wrong(table):
                found.append(BrokenTable(start + at, start + section.header + elf.SIZE_AT, why))
            else:
                sound.add(table)
    return tuple(found)


def emptied(data: bytes, tables: Iterable[BrokenTable]) -> bytes:
    """The report with some tables declared empty, as long as before: code without source lines."""
    changed = bytearray(data)
    for table in tables:
        changed[table.size_at : table.size_at + 8] = bytes(8)
    return bytes(changed)


def _wrong(table: bytes) -> str:
    """Why a line table makes no sense; empty where it does."""
    at = 0
    try:
        while at < len(table):
            at = _unit(table, at)
    except (Malformed, struct.error, IndexError) as error:
        return str(error) if isinstance(error, Malformed) else "it is cut off"
    return ""


def _unit(table: bytes, at: int) -> int:
    """Check one unit; returns its end."""
    (length, version) = struct.unpack_from("<IH", table, at)
    end = at + 4 + length
    if end > len(table):
        raise Malformed("a unit runs past the end")
    if version not in _VERSIONS:
        raise Malformed(f"version {version}")
    at += 6 if version < 5 else 8
    (header,) = struct.unpack_from("<I", table, at)
    program = at + 4 + header
    if program > end:
        raise Malformed("a header runs past the end")
    at += 4
    step = table[at]
    at += 1 if version < 4 else 2  # then operations per instruction
    base, lines, first = struct.unpack_from("<bBB", table, at + 1)
    if not lines or not first or not step:
        raise Malformed("a header with a step of 0")
    operands = table[at + 4 : at + 3 + first]
    if at + 3 + first > program:
        raise Malformed("a header without its operand counts")
    if len(table) <= _LONGEST:
        _run(table[program:end], step, base, lines, first, operands)
    return int(end)


def _run(program: bytes, step: int, base: int, lines: int, first: int, operands: bytes) -> None:
    """Run a line program. Raises Malformed where it leaves its code or its file."""
    at, end, far, line = 0, len(program), 0, 1
    while at < end:
        op = program[at]
        at += 1
        if op >= first:
            far += (op - first) // lines * step
            line += base + (op - first) % lines
        elif op == 0:
            size, at = read_varint(program, at)
            if not size or at + size > end:
                raise Malformed("an operation runs past the end")
            if program[at] in (1, 2):  # a sequence ends, or an address is set
                far = 0
                line = 1 if program[at] == 1 else line
            at += size
        elif op == 2:
            value, at = read_varint(program, at)
            far += value * step
        elif op == 3:
            value, after = read_varint(program, at)
            bits = 7 * (after - at)
            line += value - (1 << bits) if value >> (bits - 1) else value
            at = after
        elif op == 8:
            far += (255 - first) // lines * step
        elif op == 9:
            far += int.from_bytes(program[at : at + 2], "little")
            at += 2
        else:
            for _ in range(operands[op - 1]):
                _, at = read_varint(program, at)
        if far > _FARTHEST or not -1 <= line <= _LAST_LINE:
            raise Malformed("it leaves the code or the file that it is of")
    if at != end:
        raise Malformed("an operation runs past the end")
