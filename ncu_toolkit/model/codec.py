"""Dataclasses to plain JSON values and back, by their type hints; the only place that knows both
shapes."""

from __future__ import annotations

import copy
import dataclasses
import enum
import math
import re
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from ncu_toolkit.core.errors import InputProblem
from ncu_toolkit.model import SCHEMA_VERSION

T = TypeVar("T")
#: A value of a document in a message: short, however long or deep it is.
shown = reprlib.repr
#: Widest integer of a document: counters have 64 bits.
_BITS = 64
Hook = Callable[[Any, Any], Any]

_MISSING = "Object missing required field "
_UNKNOWN = "Object contains unknown field "
_CHOICE = "Invalid enum value "
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
    """A JSON-ready value. NaN and infinities become strings, since JSON has none; defaults are
    kept, so files read without the code."""
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
    """Rebuild a dataclass from `to_plain`'s output. Keys that it does not have are ignored.

    Raises:
        InputProblem: a value is missing or of another type; the message gives its path in the
            document.
    """
    try:
        _bounded(data, where or kind.__name__)
        return convert(kind, data, strict=False)  # not strict: "nan" is a number
    except RecursionError:
        raise InputProblem(f"{where or kind.__name__} is nested too deeply") from None
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
        data: dicts, lists, strings, numbers.
        hook: makes values of types of our own: called with the type and the plain value, it raises
            ValueError where that does not fit.
        strict: take no string for a number.

    Raises:
        Misfit: the first value that does not fit, with its path.
    """
    try:
        return msgspec.convert(data, kind, strict=strict, dec_hook=hook)
    except msgspec.ValidationError as error:
        what, _, at = str(error).rstrip("`").partition(" - at `$")

    def fits() -> bool:
        try:
            msgspec.convert(trial, kind, strict=strict, dec_hook=hook)
        except msgspec.ValidationError:
            return False
        return True

    node = trial = copy.deepcopy(data)
    path = ""
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", at):
        if index.isdigit():
            node, path = node[int(index)], f"{path}[{index}]"
            continue
        if not name:  # msgspec writes [...] for any key of a dictionary: try each alone
            for name, value in tuple(node.items()):
                node.clear()
                node[name] = value
                if not fits():
                    break
        node, path = node[name], f"{path}.{name}"
    path = path.lstrip(".")
    for start, words in ((_MISSING, "is missing"), (_UNKNOWN, "is no known key")):
        if what.startswith(start):
            raise Misfit(f"{path}.{what.removeprefix(start).strip('`')}".lstrip("."), words)
    if found := re.match(r"Expected `([^`]+)`(.*?)(, got [^,]*)?$", what):
        wanted = " or ".join(_WORDS.get(word, word) for word in found[1].split(" | "))
        what = f"is {_shown(node)}, expected {wanted}{found[2]}"
    elif what.startswith(_CHOICE):
        what = f"is {_shown(node)}, which is none of its values"
    raise Misfit(path, what)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return shown(value)


def _bounded(data: Any, where: str) -> None:
    """Raise InputProblem for an integer that no counter has."""
    if isinstance(data, int) and data.bit_length() > _BITS:
        raise InputProblem(f"{where} is {shown(data)}, which is too large")
    if isinstance(data, dict):
        for key, value in data.items():
            _bounded(value, f"{where}.{key}")
    elif isinstance(data, list):
        for index, value in enumerate(data):
            _bounded(value, f"{where}[{index}]")


def document(kind: str, payload: Any) -> dict[str, Any]:
    """A top-level JSON document with its schema."""
    return {"schema": f"ncu-toolkit/{kind}", "version": SCHEMA_VERSION, "data": to_plain(payload)}


def open_document(kind: str, data: Any, path: str) -> Any:
    """The payload of a document of the right schema.

    Raises:
        InputProblem: another schema, or a version this release does not read.
    """
    if not isinstance(data, dict) or data.get("schema") != f"ncu-toolkit/{kind}":
        raise InputProblem(f"'{path}' is not an ncu-toolkit {kind} file", "Check the path")
    if data.get("version") != SCHEMA_VERSION:
        raise InputProblem(
            f"'{path}' has schema version {shown(data.get('version'))}, this release reads {SCHEMA_VERSION}",
            "Use the release that wrote it, or make the run again",
        )
    return data.get("data")
