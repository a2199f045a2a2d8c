"""What stands in a report's protobuf messages, as far as it was learnt from real files of ncu 2020.3 to 2025.3.

The profiler's own module reads the figures; this reads the few things that it does not tell (which machine code a launch ran) and what a
check of the module's answers needs. Field numbers are named here and nowhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from ncu_toolkit.framing import Block, Framing, Malformed, fields

# a source message: its id, the module's machine code, the source files and the functions in it
SOURCE_ID: Final = 1
SOURCE_CODE: Final = 4
SOURCE_FILES: Final = 8
SOURCE_FUNCTIONS: Final = 9
# in a function of a source message
_FUNCTION_NAME, _FUNCTION_BASE = 1, 2
# a result message
RESULT_MANGLED: Final = 5
RESULT_FUNCTION: Final = 6
RESULT_METRIC: Final = 13
RESULT_SOURCES: Final = 15


def results(data: bytes, frame: Framing) -> Iterator[tuple[Block, bytes]]:
    """Every launch's message in file order, with its block."""
    for block in frame.blocks:
        for offset, length in block.results:
            yield block, data[offset : offset + length]


def code_keys(data: bytes, frame: Framing) -> tuple[tuple[bytes, int] | None, ...]:
    """For each launch in file order the digest of (machine code, function) and the address at which that function was loaded.

    None where the file does not say: no function table (before 2022), several sources for a launch, or two different codes under one id.
    """
    codes: dict[int, tuple[bytes, dict[bytes, int]] | None] = {}
    for block in frame.blocks:
        for offset, length in block.sources:
            try:
                identifier, code, functions = _source(data[offset : offset + length])
            except Malformed:
                continue
            if identifier in codes and codes[identifier] != (code, functions):
                codes[identifier] = None
            else:
                codes[identifier] = (code, functions)
    return tuple(_code_key(message, codes) for _, message in results(data, frame))


def _source(message: bytes) -> tuple[int, bytes, dict[bytes, int]]:
    identifier, digest = 0, b""
    functions: dict[bytes, int] = {}
    for number, value in fields(message):
        if number == SOURCE_ID and isinstance(value, int):
            identifier = value
        elif number == SOURCE_CODE and isinstance(value, bytes):
            digest = hashlib.sha256(value).digest()
        elif number == SOURCE_FUNCTIONS and isinstance(value, bytes):
            for _, entry in fields(value):
                parts = dict(fields(entry)) if isinstance(entry, bytes) else {}
                name, base = parts.get(_FUNCTION_NAME), parts.get(_FUNCTION_BASE)
                if isinstance(name, bytes) and isinstance(base, int):
                    functions[name] = base
    return identifier, digest, functions


def _code_key(message: bytes, codes: dict[int, tuple[bytes, dict[bytes, int]] | None]) -> tuple[bytes, int] | None:
    name = b""
    used: list[int] = []
    try:
        for number, value in fields(message):
            if number == RESULT_MANGLED and isinstance(value, bytes):
                name = value
            elif number == RESULT_SOURCES and isinstance(value, bytes):
                identifier = dict(fields(value)).get(1)
                used.append(identifier if isinstance(identifier, int) else 0)
    except Malformed:
        return None
    found = codes.get(used[0]) if len(used) == 1 else None
    if found is None or not found[0] or name not in found[1]:
        return None
    return hashlib.sha256(found[0] + name).digest(), found[1][name]
