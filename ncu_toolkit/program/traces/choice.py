"""The launches of a step that are worth profiling: the fewest that stand for most of its kernels'
time, and how to find them in another run of the program."""

from dataclasses import dataclass

from ncu_toolkit.program.model import Account, Step
from ncu_toolkit.program.traces.classes import collectives
from ncu_toolkit.program.traces.step import KNOWN


@dataclass(frozen=True)
class LaunchGroup:
    """Launches of one kernel with one grid, block and shared memory in the typical step."""

    shape: int
    """The place of one of them in `Trace.shapes`."""
    ops: tuple[int, ...]
    """Places in `Step.ops`."""
    us: float
    """Wall time that they alone account for."""
    share: float
    """Part of the step's wall time, 0-1."""


@dataclass(frozen=True)
class ChosenLaunch:
    """A launch that stands for its group. Numbers are from 0, in the order in which the process
    launched."""

    group: LaunchGroup
    op: int
    """Its place in `Step.ops`: of median time in its group."""
    number: int
    """Its number among all kernels of the process."""


def groups(step: Step, account: Account) -> tuple[LaunchGroup, ...]:
    """The launches of the typical step by kernel, grid, block and shared memory, those with most
    time first."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, op in enumerate(step.ops):
        if op.kind == "kernel":
            shape = step.trace.shapes[op.shape]
            alike.setdefault((shape.kernel, shape.grid, shape.block, shape.shared), []).append(
                place
            )
    ops = step.ops
    found = (
        (sum(account.exclusive_us[place] for place in places), places) for places in alike.values()
    )
    return tuple(
        LaunchGroup(
            ops[places[0]].shape, tuple(places), us, us / step.wall_us if step.wall_us else 0.0
        )
        for us, places in sorted(found, key=lambda each: (-each[0], each[1]))
    )


def choose(
    step: Step, account: Account, most: int = 24, cover: float = 0.95
) -> tuple[ChosenLaunch, ...]:
    """One launch of each of the fewest groups that hold `cover` (0-1) of the step's kernel time, at
    most `most` of them, those with most time first.

    Collectives are left out, and so is their time: replaying one waits for a partner that never
    comes. Numbers count the kernels that the trace has."""
    left_out = collectives(step.trace)
    can = [group for group in groups(step, account) if group.shape not in left_out]
    total = sum(group.us for group in can)
    taken: list[LaunchGroup] = []
    held = 0.0
    for group in can[:most]:
        if held >= cover * total and taken:
            break
        taken.append(group)
        held += group.us
    ops = step.ops
    typical = [
        sorted(group.ops, key=lambda place: ops[place].us)[(len(group.ops) - 1) // 2]
        for group in taken
    ]
    numbers = _numbers(step)
    return tuple(
        ChosenLaunch(group, place, numbers[id(ops[place])])
        for group, place in zip(taken, typical, strict=True)
    )


def _numbers(step: Step) -> dict[int, int]:
    """Numbers of launches in the process, by `id`."""
    process = step.ops[0].process
    kernels = [op for op in step.trace.ops if op.kind == "kernel" and op.process == process]
    known = sum(op.call >= 0 for op in kernels)
    if known > KNOWN * len(kernels):  # as the host queued them; nodes of a graph by start
        kernels.sort(key=lambda op: op.call)
    return {id(op): number for number, op in enumerate(kernels)}
