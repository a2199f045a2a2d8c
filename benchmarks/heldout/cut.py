"""A report without what no diagnosis reads: the layout of the profiler's own pages, and the series
of PM sampling. Most of a stock report is that.

    python benchmarks/heldout/cut.py full.ncu-rep cut.ncu-rep

Metrics, counts by instruction, rules with what they say, machine code and source stay. The stock
report of the first set went through this before it was redacted and compressed.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ncu_toolkit.kernel.report import framing, messages

# fields: the length of a block's payload in its header; in a result the description of a section,
# and in that the section's body
_PAYLOAD, _SECTION, _BODY = 5, 17, 5
#: Counters that PM sampling reads; each holds thousands of values over a launch's time.
_SERIES: Final = (b".Triage", b"pmsampling:")


def cut(data: bytes) -> bytes:
    """The report's bytes with that left out; lengths follow."""
    frame = framing.parse(data)
    if frame.problem:
        raise SystemExit(f"the report is damaged {frame.problem}")
    names = messages.metric_names(frame)
    series = {index for index, name in enumerate(names) if any(part in name for part in _SERIES)}
    pieces, at = [], 0
    for block in frame.blocks:
        if not block.results:
            continue
        first = block.results[0][0] - 4
        payload = data[block.offset + 4 + len(block.header) : first]
        for offset, length in block.results:
            message = _result(data[offset : offset + length], series)
            payload += struct.pack("<I", len(message)) + message
        header = (
            b"".join(raw for number, raw, _ in _fields(block.header) if number != _PAYLOAD)
            + _varint(_PAYLOAD << 3)
            + _varint(len(payload))
        )
        pieces += [data[at : block.offset], struct.pack("<I", len(header)), header, payload]
        at = sum(block.results[-1])
    return b"".join([*pieces, data[at:]])


def _result(message: bytes, series: set[int]) -> bytes:
    kept = []
    for number, raw, content in _fields(message):
        if (
            number == messages.RESULT_METRIC
            and next((value for part, value in framing.fields(content) if part == 1), None)
            in series
        ):
            continue
        if number == _SECTION:
            described = b"".join(part for inner, part, _ in _fields(content) if inner != _BODY)
            raw = _varint(_SECTION << 3 | 2) + _varint(len(described)) + described
        kept.append(raw)
    return b"".join(kept)


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Top-level fields as (number, the field's own bytes, its content); the content of a number is
    empty."""
    at = 0
    while at < len(message):
        start = at
        tag, at = framing.read_varint(message, at)
        content = b""
        if tag & 7 == 0:
            _, at = framing.read_varint(message, at)
        else:
            length, at = (
                framing.read_varint(message, at) if tag & 7 == 2 else (8 if tag & 7 == 1 else 4, at)
            )
            content, at = message[at : at + length], at + length
        yield tag >> 3, message[start:at], content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_bytes(cut(framing.read_bytes(source)))
