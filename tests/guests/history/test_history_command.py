"""`ncu-toolkit history` from the outside: what it shows, and how it refuses."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import report_files
from click.testing import CliRunner
from history_rows import day

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import EXIT_ENVIRONMENT, EXIT_INPUT, EXIT_OK, EXIT_USAGE
from ncu_toolkit.cli import cli, main
from ncu_toolkit.guests.history import history
from ncu_toolkit.guests.history.command import keep
from ncu_toolkit.guests.history.intake import Here, rows_of_trial
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.program.model import ProgramTrial, Tried


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(history.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".ncu-toolkit" / "history"


@pytest.fixture
def kept() -> None:
    """Three runs of a kernel whose verdict changes in the last, and one of another."""
    other = replace(day(2), name="other", kernel="other", report="o", time_us=7.5, gain=None)
    history.add([day(1), day(2, time_us=90.0), other])
    history.add(
        [
            day(
                3,
                time_us=45.0,
                verdict="missing-data-reuse",
                title="Missing data reuse",
                git_dirty=True,
            )
        ]
    )


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["history", *words])
    reported = capsys.readouterr()
    assert "Traceback" not in reported.err
    return int(ended.value.code or 0), reported.out, reported.err


@pytest.mark.usefixtures("kept")
def test_all_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert code == EXIT_OK
    heading, first, second = out.splitlines()[2:5]
    assert heading.split()[4:] == ["time", "change", "trend", "verdict", "since", "gain"]
    assert " ".join(first.split()) == (
        "naive 1024 float32 3 45.0 µs -50 % █▇▁ Missing data reuse 2026-11-03 1.5×"
    )
    assert second.split()[0] == "other"


def test_kernels_are_shown_by_the_name_of_their_function(
    capsys: pytest.CaptureFixture[str],
) -> None:
    space = "cub::CUB_200301_520_NS::DeviceMergeSort"
    for at, name in enumerate(("BlockSort", "Merge", "Partition")):
        full = f"void {space}{name}Kernel<(bool)0, {space}Policy<int>::Policy600>(bool, T3 *)"
        history.add([replace(day(at + 1), name=full, kernel=full)])
    history.add([replace(day(9), name="(anonymous namespace)::k<4>(int)")])
    code, out, _ = run(capsys)
    assert code == EXIT_OK
    assert [line.split()[0] for line in out.splitlines()[3:7]] == [
        "k", "DeviceMergeSortPartitionKernel", "DeviceMergeSortMergeKernel",
        "DeviceMergeSortBlockSortKernel",
    ]  # fmt: skip


@pytest.mark.usefixtures("kept")
def test_one_kernel_marks_where_its_verdict_changed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "naive")
    assert code == EXIT_OK
    assert "100 µs █▇▁ 45.0 µs" in out
    assert out.count("→") == 1
    assert "2026-11-03 10:00  c0ffee+  45.0 µs   2.0 %  DRAM bandwidth → Missing data reuse" in out


@pytest.mark.usefixtures("kept")
def test_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "--format", "json")[1])
    assert (found["schema"], found["version"]) == ("ncu-toolkit/history", 1)
    assert [one["name"] for one in found["kernels"]] == ["naive", "other"]
    assert found["kernels"][0]["since"] == "2026-11-03T10:00:00"
    runs = list(csv.DictReader(io.StringIO(run(capsys, "naive", "--format", "csv")[1])))
    assert [each["time_us"] for each in runs] == ["100.0", "90.0", "45.0"]
    assert [each["verdict_before"] for each in runs] == ["", "", "dram-bandwidth"]


@pytest.mark.usefixtures("kept")
def test_as_markdown_and_as_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "| 2026-11-03 10:00 | c0ffee+ | 45.0" in run(capsys, "naive", "--format", "markdown")[1]
    code, out, _ = run(capsys, "naive", "--format", "html")
    assert (code, out) == (EXIT_OK, "Open ncu-history.html\n")
    page = (tmp_path / "ncu-history.html").read_text()
    assert page.count("<circle") == 3
    assert page.count('class="nc-changed"') == 1
    assert ">Missing data reuse</text>" in page
    assert "<polyline" in page


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("text", ["name     m", "naive  100", "other  7.5"]),
        ("csv", ["name,m", "naive,100.0", "other,7.5"]),
        ("json", ['   "name": "naive",', '   "m": 100.0']),
        ("markdown", ["| name | m |", "| naive | 100 |"]),
    ],
)
def test_sql(capsys: pytest.CaptureFixture[str], form: str, expected: list[str]) -> None:
    query = "select name, max(time_us) as m from launches group by name order by name"
    code, out, _ = run(capsys, "--sql", query, "--format", form)
    assert code == EXIT_OK
    assert [line for line in out.splitlines() if line in expected] == expected


def test_columns_of_one_name_are_all_there(capsys: pytest.CaptureFixture[str]) -> None:
    query = "select 1 as a, 2 as a, 3 as a_1, 4 as a, 5 as b"
    assert run(capsys, "--sql", query, "--format", "csv")[1] == "a,a,a_1,a,b\n1,2,3,4,5\n"
    rows = json.loads(run(capsys, "--sql", query, "--format", "json")[1])["rows"]
    assert rows == [{"a": 1, "a_2": 2, "a_1": 3, "a_3": 4, "b": 5}]


@pytest.mark.parametrize(
    ("words", "expected", "code"),
    [
        (("import", ""), "the path is empty", EXIT_USAGE),
        (("--sql", "select * from read_csv('/etc/passwd')"), "file system operations are disabled", EXIT_USAGE),
        (("naive", "--sql", "select 1"), "one name too many", EXIT_USAGE),
        (("import",), "nothing to import", EXIT_USAGE),
        (("import", "nowhere"), "there is no report or folder 'nowhere'", EXIT_INPUT),
        (("(",), "neither a kernel nor a regular expression", EXIT_USAGE),
    ],
)  # fmt: skip
def test_what_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str, code: int
) -> None:
    ended, out, err = run(capsys, *words)
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert err.startswith("error: ")
    assert expected in err


@pytest.mark.usefixtures("kept")
def test_ctrl_c_ends_a_long_query(capsys: pytest.CaptureFixture[str]) -> None:
    """DuckDB makes a RuntimeError of it."""
    # what a shell starts in the background ignores SIGINT
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    product = "select sum(a.range * b.range) from range(1000000) a, range(1000000) b"
    with pytest.raises(SystemExit) as ended:
        main(["history", "--sql", product])
    signal.signal(signal.SIGINT, before)
    assert ended.value.code == 130
    assert "interrupted" in capsys.readouterr().err


def test_an_empty_history_says_how_to_fill_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert code == EXIT_OK
    assert "The history is empty." in out
    assert "ncu-toolkit history import" in out


@pytest.mark.usefixtures("kept")
def test_a_damaged_file_is_reported_after_the_rest(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "bad.parquet").write_bytes(b"PAR1")
    code, out, err = run(capsys)
    assert code == EXIT_INPUT
    assert "naive" in out
    assert "bad.parquet' is left out of the history" in err


def test_import_and_import_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "app.ncu-rep").write_bytes(report_files.first_launches(1))
    assert run(capsys, "import", "app.ncu-rep")[1] == "Added 1 launch.\n"
    assert run(capsys, "import", ".")[1] == "Added 0 launches; 1 were in the history already.\n"


def test_each_report_that_cannot_be_imported_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    whole = report_files.first_launches(2)
    held = {
        "a": b"", "b": b"just text in here", "c": whole[:-1], "d": report_files.nameless_launch(),
        "e": report_files.first_launches(1),
    }  # fmt: skip
    for name, data in held.items():
        (tmp_path / f"{name}.ncu-rep").write_bytes(data)
    code, out, err = run(capsys, "import", ".")
    assert (code, out) == (EXIT_INPUT, "Added 1 launch.\n")
    empty, text, cut, nameless = err.splitlines()
    assert "'a.ncu-rep' is empty" in empty
    assert "'b.ncu-rep' is a text file" in text
    assert "'c.ncu-rep' is damaged" in cut
    assert "`ncu-toolkit analyze c.ncu-rep --allow-partial` shows what is left" in cut
    assert "launch 0.0 of 'd.ncu-rep' was left out, because it has no name (incomplete" in nameless
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "profile.ncu-rep").write_bytes(held["d"])
    made = store.Run("one", "one", "2026-11-01T10:00:00Z", report_files=("profile.ncu-rep",))
    store.save(folder, made)
    code, out, err = run(capsys, "import", "run")
    assert (code, out) == (EXIT_INPUT, "Added 0 launches.\n")
    assert "launch 0.0 of 'run' was left out" in err
    with history.opened() as found:
        assert [row["name"] for row in found.rows("FROM launches")] == ["naive"]


@pytest.mark.usefixtures("kept")
def test_a_query_that_takes_too_much_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = history._memory

    def little() -> object:
        made = memory()
        made.execute("SET memory_limit = '20MB'")
        return made

    monkeypatch.setattr(history, "_memory", little)
    code, _, err = run(capsys, "--sql", "select list(range) from range(100000000)")
    assert (code, err.count("\n")) == (EXIT_ENVIRONMENT, 1)
    assert "Select fewer rows or columns" in err


def test_without_duckdb(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """One line where the history is asked for; a run that is profiled does not notice."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    code, _, err = run(capsys)
    assert code == EXIT_ENVIRONMENT
    assert "needs DuckDB, which is not installed. Run `pip install -e " in err
    keep(store.Run("a", "a", "2026-11-01T10:00:00Z"), folder, Here())
    assert capsys.readouterr() == ("", "")
    assert not folder.exists()


def test_a_run_is_kept_and_a_history_that_cannot_be_written_is_a_note(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    folder: Path,
) -> None:
    made = tmp_path / "reports" / "one"
    made.mkdir(parents=True)
    (made / "profile.ncu-rep").write_bytes(report_files.first_launches(1))
    what = store.Run("one", "one", "2026-11-01T10:00:00Z", report_files=("profile.ncu-rep",))
    store.save(made, what)
    loaded = store.load_run(made, live=True)
    keep(loaded, made, Here("GPU-1", "c0ffee", True))
    with history.opened() as found:
        (row,) = found.rows("FROM launches")
    assert (row["run"], row["gpu_uuid"], row["git_commit"], row["git_dirty"]) == ("one", "GPU-1", "c0ffee", True)  # fmt: skip
    monkeypatch.setenv(history.VARIABLE, str(made / "run.json"))
    keep(loaded, made, Here())
    reported = capsys.readouterr()
    assert reported.err.startswith("note: this run is not in the history: ")
    assert reported.err.count("\n") == 1


def test_sparklines() -> None:
    assert units.sparkline([1.0, 2.0, 8.0]) == "▁▂█"
    assert units.sparkline([100.0, 100.1]) == "▁▂", "noise is not stretched to the whole height"
    assert units.sparkline([5.0]) == units.sparkline([]) == ""
    assert units.sparkline([0.0, 0.0]) == "▁▁"


TRIED = Tried(
    switches=("tf32",), title="TF32", outcome="faster", description="46.6 ms → 17.9 ms, 2.60× as fast.",
    before_us=(46600.0,) * 5, after_us=(17900.0,) * 5, keep=("one line",),
)  # fmt: skip
TRIAL = ProgramTrial(
    program="train.py", gpu="NVIDIA H100", word="step", before_us=(46600.0,), tried=(TRIED,)
)


def test_the_history_has_the_step_with_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(history.VARIABLE, str(tmp_path / "history"))
    rows = rows_of_trial(TRIAL, tmp_path / "20260101-train")
    assert [(row.name, row.time_us, row.title) for row in rows] == [
        ("step of train.py", 46600.0, ""),
        ("step of train.py with tf32", 17900.0, "2.60× as fast"),
    ]
    assert rows[1].spread == 0.0
    pytest.importorskip("duckdb")
    history.add(rows)
    shown = CliRunner().invoke(cli, ["history"]).output
    assert re.search(r"^step of train.py with tf32 .*2.60× as fast", shown, re.MULTILINE)
