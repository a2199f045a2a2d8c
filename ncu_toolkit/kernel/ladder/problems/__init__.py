"""Problems by family, discovered: a module here without a leading underscore is a family's, and its
`PROBLEM` the problem."""

import importlib
import pkgutil
from functools import cache

from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.kernel.ladder.problems.base import (
    ArraySpec,
    Case,
    Expected,
    Problem,
    Size,
    compare,
)

__all__ = [
    "ArraySpec", "Case", "Expected", "Problem", "Size", "compare", "families", "problem_for",
]  # fmt: skip


@cache
def families() -> tuple[str, ...]:
    """Names of the families that have a problem module."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in names if name != "base" and not name.startswith("_")))


@cache
def problem_for(family: str) -> Problem:
    """The problem of a family. Raises UsageProblem where there is no such module."""
    if family not in families():
        known = f"Known families: {', '.join(families())}"
        raise UsageProblem(f"no problem module for family '{family}'", known)
    problem = importlib.import_module(f"{__name__}.{family}").PROBLEM
    assert isinstance(problem, Problem)
    return problem
