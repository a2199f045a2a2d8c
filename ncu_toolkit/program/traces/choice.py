"""The launches of a step that are worth profiling: the fewest that stand for most of its kernels'
time."""

from itertools import accumulate
from typing import NamedTuple

from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.base.model.profile import Extents, Launch
from ncu_toolkit.program.model import Account, Step
from ncu_toolkit.program.traces.classes import collectives


class LaunchGroup(NamedTuple):
    """Launches of one kernel with one grid, block and shared memory in the typical step."""

    shape: int
    """The place of one of them in `Trace.shapes`."""
    ops: tuple[int, ...]
    """Places in `Step.ops`."""
    us: float
    """Wall time that they alone account for."""


#: What ncu tells one launch from another by: name, grid, block and shared memory.
LaunchKey = tuple[str, Extents | None, Extents | None, int | None]


def key_of(shape: Launch) -> LaunchKey:
    return shape.kernel, shape.grid, shape.block, shape.shared


def groups(step: Step, account: Account) -> tuple[LaunchGroup, ...]:
    """The launches of the typical step by kernel, grid, block and shared memory, those with most
    time first."""
    ops, shapes = step.ops, step.trace.shapes
    kernels = (at for at, op in enumerate(ops) if op.kind == "kernel")
    alike = grouped(kernels, lambda at: key_of(shapes[ops[at].shape]))
    found = [(sum(map(account.exclusive_us.__getitem__, x)), x) for x in alike.values()]
    return tuple(
        LaunchGroup(ops[places[0]].shape, tuple(places), us)
        for us, places in sorted(found, key=lambda each: (-each[0], each[1]))
    )


def choose(
    step: Step, account: Account, most: int = 24, cover: float = 0.95
) -> tuple[LaunchGroup, ...]:
    """The fewest groups that hold `cover` (0-1) of the step's kernel time, at most `most` of them,
    those with most time first.

    Collectives are left out, and so is their time: replaying one waits for a partner that never
    comes."""
    left_out = collectives(step.trace)
    can = [group for group in groups(step, account) if group.shape not in left_out]
    total = sum(group.us for group in can)
    held = [0.0, *accumulate(group.us for group in can)]
    return tuple(group for at, group in enumerate(can[:most]) if not at or held[at] < cover * total)
