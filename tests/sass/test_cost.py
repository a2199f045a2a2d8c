"""The measurement of the toolkit's own cost, with a stand-in for ncu; what is measured on a GPU
needs one."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest
import report_files

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cost() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cost", ROOT / "benchmarks" / "cost.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cost"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cost") / "small.ncu-rep"
    path.write_bytes(report_files.first_launches(1))
    return path


NCU = """#!/bin/sh
[ "$1" = --version ] && { echo "Version 2025.3.1.0 (build 1)"; exit 0; }
[ "$1" = --import ] && { sleep 0.05; echo details; exit 0; }
set=$2
while [ $# -gt 0 ]; do [ "$1" = --export ] && out=${2%.ncu-rep}; shift; done
case $set in full) n=38; sleep 0.2;; detailed) n=20;; *) n=16;; esac
echo "==PROF== Profiling \\"naive\\": 0%....100% - $n passes"
cp REPORT $out.ncu-rep
"""


@pytest.fixture
def ncu(report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for ncu with section files beside it."""
    path = tmp_path / "bin" / "ncu"
    (tmp_path / "bin" / "sections").mkdir(parents=True)
    (tmp_path / "bin" / "sections" / "SpeedOfLight.section").touch()
    path.write_text(NCU.replace("REPORT", str(report)))
    path.chmod(0o755)
    monkeypatch.setenv("NCU", str(path))
    return path


FACTS = {
    "gpu": "Fake GPU",
    "cc": [9, 0],
    "environment": {"Driver": "580.1", "Clocks": "not locked"},
    "clocks": {},
}


def run(cost: ModuleType, output: Path, *arguments: str) -> dict[str, object]:
    assert cost.main(["--output", str(output), *arguments]) == 0
    found: dict[str, object] = json.loads(output.read_text())
    return found


def test_everything_in_one_run(
    cost: ModuleType,
    ncu: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cost, "facts", lambda: FACTS)
    monkeypatch.setattr(cost, "alone", lambda cases, folder, timeout: 0.1)
    data = run(cost, tmp_path / "cost.json", "--repeats", "2")
    profiling, reading = data["gpu_side"], data["cpu_side"]
    assert isinstance(profiling, dict)
    assert isinstance(reading, dict)
    assert {name: series["passes"] for name, series in profiling.items()} == {
        "alone": [],
        "ladder": [16],
        "detailed": [20],
        "full": [38],
    }
    assert all(len(series["seconds"]) == 2 for series in (*profiling.values(), *reading.values()))
    assert profiling["full"]["seconds"][0] > 0.2
    assert "ncu --import --page details" in reading
    assert data["launches"] == 1
    assert data["cases"] == 25
    assert data["left_out"] == []
    text = capsys.readouterr().out
    for part in (
        "Fake GPU",
        "580.1",
        "2025.3.1.0",
        "| 38 |",
        "`--set full`",
        "peak memory",
        "clocks not locked",
    ):
        assert part in text
    assert str(tmp_path) not in (tmp_path / "cost.json").read_text(), (
        "no path of this machine is kept"
    )


def test_no_time_is_said(
    cost: ModuleType, ncu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "facts", lambda: FACTS)
    monkeypatch.setattr(cost, "alone", lambda cases, folder, timeout: 0.1)
    data = run(cost, tmp_path / "cost.json", "--budget", "0.5")
    left_out, profiling = data["left_out"], data["gpu_side"]
    assert isinstance(left_out, list)
    assert isinstance(profiling, dict)
    assert "ladder, repeat 1" in left_out
    assert profiling["ladder"]["seconds"] == []
    assert "not measured" in cost.table(data)
    assert "Not run for lack of time" in cost.table(data)


def test_without_ncu_only_reading_is_measured(
    cost: ModuleType, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> None:
        raise cost.EnvironmentProblem("ncu is not here")

    monkeypatch.setattr(cost.collect, "find_ncu", nowhere)
    data = run(cost, tmp_path / "cost.json", "--report", str(report), "--repeats", "1")
    reading = data["cpu_side"]
    assert isinstance(reading, dict)
    assert not any(name.startswith("ncu") for name in reading)
    assert reading["analyze (pages)"]["peak_mib"] > 10
    assert len(reading[f"analyze (CSV){cost.KNOWN}"]["seconds"]) == 1
    assert "ncu not found here" in cost.table(data)
    assert cost.main(["--output", str(tmp_path / "x.json")]) == 3


def test_a_command_that_fails_is_named_and_not_timed(cost: ModuleType, tmp_path: Path) -> None:
    broken = tmp_path / "broken.ncu-rep"
    broken.write_bytes(b"no report")
    found, left_out = cost.cpu_side(broken, None, 2, cost.Clock(60), random.Random(1))
    assert left_out == []
    assert found["analyze (text)"].seconds == []
    assert "ended with 4" in found["analyze (text)"].failed
    assert len(found["--help"].seconds) == 2


def test_the_cases_are_25(cost: ModuleType) -> None:
    cases = cost.planned("1024", (9, 0))
    assert len(cases) == max(cost.LAUNCHES, len([case for case in cases if case.size == "1024"]))
    assert len({(case.rung, case.size) for case in cases}) == len(cases)
