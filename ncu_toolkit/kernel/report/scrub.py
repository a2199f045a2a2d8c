"""Remove private text from a report: strings become neutral ones of the same length, and machine
code of other people's libraries is blanked.

Fields that hold a host's name, a command line, an environment or an address are replaced as a
whole, and the folders of source files' paths (messages.py says what each field holds). Patterns
serve for other text only (private.py). Lengths stay, so that the profiler's module reads the file
as before. The same text becomes the same text everywhere, so that references by name still work."""

import getpass
import itertools
import re
import socket
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from ncu_toolkit.kernel.report import cubin, framing, messages, private
from ncu_toolkit.kernel.report.framing import Framing, Malformed, one_field
from ncu_toolkit.kernel.report.messages import Shape, Text
from ncu_toolkit.kernel.report.private import Rules

#: Deepest nesting of messages that is searched: deeper fields of real files are numbers.
_DEEPEST = 12
#: A text in binary data ends at a zero byte. Chance matches hold nothing private.
_CHARACTER = rb"(?:[\t\n\x20-\x7e]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})"
_STRING: Final = re.compile(rb"(?<![\x20-\x7e])" + _CHARACTER + rb"{4,}(?=\0|\Z)")
_WIDE: Final = re.compile(rb"(?:[\x20-\x7e]\0){2}(?:(?!\0\0)[\s\S]{2}){2,}", re.DOTALL)
#: UTF-32, as on Linux, all printable up to a zero: arrays of small numbers look alike.
_WIDEST: Final = re.compile(
    rb"(?:[\x20-\x7e]\0\0\0){3}(?:(?:[\t\n\r\x20-\x7e\xa0-\xff]\0|[\s\S][\x01-\xff])[\0\1]\0){3,}(?=\0{4})"
)
#: A string that is a path as a whole; one in debug data that ends as a path, or as a file's name.
_AS_PATH: Final = re.compile(rb"\A(?P<path>(?:\.{0,2}/[^/*%\s]|[A-Za-z]:[\\/]|\\\\)[^\n]*)\Z")
_IN_DEBUG: Final = re.compile(rb"\A[^\s\"/\\]*?(?P<path>(?:/|[A-Za-z]:[\\/]|\\\\)[^\"\n\t]*)\Z")
_FILE_NAME: Final = re.compile(rb"[^/\\]\.\w{1,12}\Z")
#: Three characters of UTF-8: what a metric's value has in it where it is text.
_WORDS: Final = re.compile(_CHARACTER + rb"{3}")
#: What is looked into only where it has text.
_OF_NUMBERS: Final = (messages.METRIC, *messages.METRIC.values())
_DELIMITED: Final = 2  # a field's type: with a length
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
    """A host with its domain, without, and the domain alone; an address has no domain."""
    short, _, domain = host.partition(".")
    parts = {host, short, domain if "." in domain else ""}
    return parts if re.search(r"[^\W\d]", short) else {host}


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
    """Length-delimited fields as (number, start, end); from where they make no sense on, field 0."""
    at = start = 0
    try:
        while at < len(message):
            start = at
            number, value, at = one_field(message, at, len(message))
            if isinstance(value, bytes) and message[start] & 7 == _DELIMITED:
                yield number, at - len(value), at
    except Malformed:
        yield 0, start, len(message)


def texts(frame: Framing) -> Iterator[Span]:
    """Where text is in a report: whole fields, since lengths and tags may look like letters."""
    data = frame.data[:]
    if not data.startswith(framing.MAGIC):
        yield Span(0, len(data), Text.TEXT)
        return
    if frame.problem:  # The rest cannot be parsed.
        yield Span(frame.intact_bytes, len(data), Text.TEXT)
    yield from _walk(data, 8, 8 + int.from_bytes(data[4:8], "little"), {})
    for block in frame.blocks:
        start = block.offset + 4
        yield from _walk(data, start, start + len(block.header), messages.HEADER)
        results = (messages.RESULTS[kind] for kind in messages.kinds(block.header))
        for places, shapes in (
            (block.sources, itertools.repeat(messages.SOURCE)),
            (block.graphs, itertools.repeat(messages.GRAPH)),
            (block.results, results),
        ):
            for (offset, length), shape in zip(places, shapes, strict=False):
                yield from _walk(data, offset, offset + length, shape)


def _walk(data: bytes, start: int, end: int, kind: Text | Shape | None) -> Iterator[Span]:
    """The texts in a field, by its kind or message shape; anywhere in it where it is unknown."""
    if any(kind is each for each in _OF_NUMBERS) and _WORDS.search(data, start, end) is None:
        return  # Most metrics and instances of them are numbers, millions of them.
    if kind is None:
        yield from _unlisted(data, start, end, Text.WHOLE, 0)
    elif not isinstance(kind, Text):
        for number, a, b in _spans_of(data[start:end]):
            inner = kind.get(number, Text.BINARY if number == 0 else None)
            yield from _walk(data, start + a, start + b, inner)
    elif kind is Text.LAYOUT:
        yield from _unlisted(data, start, end, Text.LABEL, 0)
    elif kind is Text.BINARY:
        yield from _binary(data, start, end)
    elif kind is not Text.NUMBERS and end > start:
        yield Span(start, end, kind)


def _unlisted(data: bytes, start: int, end: int, kind: Text, depth: int) -> Iterator[Span]:
    """An unknown field: a message of fields (if it can be one), else text, else binary."""
    content = data[start:end]
    inside = list(_spans_of(content)) if depth < _DEEPEST else []
    if inside and all(number for number, _, _ in inside):
        for _, a, b in inside:
            yield from _unlisted(data, start + a, start + b, kind, depth + 1)
    elif _is_text(content):
        yield Span(start, end, kind)
    else:
        yield from _binary(data, start, end)


def _is_text(content: bytes) -> bool:
    """Whether the bytes are printable text, three quarters of it UTF-8: old systems have others."""
    text = content.decode("utf-8", "surrogateescape")
    odd = sum("\udc80" <= char <= "\udcff" for char in text)
    return 4 * odd <= len(text) > 0 and all(
        char.isprintable() or char in "\n\r\t\0" or "\udc80" <= char <= "\udcff" for char in text
    )


def _binary(data: bytes, start: int, end: int) -> Iterator[Span]:
    content = data[start:end]
    sections = messages.elf_sections(content) if content.startswith(messages.ELF_MAGIC) else []
    inside = [s for s in sections if s.in_file and s.start + s.size <= len(content)]
    if not inside:
        yield from _strings(data, start, end, Text.TEXT)
    for section in inside:
        a = start + section.start
        yield from _section(data, a, a + section.size, section.name)


def _section(data: bytes, start: int, end: int, name: bytes) -> Iterator[Span]:
    if name.endswith((b"debug_line", b"debug_line_sass")):
        yield from _line_table(data, start, end)
    elif not name.startswith((b".text", b".nv.capmerc.text")):
        kept = name in (b".strtab", b".shstrtab")
        kind = Text.KEEP if kept else Text.TEXT
        yield from _strings(data, start, end, kind, debug=b"debug" in name)


@dataclass(frozen=True)
class _Inner:
    """The content of a compressed section, with its texts; where its code is in the file."""

    code: int
    packed: cubin.PackedSection
    content: bytes
    spans: tuple[Span, ...]


def _inner(frame: Framing) -> Iterator[_Inner]:
    """The compressed sections of the machine code. One that cannot be unpacked has no content."""
    for source in messages.sources(frame):
        code = frame.data[:].find(source.code, source.offset) if source.code else 0
        for found in cubin.packed(source.code):
            content, name = found.content or b"", found.section.name
            yield _Inner(code, found, content, tuple(_section(content, 0, len(content), name)))


def _strings(
    data: bytes, start: int, end: int, kind: Text, *, debug: bool = False
) -> Iterator[Span]:
    for found in _STRING.finditer(data, start, end):
        text = found.group()
        # in debug data bytes that are no text may precede a path
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
    """Folders and files of a DWARF line table, version 2 to 4 (DWARF 4, section 6.2.4); strings of
    any other."""
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


def _private(found: Iterable[tuple[bytes, Sequence[Span]]]) -> Private:
    """What the texts of several contents name."""
    hosts: set[str] = set()
    users: set[str] = set()
    folders: set[str] = set()
    for data, span in ((data, span) for data, spans in found for span in spans):
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
    names = (*_longest_first(hosts, _SHORTEST_HOST), *_longest_first(users, _SHORTEST_USER))
    return Private(tuple(dict.fromkeys(names)), tuple(sorted(folders)))


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
        names: further strings to replace anywhere; their length stays, so mangled names stay valid.
        words: further names to replace as whole words in any case, not in kernel names.
        keep_code_of: kernels whose modules' SASS stays, all other is blanked; None keeps all.
        paths: also replace the folders of every absolute path.
        source: also blank embedded source text and replace names of source files.
    """
    frame = framing.parse(data)
    output = bytearray(data)
    replaced, blanked = 0, 0 if keep_code_of is None else _blank(data, output, frame, keep_code_of)
    snapshot = bytes(output)
    whole = replace(frame, data=snapshot)
    spans = list(texts(whole))
    inner = list(_inner(whole))
    known = _private([(snapshot, spans), *((each.content, each.spans) for each in inner)])
    folders, names = known.folders if paths else (), tuple(names)
    rules = Rules((*known.names, *words), names, folders, paths=paths, bases=source)
    rules = _with_files(rules, [x.of(snapshot) for x in spans if x.kind is Text.FILE])
    clean = lru_cache(maxsize=None)(lambda text, kind: _cleaned(text, kind, rules))

    def changed(data: bytes, into: bytearray, spans: Iterable[Span]) -> Iterator[Span]:
        for span in spans:
            text = data[span.start : span.end]
            if (new := clean(text, span.kind)) != text:
                into[span.start : span.end] = new
                yield span

    for span in changed(snapshot, output, spans):
        if span.kind is Text.CODE and source:
            blanked += span.end - span.start
        else:
            replaced += 1
    for each in inner:
        content = bytearray(each.content)
        replaced += len(list(changed(each.content, content, each.spans)))
        if content != each.content or each.packed.content is None:
            _put(output, each, bytes(content))
    return Scrubbed(bytes(output), replaced, blanked)


def _blank(data: bytes, output: bytearray, frame: framing.Framing, keep: Collection[str]) -> int:
    """Blank the SASS of all other kernels' modules; how many bytes those are."""
    blanked = 0
    for module in messages.sources(frame):
        if not any(name.encode() in of for name in keep for of in module.functions):
            start, size = data.find(module.code, module.offset), len(module.code)
            output[start : start + size] = bytes(size)
            blanked += size
    return blanked


def _put(output: bytearray, inner: _Inner, content: bytes) -> None:
    """Write another content of a compressed section, which may be shorter then."""
    section = inner.packed.section
    made = cubin.repacked(inner.packed, content) if inner.packed.content is not None else b""
    start = inner.code + section.start
    output[start : start + section.size] = made.ljust(section.size, b"\0")
    size = inner.code + section.header + messages.SIZE_AT
    output[size : size + messages.SIZE_BYTES] = struct.pack("<Q", len(made))


def _with_files(rules: Rules, files: Iterable[str]) -> Rules:
    """The rules with names that keep files apart which would otherwise be called alike."""
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
    """A log or a command line without addresses, home and absolute folders, and the given names."""
    return Rules(words=tuple(words)).text(text)


def leftovers(
    data: bytes, *, names: Iterable[str] = (), paths: bool = False, source: bool = False
) -> list[str]:
    """Private text left in a report: the first proof after `scrub`, by the same rules. Entries name
    the kind and the offset, not the string. Names and home folders are searched in every byte."""
    names = tuple(names)
    rules = Rules(names=names, paths=paths, bases=source)
    frame = framing.parse(data)
    inner = list(_inner(frame))
    contents = [(data, list(texts(frame))), *((each.content, each.spans) for each in inner)]
    found = [
        f"text at offset {span.start}"
        for content, spans in contents
        for span in spans
        if _cleaned(text := content[span.start : span.end], span.kind, rules) != text
    ]
    found += [
        f"a compressed section of code at offset {each.code}"
        for each in inner
        if each.packed.content is None
    ]
    homes = dict.fromkeys(("/home/", "/Users/", "/root/"), "home folder")
    for word, kind in (*homes.items(), *((name, "name") for name in names)):
        for content, _ in contents:
            at = content.find(word.encode())
            if at >= 0 and replaceable(word):
                found.append(f"{kind} at offset {at}")
    return found


def survivors(before: bytes, after: bytes, *, words: Iterable[str] = ()) -> list[str]:
    """Private names of `before` left in `after`: the second proof after `scrub`, by search. Entries
    name the kind and the offset, not the string.

    Every byte is searched, for UTF-8, UTF-16, percent-escapes and any case, except names of
    kernels, metrics and sections, labels and machine code."""
    frame = framing.parse(before)
    spans = list(texts(frame))
    known = _private([(before, spans), *((each.content, each.spans) for each in _inner(frame))])
    rest = bytearray(after)
    for span in spans:
        if span.kind in (Text.KEEP, Text.LABEL):
            rest[span.start : span.end] = bytes(span.end - span.start)
    inside = (each.content for each in _inner(framing.parse(after)))
    searched = b"\0".join((bytes(rest), *inside)).lower()
    found = []
    for what, secrets in (("name", (*known.names, *words)), ("folder", known.folders)):
        for secret in secrets:
            if len(secret) < _SHORTEST_SECRET or not replaceable(secret):
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
