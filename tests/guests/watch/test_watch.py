"""`watch`: what starts a round, what is profiled again, what a failure shows, and how it ends."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import fake_programs
import ladder_runs
import pytest
from ladder_runs import Ncu

from ncu_toolkit.base.core.errors import EXIT_ENVIRONMENT, EXIT_USAGE
from ncu_toolkit.cli import main
from ncu_toolkit.guests.watch import command as command
from ncu_toolkit.guests.watch import watch
from ncu_toolkit.guests.watch.watch import Watched
from ncu_toolkit.kernel.build import nvcc

pytestmark = pytest.mark.slow

#: The history's folder; that guest may be deleted.
HISTORY = "NCU_TOOLKIT_HISTORY"
Edit = Callable[[], object]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program and an ncu that runs it and writes a report of the recording."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(HISTORY, raising=False)
    fake = tmp_path / "fake"
    fake.mkdir()
    monkeypatch.setenv("NCU", str(fake_programs.write_running_ncu(fake)))
    (tmp_path / "app.py").write_text("x = 1\n")
    return tmp_path


def watched(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    edits: Sequence[Edit],
    *arguments: str,
) -> tuple[int, list[str]]:
    """The exit code of `watch`, and what each round printed; an edit comes before each round after
    the first."""
    printed: list[str] = []

    def saves(_: Watched, __: object) -> Iterator[object]:
        yield None
        for edit in edits:
            printed.append(capsys.readouterr().out)
            edit()
            yield edit

    monkeypatch.setattr(command, "_saves", saves)
    with pytest.raises(SystemExit) as ended:
        main(["watch", *arguments])
    last = capsys.readouterr()
    assert "Traceback" not in last.out + last.err
    return int(ended.value.code or 0), [*printed, last.out + last.err]


APP = ("--", sys.executable, "app.py")


def test_only_what_changed_is_profiled_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(text: str) -> Edit:
        return lambda: (folder / "app.py").write_text(text)

    edits = [write("x = 1  # a comment\n"), write("x = 2\n"), write("x = 2\n\n")]
    code, rounds = watched(monkeypatch, capsys, edits, *APP)
    assert code == 0
    assert "expect" in rounds[0], "the card"
    assert "--top" not in rounds[0], "no option of another command"
    assert "unchanged" in rounds[1]
    assert "none changed" in rounds[2]
    assert "every bottleneck the same" in rounds[2]
    assert "unchanged" in rounds[3]
    first, second = (folder / "fake" / "ran").read_text().splitlines()
    assert "--kernel-name" not in first
    assert "--launch-count 20" in first
    assert "--kernel-name regex:^naive$" in second, "the one that takes most time"
    assert "--launch-count 1 " in second
    runs = sorted(path.name for path in (folder / "reports").iterdir())
    assert len(runs) == 2, "the runs stay"
    pytest.importorskip("duckdb")
    history = pytest.importorskip("ncu_toolkit.guests.history.history")
    assert len(list((folder / ".ncu-toolkit" / "history").glob("*.parquet"))) == 2, "each round"
    with history.opened() as kept:
        rows = list(kept.rows("FROM launches"))  # the fake writes one report again and again
    assert len(rows) == 2
    assert all(row["run"] in runs and row["verdict"] and row["profiled_us"] for row in rows)
    assert any("naive" in row["name"] for row in rows)


def test_a_failure_shows_its_last_lines_and_waits(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = folder / "app.py"
    edits: list[Edit] = [
        lambda: app.write_text("print('cannot go on'); raise SystemExit(3)\n"),
        lambda: (folder / "fake" / "none").touch() or app.write_text("x = 3\n"),
        app.unlink,
        lambda: (folder / "fake" / "none").unlink() or app.write_text("x = 4\n"),
    ]
    code, rounds = watched(monkeypatch, capsys, edits, "-k", "naive", "--input", "app.py", *APP)
    assert code == 0
    assert "  cannot go on\n" in rounds[1]
    assert "ended with exit code 3" in rounds[1]
    assert "no kernel was profiled" in rounds[2]
    assert "'app.py' cannot be read: No such file" in rounds[3]
    assert "none changed" in rounds[4], "it is compared with the last round that counts"


def test_a_build_that_fails_is_not_profiled(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "make").write_text(
        "#!/bin/sh\ncp new.py app.py || { echo 'error: no rule'; exit 2; }\n"
    )
    (folder / "make").chmod(0o755)
    edits: list[Edit] = [lambda: (folder / "new.py").write_text("x = 5\n")]
    code, rounds = watched(monkeypatch, capsys, edits, "--build", "./make -j", *APP)
    assert code == 0
    assert "  error: no rule\n" in rounds[0]
    assert "the build failed: ./make -j" in rounds[0]
    assert "naive" in rounds[1]
    _, rounds = watched(monkeypatch, capsys, [], "--build", "./no-such-make", *APP)
    assert "'./no-such-make' cannot be started" in rounds[0]


def test_what_a_build_writes_starts_no_round(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A compiler's output differs each time: without this, each round was followed by another."""
    (folder / "make").write_text("#!/bin/sh\necho $$ >> built\n")
    (folder / "make").chmod(0o755)
    edits: list[Edit] = [lambda: None, lambda: (folder / "app.py").write_text("x = 7\n")]
    code, rounds = watched(monkeypatch, capsys, edits, "--build", "./make", *APP, "built")
    assert code == 0
    assert rounds[1] == ""
    assert "none changed" in rounds[2]
    assert len((folder / "built").read_text().splitlines()) == 2


def test_a_file_that_changes_while_it_is_profiled_does_not_count() -> None:
    class Shown:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def first(self, run: Path) -> None:
            self.seen.append(f"first {run}")

        def again(self, old: Path, new: Path) -> None:
            self.seen.append(f"{old} {new}")

        def line(self, text: str) -> None:
            self.seen.append(text.partition(";")[0])

        def output(self, lines: Sequence[str]) -> None:
            raise AssertionError(lines)

    view, states, runs = Shown(), iter("abbbcc"), iter(map(Path, "123"))
    watch.loop(Watched(), [1, 2], lambda: next(runs), view, lambda _: next(states))
    assert view.seen == ["a file changed while it was profiled", "first 2", "2 3"]


def test_a_rung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(HISTORY, str(tmp_path / "history"))
    (tmp_path / "code").mkdir()
    ladder_runs.install(monkeypatch, tmp_path / "code")
    ncu = Ncu(monkeypatch, tmp_path / "ncu")
    digests = {"now": "a"}
    monkeypatch.setattr(nvcc, "source_digest", lambda rung: digests["now"])
    edits: list[Edit] = [lambda: None, lambda: digests.update(now="b")]
    code, rounds = watched(monkeypatch, capsys, edits, "-k", "naive", "--size", "1024")
    assert code == 0
    assert "unchanged" in rounds[1]
    assert "naive: no difference" in rounds[2]
    assert "Without the profiler: 1.00" in rounds[2]
    assert ncu.ran == ["naive", "naive"], "the rung it is compared with is not profiled"
    pytest.importorskip("duckdb")
    history = pytest.importorskip("ncu_toolkit.guests.history.history")
    with history.opened() as kept:
        rows = list(kept.rows("FROM launches"))
    assert [(row["name"], row["size"], row["time_us"]) for row in rows] == [("naive", "1024", 1.0)]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_in_a_round_ends_watch(folder: Path, how: signal.Signals) -> None:
    pytest.importorskip("watchfiles")
    (folder / "app.py").write_text("import time; open('runs', 'w').close(); time.sleep(120)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "ncu_toolkit", "watch", *APP],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
    )  # fmt: skip
    try:
        for _ in range(600):
            if (folder / "runs").exists() or process.poll() is not None:
                break
            time.sleep(0.1)
        process.send_signal(how)
        message, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, message
    assert "every round is in reports" in message
    assert "Traceback" not in message
    assert "interrupted before" not in message, "ending the watch does not count as a failed round"


def test_a_lock_of_an_editor_blocks_no_round(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Emacs marks a file that is being edited by a link that leads nowhere."""
    (folder / ".#app.py").symlink_to("user@host.123:456")
    (folder / "gone.py").symlink_to("nowhere.py")
    code, rounds = watched(monkeypatch, capsys, [], *APP)
    assert code == 0
    assert "expect" in rounds[0]
    assert not Watched(("app",), (), (folder,)).starts_a_round(str(folder / ".#app.py"))


def test_what_starts_a_round(folder: Path) -> None:
    (folder / "lib.so").write_text("")
    one = Watched((sys.executable, "app.py"), (Path("lib.so"),), (Path(),))
    assert one.places == (folder.resolve(),)
    assert all(map(one.starts_a_round, (f"{folder}/a.cu", f"{folder}/lib.so", f"{folder}/app.py")))
    assert not any(
        map(one.starts_a_round, (f"{folder}/a.o", f"{folder}/.git/a.py", f"{folder}/other.so"))
    )


def test_a_burst_and_an_atomic_rename_are_one_round_each(folder: Path) -> None:
    pytest.importorskip("watchfiles")
    one = Watched((sys.executable, "app.py"), (), (Path(),))
    saves = command._saves(one, lambda: False)
    next(saves)
    for number in range(20):
        (folder / f"{number}.cu").write_text("int x;")
    burst = next(saves)
    assert isinstance(burst, set)
    assert len({path for _, path in burst}) == 20
    (folder / "app.py.tmp").write_text("x = 7\n")
    os.replace(folder / "app.py.tmp", folder / "app.py")
    assert {Path(path).name for _, path in next(saves)} == {"app.py"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("keys", [b"q", b"\x03"])
def test_the_terminal_is_left_whole(folder: Path, keys: bytes) -> None:
    pytest.importorskip("watchfiles")
    leader, follower = pty.openpty()
    before = termios.tcgetattr(follower)
    process = subprocess.Popen(
        [sys.executable, "-m", "ncu_toolkit", "watch", *APP],
        stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3]), "COLUMNS": "100"},
        preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    timer = threading.Timer(60, process.kill)
    timer.start()
    message, pressed = b"", False
    while process.poll() is None:
        if select.select([leader], [], [], 0.1)[0]:
            message += os.read(leader, 65536)
        if (
            not pressed
            and b"expect" in message
            and not termios.tcgetattr(follower)[3] & termios.ICANON
        ):
            time.sleep(0.3)
            os.write(leader, keys)
            pressed = True
    timer.cancel()
    while select.select([leader], [], [], 0.1)[0]:
        message += os.read(leader, 65536)
    assert process.returncode == 0, message.decode()
    assert b"every round is in reports" in message
    assert termios.tcgetattr(follower) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--",), "nothing to watch"), (("--", "./no-such-app"), "there is no program './no-such-app'"),
        (("-k", "(", *APP), "not a regular expression"), (("--build", "make 'x", *APP), "is not a command"),
        (("-k", "no_such_rung"), "no_such_rung"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    folder: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["watch", *arguments])
    assert ended.value.code == EXIT_USAGE
    assert message in capsys.readouterr().err


def test_without_watchfiles(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(SystemExit) as ended:
        main(["watch", *APP])
    assert ended.value.code == EXIT_ENVIRONMENT
    error = capsys.readouterr().err
    assert "[watch]'`" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("ncu", "output", "message"),
    [("no/such/ncu", "reports", "ncu"), ("fake/ncu", "app.py/reports", "cannot be made")],
)
def test_what_no_save_can_fix_ends_it(
    folder: Path, ncu: str, output: str, message: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("NCU", str(folder / ncu))
    code, (printed,) = watched(monkeypatch, capsys, [], "-o", output, *APP)
    assert code == EXIT_ENVIRONMENT
    assert message in printed
    assert printed.count("\n") == 1


def test_programs_and_scripts(folder: Path) -> None:
    assert Watched((sys.executable,)).interpreted
    assert Watched((str(folder / "fake" / "ncu"),)).interpreted, "a script"
    assert not Watched((shutil.which("ls") or "",)).interpreted


def test_a_long_input_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_LONGEST", 3)
    data = folder / "data.bin"
    data.write_bytes(b"1234")
    one = Watched((), (data,))
    before = watch.fingerprint(one)
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"reads {path}"))
    assert watch.fingerprint(one) == before
    os.utime(data, ns=(0, 0))
    assert watch.fingerprint(one) != before
