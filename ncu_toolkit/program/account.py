"""A step's wall time, split without rest."""

from __future__ import annotations

from ncu_toolkit.model.program import Account, Step


def account_of(step: Step) -> Account:
    """The parts of the typical step's wall time; they add up to it."""
    return Account(step.wall_us, (), (), tuple(0.0 for _ in step.ops))
