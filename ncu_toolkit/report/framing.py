"""The outer framing of a report file, checked before NVIDIA's module reads it.

A `.ncu-rep` is `NVR\\0`, a length-prefixed file header, then blocks: a length-prefixed block header
(a protobuf message) that declares how many sources, graphs and results follow in its payload, in
this order, and how long that payload is; each of those is length-prefixed too. The module loads most damaged
files as fewer launches without a word, so the lengths and counts are compared here with the file's
size. Learnt from real files of ncu 2020.3 to 2025.3; a file that does not fit is reported with the
offset at which it stops making sense."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ncu_toolkit.core import files
from ncu_toolkit.core.errors import InputProblem

MAGIC = files.REPORT
_LFS = b"version https://git-lfs"
_ZIP = b"PK\x03\x04"
_GZIP = b"\x1f\x8b"
_ELF = b"\x7fELF"
_SQLITE = b"SQLite format 3\0"
#: Of reports of Nsight Systems, under whatever name they come.
_NSYS = (".nsys-rep", ".qdrep", ".qdstrm", ".sqlite", ".sqlite3")
_FROM_A_TRACE = "A trace has no counters of kernels. Profile the kernel that takes most time in it with ncu, and pass the .ncu-rep"
# field numbers of a block header; a graph is a record of its nodes, no result
_SOURCES, _GRAPHS, _PAYLOAD = 1, 10, 5
#: Launches, then ranges, command lists and graphs that were profiled as one.
_RESULTS = (2, 7, 8, 9)
_COUNTS = (_SOURCES, _GRAPHS, *_RESULTS)
#: A message and its place take hundreds of bytes of memory, so that 6 MB of empty ones took 350 MB.
#: Real reports have 4,593 bytes or more for each (102 files, the least a launch of a few metrics).
_BYTES_PER_MESSAGE = 256
_FEW_MESSAGES = 1000
_Places = list[tuple[int, int]]


@dataclass(frozen=True)
class Block:
    """One block: byte offset of its length prefix, its header's raw bytes, and the (offset, length)
    of each message in its payload: machine code, results, and records of CUDA graphs."""

    offset: int
    header: bytes
    sources: tuple[tuple[int, int], ...]
    results: tuple[tuple[int, int], ...]
    graphs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Framing:
    """The file's contents as declared. `problem` is empty when all of it fits the file's size, else
    where and how it does not."""

    blocks: tuple[Block, ...]
    problem: str = ""
    intact_bytes: int = 0

    @property
    def declared_launches(self) -> int:
        return sum(len(block.results) for block in self.blocks)


class Malformed(Exception):
    """A length or tag that cannot be read; internal."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A protobuf varint and the offset after it."""
    value = shift = 0
    size = len(data)
    while True:
        if at >= size or shift > 63:
            raise Malformed("a number runs past the end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7


def one_field(data: bytes, at: int, end: int) -> tuple[int, int | bytes, int]:
    """A protobuf field at `at` as (number, integer or bytes, offset after it). Raises Malformed."""
    # Most tags and lengths are one byte; a call for each would take half of the time of
    # checking a report.
    tag = data[at]
    at += 1
    if tag > 0x7F:
        tag, at = read_varint(data, at - 1)
    number, wire = tag >> 3, tag & 7
    if number == 0:
        raise Malformed("field number 0")
    if wire == 0:
        value, at = read_varint(data, at)
        return number, value, at
    if wire == 2:
        if at < end and data[at] < 0x80:
            length = data[at]
            at += 1
        else:
            length, at = read_varint(data, at)
    elif wire == 1:
        length = 8
    elif wire == 5:
        length = 4
    else:
        raise Malformed(f"wire type {wire}")
    if at + length > end:
        raise Malformed("a field runs past the end of its message")
    return number, data[at : at + length], at + length


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Top-level protobuf fields of a message as (number, integer or bytes)."""
    at, end = 0, len(data)
    while at < end:
        number, value, at = one_field(data, at, end)
        yield number, value


def _prefixed(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 4 > end:
        raise Malformed("a length prefix is cut off")
    (length,) = struct.unpack_from("<I", data, at)
    if at + 4 + length > end:
        raise Malformed(f"a message of {length} bytes runs past the end")
    return at + 4, int(length)


def parse(data: bytes) -> Framing:
    """Parse the framing of a report. Never raises: a damaged file gets `problem` and the blocks
    before it."""
    blocks: list[Block] = []
    at, declared = 4, 0
    try:
        start, length = _prefixed(data, at, len(data))
        for _ in fields(data[start : start + length]):
            pass
        at = start + length
        while at < len(data):
            start, length = _prefixed(data, at, len(data))
            if length == 0:
                raise Malformed("a block has no header")
            header = data[start : start + length]
            integers = {
                number: value
                for number, value in fields(header)
                if isinstance(value, int) and (number in _COUNTS or number == _PAYLOAD)
            }
            declared += 1 + sum(integers.get(number, 0) for number in _COUNTS)
            if declared > _FEW_MESSAGES + len(data) // _BYTES_PER_MESSAGE:
                raise Malformed(f"{declared} messages are declared, too many for its size")
            cursor = start + length
            end = cursor + integers.get(_PAYLOAD, 0)
            if end > len(data):
                raise Malformed(
                    f"the block declares {integers.get(_PAYLOAD, 0)} bytes, {len(data) - cursor} are left"
                )
            groups: tuple[_Places, _Places, _Places] = ([], [], [])
            for group, number in zip((0, 1, 2, 2, 2, 2), _COUNTS, strict=True):
                for _ in range(integers.get(number, 0)):
                    message, size = _prefixed(data, cursor, end)
                    groups[group].append((message, size))
                    cursor = message + size
            if cursor != end:
                raise Malformed(f"{end - cursor} bytes of the block are undeclared")
            sources, graphs, results = map(tuple, groups)
            blocks.append(Block(at, header, sources, results, graphs))
            at = end
    except Malformed as error:
        return Framing(tuple(blocks), f"at offset {at} of {len(data)} bytes: {error}", at)
    if not blocks:
        return Framing((), f"the file ends after its header, at offset {at}", at)
    return Framing(tuple(blocks), "", at)


def read_bytes(path: Path) -> bytes:
    """The report's bytes; xz and zstd are unpacked, whatever the file's name. What does not start like a
    report is not read further.

    Raises:
        InputProblem: missing, no regular file, unreadable, empty, larger than `files.limit()`, or
            not a report, saying what it looks like instead.
    """
    try:
        return files.read_bytes(path, check=lambda head: _refuse_foreign(path, head))
    except FileNotFoundError:
        raise InputProblem(
            f"no report at '{path}'",
            "Check the path",
        ) from None
    except IsADirectoryError:
        raise InputProblem(
            f"'{path}' is a folder, not a report", "Name the .ncu-rep file in it"
        ) from None
    except PermissionError:
        raise InputProblem(
            f"no permission to read '{path}'",
            "Reports written under sudo belong to root: chown or chmod the file",
        ) from None
    except OSError as error:
        raise InputProblem(f"'{path}' cannot be read: {error.strerror}") from None


def _refuse_foreign(path: Path, data: bytes) -> None:
    """Raise InputProblem for anything that does not start like a report, naming what it is."""
    if data.startswith(MAGIC):
        return
    if not data:
        raise InputProblem(
            f"'{path}' is empty (0 bytes)",
            "ncu writes the report when the program ends; run it again and let it finish",
        )
    if data.startswith(_LFS):
        raise InputProblem(
            f"'{path}' is a Git LFS pointer, not the report itself",
            "Run `git lfs pull` in its repository",
        )
    trace = _trace(path, data)
    if trace:
        raise InputProblem(f"'{path}' is {trace}, not a report of Nsight Compute", _FROM_A_TRACE)
    if data.startswith(_ELF):
        raise InputProblem(
            f"'{path}' is a program or compiled code (ELF), not a report",
            "Profile a program with `ncu-toolkit profile -- PROGRAM`; `ncu-toolkit static` reads a .cubin",
        )
    for magic, what in (
        (_ZIP, "a zip archive"),
        (_GZIP, "a gzip file"),
    ):
        if data.startswith(magic):
            raise InputProblem(
                f"'{path}' is {what}, which cannot be read directly",
                "Unpack it, or save it as .ncu-rep from Nsight Compute",
            )
    head = data[:16]
    if all(32 <= byte < 127 or byte in b"\r\n\t" for byte in head):
        shown = head.decode("ascii").strip().replace("\n", " ")
        raise InputProblem(
            f"'{path}' is text (it starts with '{shown}'), not a report",
            "Pass the .ncu-rep file itself, not its CSV or log",
        )
    raise InputProblem(
        f"'{path}' does not start with a report's signature (offset 0: {data[:4].hex(' ')}, expected {MAGIC.hex(' ')})",
        "It is damaged or another kind of file",
    )


def _trace(path: Path, data: bytes) -> str:
    """What kind of trace a file is that starts so; empty where it does not look like one."""
    name = path.name.lower()
    if data.startswith(_SQLITE):
        return "an SQLite database, as `nsys export` writes it"
    if name.endswith(_NSYS):
        return "a report of Nsight Systems (nsys)"
    if b'"traceEvents"' in data or b'"schemaVersion"' in data:
        return "a trace of events (Chrome's JSON, as PyTorch's profiler writes it)"
    if data.startswith(_GZIP) and name.endswith((".json.gz", ".pt.trace.gz")):
        return "a packed trace of events (Chrome's JSON)"
    if data.lstrip()[:1] in (b"{", b"[") and name.endswith(".json"):
        return "JSON, perhaps a trace of events"
    return ""
