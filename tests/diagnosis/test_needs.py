"""What a launch must move and compute: given on the command line or from arrays, and what verdicts
make of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import diagnosis_cases as cases
import numpy as np
import pytest
import recorded
import report_files
from click.testing import CliRunner

from ncu_toolkit import api
from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.base.model import Context, Profile
from ncu_toolkit.cli import cli
from ncu_toolkit.kernel.analysis.analyze import Options, analyze
from ncu_toolkit.kernel.diagnosis import figures, needs
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.runs import store

MOVED = 4.2e9
ASSUMED = "are needed; --needs "


@pytest.mark.parametrize(
    ("text", "kernel", "figures"),
    [
        ("bytes=2*4096*4096*4", "", (134217728, None)),
        ("bytes=2*256MiB,flops=17.2G", "", (536870912, 17.2e9)),
        ("flops = 2*4096**3", "", (None, 137438953472)),
        ("ns::foo: bytes=1.5 GB", "ns::foo", (1.5e9, None)),
        ("^k$:bytes=max(3kB, 4KiB)", "^k$", (4096, None)),
        ("bytes=1e9", "", (1e9, None)),
    ],
)
def test_needs_are_arithmetic_with_units(
    text: str, kernel: str, figures: tuple[float | None, float | None]
) -> None:
    found = needs.parse(text)
    assert (found.kernel, found.bytes, found.flops) == (kernel, *figures)
    assert needs.parse(str(found)) == found, "a run's manifest keeps them as text"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("4096", "neither bytes nor flops"),
        ("", "neither bytes nor flops"),
        ("bytes=", "cannot be read"),
        ("bytes=0", "not a positive number"),
        ("bytes=-4", "not a positive number"),
        ("bytes=1e308*10", "not a positive number"),
        ("bytes=N*4", "there is no 'N'"),
        ("bytes=4 parsecs", "there is no unit 'parsecs'"),
        ("bytes=9**999", "too large"),
        ("bytes=1/0", "division by zero"),
        ("bytes=__import__('os')", "there is no function"),
        ("bytes=1,bytes=2", "bytes twice"),
        ("(:bytes=1", "no regular expression|not a regular expression"),
        ("bytes=" + "(" * 900 + "1" + ")" * 900, "cannot be read|nested"),
        ("bytes=" + "1" * 5000, "characters long"),
    ],
)
def test_needs_that_cannot_be_are_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(UsageProblem, match=says) as refused:
        needs.parse(text)
    assert refused.value.remedy


def copy(**context: Any) -> Profile:
    """The case at the roof of device memory, with as many bytes through L2 as through it."""
    case = cases.read("dram-bandwidth")
    metrics = {**case["metrics"], "l2_sectors_from_sm": MOVED / figures.SECTOR_BYTES}
    return cases.build({**case, "metrics": metrics}).needs(**context)


def test_at_the_roof_of_device_memory_only_needs_settle_what_is_good() -> None:
    unknown = diagnose(copy()).primary
    assert unknown.good
    assert f"{ASSUMED}bytes=… sets the true number." in unknown.summary
    needed = diagnose(copy(bytes=MOVED))
    assert (needed.primary.bottleneck, needed.primary.good) == ("dram-bandwidth", True)
    assert "moves only the bytes that it must" in needed.primary.summary
    assert ASSUMED not in needed.primary.summary
    assert needed.primary.confidence == "high"
    wasteful = diagnose(copy(bytes=MOVED / 4))
    assert (wasteful.primary.bottleneck, wasteful.primary.good) == ("dram-bandwidth", False)
    assert "4.00× the bytes that the problem needs" in wasteful.primary.summary
    assert 2 < wasteful.primary.speedup <= 4
    assert any("This launch needs 1.05" in note and "4.00×" in note for note in wasteful.notes)


def test_waste_counts_where_device_memory_is_merely_saturated() -> None:
    """At 82% of its peak: not what copies reach, but four times the bytes it needs."""
    slower = cases.read("dram-bandwidth")
    slower["metrics"] = {
        **slower["metrics"], "dram_utilization": 0.82, "l2_sectors_from_sm": MOVED / 32,
        "dram_read_bytes": 4.2e9, "dram_write_bytes": 1e3,
    }  # fmt: skip
    profile = cases.build(slower)
    plain = diagnose(profile).primary
    assert "bytes that the problem needs" not in plain.summary
    found = diagnose(profile.needs(bytes=MOVED / 4))
    assert "4.00× the bytes that the problem needs" in found.primary.summary
    assert found.primary.speedup > 2


def test_needs_beyond_what_the_launch_moved_are_not_used() -> None:
    found = diagnose(copy(bytes=10 * MOVED))
    assert found.primary.good
    assert ASSUMED in found.primary.summary
    assert "Correct --needs" in found.notes[0]


def test_operations_beyond_the_needed_are_no_good_use_of_a_pipe() -> None:
    """The FP32 roof and that of the tensor cores, with the operations needed and with a third."""
    for name, flops in (("fp32-pipe", "flops_fp32"), ("tensor-pipe", "flops_tensor")):
        profile = cases.build(cases.read(name))
        executed = figures.value(profile, flops)
        assert executed
        plain, needed, wasteful = (
            diagnose(each).findings
            for each in (
                profile, profile.needs(flops=executed), profile.needs(flops=executed / 3),
            )
        )  # fmt: skip
        first = [
            next(f for f in each if f.bottleneck == name) for each in (plain, needed, wasteful)
        ]
        assert [f.good for f in first] == [True, True, False], name
        assert ASSUMED + "flops" in first[0].summary
        assert ASSUMED not in first[1].summary
        assert "3.00× the operations" in first[2].summary


@pytest.mark.skipif(not store.recordings(), reason="no recording")
def test_a_recorded_rung_is_judged_alike_whoever_says_what_it_needs() -> None:
    """Rungs stripped of their ladder are anybody's launches: with their own needs they get the
    verdict that the ladder gives them, and without them a good roof is stated as assumed."""
    good = 0
    for folder in recorded.FOLDERS:
        if "elementwise" not in folder.name and "transpose" not in folder.name:
            continue
        for profile in recorded.run_of(folder).profiles:
            context = profile.context
            if context is None or context.compulsory_bytes is None or context.launch_count > 1:
                continue
            assert (figures.value(profile, "l2_bytes") or 1e18) >= context.compulsory_bytes
            stranger = replace(profile, context=None)
            needed = {
                "bytes": context.compulsory_bytes,
                "flops": context.flops or None,
            }  # a copy: 0
            reported = diagnose(stranger.needs(**needed))
            here = diagnose(profile).primary
            assert (reported.primary.bottleneck, reported.primary.good, reported.primary.speedup) == (
                here.bottleneck, here.good, here.speedup,
            )  # fmt: skip
            primary = diagnose(stranger).primary
            assert (ASSUMED in primary.summary) == primary.good
            good += primary.good
    assert good >= 4


def test_arrays_say_how_many_bytes() -> None:
    a, b, c = np.zeros((4, 8), np.float32), np.ones(16, np.float16), np.zeros(3)
    alike = SimpleNamespace(nbytes=100)  # as of CuPy, PyTorch, JAX
    profile = cases.build({})
    assert profile.needs(inputs=[a, b, a], outputs=[c]).context == Context(
        compulsory_bytes=a.nbytes + b.nbytes + c.nbytes
    )
    assert profile.needs(inputs=a, outputs=a, flops=7).context == Context(
        compulsory_bytes=2 * a.nbytes, flops=7
    )
    assert profile.needs(inputs=(alike,)).context == Context(compulsory_bytes=100)
    assert profile.needs(flops=3).needs(bytes=4).context == Context(compulsory_bytes=4, flops=3)
    with pytest.raises(TypeError, match="inputs holds a str"):
        profile.needs(inputs="ab")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leave one of them out"):
        profile.needs(bytes=4, inputs=a)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not a positive number"):
            profile.needs(bytes=wrong)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("needs") / "two.ncu-rep"
    path.write_bytes(report_files.first_launches(2))
    return path


def test_a_launch_of_a_report_takes_arrays(report: Path) -> None:
    launch = api.load(report)[0]
    a = np.zeros(10**6)
    reported = launch.needs(inputs=[a], outputs=[a])
    assert isinstance(reported, api.KernelLaunch)
    assert reported.context == Context(compulsory_bytes=2 * a.nbytes)
    assert any("(--needs)" in note for note in reported.diagnosis.notes)
    assert launch.context is None


def test_a_report_takes_needs_for_kernels_by_name(report: Path) -> None:
    loaded = api.load(report, instructions=False)
    reported = loaded.needs("naive", bytes=5e8).needs(flops=2e9)
    by_name = {each.launch.function: each.context for each in reported}
    assert by_name["naive"] == Context(compulsory_bytes=5e8, flops=2e9)
    assert by_name["coalesced"] == Context(flops=2e9)
    assert all(each.context is None for each in loaded), "the report itself stays as it is"
    assert "family" not in reported.to_frame(), "these are no rungs"
    with pytest.raises(ValueError, match="no launch matches 'nothing'"):
        loaded.needs("nothing", bytes=1)


def test_needs_are_in_every_output(report: Path, tmp_path: Path) -> None:
    arguments = ["analyze", str(report), "--needs", "naive:bytes=192MiB", "--needs", "zzz:flops=1"]
    shown = CliRunner().invoke(cli, [*arguments, "--format", "json"])
    launches = {each["function"]: each["needs"] for each in json.loads(shown.stdout)["launches"]}
    assert launches["naive"] == {"bytes": 192 * 2**20, "flops": None}
    assert launches["coalesced"] == {"bytes": None, "flops": None}
    text = CliRunner().invoke(cli, arguments).stdout
    assert "no launch matches --needs 'zzz:flops=1'" in text
    assert "not used" not in text
    wrong = CliRunner().invoke(cli, ["analyze", str(report), "--needs", "bytes=1PB"]).stdout
    assert "--needs is ignored: it says 1.00 PB" in " ".join(wrong.split())
    unit = CliRunner().invoke(cli, ["analyze", str(report), "--needs", "bytes=0.2"]).stdout
    assert "Was bytes=0.2GB meant?" in " ".join(unit.split())
    page = tmp_path / "page.html"
    done = CliRunner().invoke(cli, [*arguments, "--standalone", "-o", str(page)])
    assert page.is_file(), done.output
    assert "naive:bytes=201326592" in page.read_text()


def test_needs_reach_every_worker(report: Path) -> None:
    reported = analyze([report], Options(needs=(needs.Needs(bytes=5e8),)), jobs=2)
    assert [each.needed_bytes for each in reported.launches] == [5e8, 5e8]
