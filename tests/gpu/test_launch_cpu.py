"""Launching without a GPU: arrays, poison, verification and the profiled range, with Python in
place of kernels."""

from __future__ import annotations

from pathlib import Path

import fake_gpu
import numpy
import pytest
from fake_gpu import FakeCupy
from msgspec import structs

from ncu_toolkit.base.core.errors import EnvironmentProblem, KernelProblem, UsageProblem
from ncu_toolkit.base.model import Device
from ncu_toolkit.kernel.gpu.launch import (
    Runnable,
    Workspace,
    _holder,
    architecture_for,
    bind_verified,
)
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


def test_a_right_kernel_is_verified(cupy: FakeCupy) -> None:
    cupy.behaviours["naive"] = fake_gpu.product
    bound = runnable()
    assert bound.verify() == bound.worst
    assert 0 <= bound.worst <= 1


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


def test_rungs_share_a_workspace(cupy: FakeCupy) -> None:
    shared = space()
    cupy.behaviours.update(naive=fake_gpu.product, coalesced=fake_gpu.product)
    first = Runnable(find_rung("gemm_fp32/naive"), shared)
    a = shared.arrays["A"]
    second = Runnable(find_rung("gemm_fp32/coalesced"), shared)
    assert shared.arrays["A"] is a
    assert first.verify() <= 1
    assert second.verify() <= 1


def test_each_launch_is_profiled_alone(cupy: FakeCupy) -> None:
    cupy.behaviours["naive"] = fake_gpu.product
    bound = runnable()
    cupy.events.clear()
    bound.run_profiled(lambda: cupy.events.append("start"), lambda: cupy.events.append("stop"))
    assert cupy.events == ["sync", "start", "naive", "sync", "stop"]


def test_too_little_memory_is_said_before_anything_is_allocated(cupy: FakeCupy) -> None:
    cupy.free = 1000
    shared = space("64")
    with pytest.raises(
        EnvironmentProblem, match=r"'naive' at 64 needs .* GiB of device memory with its reference"
    ):
        Runnable(find_rung("gemm_fp32/naive"), shared)
    assert shared.arrays == {}


def test_arguments_that_the_problem_does_not_have(cupy: FakeCupy) -> None:
    with pytest.raises(
        UsageProblem, match=r"'x' needs array 'D', which gemm_fp32 does not have\. It has A, B"
    ):
        space().require(["A", "D"], "x")


def test_a_parameter_that_the_rung_does_not_have(cupy: FakeCupy) -> None:
    with pytest.raises(UsageProblem, match="no parameter 'BLOCKS'"):
        Runnable(find_rung("gemm_fp32/naive"), space(), {"BLOCKS": 16})


def test_an_older_gpu_is_refused_by_name(cupy: FakeCupy) -> None:
    with pytest.raises(
        EnvironmentProblem,
        match=r"async_copy needs compute capability 8\.0 or newer, not 7\.5 \(Old\)",
    ):
        architecture_for(find_rung("gemm_fp32/async_copy"), Device("Old", (7, 5)))


def test_scalars_keep_their_bytes() -> None:
    assert bytes(_holder(numpy.int32(-2))) == numpy.int32(-2).tobytes()
    assert bytes(_holder(numpy.float32(1.5))) == numpy.float32(1.5).tobytes()
    assert bytes(_holder(b"\x01" * 128)) == b"\x01" * 128


def test_a_rung_is_bound_with_its_parameters(cupy: FakeCupy) -> None:
    cupy.behaviours["naive"] = fake_gpu.product
    bound = Runnable(find_rung("gemm_fp32/naive"), space("3"), {"BLOCK": 16})
    assert bound.parameters == {"BLOCK": 16}
    assert bound.launch_count == 1
    assert bound.verify() <= 1


def test_a_baseline_shares_arrays_only_with_its_own_operation(cupy: FakeCupy) -> None:
    cupy.behaviours["naive"] = fake_gpu.product
    rung, size = find_rung("gemm_fp32/naive"), PROBLEM.parse_size("3")
    own = Workspace(rung, size, "float32")
    assert bind_verified(rung, own).workspace is own
    other = Workspace(structs.replace(rung, problem={"op": "another"}), size, "float32")
    assert bind_verified(rung, other).workspace is not other
