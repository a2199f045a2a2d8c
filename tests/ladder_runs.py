"""Ladders on a GPU that is none: what the tests of sessions, profiling and resuming share. Run as a
program it is `ncu-toolkit` on that GPU."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import fake_gpu
import pytest
import report_files
from fake_gpu import FakeCupy

from ncu_toolkit.base.model import Timing
from ncu_toolkit.base.model.run import RunCase
from ncu_toolkit.kernel.gpu import runner, timing
from ncu_toolkit.kernel.gpu.runner import Session
from ncu_toolkit.kernel.gpu.selection import Cases, select
from ncu_toolkit.kernel.ladder.catalogue import find_family


class Quiet:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def stage(self, title: str, total: int) -> None:
        self.lines.append(f"{title} {total}")

    def step(self, label: str) -> None:
        self.lines.append(label)

    def doing(self, label: str) -> None:
        pass

    def note(self, text: str) -> None:
        self.lines.append(text)


def chosen(
    *kernels: str,
    families: tuple[str, ...] = (),
    sizes: str | None = "64",
    dtype: str | None = None,
) -> Cases:
    return select(kernels, families, sizes or (lambda problem: problem.record_sizes), dtype)


def session_in(folder: Path) -> Session:
    folder.mkdir(exist_ok=True)
    return runner.start(folder, "a title")


def case_in(made: Session, rung: str, size: str = "1024") -> RunCase:
    """A session's case of the FP32 ladder."""
    (case,) = (each for each in made.run.cases if (each.rung, each.size) == (rung, size))
    return case


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> FakeCupy:
    """The fake GPU with every rung of the FP32 ladder computing its product, and timings made up by
    a stand-in for the stopwatch."""
    fake = fake_gpu.install(monkeypatch, folder)
    for rung in find_family("gemm_fp32").rungs:
        for spec in rung.launches:
            fake.behaviours[spec.kernel] = fake_gpu.product

    def measure(
        ready: Any, baseline: Any, cache: str, seconds: float, tick: Any
    ) -> dict[str, Timing]:
        for runnable in ready:
            tick(runnable.rung.name)
        return {
            r.rung.name: Timing(
                "gemm_fp32",
                r.rung.name,
                r.workspace.case.size.label,
                "float32",
                {},
                {},
                (1.0,),
                "warm",
                1.0,
                1.0,
                0.0,
            )
            for r in ready
        }

    monkeypatch.setattr(timing, "measure_ladder", measure)
    monkeypatch.setattr(
        timing, "measure_costs", lambda runnable: {"allocation": 1.0, "transfer_to_device": 3.0}
    )
    monkeypatch.setattr(timing, "measure_ceilings", lambda: timing.Ceilings(copy=4e12))
    monkeypatch.setattr(runner, "_baseline", lambda *arguments: None)
    return fake


class Ncu:
    """The stand-in of `fake_ncu.py` as the ncu of this test; `at` says at which case what
    happens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "base.ncu-rep").write_bytes(report_files.first_launches(6))
        path = folder / "ncu"
        path.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).parent / "fake_ncu.py"}" "$@"\n'
        )
        path.chmod(0o755)
        monkeypatch.setenv("NCU", str(path))
        monkeypatch.setenv("FAKE_NCU", str(folder))
        here = Path(__file__).resolve().parent
        monkeypatch.setenv(
            "PYTHONPATH",
            os.pathsep.join([str(here.parent), str(here), os.environ.get("PYTHONPATH", "")]),
        )

    def at(self, rung: str, what: str) -> None:
        (self.folder / "at").write_text(marker(rung))
        (self.folder / "what").write_text(what)

    def behave(self) -> None:
        for name in ("at", "what", "hangs"):
            (self.folder / name).unlink(missing_ok=True)

    @property
    def ran(self) -> list[str]:
        """The rungs that were begun, in order, over all runs."""
        return [
            line.split("/")[1].split(":")[0]
            for line in (self.folder / "ran").read_text().splitlines()
        ]

    @property
    def hangs(self) -> int:
        """The process that hangs; 0 where none does yet."""
        path = self.folder / "hangs"
        return int(path.read_text() or 0) if path.is_file() else 0


def marker(rung: str) -> str:
    return f"ncu-toolkit:gemm_fp32/{rung}:1024:float32"


if __name__ == "__main__":
    # ladder_runs.py FOLDER PART_SECONDS ARGUMENTS…
    from ncu_toolkit.cli import main

    install(pytest.MonkeyPatch(), Path(sys.argv[1]))
    runner.NcuOptions = partial(runner.NcuOptions, part_seconds=float(sys.argv[2]))  # type: ignore[misc,assignment]
    main(sys.argv[3:])
