"""Fields of a report's protobuf messages, by the schema that Nsight Compute installs
(extras/FileFormat; a test compares them), and seen in files of ncu 2020.3 to 2025.3.

The profiler's own module reads the metrics. This reads the few things that it does not give (which
machine code a launch ran) and what a check of the module's answers needs. Field numbers are named
here and nowhere else. Machine code is a 64-bit ELF file (System V ABI, chapter 4)."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from ncu_toolkit.base.model import Frame
from ncu_toolkit.kernel.report.framing import (
    FileBlock,
    Framing,
    Malformed,
    encoded,
    fields,
    one_field,
    read_varint,
)

ELF_MAGIC: Final = b"\x7fELF"
ELF_HEADER: Final = struct.Struct("<IIQQQQIIQQ")
"""A section's header in the file: the offset of the name, then the fields of `Section`."""
SIZE_AT: Final = 32
SIZE_BYTES: Final = 8
"""Place of the section's size in its header."""
_NO_BYTES: Final = 8  # the type of a section that takes no room in the file
_TABLE_AT, _COUNTS_AT = 0x28, 0x3A
#: Bytes in which a section's name ends: mangled names of templates have thousands.
_LONGEST_NAME: Final = 1 << 14


class Section(NamedTuple):
    """A section as its header, at `header`, has it: `start` and `size` in the file (`in_file`) may
    lie outside of it."""

    name: bytes
    kind: int
    flags: int
    address: int
    start: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int
    header: int

    @property
    def in_file(self) -> bool:
        return self.kind != _NO_BYTES


def elf_sections(elf: bytes) -> list[Section]:
    """The sections in the order of their headers; none where the headers cannot be followed."""
    found = []
    try:
        (table,) = struct.unpack_from("<Q", elf, _TABLE_AT)
        size, count, names = struct.unpack_from("<HHH", elf, _COUNTS_AT)
        texts = ELF_HEADER.unpack_from(elf, table + names * size)[4]
        for at in range(table, table + count * size, size):
            name, *fields = ELF_HEADER.unpack_from(elf, at)
            start = texts + name
            end = elf.index(b"\0", start, start + _LONGEST_NAME)
            found.append(Section._make((elf[start:end], *fields, at)))
    except (struct.error, ValueError, OverflowError):
        return []
    return found


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
RESULT_MANGLED: Final = 5
RESULT_FUNCTION: Final = 6
_GRID, _BLOCK = 10, 11
RESULT_METRIC: Final = 13
_RESULT_SOURCES: Final = 15


def _entries(message: int | bytes, number: int = 0) -> Iterator[dict[int, int | bytes]]:
    """The messages within a message as their fields by number: all, or those of one field."""
    for part, entry in fields(message) if isinstance(message, bytes) else ():
        if isinstance(entry, bytes) and number in (0, part):
            yield dict(fields(entry))


@dataclass(frozen=True)
class SourceMessage:
    """A source message. `problem` says why what follows in it cannot be read."""

    offset: int = field(default=0, compare=False)
    identifier: int = 0
    process: int = 0
    """The process whose module it is: two processes may use the same id."""
    code: bytes = field(default=b"", repr=False)
    """The machine code, even if it is no ELF file; empty where a recording blanked it."""
    functions: Mapping[bytes, int] = field(default_factory=dict)
    """Addresses by mangled name."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Source text by file name, where the report holds it."""
    problem: str = ""

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the machine code; empty without any."""
        return hashlib.sha256(self.code).digest() if self.code.startswith(ELF_MAGIC) else b""

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The sections of the machine code."""
        return tuple(elf_sections(self.code)) if self.digest else ()

    @cached_property
    def _texts(self) -> Mapping[bytes, Section]:
        return {each.name: each for each in self.sections}

    def text(self, function: bytes) -> bytes:
        """The machine code of a function; empty where it is not there."""
        found = self._texts.get(b".text." + function)
        return self.code[found.start : found.start + found.size] if found else b""


def sources(frame: Framing) -> tuple[SourceMessage, ...]:
    """The sources in file order."""
    return tuple(
        read_source(frame.data[offset : offset + length], offset, process(block))
        for block in frame.blocks
        for offset, length in block.sources
    )


def read_source(message: bytes, offset: int = 0, process: int = 0) -> SourceMessage:
    """The source message at `offset`."""
    identifier, code, problem = 0, b"", ""
    functions: dict[bytes, int] = {}
    files: dict[str, str] = {}
    try:
        for number, value in fields(message):
            if isinstance(value, int):
                identifier = value if number == _SOURCE_ID else identifier
            elif number == SOURCE_CODE:
                code = value if value.strip(b"\0") else b""
            elif number == _SOURCE_FILES:
                for parts in _entries(value):
                    file, text = parts.get(_FILE_NAME), parts.get(_FILE_TEXT)
                    if isinstance(file, bytes) and isinstance(text, bytes) and text:
                        files[file.decode(errors="replace")] = text.decode(errors="replace")
            elif number == SOURCE_FUNCTIONS:
                for parts in _entries(value):
                    name, base = parts.get(_FUNCTION_NAME), parts.get(_FUNCTION_BASE)
                    if isinstance(name, bytes) and isinstance(base, int):
                        functions[name] = base
    except Malformed as error:
        problem = str(error)
    return SourceMessage(offset, identifier, process, code, functions, files, problem)


class Modules:
    """The modules of a report by process and id.

    ncu writes a module's code with the kernel that was launched first, and its other functions in
    a message of the same id at the end of the file, without the code."""

    def __init__(self, sources: Iterable[SourceMessage]) -> None:
        parts: dict[tuple[int, int], list[SourceMessage]] = {}
        for source in sources:
            if not source.problem:
                parts.setdefault((source.process, source.identifier), []).append(source)
        self._of = {key: _joined(found) for key, found in parts.items()}
        self.ids = {identifier for _, identifier in parts}

    def of(self, process: int, identifier: int) -> tuple[SourceMessage, ...]:
        """One module, or several where the code of an id differs; of all processes where this one
        has none of that id."""
        if (process, identifier) in self._of:
            return self._of[process, identifier]
        return tuple(
            each for (_, id_), found in self._of.items() if id_ == identifier for each in found
        )


def _joined(parts: Sequence[SourceMessage]) -> tuple[SourceMessage, ...]:
    """The messages of an id as one, or as they are where their contents differ."""
    first = next((part for part in parts if part.code), parts[0])
    functions: dict[bytes, int] = {}
    files: dict[str, str] = {}
    for part in parts:
        moved = any(functions.get(name, at) != at for name, at in part.functions.items())
        if moved or part.code not in (b"", first.code):
            return tuple(parts)
        functions |= part.functions
        files = {**part.files, **files}
    return (replace(first, functions=functions, files=files),)


@dataclass(frozen=True)
class Code:
    """The machine code that a launch ran. The defaults are for files that do not say."""

    digest: bytes = b""
    """Of the module's code and the function's name."""
    base: int | None = None
    """The address that the function was loaded at; None without a function table (before 2022)."""
    embedded: bool = False
    """Whether the code is in the file."""
    files: Mapping[str, str] | None = field(default=None, compare=False)
    """Source text by file name; None if unknown. NVIDIA's module gives the same, but takes a
    quarter of a second for each kernel of a large report."""
    text: bytes = field(default=b"", compare=False, repr=False)
    """The function's own machine code; empty where the file has none, or several of that name."""
    module: tuple[int, int] | None = field(default=None, compare=False)
    """The process and the id of the module that it was loaded with."""


UNKNOWN: Final = Code()


def codes(frame: Framing, modules: Modules) -> Iterator[Code]:
    """The code of each launch in file order; unknown with several sources, or where the code of one
    id differs."""
    made: dict[tuple[object, ...], Code] = {}
    for block, _, message in frame.results():
        try:
            who, of = identity(message), process(block)
        except Malformed:
            yield UNKNOWN
            continue
        key = (who.mangled, of, *who.sources)
        if key not in made:
            made[key] = _code(who.mangled, [modules.of(of, source) for source in who.sources])
        yield made[key]


def _code(mangled: bytes, sources: Sequence[tuple[SourceMessage, ...]]) -> Code:
    parts = list(itertools.chain(*sources))
    texts = [text for part in parts if (text := part.text(mangled))]
    text = texts[0] if len(texts) == 1 else b""
    if len(sources) != 1 or len(parts) != 1:
        return Code(text=text)
    (source,) = parts
    digest = hashlib.sha256(source.digest + mangled).digest()
    base = source.functions.get(mangled)
    module = source.process, source.identifier
    return Code(digest, base, bool(source.digest), source.files, text, module)


def functions(frame: Framing, field: int = RESULT_FUNCTION) -> tuple[bytes, ...]:
    """The names of the functions that were launched, or mangled ones, each once, in file order."""
    found: dict[bytes, None] = {}
    for _, _, message in frame.results():
        with contextlib.suppress(Malformed):
            names = (v for n, v in fields(message) if n == field and isinstance(v, bytes))
            found |= dict.fromkeys(itertools.islice(names, 1))
    return tuple(found)


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


def durations(frame: Framing) -> list[float]:
    """The time of each launch in nanoseconds, in file order; 0 where it is not written as usual."""
    names = metric_names(frame)
    if _TIME not in names:
        return [0.0] * frame.declared_launches
    index = encoded(names.index(_TIME))
    head, found = b"\x08" + index + b"\x12\x09\x19", []
    for _, _, message in frame.results():
        at = message.find(head) + len(head)
        found.append(
            _UNPACK(message[at : at + 8])[0] if len(head) <= at <= len(message) - 8 else 0.0
        )
    return found


def metric_names(frame: Framing) -> list[bytes]:
    """The table of metric names that results refer to by index."""
    names: list[bytes] = []
    for block in frame.blocks:
        for number, value in fields(block.header):
            if number == _HEADER_STRINGS and isinstance(value, bytes):
                names += [name for _, name in fields(value) if isinstance(name, bytes)]
    return names


#: Runs of floating-point metrics without instances, which most are (ncu 2021 and newer): a two-byte
#: index of the name, a double, a small number. Each run is unpacked at once: a loop over the fields
#: took most of the time of checking a report.
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
#: Runs of whole numbers without instances, by the bytes of the name's index and of the number; and
#: the two of each.
_WHOLES: Final = re.compile(
    b"(?:%b)+" % b"|".join(
        rb"\x6a%b\x08[\x80-\xff]{%d}[\x00-\x7f]\x12%b\x28[\x80-\xff]{%d}[\x00-\x7f]\x20[\x00-\x7f]"
        % (re.escape(bytes([index + size + 6])), index - 1, re.escape(bytes([size + 1])), size - 1)
        for size in range(1, 10)
        for index in (2, 1)
    )
)  # fmt: skip
_WHOLE: Final = re.compile(rb"\x6a.\x08" + _VARINT + rb"\x12.\x28" + _VARINT + rb"\x20.", re.DOTALL)
_UNPACK: Final = struct.Struct("<d").unpack
_INSTANCE_TAG, _LAST_TAG = METRIC_INSTANCE << 3 | 2, 4 << 3


_TIME: Final = b"gpu__time_duration.sum"


def _integer(varint: bytes) -> int:
    """The number of a varint of at most ten bytes."""
    value = 0
    for byte in reversed(varint):
        value = value << 7 | byte & 0x7F
    return value


def scalars(
    message: bytes, names: Sequence[bytes]
) -> tuple[Identity, dict[bytes, float | bytes | None]]:
    """A launch's identity, and its metrics by name without their instances: a number, text, or None
    where there is no value or one of an unknown kind.

    Raises:
        Malformed: a part cannot be read, or a name is not in the table: NVIDIA's module gives no
            launch of such a report.
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
            run = _WHOLES.match(message, at)
            if run is not None:
                for index, whole in _WHOLE.findall(run[0]):
                    found[_NUMBERS[index]] = _COUNTS[whole]
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
        for part, field_value in fields(content):
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


#: Encoded lengths of a count.
_WIDTHS: Final = range(1, 11)
_SECTIONS: Final = 17
_UINT64: Final = (1 << 64) - 1


@lru_cache(maxsize=16)
def _entries_of(width: int) -> tuple[re.Pattern[bytes], ...]:
    """What matches a table with keys of this many bytes that has counts alone, one that has figures
    too, and the count and the key of each entry of the first."""

    def byte(number: int) -> bytes:
        return re.escape(bytes([number]))

    key = rb"\x0a%b\x28[\x80-\xff]{%d}[\x00-\x7f]\x12" % (byte(width + 1), width - 1)
    counts = [
        rb"%b%b%b\x28[\x80-\xff]{%d}[\x00-\x7f]" % (byte(width + size + 6), key, byte(size + 1), size - 1)
        for size in _WIDTHS
    ]  # fmt: skip
    figure = rb"%b%b\x09\x19.{8}" % (byte(width + 14), key)
    whole = (rb"(?:\x1a(?:%b))+" % b"|".join(each) for each in (counts, [*counts, figure]))
    entry = rb"\x1a.\x0a.\x28%b\x12.\x28%b"
    size, number = b".{%d}" % width, rb"[\x80-\xff]*[\x00-\x7f]"
    parts = (entry % (size, b"(%b)" % number), entry % (b"(%b)" % size, number))
    return tuple(re.compile(each, re.DOTALL) for each in (*whole, *parts))


def lighter(
    message: bytes,
    names: Sequence[str],
    read: Container[str],
    kept: Container[str],
    wanted: Container[bytes],
) -> tuple[bytes, dict[str, bytes]]:
    """A launch's message without its tables of numbers, and without what sections show; and the
    tables of the metrics to be `read` (`CountTable`). Tables of `kept` metrics stay, and those of
    another form. Of a run of metrics (`_RUN`) those with a `wanted` index stay, and the first: a
    launch without any is taken for broken.

    NVIDIA's module takes 20 bytes of memory for each byte of a table, and a hundredth of a second
    for those of a launch. Raises Malformed."""
    pieces: list[bytes] = []
    tables: dict[str, bytes] = {}
    at = copied = 0
    end = len(message)
    while at < end:
        if message[at] != _METRIC_TAG:
            number, _, after = one_field(message, at, end)
            if number == _SECTIONS:
                pieces.append(message[copied:at])
                copied = after
            at = after
            continue
        if run := _RUN.match(message, at):
            size = _RECORD.size
            first, *rest = (message[i : i + size] for i in range(at, run.end(), size))
            pieces += [message[copied:at], first, *(one for one in rest if one[3:5] in wanted)]
            at = copied = run.end()
            continue
        if run := _WHOLES.match(message, at):
            at = run.end()
            continue
        start = _START.match(message, at)
        if start is None:
            _, _, at = one_field(message, at, end)
            continue
        content, after = start.end(1), start.end()
        stop, index = content + _integer(start[1]), _integer(start[2])
        if stop > end:
            raise Malformed("a field runs past the end of its message")
        name = names[index] if index < len(names) else ""
        if after + 4 < stop and message[after] == _INSTANCE_TAG and name not in kept:
            last = stop - 2 if message[stop - 2] == _LAST_TAG else stop
            width = message[after + 3] - 1
            if 0 < width <= _WIDTHS[-1]:
                only, both, *_ = _entries_of(width)
                table = message[after:last]
                if (only if name in read else both).fullmatch(table):
                    if name in read:
                        tables[name] = table
                    metric = message[content:after] + message[last:stop]
                    pieces += [message[copied : at + 1], bytes([len(metric)]), metric]
                    copied = stop
        at = stop
    pieces.append(message[copied:])
    return b"".join(pieces), tables


class _Numbers(dict[bytes, Any]):
    """Numbers by their encoding: most come again, and decoding one takes ten times as long."""

    def __init__(self, kind: type[int | float]) -> None:
        self._kind = kind

    def __missing__(self, varint: bytes) -> int | float:
        if len(self) > _REMEMBERED:
            self.clear()
        self[varint] = value = self._kind(_integer(varint) & _UINT64)
        return value


_REMEMBERED: Final = 1 << 17
_NUMBERS: Final = _Numbers(int)
_COUNTS: Final = _Numbers(float)
#: Bytes of an entry beside its key and its count, and those before its key.
_AROUND, _BEFORE = 8, 5


class CountTable:
    """A table that `lighter` took out, of keys and counts."""

    def __init__(self, entries: bytes) -> None:
        self._entries, self._width, step = entries, entries[3] - 1, entries[1] + 2
        lengths = entries[1::step]
        self._step = step if lengths == lengths[:1] * (len(entries) // step) else 0
        """The length of its entries, if all have the same."""

    @cached_property
    def _encoded(self) -> list[bytes]:
        return _entries_of(self._width)[2].findall(self._entries)

    @cached_property
    def counts(self) -> list[float]:
        if self._step == _AROUND + self._width + 1:
            return list(map(float, self._entries[self._step - 1 :: self._step]))
        return list(map(_COUNTS.__getitem__, self._encoded))

    @cached_property
    def ends(self) -> tuple[int, bytes, bytes]:
        """How many entries it has, and the keys of the first and the last, encoded."""
        size = len(self._entries)
        if self._step:
            return size // self._step, self._key(0), self._key(size - self._step)
        last = size - _AROUND - self._width - len(self._encoded[-1])
        return len(self._encoded), self._key(0), self._key(last)

    @property
    def keys(self) -> list[int]:
        return list(map(_NUMBERS.__getitem__, _entries_of(self._width)[3].findall(self._entries)))

    def _key(self, start: int) -> bytes:
        return self._entries[start + _BEFORE : start + _BEFORE + self._width]


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
    """A launch without its metrics. In a profiled range or graph numbers have other meanings."""

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
            if run := _RUN.match(message, at) or _WHOLES.match(message, at):
                at = run.end()
                continue
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
        elif number == RESULT_MANGLED:
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


#: The kind of a kernel's launch.
KERNEL: Final = 2
#: Fields of a launch's stacks, native and Python's, by the field of the header that counts its kind.
_STACKS: Final = {2: (28, 32), 7: (14, 17), 8: (16, 22), 9: (16, 19)}
_STACK_FRAME: Final = 1
# in a frame: the library or program, source file, function, line
_FRAME_MODULE, _FRAME_FILE, _FRAME_FUNCTION, _FRAME_LINE = 1, 3, 4, 5


def kinds(header: bytes) -> Iterator[int]:
    """The kind of each result of a block, as the field of the header that counts it."""
    counts = {number: value for number, value in fields(header) if isinstance(value, int)}
    for kind in _STACKS:
        yield from itertools.repeat(kind, counts.get(kind, 0))


def of_report(header: bytes) -> bool:
    """Whether a block's header holds what other blocks need: of the session, or names of metrics."""
    return any(value and n in (_HEADER_SESSION, _HEADER_STRINGS) for n, value in fields(header))


def modules_of(kind: int, result: bytes) -> tuple[int, ...] | None:
    """The ids of the modules that a result of some kind needs; None where it may need any."""
    with contextlib.suppress(Malformed):
        return identity(result).sources if kind == KERNEL else None
    return None


def stacks(frame: Framing) -> dict[int, tuple[Frame, ...]]:
    """The calls on the host that led to each launch, by its place in the file. Either all launches
    have them (`--call-stack`) or none."""
    found: dict[int, tuple[Frame, ...]] = {}
    of_all = itertools.chain.from_iterable(kinds(block.header) for block in frame.blocks)
    for at, (kind, (_, _, message)) in enumerate(zip(of_all, frame.results(), strict=False)):
        with contextlib.suppress(Malformed):
            native, python = _STACKS[kind]
            calls = [*_frames(message, python, True), *_frames(message, native, False)]
            if calls:
                found[at] = tuple(calls)
        if not found:
            return {}
    return found


def _frames(message: bytes, number: int, python: bool) -> Iterator[Frame]:
    for part, stack in _but_metrics(message):
        for parts in _entries(stack, _STACK_FRAME) if part == number else ():
            line = parts.get(_FRAME_LINE, 0)
            yield Frame(
                _text(parts.get(_FRAME_FUNCTION)), _text(parts.get(_FRAME_FILE)), line if isinstance(line, int) else 0,
                _text(parts.get(_FRAME_MODULE)), python,
            )  # fmt: skip


def _text(value: int | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


# in a block's header: the session's devices and their attributes; the process that the block is of
_HEADER_SESSION, _HEADER_PROCESS = 3, 6
#: When the session began, in seconds since 1970, and the first second of 2020.
_SESSION_TIME, _2020 = 2, 1577836800
_SESSION_DEVICE, _SESSION_COMMAND, _SESSION_MERGED, _DEVICE_ATTRIBUTE = 6, 11, 12, 3


def process(block: FileBlock) -> int:
    """The number of the process that a block is of; 0 where it does not say."""
    with contextlib.suppress(Malformed):
        for parts in _entries(block.header, _HEADER_PROCESS):
            number = parts.get(1)
            return number if isinstance(number, int) else 0
    return 0


def _session(frame: Framing) -> Iterator[tuple[int, int | bytes]]:
    """The fields of the session. Raises Malformed where a header cannot be read."""
    for block in frame.blocks:
        for number, session in fields(block.header):
            if number == _HEADER_SESSION and isinstance(session, bytes):
                yield from fields(session)


def command_line(frame: Framing) -> str:
    """ncu's command line, without quotes; empty where the report has none (before 2022.4, or saved
    again). Raises Malformed where a header cannot be read."""
    lines = (v for n, v in _session(frame) if n == _SESSION_COMMAND and isinstance(v, bytes))
    return next(lines, b"").decode("utf-8", "replace")


def devices(frame: Framing) -> tuple[Mapping[bytes, float | bytes | None], ...]:
    """The attributes of each device of the session, named as in launches. Raises Malformed."""
    return tuple(
        {
            name: _scalar(value)
            for entry in _entries(device, _DEVICE_ATTRIBUTE)
            if isinstance(name := entry.get(1), bytes) and isinstance(value := entry.get(2), bytes)
        }
        for number, device in _session(frame)
        if number == _SESSION_DEVICE and isinstance(device, bytes)
    )


def unnamed_version(frame: Framing) -> str:
    """ "2019" for a report of Nsight Compute 2019, which names neither its version nor the process of
    a block, as all of 284 reports since 2020.2 do; else empty. Raises Malformed."""
    named = any(n == _HEADER_PROCESS for block in frame.blocks for n, _ in fields(block.header))
    times = [v for n, v in _session(frame) if n == _SESSION_TIME and isinstance(v, int)]
    return "2019" if times and not named and max(times) < _2020 else ""


def merged(frame: Framing) -> bool:
    """Whether the report was made of several. Raises Malformed where a header cannot be read."""
    return any(number == _SESSION_MERGED and value for number, value in _session(frame))


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
    """Private as a whole, and wherever else it occurs."""
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


#: What each field of a message holds: text of a kind, or a message; unknown fields are left out.
#: Field numbers are those of the description in the profiler's Python module (2026.3.1).
Shape = Mapping[int, "Text | Shape"]
_K, _L, _T, _W, _Y, _N = Text.KEEP, Text.LABEL, Text.TEXT, Text.WHOLE, Text.LAYOUT, Text.NUMBERS
_VALUE: Final[Shape] = {1: _L}
#: The operating system, its build, processor, architecture; the host's name and its addresses.
_SYSTEM: Final[Shape] = {1: _L, 2: _W, 3: _L, 4: _L, 5: Text.HOST, 7: {1: _W}}
#: Path, working folder, arguments and environment of the program; then ncu's settings and command.
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
    RESULT_MANGLED: _K, RESULT_FUNCTION: _K, 7: _K, 9: _N, _GRID: _N, _BLOCK: _N, 12: _W, RESULT_METRIC: METRIC, _RESULT_SOURCES: SOURCE, 17: _Y,
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
#: The messages of results by the field of the header that counts their kind.
RESULTS: Final[Mapping[int, Shape]] = {
    2: RESULT,
    7: _RANGE_RESULT,
    8: _COMMANDS_RESULT,
    9: _GRAPH_RESULT,
}
