"""Reports of every origin, made on an H200 by tests/origins/collect.py: none is refused, and what
was not finished is named."""

from __future__ import annotations

from functools import lru_cache

import golden
import pytest

from ncu_toolkit.report.reader import LoadedReport, load_report

REPORTS = golden.ORIGINS
NAMES = sorted(path.name.removesuffix(".ncu-rep.xz") for path in REPORTS.glob("*.ncu-rep.xz"))
#: Launches that were not finished: those under way when the program or ncu ended, and what was
#: profiled as a range or a graph, which holds no single kernel.
INCOMPLETE = {
    "app-range-replay": 2,
    "assert": 1,
    "graph-whole": 2,
    "illegal-access": 1,
    "misaligned": 1,
    "range-replay": 2,
    "trap": 1,
}
#: Processes in a report, where there are several.
PROCESSES = ("parent-and-child", "siblings", "child-process")


@lru_cache
def report(name: str) -> LoadedReport:
    return load_report(REPORTS / f"{name}.ncu-rep.xz")


@pytest.mark.parametrize("name", NAMES)
def test_is_read_whole(name: str) -> None:
    """Every launch is there, without a contradiction; those not finished are named."""
    found = report(name)
    assert not found.damage
    assert not found.missing
    assert found.read_launches == found.declared_launches == len(found.profiles) > 0
    assert [p.contradictions for p in found.profiles if p.contradictions] == []
    unfinished = [p.launch.status for p in found.profiles if not p.launch.complete]
    assert len(unfinished) == INCOMPLETE.get(name, 0), unfinished


def test_all_origins_are_here() -> None:
    """The folder holds what its script makes, apart from the case that ncu itself refused."""
    assert {*INCOMPLETE, *PROCESSES, "numba", "triton", "jax", "cupy", "warp", "torch-workers"} <= {
        *NAMES
    }
    assert len(NAMES) == 57
