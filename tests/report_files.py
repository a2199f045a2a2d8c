"""Report files made from the shipped recording: its first launches, and as many launches as wanted,
to see how things grow."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import recorded

from ncu_toolkit.kernel.analysis import analyze
from ncu_toolkit.kernel.report import framing, messages

# fields of a block's header, of a result, and of a metric in it
_RESULTS, _PAYLOAD, _CALL = 2, 5, 2
_NAMES = (5, 6, 7)


@cache
def first_launches(count: int) -> bytes:
    """The recording up to and including its first `count` launches: a whole report."""
    return recorded.first_launches(count)


def read(path: str, options: analyze.Options, jobs: int = 1) -> analyze.FileResult:
    """Read and diagnose one file in this process."""
    return analyze.unpacked(analyze.read_packed(path, options, jobs))


def varint(value: int, width: int = 1) -> bytes:
    """A protobuf varint, padded to at least `width` bytes so that a number can change without the
    message changing its length."""
    out = bytearray()
    while value > 0x7F or len(out) < width - 1:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def raw_fields(message: bytes) -> Iterator[tuple[int, bytes, int | bytes]]:
    """Top-level fields as (number, the field's own bytes, its value)."""
    at = 0
    while at < len(message):
        start = at
        tag, at = framing.read_varint(message, at)
        value: int | bytes
        if tag & 7 == 0:
            value, at = framing.read_varint(message, at)
        elif tag & 7 == 2:
            length, at = framing.read_varint(message, at)
            value, at = message[at : at + length], at + length
        else:
            length = 8 if tag & 7 == 1 else 4
            value, at = message[at : at + length], at + length
        yield tag >> 3, message[start:at], value


def without(message: bytes, drop: Callable[[int, int | bytes], bool]) -> bytes:
    """The message without the fields that `drop` names."""
    return b"".join(raw for number, raw, value in raw_fields(message) if not drop(number, value))


def nameless_launch() -> bytes:
    """A report of one launch that NVIDIA's module reads as empty, for a byte in the middle of its
    message is changed."""
    data = bytearray(first_launches(1))
    block = next(block for block in framing.parse(bytes(data)).blocks if block.results)
    ((offset, length),) = block.results
    data[offset + length // 2] ^= 0xFF
    return bytes(data)


def many_launches(count: int, kinds: int = 1, *, alike: bool = False) -> bytes:
    """A whole report of `count` launches: the recording's first one without its per-instruction
    tables, again and again under new call numbers.

    They have the names of `kinds` kernels in turn. Figures are the same for all, but for one of each
    kernel unless `alike`: a report of so many launches of a real program is nowhere to be had, and
    how long reading and showing take depends on how many there are, not on what they say."""
    whole = first_launches(1)
    frame = framing.parse(whole)
    block = next(block for block in frame.blocks if block.results)
    (offset, length) = block.results[0]
    message = whole[offset : offset + length]
    light = without(
        message,
        lambda number, value: (
            number == messages.RESULT_METRIC and isinstance(value, bytes) and len(value) > 200
        ),
    )
    light = without(light, lambda number, value: number == _CALL)
    plain_header = without(block.header, lambda number, value: number in (4, _PAYLOAD))
    first_header = without(block.header, lambda number, value: number == _PAYLOAD)
    pieces = [whole[: block.offset]]
    own = [light if alike else _figure(frame, light, kind) for kind in range(kinds)]
    named = [_renamed(own[kind], b"_%d" % kind if kind else b"") for kind in range(kinds)]
    for index in range(count):
        result = named[index % kinds] + varint(_CALL << 3) + varint(1000 + index, width=4)
        payload = struct.pack("<I", len(result)) + result
        header = (
            (first_header if index == 0 else plain_header)
            + varint(_PAYLOAD << 3)
            + varint(len(payload))
        )
        pieces += [struct.pack("<I", len(header)), header, payload]
    made = b"".join([*pieces, whole[offset + length :]])  # what ncu writes after the first launch
    # the one source's table of functions knows the first name only; without a table every launch
    # fits it
    return made if kinds == 1 else _with_sources(made, _without_functions)


def _figure(frame: framing.Framing, message: bytes, value: int) -> bytes:
    """A launch's message with another value of a counter that no verdict rests on."""
    at = messages.metric_names(frame).index(b"lts__t_sectors_op_red.sum")
    head = varint(1 << 3) + varint(at)
    new = _field(messages.RESULT_METRIC, head + _field(_VALUE, struct.pack("<cd", b"\x19", value)))

    def wanted(number: int, metric: int | bytes) -> bool:
        return (
            number == messages.RESULT_METRIC
            and isinstance(metric, bytes)
            and metric.startswith(head)
        )

    return without(message, wanted) + new if value else message


def _renamed(message: bytes, suffix: bytes) -> bytes:
    """A launch's message with `suffix` after each of its names."""
    parts = []
    for number, raw, value in raw_fields(message):
        new = (
            value + suffix
            if number in _NAMES and isinstance(value, bytes) and value and suffix
            else None
        )
        parts.append(raw if new is None else _field(number, new))
    return b"".join(parts)


def _without_functions(message: bytes) -> bytes:
    return without(message, lambda number, value: number == messages.SOURCE_FUNCTIONS)


def _with_sources(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The report with each source message changed; the payload's length in the header follows."""
    pieces, at = [], 0
    for block in framing.parse(data).blocks:
        if not block.sources:
            continue
        pieces.append(data[at : block.offset])
        payload = b""
        for offset, length in block.sources:
            message = change(data[offset : offset + length])
            payload += struct.pack("<I", len(message)) + message
        for offset, length in block.results:
            payload += struct.pack("<I", length) + data[offset : offset + length]
        header = (
            without(block.header, lambda number, value: number == _PAYLOAD)
            + varint(_PAYLOAD << 3)
            + varint(len(payload))
        )
        pieces += [struct.pack("<I", len(header)), header, payload]
        last = (block.results or block.sources)[-1]
        at = last[0] + last[1]
    return b"".join([*pieces, data[at:]])


def long_kernel(instructions: int) -> bytes:
    """A whole report of one launch with as many instructions as wanted: the recording's first, its
    code and its counts by instruction repeated."""
    whole = first_launches(1)
    (source,) = messages.sources(framing.parse(whole))
    (base,) = source.functions.values()

    def longer(message: bytes) -> bytes:
        parts = []
        for number, raw, value in raw_fields(message):
            if number == messages.RESULT_METRIC and isinstance(value, bytes):
                raw = _repeated(raw, value, base, instructions)
            parts.append(raw)
        return b"".join(parts)

    def enlarged(message: bytes) -> bytes:
        parts = []
        for number, raw, value in raw_fields(message):
            if number == messages.SOURCE_CODE and isinstance(value, bytes):
                code = _longer_code(value, instructions)
                raw = varint(number << 3 | 2) + varint(len(code)) + code
            parts.append(raw)
        return b"".join(parts)

    return _with_results(_with_sources(whole, enlarged), longer)


def _with_results(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The report with each launch's message changed."""
    pieces, at = [], 0
    for block in framing.parse(data).blocks:
        if not block.results:
            continue
        start = block.results[0][0] - 4
        head = block.offset + 4 + len(block.header)
        messages_of = [change(data[offset : offset + length]) for offset, length in block.results]
        payload = data[head:start] + b"".join(
            struct.pack("<I", len(message)) + message for message in messages_of
        )
        header = (
            without(block.header, lambda number, value: number == _PAYLOAD)
            + varint(_PAYLOAD << 3)
            + varint(len(payload))
        )
        pieces += [data[at : block.offset], struct.pack("<I", len(header)), header, payload]
        at = block.results[-1][0] + block.results[-1][1]
    return b"".join([*pieces, data[at:]])


# in a metric: its value and its instances; in an instance: its address and its value; a number that
# is a whole one
_VALUE, _ADDRESS, _COUNT, _WHOLE = 2, 1, 2, 5


def _field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def _repeated(raw: bytes, metric: bytes, base: int, instructions: int) -> bytes:
    """A metric's field with its instances by address repeated for a code of `instructions`, its
    total their sum; others as they are."""
    entries: list[tuple[int, int]] = []
    kept = []
    for number, part, value in raw_fields(metric):
        if number == messages.METRIC_INSTANCE and isinstance(value, bytes):
            pair = {
                n: {k: v for k, _, v in raw_fields(c)}
                for n, _, c in raw_fields(value)
                if isinstance(c, bytes)
            }
            address, amount = pair.get(_ADDRESS, {}).get(_WHOLE), pair.get(_COUNT, {}).get(_WHOLE)
            if (
                not isinstance(address, int)
                or not isinstance(amount, int)
                or not base <= address < base + (1 << 20)
            ):
                return raw
            entries.append((address - base, amount))
        elif number != _VALUE:
            kept.append(part)
    period = 16 * _LENGTH
    entries = [(at, n) for at, n in entries if at < period]
    if not entries:
        return raw
    turns = -(-instructions // _LENGTH)
    found = [
        (at + period * turn, n // turns)  # the hardware's own count, which is compared, stays
        for turn in range(turns)
        for at, n in entries
        if at + period * turn < 16 * instructions
    ]
    total = _field(_VALUE, varint(_WHOLE << 3) + varint(sum(n for _, n in found)))
    instances = b"".join(
        _field(
            messages.METRIC_INSTANCE,
            _field(_ADDRESS, varint(_WHOLE << 3) + varint(base + at))
            + _field(_COUNT, varint(_WHOLE << 3) + varint(n)),
        )
        for at, n in found
    )
    return _field(
        messages.RESULT_METRIC, b"".join(kept[:1]) + total + instances + b"".join(kept[1:])
    )


#: Instructions of the recording's first kernel whose code is repeated.
_LENGTH = 256


def _longer_code(elf: bytes, instructions: int) -> bytes:
    """A cubin whose only kernel has its first _LENGTH instructions again and again, at the file's
    end, where section and symbol then point."""
    data = bytearray(elf)
    (sections,) = struct.unpack_from("<Q", data, 0x28)
    (count,) = struct.unpack_from("<H", data, 0x3C)
    (names,) = struct.unpack_from("<H", data, 0x3E)

    def section(index: int) -> list[int]:
        return list(struct.unpack_from("<IIQQQQIIQQ", data, sections + 64 * index))

    strings = section(names)[4]
    text = next(i for i in range(count) if data[strings + section(i)[0] :].startswith(b".text."))
    start, size = section(text)[4:6]
    code = bytes(data[start : start + 16 * _LENGTH])
    assert len(code) <= size
    code = (code * -(-instructions // _LENGTH))[: 16 * instructions]
    data += b"\0" * (-len(data) % 128)
    struct.pack_into("<QQ", data, sections + 64 * text + 24, len(data), len(code))
    data += code
    for index in range(count):
        kind, offset, length = section(index)[1], section(index)[4], section(index)[5]
        if kind == 2:  # SHT_SYMTAB
            for at in range(offset, offset + length, 24):
                info, index_of = (
                    struct.unpack_from("<B", data, at + 4)[0],
                    struct.unpack_from("<H", data, at + 6)[0],
                )
                if info & 0xF == 2 and index_of == text:  # STT_FUNC
                    struct.pack_into("<Q", data, at + 16, len(code))
    return bytes(data)


def with_texts(data: bytes, replace: Callable[[bytes], bytes | None]) -> bytes:
    """The report with its launches' names changed: `replace` gets each of the three names and gives
    another of any length, or None to keep it."""
    frame = framing.parse(data)
    pieces, at = [], 0
    for block in frame.blocks:
        if not block.results:
            continue
        pieces.append(data[at : block.offset])
        payload = b""
        for offset, length in block.results:
            parts = []
            for number, raw, value in raw_fields(data[offset : offset + length]):
                new = replace(value) if number in (5, 6, 7) and isinstance(value, bytes) else None
                parts.append(
                    raw if new is None else varint(number << 3 | 2) + varint(len(new)) + new
                )
            message = b"".join(parts)
            payload += struct.pack("<I", len(message)) + message
        header = (
            without(block.header, lambda number, value: number == _PAYLOAD)
            + varint(_PAYLOAD << 3)
            + varint(len(payload))
        )
        pieces += [struct.pack("<I", len(header)), header, payload]
        at = block.results[-1][0] + block.results[-1][1]
    return b"".join([*pieces, data[at:]])


#: What becomes of a field of a metric: its number, its own bytes, and its value.
Change = Callable[[int, bytes, int | bytes], bytes]


def planted(data: bytes, values: Mapping[str, float | str]) -> bytes:
    """The report with other values of some metrics, by the profiler's names, in every launch."""

    def put(value: float | str) -> Change:
        text = isinstance(value, str)
        new = (
            _field(1, value.encode())
            if isinstance(value, str)
            else struct.pack("<cd", b"\x19", value)
        )
        assert text or len(new) == 9
        return lambda number, raw, _: _field(_VALUE, new) if number == _VALUE else raw

    return changed(data, {name: put(value) for name, value in values.items()})


def changed(data: bytes, changes: Mapping[str, Change]) -> bytes:
    """The report with the fields of some metrics changed in every launch."""
    names = enumerate(messages.metric_names(framing.parse(data)))
    wanted = {at: changes[name.decode()] for at, name in names if name.decode() in changes}

    def change(message: bytes) -> bytes:
        return b"".join(map(_changed, *zip(*raw_fields(message), strict=True)))

    def _changed(number: int, raw: bytes, metric: int | bytes) -> bytes:
        if number != messages.RESULT_METRIC or not isinstance(metric, bytes):
            return raw
        parts = list(raw_fields(metric))
        index = next(value for at, _, value in parts if at == 1)
        made = wanted.get(index) if isinstance(index, int) else None
        return _field(number, b"".join(made(*part) for part in parts)) if made else raw

    return _with_results(data, change)
