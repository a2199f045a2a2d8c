"""The stages of a session: which cases are chosen, what is left out and why, what is kept when
something goes wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_gpu
import ladder_runs
import pytest
from fake_gpu import FakeCupy
from ladder_runs import Quiet, case_in, chosen, session_in

from ncu_toolkit.base.core.errors import EnvironmentProblem, KernelProblem, UsageProblem
from ncu_toolkit.kernel.build import nvcc
from ncu_toolkit.kernel.gpu import cuda, runner
from ncu_toolkit.kernel.gpu.selection import parse_sizes, runnable_here, select
from ncu_toolkit.kernel.ladder.catalogue import find_family
from ncu_toolkit.kernel.ladder.problems import problem_for

PROBLEM = problem_for("gemm_fp32")


def test_kernels_and_families() -> None:
    found = chosen("vectorized", sizes=None)
    assert [(case.rung, case.size, case.dtype) for case in found] == [
        ("vectorized", size, "float32") for size in PROBLEM.record_sizes
    ]
    both = chosen("vectorized", families=("gemm_fp32",))
    assert sorted(case.rung for case in both) == sorted(
        rung.name for rung in find_family("gemm_fp32").rungs
    ), "a rung that is named beside its family is there once"
    assert len(chosen("vectorized", "reduce_shuffle")) == 2
    everything = select((), None, "64", None)
    assert {"gemm_fp32", "reduction"} <= {case.family for case in everything}


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
        chosen(
            *arguments.get("kernels", ()),
            families=arguments.get("families", ()),
            dtype=arguments.get("dtype"),
        )


@pytest.mark.parametrize(
    ("text", "labels"),
    [("64, 128 ,64x64x64", ("64", "128")), ("1023X517x2049", ("1023x517x2049",))],
)
def test_sizes(text: str, labels: tuple[str, ...]) -> None:
    assert tuple(size.label for size in parse_sizes(PROBLEM, text)) == labels


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("64,0", "'0': M = 0 is too small"), ("1024,x", "'x' is not a number"), ("64,,128", "empty entry"),
        ("64x64", "has 2 extents, gemm_fp32 takes 3"), ("99999999999", "too large"), ("1e3", "'1e3' is not a number"),
    ],
)  # fmt: skip
def test_bad_sizes_name_the_entry(text: str, says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        parse_sizes(PROBLEM, text)


@pytest.mark.parametrize(
    ("kernels", "families", "rungs"),
    [
        (("vectorized",), (), ["mini_tile", "vectorized"]),
        (("naive",), (), ["naive"]),
        ((), ("transpose",), [rung.name for rung in find_family("transpose").rungs]),
    ],
)
def test_predecessors_come_along_in_order(
    kernels: tuple[str, ...], families: tuple[str, ...], rungs: list[str]
) -> None:
    found = select(kernels, families, "64", None, predecessors=True)
    assert [case.rung for case in found] == rungs


def test_overrides_hold_for_the_rung_named_and_not_for_its_predecessor() -> None:
    found = select(("vectorized",), (), "64", None, overrides={"BM": 64}, predecessors=True)
    assert [case.parameters.get("BM") for case in found] == [None, 64]
    with pytest.raises(UsageProblem, match="no parameter 'NO_SUCH'"):
        select(("naive",), (), "64", None, overrides={"NO_SUCH": 1})


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCupy:
    return ladder_runs.install(monkeypatch, tmp_path)


def test_rungs_that_this_gpu_cannot_run_are_listed(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "device", lambda: replace(fake_gpu.DEVICE, cc=(8, 0), name="Old"))
    with pytest.raises(EnvironmentProblem, match="needs compute capability"):
        runnable_here(chosen("wgmma_tma"), cuda.device())
    kept, skipped = runnable_here(chosen("wgmma_tma", "async_copy"), cuda.device())
    assert [case.rung for case in kept] == ["async_copy"]
    assert [each.what for each in skipped] == ["gemm_tensor/wgmma_tma"]


def test_a_wrong_rung_is_recorded_and_never_timed(cupy: FakeCupy, tmp_path: Path) -> None:
    cupy.behaviours["coalesced"] = fake_gpu.forgetful
    made, reporter = session_in(tmp_path), Quiet()
    runner.time_all(made, chosen("naive", "coalesced", "flat_index", sizes="5x6x7"), reporter)
    assert [item.rung for item in made.run.timings] == ["naive", "flat_index"]
    case = case_in(made, "coalesced", "5x6x7")
    assert case.state == "failed"
    assert "wrong result" in case.message
    assert [type(error) for error in made.failures] == [KernelProblem]
    assert case_in(made, "naive", "5x6x7").state == "timed"
    assert any("wrong result" in line for line in reporter.lines)


def test_not_a_single_case_that_can_run_is_an_error(cupy: FakeCupy, tmp_path: Path) -> None:
    cupy.free = 1000
    with pytest.raises(EnvironmentProblem, match="GiB of device memory"):
        runner.time_all(session_in(tmp_path), chosen("naive", sizes="64"), Quiet())
    made = session_in(tmp_path)
    cupy.free = 30_000
    runner.time_all(made, chosen("naive", sizes="8,64"), Quiet())
    assert [item.size for item in made.run.timings] == ["8"]
    assert case_in(made, "naive", "64").state == "skipped"


def test_a_build_that_fails_stops_before_anything_is_measured(
    cupy: FakeCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(requests: Any, progress: Any, jobs: int | None) -> list[Any]:
        return [
            SimpleNamespace(request=request, error=KernelProblem("does not compile"), cubin=None)
            for request in requests
        ]

    monkeypatch.setattr(nvcc, "build_many", fail)
    with pytest.raises(KernelProblem, match="does not compile"):
        runner.build_all(session_in(tmp_path), chosen("naive"), Quiet())


def test_one_more_library_is_timed_beside_the_rungs_and_left_out_where_it_is_wrong(
    cupy: FakeCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factor = [1.0]

    def library(self: Any, case: Any, name: str, arrays: Any) -> Any:
        assert name == "cublaslt"

        def run() -> None:
            arrays["C"][:] = arrays["A"] @ arrays["B"] * factor[0]

        return run

    monkeypatch.setattr(type(PROBLEM), "library", library)
    made, reporter = session_in(tmp_path), Quiet()
    runner.time_all(made, chosen("naive", sizes="5"), reporter, runner.TimingOptions(against="lt"))
    assert [item.rung for item in made.run.timings] == ["naive", "cublaslt"]
    assert [case.rung for case in made.run.cases] == ["naive"]
    factor[0] = 2.0
    runner.time_all(made, chosen("naive", sizes="6"), reporter, runner.TimingOptions(against="lt"))
    assert [item.rung for item in made.run.timings] == ["naive", "cublaslt", "naive"]
    assert any("cublaslt is not timed at 6" in line for line in reporter.lines)


def test_what_is_timed_already_is_not_timed_again(
    cupy: FakeCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, saved = session_in(tmp_path), list[int]()
    monkeypatch.setattr(runner.Session, "save", lambda self: saved.append(len(self.run.timings)))
    runner.time_all(made, chosen("naive", "coalesced", sizes="5"), Quiet())
    cupy.events.clear()
    runner.time_all(made, chosen("naive", "coalesced", "flat_index", sizes="5,6"), Quiet())
    assert [(item.rung, item.size) for item in made.run.timings] == [
        ("naive", "5"), ("coalesced", "5"), ("flat_index", "5"), ("naive", "6"), ("coalesced", "6"), ("flat_index", "6"),
    ]  # fmt: skip
    assert saved == [2, 3, 6], "each size is saved when it is done"


class CuPyError(Exception):
    """As CuPy raises it: told by its module."""


CuPyError.__module__ = "cupy_backends.cuda.api.runtime"


class OutOfMemoryError(Exception):
    """As CuPy raises it: told by its name."""


def test_out_of_memory_while_timing_is_reported_with_a_remedy(
    cupy: FakeCupy, tmp_path: Path
) -> None:
    def full(arguments: object) -> None:
        raise OutOfMemoryError("Out of memory allocating 4,294,967,296 bytes")

    cupy.behaviours["naive"] = full
    with pytest.raises(
        EnvironmentProblem, match="GPU ran out of memory at 'naive' at 5"
    ) as refused:
        runner.time_all(session_in(tmp_path), chosen("naive", sizes="5"), Quiet())
    assert "smaller --size" in refused.value.remedy
    made = session_in(tmp_path)
    runner.time_all(made, chosen("naive", "coalesced", sizes="5"), Quiet())
    assert [item.rung for item in made.run.timings] == ["coalesced"]


def test_a_kernel_that_breaks_the_context_ends_timing_and_keeps_what_is_timed(
    cupy: FakeCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[bool] = []

    def illegal(arguments: object) -> None:
        broken.append(True)
        raise CuPyError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    def synchronize(what: str) -> None:
        if broken:
            raise KernelProblem(f"{what} failed on the GPU")

    cupy.behaviours["coalesced"] = illegal
    monkeypatch.setattr(cuda, "synchronize", synchronize)
    made, reporter = session_in(tmp_path), Quiet()
    runner.time_all(made, chosen("naive", sizes="5"), reporter)
    runner.time_all(made, chosen("coalesced", "flat_index", sizes="5,6"), reporter)
    assert [item.rung for item in made.run.timings] == ["naive"]
    assert made.context_lost
    assert "illegal memory access" in case_in(made, "coalesced", "5").message
    assert any("broke this process's CUDA context" in line for line in reporter.lines)
