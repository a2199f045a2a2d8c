"""benchmarks/loop.py on a GPU that is none: trials with drawn times, rounds of `watch` on a stand-in
for ncu."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_gpu
import fake_programs
import pytest

from benchmarks import loop
from ncu_toolkit.kernel.gpu import cuda, timing
from ncu_toolkit.kernel.ladder.catalogue import find_rung


class Drawn:
    """A stopwatch that draws a time: 100 µs with 2 % noise, and a slow repeat in ten, times the
    work that ran."""

    work = 1.0
    draw = random.Random(5)

    def __init__(self, cache: str) -> None:
        assert cache in ("warm", "flushed")

    def enqueue(self, run: Callable[[], None]) -> float:
        Drawn.work = 1.0
        run()
        return Drawn.work

    def elapsed_us(self, work: float) -> float:
        slow = 1.3 if self.draw.random() < 0.1 else 1.0
        return work * slow * self.draw.gauss(100, 2)


def test_trials_and_rounds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("watchfiles")
    fake = fake_gpu.install(monkeypatch, tmp_path)

    def product(arguments: Any) -> None:
        fake_gpu.product(arguments)
        Drawn.work = arguments["K"] / loop.DEPTHS[0]

    for spec in find_rung(loop.RUNG).launches:
        fake.behaviours[spec.kernel] = product

    def function(name: str) -> Callable[..., None]:
        amount = {"read_all": (1, 2**25), "ffma_peak": (3, 1000)}[name]

        def ran(_: object, __: object, values: tuple[Any, ...]) -> None:
            Drawn.work = float(values[amount[0]]) / amount[1]

        return ran

    monkeypatch.setattr(timing, "_tools", lambda: SimpleNamespace(get_function=function))
    monkeypatch.setattr(timing, "Stopwatch", Drawn)
    monkeypatch.setattr(cuda, "sample", cuda.GpuState)
    monkeypatch.setenv("NCU", str(fake_programs.write_running_ncu(tmp_path, 1)))
    monkeypatch.setattr(loop, "ROUNDS", 2)
    monkeypatch.setattr(loop, "PAUSE", 0.5)
    rounds = loop.rounds
    monkeypatch.setattr(loop, "rounds", lambda: rounds("x = '{factor}'\n", "naive"))
    # small arrays: a product of 1024 cubed on NumPy for each launch would take minutes
    monkeypatch.setattr(loop, "SIDE", 16)
    output = tmp_path / "loop.json"
    loop.main(["--output", str(output), "--trials", "10"])
    found = json.loads(output.read_text())
    assert len(found["watch"]["added_seconds"]) == 2
    assert all(0 < each < 30 for each in found["watch"]["added_seconds"])
    assert len(found["trials"]) == 3 * 2 * 2
    for each in found["trials"]:
        assert each["trials"] == 10
        assert each["median_ratio"] == pytest.approx(1.05 if each["planted"] else 1.0, abs=0.015)
        assert (each["alarms"]["time>0%"] >= 8) == each["planted"]
    printed = capsys.readouterr().out
    assert printed.count("of 10") == 2 * 3 * 2
    assert "A further round of `watch`" in printed
