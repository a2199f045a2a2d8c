"""Traces that other people recorded, where the folder of them is (shared/traces; never in this
repository): PyTorch 1.8 to 2.9, Nsight Systems 2020 to 2026, GP100 to B200."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncu_toolkit.model.program import Trace
from ncu_toolkit.program.files import is_trace, read_trace, write_trace

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
#: Launches, other work, calls, work with a call, work with a line, steps, marks, the first GPU.
#: The first three and the marks are what the files hold, counted without this package.
FACTS = {
    "nsys-2020-rtx3080-kmeans.sqlite": (51, 306, 877, 357, 0, 0, 0, "NVIDIA GeForce RTX 3080"),
    "nsys-2022.2-a100-saxpy-nvtx.sqlite": (5, 15, 57, 20, 0, 0, 21, "NVIDIA A100-SXM4-40GB"),
    "nsys-2022.2-gp100-openacc.sqlite": (783, 351, 3411, 1134, 0, 0, 0, "Quadro GP100"),
    "nsys-2023.1-gtx1660s-hash.sqlite": (
        61,
        315,
        428,
        376,
        0,
        0,
        0,
        "NVIDIA GeForce GTX 1660 SUPER",
    ),
    "nsys-2023.3-rtx4090-streams.sqlite": (16, 0, 34, 16, 0, 0, 0, "NVIDIA GeForce RTX 4090"),
    "nsys-2024.4-rtx2080ti-managed.sqlite": (1, 72, 6, 1, 0, 0, 0, "NVIDIA GeForce RTX 2080 Ti"),
    "nsys-2024.5-a100-cloverleaf.sqlite": (714, 146, 1586, 860, 0, 0, 0, "NVIDIA A100-SXM4-80GB"),
    "nsys-2025.5-b200-cublas.sqlite": (1, 3, 503, 4, 0, 0, 1, "NVIDIA B200"),
    "nsys-2026.1-rtx4060ti-async.sqlite": (4, 12, 45, 16, 0, 0, 0, "NVIDIA GeForce RTX 4060 Ti"),
    "nsys-2026.2-h100-torch-2gpu.sqlite": (364, 126, 732, 480, 0, 0, 1877, "an unknown GPU"),
    "torch-1.8-resnet50-no-devices.json.gz": (2014, 66, 1984, 1711, 0, 3, 5163, "an unknown GPU"),
    "torch-1.9-v100-resnet50.json.gz": (
        1962,
        56,
        1987,
        1516,
        1338,
        2,
        4153,
        "Tesla V100-DGXS-32GB",
    ),
    "torch-2.0-gp100-steps.json.gz": (129, 10, 180, 139, 0, 0, 653, "Quadro GP100"),
    "torch-2.0-v100-graphs.json.gz": (729, 692, 1690, 1349, 0, 2, 3425, "Tesla V100-SXM2-16GB"),
    "torch-2.1-a100-alexnet.json.gz": (79, 19, 360, 98, 0, 0, 367, "NVIDIA A100-PG509-200"),
    "torch-2.1-a100-stack.json.gz": (21, 1, 62, 22, 22, 0, 127, "NVIDIA A100 80GB PCIe"),
    "torch-2.1-a100-streams.json.gz": (3, 3, 38, 6, 0, 0, 6, "NVIDIA A100-PG509-200"),
    "torch-2.2-a100-nccl.json.gz": (853, 308, 2678, 1161, 0, 2, 4584, "NVIDIA A100-PG509-200"),
    "torch-2.4-v100-ns.json.gz": (1239, 357, 4500, 787, 0, 3, 7616, "Tesla V100-SXM2-32GB"),
    "torch-2.4-v100-ranges.json.gz": (1532, 148, 2596, 1680, 0, 1, 4418, "Tesla V100-SXM2-32GB"),
    "torch-2.9-b200-stack.json.gz": (85, 0, 85, 84, 84, 0, 391, "NVIDIA B200"),
}


def facts(trace: Trace) -> tuple[object, ...]:
    kernels = sum(op.kind == "kernel" for op in trace.ops)
    called = [trace.calls[op.call] for op in trace.ops if op.call >= 0]
    return (
        kernels, len(trace.ops) - kernels, len(trace.calls), len(called), sum(call.line >= 0 for call in called),
        sum(mark.kind == "step" for mark in trace.marks), len(trace.marks), trace.devices[0].name,
    )  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("name", FACTS)
def test_other_peoples_traces(name: str, tmp_path: Path) -> None:
    path = TRACES / name
    if not path.is_file():
        pytest.skip("the folder of real traces is not here")
    assert is_trace(path)
    trace = read_trace(path)
    assert facts(trace) == FACTS[name]
    assert all("clocks of host and GPU disagree" in note for note in trace.notes)
    assert bool(trace.notes) == (name == "torch-2.9-b200-stack.json.gz")
    assert all(trace.shapes[op.shape].threads_per_block for op in trace.ops if op.kind == "kernel")
    write_trace(trace, tmp_path / "own.ncu-trace")
    assert read_trace(tmp_path / "own.ncu-trace") == trace
