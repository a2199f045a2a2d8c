"""The launches that stand for a step."""

from __future__ import annotations

import program_traces as programs
import pytest

from ncu_toolkit.program.model import Step
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.choice import LaunchGroup, choose, groups
from ncu_toolkit.program.traces.step import find_step


def chosen(step: Step, **more: float) -> tuple[LaunchGroup, ...]:
    return choose(step, account_of(step), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_groups_hold_every_launch_once(name: str) -> None:
    step = find_step(programs.PROGRAMS[name]())
    account = account_of(step)
    found = groups(step, account)
    places = sorted(place for group in found for place in group.ops)
    assert places == [i for i, op in enumerate(step.ops) if op.kind == "kernel"]
    assert [group.us for group in found] == sorted((group.us for group in found), reverse=True)
    assert sum(group.us for group in found) == pytest.approx(
        sum(account.exclusive_us[place] for place in places)
    )


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_the_fewest_that_cover_most(name: str) -> None:
    step = find_step(programs.PROGRAMS[name]())
    taken = chosen(step, most=1000)
    collective = [
        group
        for group in groups(step, account_of(step))
        if "nccl" in step.trace.shapes[group.shape].kernel
    ]
    total = sum(group.us for group in groups(step, account_of(step))) - sum(
        group.us for group in collective
    )
    held = sum(group.us for group in taken)
    assert held >= 0.95 * total
    assert held - taken[-1].us < 0.95 * total
    assert len(chosen(step)) <= 24
    assert len(chosen(step, most=3)) <= 3


def test_a_collective_is_never_chosen() -> None:
    step = find_step(programs.two_processes())
    taken = chosen(step, cover=1.0)
    names = {step.trace.shapes[group.shape].kernel for group in taken}
    assert programs.ALL_REDUCE not in names
    assert programs.FOREACH_ADAM in names
    assert any(
        step.trace.shapes[group.shape].kernel == programs.ALL_REDUCE
        for group in groups(step, account_of(step))
    )
