"""Remove private text from a report: strings are replaced by neutral ones of the same length, and
machine code of other people's libraries is blanked.

The format says what each field holds (messages.py). A field that holds a host's name, a command
line, an environment or an address is replaced as a whole; of a source file's path the folders are;
only in fields that hold text of any kind are patterns used (private.py). Every replacement keeps
its length, so the file's framing and offsets stay whole and the profiler's module reads it as
before. The same text becomes the same text everywhere, so that what refers to it by name still
does."""

from __future__ import annotations

import getpass
import itertools
import re
import socket
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from ncu_toolkit.report import framing, messages, private
from ncu_toolkit.report.framing import Framing, Malformed, fields
from ncu_toolkit.report.messages import SOURCE_CODE, SOURCE_FUNCTIONS, Shape, Text
from ncu_toolkit.report.private import Rules
from ncu_toolkit.sass import elf

#: Deepest nesting of messages that is searched: deeper fields of real files are numbers.
_DEEPEST = 12
#: A text in binary data ends at a zero byte. Bytes that look like text by chance hold nothing
#: private.
_CHARACTER = rb"(?:[\t\n\x20-\x7e]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})"
_STRING: Final = re.compile(rb"(?<![\x20-\x7e])" + _CHARACTER + rb"{4,}(?=\0|\Z)")
_WIDE: Final = re.compile(rb"(?:[\x20-\x7e]\0){2}(?:(?!\0\0)[\s\S]{2}){2,}", re.DOTALL)
#: UTF-32, as wide texts are on Linux. Arrays of small numbers look alike, so all of it has to be
#: printable, up to a zero.
_WIDEST: Final = re.compile(
    rb"(?:[\x20-\x7e]\0\0\0){3}(?:(?:[\t\n\r\x20-\x7e\xa0-\xff]\0|[\s\S][\x01-\xff])[\0\1]\0){3,}(?=\0{4})"
)
#: A string that is a path as a whole; in debug data one that ends as a path, and one with a file's
#: name at its end.
_AS_PATH: Final = re.compile(rb"\A(?P<path>(?:\.{0,2}/[^/*%\s]|[A-Za-z]:[\\/]|\\\\)[^\n]*)\Z")
_IN_DEBUG: Final = re.compile(rb"\A[^\s\"/\\]*?(?P<path>(?:/|[A-Za-z]:[\\/]|\\\\)[^\"\n\t]*)\Z")
_FILE_NAME: Final = re.compile(rb"[^/\\]\.\w{1,12}\Z")
#: Three characters of UTF-8: what a metric's value has in it where it is text.
_WORDS: Final = re.compile(_CHARACTER + rb"{3}")
_SHORTEST_HOST, _SHORTEST_USER = 2, 3
#: Shortest name that is searched in every byte: shorter ones occur in numbers by chance.
_SHORTEST_SECRET: Final = 6


@dataclass(frozen=True)
class Scrubbed:
    """The scrubbed bytes and counts."""

    data: bytes
    replaced: int
    blanked_bytes: int


@dataclass(frozen=True)
class Private:
    """Private names in a report: hosts, users, and folders of its files."""

    names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def machine_names() -> tuple[str, ...]:
    """Names of this machine and its user, longest first, without common ones."""
    host = socket.gethostname()
    names = {*_host_names(host), *_host_names(socket.getfqdn())}
    try:
        names.add(getpass.getuser())
    except (KeyError, OSError):
        pass  # This uid has no name.
    return _longest_first(names, 1)


def _host_names(host: str) -> set[str]:
    """A host as it is written: with its domain, without, and the domain alone; an address has
    none."""
    short, _, domain = host.partition(".")
    return (
        {host, short, domain if "." in domain else ""} if re.search(r"[^\W\d]", short) else {host}
    )


def _longest_first(names: Iterable[str], shortest: int) -> tuple[str, ...]:
    found = {
        name for name in names if len(name) >= shortest and name.casefold() not in private.COMMON
    }
    return tuple(sorted(found, key=lambda name: (-len(name), name)))


@dataclass(frozen=True)
class Span:
    """Place and kind of a text in a file."""

    start: int
    end: int
    kind: Text

    def of(self, data: bytes) -> str:
        return data[self.start : self.end].decode("utf-8", "surrogateescape")


def _spans_of(message: bytes) -> Iterator[tuple[int, int, int]]:
    """Length-delimited top-level fields as (number, start, end). Where the message stops making
    sense, the rest of it is field 0."""
    at = start = 0
    try:
        while at < len(message):
            start = at
            tag, at = framing.read_varint(message, at)
            wire = tag & 7
            if wire == 0:
                _, at = framing.read_varint(message, at)
            elif wire == 2:
                length, at = framing.read_varint(message, at)
                if at + length > len(message):
                    break
                yield tag >> 3, at, at + length
                at += length
            elif wire in (1, 5):
                at += 8 if wire == 1 else 4
            else:
                break
        else:
            return
    except Malformed:
        pass
    yield 0, start, len(message)


def texts(data: bytes, frame: Framing) -> Iterator[Span]:
    """Where text stands in a report. Only whole fields: bytes beside a text are lengths and tags
    that may look like letters."""
    if not data.startswith(framing.MAGIC):
        yield Span(0, len(data), Text.TEXT)
        return
    if frame.problem:  # The rest cannot be parsed.
        yield Span(frame.intact_bytes, len(data), Text.TEXT)
    yield from _message(data, 8, 8 + int.from_bytes(data[4:8], "little"), {})
    for block in frame.blocks:
        start = block.offset + 4
        yield from _message(data, start, start + len(block.header), messages.HEADER)
        for offset, length in block.sources:
            yield from _message(data, offset, offset + length, messages.SOURCE)
        for offset, length in block.graphs:
            yield from _message(data, offset, offset + length, messages.GRAPH)
        for (offset, length), shape in zip(block.results, _shapes(block.header), strict=False):
            yield from _message(data, offset, offset + length, shape)


def _shapes(header: bytes) -> Iterator[Shape]:
    counts = {number: value for number, value in fields(header) if isinstance(value, int)}
    for number, shape in messages.RESULTS:
        yield from itertools.repeat(shape, counts.get(number, 0))
    yield from itertools.repeat({})


def _message(data: bytes, start: int, end: int, shape: Shape) -> Iterator[Span]:
    for number, a, b in _spans_of(data[start:end]):
        kind = shape.get(number, Text.BINARY if number == 0 else None)
        if kind is messages.METRIC:
            yield from _metric(data, start + a, start + b)
        elif kind is None:
            yield from _unlisted(data, start + a, start + b, Text.WHOLE, 0)
        elif isinstance(kind, Text):
            yield from _leaf(data, start + a, start + b, kind)
        else:
            yield from _message(data, start + a, start + b, kind)


def _leaf(data: bytes, start: int, end: int, kind: Text) -> Iterator[Span]:
    if kind is Text.LAYOUT:
        yield from _unlisted(data, start, end, Text.LABEL, 0)
    elif kind is Text.BINARY:
        yield from _binary(data, start, end)
    elif kind is not Text.NUMBERS and end > start:
        yield Span(start, end, kind)


def _metric(data: bytes, start: int, end: int) -> Iterator[Span]:
    """Instances of metrics are looked into only where text stands in them: most are numbers,
    millions of them."""
    if _WORDS.search(data, start, end) is None:
        return
    for number, a, b in _spans_of(data[start:end]):
        shape = messages.METRIC.get(number, {})
        if isinstance(shape, Mapping) and _WORDS.search(data, start + a, start + b) is not None:
            yield from _message(data, start + a, start + b, shape)


def _unlisted(data: bytes, start: int, end: int, kind: Text, depth: int) -> Iterator[Span]:
    """A field of which nothing is known is a message of fields, or text, or binary. A text that
    could be a message is taken for one: what is private in it is then a field of it."""
    content = data[start:end]
    if depth < _DEEPEST and _is_message(content):
        for _, a, b in _spans_of(content):
            yield from _unlisted(data, start + a, start + b, kind, depth + 1)
    elif _is_text(content):
        yield Span(start, end, kind)
    else:
        yield from _binary(data, start, end)


def _is_text(content: bytes) -> bool:
    """Whether the bytes are text: printable, and UTF-8 but for a quarter, as names in the code page
    of an older system are."""
    text = content.decode("utf-8", "surrogateescape")
    odd = sum("\udc80" <= char <= "\udcff" for char in text)
    return 4 * odd <= len(text) > 0 and all(
        char.isprintable() or char in "\n\r\t\0" or "\udc80" <= char <= "\udcff" for char in text
    )


def _is_message(content: bytes) -> bool:
    """Whether the bytes make sense as a message with texts or messages in it."""
    numbers = [number for number, _, _ in _spans_of(content)]
    return bool(numbers) and 0 not in numbers


def _binary(data: bytes, start: int, end: int) -> Iterator[Span]:
    content = data[start:end]
    sections = elf.sections(content) if content.startswith(elf.MAGIC) else []
    found = [
        (each.name.decode("utf-8", "replace"), each.start, each.start + each.size)
        for each in sections
        if each.in_file and each.start + each.size <= len(content)
    ]
    if not found:
        yield from _strings(data, start, end, Text.TEXT)
    for name, a, b in found:
        if name.startswith((".text", ".nv.capmerc.text")):
            continue
        if name in (".strtab", ".shstrtab"):
            yield from _strings(data, start + a, start + b, Text.KEEP)
        elif name.endswith(("debug_line", "debug_line_sass")):
            yield from _line_table(data, start + a, start + b)
        else:
            yield from _strings(data, start + a, start + b, Text.TEXT, debug="debug" in name)


def _strings(
    data: bytes, start: int, end: int, kind: Text, *, debug: bool = False
) -> Iterator[Span]:
    for found in _STRING.finditer(data, start, end):
        text = found.group()
        # in debug data bytes that are no text may stand before a path
        path = (_IN_DEBUG if debug else _AS_PATH).search(text)
        if path is None or kind is not Text.TEXT:
            yield Span(*found.span(), kind)
        else:
            file = Text.FILE if _FILE_NAME.search(text) else Text.FOLDER
            yield Span(found.start() + path.start("path"), found.end(), file)
    if kind is Text.TEXT:
        for pattern, wide in ((_WIDE, Text.WIDE), (_WIDEST, Text.WIDEST)):
            for found in pattern.finditer(data, start, end):
                yield Span(*found.span(), wide)


def _line_table(data: bytes, start: int, end: int) -> Iterator[Span]:
    """Folders and files of a DWARF line table, version 2 to 4 (DWARF 4, section 6.2.4); what is no
    such table is looked through for strings."""
    at = start
    while at + 10 <= end:
        length, version, header = struct.unpack_from("<IHI", data, at)
        after = at + 4 + length
        program = at + 10 + header
        if not (2 <= version <= 4 and program <= after <= end):
            yield from _strings(data, at, end, Text.TEXT, debug=True)
            return
        cursor = at + 10 + (5 if version < 4 else 6)
        cursor += max(data[cursor - 1] - 1, 0) if cursor <= end else 0  # lengths of the opcodes
        for table in range(2):
            while cursor < program and data[cursor]:
                stop = data.find(b"\0", cursor, program)
                if stop < 0:
                    return
                yield Span(cursor, stop, Text.FOLDER if table == 0 else Text.FILE)
                cursor = stop + 1
                try:
                    for _ in range(3 * table):
                        _, cursor = framing.read_varint(data, cursor)
                except Malformed:
                    return
            cursor += 1
        at = after


def _private(data: bytes, spans: Sequence[Span]) -> Private:
    hosts: set[str] = set()
    users: set[str] = set()
    folders: set[str] = set()
    for span in spans:
        if span.kind in (Text.KEEP, Text.LABEL, Text.WIDE, Text.WIDEST):
            continue
        text = span.of(data)
        if span.kind is Text.HOST and text not in private.LOOPBACK:
            hosts |= _host_names(text)
        users.add(private.user_of(text))
        if span.kind in (Text.FILE, Text.FOLDER, Text.WHOLE):
            folder = text if span.kind is Text.FOLDER else text[: text.rfind("/")]
            if re.fullmatch(r"(?:/[^/\0\n]+){2,}", folder):
                folders.add(folder)
    return Private(
        tuple(
            dict.fromkeys(
                [*_longest_first(hosts, _SHORTEST_HOST), *_longest_first(users, _SHORTEST_USER)]
            )
        ),
        tuple(sorted(folders)),
    )


def scrub(
    data: bytes,
    *,
    names: Iterable[str] = (),
    words: Iterable[str] = (),
    keep_code_of: Collection[str] | None = None,
    paths: bool = False,
    source: bool = False,
) -> Scrubbed:
    """Replace host names, addresses, home folders, command lines and the given names.

    Args:
        data: a whole report.
        names: further strings to replace, in kernel names too; their length in bytes stays, so
            mangled names stay well-formed.
        words: further names to replace as whole words in any case, not in kernel names.
        keep_code_of: kernel names whose SASS stays, the code of modules that hold none of them is
            blanked; None keeps all.
        paths: also replace the folders of every absolute path.
        source: also blank embedded source text and replace names of source files.
    """
    frame = framing.parse(data)
    output = bytearray(data)
    blanked = replaced = 0
    if keep_code_of is not None:
        for block in frame.blocks:
            for offset, length in block.sources:
                blanked += _blank_foreign(output, data, offset, length, keep_code_of)
    snapshot = bytes(output)
    spans = list(texts(snapshot, frame))
    found = _private(snapshot, spans)
    rules = _with_files(
        Rules(
            words=(*found.names, *words),
            names=tuple(names),
            folders=found.folders if paths else (),
            paths=paths,
            bases=source,
        ),
        [span.of(snapshot) for span in spans if span.kind is Text.FILE],
    )
    known: dict[tuple[Text, bytes], bytes] = {}
    for span in spans:
        text = snapshot[span.start : span.end]
        key = span.kind, text
        if key not in known:
            known[key] = _cleaned(text, span.kind, rules)
        if known[key] != text:
            output[span.start : span.end] = known[key]
            if span.kind is Text.CODE and source:
                blanked += len(text)
            else:
                replaced += 1
    return Scrubbed(bytes(output), replaced, blanked)


def _with_files(rules: Rules, files: Iterable[str]) -> Rules:
    """The rules with names for files that would otherwise be called alike, so that each source
    file stays one of its own."""
    if not rules.paths:
        return rules
    alike: dict[str, set[str]] = {}
    for file in files:
        alike.setdefault(rules.path(file), set()).add(file)
    twins: dict[str, str] = {}
    for originals in alike.values():
        for parts in itertools.zip_longest(
            *(re.split(r"[/\\]", file) for file in sorted(originals))
        ):
            different = sorted({part for part in parts if part})
            for number, part in enumerate(different[1:], 1):
                twins.setdefault(part, _numbered(rules, part, number))
    bases = {re.split(r"[/\\]", file)[-1] for file in files} if rules.bases else set()
    return replace(rules, twins=twins, files=tuple(sorted(base for base in bases if len(base) > 2)))


def _numbered(rules: Rules, part: str, number: int) -> str:
    plain = rules.base(part) if rules.bases else rules.component(part)
    stem, dot, extension = plain.partition(".")
    digits = str(number)
    return stem[: -len(digits)] + digits + dot + extension if len(stem) > len(digits) else plain


def _cleaned(content: bytes, kind: Text, rules: Rules) -> bytes:
    """A text of a report with everything private replaced; as long as before."""
    if kind in (Text.WIDE, Text.WIDEST):
        return _wide(content, rules, 2 if kind is Text.WIDE else 4)
    text = content.decode("utf-8", "surrogateescape")
    if kind is Text.KEEP:
        new = rules.names_only(text)
    elif kind is Text.LABEL:
        new = rules.label(text)
    elif kind in (Text.WHOLE, Text.HOST):
        new = text if text in private.LOOPBACK else private.blank(text)
    elif kind is Text.FILE:
        new = rules.path(text)
    elif kind is Text.FOLDER:
        new = rules.folder(text)
    elif kind is Text.CODE:
        new = private.empty(text) if rules.bases else rules.code(text)
    elif kind is Text.QUOTE and rules.bases:
        new = private.blank(text)
    else:
        new = rules.text(text)
    return new.encode("utf-8", "surrogateescape")


def _wide(content: bytes, rules: Rules, width: int) -> bytes:
    """UTF-16 or UTF-32: cleaned as ASCII, in which another script's letters are any letter."""
    units = [content[at : at + width] for at in range(0, len(content), width)]
    plain = "".join(
        chr(unit[0]) if not any(unit[1:]) and len(unit) == width and unit[0] < 128 else "q"
        for unit in units
    )
    new = rules.text(plain)
    return b"".join(
        unit if old == now else now.encode().ljust(width, b"\0")
        for unit, old, now in zip(units, plain, new, strict=True)
    )


def clean_text(text: str, *, words: Iterable[str] = ()) -> str:
    """Text of no report, a log or a command line, with addresses, home folders, folders of absolute
    paths and the given names replaced."""
    return Rules(words=tuple(words)).text(text)


def leftovers(
    data: bytes, *, names: Iterable[str] = (), paths: bool = False, source: bool = False
) -> list[str]:
    """Private text that is left in a report: the first proof after `scrub`, by the same rules.
    Each entry names the kind and the offset, not the string.

    Names and home folders are looked for in every byte of the file, whatever they are part of.
    """
    names = tuple(names)
    rules = Rules(names=names, paths=paths, bases=source)
    spans = texts(data, framing.parse(data))
    found = [
        f"text at offset {span.start}"
        for span in spans
        if _cleaned(text := data[span.start : span.end], span.kind, rules) != text
    ]
    for word, kind in (
        (b"/home/", "home folder"),
        (b"/Users/", "home folder"),
        (b"/root/", "home folder"),
        *((n.encode(), "name") for n in names),
    ):
        at = data.find(word)
        if at >= 0 and private.neutral(word.decode()) != word.decode():
            found.append(f"{kind} at offset {at}")
    return found


def survivors(before: bytes, after: bytes, *, words: Iterable[str] = ()) -> list[str]:
    """Private names of `before` that are left in `after`: the second proof after `scrub`, by
    search. Each entry names the kind and the offset, not the string.

    Host names, users and folders are looked for in every byte, as UTF-8, UTF-16, percent-escaped
    and in any case, but for names of kernels, metrics and sections, labels and machine code.
    """
    frame = framing.parse(before)
    spans = list(texts(before, frame))
    known = _private(before, spans)
    rest = bytearray(after)
    for span in spans:
        if span.kind in (Text.KEEP, Text.LABEL):
            rest[span.start : span.end] = bytes(span.end - span.start)
    searched = bytes(rest).lower()
    found = []
    for what, secrets in (("name", (*known.names, *words)), ("folder", known.folders)):
        for secret in secrets:
            if len(secret) < _SHORTEST_SECRET or private.neutral(secret) == secret:
                continue
            for needle in _written(secret):
                pattern = re.compile(
                    rb"(?<![a-z0-9_])" * (what == "name") + re.escape(needle) + rb"(?![a-z0-9_])"
                )
                place = pattern.search(searched)
                if place is not None:
                    found.append(f"{what} at offset {place.start()}")
    return found


def _written(text: str) -> set[bytes]:
    plain = text.encode("utf-8", "surrogateescape")
    wide = (text.encode(coding, "surrogatepass") for coding in ("utf-16-le", "utf-32-le"))
    escaped = (quote(plain, safe="").encode(), quote(plain).encode())
    return {way.lower() for way in (plain, *wide, *escaped)}


def replaceable(name: str) -> bool:
    """Whether a replacement would change the name."""
    return private.neutral(name) != name


def without_names(text: str, names: Iterable[str]) -> str:
    """Text with the names replaced as `scrub` does."""
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, private.neutral(name))
    return text


def _blank_foreign(
    output: bytearray, data: bytes, offset: int, length: int, keep: Collection[str]
) -> int:
    message = data[offset : offset + length]
    code, functions = b"", b""
    for number, value in fields(message):
        if isinstance(value, bytes) and number == SOURCE_CODE:
            code = value
        elif isinstance(value, bytes) and number == SOURCE_FUNCTIONS:
            functions += value
    if not code or any(name.encode() in functions for name in keep):
        return 0
    start = offset + message.index(code)
    output[start : start + len(code)] = bytes(len(code))
    return len(code)
