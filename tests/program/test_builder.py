"""What all readers of traces share."""

from __future__ import annotations

import pytest

from ncu_toolkit.program.traces.builder import (
    GpuWork,
    LaunchShape,
    TraceBuilder,
    call_kind,
    call_name,
    function_name,
    own_code,
)


@pytest.mark.parametrize(
    ("name", "plain", "kind"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel", "launch"),
        ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel", "launch"),
        ("cudaLaunchKernelExC_v11060", "cudaLaunchKernelExC", "launch"),
        ("cuLaunchKernelEx", "cuLaunchKernelEx", "launch"),
        ("cudaLaunchHostFunc", "cudaLaunchHostFunc", "other"),
        ("cudaGraphLaunch_v10000", "cudaGraphLaunch", "graph"),
        ("cudaMemcpy2DAsync_v3020", "cudaMemcpy2DAsync", "copy"),
        ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync", "copy"),
        ("cuMemsetD32Async", "cuMemsetD32Async", "set"),
        ("cudaDeviceSynchronize_v3020", "cudaDeviceSynchronize", "sync"),
        ("cuCtxSynchronize", "cuCtxSynchronize", "sync"),
        ("cudaMallocAsync", "cudaMallocAsync", "allocate"),
        ("cuMemAllocHost_v2", "cuMemAllocHost", "allocate"),
        ("cudaHostRegister_v4000", "cudaHostRegister", "allocate"),
        ("cudaFreeHost", "cudaFreeHost", "free"),
        ("cuMemFree_v2", "cuMemFree", "free"),
        ("cuModuleLoadDataEx", "cuModuleLoadDataEx", "load"),
        ("cuLibraryLoadData", "cuLibraryLoadData", "load"),
        ("cuModuleUnload", "cuModuleUnload", "other"),
        ("cudaEventQuery", "cudaEventQuery", "other"),
        ("cudaStreamWaitEvent", "cudaStreamWaitEvent", "other"),
        ("INVALID", "INVALID", "other"),
        ("", "", "other"),
    ],
)
def test_calls(name: str, plain: str, kind: str) -> None:
    assert (call_name(name), call_kind(name)) == (plain, kind)


@pytest.mark.parametrize(
    ("kernel", "function"),
    [
        ("void at::native::(anonymous namespace)::copy<float, 4>(int, at::X<char*, 2>)", "copy"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("void cub::Reduce<A<(bool)1, B>, int>(C, D)", "Reduce"),
        ("void cutlass::Kernel2<x_tn_align8>(x_tn_align8::Params)", "Kernel2"),
        ("void k<at::f(at::T&)::{lambda()#1}::operator()() const::{lambda(float)#2}>(int)", "k"),
        ("_ZN2at6native4copyIfEEvi", "copy"),
        ("a b(c", "b"), ("<<<", "<<<"), ("(", "("), ("", ""), ("x->y", "x->y"),
    ],
)  # fmt: skip
def test_a_function_is_its_name_alone(kernel: str, function: str) -> None:
    assert function_name(kernel) == function


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("train.py", True), ("/src/project/model.py", True), ("models/gpt.py", True), ("profile.py", True),
        ("test.py", True),
        ("<ipython-input-5-4ee31>", True), ("colab_kernel_launcher.py", False), ("C:\\me\\net.py", True), ("src/torch_model.py", True),
        ("torch/nn/modules/linear.py", False), ("einops/einops.py", False), ("threading.py", False),
        ("multiprocessing/process.py", False), ("<frozen runpy>", False), ("<string>", False), ("", False),
        ("/usr/lib/python3.11/runpy.py", False), ("/env/lib/python3.9/site-packages/my/net.py", False),
    ],
)  # fmt: skip
def test_which_code_is_the_users(file: str, own: bool) -> None:
    assert own_code(file) is own


def test_an_empty_trace_lacks_everything() -> None:
    trace = TraceBuilder().trace("a test")
    assert trace.lacks == ("host calls", "marks", "lines", "shapes", "registers")
    assert len(trace.devices) == 1


def test_times_count_from_the_first_event() -> None:
    builder = TraceBuilder()
    builder.call(1_000_000, 1_000_010, "cudaMemset", key=1)
    builder.op(GpuWork(1_000_020, 1_000_030, "set", key=1))
    builder.mark(999_990, 1_000_040, "range", "all")
    trace = builder.trace("a test")
    assert (trace.marks[0].start, trace.calls[0].start, trace.ops[0].start) == (0, 10, 30)


def test_clocks_that_disagree_are_reported() -> None:
    builder = TraceBuilder()
    for number in range(4):
        builder.call(100_000 * number + 50_000, 100_000 * number + 52_000, "cudaMemset", key=number)
        builder.op(GpuWork(100_000 * number, 100_000 * number + 9_000, "set", key=number))
    trace = builder.trace("a test")
    assert "host calls" in trace.lacks
    assert len(trace.calls) == 4
    assert trace.notes[0].startswith(
        "The clocks of host and GPU disagree: 4 of 4 operations begin before the call that queued them, by up to 50 µs."
    )


def test_calls_and_ranges_of_impossible_times_are_counted() -> None:
    builder = TraceBuilder()
    builder.call(5, 1, "cudaMemset")
    builder.call(None, 1, "cudaMemset")
    builder.mark(5, 1, "range", "r")
    builder.op(GpuWork(0, 1, "set"))
    assert builder.trace("a test").notes == (
        "Left out for impossible times: 2 calls.",
        "Left out for impossible times: 1 range.",
    )


def test_of_many_calls_with_one_number_the_last_before_the_work_counts() -> None:
    builder = TraceBuilder()
    for number in range(4):
        builder.call(100 * number, 100 * number + 9, "cudaMemset", key=7)
        builder.op(GpuWork(100 * number + 20, 100 * number + 30, "set", key=7))
    builder.op(GpuWork(-50, -40, "set", key=7))
    assert [op.call for op in builder.trace("a test").ops] == [-1, 0, 1, 2, 3]


def test_steps_marked_in_python_are_steps() -> None:
    builder = TraceBuilder()
    for at, name in enumerate(("ncu_toolkit.step", "ncu_toolkit.steps", "step")):
        builder.mark(at, at + 1, "range", name)
    builder.op(
        GpuWork(0, 1, "kernel", builder.shape(LaunchShape("f", (1, 1, 1), (1, 1, 1), 0, 0, 0)))
    )
    assert [mark.kind for mark in builder.trace("a test").marks] == ["step", "range", "range"]
