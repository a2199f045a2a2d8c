"""Warps that ask in a loop whether others are done: which loops do, and whose counters a report holds
where they ask more often while patched code slows the others down."""

from __future__ import annotations

from dataclasses import replace

import diagnosis_cases as cases
import pytest

from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model import Profile
from ncu_toolkit.kernel.report import integrity
from ncu_toolkit.kernel.report.ncu_action import own_check
from ncu_toolkit.kernel.report.ncu_source import Value
from ncu_toolkit.kernel.sass import attribution

POLLS = cases.build(cases.read("atomic-contention.polls"))
ATOMIC, TEST, BRANCH = 2, 3, 4


def with_line(at: int, sass: str) -> Profile:
    """The polling kernel with another instruction in a place."""
    opcode = next(word for word in sass.split() if not word.startswith("@"))
    table = list(POLLS.instructions)
    table[at] = replace(table[at], sass=sass, opcode=opcode)
    return replace(POLLS, instructions=tuple(table))


@pytest.mark.parametrize(
    ("at", "sass", "asks"),
    [
        (ATOMIC, "ATOMG.E.ADD.STRONG.GPU PT, R6, desc[UR4][R2.64], RZ", True),
        (ATOMIC, "LDG.E.STRONG.SYS R6, desc[UR4][R2.64]", True),  # volatile
        (ATOMIC, "LDG.E R6, desc[UR4][R2.64]", False),  # L1 may answer, always the same
        (ATOMIC, "ATOMG.E.ADD.STRONG.GPU PT, R5, desc[UR4][R2.64], RZ", False),  # unused
        (ATOMIC - 1, "MOV R2, RZ", True),
        (TEST, "ISETP.GE.U32.AND P2, PT, R6, R9, PT", False),  # decides another branch
        (BRANCH, "@!P1 BRA 0x50", False),  # goes on
    ],
)
def test_a_loop_that_asks_is_told_from_others(at: int, sass: str, asks: bool) -> None:
    found = attribution.polls(with_line(at, sass).instructions)
    assert found == ((range(ATOMIC, BRANCH + 1),) if asks else ())


def test_a_loop_that_stores_does_more_than_ask() -> None:
    table = list(POLLS.instructions)
    store = replace(table[0], sass="STG.E desc[UR4][R8.64], R7", opcode="STG.E")
    kept = replace(POLLS, instructions=(*table[:2], table[2], store, *table[3:]))
    assert attribution.polls(kept.instructions) == ()


def refused(profile: Profile, hardware: float) -> bool:
    """Whether the counts of patched code and of the hardware speak of two launches."""
    counted = sum(row.executed or 0 for row in profile.instructions)
    name = registry.SOURCE_METRICS["executed"][0]
    value = Value(float(counted), "inst")
    readings = {
        **profile.readings,
        "instructions": replace(profile.readings["instructions"], value=hardware),
    }
    checks = own_check({name: value}.get, replace(profile, readings=readings))
    return any("patched code counted" in each for each in integrity.contradictions(checks))


def test_a_launch_that_polls_keeps_its_counters() -> None:
    """32 million instructions by patched code, 2.02 million of them outside of the loop."""
    assert not refused(POLLS, 3e6)
    assert refused(POLLS, 0.9e6)  # even what is outside of the loop does not fit
    assert refused(POLLS, 90e6)
    assert refused(with_line(ATOMIC, "LDG.E R6, desc[UR4][R2.64]"), 3e6)
