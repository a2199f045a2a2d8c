"""Traces of benchmarks/programs, recorded on an H100 (driver 580, CUDA 13.0) by four programs at a
time: their steps, and that their time adds up."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from ncu_toolkit.program.analysis.program import analyze_programs
from ncu_toolkit.program.diagnosis import diagnose_program
from ncu_toolkit.program.model import Step
from ncu_toolkit.program.recording import recorder
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.files import read_trace
from ncu_toolkit.program.traces.step import find_step

HERE = Path(__file__).parent / "recorded"
#: How the step was found, its launches, and the steps seen, by what the program does.
STEPS = {
    "waves": ("repeats", 3, 49), "waves_graph": ("repeats", 3, 49), "waves_streams": ("repeats", 6, 48),
    "cupy": ("repeats", 14, 58), "decode": ("repeats", 58, 38), "gpt": ("repeats", 551, 6),
    "failing": ("repeats", 4, 5), "loader": ("repeats", 62, 22), "no_step": ("whole", 252, 1),
    "torch_graph": ("marked", 24, 39), "torchrun": ("repeats", 22, 23), "triton": ("repeats", 2, 48),
    "two": ("repeats", 3, 28), "jax": ("repeats", 22, 29), "own_profiler": ("repeats", 3, 3),
}  # fmt: skip


def step_of(name: str) -> Step:
    return find_step(read_trace(HERE / f"h100-{name}.ncu-trace"))


@pytest.mark.parametrize("name", STEPS)
def test_the_step_of_a_real_recording(name: str) -> None:
    step = step_of(name)
    assert (step.how, step.launches, len(step.windows)) == STEPS[name]
    account = account_of(step)
    assert sum(part.us for part in account.parts) == pytest.approx(account.wall_us, rel=1e-6)
    assert account.wall_us == pytest.approx(step.wall_us, rel=1e-6)
    diagnose_program(step, account)


@pytest.mark.parametrize("name", STEPS)
def test_host_and_gpu_are_on_one_clock(name: str) -> None:
    """No kernel begins before its call, and each has one."""
    trace = step_of(name).trace
    kernels = [op for op in trace.ops if op.kind == "kernel"]
    assert all(op.call >= 0 for op in kernels)
    assert all(op.start >= trace.calls[op.call].start for op in kernels)


def test_nodes_of_one_graph_launch_belong_together() -> None:
    """Twelve equal layers in a graph: two kernels repeat 480 times, and are no step."""
    step = step_of("torch_graph")
    assert "CUDA graph" in step.description
    assert len({op.node for op in step.ops}) == 24
    assert len({op.call for op in step.ops}) == 1


def test_steps_after_the_last_loading_count_where_nothing_else_repeats() -> None:
    """JAX tunes for longer than these 30 steps take."""
    step = step_of("jax")
    kernels = [op for op in step.trace.ops if op.kind == "kernel"]
    held = sum(op.us for op in kernels if op.start >= step.windows[0].start)
    assert held < 0.3 * sum(op.us for op in kernels)
    assert len({op.call for op in step.ops}) == 1


def test_lines_of_launches() -> None:
    for name, line in (("cupy", "cupy_heat.py:23"), ("jax", "jax_mlp.py:26")):
        step = step_of(name)
        trace = step.trace
        lines = [trace.lines[trace.calls[op.call].line] for op in step.ops if op.kind == "kernel"]
        assert max(set(lines), key=lines.count) == line


@pytest.mark.parametrize(("name", "kernels"), [("waves", 3), ("numba", 14)])
def test_a_report_of_the_step_joins_its_trace(name: str, kernels: int) -> None:
    """`profile -- PROGRAM` on the H100 (ncu 2025.3.1): native kernels, and Numba's, whose names two
    demanglers write differently. Of Numba's 14 grids the first 10 were profiled."""
    place = HERE.parent / "profiled"
    found = analyze_programs([place / f"h100-{name}.ncu-trace", place / f"h100-{name}.ncu-rep.xz"])
    (trace,) = found.traces
    assert found.strangers == ()
    assert trace.notes == ()
    assert len(trace.known) == min(kernels, 10)
    assert trace.found is not None
    assert trace.found.step.launches == kernels


def test_bytes_of_collectives_come_from_the_range_of_nccl(tmp_path: Path) -> None:
    """Two all-reduces in a group are one kernel; an all-gather of NCCL before 2.26 says only its bytes."""
    kinds = {
        recorder.KERNEL: [{"correlationId": key, "name": name} for key, name in ((8, 1), (9, 1), (7, 2))],
        5: [{"start": at, "end": at + 5, "threadId": 3, "correlationId": key} for at, key in ((50, 8), (70, 7), (90, 9))],
        126: [
            {"thread": 3, "time": 10, "schema": 5, "size": 24, "first": 0xAB, "second": 4000},
            {"thread": 3, "time": 20, "schema": 5, "size": 24, "first": 0xAB, "second": 600},
            {"thread": 4, "time": 30, "schema": 5, "size": 24, "first": 0xAB, "second": 1},
            {"thread": 3, "time": 40, "schema": 10, "size": 24, "first": 0xAB, "second": 5},
            {"thread": 3, "time": 80, "schema": 4, "size": 8, "first": 512, "second": 77},
        ],
    }  # fmt: skip
    sizes = {recorder.KERNEL: 152, 5: 40, 126: 40}
    process = recorder.RecordedProcess(
        1, tmp_path / "1", sizes, {1: "_Z4ncclAllReduce", 2: "gemm"}, {}, [], [], "", True
    )
    for kind, rows in kinds.items():
        records = numpy.zeros(len(rows), recorder.layout(kind, sizes[kind]))
        for i, row in enumerate(rows):
            for name, value in row.items():
                records[name][i] = value
        (tmp_path / f"1.{kind}.records").write_bytes(records.tobytes())
    found = recorder._messages(process, process.rows(recorder.KERNEL))
    assert found == {8: (4600, "ab"), 9: (512, "")}
