"""Report files made from the shipped recording: its first launches, and as many launches as wanted, to see how things grow."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from functools import cache

import recorded

from ncu_toolkit import framing, messages

# fields of a block's header, of a result, and of a metric in it
_RESULTS, _PAYLOAD, _CALL = 2, 5, 2


@cache
def first_launches(count: int) -> bytes:
    """The recording up to and including its first `count` launches: a whole report."""
    whole = recorded.report_bytes()
    found = 0
    for block, following in itertools.pairwise(framing.parse(whole).blocks):
        found += len(block.results)
        if found == count:
            return whole[: following.offset]
    raise AssertionError("the recording has fewer launches")


def varint(value: int, width: int = 1) -> bytes:
    """A protobuf varint, padded to at least `width` bytes so that a number can change without the message changing its length."""
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


def many_launches(count: int) -> bytes:
    """A whole report of `count` launches: the recording's first one without its per-instruction tables, again and again under new call numbers."""
    whole = first_launches(1)
    frame = framing.parse(whole)
    block = next(block for block in frame.blocks if block.results)
    (offset, length) = block.results[0]
    message = whole[offset : offset + length]
    light = without(message, lambda number, value: number == messages.RESULT_METRIC and isinstance(value, bytes) and len(value) > 200)
    light = without(light, lambda number, value: number == _CALL)
    plain_header = without(block.header, lambda number, value: number in (4, _PAYLOAD))
    first_header = without(block.header, lambda number, value: number == _PAYLOAD)
    pieces = [whole[: block.offset]]
    for index in range(count):
        result = light + varint(_CALL << 3) + varint(1000 + index, width=4)
        payload = struct.pack("<I", len(result)) + result
        header = (first_header if index == 0 else plain_header) + varint(_PAYLOAD << 3) + varint(len(payload))
        pieces += [struct.pack("<I", len(header)), header, payload]
    return b"".join(pieces)


def with_texts(data: bytes, replace: Callable[[bytes], bytes | None]) -> bytes:
    """The report with its launches' names changed: `replace` gets each of the three names and gives another of any length, or None to keep it."""
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
                parts.append(raw if new is None else varint(number << 3 | 2) + varint(len(new)) + new)
            message = b"".join(parts)
            payload += struct.pack("<I", len(message)) + message
        header = without(block.header, lambda number, value: number == _PAYLOAD) + varint(_PAYLOAD << 3) + varint(len(payload))
        pieces += [struct.pack("<I", len(header)), header, payload]
        at = block.results[-1][0] + block.results[-1][1]
    return b"".join([*pieces, data[at:]])
