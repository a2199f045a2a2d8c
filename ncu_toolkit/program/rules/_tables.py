"""Advice in words of the framework or library that a program calls: the tables of data/libraries.toml."""

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

import msgspec


class Words(msgspec.Struct, frozen=True):
    """A line of advice; data/libraries.toml says what the fields mean."""

    module: str
    causes: tuple[str, ...]
    advice: str
    tried: str = ""
    needs: str = ""
    """A part of a module's name that must be on the stack too."""


class Libraries(msgspec.Struct, frozen=True):
    """The file."""

    words: tuple[Words, ...]
    collectives: Mapping[str, tuple[str, ...]]
    """What to do about traffic that nothing hides, by kind."""
    frameworks: Mapping[str, Mapping[str, tuple[str, ...]]]
    """What to do about a cause, by framework."""


@lru_cache(maxsize=1)
def tables() -> Libraries:
    file = resources.files("ncu_toolkit").joinpath("data", "libraries.toml")
    return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), Libraries)
