"""Public reports on which the diagnosis of lanes, old metric names and launch shapes was wrong,
compared with an expert's reading of them."""

from __future__ import annotations

from functools import lru_cache

import pytest
import recorded

from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.engine import diagnose
from ncu_toolkit.model import Diagnosis, Profile
from ncu_toolkit.report.reader import load_profiles

STRANGERS = recorded.ROOT.parent / "shared" / "strangers"
pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(
        not STRANGERS.is_dir(), reason="the folder of strangers' reports is not here"
    ),
]


@lru_cache
def profiles(name: str) -> tuple[Profile, ...]:
    return load_profiles(STRANGERS / f"{name}.ncu-rep")


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


def test_no_sector_is_called_wasted_without_its_ideal() -> None:
    excess = [figures.value(p, "global_sector_excess") for p in profiles("titanv-old-names")]
    assert [e for e in excess if e] == pytest.approx([0.349, 0.580, 0.657, 0.731, 0.425], abs=0.002)
