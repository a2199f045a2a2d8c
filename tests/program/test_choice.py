"""The launches that stand for a step, and their numbers in the process."""

from __future__ import annotations

import msgspec
import program_traces as programs
import pytest
from program_traces import Machine

from ncu_toolkit.program.model import Step
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.choice import ChosenLaunch, choose, groups
from ncu_toolkit.program.traces.step import find_step


def chosen(step: Step, **more: float) -> tuple[ChosenLaunch, ...]:
    return choose(step, account_of(step), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_groups_hold_every_launch_once(name: str) -> None:
    step = find_step(programs.PROGRAMS[name]())
    account = account_of(step)
    found = groups(step, account)
    places = sorted(place for group in found for place in group.ops)
    assert places == [i for i, op in enumerate(step.ops) if op.kind == "kernel"]
    assert [group.us for group in found] == sorted((group.us for group in found), reverse=True)
    assert sum(group.share for group in found) == pytest.approx(
        sum(account.exclusive_us[place] for place in places) / step.wall_us
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
    held = sum(launch.group.us for launch in taken)
    assert held >= 0.95 * total
    assert held - taken[-1].group.us < 0.95 * total
    assert len(chosen(step)) <= 24
    assert len(chosen(step, most=3)) <= 3


def test_numbers_find_the_launch_in_another_run() -> None:
    for name, program in programs.PROGRAMS.items():
        step = find_step(program())
        trace = step.trace
        process = step.ops[0].process
        kernels = [op for op in trace.ops if op.kind == "kernel" and op.process == process]
        kernels.sort(key=lambda op: op.call)
        for launch in chosen(step):
            op = step.ops[launch.op]
            assert kernels[launch.number] is op, name
            assert launch.op in launch.group.ops


def test_numbers_are_in_the_order_of_calls_not_of_starts() -> None:
    machine = Machine()
    machine.loaded.update("abc")
    machine.launch("a", 500.0, stream=1)
    machine.launch("b", 900.0, stream=1)
    machine.launch("c", 2000.0, stream=2)
    step = find_step(machine.trace())
    assert [step.trace.shapes[op.shape].kernel for op in step.ops] == ["a", "c", "b"]
    named = {step.trace.shapes[each.group.shape].kernel: each.number for each in chosen(step)}
    assert named == {"c": 2, "b": 1, "a": 0}


def test_a_collective_is_never_chosen() -> None:
    step = find_step(programs.two_processes())
    taken = chosen(step, cover=1.0)
    names = {step.trace.shapes[launch.group.shape].kernel for launch in taken}
    assert programs.ALL_REDUCE not in names
    assert programs.FOREACH_ADAM in names
    assert any(
        step.trace.shapes[group.shape].kernel == programs.ALL_REDUCE
        for group in groups(step, account_of(step))
    )


def test_the_typical_launch_has_the_median_time() -> None:
    machine = Machine()
    machine.loaded.add("k")
    for us in (10, 90, 30, 20, 200):
        machine.launch("k", us, 7)
        machine.launch(f"other{us}", 1.0)
    trace = machine.trace()
    step = find_step(trace)
    first = chosen(msgspec.structs.replace(step))[0]
    assert step.ops[first.op].us == pytest.approx(30, rel=0.1)
