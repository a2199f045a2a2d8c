"""The store of the history: nothing that was added is lost, and what is damaged is named."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
import recorded
import report_files
from history_rows import PLAIN, day

from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, UsageProblem
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.guests.history import history, intake, trends
from ncu_toolkit.guests.history.history import COLUMNS
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.runs import baselines, store


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(history.VARIABLE, str(tmp_path / "history"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "history"


def runs() -> list[str]:
    with history.opened() as found:
        assert not found.broken
        return [row["run"] for row in found.rows("SELECT run FROM launches ORDER BY run")]


def test_rows_come_back_as_they_were_added(folder: Path) -> None:
    empty = replace(PLAIN, launch="0.1", git_dirty=None, time_us=None, registers=None, verdict="")
    odd = replace(PLAIN, launch="0.2", name="naïve '\"; \udcff\0", kernel="drop table launches; --")
    history.add([PLAIN, empty, odd])
    with history.opened() as found:
        first, second, third = found.rows("FROM launches ORDER BY launch")
    assert list(first) == list(COLUMNS)
    assert first.pop("date").isoformat() == "2026-11-01T10:00:00"
    assert first == {k: getattr(PLAIN, k) for k in COLUMNS if k != "date"}
    assert second["git_dirty"] is second["time_us"] is second["registers"] is None
    assert third["name"] == "naïve '\"; \\udcff\\0"
    (path,) = folder.iterdir()
    assert path.name == f"{history.integrity.digest(path)}.parquet"


def test_the_same_launch_counts_once(folder: Path) -> None:
    history.add([PLAIN, PLAIN])
    history.add([replace(PLAIN, git_commit="other")])
    assert len(list(folder.iterdir())) == 2
    assert runs() == ["a"]


def test_merging_keeps_every_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MANY", 4)
    for number in range(9):
        history.add([replace(PLAIN, report=f"r{number}", run=f"run{number}")])
        assert len(runs()) == number + 1
    assert len(list(folder.glob("*.parquet"))) < 4


def test_what_a_merge_left_behind_counts_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        history.add([replace(PLAIN, report=f"r{number}", run=f"run{number}")])
    with monkeypatch.context() as patch:  # killed before the old files are removed
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        history.merge()
    assert len(list(folder.glob("*.parquet"))) == 4
    assert runs() == ["run0", "run1", "run2"]
    history.merge()
    assert len(list(folder.glob("*.parquet"))) == 1
    assert runs() == ["run0", "run1", "run2"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_files_have_the_mode_that_the_umask_leaves(folder: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        history.add([PLAIN])
    finally:
        os.umask(before)
    (file,) = folder.glob("*.parquet")
    assert file.stat().st_mode & 0o777 == mode


def test_one_merges_at_a_time(folder: Path) -> None:
    history.add([PLAIN])
    history.add([replace(PLAIN, report="r2", run="b")])
    with (folder / ".lock").open("w") as lock:
        history.fcntl.flock(lock, history.fcntl.LOCK_EX)
        history.merge()
    assert len(list(folder.glob("*.parquet"))) == 2


def test_files_that_go_while_they_are_read_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        history.add([replace(PLAIN, report=f"r{number}", run=f"run{number}")])
    fill, merged = history._fill, []

    def late(*arguments: Any) -> None:
        if not merged:
            merged.append(True)
            history.merge()
        fill(*arguments)

    monkeypatch.setattr(history, "_fill", late)
    assert runs() == ["run0", "run1", "run2"]


WRITER = """
import sys
from dataclasses import replace
from history_rows import PLAIN
from ncu_toolkit.guests.history import history
history.MANY = 4
for number in range(int(sys.argv[2])):
    name = f"{sys.argv[1]}-{number:02}"
    history.add([replace(PLAIN, report=name, run=name)])
    print(name, flush=True)
"""


@contextlib.contextmanager
def writer(name: str, count: int) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join(
        [str(Path(__file__).parent), str(recorded.ROOT / "tests"), str(recorded.ROOT)]
    )
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), name, str(count)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
    ) as process:  # fmt: skip
        yield process


def test_two_writers_and_one_that_is_killed_lose_nothing() -> None:
    with writer("one", 5) as one, writer("two", 5) as two, writer("killed", 999) as killed:
        assert killed.stdout is not None
        reported = [killed.stdout.readline().strip() for _ in range(3)]
        killed.send_signal(signal.SIGKILL)
        reported += killed.stdout.read().split()
        assert (one.wait(), two.wait()) == (0, 0)
    found = runs()
    assert {f"{name}-{number:02}" for name in ("one", "two") for number in range(5)} <= {*found}
    assert {*reported} <= {*found}
    assert len(found) == len({*found})


def test_a_link_to_nothing_hides_no_other_file(folder: Path) -> None:
    history.add([PLAIN])
    link = folder / f"{'0' * 64}.parquet"
    link.symlink_to(folder / "gone")
    with history.opened() as found:
        assert [row["run"] for row in found.rows("FROM launches")] == [PLAIN.run]
        (message,) = map(str, found.broken)
    assert (
        f"'{link}' is left out of the history: it is a link to a file that is not there" in message
    )
    history.merge()
    assert link.is_symlink()


def test_a_damaged_file_is_named_and_left_out(folder: Path) -> None:
    history.add([PLAIN])
    (first,) = folder.iterdir()
    history.add([replace(PLAIN, report="r2", run="b")])
    data = bytearray(first.read_bytes())
    data[len(data) // 3] ^= 1
    first.write_bytes(data)
    (folder / "notes.parquet").write_text("not ours")
    with history.opened() as found:
        assert [row["run"] for row in found.rows("FROM launches")] == ["b"]
        messages = [str(error) for error in found.broken]
    assert len(messages) == 2
    assert f"'{first}' is left out of the history: it is damaged" in messages[0]
    assert "notes.parquet" in messages[1]
    history.merge()
    assert first.exists(), "what cannot be read is never removed"


def written_as(folder: Path, version: str, schema: str = history.SCHEMA) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "x"
    duckdb.execute(
        f"COPY (SELECT 1 AS novel) TO '{path}' (FORMAT parquet, KV_METADATA {{schema: '{schema}', version: '{version}'}})"
    )
    return path.rename(folder / f"{history.integrity.digest(path)}.parquet")


def test_a_newer_version_is_refused_by_name(folder: Path) -> None:
    path = written_as(folder, "2")
    for attempt in (lambda: history.add([PLAIN]), runs):
        with pytest.raises(InputProblem, match="of version 2 of the history") as refused:
            attempt()
        assert str(path) in refused.value.message
        assert "Upgrade ncu-toolkit" in refused.value.remedy


def test_parquet_of_others_is_left_out(folder: Path) -> None:
    written_as(folder, "1", "somebody/else")
    with history.opened() as found:
        assert found.rows("FROM launches") == []
        assert "it is not a file of the history" in found.broken[0].message


def test_a_full_disk_loses_nothing(folder: Path) -> None:
    history.add([PLAIN])
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, kept[1]))
    try:
        with pytest.raises(EnvironmentProblem, match="cannot be written") as error:
            history.add([replace(PLAIN, report="r2", run="b")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
        signal.signal(signal.SIGXFSZ, before)
    assert "\n" not in error.value.message
    assert len(list(folder.iterdir())) == 1, "no half file is left"
    assert runs() == ["a"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY launches TO 'out.csv'",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "DELETE FROM launches",
        "SELECT 1; SELECT 2",
        "SELECT nothing FROM launches",
        "",
    ],
)
def test_sql_reaches_nothing_but_the_launches(sql: str, tmp_path: Path) -> None:
    history.add([PLAIN])
    with history.opened() as found:
        with pytest.raises(UsageProblem, match=r"^--sql") as refused:
            found.select(sql)
        assert "\n" not in str(refused.value)
        assert len(found.rows("FROM launches")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["history"]


def test_sql_selects(tmp_path: Path) -> None:
    history.add([PLAIN, replace(PLAIN, launch="0.1", time_us=300.0)])
    with history.opened() as found:
        names, rows = found.select(
            "WITH t AS (FROM launches) SELECT name, max(time_us) AS m FROM t GROUP BY name"
        )
    assert (names, rows) == (("name", "m"), [("naive", 300.0)])


# --- what is shown ---------------------------------------------------------------------------


def test_a_change_of_verdict_is_dated() -> None:
    """A verdict that comes back holds since it came back."""
    verdicts = ["dram-bandwidth", "memory-latency", "dram-bandwidth", "", "dram-bandwidth"]
    history.add([day(n, verdict=v, time_us=10.0 * n) for n, v in enumerate(verdicts, 1)])
    with history.opened(trends.RUN_COLUMNS) as found:
        (one,) = trends.all_series(found)
        ((_, kept),) = trends.series_of(found, "naive")
    assert one.since is not None
    assert (one.runs, one.verdict, one.since.day) == (5, "dram-bandwidth", 3)
    assert one.times == (10.0, 20.0, 30.0, 40.0, 50.0)
    assert one.change == pytest.approx(0.25)
    assert [run.before for run in kept] == ["", "dram-bandwidth", "memory-latency", "", ""]


def test_a_course_has_every_change_of_verdict_among_its_times() -> None:
    """Also where a run between has no time, or no verdict."""
    runs = [(10.0, "a"), (None, "b"), (12.0, "b"), (11.0, ""), (11.0, "b"), (9.0, "a")]
    history.add([day(n, time_us=t, verdict=v, spread=0.1) for n, (t, v) in enumerate(runs, 1)])
    history.add([day(1, name="once", launch="1", verdict="a")])
    with history.opened(trends.COLUMNS) as found:
        one, once = sorted(trends.all_series(found), key=lambda each: each.name)
    course = one.course
    assert course
    assert (course.values, course.changes) == ((10.0, 12.0, 11.0, 11.0, 9.0), (1, 4))
    assert course.band == pytest.approx((8.55, 9.45))
    assert course.words == "5 runs, 9.00 µs to 12.0 µs; the verdict changed 2 times"
    assert once.course is None
    assert replace(one, times=(1.0, math.inf)).course is None


def test_of_many_runs_the_last_are_shown_and_the_words_of_the_last_verdict() -> None:
    """Of the run before the last there is a verdict, of the last only a time."""
    first = datetime.datetime(2026, 1, 1)
    rows = [
        replace(
            day(1, time_us=float(n), spread=n / 1000, title=f"in run {n}", gain=float(n)),
            run=f"run{n}", report=f"r{n}", date=(first + datetime.timedelta(hours=n)).isoformat(),
        )
        for n in range(1, 41)
    ]  # fmt: skip
    history.add([*rows[:-1], replace(rows[-1], verdict="", title="", gain=None)])
    with history.opened(trends.COLUMNS) as found:
        (one,) = trends.all_series(found)
    assert (one.runs, one.launches, one.last_us) == (40, 40, 40.0)
    assert one.times == tuple(map(float, range(40 - trends.SPARK + 1, 41)))
    assert one.spreads == (0.039, 0.04)
    assert (one.title, one.gain) == ("in run 39", 39.0)
    assert one.since == first + datetime.timedelta(hours=1)


def test_times_of_two_clocks_are_not_mixed() -> None:
    history.add([day(1), day(2, time_us=None, profiled_us=500.0), day(3, time_us=110.0)])
    history.add([replace(day(n, time_us=None), name="other", report=f"o{n}") for n in (1, 2)])
    with history.opened(trends.RUN_COLUMNS) as found:
        naive, other = sorted(trends.all_series(found), key=lambda one: one.name)
    assert (naive.by_events, naive.times) == (True, (100.0, 110.0))
    assert (other.by_events, other.times) == (False, (120.0, 120.0))


def test_a_run_is_the_median_of_its_launches_and_the_verdict_of_the_longest() -> None:
    launches = [(100.0, "dram-bandwidth"), (110.0, "dram-bandwidth"), (300.0, "memory-latency")]
    history.add(
        [day(1, launch=f"0.{n}", time_us=None, profiled_us=t, verdict=v) for n, (t, v) in enumerate(launches)]
        + [day(1, launch="0.9", profiled_us=9000.0, status="incomplete")]
    )  # fmt: skip
    with history.opened(trends.RUN_COLUMNS) as found:
        ((_, (run,)),) = trends.series_of(found, "naive")
    assert (run.launches, run.time_us, run.verdict) == (3, 110.0, "memory-latency")
    assert run.spread == pytest.approx(200 / 110)


def test_a_kernel_is_found_by_name_then_by_expression() -> None:
    history.add([day(1), day(2, name="naive_2", kernel="void app::naive_2<8>(int)")])
    with history.opened(trends.RUN_COLUMNS) as found:

        def names(text: str) -> set[str]:
            return {one.name for one, _ in trends.series_of(found, text)}

        assert names("naive") == {"naive"}
        assert names("app::naive_2") == {"naive_2"}
        assert names("naive.*") == {"naive", "naive_2"}
        with pytest.raises(InputProblem, match="no kernel in the history matches 'cublas'"):
            names("cublas")
        with pytest.raises(UsageProblem, match="neither a kernel nor a regular expression"):
            names("(")


# --- import ----------------------------------------------------------------------------------


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "app.ncu-rep"
    path.write_bytes(report_files.first_launches(2))
    return path


def test_imports_add_what_is_new(report: Path, tmp_path: Path) -> None:
    """A report, its copy in a run and in a baseline are the same launches."""
    done = intake.take_in([report], diagnose)
    assert (done.added, done.known, done.broken) == (2, 0, ())
    made = tmp_path / "reports" / "one"
    made.mkdir(parents=True)
    (made / "profile.ncu-rep").write_bytes(report.read_bytes())
    store.save(made, Run("one", "one", "2026-11-01T10:00:00Z", report_files=("profile.ncu-rep",)))
    baselines.save("main", [made])
    for again in ([tmp_path / "reports"], [baselines.root()]):
        done = intake.take_in(again, diagnose)
        assert (done.added, done.known, done.broken) == (0, 2, ())


def test_a_row_holds_what_the_report_says(report: Path) -> None:
    intake.take_in([report], diagnose)
    with history.opened() as found:
        row = found.rows("FROM launches ORDER BY launch")[0]
    analysis = baselines.read([report])
    launch = analysis.launches[0]
    assert row["kernel"] == launch.kernel
    assert row["verdict"] == launch.diagnosis.primary.bottleneck
    assert row["profiled_us"] == pytest.approx(launch.duration_us)
    assert row["gpu"] == launch.gpu
    assert row["registers"] > 0
    assert 0 < row["dram_percent"] < 100
    assert 0 < row["occupancy_percent"] <= 100
    assert row["stall"]
    assert len(row["code"]) == 64


def test_the_commit_where_one_works(tmp_path: Path) -> None:
    assert intake.here("GPU-1") == intake.Here("GPU-1", "", None)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    (tmp_path / "a.cu").write_text("1")
    for words in (["init", "-q"], ["add", "a.cu"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    clean = intake.here()
    assert len(clean.git_commit) == 40
    assert clean.git_dirty is False
    (tmp_path / "a.cu").write_text("2")
    assert intake.here().git_dirty is True
