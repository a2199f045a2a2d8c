"""Problems by family, discovered: a module here that defines a `Problem` subclass named in
`PROBLEM` is a family's problem."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from ncu_toolkit.core.errors import UsageProblem
from ncu_toolkit.ladder.problems.base import (
    ArraySpec,
    Expected,
    Problem,
    Scalar,
    Size,
    Verdict,
    compare,
)

__all__ = [
    "ArraySpec",
    "Expected",
    "Problem",
    "Scalar",
    "Size",
    "Verdict",
    "compare",
    "families",
    "problem_for",
]


@cache
def _modules() -> tuple[str, ...]:
    return tuple(
        sorted(
            m.name
            for m in pkgutil.iter_modules(__path__)
            if m.name != "base" and not m.name.startswith("_")
        )
    )


def families() -> tuple[str, ...]:
    """Names of the families that have a problem module."""
    return _modules()


@cache
def problem_for(family: str) -> Problem:
    """The problem of a family (module `problems/<family>.py`, attribute `PROBLEM`).

    Raises:
        UsageProblem: no such module.
    """
    if family not in _modules():
        raise UsageProblem(
            f"no problem module for family '{family}'", f"Known families: {', '.join(_modules())}"
        )
    module = importlib.import_module(f"ncu_toolkit.ladder.problems.{family}")
    problem = module.PROBLEM
    assert isinstance(problem, Problem)
    return problem
