"""What costs a program's step time, one module a cause, discovered like those of a kernel. A module's
docstring is its reference page, with the same headings, and `find` decides whether a step shows it.
What rules share is in modules with a leading underscore."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from ncu_toolkit.diagnosis.rules import rule_module, rules_in

if TYPE_CHECKING:
    from ncu_toolkit.diagnosis.program_rules._facts import StepFacts
    from ncu_toolkit.model import NoFinding
    from ncu_toolkit.model.program import StepFinding


class StepRule(Protocol):
    """What a rule of the step declares."""

    TITLE: str

    def find(self, s: StepFacts) -> StepFinding | NoFinding: ...


@lru_cache(maxsize=1)
def step_rules() -> dict[str, StepRule]:
    """Rules of the step by id."""
    names = rules_in(Path(__file__).parent)
    return {name: cast(StepRule, rule_module(__name__, name)) for name in names}
