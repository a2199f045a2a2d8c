"""Make a report fit to be shipped: private strings replaced by as many neutral characters, machine code of other people's libraries blanked.

Every replacement keeps its length, so the file's framing and offsets stay whole and the profiler's module reads it as before.
"""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ncu_toolkit import framing

_IPV4 = re.compile(rb"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_HOME = re.compile(rb"/(?:home|users|Users)/[A-Za-z0-9._-]+|/root(?=/)")
_LOOPBACK = b"127.0.0.1"
_SHORTEST_NAME = 4
# field numbers of a source message: the module's machine code, and the functions in it
_CODE, _FUNCTIONS = 4, 9


@dataclass(frozen=True)
class Scrubbed:
    """The scrubbed bytes with what was done."""

    data: bytes
    replaced: int
    blanked_bytes: int


def machine_names() -> tuple[str, ...]:
    """Names that identify this machine or its user; those too short or too common to be told from other text are left out."""
    names = {socket.gethostname(), socket.getfqdn(), socket.gethostname().split(".")[0]}
    try:
        names.add(getpass.getuser())
    except (KeyError, OSError):
        pass  # no name for this uid: then it is in no file either
    return tuple(sorted((name for name in names if len(name) >= _SHORTEST_NAME and name not in ("root", "localhost")), key=len, reverse=True))


def scrub(data: bytes, *, names: Iterable[str] = (), keep_code_of: Collection[str] | None = None) -> Scrubbed:
    """Replace addresses, home folders and the given names; blank code of modules that hold none of the functions `keep_code_of`.

    Args:
        data: a whole report. names: further strings to replace. keep_code_of: kernel names whose SASS stays; None keeps all.
    """
    output = bytearray(data)
    blanked = 0
    if keep_code_of is not None:
        for block in framing.parse(data).blocks:
            for offset, length in block.sources:
                blanked += _blank_foreign(output, data, offset, length, keep_code_of)
    replaced = 0
    patterns: list[re.Pattern[bytes]] = [_IPV4, _HOME, *(re.compile(re.escape(name.encode())) for name in names)]
    for pattern in patterns:
        for found in pattern.finditer(bytes(output)):
            if pattern is _IPV4 and (found.group() == _LOOPBACK or _is_version(output, found)):
                continue
            output[found.start() : found.end()] = _neutral(found.group())
            replaced += 1
    return Scrubbed(bytes(output), replaced, blanked)


def _neutral(text: bytes) -> bytes:
    """As many characters that say nothing; separators stay so that a path stays a path."""
    return bytes(byte if byte in b"/." else ord("x") for byte in text)


def _is_version(data: bytearray, found: re.Match[bytes]) -> bool:
    """ncu's own version (2025.3.1.0) and library versions look like addresses: followed by ' (build' or starting above 255."""
    parts = [int(part) for part in found.group().split(b".")]
    return any(part > 255 for part in parts) or bytes(data[found.end() : found.end() + 7]) == b" (build"


def _blank_foreign(output: bytearray, data: bytes, offset: int, length: int, keep: Collection[str]) -> int:
    message = data[offset : offset + length]
    code, functions = b"", b""
    for number, value in framing.fields(message):
        if isinstance(value, bytes) and number == _CODE:
            code = value
        elif isinstance(value, bytes) and number == _FUNCTIONS:
            functions += value
    if not code or any(name.encode() in functions for name in keep):
        return 0
    start = offset + message.index(code)
    output[start : start + len(code)] = bytes(len(code))
    return len(code)
