"""The bottlenecks, one module each. A module's docstring is its reference page; `find` decides
whether a profile shows it.

Everything is discovered: a new module in this folder is a new bottleneck. Module names are
bottleneck ids with underscores.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache
from pathlib import Path
from typing import Protocol, cast

from ncu_toolkit.diagnosis.time_model import TimeModel
from ncu_toolkit.model import Finding, Profile, Ruled

_NOT_RULES = ("reference",)


class Rule(Protocol):
    """What a rule module offers. REQUIRES: names without which it abstains; OPTIONAL: names that
    make it surer."""

    TITLE: str
    REQUIRES: tuple[str, ...]
    OPTIONAL: tuple[str, ...]
    __doc__: str | None

    def find(self, profile: Profile, model: TimeModel) -> Finding | Ruled: ...


def bottleneck_ids() -> tuple[str, ...]:
    """Every bottleneck id, sorted, from the file names alone."""
    names = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return tuple(
        sorted(
            name.replace("_", "-")
            for name in names
            if not name.startswith("_") and name not in _NOT_RULES
        )
    )


@lru_cache(maxsize=1)
def load_rules() -> dict[str, Rule]:
    """Rule modules by bottleneck id."""
    return {
        name: cast(Rule, importlib.import_module(f"{__name__}.{name.replace('-', '_')}"))
        for name in bottleneck_ids()
    }


def title(bottleneck: str) -> str:
    """A bottleneck's name in words; an id that does not exist as it is."""
    rules = load_rules()
    return rules[bottleneck].TITLE if bottleneck in rules else bottleneck
