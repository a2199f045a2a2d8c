"""What runs under ncu, without ncu: plans, progress that survives a crash, wrong rungs left out,
the stop file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fake_gpu
import pytest
from fake_gpu import FakeCupy

from ncu_toolkit.base.core.errors import EXIT_USAGE, InputProblem, KernelProblem
from ncu_toolkit.base.model.run import RunCase
from ncu_toolkit.kernel.gpu import cuda, runner, target
from ncu_toolkit.kernel.gpu.target import (
    CaseStep,
    Plan,
    add_step,
    progress_path,
    read_plan,
    read_progress,
    run_plan,
    stop_path,
    write_plan,
)


def case(rung: str, size: str = "8", overrides: dict[str, int] | None = None) -> RunCase:
    dims = dict.fromkeys("MNK", int(size))
    return RunCase("gemm_fp32", rung, size, "float32", dims, overrides or {})


def plan(folder: Path, *cases: RunCase, seconds: float | None = None) -> Path:
    path = folder / "x-plan.json"
    write_plan(Plan(cases, seconds), path)
    return path


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCupy:
    fake = fake_gpu.install(monkeypatch, tmp_path)
    fake.behaviours.update(
        naive=fake_gpu.product, coalesced=fake_gpu.product, flat_index=fake_gpu.product
    )
    return fake


def states(folder: Path) -> list[tuple[int, str]]:
    return [(step.case, step.state) for step in read_progress(folder / "x-plan.json")]


def test_plans_come_back(tmp_path: Path) -> None:
    cases = case("naive", "8", {"BLOCK": 16}), case("coalesced")
    assert read_plan(plan(tmp_path, *cases, seconds=2.5)) == Plan(cases, 2.5)
    assert json.loads((tmp_path / "x-plan.json").read_text())["schema"] == "ncu-toolkit/plan"
    (tmp_path / "plan.json").write_text(
        '{"schema": "ncu-toolkit/timings", "version": 1, "data": []}'
    )
    with pytest.raises(InputProblem):
        read_plan(tmp_path / "plan.json")


def test_plans_of_earlier_versions_are_read(tmp_path: Path) -> None:
    """A run that was interrupted before is resumed by its plans."""
    old = {"family": "gemm_fp32", "rung": "naive", "size": "8", "dtype": "float32"}
    data = {"cases": [{**old, "overrides": {}}], "progress": "p", "stop": "s", "seed": 1}
    path = tmp_path / "x-plan.json"
    path.write_text(json.dumps({"schema": "ncu-toolkit/plan", "version": 1, "data": data}))
    assert [each.marker for each in read_plan(path).cases] == [case("naive").marker]


def test_every_case_is_verified_and_then_profiled_in_its_own_range(
    cupy: FakeCupy, tmp_path: Path
) -> None:
    run_plan(plan(tmp_path, case("naive"), case("coalesced"), case("naive", "16")))
    assert states(tmp_path) == [
        (0, "started"),
        (0, "profiled"),
        (1, "started"),
        (1, "profiled"),
        (2, "started"),
        (2, "profiled"),
    ]
    start = cupy.events.index("start")
    assert cupy.events[:start].count("naive") == 1, "verified before it is profiled"
    assert cupy.events[start : start + 6] == [
        "start",
        "push ncu-toolkit:gemm_fp32/naive:8:float32",
        "naive",
        "sync",
        "pop",
        "stop",
    ]


def test_a_wrong_rung_is_not_profiled_and_the_rest_goes_on(cupy: FakeCupy, tmp_path: Path) -> None:
    cupy.behaviours["naive"] = fake_gpu.forgetful
    run_plan(plan(tmp_path, case("naive"), case("coalesced")))
    assert states(tmp_path) == [(0, "started"), (0, "failed"), (1, "started"), (1, "profiled")]
    failed = read_progress(tmp_path / "x-plan.json")[1]
    assert "wrong result" in failed.message
    assert "push ncu-toolkit:gemm_fp32/naive:8:float32" not in cupy.events


def test_what_cannot_run_is_skipped_with_its_reason(cupy: FakeCupy, tmp_path: Path) -> None:
    run_plan(
        plan(tmp_path, case("naive", "8", {"NO_SUCH": 1}), case("no_such_rung"), case("naive"))
    )
    first, second = (
        step for step in read_progress(tmp_path / "x-plan.json") if step.state == "skipped"
    )
    assert "no parameter 'NO_SUCH'" in first.message
    assert "no rung 'no_such_rung'" in second.message
    assert states(tmp_path)[-1] == (2, "profiled")


def test_the_stop_file_ends_the_ladder_after_the_case_under_way(
    cupy: FakeCupy, tmp_path: Path
) -> None:
    def stopping(arguments: object) -> None:
        stop_path(tmp_path / "x-plan.json").touch()
        fake_gpu.product(arguments)  # type: ignore[arg-type]

    cupy.behaviours["naive"] = stopping
    run_plan(plan(tmp_path, case("naive"), case("coalesced"), case("flat_index")))
    assert states(tmp_path) == [(0, "started"), (0, "profiled"), (1, "stopped")]


def test_no_case_is_begun_once_the_time_is_up(cupy: FakeCupy, tmp_path: Path) -> None:
    run_plan(plan(tmp_path, case("naive"), case("coalesced"), case("flat_index"), seconds=0.0))
    assert states(tmp_path) == [(0, "started"), (0, "profiled"), (1, "paused")], (
        "one case is begun however short the time"
    )


def test_a_kernel_that_breaks_the_context_ends_the_part(
    cupy: FakeCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows in this process would fail with it; the next part goes on."""

    def broken(what: str) -> None:
        raise KernelProblem(f"{what} failed on the GPU: an illegal memory access")

    def illegal(arguments: object) -> None:
        monkeypatch.setattr(cuda, "synchronize", broken)

    cupy.behaviours["naive"] = illegal
    run_plan(plan(tmp_path, case("naive"), case("coalesced")))
    assert states(tmp_path) == [(0, "started"), (0, "failed"), (1, "paused")]


def test_progress_survives_a_crash_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "x-plan.json"
    assert read_progress(path) == []
    add_step(path, 0, "started")
    add_step(path, 0, "failed", "why")
    with progress_path(path).open("a") as sink:
        sink.write('{"case": 1, "sta')
    assert read_progress(path) == [CaseStep(0, "started"), CaseStep(0, "failed", "why")]


@pytest.mark.parametrize("words", [runner.TARGET, runner.TARGET[1:]])
def test_modules_in_the_current_folder_are_not_imported(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """What `profile` starts takes its own modules where a file of that name lies in the folder that
    it is started from; without -P it takes those."""
    for name in ("json.py", "ncu_toolkit.py", "dataclasses.py"):
        (tmp_path / name).write_text("print('hostile'); raise SystemExit(77)")
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(target.__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    safe = "-P" in words
    assert ended.returncode == (EXIT_USAGE if safe else 77)
    assert ("usage" in ended.stderr) is safe
    assert ("hostile" in ended.stdout) is not safe
