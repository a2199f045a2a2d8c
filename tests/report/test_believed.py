"""Counters are believed only while they agree: those of another launch give no verdict, and values
that cannot be are absent, counted and named, and never leave another verdict as sure as before."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import report_files

from ncu_toolkit.base.metrics.registry import REGISTRY
from ncu_toolkit.base.model import NOT_MEASURED, Profile
from ncu_toolkit.kernel.analysis import answers
from ncu_toolkit.kernel.analysis.analyze import Options, analyze
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.explain.verdict import card
from ncu_toolkit.kernel.report import framing, integrity, messages, reader

ROOT = report_files.recorded.ROOT
FIELD = ROOT / "benchmarks" / "field" / "recordings" / "nvidia-h200"
STRANGERS = ROOT.parent / "shared" / "strangers2"
COPIED = STRANGERS / "rtx5000-copied-counters.ncu-rep.xz"
OF_2019 = STRANGERS / "rtx2070-2019.nsight-cuprof-report"
PASSES = REGISTRY["passes"].ncu[0]
EXECUTED = "inst_executed"
#: Reports whose verdicts are clear, each of another kind.
PLANTED = (
    "cuda_gamma_lut",
    "cuda_nbody_double",
    "cuda_permute4d",
    "cuda_spmv_skewed",
    "triton_histogram",
)
#: Values that no figure can have.
IMPOSSIBLE: dict[str, float | str] = {
    "nan": math.nan, "infinite": math.inf, "negative": -4.5, "900 %": 900.0, "text": "n/a",
}  # fmt: skip


def read(folder: Path, data: bytes) -> tuple[Profile, ...]:
    path = folder / "planted.ncu-rep"
    path.write_bytes(data)
    return reader.load_report(path, allow_partial=True).profiles


@cache
def whole(name: str) -> tuple[bytes, Profile, dict[str, str]]:
    """A report, its launch, and the profiler's names of the figures that it has, by ours."""
    path = FIELD / f"{name}-before.ncu-rep.xz"
    report = reader.load_report(path, values=True)
    (profile,), (values,) = report.profiles, report.values
    names = {
        short: next(each for each in REGISTRY[short].ncu if each in values)
        for short, reading in profile.readings.items()
        if reading.value is not None
    }
    return framing.read_bytes(path), profile, names


def cases() -> Iterator[tuple[str, str, str]]:
    """Report, figure and kind of value: each figure with two kinds, drawn, in two reports, drawn."""
    draw = random.Random(45)
    for figure in sorted({name for report in PLANTED for name in whole(report)[2]}):
        kinds = [
            kind for kind in IMPOSSIBLE if kind != "900 %" or REGISTRY[figure].unit == "fraction"
        ]
        reports = [report for report in PLANTED if figure in whole(report)[2]]
        yield from (
            (report, figure, kind)
            for report, kind in zip(draw.sample(reports, 2), draw.sample(kinds, 2), strict=True)
        )


def silent(folder: Path, name: str, figure: str, kind: str) -> str:
    """What is wrong with the answer to a planted figure; empty where nothing is."""
    data, before, names = whole(name)
    (after,) = read(folder, report_files.planted(data, {names[figure]: IMPOSSIBLE[kind]}))
    old, new = diagnose(before).primary, diagnose(after).primary
    shown = card(after, diagnose(after))
    if after.value(figure) is not None:
        return "it is believed"
    if not after.launch.complete:
        return "" if shown.gain == "no estimate" else "there is a verdict"
    if not any(figure in names for names in after.contradictions.values()):
        return "it is not named"
    if "cannot be true" not in shown.missing:
        return "the card is silent"
    changed = (new.bottleneck, new.good) != (old.bottleneck, old.good)
    return f"{new.bottleneck} is as sure" if changed and new.confidence == "high" else ""


@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.slow)])
def test_no_impossible_figure_changes_a_verdict_in_silence(every: int, tmp_path: Path) -> None:
    found = {case: silent(tmp_path, *case) for case in list(cases())[::every]}
    assert len(found) > (200 if every == 1 else 4)
    assert not {case: wrong for case, wrong in found.items() if wrong}


def test_a_count_of_an_instruction_that_cannot_be_is_left_out(tmp_path: Path) -> None:
    data, before, _ = whole("cuda_gamma_lut")
    assert before.mix.collected
    for bad in (math.nan, math.inf, -1.0):
        value = report_files._field(2, struct.pack("<cd", b"\x19", bad))

        def change(number: int, raw: bytes, content: int | bytes, value: bytes = value) -> bytes:
            if number != messages.METRIC_INSTANCE or not isinstance(content, bytes):
                return raw
            address = next(part for n, part, _ in report_files.raw_fields(content) if n == 1)
            return report_files._field(number, address + value)

        (after,) = read(tmp_path, report_files.changed(data, {EXECUTED: change}))
        assert any("has a count of" in sentence for sentence in after.contradictions)
        assert diagnose(after).primary.confidence != "high"


def test_a_launch_of_no_pass_has_no_verdict(tmp_path: Path) -> None:
    data, before, names = whole("cuda_gamma_lut")
    assert before.launch.complete
    planted = {
        PASSES: 0.0,
        names["instructions"]: 3 * (before.value("instructions") or 0.0),
        EXECUTED: 3 * (before.value("instructions") or 0.0),
    }
    for name, value in planted.items():
        (after,) = read(tmp_path, report_files.planted(data, {name: value}))
        assert after.launch.status.startswith(NOT_MEASURED), name
        shown = card(after, diagnose(after))
        assert (shown.title, shown.gain, shown.time_us) == ("Not measured", "no estimate", None)
        assert "--launch-count 1" in shown.do[0]
    few = {names["instructions"]: 7.0, EXECUTED: 7.0}
    (after,) = read(tmp_path, report_files.planted(data, few))
    assert "less than one for each of its" in after.launch.status


def test_counters_of_another_kernel_are_a_copy(tmp_path: Path) -> None:
    """The same launch under another name; of the same name and grid it may be the same work."""
    for kinds, copied in ((1, 0), (2, 1)):
        path = tmp_path / f"{kinds}.ncu-rep"
        path.write_bytes(report_files.many_launches(2, kinds, alike=True))
        statuses = [profile.launch.status for profile in reader.load_report(path).profiles]
        assert [status.startswith(NOT_MEASURED) for status in statuses] == [False, bool(copied)]
        assert copied == 0 or "those of launch 0" in statuses[1]


@pytest.mark.corpus
@pytest.mark.skipif(not COPIED.is_file(), reason="the reports of others are not here")
def test_a_real_report_of_copied_counters() -> None:
    first, *copies = reader.load_report(COPIED).profiles
    assert first.launch.complete
    assert diagnose(first).primary.confidence == "high"
    assert len(copies) == 2
    for profile in copies:
        assert profile.launch.status.startswith(NOT_MEASURED)
        assert profile.duration_us is None
        assert diagnose(profile).primary.speedup is None
    inside = integrity.inspect(
        (frame := framing.parse(framing.read_bytes(COPIED))), messages.sources(frame), "2023.2.0"
    )
    assert set(inside.copies) == {1, 2}, "their counters alone tell it too"
    found = analyze([COPIED], Options())
    assert found.exit_code == 4
    assert sum(line.startswith("not measured: ") for line in answers.remarks(found)) == 2


@pytest.mark.corpus
@pytest.mark.skipif(not OF_2019.is_file(), reason="the reports of others are not here")
def test_a_report_of_2019_is_whole() -> None:
    report = reader.load_report(OF_2019)
    assert (report.ncu_version, report.missing, report.read_launches) == ("2019", "", 8)
    frame = framing.parse(framing.read_bytes(OF_2019))
    assert messages.unnamed_version(framing.parse(report_files.first_launches(1))) == ""
    assert messages.unnamed_version(frame) == "2019"


@pytest.mark.slow
def test_no_real_report_has_copied_counters() -> None:
    """569 files, 2,222 launches beside the report above: no launch is accused."""
    folders = [
        ROOT / "tests",
        ROOT / "benchmarks",
        ROOT / "ncu_toolkit" / "data",
        ROOT.parent / "shared",
    ]
    files = {path for folder in folders for path in folder.rglob("*.ncu-rep*") if path != COPIED}
    files = {path for path in files if not path.name.endswith(".sha256")}
    assert len(files) > 100
    for path in sorted(files):
        frame = framing.parse(framing.read_bytes(path))
        inside = integrity.inspect(
            frame, messages.sources(frame), reader.ncu_version_in(frame.data)
        )
        assert not inside.copies, path
