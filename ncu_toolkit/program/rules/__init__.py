"""What costs a program's step time, one module a cause, discovered like the bottlenecks of a kernel.
A module's docstring is its reference page, with the same headings,
and `find` decides whether a step shows it. What rules share is in modules with a leading underscore."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, cast

from ncu_toolkit.base.model import NoFinding
from ncu_toolkit.kernel.diagnosis.rules import rules_of

if TYPE_CHECKING:
    from ncu_toolkit.program.model import StepFinding
    from ncu_toolkit.program.rules._facts import StepFacts


class StepRule(Protocol):
    """What a rule of the step declares."""

    TITLE: str
    ALSO_CALLED: tuple[str, ...] = ()
    """Other titles and ids of its findings."""

    def find(self, s: StepFacts) -> StepFinding | NoFinding: ...


@lru_cache(maxsize=1)
def step_rules() -> dict[str, StepRule]:
    """Rules of the step by id."""
    return {name: cast(StepRule, module) for name, module in rules_of(__name__).items()}
