"""Public reports on which the diagnosis of lanes, old metric names and launch shapes was wrong,
compared with an expert's reading of them."""

from __future__ import annotations

from functools import lru_cache

import pytest
import recorded

from ncu_toolkit.base.model import Diagnosis, Profile
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.report.reader import load_report

STRANGERS = recorded.ROOT.parent / "shared" / "strangers"
pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(
        not STRANGERS.is_dir(), reason="the folder of strangers' reports is not here"
    ),
]


@lru_cache
def profiles(name: str) -> tuple[Profile, ...]:
    return load_report(STRANGERS / f"{name}.ncu-rep").profiles


def verdict(name: str, launch: int) -> Diagnosis:
    return diagnose(profiles(name)[launch])


def test_ideal_sectors_are_read_by_their_names_of_2020() -> None:
    """5.93 G of 10.31 G sectors are needed; the opcodes are those of the profiler's own table, as
    the report module has no text for Volta's code."""
    profile = profiles("titanv-old-names")[8]
    assert figures.value(profile, "global_sector_excess") == pytest.approx(0.425, abs=0.002)
    assert "???" not in profile.mix.opcodes
    assert figures.value(profile, "kind_share:global") == pytest.approx(0.171, abs=0.001)
    assert figures.value(profile, "shared_store_wavefronts") == 0


def test_sectors_of_2020_3_have_their_ideal_too() -> None:
    profile = profiles("rtx2070-numba-fp64")[0]
    assert figures.value(profile, "global_sectors") == 5_023_658_971
    assert figures.value(profile, "global_sector_excess") == 0


def findings(name: str, launch: int) -> list[str]:
    return [finding.bottleneck for finding in verdict(name, launch).findings]


@pytest.mark.parametrize(
    ("name", "launch"), [("a40-im2col", 6), ("a40-host-memory", 9), ("titanv-old-names", 8)]
)
def test_idle_lanes_are_no_divergence(name: str, launch: int) -> None:
    """16×16 blocks over 34×34 results, predicated bounds checks, and 8×8 blocks: 97 to 100% of the
    branches are uniform, or nearly all lanes walk along."""
    assert "warp-divergence" not in findings(name, launch)


def test_lanes_past_the_edge_do_not_save_bytes() -> None:
    """22.7 of 32 lanes work, at the edge of a matrix. The launch waits for memory, so full warps
    would save next to nothing."""
    reported = {each.bottleneck: each.reason for each in verdict("a40-im2col", 6).considered}
    assert "It is present, but removing it would save only" in reported["idle-threads"]


def test_warps_that_leave_at_once_show_in_the_counters() -> None:
    """26 of 32 warps leave; a basic report shows 12.5% of 66.7% occupancy over 65 even waves."""
    primary = verdict("rtx4060-warps-leave", 0).primary
    assert primary.bottleneck == "idle-threads"
    assert "65 waves" in primary.summary


def test_a_block_of_sixteen_in_a_column_is_reported() -> None:
    """The same program runs 20 times faster with 32×2 blocks: lanes then lie side by side. Full warps
    alone would not help, since L1 is full."""
    found = verdict("t400-turing", 0)
    assert found.primary.bottleneck == "uncoalesced-global-access"
    assert "The block is 1 × 16" in found.primary.advice[0]
    assert "32 × 2" in found.primary.advice[0]
    (idle,) = [each for each in found.considered if each.bottleneck == "idle-threads"]
    assert "data stage of L1" in idle.reason
