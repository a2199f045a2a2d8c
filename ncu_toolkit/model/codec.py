"""Dataclasses to plain JSON values and back, by their type hints; the only place that knows both
shapes."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import math
import reprlib
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from ncu_toolkit.core.errors import InputProblem
from ncu_toolkit.model import SCHEMA_VERSION

T = TypeVar("T")
#: Widest integer of a document: counters have 64 bits.
_BITS = 64
#: A value of a document in a message: short, however long or deep it is.
shown = reprlib.repr


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
    """Rebuild a dataclass from `to_plain`'s output.

    Raises:
        InputProblem: a value is missing or of another type; the message gives its path in the
            document.
    """
    try:
        return typing.cast(T, _build(kind, data, where or kind.__name__))
    except RecursionError:
        raise InputProblem(f"{where or kind.__name__} is nested too deeply") from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _build(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        return data
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _build_union(kind, data, where)
    if origin is typing.Literal:
        if data not in typing.get_args(kind):
            raise InputProblem(
                f"{where} is {shown(data)}, expected one of {', '.join(map(repr, typing.get_args(kind)))}"
            )
        return data
    if origin in (tuple, list):
        return _build_sequence(kind, data, where)
    if origin in (dict, Mapping, collections.abc.Mapping):
        _expect(dict, data, where)
        inner = typing.get_args(kind)[1]
        return {key: _build(inner, item, f"{where}.{key}") for key, item in data.items()}
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(typing.cast(type, kind), data, where)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        if data not in [member.value for member in kind]:
            raise InputProblem(
                f"{where} is {shown(data)}, expected one of {', '.join(repr(member.value) for member in kind)}"
            )
        return kind(data)
    if kind is float:
        return _number(data, where)
    _expect(kind, data, where)
    return data


def _build_union(kind: Any, data: Any, where: str) -> Any:
    options = [option for option in typing.get_args(kind) if option is not type(None)]
    if data is None and len(options) < len(typing.get_args(kind)):
        return None
    if len(options) == 1:
        return _build(options[0], data, where)
    for option in options:
        try:
            return _build(option, data, where)
        except InputProblem:
            continue
    raise InputProblem(f"{where} fits none of its possible types")


def _build_sequence(kind: Any, data: Any, where: str) -> Any:
    _expect(list, data, where)
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is list:
        return [_build(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data)]
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_build(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if len(arguments) != len(data):
        raise InputProblem(f"{where} has {len(data)} items, expected {len(arguments)}")
    return tuple(
        _build(argument, item, f"{where}[{i}]")
        for i, (argument, item) in enumerate(zip(arguments, data, strict=True))
    )


def _build_dataclass(kind: type, data: Any, where: str) -> Any:
    _expect(dict, data, where)
    hints = _hints(kind)
    values = {}
    for f in dataclasses.fields(kind):
        if f.name in data:
            values[f.name] = _build(hints[f.name], data[f.name], f"{where}.{f.name}")
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise InputProblem(
                f"{where}.{f.name} is missing",
                "The file was written by another version or cut off; make it again",
            )
    return kind(**values)


def _number(data: Any, where: str) -> float:
    if isinstance(data, str) and data in ("nan", "inf", "-inf"):
        return float(data)
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise InputProblem(f"{where} is {shown(data)}, expected a number")
    try:
        return float(data)
    except OverflowError:
        raise InputProblem(f"{where} is {shown(data)}, which is too large") from None


def _expect(kind: Any, data: Any, where: str) -> None:
    if kind is int and isinstance(data, bool):
        raise InputProblem(f"{where} is {shown(data)}, expected int")
    if kind is int and isinstance(data, int) and data.bit_length() > _BITS:
        raise InputProblem(f"{where} is {shown(data)}, which is too large")
    if isinstance(kind, type) and not isinstance(data, kind):
        raise InputProblem(f"{where} is of type {type(data).__name__}, expected {kind.__name__}")


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
