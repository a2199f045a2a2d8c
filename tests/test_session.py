"""The stages of a session: which cases are chosen, what is left out and why, what is kept when something goes wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_gpu
import pytest
from fake_gpu import FakeCupy

from ncu_toolkit import build, collect, session, store, timing
from ncu_toolkit.collect import Outcome
from ncu_toolkit.errors import EnvironmentProblem, KernelProblem, UsageProblem
from ncu_toolkit.ladder import find_family, find_rung
from ncu_toolkit.model import Timing
from ncu_toolkit.problems import problem_for
from ncu_toolkit.session import Collected, Selection, parse_sizes, select, with_predecessors
from ncu_toolkit.target import Step, _note, read_plan

PROBLEM = problem_for("gemm_fp32")


class Quiet:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def stage(self, title: str, total: int) -> None:
        self.said.append(f"{title} {total}")

    def step(self, label: str) -> None:
        self.said.append(label)

    def note(self, text: str) -> None:
        self.said.append(text)


def chosen(*kernels: str, families: tuple[str, ...] = (), sizes: str | None = "64", dtype: str | None = None) -> tuple[Selection, ...]:
    return select(kernels, families, False, sizes, dtype, default_sizes=lambda problem: problem.record_sizes)


def test_kernels_and_families() -> None:
    (one,) = chosen("vectorized", sizes=None)
    assert [rung.name for rung in one.rungs] == ["vectorized"]
    assert (one.sizes, one.dtype) == (PROBLEM.record_sizes, "float32")
    (both,) = chosen("vectorized", families=("gemm_fp32",))
    assert both.rungs == find_family("gemm_fp32").rungs, "a rung that its family brings along is there once"
    assert len(chosen("vectorized", "reduce_shuffle")) == 2
    everything = select((), (), True, "64", None, default_sizes=lambda problem: problem.record_sizes)
    assert {"gemm_fp32", "reduction"} <= {selection.problem.family for selection in everything}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"kernels": ("vectorised",)}, "'vectorised'.*Did you mean 'vectorized'"),
        ({"families": ("gemm_fp23",)}, "'gemm_fp23'.*Did you mean 'gemm_fp32'"),
        ({}, "nothing to run.*ncu-toolkit list"),
        ({"kernels": ("naive",), "dtype": "float8"}, "gemm_fp32 has no dtype 'float8'.*float32"),
    ],
)
def test_what_cannot_be_chosen(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        chosen(*arguments.get("kernels", ()), families=arguments.get("families", ()), dtype=arguments.get("dtype"))


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("1024", ("1024",)),
        ("1024x512x2048", ("1024x512x2048",)),
        ("64, 128 ,64", ("64", "128")),
        ("64x64x64,64", ("64",)),
        ("1023X517x2049", ("1023x517x2049",)),
    ],
)
def test_sizes(text: str, labels: tuple[str, ...]) -> None:
    assert parse_sizes(PROBLEM, text) == labels


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0", "M = 0 is too small"),
        ("-4", "M = -4 is too small"),
        ("big", "'big' is not a number"),
        ("1024,x", "'x' is not a number"),
        ("64,,128", "empty entry"),
        ("", "empty entry"),
        ("64x64", "has 2 extents, gemm_fp32 takes 3"),
        ("99999999999", "too large"),
        ("1e3", "'1e3' is not a number"),
        ("12.5", "'12.5' is not a number"),
        ("64,0", "'0': M = 0"),
    ],
)
def test_bad_sizes_name_the_entry(text: str, says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        parse_sizes(PROBLEM, text)


def test_predecessors_come_along_in_order() -> None:
    (wide,) = map(with_predecessors, chosen("vectorized"))
    assert [rung.name for rung in wide.rungs] == ["mini_tile", "vectorized"]
    (first,) = map(with_predecessors, chosen("naive"))
    assert [rung.name for rung in first.rungs] == ["naive"]
    (whole,) = map(with_predecessors, chosen(families=("gemm_fp32",)))
    assert whole.rungs == find_family("gemm_fp32").rungs


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCupy:
    fake = fake_gpu.install(monkeypatch, tmp_path)
    for rung in find_family("gemm_fp32").rungs:
        for spec in rung.launches:
            fake.behaviours[spec.kernel] = fake_gpu.product

    def measure(ready: Any, baseline: Any, cache: str, seconds: float, tick: Any) -> dict[str, Timing]:
        for runnable in ready:
            tick(runnable.rung.name)
        return {
            r.rung.name: Timing("gemm_fp32", r.rung.name, r.workspace.size.label, "float32", {}, {}, (1.0,), "warm", 1.0, 1.0, 0.0) for r in ready
        }

    monkeypatch.setattr(timing, "measure_ladder", measure)
    monkeypatch.setattr(timing, "measure_costs", lambda runnable: timing.Costs(1.0, 2.0, 3.0, 4.0))
    monkeypatch.setattr(session, "_baseline", lambda *arguments: None)
    return fake


def test_rungs_that_this_gpu_cannot_run_are_listed(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.gpu, "device", lambda: replace(fake_gpu.DEVICE, cc=(8, 0), name="Old"))
    collected = Collected()
    with pytest.raises(EnvironmentProblem, match="needs compute capability"):
        session.runnable_here(chosen("wgmma_tma"), collected)
    collected = Collected()
    kept = session.runnable_here(chosen("wgmma_tma", "async_copy"), collected)
    assert [rung.name for selection in kept for rung in selection.rungs] == ["async_copy"]
    assert [skipped.what for skipped in collected.skipped] == ["gemm_tensor/wgmma_tma"]


def test_a_wrong_rung_is_recorded_and_never_timed(cupy: FakeCupy) -> None:
    cupy.behaviours["coalesced"] = fake_gpu.forgetful
    collected, reporter = Collected(), Quiet()
    session.time_all(chosen("naive", "coalesced", "flat_index", sizes="5x6x7"), {}, None, reporter, collected)
    assert [item.rung for item in collected.timings] == ["naive", "flat_index"]
    case = collected.cases["ncu-toolkit:gemm_fp32/coalesced:5x6x7:float32"]
    assert case.state == "failed"
    assert "wrong result" in case.message
    assert [type(error) for error in collected.failures] == [KernelProblem]
    assert collected.cases["ncu-toolkit:gemm_fp32/naive:5x6x7:float32"].state == "timed"
    assert any("wrong result" in line for line in reporter.said)


def test_not_a_single_case_that_can_run_is_an_error(cupy: FakeCupy) -> None:
    cupy.free = 1000
    with pytest.raises(EnvironmentProblem, match="GiB of device memory"):
        session.time_all(chosen("naive", sizes="64"), {}, None, Quiet(), Collected())
    collected = Collected()
    cupy.free = 30_000
    session.time_all(chosen("naive", sizes="8,64"), {}, None, Quiet(), collected)
    assert [item.size for item in collected.timings] == ["8"]
    assert collected.cases["ncu-toolkit:gemm_fp32/naive:64:float32"].state == "skipped"


def test_a_build_that_fails_stops_before_anything_is_measured(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(requests: Any, progress: Any) -> list[Any]:
        return [SimpleNamespace(request=request, error=KernelProblem("does not compile"), cubin=None) for request in requests]

    monkeypatch.setattr(build, "build_many", fail)
    with pytest.raises(KernelProblem, match="does not compile"):
        session.build_all(chosen("naive"), {}, Quiet(), Collected())


class FakeNcu:
    """Stands in for `collect.run`: writes the progress a target would, and the outcome asked for."""

    def __init__(self, steps: list[Step], report: bool, problem: Any = None, interrupted: bool = False) -> None:
        self.steps, self.report, self.problem, self.interrupted = steps, report, problem, interrupted
        self.words: list[str] = []

    def __call__(self, words: list[str], output: Path, log: Path, *, timeout: float, tick: Any, request_stop: Any, environment: Any) -> Outcome:
        self.words = words
        plan = read_plan(Path(words[-1]))
        for step in self.steps:
            _note(Path(plan.progress), step)
            tick()
        report = output.with_name(output.name + ".ncu-rep")
        if self.report:
            report.write_bytes(b"NVR\0")
        return Outcome(tuple(words), 0, 1.5, log, report if self.report else None, self.problem, self.interrupted)


def profile(
    monkeypatch: pytest.MonkeyPatch, folder: Path, ncu: FakeNcu, *kernels: str, collected: Collected | None = None
) -> tuple[Collected, Quiet]:
    monkeypatch.setattr(collect, "find_ncu", lambda: collect.Ncu("/nowhere/ncu", "2025.3.1.0"))
    monkeypatch.setattr(collect, "run", ncu)
    collected, reporter = collected or Collected(), Quiet()
    session.profile_all(chosen(*kernels), {}, folder, reporter, collected)
    return collected, reporter


def state(collected: Collected, rung: str) -> str:
    return collected.cases[f"ncu-toolkit:gemm_fp32/{rung}:64:float32"].state


def test_a_ladder_is_profiled_in_one_run(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ncu = FakeNcu([Step(0, "started"), Step(0, "profiled"), Step(1, "started"), Step(1, "profiled")], report=True)
    collected, reporter = profile(monkeypatch, tmp_path, ncu, "naive", "coalesced")
    assert (state(collected, "naive"), state(collected, "coalesced")) == ("profiled", "profiled")
    assert collected.reports == ["profile.ncu-rep"]
    assert collected.commands == [" ".join(ncu.words)]
    assert reporter.said == ["Profile 2", "gemm_fp32/naive at 64", "gemm_fp32/coalesced at 64"]
    assert collected.failures == []


def test_rungs_that_failed_while_timed_are_not_profiled(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cupy.behaviours["naive"] = fake_gpu.forgetful
    collected = Collected()
    session.time_all(chosen("naive", "coalesced"), {}, None, Quiet(), collected)
    ncu = FakeNcu([Step(0, "started"), Step(0, "profiled")], report=True)
    profile(monkeypatch, tmp_path, ncu, "naive", "coalesced", collected=collected)
    assert [case.rung for case in read_plan(Path(ncu.words[-1])).cases] == ["coalesced"]
    assert (state(collected, "naive"), state(collected, "coalesced")) == ("failed", "profiled")


def test_an_interrupt_keeps_what_is_finished(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ncu = FakeNcu([Step(0, "started"), Step(0, "profiled"), Step(1, "stopped")], report=True, interrupted=True)
    collected, _ = profile(monkeypatch, tmp_path, ncu, "naive", "coalesced", "flat_index")
    assert collected.interrupted
    assert [state(collected, rung) for rung in ("naive", "coalesced", "flat_index")] == ["profiled", "not run", "not run"]
    assert collected.reports == ["profile.ncu-rep"]


def test_a_crash_in_a_case_is_that_cases_failure(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    crash = KernelProblem("the profiled program ended with exit code 139")
    ncu = FakeNcu([Step(0, "started"), Step(0, "profiled"), Step(1, "started")], report=True, problem=crash)
    collected, reporter = profile(monkeypatch, tmp_path, ncu, "naive", "coalesced")
    assert (state(collected, "naive"), state(collected, "coalesced")) == ("profiled", "failed")
    assert collected.failures == [crash]
    assert any("what was profiled before is kept" in line for line in reporter.said)


def test_a_wrong_result_under_ncu_is_a_failure(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ncu = FakeNcu([Step(0, "started"), Step(0, "failed", "wrong", 5)], report=False)
    with pytest.raises(KernelProblem, match="wrong"):
        profile(monkeypatch, tmp_path, ncu, "naive")


def test_no_report_raises_what_ncu_said(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ncu = FakeNcu([], report=False, problem=EnvironmentProblem("ERR_NVGPUCTRPERM"))
    with pytest.raises(EnvironmentProblem, match="ERR_NVGPUCTRPERM"):
        profile(monkeypatch, tmp_path, ncu, "naive")
    with pytest.raises(EnvironmentProblem, match="without writing a report"):
        profile(monkeypatch, tmp_path, FakeNcu([], report=False), "naive")


def test_what_is_saved_can_be_loaded(cupy: FakeCupy, tmp_path: Path) -> None:
    collected = Collected()
    session.time_all(chosen("naive"), {}, None, Quiet(), collected)
    session.save(tmp_path, "a title", "2026-01-01T00:00:00Z", collected)
    run = store.load_run(tmp_path, live=True)
    assert run.title == "a title"
    assert [item.rung for item in run.timings] == ["naive"]
    assert run.device.name == "Fake GPU"


def test_a_baseline_of_the_same_operation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cublas = SimpleNamespace(rung=find_rung("gemm_fp32/cublas"))
    naive = SimpleNamespace(rung=find_rung("gemm_fp32/naive"))
    assert session._baseline(PROBLEM, [naive, cublas], None) is cublas


def test_section_files_are_there() -> None:
    assert list(session.section_folder().glob("*.section"))
