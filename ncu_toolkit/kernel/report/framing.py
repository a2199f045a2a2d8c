"""The outer framing of a report file, checked before NVIDIA's module reads it.

A `.ncu-rep` is `NVR\\0`, a length-prefixed file header, then blocks: a length-prefixed block header
(a protobuf message) that declares how many sources, graphs and results follow in its payload, in
this order, and how long that payload is. Each of those is length-prefixed too. The module silently
loads most damaged files as fewer launches, so lengths and counts are compared with the file's size
here. Numbers of fields are those of messages.py. A file that does not fit is reported with the
offset at which it stops making sense."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import InputProblem

MAGIC = files.REPORT
_GZIP = b"\x1f\x8b"
#: Suffixes of Nsight Systems' reports.
_NSYS = (".nsys-rep", ".qdrep", ".qdstrm", ".sqlite", ".sqlite3")
_FROM_A_TRACE = "A trace has no counters of kernels. Profile the kernel that takes most time in it with ncu, and pass the .ncu-rep"
_FROM_A_PROFILE = "Record the program with `ncu-toolkit profile -- PROGRAM`, or with `nsys profile` and `nsys export --type sqlite`"
#: Profiles of frameworks, by how they start: what they are.
_PROFILES = (
    (re.compile(rb"\n.{1,6}?\x12.(/host:|/device:|#)", re.S), ".xplane.pb", "a profile of XLA (XPlane, as JAX and TensorFlow write it)"),
    (re.compile(rb'\s*\[\s*\{\s*"(children|frame)"'), ".hatchet", "a profile of Triton's Proton (Hatchet's JSON): sums by kernel, no launches"),
)  # fmt: skip
_UNPACK = "Unpack it, or save it as .ncu-rep from Nsight Compute"
#: Other files by their first bytes: what they are, and what to do.
_FOREIGN = (
    (b"\x7fELF", "is a program or compiled code (ELF), not a report",
     "Profile a program with `ncu-toolkit profile -- PROGRAM`; `ncu-toolkit static` reads a .cubin"),
    (b"PK\x03\x04", "is a zip archive, which cannot be read directly", _UNPACK),
    (_GZIP, "is a gzip file, which cannot be read directly", _UNPACK),
)  # fmt: skip
_UNREADABLE: dict[type[OSError], tuple[str, str]] = {
    FileNotFoundError: ("there is no file '{}'", "Check the path"),
    IsADirectoryError: ("'{}' is a folder, not a report", "Name the .ncu-rep file in it"),
    PermissionError: (
        "no permission to read '{}'",
        "Reports written under sudo belong to root: chown or chmod the file",
    ),
}
# field numbers of a block header; a graph is a record of its nodes, no result
_SOURCES, _GRAPHS, _PAYLOAD = 1, 10, 5
#: Launches, then ranges, command lists and graphs that were profiled as one.
_RESULTS = (2, 7, 8, 9)
#: A message and its place take hundreds of bytes of memory: 6 MB of empty ones took 350 MB. Real
#: reports have 4,593 bytes or more for each (102 files).
_BYTES_PER_MESSAGE = 256
_FEW_MESSAGES = 1000
Place = tuple[int, int]
"""Offset and length of a message in the file."""
#: Plain files of more bytes stay on the disk: a report may be larger than memory.
_IN_MEMORY = 32 << 20
#: Bytes that are read from such a file at once.
_WINDOW = 1 << 20


class Stored:
    """The bytes of a large file, read as they are asked for. Raises InputProblem where they are
    gone."""

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size = path, size
        self._window = (0, b"")

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: slice) -> bytes:
        start, end, _ = place.indices(self._size)
        if end - start > _WINDOW:
            return self._read(start, end)
        at, window = self._window
        if not at <= start <= end <= at + len(window):
            at, window = start, self._read(start, min(start + _WINDOW, self._size))
            self._window = at, window
        return window[start - at : end - at]

    def _read(self, start: int, end: int) -> bytes:
        try:
            with self._path.open("rb", buffering=0) as stream:
                stream.seek(start)
                data = b"".join(iter(lambda: stream.read(max(0, end - stream.tell())), b""))
        except OSError as error:
            raise _unreadable(self._path, error) from None
        if len(data) < end - start:
            raise InputProblem(
                f"'{self._path}' changed while it was read", "Run it again once the file is written"
            )
        return data


Content = bytes | Stored


@dataclass(frozen=True)
class FileBlock:
    """One block: its offset, its header's raw bytes, and the places of its messages."""

    offset: int
    header: bytes
    sources: tuple[Place, ...]
    results: tuple[Place, ...]
    graphs: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Framing:
    """The file's contents as declared. `problem` says where they do not fit the file's size."""

    data: Content = field(repr=False)
    blocks: tuple[FileBlock, ...]
    problem: str = ""
    intact_bytes: int = 0

    @property
    def declared_launches(self) -> int:
        return sum(len(block.results) for block in self.blocks)

    def results(self) -> Iterator[tuple[FileBlock, int, bytes]]:
        """Every launch's message in file order, with its block and offset."""
        for block in self.blocks:
            for offset, length in block.results:
                yield block, offset, self.data[offset : offset + length]


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
    # Most tags and lengths are one byte: a call for each would double the time of a check.
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


def _prefixed(data: Content, at: int, end: int) -> tuple[int, int]:
    if at + 4 > end:
        raise Malformed("a length prefix is cut off")
    length = int.from_bytes(data[at : at + 4], "little")
    if at + 4 + length > end:
        raise Malformed(f"a message of {length} bytes runs past the end")
    return at + 4, length


def parse(data: Content) -> Framing:
    """Parse the framing of a report. A damaged file gets `problem` and the blocks before it."""
    blocks: list[FileBlock] = []
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
            numbers = {n: value for n, value in fields(header) if isinstance(value, int)}
            sources, graphs = numbers.get(_SOURCES, 0), numbers.get(_GRAPHS, 0)
            messages = sources + graphs + sum(numbers.get(n, 0) for n in _RESULTS)
            declared += 1 + messages
            if declared > _FEW_MESSAGES + len(data) // _BYTES_PER_MESSAGE:
                raise Malformed(f"{declared} messages are declared, too many for its size")
            cursor, payload = start + length, numbers.get(_PAYLOAD, 0)
            end = cursor + payload
            if end > len(data):
                raise Malformed(
                    f"the block declares {payload} bytes, {len(data) - cursor} are left"
                )
            places = []
            for _ in range(messages):
                place = _prefixed(data, cursor, end)
                places.append(place)
                cursor = sum(place)
            if cursor != end:
                raise Malformed(f"{end - cursor} bytes of the block are undeclared")
            of_code, rest = tuple(places[:sources]), tuple(places[sources:])
            blocks.append(FileBlock(at, header, of_code, rest[graphs:], rest[:graphs]))
            at = end
    except Malformed as error:
        problem = f"at offset {at} of {len(data)} bytes: {error}"
    else:
        problem = "" if blocks else f"the file ends after its header, at offset {at}"
    return Framing(data, tuple(blocks), problem, at)


def block(
    header: bytes,
    sources: Sequence[bytes],
    graphs: Sequence[bytes],
    results: Sequence[tuple[int, bytes]],
) -> bytes:
    """A block of such a header with these messages alone; results with their kind, the field of the
    header that counts it."""
    parts = [*sources, *graphs, *(each for _, each in results)]
    payload = b"".join(len(each).to_bytes(4, "little") + each for each in parts)
    counts = {_SOURCES: len(sources), _GRAPHS: len(graphs), _PAYLOAD: len(payload)}
    counts |= {kind: sum(kind == of for of, _ in results) for kind in _RESULTS}
    for number, count in counts.items():
        header = replaced(header, number, count)
    return len(header).to_bytes(4, "little") + header + payload


def replaced(message: bytes, wanted: int, new: int | bytes) -> bytes:
    """A message with another value of a field. Raises Malformed."""
    parts, at = [], 0
    while at < len(message):
        number, _, after = one_field(message, at, len(message))
        if number != wanted:
            parts.append(message[at:after])
        elif isinstance(new, int):
            parts.append(encoded(number << 3) + encoded(new))
        else:
            parts.append(encoded(number << 3 | 2) + encoded(len(new)) + new)
        at = after
    return b"".join(parts)


def encoded(value: int) -> bytes:
    """A number as a protobuf varint."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def read_bytes(path: Path) -> bytes:
    """The report's bytes; xz and zstd are unpacked, whatever the file's name.

    Raises:
        InputProblem: missing, no regular file, unreadable, empty, larger than `files.limit()`, or
            not a report, saying what it looks like instead.
    """
    try:
        return files.read_bytes(path, check=lambda head: _refuse_foreign(path, head))
    except OSError as error:
        raise _unreadable(path, error) from None


def content(path: Path) -> Content:
    """As `read_bytes`; of a large file that is not packed, a `Stored`, which may have eight times
    as many bytes."""
    try:
        with files.opened(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            large = size > _IN_MEMORY and stream.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise _unreadable(path, error) from None
    if not large:
        return read_bytes(path)
    files.refuse_larger(path, size, stored=True)
    return Stored(path, size)


def _unreadable(path: Path, error: OSError) -> InputProblem:
    what, remedy = _UNREADABLE.get(type(error), (f"'{{}}' cannot be read: {error.strerror}", ""))
    return InputProblem(what.format(path), remedy)


def _refuse_foreign(path: Path, data: bytes) -> None:
    """Raise InputProblem for anything that does not start like a report, naming what it is."""
    if not data.startswith(MAGIC):
        what, remedy = _stranger(path, data)
        raise InputProblem(f"'{path}' {what}", remedy)


def _stranger(path: Path, data: bytes) -> tuple[str, str]:
    """What a file is that starts with `data` and is no report, and what to do."""
    if not data:
        return (
            "is empty (0 bytes)",
            "ncu writes the report when the program ends; run it again and let it finish",
        )
    if data.startswith(b"version https://git-lfs"):
        return (
            "is a Git LFS pointer, not the report itself",
            "Run `git lfs pull` in its repository",
        )
    for start, suffix, made in _PROFILES:
        if start.match(data) or path.name.lower().endswith(suffix):
            return f"is {made}, which is not read here", _FROM_A_PROFILE
    if trace := _trace(path, data):
        return f"is {trace}, not a report of Nsight Compute", _FROM_A_TRACE
    for magic, what, remedy in _FOREIGN:
        if data.startswith(magic):
            return what, remedy
    head = data[:16]
    if all(32 <= byte < 127 or byte in b"\r\n\t" for byte in head):
        shown = head.decode("ascii").strip().replace("\n", " ")
        return (
            f"is a text file that begins with '{shown}…', not a report",
            "Pass the .ncu-rep file itself, not its CSV or log",
        )
    return (
        f"does not start with a report's signature (offset 0: {data[:4].hex(' ')}, expected {MAGIC.hex(' ')})",
        "It is damaged or another kind of file",
    )


def _trace(path: Path, data: bytes) -> str:
    """What kind of trace a file is that starts so; empty where it does not look like one."""
    name = path.name.lower()
    if data.startswith(b"SQLite format 3\0"):
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
