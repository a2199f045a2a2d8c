"""The sections of machine code, a 64-bit ELF file (System V ABI, chapter 4)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

MAGIC: Final = b"\x7fELF"
HEADER: Final = struct.Struct("<IIQQQQIIQQ")
"""A section's header in the file: the offset of the name, then the fields of `Section`."""
SIZE_AT: Final = 32
"""Place of the section's size in its header."""
_NO_BYTES: Final = 8  # the type of a section that takes no room in the file
_TABLE_AT, _COUNTS_AT = 0x28, 0x3A
#: Bytes in which a section's name ends: mangled names of templates have thousands.
_LONGEST_NAME: Final = 1 << 14


class Section(NamedTuple):
    """A section as its header, at `header`, has it: `start` and `size` in the file (`in_file`) may
    lie outside of it."""

    name: bytes
    kind: int
    flags: int
    address: int
    start: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int
    header: int

    @property
    def in_file(self) -> bool:
        return self.kind != _NO_BYTES


def sections(elf: bytes) -> list[Section]:
    """The sections in the order of their headers; none where the headers cannot be followed."""
    found = []
    try:
        (table,) = struct.unpack_from("<Q", elf, _TABLE_AT)
        size, count, names = struct.unpack_from("<HHH", elf, _COUNTS_AT)
        texts = HEADER.unpack_from(elf, table + names * size)[4]
        for at in range(table, table + count * size, size):
            name, *fields = HEADER.unpack_from(elf, at)
            start = texts + name
            end = elf.index(b"\0", start, start + _LONGEST_NAME)
            found.append(Section._make((elf[start:end], *fields, at)))
    except (struct.error, ValueError, OverflowError):
        return []
    return found
