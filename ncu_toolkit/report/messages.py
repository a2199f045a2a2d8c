"""What stands in a report's protobuf messages, as far as it was learnt from real files of ncu
2020.3 to 2025.3.

The profiler's own module reads the figures; this reads the few things that it does not tell (which
machine code a launch ran) and what a check of the module's answers needs. Field numbers are named
here and nowhere else."""

from __future__ import annotations

import contextlib
import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ncu_toolkit.report.framing import Block, Framing, Malformed, fields

# a source message: its id, the module's machine code, the source files and the functions in it
SOURCE_ID: Final = 1
SOURCE_CODE: Final = 4
SOURCE_FILES: Final = 8
SOURCE_FUNCTIONS: Final = 9
_ELF: Final = b"\x7fELF"
# in a function of a source message
_FUNCTION_NAME, _FUNCTION_BASE = 1, 2
# a result message
RESULT_MANGLED: Final = 5
RESULT_METRIC: Final = 13
RESULT_SOURCES: Final = 15


def results(data: bytes, frame: Framing) -> Iterator[tuple[Block, bytes]]:
    """Every launch's message in file order, with its block."""
    for block in frame.blocks:
        for offset, length in block.results:
            yield block, data[offset : offset + length]


@dataclass(frozen=True)
class Code:
    """The machine code a launch ran: a digest of it and its function's name, the address the
    function was loaded at, whether it is in the file."""

    digest: bytes
    base: int | None
    """None where the file has no function table (before 2022)."""
    embedded: bool


def codes(data: bytes, frame: Framing) -> tuple[Code | None, ...]:
    """For each launch in file order its code.

    None where the file does not say: no or several sources for a launch, or two different codes
    under one id."""
    found: dict[int, Source | None] = {}
    for source in sources(data, frame):
        found[source.identifier] = (
            source if found.get(source.identifier, source) == source else None
        )
    return tuple(_code(message, found) for _, message in results(data, frame))


@dataclass(frozen=True)
class Source:
    """A source message: its id, the digest of its machine code (empty where that is not in the
    file), its functions' addresses by mangled name."""

    identifier: int
    digest: bytes
    functions: Mapping[bytes, int]


def sources(data: bytes, frame: Framing) -> Iterator[Source]:
    """The sources in file order; those that cannot be read are left out (integrity.py reports
    them)."""
    for block in frame.blocks:
        for offset, length in block.sources:
            with contextlib.suppress(Malformed):
                yield read_source(data[offset : offset + length])


def read_source(message: bytes) -> Source:
    """A source message. Raises Malformed where it cannot be read."""
    identifier, digest = 0, b""
    functions: dict[bytes, int] = {}
    for number, value in fields(message):
        if number == SOURCE_ID and isinstance(value, int):
            identifier = value
        elif number == SOURCE_CODE and isinstance(value, bytes):
            digest = hashlib.sha256(value).digest() if value.startswith(_ELF) else b""
        elif number == SOURCE_FUNCTIONS and isinstance(value, bytes):
            for _, entry in fields(value):
                parts = dict(fields(entry)) if isinstance(entry, bytes) else {}
                name, base = parts.get(_FUNCTION_NAME), parts.get(_FUNCTION_BASE)
                if isinstance(name, bytes) and isinstance(base, int):
                    functions[name] = base
    return Source(identifier, digest, functions)


def _code(message: bytes, known: Mapping[int, Source | None]) -> Code | None:
    try:
        who = identity(message)
    except Malformed:
        return None
    source = known.get(who.sources[0]) if len(who.sources) == 1 else None
    if source is None:
        return None
    return Code(
        hashlib.sha256(source.digest + who.mangled).digest(),
        source.functions.get(who.mangled),
        bool(source.digest),
    )


# in a block's header: the table of metric names
_HEADER_STRINGS: Final = 4
# in a metric of a result: index into the table of names, value, instances
_METRIC_NAME, _METRIC_VALUE = 1, 2
METRIC_INSTANCE: Final = 3
# a value: text, or a number as float, double, or unsigned integer
_TEXT, _FLOAT, _DOUBLE = 1, 2, 3
_FLOAT_SIZE, _DOUBLE_SIZE = 4, 8


def metric_names(frame: Framing) -> list[bytes]:
    """The table of metric names that results refer to by index."""
    names: list[bytes] = []
    for block in frame.blocks:
        for number, value in fields(block.header):
            if number == _HEADER_STRINGS and isinstance(value, bytes):
                names += [name for _, name in fields(value) if isinstance(name, bytes)]
    return names


def scalars(message: bytes, names: list[bytes]) -> dict[bytes, float | bytes | None]:
    """A launch's metrics by name without their instances: a number, text, or None where the
    profiler stored no value, or one of a kind that is not known.

    Raises:
        Malformed: the message, or a metric in it, cannot be read.
    """
    found: dict[bytes, float | bytes | None] = {}
    for number, metric in fields(message):
        if number != RESULT_METRIC or not isinstance(metric, bytes):
            continue
        name = -1
        value: float | bytes | None = None
        for part, content in fields(metric):
            if part == METRIC_INSTANCE:
                break  # written after the value, and often thousands
            if part == _METRIC_NAME and isinstance(content, int):
                name = content
            elif part == _METRIC_VALUE and isinstance(content, bytes):
                value = _scalar(content)
        if 0 <= name < len(names):
            found[names[name]] = value
    return found


def _scalar(message: bytes) -> float | bytes | None:
    for number, value in fields(message):
        if isinstance(value, int):
            return float(value)
        if number == _DOUBLE and len(value) == _DOUBLE_SIZE:
            return float(struct.unpack("<d", value)[0])
        if number == _FLOAT and len(value) == _FLOAT_SIZE:
            return float(struct.unpack("<f", value)[0])
        return value if number == _TEXT else None
    return None


@dataclass(frozen=True)
class Identity:
    """Which code a launch ran: its function's mangled name and its sources' ids. A profiled range
    or graph has neither."""

    mangled: bytes
    sources: tuple[int, ...]


def identity(message: bytes) -> Identity:
    """The identity of a launch. Raises Malformed where the message cannot be read."""
    mangled = b""
    sources: list[int] = []
    for number, value in fields(message):
        if number == RESULT_SOURCES and isinstance(value, bytes):
            sources += [
                entry for part, entry in fields(value) if part == 1 and isinstance(entry, int)
            ]
        elif number == RESULT_MANGLED and isinstance(value, bytes):
            mangled = value
    return Identity(mangled, tuple(sources))
