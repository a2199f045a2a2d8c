"""Reports of chosen cases, cut out of the shipped recording of the FP32 ladder: what an ncu would
have written for them."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

import recorded
from report_files import varint, without

from ncu_toolkit.kernel.report import framing, messages

# fields of a block's header: how many sources and results follow, and their length
_SOURCES, _RESULTS, _PAYLOAD = 1, 2, 5


def markers() -> list[str]:
    """The markers of the recording's launches, in file order."""
    data = recorded.report_bytes()
    found = [
        _marker(data[offset : offset + length])
        for block in framing.parse(data).blocks
        for offset, length in block.results
    ]
    assert all(found)
    return found


def _marker(message: bytes) -> str:
    found = re.search(rb"ncu-toolkit:[\w/:.-]+", message)
    return found.group().decode() if found else ""


def report_of(wanted: Sequence[str]) -> bytes:
    """A whole report of the launches in the NVTX ranges `wanted`, with their code. Blocks of others
    are left empty: their headers name metrics."""
    data = recorded.report_bytes()
    frame = framing.parse(data)
    kept = {
        (offset, length)
        for block in frame.blocks
        for offset, length in block.results
        if _marker(data[offset : offset + length]) in wanted
    }
    needed = {
        identifier
        for offset, length in kept
        for identifier in messages.identity(data[offset : offset + length]).sources
    }
    pieces = [data[: frame.blocks[0].offset]]
    for block in frame.blocks:
        sources = [
            span
            for span in block.sources
            if messages.read_source(data[span[0] : sum(span)]).identifier in needed
        ]
        results = [span for span in block.results if span in kept]
        payload = b"".join(
            struct.pack("<I", length) + data[offset : offset + length]
            for offset, length in (*sources, *results)
        )
        header = without(
            block.header, lambda number, value: number in (_SOURCES, _RESULTS, _PAYLOAD)
        )
        for number, value in (
            (_SOURCES, len(sources)),
            (_RESULTS, len(results)),
            (_PAYLOAD, len(payload)),
        ):
            header += varint(number << 3) + varint(value)
        pieces += [struct.pack("<I", len(header)), header, payload]
    return b"".join(pieces)
