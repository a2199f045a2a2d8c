"""Recording the programs of the benchmark: what is there is kept, what failed runs again. No GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks.programs import record

NAME = "cuda_spin_chain"
PAIRS = (NAME, "cuda_seismic_tile", "cuda_blur_columns", "cuda_sph_fluid")


class Ran:
    """Stands for running a command: what was asked for, and a program's output."""

    def __init__(self) -> None:
        self.did: Counter[str] = Counter()
        self.fails = ""
        #: Of each program the GPUs and TMPDIRs it was timed with; of each GPU most runs at once.
        self.on: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self.most: Counter[str] = Counter()
        self.now: Counter[str] = Counter()

    def __call__(
        self, words: list[str], folder: Path, limit: float, environment: Mapping[str, str]
    ) -> tuple[int, str, str]:
        card = environment["CUDA_VISIBLE_DEVICES"]
        name = next(name for name in PAIRS if any(f"/{name}." in word for word in words))
        kind = "profile " if "profile" in words else ""
        self.on[kind + name].add((card, environment["TMPDIR"]))
        self.now[kind + card] += 1
        self.most[kind + card] = max(self.most[kind + card], self.now[kind + card])
        time.sleep(0.02)
        self.now[kind + card] -= 1
        return self.ran(words)

    def ran(self, words: list[str]) -> tuple[int, str, str]:
        named = {"profile": "profile", record.RECORD: "recorded"}
        kind = next((named[word] for word in words if word in named), "alone")
        side = "after" if any(word.endswith(".after") for word in words) else "before"
        self.did[f"{kind} {side}"] += 1
        if f"{kind} {side}" == self.fails:
            return 1, "", "no"
        for word in words:
            if word.endswith(".ncu-trace"):
                Path(word).write_bytes(b"trace")
            if word.endswith(".runs"):
                Path(word).mkdir()
                (Path(word) / "profile.ncu-rep").write_bytes(b"report")
        return 0, json.dumps({"us": 9.0, "steps": 5, "result": [1.0]}), ""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    ran = Ran()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(record, "bounded", ran)
    monkeypatch.setattr(record.run, "build", lambda *_: None)
    return ran


def _record(folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    command = [str(folder / "out"), NAME, "--work", str(folder / "work"), "--profile", "1", *more]
    monkeypatch.setattr(sys, "argv", ["record.py", *command])
    record.main()


def test_what_is_recorded_is_kept(
    tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    _record(tmp_path, monkeypatch, "--rounds", "2")
    once = {"recorded before": 1, "alone before": 2, "alone after": 2, "profile before": 1}
    assert ran.did == once
    assert (tmp_path / "out" / f"{NAME}.before.ncu-rep.xz").is_file()
    _record(tmp_path, monkeypatch, "--rounds", "2")
    assert ran.did == once
    _record(tmp_path, monkeypatch, "--rounds", "3")
    assert ran.did == {**once, "alone before": 3, "alone after": 3}
    _record(tmp_path, monkeypatch, "--rounds", "3", "--rules")
    _record(tmp_path, monkeypatch, "--rounds", "3", "--rules")
    assert ran.did["profile before"] == 2
    assert (tmp_path / "out" / f"{NAME}.rules.ncu-rep.xz").is_file()
    (tmp_path / "out" / f"{NAME}.before.ncu-trace").unlink()
    _record(tmp_path, monkeypatch, "--rounds", "3")
    assert ran.did["recorded before"] == 2


def test_what_failed_runs_again(tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    ran.fails = "alone after"
    _record(tmp_path, monkeypatch)
    times = tmp_path / "out" / "times.json"
    assert json.loads(times.read_text())[NAME]["after"]["code"] == 1
    ran.fails = ""
    _record(tmp_path, monkeypatch)
    assert "code" not in json.loads(times.read_text())[NAME]["after"]
    assert ran.did == {
        "recorded before": 1, "alone before": 1, "alone after": 2, "profile before": 1,
    }  # fmt: skip


def test_each_gpu_has_its_own_lane(
    tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair is timed on one GPU, with a TMPDIR and its own cores; options may stand before names."""
    pinned: dict[int, set[int]] = {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(9)))
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda _, cores: pinned.update({threading.get_ident(): {*cores}})
    )
    _record(tmp_path, monkeypatch, "--jobs", "2", "--rounds", "2", *PAIRS[1:])
    timed = [ran.on[name] for name in PAIRS]
    assert all(len(each) == 1 for each in timed)
    temporary = dict(set.union(*timed))
    assert len(set(temporary.values())) == len(temporary) == 2
    assert ran.most["0"] == ran.most["1"] == 2
    assert ran.most["profile 0"] == ran.most["profile 1"] == 1
    assert {frozenset(each) for each in pinned.values()} == {
        frozenset(range(4)), frozenset(range(4, 8)),
    }  # fmt: skip
    found = json.loads((tmp_path / "out" / "times.json").read_text())
    assert {*found} == {*PAIRS}
    assert all("profile_seconds" in each["before"] for each in found.values())


def test_few_cores_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert [each.cores for each in record.lanes.lanes()] == [(), ()]


#: Starts a program in its own session that ends by SIGKILL alone, and waits.
STUBBORN = """
import json, os, signal, subprocess, sys, time
if len(sys.argv) > 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(sys.argv[1], "w").write(str(os.getpid()))
else:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = [sys.executable, __file__, os.environ["CHILD"]]
    subprocess.Popen(child, start_new_session=True, **quiet)
time.sleep(60)
"""


def _started(note: Path) -> int:
    """The process that noted itself."""
    until = time.monotonic() + 30
    while not (note.is_file() and note.read_text()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return int(note.read_text())


def _runs(process: int) -> bool:
    try:
        return bool(Path(f"/proc/{process}/environ").read_bytes())
    except OSError:
        return False


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[Path]:
    """A folder of programs with one that must be killed."""
    program = tmp_path / "public" / "stubborn" / "before.py"
    program.parent.mkdir(parents=True)
    program.write_text(STUBBORN)
    yield program.parent.parent
    note = tmp_path / "child"
    if note.is_file() and _runs(int(note.read_text())):
        os.kill(int(note.read_text()), signal.SIGKILL)


def test_a_run_ends_at_its_limit_with_all_its_sessions(tmp_path: Path, stubborn: Path) -> None:
    words = [sys.executable, str(stubborn / "stubborn" / "before.py")]
    note = tmp_path / "child"
    code, _, error = record.bounded(words, tmp_path, 2.0, {"CHILD": str(note)})
    assert (code, error) == (-9, "took over 2 s")
    assert not _runs(_started(note))


def test_nothing_runs_on_after_sigterm(tmp_path: Path, stubborn: Path) -> None:
    """As ncu's program: in its own session, and deaf to SIGTERM."""
    note, out = tmp_path / "child", tmp_path / "out"
    words = [sys.executable, record.__file__, str(out), "--public", str(stubborn), "stubborn"]
    words += ["--work", str(tmp_path / "work"), "--jobs", "1"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1", "CHILD": str(note)}
    with subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL) as process:
        child = _started(note)
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
    assert not _runs(child)
    found = json.loads((out / "times.json").read_text()) if (out / "times.json").is_file() else {}
    assert "took" not in str(found)  # it was ended, and did not fail
