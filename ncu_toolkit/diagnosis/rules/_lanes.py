"""Which lanes of its warps a launch has work for: by the shape of its blocks, and by who leaves at
once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ncu_toolkit.diagnosis.figures import WARP
from ncu_toolkit.diagnosis.kernel import Kernel
from ncu_toolkit.model import Instruction
from ncu_toolkit.sass import attribution

#: A comparison by order in the name of an instruction: an index with a bound.
ORDER: Final = re.compile(r"\.(LT|LE|GT|GE)U?\b")
#: Executed lanes an instruction this close to those there are count as all of them: the code before
#: the test runs with those that leave, too.
NEARLY: Final = 0.9
#: Part of the executed instructions up to the last test at most: behind more, lanes end their work.
AT_ONCE: Final = 0.5


@dataclass(frozen=True)
class Left:
    """The lanes after the tests with which a kernel begins, by which some leave. `lanes`: lanes of
    each warp that goes on, mean; `warps`: part (0-1) of the warps that go on; `edge`: whether an
    index is compared with a bound there, as at the edge of a problem. `at` is the index of the last
    such test."""

    lanes: float
    warps: float
    edge: bool
    at: int


def filled(k: Kernel) -> float:
    """Lanes of a warp that a block of this size has threads for, mean over the block's warps; 32
    where the size is not known."""
    threads = k.launch.threads_per_block
    return threads / -(-threads // WARP) if threads else float(WARP)


def left(k: Kernel) -> Left | None:
    """What is left of the warps after the tests at a kernel's beginning; None where none of them
    lets lanes leave, or the code was not counted.

    Such a test is a guarded exit, or a branch to one. The first branch to anything else ends the
    beginning."""
    table = k.instructions
    if not table or not table[0].executed:
        return None
    targets = attribution.flow_of(table).graph.targets
    warps, tests, edge, ordered, i = table[0].executed, 0, False, False, 0
    at = 0
    while i < len(table) and table[i].executed:
        row = table[i]
        base = row.base
        ordered = ordered or ("SETP" in base and bool(ORDER.search(row.opcode)))
        guarded = row.sass.startswith("@")
        following = i + 1
        if base == "BRA" and guarded:
            ends = targets.get(i, ())
            if not ends or max(ends) <= i:
                break
            if _leaves(table, max(ends)):
                leaves = True
            elif base_at(table, i + 1) == "EXIT":
                leaves, following = True, max(ends)
            else:
                break
        elif base == "EXIT" and guarded:
            leaves = True
        elif base in ("EXIT", "BRA", "BRX", "JMP", "JMX", "CALL", "RET"):
            break
        else:
            leaves = False
        if leaves:
            tests, at, edge, ordered = tests + 1, i, edge or ordered, False
        i = following
    after = next(
        (row for row in table[at + 1 :] if row.executed and not row.sass.startswith("@") and row.threads),
        None,
    ) if tests else None  # fmt: skip
    if after is None or after.threads is None or not after.executed:
        return None
    if sum(row.executed or 0 for row in table[:at]) > AT_ONCE * k.profile.mix.total:
        return None
    return Left(after.threads / after.executed, min(1.0, after.executed / warps), edge, at)


def base_at(table: tuple[Instruction, ...], at: int) -> str:
    """The base of an unguarded instruction; empty for a guarded one or none."""
    if at >= len(table) or table[at].sass.startswith("@"):
        return ""
    return table[at].base


def _leaves(table: tuple[Instruction, ...], at: int) -> bool:
    """Whether a lane that goes on at an instruction leaves at once: lanes may first meet there."""
    while base_at(table, at) in ("BSYNC", "NOP", "WARPSYNC"):
        at += 1
    return base_at(table, at) == "EXIT"
