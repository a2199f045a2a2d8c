"""Recording the programs of the benchmark: what is there is kept, what failed runs again. No GPU."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.programs import record

NAME = "cuda_spin_chain"


class Ran:
    """Stands for running a command: what was asked for, and a program's output."""

    def __init__(self) -> None:
        self.did: Counter[str] = Counter()
        self.fails = ""

    def __call__(self, words: list[str], folder: Path, limit: float) -> tuple[int, str, str]:
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
