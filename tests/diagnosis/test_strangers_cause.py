"""Public reports that were given a wrong cause, with an expert's reading of each: the verdict, what its
summary or advice has to name, and what it must not advise."""

from __future__ import annotations

import lzma
from functools import lru_cache
from pathlib import Path

import pytest
import recorded

from ncu_toolkit.base.model import Profile
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.report.reader import load_report

FOLDER = recorded.ROOT.parent / "shared" / "strangers2"
pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="the folder of strangers' reports is not here"),
]

#: File, launch, cause, what is named, what is not, and the gain that its owner had (0 if unknown).
READ = (
    ("a100-tensor-gemm-rereads", 0, "missing-data-reuse", "product whose matrices", "little left", 0.0),
    ("a100-tensor-gemm-one-block", 0, "low-occupancy", "limited by shared memory", "accumulators", 1.62),
    ("a100-tensor-gemm-two-blocks", 0, "l2-bandwidth", "product whose matrices", "accumulators", 0.0),
    ("a100-shared-atomic-spin", 2, "atomic-contention", "retry", "accumulators", 0.0),
    ("t4-wmma-from-global", 2, "missing-data-reuse", "into shared memory", "structure of arrays", 0.0),
    ("rtx4090-block-start", 2, "launch-overhead", "grid-stride loop", "smaller blocks", 0.0),
    ("h100-l1-only-waste", 0, "dram-bandwidth", "At its roof", "wasted", 0.0),
    ("v100-undecoded", 2, "double-precision", "by the reciprocal", "tensor cores", 1.78),
)  # fmt: skip


@lru_cache
def profiles(name: str, folder: Path) -> tuple[Profile, ...]:
    path = folder / f"{name}.ncu-rep"
    path.write_bytes(lzma.decompress((FOLDER / f"{name}.ncu-rep.xz").read_bytes()))
    return load_report(path).profiles


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("strangers2")


@pytest.mark.parametrize("read", READ, ids=lambda read: read[0])
def test_cause_is_the_experts(read: tuple[str, int, str, str, str, float], folder: Path) -> None:
    name, launch, cause, named, wrong, gained = read
    first = diagnose(profiles(name, folder)[launch]).primary
    reported = " ".join((first.summary, *first.advice))
    assert (first.bottleneck, first.good) == (cause, named == "At its roof")
    assert named in reported
    assert wrong not in reported
    if gained:
        assert first.interval is not None
        assert first.interval[0] <= gained <= first.interval[1]


def test_a_report_of_few_sections_leaves_open_what_idles_lanes(folder: Path) -> None:
    """With more sections its sister is called otherwise: neither branches nor lanes of instructions
    were counted. Shuffles, not loads, fill the load/store pipe."""
    first, roof = diagnose(profiles("rtx3080ti-few-sections", folder)[0]).findings
    assert (first.bottleneck, first.confidence) == ("warp-divergence", "low")
    assert "does not show which" in first.summary
    assert roof.bottleneck == "l1-bandwidth"
    assert "of its instructions are shuffles" in roof.summary
    assert all("by shuffles" not in step for step in roof.advice)


def test_no_other_cause_is_reported_of_a_product_s_fragments(folder: Path) -> None:
    found = diagnose(profiles("t4-wmma-from-global", folder)[2])
    assert "uncoalesced-global-access" not in [each.bottleneck for each in found.findings]
    assert all("lanes are not contiguous" not in each.summary for each in found.findings)
