"""The programs whose switches are tried on a GPU: each can be started, and none is sealed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks.programs import short, try_all
from ncu_toolkit.program.recording import recorder
from ncu_toolkit.program.recording.trying import TryJob, TryVariant, variants
from ncu_toolkit.program.switches import switches


@pytest.mark.parametrize("name", try_all.PROGRAMS)
def test_it_can_be_started(name: str, tmp_path: Path) -> None:
    job = try_all.job_of(name, tmp_path)
    words = [*job.command, *job.build]
    files = [Path(word) for word in words if word.endswith((".py", ".cu"))]
    assert files
    assert all(each.is_file() for each in files)
    if Path(short.__file__) in files:
        text = files[-1].read_text()
        assert short.changed(text, [word for word in words if "=" in word]) != text
    variants(try_all.PROGRAMS[name][1].split(), built=bool(job.build))


def test_every_switch_is_tried() -> None:
    named = {
        word.partition(":")[0] for _, words in try_all.PROGRAMS.values() for word in words.split()
    }
    assert {each.id for each in switches().values() if not each.build} <= named
    assert ("-G", "") in try_all.PROGRAMS.values()  # --all takes those of compilers


def test_other_constants(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("BLOCKS = 6\nif __name__ == '__main__':\n    print(BLOCKS, __file__)\n")
    words = [sys.executable, short.__file__, str(program)]
    done = subprocess.run([*words, "BLOCKS=2"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", str(program)]
    failed = subprocess.run([*words, "STEPS=2"], capture_output=True, text=True, check=False)
    assert "no constant STEPS" in failed.stderr


@pytest.fixture
def bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> try_all.Bounded:
    """Runs of a program that waits a while; nothing is recorded."""
    monkeypatch.setattr(recorder, "prepared", _prepared)
    monkeypatch.setattr(try_all.lanes, "CORES", 2)
    message = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)"
    command = (sys.executable, "-c", f"{message}; time.sleep(30)")
    return try_all.Bounded(TryJob(command), tmp_path, 4)


def _prepared(
    command: tuple[str, ...], folder: Path, asked: recorder.RecordOptions
) -> dict[str, str]:
    folder.mkdir()
    return {**os.environ, **asked.environment}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_what_waits_is_kept_off_the_cores_of_what_is_timed(bounded: try_all.Bounded) -> None:
    all_cores = os.sched_getaffinity(0)
    first, second = sorted(all_cores)[:2]
    try:
        with bounded:
            bounded.take(try_all.lanes.Lane(1, "1", (first, second)))
            timed = bounded._start(TryVariant(), recorder.RecordOptions(), wait=False)
            bounded.running.append(timed)
            ahead = bounded._start(TryVariant(), recorder.RecordOptions(), wait=True)
            bounded.waiting.append(ahead)
            assert os.sched_getaffinity(timed.process.pid) == {first}
            assert os.sched_getaffinity(ahead.process.pid) == {second}
            assert os.sched_getaffinity(0) == {second}  # which reads the recordings
            bounded._let(ahead)
            assert os.sched_getaffinity(ahead.process.pid) == {first}
            assert not (ahead.folder / "wait").exists()
            until = time.monotonic() + 20
            while not (message := (timed.folder / "printed").read_text()):
                assert time.monotonic() < until
                time.sleep(0.02)
            assert message == "1\n"
    finally:
        os.sched_setaffinity(0, all_cores)


def test_few_cores_leave_none_for_runs_ahead(
    bounded: try_all.Bounded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(try_all.lanes, "CORES", 8)
    bounded.take(try_all.lanes.Lane(0, "0", tuple(range(7))))
    assert (bounded.timed, bounded.beside, bounded.ahead) == (tuple(range(7)), (), 0)


def test_a_run_that_was_ended_is_no_failure(bounded: try_all.Bounded) -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), try_all.lanes.limited(1.0), bounded:
        bounded(TryVariant())
    assert time.monotonic() - began < 20
    with pytest.raises(KeyboardInterrupt):
        bounded(TryVariant())
    try_all.lanes.STOPPED.clear()


def test_sigterm_ends_the_programs_of_both_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounded: try_all.Bounded
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(recorder, "built", lambda: "no recorder")
    ran: list[tuple[str, int]] = []
    start = try_all.Bounded._start

    def started(self: try_all.Bounded, *words: object, **more: object) -> object:
        made = start(self, *words, **more)  # type: ignore[arg-type]
        ran.append((self.gpu, made.process.pid))
        if len({gpu for gpu, _ in ran}) == 2:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        return made

    monkeypatch.setattr(try_all.Bounded, "_start", started)
    monkeypatch.setattr(try_all, "job_of", lambda name, folder: bounded.job)
    monkeypatch.setattr(try_all.Programs, "warm", lambda self, task: None)
    words = ["try_all.py", str(tmp_path / "out"), "--seconds", "60", "decode", "jax_mlp"]
    monkeypatch.setattr(sys, "argv", words)
    all_cores = os.sched_getaffinity(0)
    with pytest.raises(SystemExit, match=str(128 + signal.SIGTERM)):
        try_all.main()
    assert os.sched_getaffinity(0) == all_cores
    assert {gpu for gpu, _ in ran} == {"0", "1"}
    assert not any(Path(f"/proc/{process}").exists() for _, process in ran)
    assert (tmp_path / "out" / "try.json").is_file()
