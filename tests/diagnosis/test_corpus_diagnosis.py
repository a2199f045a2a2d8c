"""Verdicts on other people's reports, read by hand first: each expectation is what the figures in
the report say."""

from __future__ import annotations

from functools import lru_cache

import pytest
import recorded

from ncu_toolkit.base.model import Diagnosis, Profile
from ncu_toolkit.kernel.diagnosis.engine import IMPOSSIBLE, diagnose
from ncu_toolkit.kernel.diagnosis.kernel import COLLECT
from ncu_toolkit.kernel.report.reader import load_report

CORPUS = recorded.ROOT.parent / "shared" / "corpus"
pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(
        not CORPUS.is_dir(), reason="the folder of real reports from other GPUs is not here"
    ),
]


@lru_cache
def profiles(name: str) -> tuple[Profile, ...]:
    return load_report(CORPUS / f"{name}.ncu-rep").profiles


def verdict(name: str, launch: int = 0) -> Diagnosis:
    return diagnose(profiles(name)[launch])


@pytest.mark.slow
def test_every_launch_has_a_verdict() -> None:
    for path in sorted(CORPUS.glob("*.ncu-rep")):
        for profile in profiles(path.stem):
            diagnosis = diagnose(profile)
            assert diagnosis.findings, f"{path.name} {profile.origin.key}"
            assert not any(ruled.reason.startswith(IMPOSSIBLE) for ruled in diagnosis.considered), (
                f"{path.name} {profile.origin.key}"
            )
            assert all(
                finding.speedup is None or 1 <= finding.speedup < float("inf")
                for finding in diagnosis.findings
            )


def test_optimizer_step_at_the_dram_roof_is_good() -> None:
    """92% of DRAM's peak, four sectors per request, no local memory: an optimiser step that touches
    each parameter once."""
    for launch in range(4):
        primary = verdict("rtx3060ti-source-2024.3", launch).primary
        assert (primary.bottleneck, primary.good) == ("dram-bandwidth", True)


def test_matrix_product_from_l1_lacks_reuse() -> None:
    """99.5% of L1's tag stage, two loads for each multiply-add, 88% L1 hits, no shared memory."""
    assert verdict("h100-triton-2023.2").primary.bottleneck == "missing-data-reuse"


def test_sixteen_blocks_for_108_sms() -> None:
    assert verdict("a100-cutlass-2024.1").primary.bottleneck == "grid-too-small"


def test_indexed_gathers_wait_for_memory() -> None:
    """67% long scoreboard, L2 at 42%, and addresses that come from other loads."""
    primary = verdict("a100-a").primary
    assert primary.bottleneck == "memory-latency"
    assert "another load" in primary.summary


def test_scan_waits_at_barriers() -> None:
    """58% of a warp's time at barriers, DRAM half idle."""
    assert verdict("rtx3070-2020.3").primary.bottleneck == "barrier-imbalance"


def test_incomplete_launches_are_not_called_slow() -> None:
    for name, launch in (("a100-incomplete-launch", 0), ("a10g-incomplete-last-launch", -1)):
        primary = verdict(name, launch).primary
        assert primary.bottleneck == "unknown"
        assert "incomplete" in primary.summary


def test_basic_set_claims_no_usefulness() -> None:
    """91% of DRAM or 99% of L1, with nothing to tell useful bytes from waste: not called good, and
    told what to collect."""
    for name, launch in (
        ("rtx3090-thrust", 2),
        ("gh200-basic-2025.2", 0),
        ("a10g-incomplete-last-launch", 0),
    ):
        diagnosis = verdict(name, launch)
        assert not diagnosis.primary.good
        assert any(COLLECT in advice for advice in diagnosis.primary.advice)
