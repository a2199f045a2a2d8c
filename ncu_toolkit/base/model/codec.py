"""Dataclasses to plain JSON values and back, by their type hints."""

import dataclasses
import enum
import json
import math
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.model import SCHEMA_VERSION

T = TypeVar("T")
#: A value of a document in a message: short, however long or deep it is.
shown = reprlib.repr
Hook = Callable[[Any, Any], Any]

_MISSING = "Object missing required field "
_UNKNOWN = "Object contains unknown field "
_CHOICE = "Invalid enum value "
_RANGE = "Number out of range"
_WORDS = {
    "str": "a string", "int": "an integer", "float": "a number", "bool": "true or false",
    "array": "a list", "object": "a table", "null": "nothing",
}  # fmt: skip


class Misfit(Exception):
    """A value that does not fit its type: `path` in the document, `what` is wrong with it."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path} {what}")
        self.path, self.what = path, what


def to_plain(value: Any) -> Any:
    """A JSON-ready value, with defaults. NaN and infinities become strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def from_plain(kind: type[T], data: Any, where: str = "") -> T:
    """Rebuild a dataclass from `to_plain`'s output, ignoring unknown keys. Raises InputProblem with
    the path to a value that is missing or of another type."""
    try:
        return convert(kind, data, strict=False)  # not strict: "nan" is a number
    except Misfit as error:
        raise InputProblem(
            f"{where or kind.__name__}{'.' if error.path else ''}{error}",
            "The file was written by another version or cut off; make it again"
            if error.what == "is missing"
            else "",
        ) from None


def convert(kind: type[T], data: Any, hook: Hook | None = None, strict: bool = True) -> T:
    """A value of type `kind` from plain data.

    Args:
        kind: a dataclass, a msgspec.Struct or a type built of them.
        hook: makes a value of our own types from the type and the plain value; raises ValueError.
        strict: take no string for a number.

    Raises:
        Misfit: the first value that does not fit, with its path.
    """
    try:
        _check_range(data)
        return msgspec.convert(data, kind, strict=strict, dec_hook=hook)
    except RecursionError:
        raise Misfit("", "is nested too deeply") from None
    except msgspec.ValidationError as error:
        what, _, at = str(error).rstrip("`").partition(" - at `$")
    path, value = _located(kind, data, hook, strict, at)
    for start, words in ((_MISSING, "is missing"), (_UNKNOWN, "is not a known key")):
        if what.startswith(start):
            raise Misfit(f"{path}.{what.removeprefix(start).strip('`')}".lstrip("."), words)
    met = "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else ""
    if found := re.match(r"Expected `([^`]+)`(.*?)(, got [^,]*)?$", what):
        wanted = " or ".join(_WORDS.get(word, word) for word in found[1].split(" | "))
        what = f"is {met or shown(value)}, expected {wanted}{found[2]}"
    elif what.startswith(_CHOICE):
        what = f"is {shown(value)}, which is none of its values"
    elif what == _RANGE:
        what = f"is {shown(value)}, which is too large"
    raise Misfit(path, what)


def _check_range(data: Any) -> None:
    """Raise Misfit for an integer of more than 64 bits, which msgspec would take."""
    try:
        msgspec.msgpack.encode(data)  # knows no such integer
    except (OverflowError, UnicodeEncodeError):  # the second for text that is no Unicode
        for path, value in _too_large(data):
            raise Misfit(path.lstrip("."), f"is {shown(value)}, which is too large") from None


def _too_large(data: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Integers that do not fit in 64 bits, with their paths."""
    if isinstance(data, int) and not -(1 << 63) <= data < 1 << 64:
        yield path, data
    for key, item in data.items() if isinstance(data, dict) else ():
        yield from _too_large(item, f"{path}.{key}")
    for i, item in enumerate(data if isinstance(data, list) else ()):
        yield from _too_large(item, f"{path}[{i}]")


def _located(kind: Any, data: Any, hook: Hook | None, strict: bool, at: str) -> tuple[str, Any]:
    """The path to what msgspec refuses, and the value. For [...], any key of a dictionary, each key
    is tried alone."""
    narrowed: list[tuple[dict[str, Any], dict[str, Any]]] = []
    node, path = data, ""
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", at):
        if index.isdigit():
            node, path = node[int(index)], f"{path}[{index}]"
            continue
        if not name:
            whole = dict(node)
            narrowed.append((node, whole))
            for name in whole:
                node.clear()
                node[name] = whole[name]
                try:
                    msgspec.convert(data, kind, strict=strict, dec_hook=hook)
                except msgspec.ValidationError:
                    break
        node, path = node[name], f"{path}.{name}"
    for changed, whole in narrowed:
        changed.clear()
        changed.update(whole)
    return path.lstrip("."), node


def document(kind: str, payload: Any) -> dict[str, Any]:
    """A top-level JSON document with its schema."""
    return {"schema": f"ncu-toolkit/{kind}", "version": SCHEMA_VERSION, "data": to_plain(payload)}


def encoded(kind: str, payload: Any) -> bytes:
    """`document` as compact JSON, 20 times faster. The payload's numbers must be finite."""
    head = {"schema": f"ncu-toolkit/{kind}", "version": SCHEMA_VERSION}
    return msgspec.json.encode({**head, "data": payload})


def plain_json(kind: str, payload: Any) -> str:
    """`document` as JSON text, several times faster where all numbers are finite."""
    head = {"schema": f"ncu-toolkit/{kind}", "version": SCHEMA_VERSION}
    try:
        plain = msgspec.to_builtins(payload, str_keys=True)
        return json.dumps({**head, "data": plain}, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(document(kind, payload), ensure_ascii=False, allow_nan=False)


def open_document(kind: str, data: Any, path: str) -> Any:
    """The payload of a document of the right schema. Raises InputProblem for another schema, or a
    version this release does not read."""
    if not isinstance(data, dict) or data.get("schema") != f"ncu-toolkit/{kind}":
        raise InputProblem(f"'{path}' is not an ncu-toolkit {kind} file", "Check the path")
    if data.get("version") != SCHEMA_VERSION:
        raise InputProblem(
            f"'{path}' has schema version {shown(data.get('version'))}, this release reads {SCHEMA_VERSION}",
            "Use the release that wrote it, or make the run again",
        )
    return data.get("data")
