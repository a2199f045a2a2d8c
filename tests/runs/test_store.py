"""Runs on disk: atomic files, their own folders, launches tied to their cases, manifests that
are not believed blindly."""

from __future__ import annotations

import gzip
import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import recorded

from benchmarks.parsed import save_parsed, save_rules
from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, ToolkitError
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model import (
    Device,
    InstructionMix,
    Launch,
    Origin,
    Presence,
    Profile,
    Reading,
    RuleMessage,
    Timing,
)
from ncu_toolkit.base.model.codec import from_plain, open_document
from ncu_toolkit.base.model.run import LadderOptions, Run, RunCase, Skipped
from ncu_toolkit.kernel.runs import store

CASE = RunCase(
    "gemm_fp32",
    "naive",
    "64",
    "float32",
    {"M": 64},
    {"BLOCK": 32},
    "profiled",
    flops=100.0,
    compulsory_bytes=10.0,
)
RUN = Run(
    "r",
    "a title",
    "2026-01-01T00:00:00Z",
    "0.1.0",
    Device("a GPU", (9, 0)),
    {"Driver": "1"},
    ("ncu",),
    (CASE,),
)
TIMING = Timing(
    "gemm_fp32",
    "naive",
    "64",
    "float32",
    {"M": 64},
    {"BLOCK": 32},
    (1.0, 2.0, 3.0),
    "warm",
    100.0,
    10.0,
    0.5,
)


def launch(index: int, duration: float | None, marker: str = CASE.marker) -> Profile:
    reading = Reading(
        "duration", duration, "us", Presence.PRESENT if duration is not None else Presence.UNDEFINED
    )
    return Profile(
        Origin("f", 0, index),
        Device("a GPU", (9, 0)),
        Launch("k", "k", (1, 1, 1), (1, 1, 1), nvtx=(marker,)),
        {"duration": reading},
        None,
        InstructionMix({}),
    )


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    store.write_atomic(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(EnvironmentProblem, match="cannot be written: No space left on device"):
        store.write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path], "nothing half-written lies about"


def test_an_interrupt_while_writing_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        store.write_atomic(tmp_path / "a", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_followed_and_the_mode_stays(tmp_path: Path) -> None:
    kept, link = tmp_path / "kept", tmp_path / "link"
    kept.write_text("old")
    kept.chmod(0o600)
    link.symlink_to("kept")
    store.write_atomic(link, b"new")
    assert link.is_symlink()
    assert kept.read_bytes() == b"new"
    assert kept.stat().st_mode & 0o7777 == 0o600
    dangling = tmp_path / "dangling"
    dangling.symlink_to("made")
    store.write_atomic(dangling, b"x")
    assert (tmp_path / "made").read_bytes() == b"x"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(EnvironmentProblem, match="loop"):
        store.write_atomic(tmp_path / "loop", b"x")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_the_mode_that_the_umask_leaves(
    tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        store.write_atomic(tmp_path / "new", b"x")
    finally:
        assert os.umask(before) == umask
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == mode


def test_what_is_no_file_is_written_into(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(fifo.read_bytes)
        store.write_atomic(fifo, b"through it")
        assert reader.result(timeout=10) == b"through it"
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    master, slave = pty.openpty()  # stands for any device
    try:
        name = os.ttyname(slave)
        store.write_atomic(Path(name), b"to the terminal")
        assert os.read(master, 100) == b"to the terminal"
        assert stat.S_ISCHR(os.stat(name).st_mode)
    finally:
        os.close(master)
        os.close(slave)
    with pytest.raises(EnvironmentProblem, match="directory"):
        store.write_atomic(tmp_path, b"x")


@pytest.mark.parametrize("sink", ["| cat", "> kept", ">> kept", "> link"])
def test_our_own_output_is_added_to(tmp_path: Path, sink: str) -> None:
    (tmp_path / "link").symlink_to("kept")
    code = (
        "import sys; from pathlib import Path; from ncu_toolkit.base.core.files import write_atomic; "
        "print('a'); write_atomic(Path('/dev/stdout'), b'b')"
    )
    kept = tmp_path / "kept"
    kept.write_text("before\n")
    words = f'"{sys.executable}" -c "{code}; print(); print(\'c\')" {sink}'
    path = os.pathsep.join([str(recorded.ROOT), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        ["bash", "-c", words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    shown = ended.stdout if "cat" in sink else kept.read_text()
    assert shown.removeprefix("before\n") == "a\nb\nc\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(EnvironmentProblem, match="--output"):
        store.new_run_folder(tmp_path, "x")


def test_runs_that_start_in_one_second_get_folders_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(
            pool.map(
                lambda _: store.new_run_folder(tmp_path / "reports", "vectorized 1024", 1.7e9),
                range(20),
            )
        )
    assert len(set(folders)) == 20
    assert all(
        folder.is_dir() and folder.name.startswith("20231114-221320-vectorized-1024")
        for folder in folders
    )


def test_a_run_comes_back(tmp_path: Path) -> None:
    store.save(tmp_path, replace(RUN, timings=(TIMING,)))
    assert store.load_manifest(tmp_path) == RUN
    assert store.load_timings(tmp_path) == (TIMING,)
    run = store.load_run(tmp_path, live=True)
    assert (run.title, run.timings, run.profiles, run.live) == ("a title", (TIMING,), (), True)


def test_run_json_holds_no_timings_and_is_read_as_earlier_versions_wrote_it(
    tmp_path: Path,
) -> None:
    asked = replace(RUN, asked=LadderOptions(redact=True), timings=(TIMING,))
    store.save(tmp_path, asked)
    text = (tmp_path / store.MANIFEST).read_text()
    plain = json.loads(text)
    assert not plain["data"].keys() & {"timings", "profiles", "curve", "live"}
    assert store.load_manifest(tmp_path) == replace(asked, timings=())
    plain["data"].update(device=None, asked=None, live=False)  # null was "unknown" and "none"
    (tmp_path / store.MANIFEST).write_text(json.dumps(plain))
    again = store.load_manifest(tmp_path)
    assert (again.device, again.asked, again.live) == (Device("unknown", (0, 0)), None, True)


def test_failed_and_skipped_cases_are_shown(tmp_path: Path) -> None:
    failed = replace(CASE, rung="coalesced", state="failed", message="wrong at [0, 1]")
    store.save(tmp_path, replace(RUN, cases=(CASE, failed), skipped=(Skipped("a", "too old"),)))
    assert store.load_run(tmp_path, live=True).skipped == (
        Skipped("a", "too old"),
        Skipped("gemm_fp32/coalesced at 64", "wrong at [0, 1]"),
    )


@pytest.mark.parametrize("name", ["../secret.ncu-rep", "/etc/passwd", "a/b.ncu-rep"])
def test_a_manifest_cannot_name_files_outside_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.ncu-rep").write_bytes(b"NVR\0")
    folder = tmp_path / "run"
    folder.mkdir()
    store.save(folder, replace(RUN, report_files=(name,)))
    with pytest.raises(InputProblem, match="outside its folder"):
        store.load_run(folder, live=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no file"),
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[]", "is not an ncu-toolkit run file"),
        ('{"schema": "ncu-toolkit/run", "version": 1, "data": {}}', "id is missing"),
    ],
)
def test_broken_manifests(tmp_path: Path, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / store.MANIFEST).write_text(text)
    with pytest.raises(InputProblem, match=says):
        store.load_manifest(tmp_path)


def test_broken_runs_are_listed_beside_good_ones(tmp_path: Path) -> None:
    for name in ("20260101-a", "20260102-b"):
        (tmp_path / name).mkdir()
        store.save(tmp_path / name, RUN)
    (tmp_path / "20260102-b" / store.MANIFEST).write_text("{")
    (first, good), (second, bad) = store.runs_under(tmp_path)
    assert (first.name, second.name) == ("20260101-a", "20260102-b")
    assert isinstance(good, Run)
    assert isinstance(bad, ToolkitError)


def test_one_launch_carries_its_cases_work() -> None:
    (tied,) = store.tie([launch(0, 5.0)], [CASE])
    assert tied.context is not None
    assert (
        tied.context.rung,
        tied.context.flops,
        tied.context.launch_index,
        tied.context.launch_count,
    ) == ("naive", 100.0, 0, 1)


def test_several_launches_share_a_case_and_only_a_dominant_one_carries_the_work() -> None:
    main, finish, stranger = store.tie(
        [launch(0, 95.0), launch(1, 5.0), launch(2, 1.0, "other")], [CASE]
    )
    assert main.context is not None
    assert finish.context is not None
    assert (main.context.flops, main.context.launch_index, main.context.launch_count) == (
        100.0,
        0,
        2,
    )
    assert (finish.context.flops, finish.context.launch_index) == (None, 1)
    assert stranger.context is None
    halves = store.tie([launch(0, 50.0), launch(1, 50.0)], [CASE])
    assert [profile.context.flops for profile in halves if profile.context] == [None, None]


def test_same_rung_at_two_sizes_is_told_apart() -> None:
    other = replace(CASE, size="128", flops=800.0)
    tied = store.tie([launch(0, 1.0, other.marker), launch(1, 1.0)], [CASE, other])
    assert [(p.context.size, p.context.flops) for p in tied if p.context] == [
        ("128", 800.0),
        ("64", 100.0),
    ]


def test_profiles_and_rules_come_back(tmp_path: Path) -> None:
    message = RuleMessage("R", "T", "text", "optimization", 12.0, "global")
    tied = store.tie([replace(launch(0, 5.0), rules=(message,)), launch(1, 1.0, "other")], [CASE])
    store.save_profiles(tmp_path, tied)
    data = json.loads(gzip.decompress((tmp_path / store.PROFILES).read_bytes()))
    assert from_plain(tuple[Profile, ...], open_document("profiles", data, "")) == tied
    save_rules(tmp_path, tied)
    bare = [replace(profile, rules=()) for profile in tied]
    assert [profile.rules for profile in store._with_rules(tmp_path, bare)] == [(message,), ()]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: "[" * 200_000, "nested too deeply"),
        (lambda text: text.replace('"a title"', "[" * 900 + "]" * 900), "is a list, expected"),
        (lambda text: text.replace('"version": 1', f'"version": {"9" * 6000}'), "is not JSON"),
        (lambda text: text.replace('"M": 64', f'"M": {"9" * 4000}'), "is too large"),
        (lambda text: text.replace("100.0", "9" * 4000), "is too large"),
        (lambda text: text.replace('"report_files": []', '"report_files": ["a\\u0000b"]'), "outside"),
        (lambda text: text.replace('"report_files": []', '"report_files": ["\\ud800"]'), "outside"),
        (
            lambda text: text.replace('"report_files": []', f'"report_files": ["{"a" * 300}"]'),
            "outside",
        ),
    ],
)  # fmt: skip
def test_hostile_manifests_are_input_problems(
    tmp_path: Path, change: Callable[[str], str], says: str
) -> None:
    store.save(tmp_path, replace(RUN, timings=(TIMING,)))
    whole = (tmp_path / store.MANIFEST).read_text()
    text = change(whole)
    assert text != whole
    (tmp_path / store.MANIFEST).write_text(text)
    with pytest.raises(InputProblem, match=says) as refused:
        store.load_manifest(tmp_path)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("name", [store.MANIFEST, store.TIMINGS, store.RULES])
def test_what_is_no_file_is_named_and_not_waited_for(tmp_path: Path, name: str) -> None:
    store.save(tmp_path, replace(RUN, timings=(TIMING,)))
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputProblem, match=f"{name}' is not a regular file"):
        store.load_run(tmp_path, live=False)


@pytest.mark.parametrize("times", [(), (float("nan"),), (1.0, -1.0), (0.0,)])
def test_impossible_times(tmp_path: Path, times: tuple[float, ...]) -> None:
    store.save(tmp_path, replace(RUN, timings=(replace(TIMING, times_us=times),)))
    with pytest.raises(InputProblem, match="missing or impossible times"):
        store.load_timings(tmp_path)


def test_names_that_are_no_text_come_back(tmp_path: Path) -> None:
    """A path that is not UTF-8 is a string with surrogates to Python."""
    odd = replace(RUN, commands=("./na\udcffme",), title="a\ud800b")
    store.save(tmp_path, odd)
    assert store.load_manifest(tmp_path) == odd


def test_gzip_is_unpacked_no_further_than_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(4 << 20)))
    assert files.read_gzip(tmp_path / "a.gz") == bytes(4 << 20)
    monkeypatch.setenv(files.LIMIT_VARIABLE, str(1 << 20))
    with pytest.raises(InputProblem, match="has more than 1048576 bytes"):
        files.read_gzip(tmp_path / "a.gz")
    os.mkfifo(tmp_path / "fifo.gz")
    with pytest.raises(InputProblem, match="not a regular file"):
        files.read_gzip(tmp_path / "fifo.gz")


@pytest.mark.parametrize("system", [True, False])
def test_folders_change_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: bool
) -> None:
    if not system:
        monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    files.exchange(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old" / "new").exists()
    assert (tmp_path / "new" / "old").exists()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_new_metric_is_read_from_a_recording_that_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recorded.small_recording(tmp_path / "run")
    run = store.load_manifest(folder)
    save_parsed(folder)
    (before,) = store.load_parsed(folder, run) or ()
    assert (before,) == store.read_reports(folder, run)

    old = registry.REGISTRY["dram_read_bytes"]
    threads = registry.Metric("threads", (registry.AGREEMENTS["threads"],), "count", "T", "T.")
    entries = {**registry.REGISTRY, "threads": threads, "renamed": replace(old, name="renamed")}
    del entries["dram_read_bytes"]
    monkeypatch.setattr(registry, "REGISTRY", entries)

    (after,) = store.load_parsed(folder, run) or ()
    assert replace(after, readings=before.readings) == before
    assert after.value("threads") == before.launch.blocks * before.launch.threads_per_block
    assert after.value("renamed") == before.value("dram_read_bytes")
    assert after.readings.keys() == entries.keys()


def test_another_name_of_what_a_launch_is_makes_a_recording_be_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recorded.small_recording(tmp_path / "run")
    run = store.load_manifest(folder)
    save_parsed(folder)
    monkeypatch.setitem(registry.LAUNCH_FACTS, "registers", "no__such")
    assert store.load_parsed(folder, run) is None


def test_launches_that_contradict_themselves_are_read_from_their_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recorded.small_recording(tmp_path / "run")
    run = store.load_manifest(folder)
    save_parsed(folder)
    read = store.reader.load_report

    def contradicting(path: Path, *, values: bool = False) -> store.reader.LoadedReport:
        report = read(path, values=values)
        broken = [
            replace(p, contradictions={"two figures": ("duration",)}) for p in report.profiles
        ]
        return replace(report, profiles=tuple(broken))

    monkeypatch.setattr(store.reader, "load_report", contradicting)
    save_parsed(folder)
    assert store.load_parsed(folder, run) is None
