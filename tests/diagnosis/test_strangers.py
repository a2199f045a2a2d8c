"""Public reports on which the diagnosis was wrong or silent, with an expert's reading of each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pytest
import recorded

from ncu_toolkit.base.model import Diagnosis, Profile
from ncu_toolkit.kernel.diagnosis import kernel, time_model
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.report.reader import load_report

SHARED = recorded.ROOT.parent / "shared"
pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(
        not (SHARED / "strangers").is_dir(), reason="the folder of strangers' reports is not here"
    ),
]


@lru_cache
def profiles(name: str, folder: str = "strangers") -> tuple[Profile, ...]:
    return load_report(SHARED / folder / f"{name}.ncu-rep").profiles


def verdict(name: str, launch: int = 0) -> Diagnosis:
    return diagnose(profiles(name)[launch])


def everyone() -> Iterator[tuple[str, Profile]]:
    """Each launch of all real reports that are at hand."""
    for folder in ("strangers", "corpus"):
        for path in sorted((SHARED / folder).glob("*.ncu-rep")):
            for profile in profiles(path.stem, folder):
                yield f"{path.name} {profile.origin.key}", profile


@pytest.mark.slow
def test_units_of_l1_agree_with_its_roll_up_on_every_generation() -> None:
    """No unit of L1 is busier than the profiler's own largest of them."""
    compared = set()
    for name, profile in everyone():
        whole = profile.value("l1_throughput")
        model = time_model.build(profile)
        if whole is None or "l1_data" not in model.loads or not profile.launch.complete:
            continue
        busy = model.busy("l1_data")
        assert busy <= whole * 1.05, name  # SMs and their L1 count active cycles apart
        if busy >= 0.95 * whole:
            compared.add(profile.device.cc)
    assert {(7, 0), (7, 5), (8, 0), (8, 6), (9, 0)} <= compared


def test_turing_s_l1_has_no_room_where_the_profiler_shows_it_full() -> None:
    """Half of the counter is all of the stage. No block has shared memory, so lanes that take six passes a
    request lie apart."""
    found = verdict("rtx2080ti-l1", 2)
    first, full = found.findings
    assert (first.bottleneck, first.confidence) == ("uncoalesced-global-access", "low")
    assert (full.bottleneck, full.interval) == ("l1-bandwidth", None)
    assert "100" in full.summary


#: Launches that read the host's memory, by file.
ON_THE_HOST = {"a40-host-memory": {1, 2, 3, 4, 7, 8, 9, 10}, "rtx3080l-host-atomics": {0, 1, 2}}


@pytest.mark.slow
def test_host_memory_is_found_where_it_is_read_and_nowhere_else() -> None:
    found: dict[str, set[int]] = {}
    for name, profile in everyone():
        first = diagnose(profile).primary
        assert (first.bottleneck == "host-memory") == any(
            each.bottleneck == "host-memory" for each in diagnose(profile).findings
        ), name
        if first.bottleneck == "host-memory":
            found.setdefault(name.partition(".")[0], set()).add(profile.origin.action_index)
            assert "GB/s" in first.summary
    assert found == ON_THE_HOST


@pytest.mark.parametrize(
    ("name", "launch"), [("rtx2070-numba-fp64", 0), ("rtx4070s-fp64", 5)], ids=["stalls", "basic"]
)
def test_fp64_at_a_small_rate_is_the_verdict(name: str, launch: int) -> None:
    """The owner's FP32 version of the first runs 7.1 times faster."""
    first = verdict(name, launch).primary
    assert first.bottleneck == "double-precision"
    assert "No known cause" not in first.summary
    assert first.confidence != "low"
    if name == "rtx2070-numba-fp64":
        assert first.speedup is not None
        assert 2 < first.speedup < 8


def test_a_lambda_of_the_user_s_is_not_a_library_s_kernel() -> None:
    ours, scan = (profiles("rtx4070s-fp64")[launch] for launch in (5, 3))
    assert kernel.language(ours) == "cuda"
    assert kernel.language(scan) == "library"


DEBUG_BUILDS = {"rtx3090-debug-build", "rtx3080-debug-build"}


@pytest.mark.slow
def test_debug_builds_show_in_the_embedded_machine_code() -> None:
    found = {
        name.partition(".")[0]
        for name, profile in everyone()
        if diagnose(profile).primary.bottleneck == "debug-build"
    }
    assert found == DEBUG_BUILDS


@pytest.mark.skipif(not (SHARED / "strangers2").is_dir(), reason="the folder is not here")
def test_a_few_microseconds_gain_no_more_than_the_same_kernel_without_work_leaves() -> None:
    """Launches 4 to 7 have nothing to do and take 3.94 to 4.00 of 5.25 µs."""
    found = load_report(SHARED / "strangers2" / "h100-few-microseconds.ncu-rep.xz").profiles
    assert [round(each.launch.idle_us, 2) for each in found] == [3.94] * 4 + [0.0] * 4
    for profile in found[:4]:
        for finding in diagnose(profile).findings:
            assert max(finding.speedup or 1.0, *(finding.interval or (1.0,))) < 1.45
            assert (
                finding.interval is None or finding.interval[0] > 1 or finding.confidence != "high"
            )
