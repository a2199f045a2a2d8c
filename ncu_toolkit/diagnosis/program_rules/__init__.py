"""What costs a program's step time, one module a cause. A module's docstring is its reference page,
with the headings of the kernels' rules (diagnosis/rules/), and `find` decides whether a step shows it.

Everything is discovered: a new module in this folder is a new cause. Module names are ids with
underscores. What rules share is in modules with a leading underscore."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache
from pathlib import Path
from typing import Protocol, cast

from ncu_toolkit.diagnosis.program_rules._facts import StepFacts
from ncu_toolkit.model import NoFinding
from ncu_toolkit.model.program import StepFinding


class StepRule(Protocol):
    """What a rule of the step declares."""

    ID: str
    TITLE: str

    def find(self, s: StepFacts) -> StepFinding | NoFinding: ...


@lru_cache(maxsize=1)
def step_rules() -> dict[str, StepRule]:
    """Rules of the step by id."""
    names = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    modules = (importlib.import_module(f"{__name__}.{n}") for n in names if not n.startswith("_"))
    return {module.ID: cast(StepRule, module) for module in modules}
