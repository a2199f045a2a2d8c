"""The headers of machine code in a report: a 64-bit ELF file, and whether its parts fit together.

The profiler's module disassembles whatever the headers lead it to: a changed bit silently gives
other instructions. Each rule here held in all 349 different cubins of 228 real reports (sm_70 to
sm_120, CUDA 10.2 to 13). Sections need not touch each other, names may come twice, and local
symbols need not come first. Fields: System V ABI, chapters 4 and 5; CUDA's were learnt from those
cubins.

Its line tables are checked too: one flipped bit makes the module loop forever or end the process. A
DWARF table (version 2 to 5) has units of a header and a program. These checks hold in every table
of every real report there is (docs/integrity.md)."""

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ncu_toolkit.base.core import files
from ncu_toolkit.kernel.report import messages
from ncu_toolkit.kernel.report.framing import Framing, Malformed, read_varint
from ncu_toolkit.kernel.report.messages import (
    ELF_HEADER,
    ELF_MAGIC,
    Section,
    SourceMessage,
    elf_sections,
)

HEADER: Final = struct.Struct("<HHIQQQIHHHHHH")
SEGMENT: Final = struct.Struct("<IIQQQQQQ")
SYMBOL: Final = struct.Struct("<IBBHQQ")
_HEADER_SIZE: Final = 64
_RELOCATABLE, _EXECUTABLE, _CUDA = 1, 2, 190
#: 64 bits, little-endian, version 1; then the ABI and its version, of CUDA up to 12 and of newer.
_IDENT: Final = b"\x02\x01\x01"
_OLD, _NEW = b"\x33\x07", b"\x41\x08"
_BITS, SYMBOLS, _STRINGS, _RELA, _REL = 1, 2, 3, 4, 9
_TEXT_FLAGS: Final = 6  # allocated, executable
RESERVED: Final = 0xFF00
LOAD, _TABLE = 1, 6
_FUNCTION: Final = 2
#: In `.nv.info`: an attribute with a size and a payload, and the one of a function's registers.
_SIZED, _REGISTERS = 4, 0x2F


class Symbol(NamedTuple):
    name: bytes
    info: int
    section: int
    size: int


class Contradiction(Exception):
    """Two parts of a cubin that do not fit together; internal."""


@dataclass(frozen=True)
class Cubin:
    """The headers' content; with `problem`, the first thing that does not fit, all else is empty."""

    problem: str = ""
    compute: int = 0
    """The architecture of the code: 90 for sm_90."""
    kernels: Mapping[bytes, int] = field(default_factory=dict)
    """Functions with code of their own, by mangled name: the registers that they need."""
    shared: Mapping[bytes, int] = field(default_factory=dict)
    """Bytes of static shared memory by function; functions without any are not in it."""


def read(elf: bytes) -> Cubin:
    """What a cubin's headers say, and whether they fit together. Never raises."""
    try:
        return _read(elf)
    except Contradiction as problem:
        return Cubin(str(problem))
    except (struct.error, IndexError):
        return Cubin("its headers lead past its end")


def _must(fits: bool, what: str) -> None:
    if not fits:
        raise Contradiction(what)


def _shown(name: bytes) -> str:
    return name.decode(errors="replace")[:60]


def _read(elf: bytes) -> Cubin:
    kind, machine, _, entry, segments, table, flags, *counts = HEADER.unpack_from(elf, 16)
    header, segment_size, segment_count, section_size, count, names = counts
    abi = elf[7:9]
    _must(
        elf[:4] == ELF_MAGIC and elf[4:7] == _IDENT and abi in (_OLD, _NEW) and not any(elf[9:16]),
        "its first bytes are not those of a cubin",
    )
    _must(
        kind in (_RELOCATABLE, _EXECUTABLE) and (machine, entry) == (_CUDA, 0),
        "its header is not that of a cubin",
    )
    _must(
        (header, section_size) == (_HEADER_SIZE, ELF_HEADER.size)
        and (segment_size == SEGMENT.size or not segment_count),
        "its header gives its tables other sizes than they have",
    )
    end = table + count * section_size
    left = len(elf) - end - segment_count * SEGMENT.size
    # nvcc 13.5 places tables at multiples of 4 and fills the file up to one of 8 with zeros
    last = not segment_count or (segments == end and left < 8 and not any(elf[len(elf) - left :]))
    _must(names < count and left >= 0 and last, "its tables are not where its header says")
    compute = flags & 0xFF if abi == _OLD else flags >> 8 & 0xFF
    found = elf_sections(elf)
    _check_sections(elf, found, names)
    _check_code(found)
    _check_segments(elf, found, segments, segment_count)
    symbols = [
        symbol
        for section in found
        if section.kind == SYMBOLS
        for symbol in _symbols(elf, section, found)
    ]
    return Cubin("", compute, _kernels(elf, found, symbols), _shared(found))


def _check_sections(elf: bytes, found: list[Section], names: int) -> None:
    _must(not any(found[0][1:-1]), "its first section is not empty")
    _must(found[names].kind == _STRINGS, "its section names are in no table of names")
    table = found[names]
    # cuBLAS's kernels for JAX keep to no alignment; where most sections do, one that does not is damage
    keep = [s.start % s.alignment == 0 for s in found if s.in_file and s.alignment > 1]
    strict = 2 * sum(keep) > len(keep)
    for section in found[1:]:
        (offset,) = struct.unpack_from("<I", elf, section.header)
        what = f"its section {_shown(section.name)}"
        _must(
            0 < offset < table.size and elf[table.start + offset - 1] == 0 and section.name != b"",
            "a section has no name of its table",
        )
        _must(
            section.link < len(found)
            and section.address == 0
            and section.alignment & (section.alignment - 1) == 0
            and not (section.entry and section.size % section.entry),
            f"{what} has a header that makes no sense",
        )
        if section.in_file:
            apart = strict and section.alignment and section.start % section.alignment
            inside = section.start + section.size <= len(elf)
            _must(inside and not apart, f"{what} is not where its header says")
        if section.name.startswith(b".text"):
            code = section.kind == _BITS and section.flags & _TEXT_FLAGS == _TEXT_FLAGS
            _must(code, f"{what} is not code")
        elif section.kind in (_RELA, _REL):
            name = (b".rela" if section.kind == _RELA else b".rel") + found[section.info].name
            _must(section.name == name, f"{what} belongs to another section than its name says")


def _check_code(found: list[Section]) -> None:
    """Check that no section shares bytes with code. Others may overlap, as debug sections do."""
    end = code_end = 0  # of all sections before, and of those with code
    with_bytes = (section for section in found[1:] if section.in_file and section.size > 0)
    for section in sorted(with_bytes, key=lambda s: s.start):
        code = section.name.startswith(b".text")
        free = section.start >= (end if code else code_end)
        _must(free, f"its section {_shown(section.name)} is not where its header says")
        end = max(end, section.start + section.size)
        code_end = end if code else code_end


def _check_segments(elf: bytes, found: list[Section], start: int, count: int) -> None:
    starts = {section.start for section in found[1:] if section.in_file} | {start}
    for index in range(count):
        kind, _, at, virtual, physical, size, memory, alignment = SEGMENT.unpack_from(
            elf, start + index * SEGMENT.size
        )
        _must(
            kind in (LOAD, _TABLE)
            and size <= memory
            and at + size <= len(elf)
            and alignment & (alignment - 1) == 0
            and virtual in (0, at)
            and physical in (0, at)
            and (kind != _TABLE or (at, size) == (start, count * SEGMENT.size))
            and (kind != LOAD or not size or at in starts),
            "a program header in it makes no sense",
        )


def _symbols(elf: bytes, table: Section, found: list[Section]) -> Iterator[Symbol]:
    names = found[table.link]
    _must(
        table.entry == SYMBOL.size and names.kind == _STRINGS, "its table of symbols has no names"
    )
    for at in range(table.start, table.start + table.size, SYMBOL.size):
        name, info, _, section, _, size = SYMBOL.unpack_from(elf, at)
        _must(
            name < names.size
            and (name == 0 or elf[names.start + name - 1] == 0)
            and (section < len(found) or section >= RESERVED),
            "a symbol in it leads nowhere",
        )
        at_name = names.start + name
        yield Symbol(elf[at_name : elf.find(b"\0", at_name)], info, section, size)


def _kernels(elf: bytes, found: list[Section], symbols: list[Symbol]) -> dict[bytes, int]:
    needed = _registers(elf, found, symbols)
    kernels = {}
    for symbol in symbols:
        if symbol.info & 0xF != _FUNCTION or not 0 < symbol.section < len(found):
            continue
        section = found[symbol.section]
        if section.name == b".text." + symbol.name:
            _must(symbol.size == section.size, f"its code of {_shown(symbol.name)} has two sizes")
            kernels[symbol.name] = needed.get(symbol.name, 0)
    for index, section in enumerate(found):
        if section.name.startswith(b".text."):
            own = section.info & 0xFFFFFF
            its_own = not own or (own < len(symbols) and symbols[own].section == index)
            _must(its_own, f"its section {_shown(section.name)} names another's symbol")
    return kernels


def _registers(elf: bytes, found: list[Section], symbols: list[Symbol]) -> dict[bytes, int]:
    """Registers by function, from the attributes in `.nv.info`."""
    registers = {}
    wrong = "its table of attributes makes no sense"
    for section in found:
        if not section.name.startswith(b".nv.info"):
            continue
        at, end = section.start, section.start + section.size
        while at < end:
            form, attribute, size = struct.unpack_from("<BBH", elf, at)
            _must(1 <= form <= _SIZED, wrong)
            at += 4
            if form == _SIZED:
                if attribute == _REGISTERS:
                    symbol, number = struct.unpack_from("<II", elf, at)
                    _must(symbol < len(symbols), wrong)
                    registers[symbols[symbol].name] = number
                at += size
        _must(at == end, wrong)
    return registers


def _shared(found: list[Section]) -> dict[bytes, int]:
    prefix = b".nv.shared."
    return {
        section.name.removeprefix(prefix): section.size
        for section in found
        if section.name.startswith(prefix)
    }


_COMPRESSED: Final = 0x800
_PACKED_HEADER: Final = struct.Struct("<IIQQ")
_ZLIB, _ZSTD = 1, 2
_OLD_NAME, _OLD_MAGIC = b".zdebug_", b"ZLIB"


class PackedSection(NamedTuple):
    """A compressed section of debug information: its header in the code, its place, what is in front of
    the compressed bytes, their format, and the content; None where it cannot be unpacked."""

    section: Section
    head: bytes
    format: int
    content: bytes | None


def packed(elf: bytes) -> Iterator[PackedSection]:
    """The compressed sections of some machine code (System V ABI, "Section Compression"; GNU's older
    `.zdebug_*`)."""
    for section in elf_sections(elf) if elf.startswith(ELF_MAGIC) else ():
        data = elf[section.start : section.start + section.size]
        if section.in_file and section.flags & _COMPRESSED and len(data) >= _PACKED_HEADER.size:
            kind, _, size, _ = _PACKED_HEADER.unpack_from(data)
            head = data[: _PACKED_HEADER.size]
        elif section.name.startswith(_OLD_NAME) and data.startswith(_OLD_MAGIC):
            kind, head = _ZLIB, data[:12]
            size = int.from_bytes(head[4:], "big")
        else:
            continue
        yield PackedSection(section, head, kind, _unpacked(kind, data[len(head) :], size))


def _unpacked(kind: int, data: bytes, size: int) -> bytes | None:
    if size > files.limit():
        return None
    try:
        if kind == _ZLIB:
            content = zlib.decompressobj().decompress(data, size)
        elif kind == _ZSTD:
            content = files.zstd().ZstdDecompressor().decompress(data, size)
        else:
            return None
    except (zlib.error, files.zstd().ZstdError, EOFError):
        return None
    return content if len(content) == size else None


def repacked(found: PackedSection, content: bytes) -> bytes:
    """The section's bytes with other content of the same length; without its content where that
    takes more room than it had."""
    pack = zlib.compress if found.format == _ZLIB else files.zstd().compress
    for level in (6, 9) if found.format == _ZLIB else (3, 19):
        made = found.head + bytes(pack(content, level))
        if len(made) <= found.section.size:
            return made
    return b""


TABLES: Final = (b".debug_line", b".nv_debug_line_sass")
_VERSIONS: Final = range(2, 6)
#: Farthest address and line that a program may reach: code of 256 MiB, and a file of 16 million lines.
_FARTHEST: Final = 1 << 28
_LAST_LINE: Final = 1 << 24
#: A table of more bytes gets its headers checked alone: a program takes a second for each 2 MB.
_LONGEST: Final = 8 << 20
#: Most bytes in front of the machine code in its message.
_BEFORE_CODE: Final = 1 << 20


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
        for section in source.sections:
            at, end = section.start, section.start + section.size
            table = source.code[at:end]
            if section.name not in TABLES or table in sound:
                continue
            if why := "it runs past the end" if end > len(source.code) else _wrong(table):
                room = len(source.code) + _BEFORE_CODE
                inside = frame.data[source.offset : source.offset + room]
                start = source.offset + inside.find(source.code)
                found.append(
                    BrokenTable(start + at, start + section.header + messages.SIZE_AT, why)
                )
            else:
                sound.add(table)
    return tuple(found)


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
