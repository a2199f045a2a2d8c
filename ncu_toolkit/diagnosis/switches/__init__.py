"""Changes that make a program faster and need no change of its files: what `ncu-toolkit try` throws
and times. One module a switch, whose docstring says what it does, when it is of no use, and where
that stands; its id is the file's name, and its names in capitals are the fields of `Switch`. Everything
is discovered: a new module in this folder is a new switch.

The program's own Python, of any environment, runs these files too (gpu/inside/switching.py): they
import the standard library alone, and nothing of this package."""

import importlib
import math
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

#: The module that a program imports of what rules call a step's framework.
_MODULE: Final[Mapping[str, str]] = {"xla": "jax"}


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
    path: Path
    least_cc: tuple[int, int] = (0, 0)
    """The least compute capability that has it."""
    causes: tuple[str, ...] = ()
    """Ids of the causes that it is for, of programs' rules or kernels', the main one first."""
    classes: tuple[str, ...] = ()
    """Ids of kernel classes (`program/classes.py`) that it may make faster; offered where one is there."""
    group: str = ""
    """Of the switches of a group, one at a time can be on."""
    values: tuple[str, ...] = ()
    """Values to try where none is given; empty for a switch without one."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to set."""
    build: tuple[str, ...] = ()
    """Words for the command that builds the program; "{}" in one is the value."""
    hooks: Mapping[str, Callable[[Any, Any], None]] = field(default_factory=dict)
    """By module, what is called once the program has imported it: with the module, and the means of
    gpu/inside/switching.py (`Thrown`)."""

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(self.keep)

    @property
    def about(self) -> str:
        """What it does and when it is of no use."""
        return str(importlib.import_module(f"{__name__}.{self.path.stem}").__doc__)

    @property
    def others(self) -> bool:
        """Whether the program computes something else with it, so that results are not compared."""
        return math.isinf(self.tolerance)


def _declared(module: ModuleType) -> Switch:
    names = [each.name for each in fields(Switch) if hasattr(module, each.name.upper())]
    values = {name: getattr(module, name.upper()) for name in names}
    path = Path(str(module.__file__))
    return Switch(id=path.stem.replace("_", "-"), path=path, **values)


@lru_cache(maxsize=1)
def switches() -> dict[str, Switch]:
    """Switches by id."""
    names = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    made = [_declared(importlib.import_module(f"{__name__}.{name}")) for name in names]
    return {each.id: each for each in sorted(made, key=lambda each: each.id)}


def switches_for(
    cause: str, framework: str = "", cc: tuple[int, int] = (99, 0)
) -> tuple[Switch, ...]:
    """The switches for a cause in programs of a framework on a GPU of a compute capability, the one
    that is made for it and changes least in results first. Those that need the command that builds
    the program are left out."""
    module = _MODULE.get(framework, framework)
    able = [
        each
        for each in switches().values()
        if cause in each.causes
        and module in each.modules
        and cc >= each.least_cc
        and not each.build
    ]
    return tuple(sorted(able, key=lambda each: (each.causes.index(cause), each.tolerance, each.id)))
