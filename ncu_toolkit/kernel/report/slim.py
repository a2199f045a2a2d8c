"""A report without the machine code that no launch of it ran: a library's module holds hundreds of
kernels in megabytes, and ncu keeps all of it. Nothing else changes; what cannot be followed stays."""

import struct
from collections.abc import Container, Iterator
from typing import Final

from ncu_toolkit.kernel.report import cubin, framing, messages
from ncu_toolkit.kernel.report.cubin import HEADER, LOAD, RESERVED, SEGMENT, SYMBOL, SYMBOLS

#: Bytes of a module from which on it is looked at.
_LARGE: Final = 1 << 18
#: What marks a kernel among the functions, in a symbol's third field.
_ENTRY: Final = 0x10
_NO_BYTES: Final = 8
_RELOCATIONS: Final = (4, 9)
#: Fields of a block header.
_PAYLOAD: Final = 5


def slim(data: bytes) -> bytes:
    """The report with modules that hold the launched kernels and no others; as it is where its
    framing or its modules make no sense."""
    frame = framing.parse(data)
    launched = messages.functions(frame, messages.RESULT_MANGLED)
    if frame.problem or not launched or not any(block.sources for block in frame.blocks):
        return data
    starts = [block.offset for block in frame.blocks]
    parts = [data[: starts[0]]]
    for block, end in zip(frame.blocks, [*starts[1:], len(data)], strict=True):
        rest = sum(block.sources[-1]) if block.sources else block.offset + 4 + len(block.header)
        made = [_source(data[at : at + length], launched) for at, length in block.sources]
        payload = [len(each).to_bytes(4, "little") + each for each in made]
        payload.append(data[rest:end])
        header = framing.replaced(block.header, _PAYLOAD, sum(map(len, payload)))
        parts += [len(header).to_bytes(4, "little"), header, *payload]
    return b"".join(parts)


def _source(message: bytes, launched: Container[bytes]) -> bytes:
    for number, value in framing.fields(message):
        if number == messages.SOURCE_CODE and isinstance(value, bytes) and len(value) > _LARGE:
            return framing.replaced(message, number, _module(value, launched))
    return message


def _module(elf: bytes, launched: Container[bytes]) -> bytes:
    """A module without the sections of other kernels."""
    if cubin.read(elf).problem:
        return elf
    try:
        made = _rebuilt(elf, launched)
    except (struct.error, ValueError, IndexError, OverflowError):
        return elf
    return elf if cubin.read(made).problem else made


def _rebuilt(elf: bytes, launched: Container[bytes]) -> bytes:
    found = messages.elf_sections(elf)
    others = {name for name in _kernels(elf, found) if name not in launched}
    kept = [at for at, section in enumerate(found) if not _is_of(section.name, others)]
    place = {old: new for new, old in enumerate(kept)}
    made = bytearray(elf[:64])
    moved: dict[int, int] = {}
    before, was, until = 64, 64, 64  # where the last bytes went, where they were, where they end
    for at in sorted(kept[1:], key=lambda at: found[at].start):
        section = found[at]
        if section.kind == _NO_BYTES:
            made += bytes(-len(made) % max(section.alignment, 1))
            moved[at] = len(made)
            continue
        if section.start < until:  # tables of debuggers may share bytes
            moved[at] = before + section.start - was
            made += elf[until : section.start + section.size]
        else:
            made += bytes(-len(made) % max(section.alignment, 1))
            before, was, moved[at] = len(made), section.start, len(made)
            made += elf[section.start : section.start + section.size]
        until = max(until, section.start + section.size)
    made += bytes(-len(made) % 8)
    table = len(made)
    for at in kept:
        values = [*messages.ELF_HEADER.unpack_from(elf, found[at].header)]
        if at:
            values[4] = moved[at]
        values[6] = place.get(values[6], 0)
        if values[1] in _RELOCATIONS:
            values[7] = place[values[7]]
        made += messages.ELF_HEADER.pack(*values)
        if values[1] == SYMBOLS:
            for symbol in range(values[4], values[4] + values[5], SYMBOL.size):
                name, info, other, index, value, size = SYMBOL.unpack_from(made, symbol)
                if 0 < index < RESERVED:
                    index = place.get(index, 0)
                    size = size if index else 0
                SYMBOL.pack_into(made, symbol, name, info, other, index, value, size)
    counts = [*HEADER.unpack_from(elf, 16)]
    segments, count = len(made), counts[9]
    for at in range(counts[4], counts[4] + count * SEGMENT.size, SEGMENT.size):
        made += _segment(SEGMENT.unpack_from(elf, at), found, moved, segments, count)
    counts[4], counts[5], counts[11], counts[12] = (
        segments if count else 0,
        table,
        len(kept),
        place[counts[12]],
    )
    HEADER.pack_into(made, 16, *counts)
    return bytes(made)


def _segment(
    old: tuple[int, ...],
    found: list[messages.Section],
    moved: dict[int, int],
    segments: int,
    count: int,
) -> bytes:
    kind, flags, start, virtual, physical, size, memory, alignment = old
    if kind != LOAD:
        at, size, memory = segments, count * SEGMENT.size, count * SEGMENT.size
    else:
        inside = [
            each
            for each in moved
            if found[each].kind != _NO_BYTES and start <= found[each].start < start + size
        ]
        more = memory - size
        at = min((moved[each] for each in inside), default=moved[min(moved)])
        size = max((moved[each] + found[each].size for each in inside), default=at) - at
        memory = size + more
    return SEGMENT.pack(
        kind, flags, at, at if virtual else 0, at if physical else 0, size, memory, alignment
    )


def _kernels(elf: bytes, found: list[messages.Section]) -> Iterator[bytes]:
    for table in found:
        if table.kind != SYMBOLS:
            continue
        names = found[table.link].start
        for at in range(table.start, table.start + table.size, SYMBOL.size):
            name, _, other, section, _, _ = SYMBOL.unpack_from(elf, at)
            if other & _ENTRY and 0 < section < len(found):
                yield elf[names + name : elf.index(b"\0", names + name)]


def _is_of(section: bytes, kernels: Container[bytes]) -> bool:
    """Whether a section belongs to one of some kernels: `.text.NAME`, `.nv.info.NAME`."""
    return any(
        section[at:] in kernels for at in range(2, len(section) + 1) if section[at - 1] == ord(".")
    )
