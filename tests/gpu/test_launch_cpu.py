"""Launching without a GPU: arrays, poison, verification and the profiled range, with Python in
place of kernels."""

from __future__ import annotations

from pathlib import Path

import fake_gpu
import numpy
import pytest
from fake_gpu import FakeCupy
from msgspec import structs

from ncu_toolkit.base.core.errors import KernelProblem
from ncu_toolkit.kernel.gpu.launch import Runnable, Workspace, _holder, bind_verified
from ncu_toolkit.kernel.ladder.catalogue import find_rung
from ncu_toolkit.kernel.ladder.problems import problem_for

PROBLEM = problem_for("gemm_fp32")


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCupy:
    return fake_gpu.install(monkeypatch, tmp_path)


def space(size: str = "5x6x7") -> Workspace:
    return Workspace(find_rung("gemm_fp32/naive"), PROBLEM.parse_size(size), "float32")


def runnable(name: str = "naive", size: str = "5x6x7") -> Runnable:
    return Runnable(find_rung(f"gemm_fp32/{name}"), space(size))


def test_an_element_that_nobody_wrote_is_seen(cupy: FakeCupy) -> None:
    cupy.behaviours["naive"] = fake_gpu.product
    bound = runnable()
    bound.verify()  # C is right now: only the poison can tell that the second run leaves an element out
    cupy.behaviours["naive"] = fake_gpu.forgetful
    with pytest.raises(KernelProblem) as caught:
        bound.verify()
    assert (
        "'naive' computed a wrong result at 5x6x7 (float32): C[4, 5] is nan" in caught.value.message
    )
    assert "not timed or profiled" in caught.value.remedy


def test_a_wrong_element_is_named_with_its_bound(cupy: FakeCupy) -> None:
    def wrong(arguments: dict[str, numpy.ndarray]) -> None:
        fake_gpu.product(arguments)
        arguments["C"][2, 3] += 0.01

    cupy.behaviours["naive"] = wrong  # type: ignore[assignment]
    with pytest.raises(KernelProblem, match=r"C\[2, 3\] is .* 1 of 30 elements"):
        runnable().verify()


def test_derived_arrays_fit_their_inputs(cupy: FakeCupy) -> None:
    cupy.behaviours["b_transposed"] = fake_gpu.product
    bound = runnable("b_transposed")
    assert bound.verify() <= 1
    assert "B" not in bound.workspace.arrays, "only what the rung names is allocated"


def test_scalars_keep_their_bytes() -> None:
    assert bytes(_holder(numpy.int32(-2))) == numpy.int32(-2).tobytes()
    assert bytes(_holder(numpy.float32(1.5))) == numpy.float32(1.5).tobytes()
    assert bytes(_holder(b"\x01" * 128)) == b"\x01" * 128


def test_a_baseline_shares_arrays_only_with_its_own_operation(cupy: FakeCupy) -> None:
    cupy.behaviours["naive"] = fake_gpu.product
    rung, size = find_rung("gemm_fp32/naive"), PROBLEM.parse_size("3")
    own = Workspace(rung, size, "float32")
    assert bind_verified(rung, own).workspace is own
    other = Workspace(structs.replace(rung, problem={"op": "another"}), size, "float32")
    assert bind_verified(rung, other).workspace is not other
