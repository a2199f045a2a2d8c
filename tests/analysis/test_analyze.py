"""analyze: what a user sees of one or many reports, and that nothing is lost on the way."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import os
import pickle
import random
import re
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import golden
import jsonschema
import mutation
import pytest
import render_fixture
import report_files

from ncu_toolkit.base.core import cache, shares, workers
from ncu_toolkit.base.core.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INPUT,
    EXIT_USAGE,
    EnvironmentProblem,
    InputProblem,
    UsageProblem,
)
from ncu_toolkit.base.document.card import Card
from ncu_toolkit.base.document.tables import Table
from ncu_toolkit.base.model import Diagnosis, Finding
from ncu_toolkit.cli import main
from ncu_toolkit.kernel.analysis import analyze, answers
from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, Group, LaunchResult, Options
from ncu_toolkit.kernel.diagnosis import rules
from ncu_toolkit.kernel.diagnosis.needs import Needs
from ncu_toolkit.kernel.explain.verdict import card
from ncu_toolkit.kernel.pages import json as documents
from ncu_toolkit.kernel.report import framing, reader

CORPUS = report_files.recorded.ROOT.parent / "shared" / "corpus"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole report of two launches, one of four light ones, and one cut short."""
    path = tmp_path_factory.mktemp("reports")
    two = report_files.first_launches(2)
    (path / "two.ncu-rep").write_bytes(two)
    (path / "many.ncu-rep").write_bytes(report_files.many_launches(4))
    (path / "broken").mkdir()
    (path / "broken" / "cut.ncu-rep").write_bytes(two[:-100])
    return path


@pytest.fixture(scope="module")
def whole(folder: Path) -> Analysis:
    return analyze.analyze([folder / "two.ncu-rep", folder / "many.ncu-rep"], jobs=2)


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command line."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main(list(arguments))
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def test_every_launch_has_a_verdict_of_the_list(whole: Analysis) -> None:
    assert [file.status for file in whole.files] == ["complete", "complete"]
    assert len(whole.launches) == 6
    for launch in whole.launches:
        assert launch.complete
        assert launch.diagnosis.primary.bottleneck in rules.bottleneck_ids()
        assert launch.duration_us
        assert launch.profile is None, "whole profiles are kept for pages only"


def test_repeats_are_grouped_with_their_spread(whole: Analysis) -> None:
    sizes = sorted(len(group.launches) for group in whole.groups)
    assert sizes == [1, 1, 4]
    repeats = next(group for group in whole.groups if len(group.launches) == 4)
    assert repeats.total_us == pytest.approx(4 * (repeats.typical.duration_us or 0))
    assert [group.total_us for group in whole.groups] == sorted(
        (group.total_us for group in whole.groups), reverse=True
    )


def launch_of(
    duration: float | None, bottleneck: str = "unknown", status: str = "complete"
) -> LaunchResult:
    diagnosis = Diagnosis((Finding(bottleneck, "s", "high", (), 1.5, (), ()),))
    launch = render_fixture.profile("vectorized", 1024, 0)
    return LaunchResult(
        "f",
        "0.0",
        "k(int)",
        "k",
        "gpu",
        "sm_90",
        (1, 1, 1),
        (32, 1, 1),
        status,
        duration,
        diagnosis,
        card(launch, diagnosis, "f"),
    )


def other_kernel(launch: LaunchResult) -> LaunchResult:
    return dataclasses.replace(launch, kernel="other(int)", function="other")


def cells(table: Table) -> list[dict[str, str]]:
    labels = [column.label for column in table.columns]
    return [dict(zip(labels, (cell.text for cell in row), strict=True)) for row in table.rows]


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        pytest.param([8.0, 232.0], 232.0, id="the long one of two"),
        pytest.param([5.0] * 90 + [5000.0] * 10, 5000.0, id="few long ones take the time"),
        pytest.param([10.0] * 19 + [100.0], 10.0, id="one outlier"),
        pytest.param([12.0, 10.0, 11.0], 11.0, id="the middle one"),
        pytest.param([7.0] * 4, 7.0, id="all alike"),
        pytest.param([None, float("nan"), 3.0], 3.0, id="one time known"),
        pytest.param([None, None], None, id="no time known"),
    ],
)
def test_the_typical_launch_is_where_the_time_goes(
    times: list[float | None], shown: float | None
) -> None:
    assert times[analyze.typical(times)] == shown


def test_times_and_agreement_of_a_group() -> None:
    group = Group(
        (
            launch_of(10.0, "tail-effect"),
            launch_of(12.0, "tail-effect"),
            launch_of(11.0, "low-occupancy"),
        )
    )
    assert group.times_us == (10.0, 11.0, 12.0)
    assert group.typical.duration_us == 11.0
    assert group.agreeing == 1
    kernels = answers.of_analysis(
        Analysis((analyze.FileResult("f", (*group.launches, other_kernel(launch_of(1.0)))),))
    ).kernels
    assert kernels
    row = cells(kernels)[0]
    assert row["verdict"] == "Low occupancy (1 of 3)"
    assert row["launches"] == "3"
    assert Group((launch_of(None, status="incomplete: x"),)).total_us is None


def test_a_launch_too_short_for_its_counters_is_named() -> None:
    """Nsight says 403 % of L1's throughput of a launch of 1.6 µs."""
    path = golden.ORIGINS / "principles-full-2.ncu-rep.xz"
    found = report_files.read(str(path), Options())
    (launch,) = [launch for launch in found.launches if launch.contradictions]
    assert launch.key == "0.14"
    (message,) = launch.contradictions
    assert message.startswith("1 of ")
    assert "l1tex__throughput.avg.pct_of_peak_sustained_active with 403.053%" in message


def test_folders_are_searched_and_files_named_once(folder: Path) -> None:
    files, empty = analyze.find_reports([folder, folder / "two.ncu-rep"])
    assert sorted(file.name for file in files) == ["cut.ncu-rep", "many.ncu-rep", "two.ncu-rep"]
    assert not empty
    compressed = folder / "broken" / "later.ncu-repz"
    compressed.write_bytes(b"\x28\xb5\x2f\xfd")
    files, _ = analyze.find_reports([folder / "broken"])
    compressed.unlink()
    assert [file.name for file in files] == ["cut.ncu-rep", "later.ncu-repz"], (
        "a kind that cannot be read is named, not left out"
    )
    (folder / "nothing").mkdir(exist_ok=True)
    _, empty = analyze.find_reports([folder / "nothing"])
    assert empty[0].status == "unreadable"


def test_json_fits_its_schema(whole: Analysis) -> None:
    document = json.loads(documents.analysis_document(whole))
    jsonschema.Draft202012Validator.check_schema(documents.schema())
    jsonschema.validate(document, documents.schema())
    assert len(document["launches"]) == 6
    launch = document["launches"][0]
    assert {"file", "kernel", "status", "duration_us", "diagnosis"} <= launch.keys()
    assert launch["diagnosis"]["predicted_speedup"] >= 1
    assert all("bottleneck" in other for other in launch["diagnosis"]["runners_up"])
    broken = json.loads(documents.analysis_document(whole))
    del broken["launches"][0]["diagnosis"]["bottleneck"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, documents.schema())


def test_a_broken_file_is_named_and_the_others_are_shown(folder: Path) -> None:
    code, out, err = run("analyze", str(folder), "/no/such/report.ncu-rep", "--format", "json")
    assert code == EXIT_INPUT
    document = json.loads(out)
    jsonschema.validate(document, documents.schema())
    states = {Path(file["file"]).name: file["status"] for file in document["files"]}
    assert states == {
        "two.ncu-rep": "complete",
        "many.ncu-rep": "complete",
        "cut.ncu-rep": "unreadable",
        "report.ncu-rep": "unreadable",
    }
    assert len(document["launches"]) == 6
    cut = next(file for file in document["files"] if file["file"].endswith("cut.ncu-rep"))
    assert "offset" in cut["error"]
    assert cut["remedy"]
    assert len(err.splitlines()) == 2
    assert all(line.startswith("error: ") for line in err.splitlines())


@pytest.mark.parametrize("form", ["text", pytest.param("markdown", marks=pytest.mark.slow)])
def test_several_files_are_named_by_what_they_differ_in(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for run_folder in ("old", "new"):
        (tmp_path / run_folder).mkdir()
        (tmp_path / run_folder / "r.ncu-rep").write_bytes(report_files.first_launches(1))
    _, out, _ = run("analyze", ".", "--format", form)
    assert (out.count("· new/r.ncu-rep"), out.count("· old/r.ncu-rep")) == (1, 1)
    _, out, _ = run("analyze", "old", "--format", form)
    assert "· r.ncu-rep" not in out
    assert "· old/r.ncu-rep" not in out


def test_a_launch_without_a_name_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "r.ncu-rep"
    path.write_bytes(report_files.nameless_launch())
    code, out, err = run("analyze", str(path), "--format", "markdown")
    assert code == EXIT_INPUT
    message = "is incomplete: the report has no metrics for this launch, since it is damaged or"
    assert f"launch 0.0 of '{path}' (unnamed) {message}" in err
    assert "--allow-partial" not in err, "nothing else is in it"
    assert ": unnamed (launch 0.0 of" in out


@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_an_incomplete_launch_is_an_input_error_unless_accepted(
    form: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = analyze.analyze([folder / "two.ncu-rep"])
    (file,) = whole.files
    half = dataclasses.replace(
        file.launches[0], status="incomplete: its duration is 0", duration_us=None
    )

    def incomplete(paths: object, options: analyze.Options, **named: object) -> Analysis:
        return Analysis((dataclasses.replace(file, launches=(half, *file.launches[1:])),), options)

    monkeypatch.setattr("ncu_toolkit.cli.analyze.analyze", incomplete)
    code, out, err = run("analyze", "two.ncu-rep", "--format", form)
    assert code == EXIT_INPUT
    assert "coalesced" in out
    assert form == "text" or (
        err.count("\n"),
        "(naive" in err,
        "is incomplete: its duration is 0" in err,
    ) == (1, True, True)
    code, again, err = run("analyze", "two.ncu-rep", "--format", form, "--allow-partial")
    assert (code, err) == (0, "")
    assert form == "json" or again == out, "accepted, and still printed"


@pytest.fixture(scope="module")
def contradictory(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two launches, with the bytes of one read from device memory doubled."""
    path = tmp_path_factory.mktemp("contradictory") / "doubled.ncu-rep"
    data = (folder / "two.ncu-rep").read_bytes()
    path.write_bytes(mutation.double_a_figure(data, random.Random(1), b"dram__bytes_read.sum")[0])
    return path


def test_a_launch_that_contradicts_itself_keeps_its_verdict(
    folder: Path, contradictory: Path
) -> None:
    before = json.loads(run("analyze", str(folder / "two.ncu-rep"), "--format", "json")[1])
    code, out, err = run("analyze", str(contradictory), "--format", "json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    jsonschema.validate(document, documents.schema())
    (file,) = document["files"]
    assert (file["status"], file["state"], file["damage"]) == ("complete", "contradictory", None)
    assert [launch["status"] for launch in document["launches"]] == ["complete", "complete"]
    (named,) = [launch for launch in document["launches"] if launch["contradictions"]]
    assert named["diagnosis"]["bottleneck"] != "unknown"
    assert all("dram_read_bytes" in found["metrics"] for found in named["contradictions"])
    first = named["contradictions"][0]["text"]
    assert f"Contradictory: {first}." in named["diagnosis"]["notes"]
    (other,) = [launch for launch in document["launches"] if not launch["contradictions"]]
    (same,) = [launch for launch in before["launches"] if launch["launch"] == other["launch"]]
    assert other["diagnosis"] == same["diagnosis"]


@pytest.mark.parametrize("form", ["text", "csv", "html"])
def test_every_format_names_a_contradiction(form: str, contradictory: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    standalone = ("--standalone", "-o", str(target)) if form == "html" else ()
    code, out, err = run("analyze", str(contradictory), "--format", form, *standalone)
    assert (code, err) == (0, "")
    shown = " ".join((target.read_text(encoding="utf-8") if form == "html" else out).split())
    assert "dram__bytes_read.sum" in shown.replace("\\_", "_")
    if form in ("text", "markdown", "brief"):
        assert shown.count("contradictory:") == 1


def without_launches(data: bytes) -> bytes:
    return data[: next(b.offset for b in framing.parse(data).blocks if b.results)]


def cut_after_a_launch(data: bytes) -> bytes:
    blocks = framing.parse(data).blocks
    return data[: blocks[next(i for i, b in enumerate(blocks) if b.results) + 1].offset]


def newer(data: bytes) -> bytes:
    return re.sub(rb"2025\.\d\.\d(?=\.\d \(build)", b"2031.1.0", data)


#: What is in the file, the exit code, the state that the one line names, and what it says to do.
BAD = {
    "empty": (lambda _: b"", EXIT_INPUT, "unreadable", "run it again and let it finish"),
    "pointer": (
        lambda _: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        EXIT_INPUT,
        "unreadable",
        "git lfs pull",
    ),
    "text": (lambda _: b"==PROF== Connected", EXIT_INPUT, "unreadable", "Pass the .ncu-rep file"),
    "half": (lambda data: data[: len(data) // 2], EXIT_INPUT, "unreadable", "Copy or record it"),
    "half of it zeros": (
        lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
        EXIT_INPUT,
        "unreadable",
        "Copy or record it",
    ),
    "no launch": (without_launches, EXIT_INPUT, "unreadable", "its filters match a kernel"),
    "cut at a block": (cut_after_a_launch, EXIT_INPUT, "incomplete", "Copy or record it again"),
    "newer ncu": (newer, 0, "complete", ""),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_reported_in_a_line(name: str, folder: Path, tmp_path: Path) -> None:
    change, code, state, remedy = BAD[name]
    path = tmp_path / "bad.ncu-rep"
    path.write_bytes(change((folder / "two.ncu-rep").read_bytes()))
    ended, out, err = run("analyze", str(path), "--format", "json")
    assert ended == code
    assert json.loads(out)["files"][0]["state"] == state
    assert len(err.splitlines()) == (1 if code else 0)
    if code:
        assert err.startswith(f"error: {state}: '{path}'")
        assert remedy in err
    if state == "incomplete":
        assert len(json.loads(out)["launches"]) == 1, "what is there is analysed"
        assert run("analyze", str(path), "--allow-partial")[0] == 0


def test_top_and_kernel_say_what_they_leave_out(folder: Path) -> None:
    code, out, _ = run(
        "analyze", str(folder / "two.ncu-rep"), "--kernel", "^coal", "--format", "json"
    )
    document = json.loads(out)
    assert (
        code,
        [launch["function"] for launch in document["launches"]],
        document["files"][0]["read_launches"],
    ) == (0, ["coalesced"], 2)
    code, out, _ = run("analyze", str(folder / "two.ncu-rep"), "--top", "1", "--format", "json")
    document = json.loads(out)
    assert (len(document["launches"]), document["omitted_launches"]) == (1, 1)
    code, out, _ = run("analyze", str(folder / "two.ncu-rep"), "--kernel", "naive")
    assert "1 other launch does not match --kernel naive" in out
    code, out, _ = run("analyze", str(folder / "two.ncu-rep"), "--kernel", "nosuch")
    assert out == "no kernel matches 'nosuch'; the report has: naive, coalesced\n"
    code, _, err = run("analyze", str(folder / "two.ncu-rep"), "--kernel", "(")
    assert code == EXIT_USAGE
    assert "regular expression" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--timeout", "inf"], "inf"),
        (["--timeout", "1e300"], "1e+300"),
        (["--timeout", "nan"], "not a number of seconds"),
        (["--standalone", "--format", "json"], "cannot be combined with --format json"),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    arguments: list[str], says: str, folder: Path
) -> None:
    code, _, err = run("analyze", str(folder / "two.ncu-rep"), *arguments)
    assert code == EXIT_USAGE
    assert says in err


def test_an_empty_path_is_not_the_folder_one_works_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for command in (
        ["analyze", ""],
        ["analyze", "two.ncu-rep", "-o", ""],
        ["baseline", "save", "x", ""],
        ["redact", "two.ncu-rep", ""],
    ):
        code, _, err = run(*command)
        assert code == EXIT_USAGE
        assert "the path is empty" in err


def test_pages(folder: Path, tmp_path: Path) -> None:
    code, out, _ = run(
        "analyze",
        str(folder / "two.ncu-rep"),
        "--format",
        "html",
        "--output",
        str(tmp_path / "reports"),
    )
    assert code == 0
    page = Path(out.strip().removeprefix("Open "))
    assert page.is_file()
    assert "coalesced" in page.read_text(encoding="utf-8")
    alone = tmp_path / "alone.html"
    code, _, _ = run(
        "analyze",
        str(folder / "broken" / "cut.ncu-rep"),
        "--allow-partial",
        "--format",
        "html",  # one file, by the name of the output
        "--redact",
        "--output",
        str(alone),
    )
    assert code == 0
    text = alone.read_text(encoding="utf-8")
    assert "incomplete:" in text
    assert str(folder) not in text
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["alone.html"]


@pytest.mark.parametrize(
    "name",
    [
        "--format", "a\x1b[31mb", "caf\udce9 1.ncu-rep", "it's\\n\x07f0\u202e.ncu-rep", "é\u202e日本", "\n",
    ],
)  # fmt: skip
def test_the_next_command_names_any_file(name: str, tmp_path: Path) -> None:
    """As bash reads it, it is the very file; nothing in it could move a terminal's cursor."""
    odd = LaunchResult(**{**vars(launch_of(1.0)), "file": name})
    reported = answers.next_command(Analysis((analyze.FileResult("x", (odd,)),)))
    assert reported.isprintable()
    words = (
        reported.removeprefix("ncu-toolkit analyze ")
        .partition(" --kernel")[0]
        .partition(" --top")[0]
    )
    (tmp_path / name).write_bytes(b"found")
    ended = subprocess.run(
        ["bash", "-c", f"cat {words}"], cwd=tmp_path, capture_output=True, check=False
    )
    assert ended.stdout == b"found", ended.stderr


# ---- workers


def crash(how: str) -> str:
    """What a task does to its worker."""
    if how == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "sleep":
        time.sleep(60)
    if how == "raise":
        raise ValueError("odd")
    if how == "refuse":
        raise UsageProblem("no", "do")
    if how == "print":
        os.write(1, b"native chatter")
    return how


@pytest.mark.slow
def test_a_crash_or_a_hang_costs_one_task() -> None:
    tasks = ["fine", "segfault", "print", "sleep", "raise", "refuse", "fine"]
    started = time.monotonic()
    done = {
        d.index: d
        for d in workers.run(
            "test_analyze:crash",
            [(t,) for t in tasks],
            jobs=2,
            timeout=10,
            label=lambda i: f"task {i}",
        )
    }
    assert time.monotonic() - started < 60
    assert [done[i].value for i in (0, 2, 6)] == ["fine", "print", "fine"]
    messages = [str(done[i].error) for i in (1, 3, 4, 5)]
    assert "task 1 ended with signal 11 (SIGSEGV)" in messages[0]
    assert "task 3 did not finish within 10 s" in messages[1]
    assert "ValueError: odd" in messages[2]
    assert isinstance(done[5].error, UsageProblem)


@pytest.mark.slow
def test_time_and_memory_grow_with_the_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times the launches take no more than some five times as long, and a report read in parts
    leaves little behind in this process."""
    taken = {}
    for count in (100, 400):
        path = tmp_path / f"{count}.ncu-rep"
        path.write_bytes(report_files.many_launches(count))
        before = time.process_time()
        whole = report_files.read(str(path), Options())
        taken[count] = time.process_time() - before
        assert len(whole.launches) == count
    assert taken[400] < 6 * taken[100] + 0.5
    monkeypatch.setattr(shares, "PART_LAUNCHES", 150)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert report_files.read(str(path), Options(), jobs=2) == whole, (
        "in parts or as a whole, the same comes out"
    )
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024 < 40, "MiB"


@pytest.mark.slow
def test_a_launch_that_was_read_takes_little_memory(tmp_path: Path) -> None:
    """Of a hundred thousand launches few are shown; as objects a verdict and its card took 20 KB."""
    path = tmp_path / "many.ncu-rep"
    path.write_bytes(report_files.many_launches(200, 50))
    packed = analyze.read_packed(str(path), Options())
    tracemalloc.start()
    try:
        file = analyze.unpacked(packed)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / len(file.launches) < 8192, "bytes per launch"
    assert not packed.parts, "what is unpacked is not kept packed beside"
    launch = file.launches[7]
    assert launch.card is launch.card, "unpacked once"
    assert launch == pickle.loads(pickle.dumps(replace(launch)))
    assert launch.diagnosis.primary.bottleneck
    with pytest.raises(AttributeError):
        launch.verdict  # type: ignore[attr-defined]  # noqa: B018


def test_shares_keep_code_together_and_are_even() -> None:
    unit = shares.SHARE_BYTES + 1
    assert shares.even([unit] * 4, [b"a", b"b", b"a", b"b"], 2) == [[0, 2], [1, 3]]
    assert shares.even([unit] * 4, [None] * 4, 16) == [[0], [1], [2], [3]]
    assert shares.even([], [], 2) == []
    several = [b"a", b"b"] * 4
    assert shares.even([shares.PART_BYTES // 3] * 8, several, 1) == [
        [0, 2, 5, 7],
        [4, 6],
        [1, 3],
    ], "in parts that a process can hold, launches of one code after each other"
    assert len(shares.even([1] * 2500, [b"a"] * 2500, 2)) == 6, "as much for each process"
    assert shares.even([unit] * 6, [b"a"] * 6, 3) == [[0, 1], [2, 3], [4, 5]], (
        "code of a launch that comes often is made by several"
    )
    assert len(shares.even([10, 20], [b"a", None], 8)) == 1, "too little to be worth a process"
    lengths = [(7 * i) % 11 * unit // 4 + 1 for i in range(50)]
    dealt = shares.even(lengths, [bytes([i % 7]) for i in range(50)], 4)
    assert sorted(index for share in dealt for index in share) == list(range(50))
    sizes = [sum(lengths[i] for i in share) for share in dealt]
    assert max(sizes) < 1.25 * sum(sizes) / 4


@pytest.mark.slow
def test_a_file_read_by_several_processes_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "five.ncu-rep"
    path.write_bytes(report_files.first_launches(5))
    alone = report_files.read(str(path), Options())
    monkeypatch.setattr(shares, "SHARE_BYTES", 100_000)
    monkeypatch.setattr(shares, "WHOLE_BYTES", 200_000)
    assert report_files.read(str(path), Options(), jobs=2) == alone
    only = report_files.read(str(path), Options(kernel="coalesced|flat"), jobs=2)
    assert [launch.function for launch in only.launches] == ["coalesced", "flat_index"]
    assert only.filtered_out == 3


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the folder of real reports is not here")
def test_real_reports() -> None:
    found = analyze.analyze([CORPUS])
    assert [file.status for file in found.files] == ["complete"] * len(found.files)
    assert {launch.file.rsplit("/", 1)[-1] for launch in found.incomplete} == {
        "a100-incomplete-launch.ncu-rep",
        "a10g-incomplete-last-launch.ncu-rep",
    }
    jsonschema.validate(json.loads(documents.analysis_document(found)), documents.schema())
    text = "\n".join(answers.remarks(found))
    assert "nodeByPoint5" in text
    assert "one_d_vec" in text
    merge = next(
        group for group in found.groups if "DeviceMergeSortMergeKernel" in group.typical.function
    )
    assert len(merge.launches) == 13


@pytest.mark.parametrize("fails", [False, True])
def test_a_file_that_changes_while_it_is_read_is_named(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are read here, and again by the profiler's module: it may find another file."""
    path = tmp_path / "report.ncu-rep"
    path.write_bytes(report_files.many_launches(2))
    other = b"no report" if fails else report_files.many_launches(3)
    parse = framing.parse

    def change(data: bytes) -> framing.Framing:
        path.write_bytes(other)
        return parse(data)

    monkeypatch.setattr(framing, "parse", change)
    with pytest.raises(InputProblem, match="changed while it was read"):
        report_files.read(str(path), Options())


def test_odd_names_are_read_like_others(folder: Path, tmp_path: Path) -> None:
    """Not UTF-8, in capitals, with a dash in front: nothing of a folder is skipped."""
    names = ["caf\udce9.ncu-rep", "UPPER.NCU-REP", "-dash.ncu-rep", "new\nline.ncu-rep"]
    for name in names:
        (tmp_path / name).write_bytes((folder / "two.ncu-rep").read_bytes())
    found = analyze.analyze([tmp_path])
    assert sorted(Path(file.path).name for file in found.files) == sorted(names)
    assert [(file.error, len(file.launches)) for file in found.files] == [(None, 2)] * 4


def test_nothing_in_a_folder_is_left_out_in_silence(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "two.ncu-rep").write_bytes((folder / "two.ncu-rep").read_bytes())
    os.mkfifo(tmp_path / "fifo.ncu-rep")
    (tmp_path / "gone.ncu-rep").symlink_to("nowhere")
    found = analyze.analyze([tmp_path], jobs=2)
    assert [file.status for file in found.files] == ["unreadable", "unreadable", "complete"]
    assert "is not a regular file" in str(found.files[0].error)


def test_a_folder_without_permission_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = os.walk

    def closed(path: Path, onerror: Callable[[OSError], None]) -> Iterator[Any]:
        onerror(PermissionError(errno.EACCES, "Permission denied", "inner"))
        yield from walk(path)

    monkeypatch.setattr(os, "walk", closed)
    files, lost = analyze.find_reports([folder])
    assert len(files) == 3
    assert "'inner' cannot be read: Permission denied" in str(lost[0].error)


ENDLESS = "(a+)+b"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(Options(kernel=ENDLESS), id="--kernel"),
        pytest.param(
            Options(needs=(Needs(bytes=5.0, kernel=ENDLESS),)), id="--needs", marks=pytest.mark.slow
        ),
    ],
)
def test_an_expression_that_never_ends_is_a_wrong_request(
    options: Options, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "long.ncu-rep"
    path.write_bytes(report_files.with_texts(report_files.first_launches(1), lambda _: b"a" * 60))
    option = request.node.callspec.id
    with (
        workers.time_limit(30, InputProblem("it never ends")),
        pytest.raises(UsageProblem, match=rf"{option} .* takes more than 2 s for one name"),
    ):
        analyze.analyze([path], options)


def test_what_the_machine_lacks_has_its_own_exit_code(whole: Analysis) -> None:
    full = FileResult("x.ncu-rep", error=EnvironmentProblem("No space left on device"))
    lost = dataclasses.replace(whole, files=(*whole.files, full))
    assert lost.exit_code == EXIT_ENVIRONMENT


def test_a_large_report_stays_on_the_disk_and_is_read_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts with the code of their launches alone."""
    path = report_files.recorded.ROOT / "tests/origins/reports/nested-names.ncu-rep.xz"
    plain = tmp_path / "nested.ncu-rep"
    plain.write_bytes(framing.read_bytes(path))
    whole = report_files.read(str(plain), Options())
    monkeypatch.setattr(framing, "_IN_MEMORY", 1000)
    monkeypatch.setattr(framing, "_WINDOW", 5000)
    monkeypatch.setattr(shares, "PART_BYTES", 60_000)
    assert isinstance(framing.content(plain), framing.Stored)
    assert report_files.read(str(plain), Options(), jobs=2) == whole
    plain.write_bytes(plain.read_bytes()[:-100])
    with pytest.raises(InputProblem, match="is damaged at offset"):
        report_files.read(str(plain), Options())


DEFAULT = Options()
#: Reports of several languages and kinds of workload.
REPORTS = [
    report_files.recorded.ROOT / f"tests/origins/reports/{name}.ncu-rep.xz"
    for name in (
        "graph-nodes",
        "jax",
        "nested-names",
        "pm-sampling",
        "range-replay",
        "torch-workers",
    )
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.name.partition(".")[0])
def test_a_report_read_in_parts_is_the_same_as_read_whole(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole without texts that are known, and with the tables as the profiler's module reads them."""
    plain = tmp_path / "report.ncu-rep"
    plain.write_bytes(framing.read_bytes(report))
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "whole"))
    with monkeypatch.context() as alone:
        alone.setattr(reader, "_lighter", lambda *_: [])
        whole = report_files.read(str(plain), Options(figures=True))
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "parts"))
    monkeypatch.setattr(shares, "PART_BYTES", 60_000)
    assert report_files.read(str(plain), Options(figures=True), jobs=2) == whole
    assert len(whole.launches) < 2 or list((tmp_path / "parts" / "answers").iterdir())
    assert report_files.read(str(plain), Options(figures=True), jobs=2) == whole, "as it was kept"


#: Notes which process starts the disassembler and which makes texts; this one has other C++ code.
NOTED = """
import os, sys
from ncu_toolkit.base.core import shares
from ncu_toolkit.kernel.analysis import analyze
from ncu_toolkit.kernel.report import reader
shares.WHOLE_BYTES, shares.PART_BYTES = 1000, 60_000
for name in ("warm_up", "texts_of"):
    def noted(*of, do=getattr(reader, name), name=name):
        found = do(*of)
        with open(name, "a") as note:
            note.write(f"{os.getpid()}:{len(os.listdir('/proc/self/task')) > 1} ")
        return found
    setattr(reader, name, noted)
for figures in (False, True):
    assert len(analyze.unpacked(analyze.read_packed(sys.argv[1], analyze.Options(figures=figures), 2)).launches) == 4
"""


def test_the_disassembler_of_a_large_report_starts_before_the_report_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the process that makes the texts, once: then the code is known."""
    (tmp_path / "report.ncu-rep").write_bytes(report_files.first_launches(4))
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(report_files.recorded.ROOT))
    subprocess.run([sys.executable, "-c", NOTED, "report.ncu-rep"], cwd=tmp_path, check=True)
    started, *again = (tmp_path / "warm_up").read_text().split()
    assert started.endswith(":True")
    assert started in (tmp_path / "texts_of").read_text().split()
    assert not any(each.endswith(":True") for each in again)


def test_an_answer_is_kept_for_the_same_bytes_and_question_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(shares, "PART_BYTES", 60_000)
    path, readings = tmp_path / "many.ncu-rep", []
    path.write_bytes(report_files.many_launches(4, 2))
    made = reader.ReportFile
    monkeypatch.setattr(reader, "ReportFile", lambda path: readings.append(path) or made(path))

    def readings_of(options: Options = DEFAULT) -> int:
        before = len(readings)
        report_files.read(str(path), options, jobs=2)
        return len(readings) - before

    assert (readings_of(), readings_of()) == (1, 0)
    assert readings_of(Options(kernel="naive")) == 1
    assert (readings_of(Options(profiles=True)), readings_of(Options(profiles=True))) == (1, 1)
    path.write_bytes(report_files.many_launches(4, 3))
    assert (readings_of(), readings_of()) == (1, 0)
    for kept in (tmp_path / "cache" / "answers").iterdir():
        kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    assert (readings_of(), readings_of()) == (1, 0), "a damaged answer is made again"
    for kept in (tmp_path / "cache" / "answers").iterdir():
        kept.chmod(0o666)
    assert readings_of() == 1, "others could have written it"
    (tmp_path / "many.ncu-rep.sha256").write_text(f"{'0' * 64}  many.ncu-rep\n")
    with pytest.raises(InputProblem, match="SHA-256"):
        report_files.read(str(path), Options(), jobs=2)


def test_progress_counts_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(shares, "PART_BYTES", 60_000)
    monkeypatch.setattr(analyze, "_FOLLOWED_S", 0.01)
    path = tmp_path / "five.ncu-rep"
    path.write_bytes(report_files.first_launches(5))
    seen: list[tuple[str, int, int, Card | None]] = []
    analyze.analyze([path], jobs=2, progress=lambda *seen_now: seen.append(seen_now))
    assert {(path, launches) for path, _, launches, _ in seen if launches} == {(str(path), 5)}
    assert {judged for _, judged, _, _ in seen} <= {0, 1, 2, 3, 4, 5}
    assert max(judged for _, judged, _, _ in seen) == 5


#: In a process that can be forked, as commands are.
_FIRST = """
import sys
from pathlib import Path
from ncu_toolkit.base.core import shares
from ncu_toolkit.kernel.analysis import analyze
shares.PART_BYTES, analyze._FOLLOWED_S, seen = 60_000, 0.01, []
found = analyze.analyze([Path(sys.argv[1])], jobs=2, progress=lambda *seen_now: seen.append(seen_now[-1]))
(card,) = {each for each in seen if each is not None}
assert card == found.groups[0].typical.card, card
assert seen.index(card) < len(seen) - 2
"""


def test_the_kernel_with_most_time_is_judged_first(tmp_path: Path) -> None:
    path = tmp_path / "five.ncu-rep"
    path.write_bytes(report_files.first_launches(5))
    environment = {**os.environ, cache.CACHE_VARIABLE: str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", _FIRST, str(path)], env=environment, check=True)
