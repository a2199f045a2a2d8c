"""Fields of a report's protobuf messages, learnt from real files of ncu 2020.3 to 2025.3.

The profiler's own module reads the figures; this reads the few things that it does not tell (which
machine code a launch ran) and what a check of the module's answers needs. Field numbers are named
here and nowhere else."""

from __future__ import annotations

import contextlib
import hashlib
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from ncu_toolkit.model import Frame, MachineCode
from ncu_toolkit.report.framing import Block, Framing, Malformed, fields, one_field, read_varint
from ncu_toolkit.sass import words
from ncu_toolkit.sass.elf import MAGIC as ELF

# a source message: its id, the module's machine code, the source files and the functions in it
_SOURCE_ID: Final = 1
SOURCE_CODE: Final = 4
_SOURCE_FILES: Final = 8
SOURCE_FUNCTIONS: Final = 9
# in a function of a source message
_FUNCTION_NAME, _FUNCTION_BASE = 1, 2
# in a source file of a source message
_FILE_NAME, _FILE_TEXT = 1, 2
# a result message
_THREAD, _CALL, _CREATED = 1, 2, 14
_RESULT_MANGLED: Final = 5
_RESULT_FUNCTION: Final = 6
_GRID, _BLOCK = 10, 11
RESULT_METRIC: Final = 13
_RESULT_SOURCES: Final = 15


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
    files: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The text of the module's source files by name; empty where the report holds none. The
    profiler's module gives the same texts, at a quarter of a second for each kernel of a large
    report."""


def codes(data: bytes, frame: Framing) -> tuple[Code | None, ...]:
    """The code of each launch in file order. None where the file does not say: no or several
    sources for a launch, or two different codes under one id."""
    found: dict[int, Source | None] = {}
    for source in sources(data, frame):
        found[source.identifier] = (
            source if found.get(source.identifier, source) == source else None
        )
    return tuple(_code(message, found) for _, message in results(data, frame))


def machine(data: bytes, frame: Framing) -> tuple[MachineCode | None, ...]:
    """The machine code of each launch's function in file order, by its words. None where the file
    holds none, or several functions of that name."""
    elves: dict[int, bytes] = {}
    for block in frame.blocks:
        for offset, length in block.sources:
            with contextlib.suppress(Malformed):
                found = dict(fields(data[offset : offset + length]))
                who, code = found.get(_SOURCE_ID), found.get(SOURCE_CODE)
                if isinstance(who, int) and isinstance(code, bytes) and code.startswith(ELF):
                    elves[who] = code if elves.get(who, code) == code else b""
    parts = {who: words.sections(code) for who, code in elves.items()}
    read: dict[tuple[int, str], MachineCode] = {}
    return tuple(_machine(message, parts, read) for _, message in results(data, frame))


def _machine(
    message: bytes,
    parts: Mapping[int, Mapping[str, memoryview]],
    read: dict[tuple[int, str], MachineCode],
) -> MachineCode | None:
    try:
        who = identity(message)
    except Malformed:
        return None
    section = f".text.{who.mangled.decode('utf-8', 'replace')}"
    keys = [(source, section) for source in who.sources if section in parts.get(source, {})]
    if len(keys) != 1:
        return None
    (key,) = keys
    if key not in read:
        read[key] = words.read(parts[key[0]][section])
    return read[key]


def functions(data: bytes, frame: Framing) -> tuple[str, ...]:
    """The names of the functions that were launched, each once, in file order; launches that cannot
    be read have none."""
    found: dict[str, None] = {}
    for _, message in results(data, frame):
        with contextlib.suppress(Malformed):
            for number, value in fields(message):
                if number == _RESULT_FUNCTION and isinstance(value, bytes):
                    found[value.decode(errors="replace")] = None
                    break
    return tuple(found)


@dataclass(frozen=True)
class Source:
    """A source message: its id, the digest of its machine code (empty where that is not in the
    file), its functions' addresses by mangled name."""

    identifier: int
    digest: bytes
    functions: Mapping[bytes, int]
    files: Mapping[str, str]
    """Source text by file name, where the report holds it."""
    elf: bytes = field(default=b"", compare=False, repr=False)
    """The machine code, where the file holds it and it was asked for; also what does not start like
    machine code."""


def sources(data: bytes, frame: Framing) -> Iterator[Source]:
    """The sources in file order; those that cannot be read are left out (integrity.py reports
    them)."""
    for block in frame.blocks:
        for offset, length in block.sources:
            with contextlib.suppress(Malformed):
                yield read_source(data[offset : offset + length])


def read_source(message: bytes, *, code: bool = False) -> Source:
    """A source message, with `code` its machine code too. Raises Malformed where it cannot be
    read."""
    identifier, digest, elf = 0, b"", b""
    functions: dict[bytes, int] = {}
    files: dict[str, str] = {}
    for number, value in fields(message):
        if number == _SOURCE_ID and isinstance(value, int):
            identifier = value
        elif number == SOURCE_CODE and isinstance(value, bytes):
            # recordings blank the code of libraries
            elf = value if value.strip(b"\0") else b""
            digest = hashlib.sha256(elf).digest() if elf.startswith(ELF) else b""
        elif number == _SOURCE_FILES and isinstance(value, bytes):
            for _, entry in fields(value):
                parts = dict(fields(entry)) if isinstance(entry, bytes) else {}
                name, text = parts.get(_FILE_NAME), parts.get(_FILE_TEXT)
                if isinstance(name, bytes) and isinstance(text, bytes) and text:
                    files[name.decode(errors="replace")] = text.decode(errors="replace")
        elif number == SOURCE_FUNCTIONS and isinstance(value, bytes):
            for _, entry in fields(value):
                parts = dict(fields(entry)) if isinstance(entry, bytes) else {}
                name, base = parts.get(_FUNCTION_NAME), parts.get(_FUNCTION_BASE)
                if isinstance(name, bytes) and isinstance(base, int):
                    functions[name] = base
    return Source(identifier, digest, functions, files, elf if code else b"")


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
        source.files,
    )


# in a block's header: the table of metric names
_HEADER_STRINGS: Final = 4
# in a metric of a result: index into the table of names, value, instances
_METRIC_NAME, _METRIC_VALUE = 1, 2
METRIC_INSTANCE: Final = 3
#: First byte of a metric in a result: its field number, then length-delimited.
_METRIC_TAG: Final = RESULT_METRIC << 3 | 2
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


#: Floating-point metrics without instances, as most are: their names' indices take two bytes, the
#: value is a double, one small number follows (ncu 2021 and newer). They come in runs, and each run
#: is unpacked at once: a loop over the fields took most of the time of checking a report.
_RUN: Final = re.compile(
    rb"(?:\x6a\x10\x08[\x80-\xff][\x01-\x7f]\x12\x09\x19.{8}\x20[\x00-\x7f])+", re.DOTALL
)
_RECORD: Final = struct.Struct("<3xBB3xd2x")
#: What other metrics start with: length, name, and a double or a whole number.
_VARINT: Final = rb"([\x80-\xff]{0,9}[\x00-\x7f])"
_START: Final = re.compile(
    rb"\x6a" + _VARINT + rb"\x08" + _VARINT + rb"\x12(?:\x09\x19(.{8})|([\x02-\x0b])\x28" + _VARINT + rb")",
    re.DOTALL,
)  # fmt: skip
_UNPACK: Final = struct.Struct("<d").unpack
_INSTANCE_TAG, _LAST_TAG = METRIC_INSTANCE << 3 | 2, 4 << 3


def _integer(varint: bytes) -> int:
    """The number of a varint of at most ten bytes."""
    if len(varint) == 1:
        return varint[0]
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(varint))


def scalars(
    message: bytes, names: Sequence[bytes]
) -> tuple[Identity, dict[bytes, float | bytes | None]]:
    """A launch's identity, and its metrics by name without their instances: a number, text, or None
    where the profiler stored no value, or one of a kind that is not known.

    Raises:
        Malformed: the message, or a metric in it, cannot be read, or a metric's name is not in the
            table: the profiler's module gives no launch of such a report.
    """
    found: dict[int, float | bytes | None] = {}
    rest: list[tuple[int, int | bytes]] = []
    at, end = 0, len(message)
    while at < end:
        if message[at] == _METRIC_TAG:
            run = _RUN.match(message, at)
            if run is not None:
                for low, high, value in _RECORD.iter_unpack(run[0]):
                    found[(low & 0x7F) | high << 7] = value
                at = run.end()
                continue
            start = _START.match(message, at)
            if start is not None:
                size, index, double, width, whole = start.groups()
                stop = start.end(1) + _integer(size)
                after = start.end()
                if stop <= end and (after == stop or message[after] == _INSTANCE_TAG or (after + 2 == stop and message[after] == _LAST_TAG)) and (
                    double is not None or width[0] == 1 + len(whole)
                ):  # fmt: skip
                    found[_integer(index)] = (
                        _UNPACK(double)[0] if whole is None else float(_integer(whole))
                    )
                    at = stop
                    continue
        number, content, at = one_field(message, at, end)
        if number != RESULT_METRIC or isinstance(content, int):
            rest.append((number, content))
            continue
        name = -1
        scalar: float | bytes | None = None
        inner, stop = 0, len(content)
        while inner < stop:
            part, field_value, inner = one_field(content, inner, stop)
            if part == METRIC_INSTANCE:
                break  # written after the value, and often thousands
            if part == _METRIC_NAME and isinstance(field_value, int):
                name = field_value
            elif part == _METRIC_VALUE and isinstance(field_value, bytes):
                scalar = _scalar(field_value)
        found[name] = scalar
    if max(found, default=-1) >= len(names):
        raise Malformed("a metric's name is not in the table of names")
    return _identity(rest), {names[index]: value for index, value in found.items() if index >= 0}


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


Axes = tuple[int, int, int]


@dataclass(frozen=True)
class Identity:
    """What a launch's message says of it beside its metrics. A profiled range or graph has only
    numbers of other meanings."""

    mangled: bytes = b""
    sources: tuple[int, ...] = ()
    thread: int = 0
    call: int | None = None
    """The number of the call of CUDA's API that made the launch; None where it does not say."""
    created: int = 0
    """When it was profiled, in seconds since 1970."""
    grid: Axes | None = None
    block: Axes | None = None


def identity(message: bytes) -> Identity:
    """The identity of a launch. Raises Malformed where the message cannot be read."""
    return _identity(_but_metrics(message))


def _but_metrics(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a launch's message that are no metrics, which are nine tenths of its fields."""
    at, end = 0, len(message)
    while at < end:
        if message[at] == _METRIC_TAG:
            length, at = read_varint(message, at + 1)
            at += length
            if at > end:
                raise Malformed("a field runs past the end of its message")
        else:
            number, value, at = one_field(message, at, end)
            yield number, value


def _identity(parts: Iterable[tuple[int, int | bytes]]) -> Identity:
    mangled = b""
    sources: list[int] = []
    numbers: dict[int, int] = {}
    axes: dict[int, Axes] = {}
    for number, value in parts:
        if isinstance(value, int):
            numbers[number] = value
        elif number == _RESULT_SOURCES:
            sources += [
                entry for part, entry in fields(value) if part == 1 and isinstance(entry, int)
            ]
        elif number == _RESULT_MANGLED:
            mangled = value
        elif number in (_GRID, _BLOCK):
            sizes = {part: size for part, size in fields(value) if isinstance(size, int)}
            axes[number] = (sizes.get(1, 0), sizes.get(2, 0), sizes.get(3, 0))
    return Identity(
        mangled,
        tuple(sources),
        numbers.get(_THREAD, 0),
        numbers.get(_CALL),
        numbers.get(_CREATED, 0),
        axes.get(_GRID),
        axes.get(_BLOCK),
    )


#: Fields of a launch's stacks, native and Python's, by the field of the header that counts its kind.
_STACKS: Final = {2: (28, 32), 7: (14, 17), 8: (16, 22), 9: (16, 19)}
_STACK_FRAME: Final = 1
# in a frame: the library or program, source file, function, line
_FRAME_MODULE, _FRAME_FILE, _FRAME_FUNCTION, _FRAME_LINE = 1, 3, 4, 5


def stacks(data: bytes, frame: Framing) -> dict[int, tuple[Frame, ...]]:
    """The calls on the host that led to each launch, by its place in the file; nothing where the
    first launch has none: they are recorded of all launches (`--call-stack`) or of none."""
    found: dict[int, tuple[Frame, ...]] = {}
    at = 0
    for block in frame.blocks:
        counts = dict(fields(block.header)) if block.results else {}
        kinds = [
            numbers
            for counted, numbers in _STACKS.items()
            if isinstance(count := counts.get(counted, 0), int)
            for _ in range(count)
        ]
        for (offset, length), numbers in zip(block.results, kinds, strict=False):
            with contextlib.suppress(Malformed):
                stack = _stack(data[offset : offset + length], *numbers)
                if stack:
                    found[at] = stack
            if not found:
                return {}
            at += 1
    return found


def _stack(message: bytes, native: int, python: int) -> tuple[Frame, ...]:
    of: dict[int, list[Frame]] = {native: [], python: []}
    for number, value in fields(message):
        if number in of and isinstance(value, bytes):
            for part, entry in fields(value):
                if part == _STACK_FRAME and isinstance(entry, bytes):
                    of[number].append(_frame(entry, number == python))
    return (*of[python], *of[native])


def _frame(message: bytes, python: bool) -> Frame:
    parts = dict(fields(message))

    def text(number: int) -> str:
        value = parts.get(number, b"")
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""

    line = parts.get(_FRAME_LINE, 0)
    return Frame(
        text(_FRAME_FUNCTION),
        text(_FRAME_FILE),
        line if isinstance(line, int) else 0,
        text(_FRAME_MODULE),
        python,
    )


# in a block's header: the session's devices and their attributes; the process that the block is of
_HEADER_SESSION, _HEADER_PROCESS = 3, 6
_SESSION_DEVICE, _SESSION_COMMAND, _SESSION_MERGED, _DEVICE_ATTRIBUTE = 6, 11, 12, 3


def process(block: Block) -> int:
    """The number of the process that a block is of; 0 where it does not say. Raises Malformed
    where the header cannot be read."""
    for number, value in fields(block.header):
        if number == _HEADER_PROCESS and isinstance(value, bytes):
            return next(
                (entry for part, entry in fields(value) if part == 1 and isinstance(entry, int)), 0
            )
    return 0


def command_line(frame: Framing) -> str:
    """The command line of ncu, words parted by blanks without quotes; empty where the report has
    none (before 2022.4, or opened and saved again). Raises Malformed where a header cannot be
    read."""
    for session in _sessions(frame):
        for part, line in fields(session):
            if part == _SESSION_COMMAND and isinstance(line, bytes):
                return line.decode("utf-8", "replace")
    return ""


def devices(frame: Framing) -> tuple[Mapping[bytes, float | bytes | None], ...]:
    """The attributes of each device of the session, by the names that launches give them too.
    Raises Malformed where a header cannot be read."""
    found = []
    for session in _sessions(frame):
        for part, device in fields(session):
            if part == _SESSION_DEVICE and isinstance(device, bytes):
                attributes: dict[bytes, float | bytes | None] = {}
                for number, attribute in fields(device):
                    entry = (
                        dict(fields(attribute))
                        if number == _DEVICE_ATTRIBUTE and isinstance(attribute, bytes)
                        else {}
                    )
                    name, value = entry.get(1), entry.get(2)
                    if isinstance(name, bytes) and isinstance(value, bytes):
                        attributes[name] = _scalar(value)
                found.append(attributes)
    return tuple(found)


def merged(frame: Framing) -> bool:
    """Whether the report was made of several. Raises Malformed where a header cannot be read."""
    return any(
        part == _SESSION_MERGED and value
        for session in _sessions(frame)
        for part, value in fields(session)
    )


def _sessions(frame: Framing) -> Iterator[bytes]:
    for block in frame.blocks:
        for number, session in fields(block.header):
            if number == _HEADER_SESSION and isinstance(session, bytes):
                yield session


class Text(Enum):
    """Kinds of text, for redaction."""

    KEEP = auto()
    """A name of a kernel, a metric, a section: it stays."""
    LABEL = auto()
    """What the profiler or the driver writes; such fields hold nothing private on purpose."""
    LAYOUT = auto()
    """Labels in messages that are not listed here: the description of a section or a chart."""
    TEXT = auto()
    """What a program or its user writes, of any kind."""
    WHOLE = auto()
    """Private as a whole."""
    HOST = auto()
    """Private as a whole, and wherever else it stands."""
    FILE = auto()
    """The path of a source file."""
    FOLDER = auto()
    """The path of a folder of source files."""
    CODE = auto()
    """Source code, by lines."""
    QUOTE = auto()
    """What comes from source code: a line of it, the name of a function on the host."""
    BINARY = auto()
    """Machine code and the like, with texts in it."""
    WIDE = auto()
    """A text in UTF-16."""
    WIDEST = auto()
    """A text in UTF-32."""
    NUMBERS = auto()


#: What each field of a message holds: text of a kind, or a message. A field that is not in it was
#: not known when this was written. Field numbers are those of the format's own description, which
#: the profiler's Python module (2026.3.1) carries.
Shape = Mapping[int, "Text | Shape"]
_K, _L, _T, _W, _Y, _N = Text.KEEP, Text.LABEL, Text.TEXT, Text.WHOLE, Text.LAYOUT, Text.NUMBERS
_VALUE: Final[Shape] = {1: _L}
#: The operating system, its build, processor, architecture; the host's name and its addresses.
_SYSTEM: Final[Shape] = {1: _L, 2: _W, 3: _L, 4: _L, 5: Text.HOST, 7: {1: _W}}
#: Path, working folder, arguments and environment of the program; then the profiler's settings, of
#: which the filters come from the command line, and its own command line.
_PROGRAM: Final[Shape] = {1: _W, 2: _W, 3: _W, 4: _W}
_SETTINGS: Final[Shape] = {
    4: _L, 5: {1: _W, 2: _L, 3: _W, 7: _W}, 6: {2: _L}, 7: _L, 8: _L, 9: _N, 11: _L, 13: _N, 14: _L, 15: _L,
}  # fmt: skip
_SESSION_DATA: Final[Shape] = {
    3: _SYSTEM, 4: _SYSTEM, 5: {1: {1: _K, 2: _L}}, _SESSION_DEVICE: {2: _K, _DEVICE_ATTRIBUTE: {1: _K, 2: _VALUE}}, 7: _W, 8: {1: _K, 2: _K},
    9: _PROGRAM, 10: _SETTINGS, 11: _W,
}  # fmt: skip
HEADER: Final[Shape] = {
    _HEADER_SESSION: _SESSION_DATA, _HEADER_STRINGS: {1: _K}, _HEADER_PROCESS: {2: Text.HOST, 3: _W},
}  # fmt: skip
SOURCE: Final[Shape] = {
    2: Text.CODE, 3: Text.CODE, SOURCE_CODE: Text.BINARY, _SOURCE_FILES: {1: {1: Text.FILE, 2: Text.CODE}},
    SOURCE_FUNCTIONS: {1: {1: _K}, 2: {1: _K}},
}  # fmt: skip
#: A launch has thousands of numbers and few texts of these.
METRIC: Final[Shape] = {_METRIC_VALUE: _VALUE, METRIC_INSTANCE: {1: _VALUE, 2: _VALUE, 3: _VALUE}}
_COMMENT: Final[Shape] = {1: {1: _K}, 2: _W, 3: _W}
_RULE_ITEM: Final[Shape] = {
    1: {1: _T, 4: _L}, 2: _Y, 3: _Y, 4: _Y, 5: _Y, 6: {1: _K}, 7: _Y, 8: {2: _K, 5: _T}, 9: _Y, 10: _N, 11: _Y,
    12: {1: _Y, 2: {1: _L, 4: Text.QUOTE, 5: _N, 6: _N, 7: _Y}},
}  # fmt: skip
_RULE: Final[Shape] = {1: _K, 2: _K, 3: {1: _RULE_ITEM}, 4: _K, 5: {4: _T, 6: Text.FILE}}
_NVTX_EVENT: Final[Shape] = {3: _N, 4: {8: _T}, 5: {2: _T}}
_NVTX: Final[Shape] = {
    1: {2: _T, 3: {2: _T}, 4: {2: {2: _T}}}, 2: {2: {3: {1: _T, 2: _NVTX_EVENT}}}, 3: {3: {2: _T, 3: _NVTX_EVENT}},
}  # fmt: skip
_STACK: Final[Shape] = {1: {1: _W, 3: Text.FILE, 4: Text.QUOTE}}
_PM: Final[Shape] = {1: _K, 2: _N}
RESULT: Final[Shape] = {
    _RESULT_MANGLED: _K, _RESULT_FUNCTION: _K, 7: _K, 9: _N, _GRID: _N, _BLOCK: _N, 12: _W, RESULT_METRIC: METRIC, _RESULT_SOURCES: SOURCE, 17: _Y,
    18: _COMMENT, 19: _RULE, 21: _NVTX, 24: {2: _L}, 25: _N, 26: _W, 27: _W, 28: _STACK, 31: _K, 32: _STACK, 33: Text.BINARY, 34: Text.BINARY,
    36: _PM, 37: _N, 38: {1: _N, 2: _N, 3: _K, 4: {2: _T, 3: _T}}, 39: _K,
}  # fmt: skip
_RANGE_RESULT: Final[Shape] = {
    3: _W, 4: METRIC, 7: _Y, 8: _COMMENT, 10: _NVTX, 12: _N, 13: _W, 14: _STACK, 15: _N, 17: _STACK, 18: Text.BINARY, 19: Text.BINARY,
    20: _RULE, 22: _PM, 23: _K,
}  # fmt: skip
_COMMANDS_RESULT: Final[Shape] = {
    3: _W, 4: METRIC, 7: _Y, 8: _COMMENT, 10: _NVTX, 13: _N, 14: _W, 15: _W, 16: _STACK, 17: _N, 18: _L, 20: _N, 21: _RULE, 22: _STACK,
    23: Text.BINARY, 24: Text.BINARY, 26: _PM, 27: _K,
}  # fmt: skip
_GRAPH_RESULT: Final[Shape] = {
    3: _W, 4: METRIC, 7: _Y, 8: _COMMENT, 10: _NVTX, 13: _N, 14: _W, 15: _W, 16: _STACK, 17: _N, 19: _STACK, 20: Text.BINARY, 21: Text.BINARY,
    22: _RULE, 24: _PM, 25: _N, 26: _K,
}  # fmt: skip
#: A graph's record: its nodes with their names and what they do, its edges.
GRAPH: Final[Shape] = {
    6: {2: _L, 3: {1: _T, 8: {1: _K}, 16: {4: _T}, 17: {3: _T}, 14: {2: _N}, 15: {2: _N}, 10: {4: _N}}}, 7: {3: _L, 4: {1: _N}},
}  # fmt: skip
#: The results in a block's payload, in order: the header field that counts them, and their message.
RESULTS: Final[tuple[tuple[int, Shape], ...]] = (
    (2, RESULT), (7, _RANGE_RESULT), (8, _COMMANDS_RESULT), (9, _GRAPH_RESULT),
)  # fmt: skip
