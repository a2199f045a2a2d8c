"""Changes that make a program faster and need no change of its files: what `ncu-toolkit try` makes
and times. A switch is a table of data/switches.toml, whose keys are the fields of `Switch`; what it
changes in the program's Python is the function of its name in program/recording/inside/hooks.py."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources

import msgspec


@dataclass(frozen=True, eq=False)
class Switch:
    """What a switch declares; there is one object of each."""

    id: str
    title: str
    """What it does, in a few words."""
    needs: str
    """What it changes, as `the program has no ...` ends: `optimizer of PyTorch`."""
    differs: str
    """What may differ in results, a sentence."""
    tolerance: float
    """By how much, relative, numbers that the program prints may differ; infinite where it computes
    something else."""
    keep: Mapping[str, str]
    """The line that makes it permanent, by Python module, of which the program must use one; "" for a
    program without any of them. "{}" in a line is the value."""
    about: str
    """What it does, when it is of no use, and where that is written."""
    least_cc: tuple[int, int] = (0, 0)
    """The least compute capability that has it."""
    causes: tuple[str, ...] = ()
    """Ids of the causes that it is for, of programs' rules or kernels', the main one first."""
    classes: tuple[str, ...] = ()
    """Ids of kernel classes (`program/traces/classes.py`) that it may make faster; offered where one is there."""
    group: str = ""
    """Of the switches of a group, one at a time can be on."""
    values: tuple[str, ...] = ()
    """Values to try where none is given; empty for a switch without one."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to set."""
    build: tuple[str, ...] = ()
    """Words for the command that builds the program; "{}" in one is the value."""
    hooks: tuple[str, ...] = ()
    """The modules after whose import by the program its function in program/recording/inside/hooks.py is called."""

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(self.keep)

    @property
    def others(self) -> bool:
        """Whether the program computes something else with it, so that results are not compared."""
        return math.isinf(self.tolerance)


@lru_cache(maxsize=1)
def switches() -> dict[str, Switch]:
    """Switches by id."""
    file = resources.files("ncu_toolkit").joinpath("data", "switches.toml")
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    return {key: msgspec.convert({"id": key, **tables[key]}, Switch) for key in sorted(tables)}


def switches_for(
    cause: str, framework: str = "", cc: tuple[int, int] = (99, 0)
) -> tuple[Switch, ...]:
    """The switches for a cause in programs of a framework on a GPU of a compute capability, the one
    that is made for it and changes least in results first. Those that need the command that builds
    the program are left out."""
    module = "jax" if framework == "xla" else framework
    able = [each for each in switches().values() if cc >= each.least_cc and not each.build]
    able = [each for each in able if cause in each.causes and module in each.modules]
    return tuple(sorted(able, key=lambda each: (each.causes.index(cause), each.tolerance, each.id)))
