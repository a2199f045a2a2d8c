"""Make a report fit to be shipped: private strings replaced by as many neutral characters, machine
code of other people's libraries blanked.

Every replacement keeps its length, so the file's framing and offsets stay whole and the profiler's
module reads it as before. The same text becomes the same text everywhere, so that what refers to it
by name still does."""

from __future__ import annotations

import getpass
import ipaddress
import re
import socket
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ncu_toolkit.report import framing
from ncu_toolkit.report.framing import Framing, Malformed, fields
from ncu_toolkit.report.messages import RESULT_METRIC

_IPV4 = re.compile(rb"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_IPV6 = re.compile(rb"(?<![\w:.])[0-9a-fA-F:]{4,39}(?:%\w+)?(?![\w:])")
_HOME = re.compile(
    rb"/(?:home|users|Users)/[A-Za-z0-9._-]+|/root(?=/)|(?<=[A-Za-z]:\\Users\\)[A-Za-z0-9._ -]+"
)
_USER_OF_HOME = re.compile(rb"(?:/(?:home|users|Users)/|[A-Za-z]:\\Users\\)([A-Za-z0-9._-]+)")
#: An absolute path of two components or more. What precedes must not make it the rest of a URL, a
#: fraction or a relative path.
_PATH = re.compile(
    rb"(?<![\w.:/%+~\\-])/(?:[\w.+@~%-]+/)+[\w.+@~%-]*|(?<!\w)[A-Za-z]:\\(?:[\w.+@~%() -]+\\)+[\w.+@~%-]*"
)
_LOOPBACK = (b"127.0.0.1", b"::1", b"0.0.0.0")
_SHORTEST_NAME = 4
_COMMON: Final = frozenset(
    {"root", "localhost", "Linux", "linux", "Windows", "ubuntu", "user", "home"}
)
#: Nesting of messages that is followed: what lies deeper in real files is numbers.
_DEEPEST = 8
_SHORTEST_TEXT = 2
#: A text in machine code: ends at a zero byte. Code that looks like one by chance holds nothing
#: private, and is left as it is.
_STRING = re.compile(rb"(?<![\x20-\x7e])[\x20-\x7e]{4,}(?=\0)")
#: Three characters of UTF-8: what a metric's value has in it where it is text.
_WORDS: Final = re.compile(
    rb"(?:[\x20-\x7e]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}){3}"
)
# field numbers of a source message: the module's machine code, the source files in it, the
# functions in it
_CODE, _FILES, _FUNCTIONS = 4, 8, 9
# in a source file: its name and its text
_FILE_TEXT = 2
# in a header, of the file or of a block: the session's data; in those the machine (its host name,
# its addresses), which stands at one place in the first header and at another in those of results,
# and the command line
_SESSION, _MACHINES, _COMMAND_LINE = 3, (3, 4), 11
_HOST, _ADDRESSES = 5, 7


@dataclass(frozen=True)
class Scrubbed:
    """The scrubbed bytes with what was done."""

    data: bytes
    replaced: int
    blanked_bytes: int


def machine_names() -> tuple[str, ...]:
    """Names that identify this machine or its user; those too short or too common to be told from
    other text are left out."""
    names = {socket.gethostname(), socket.getfqdn(), socket.gethostname().split(".")[0]}
    try:
        names.add(getpass.getuser())
    except (KeyError, OSError):
        pass  # no name for this uid: then it is in no file either
    return tuple(sorted((name for name in names if _tellable(name)), key=len, reverse=True))


def _tellable(name: str) -> bool:
    return len(name) >= _SHORTEST_NAME and name not in _COMMON


@dataclass(frozen=True)
class Private:
    """Private strings that a report itself names: replaced wherever they occur. `spans` are
    (offset, length) of whole texts to blank."""

    names: tuple[bytes, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()


def private_strings(data: bytes, frame: Framing) -> Private:
    """Host names, addresses, users of home folders and command lines that a report holds, read from
    where its format puts them."""
    names: set[bytes] = set()
    spans: list[tuple[int, int]] = []
    length = int.from_bytes(data[4:8], "little") if data.startswith(framing.MAGIC) else 0
    headers = [
        (data[8 : 8 + length], 8),
        *((block.header, block.offset + 4) for block in frame.blocks),
    ]
    for header, start in headers:
        for place in _MACHINES:
            for machine, offset in _messages(header, start, (_SESSION, place)):
                _machine(machine, offset, names, spans)
        spans += [
            (offset, len(text))
            for text, offset in _messages(header, start, (_SESSION, _COMMAND_LINE))
        ]
    names |= {found.group(1) for found in _USER_OF_HOME.finditer(data)}
    return Private(
        tuple(
            sorted(
                (name for name in names if _tellable(name.decode("utf-8", "replace"))),
                key=len,
                reverse=True,
            )
        ),
        tuple(spans),
    )


def _messages(message: bytes, offset: int, path: tuple[int, ...]) -> Iterator[tuple[bytes, int]]:
    """The length-delimited fields reached by `path`, with their offsets in the file."""
    if not path:
        yield message, offset
        return
    for number, start, end in spans_of(message):
        if number == path[0]:
            yield from _messages(message[start:end], offset + start, path[1:])


def spans_of(message: bytes) -> Iterator[tuple[int, int, int]]:
    """Length-delimited top-level fields as (number, start, end); nothing more once the message
    stops making sense."""
    at = 0
    try:
        while at < len(message):
            tag, at = framing.read_varint(message, at)
            wire = tag & 7
            if wire == 0:
                _, at = framing.read_varint(message, at)
            elif wire == 2:
                length, at = framing.read_varint(message, at)
                if at + length > len(message):
                    return
                yield tag >> 3, at, at + length
                at += length
            else:
                at += 8 if wire == 1 else 4
    except Malformed:
        return


def _machine(message: bytes, offset: int, names: set[bytes], spans: list[tuple[int, int]]) -> None:
    for number, start, end in spans_of(message):
        if number == _HOST:
            names.add(message[start:end])
            spans.append((offset + start, end - start))
        elif number == _ADDRESSES:
            spans += [
                (offset + start + a, b - a)
                for part, a, b in spans_of(message[start:end])
                if part == 1
            ]


def scrub(
    data: bytes,
    *,
    names: Iterable[str] = (),
    keep_code_of: Collection[str] | None = None,
    paths: bool = False,
    source: bool = False,
) -> Scrubbed:
    """Replace host names, addresses, home folders, command lines and the given names.

    Args:
        data: a whole report.
        names: further strings to replace, in kernel names too; their length in bytes stays, so
            mangled names stay well-formed.
        keep_code_of: kernel names whose SASS stays, the code of modules that hold none of them is
            blanked; None keeps all.
        paths: also replace the folders of every absolute path.
        source: also blank embedded source text.
    """
    output = bytearray(data)
    frame = framing.parse(data)
    blanked = 0
    for block in frame.blocks:
        for offset, length in block.sources:
            if keep_code_of is not None:
                blanked += _blank_foreign(output, data, offset, length, keep_code_of)
            if source:
                blanked += _blank_source(output, data, offset, length)
    private = private_strings(data, frame)
    replaced = 0
    for offset, length in private.spans:
        text = bytes(output[offset : offset + length])
        if text not in _LOOPBACK:
            output[offset : offset + length] = _blank(text)
            replaced += 1
    rules = _rules(private.names, names, paths)
    snapshot = bytes(output)
    for start, end in texts(snapshot, frame):
        cleaned, count = _clean(snapshot[start:end], rules)
        if count:
            output[start:end] = cleaned
            replaced += count
    return Scrubbed(bytes(output), replaced, blanked)


def _rules(words: Iterable[bytes], names: Iterable[str], paths: bool) -> list[re.Pattern[bytes]]:
    """What is private: `words` that the report itself names as whole words, names that somebody
    asked for wherever they stand."""
    whole = [
        re.compile(rb"(?<![A-Za-z0-9])" + re.escape(word) + rb"(?![A-Za-z0-9])") for word in words
    ]
    asked = [re.compile(re.escape(name.encode())) for name in sorted(names, key=len, reverse=True)]
    return [_IPV4, _IPV6, _HOME, *whole, *asked, *([_PATH] if paths else [])]


def _clean(text: bytes, rules: Sequence[re.Pattern[bytes]]) -> tuple[bytes, int]:
    """The text with everything private replaced, and how many replacements that took."""
    count = 0
    for rule in rules:
        output = bytearray(text)
        for found in rule.finditer(text):
            neutral = _without_folders(found.group()) if rule is _PATH else _neutral(found.group())
            if neutral == found.group() or (
                rule in (_IPV4, _IPV6) and not _is_address(text, found)
            ):
                continue
            output[found.start() : found.end()] = neutral
            count += 1
        text = bytes(output)
    return text, count


def clean_text(text: str, *, names: Iterable[str] = ()) -> str:
    """Text of no report, a log or a command line, with addresses, home folders, folders of absolute
    paths and the given names replaced."""
    return _clean(text.encode("utf-8", "surrogateescape"), _rules((), names, True))[0].decode(
        "utf-8", "surrogateescape"
    )


def texts(data: bytes, frame: Framing) -> Iterator[tuple[int, int]]:
    """Where text stands in a report, as (start, end). Only whole fields: bytes beside a text are
    lengths and tags that may look like letters."""
    if not data.startswith(framing.MAGIC):
        yield 0, len(data)
        return
    if frame.problem:  # what follows cannot be told apart
        yield frame.intact_bytes, len(data)
    yield from _texts(data, 8, 8 + int.from_bytes(data[4:8], "little"), 0)
    for block in frame.blocks:
        start = block.offset + 4
        yield from _texts(data, start, start + len(block.header), 0)
        for offset, length in block.sources:
            yield from _texts(data, offset, offset + length, 0)
        for offset, length in block.results:
            yield from _result_texts(data, offset, offset + length)


def _result_texts(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """As `_texts`, but instances of metrics are looked into only where text stands in them: most
    are numbers, millions of them."""
    for number, a, b in spans_of(data[start:end]):
        if number == RESULT_METRIC:
            if _WORDS.search(data, start + a, start + b) is None:
                continue
            for _, c, d in spans_of(data[start + a : start + b]):
                if _WORDS.search(data, start + a + c, start + a + d) is not None:
                    yield from _texts(data, start + a + c, start + a + d, 0)
        else:
            yield from _leaf(data, start + a, start + b, 0)


def _texts(data: bytes, start: int, end: int, depth: int) -> Iterator[tuple[int, int]]:
    for _, a, b in spans_of(data[start:end]):
        yield from _leaf(data, start + a, start + b, depth)


def _leaf(data: bytes, start: int, end: int, depth: int) -> Iterator[tuple[int, int]]:
    """A field is text, or a message of fields, or binary with texts between zero bytes as machine
    code has."""
    content = data[start:end]
    if len(content) < _SHORTEST_TEXT:
        return
    if _is_text(content):
        yield start, end
    elif content.startswith(b"\x7fELF") or depth >= _DEEPEST or not _is_message(content):
        for found in _STRING.finditer(content):
            yield start + found.start(), start + found.end()
    else:
        yield from _texts(data, start, end, depth + 1)


def _is_text(content: bytes) -> bool:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\n\r\t\0" for character in text)


def _is_message(content: bytes) -> bool:
    try:
        for _ in fields(content):
            pass
    except Malformed:
        return False
    return True


def leftovers(data: bytes, *, names: Iterable[str] = (), paths: bool = False) -> list[str]:
    """What is still private in a report: the proof after `scrub`. Each entry names the kind and the
    offset, not the string.

    Names and home folders are looked for in every byte of the file, whatever they are part of.
    """
    rules = _rules((), names, paths)
    frame = framing.parse(data)
    found = [
        f"text at offset {start}"
        for start, end in texts(data, frame)
        if _clean(data[start:end], rules)[1]
    ]
    for word, kind in (
        (b"/home/", "home folder"),
        (b"/Users/", "home folder"),
        (b"/root/", "home folder"),
        *((n.encode(), "name") for n in names),
    ):
        at = data.find(word)
        if at >= 0 and _neutral(word) != word:
            found.append(f"{kind} at offset {at}")
    return found


def replaceable(name: str) -> bool:
    """Whether there is anything in a name that a replacement would change."""
    return _neutral(name.encode()) != name.encode()


def without_names(text: str, names: Iterable[str]) -> str:
    """Text as it reads after `scrub` has replaced the names in it."""
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, _neutral(name.encode()).decode())
    return text


def _neutral(text: bytes) -> bytes:
    """As many characters that say nothing; separators stay so that a path stays a path."""
    return bytes(byte if byte in b"/.\\:" else ord("x") for byte in text)


def _blank(text: bytes) -> bytes:
    """A whole text replaced; spaces stay, so that a long line can still be wrapped."""
    return bytes(byte if byte == ord(" ") else ord("x") for byte in text)


def _without_folders(path: bytes) -> bytes:
    """A path with its folders replaced. The last component stays where it has an extension, as a
    file has: `/a/b/c.cu` gives `/x/x/c.cu`."""
    at = max(path.rfind(b"/"), path.rfind(b"\\")) + 1
    last = path[at:]
    return _neutral(path[:at]) + (last if b"." in last.strip(b".") else _neutral(last))


def _is_address(data: bytes | bytearray, found: re.Match[bytes]) -> bool:
    """ncu's own version (2025.3.1.0) and library versions look like addresses: followed by '
    (build' or starting above 255."""
    text = found.group()
    if text in _LOOPBACK or bytes(data[found.end() : found.end() + 7]) == b" (build":
        return False
    try:
        address = ipaddress.ip_address(text.split(b"%")[0].decode())
    except ValueError:
        return False
    return address.version == 4 or (
        text.count(b":") >= 2 and any(character in b"0123456789" for character in text)
    )


def _blank_foreign(
    output: bytearray, data: bytes, offset: int, length: int, keep: Collection[str]
) -> int:
    message = data[offset : offset + length]
    code, functions = b"", b""
    for number, value in fields(message):
        if isinstance(value, bytes) and number == _CODE:
            code = value
        elif isinstance(value, bytes) and number == _FUNCTIONS:
            functions += value
    if not code or any(name.encode() in functions for name in keep):
        return 0
    start = offset + message.index(code)
    output[start : start + len(code)] = bytes(len(code))
    return len(code)


def _blank_source(output: bytearray, data: bytes, offset: int, length: int) -> int:
    """Embedded source replaced by spaces; lines stay, so that line numbers still mean something."""
    blanked = 0
    message = data[offset : offset + length]
    for files, start in _messages(message, offset, (_FILES,)):
        for text, at in _messages(files, start, (1, _FILE_TEXT)):
            output[at : at + len(text)] = bytes(
                byte if byte in b"\r\n" else ord(" ") for byte in text
            )
            blanked += len(text)
    return blanked
