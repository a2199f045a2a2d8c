"""Traces that other people recorded, where the folder of them is (shared/traces; never in this
repository): PyTorch 1.8 to 2.9, Nsight Systems 2020 to 2026, GP100 to B200."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncu_toolkit.program.diagnosis import diagnose_program
from ncu_toolkit.program.model import Trace
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.files import is_trace, read_trace, write_trace
from ncu_toolkit.program.traces.step import find_step

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
#: Launches, other work, calls, work with a call, work with a line, steps, marks, the first GPU.
#: The first three and the marks are what the files hold, counted without this package.
FACTS = {
    "nsys-2020-rtx3080-kmeans.sqlite": (51, 306, 877, 357, 0, 0, 0, "NVIDIA GeForce RTX 3080"),
    "nsys-2022.2-a100-saxpy-nvtx.sqlite": (5, 15, 57, 20, 0, 0, 21, "NVIDIA A100-SXM4-40GB"),
    "nsys-2022.2-gp100-openacc.sqlite": (1836, 823, 7999, 2659, 0, 0, 0, "Quadro GP100"),
    "nsys-2023.1-gtx1660s-hash.sqlite": (61, 315, 428, 376, 0, 0, 0, "NVIDIA GeForce GTX 1660 SUPER"),
    "nsys-2023.3-rtx4090-streams.sqlite": (16, 0, 34, 16, 0, 0, 0, "NVIDIA GeForce RTX 4090"),
    "nsys-2024.4-rtx2080ti-managed.sqlite": (1, 72, 6, 1, 0, 0, 0, "NVIDIA GeForce RTX 2080 Ti"),
    "nsys-2024.5-a100-cloverleaf.sqlite": (714, 146, 1586, 860, 0, 0, 0, "NVIDIA A100-SXM4-80GB"),
    "nsys-2025.5-b200-cublas.sqlite": (1, 3, 503, 4, 0, 0, 1, "NVIDIA B200"),
    "nsys-2026.1-rtx4060ti-async.sqlite": (4, 12, 45, 16, 0, 0, 0, "NVIDIA GeForce RTX 4060 Ti"),
    "nsys-2026.2-h100-torch-2gpu.sqlite": (1330, 437, 2458, 1767, 0, 0, 6251, "an unknown GPU"),
    "torch-1.8-resnet50-no-devices.json.gz": (2904, 112, 3562, 3016, 0, 2, 9459, "an unknown GPU"),
    "torch-1.9-v100-resnet50.json.gz": (2924, 108, 3974, 3032, 2676, 2, 7879, "Tesla V100-DGXS-32GB"),
    "torch-2.0-a100-graphs.json.gz": (1075, 300, 7224, 1375, 0, 1, 5109, "NVIDIA A100-SXM4-80GB"),
    "torch-2.0-gp100-steps.json.gz": (130, 10, 180, 140, 0, 0, 652, "Quadro GP100"),
    "torch-2.0-v100-graphs.json.gz": (3110, 1896, 6246, 5006, 0, 2, 10504, "Tesla V100-SXM2-16GB"),
    "torch-2.1-a100-alexnet.json.gz": (79, 19, 360, 98, 0, 0, 367, "NVIDIA A100-PG509-200"),
    "torch-2.1-a100-stack.json.gz": (494, 80, 699, 574, 574, 0, 2475, "NVIDIA A100 80GB PCIe"),
    "torch-2.1-a100-streams.json.gz": (3, 3, 38, 6, 0, 0, 6, "NVIDIA A100-PG509-200"),
    "torch-2.2-a100-nccl.json.gz": (1800, 716, 5824, 2516, 0, 2, 9592, "NVIDIA A100-PG509-200"),
    "torch-2.4-v100-ns.json.gz": (1740, 698, 6369, 2438, 0, 2, 9592, "Tesla V100-SXM2-32GB"),
    "torch-2.4-v100-ranges.json.gz": (7748, 1168, 16948, 8916, 0, 2, 23486, "Tesla V100-SXM2-32GB"),
    "torch-2.9-b200-stack.json.gz": (179, 0, 182, 179, 179, 0, 1370, "NVIDIA B200"),
}  # fmt: skip
#: What costs the step most, as one sees it in the file.
FIRST = {
    "torch-2.0-gp100-steps.json.gz": "launch-bound",  # 26 kernels of 2 us in a step of 1.6 ms
    "torch-1.9-v100-resnet50.json.gz": "fp32-matmul",  # convolutions of FP32, which have FP16 units
    "nsys-2022.2-gp100-openacc.sqlite": "host-sync",  # two waits and more for each kernel
    "nsys-2026.1-rtx4060ti-async.sqlite": "host-copy",  # copies take 95 % of the run
}

#: What the host does for most of the time in which the GPU waits, as one sees it in the file.
DOES = {
    "python-frames-in-the-gap.json.gz": ("87 % in transformers.models.owlv2.resize (image_processing_owlv2.py:301", "scipy.ndimage.zoom"),
    "nvtx-in-the-gap.sqlite": ("KernelExecutor::compileFusion (393 ms)",),
}  # fmt: skip

#: The mean step in milliseconds, its launches, and the first cause, as an expert reads them.
STEPS = {
    "resnet-starved-loader.json.gz": (321, 321, "host-work"),
    "one-marked-step-host-57-percent.json.gz": (382.5, 446, "host-work"),
    "work-of-the-step-before.json.gz": (34.9, 1029, "spelled-out"),
    "python-frames-in-the-gap.json.gz": (1211, 4330, "host-work"),
}


def facts(trace: Trace) -> tuple[object, ...]:
    kernels = sum(op.kind == "kernel" for op in trace.ops)
    called = [trace.calls[op.call] for op in trace.ops if op.call >= 0]
    return (
        kernels, len(trace.ops) - kernels, len(trace.calls), len(called), sum(call.line >= 0 for call in called),
        sum(mark.kind == "step" for mark in trace.marks), len(trace.marks), trace.devices[0].name,
    )  # fmt: skip


def real(name: str) -> Path:
    if not (TRACES / name).is_file():
        pytest.skip("the folder of real traces is not here")
    return TRACES / name


@pytest.mark.corpus
@pytest.mark.parametrize("name", FACTS)
def test_other_peoples_traces(name: str, tmp_path: Path) -> None:
    path = real(name)
    assert is_trace(path)
    trace = read_trace(path)
    assert facts(trace) == FACTS[name]
    assert all("clocks of host and GPU disagree" in note for note in trace.notes)
    assert bool(trace.notes) == (name == "torch-2.9-b200-stack.json.gz")
    assert all(trace.shapes[op.shape].threads_per_block for op in trace.ops if op.kind == "kernel")
    write_trace(trace, tmp_path / "own.ncu-trace")
    assert read_trace(tmp_path / "own.ncu-trace") == trace


@pytest.mark.corpus
@pytest.mark.parametrize("name", FACTS)
def test_their_step_is_accounted_for_and_no_more_than_it_is_promised(name: str) -> None:
    step = find_step(read_trace(real(name)))
    account = account_of(step)
    assert sum(part.us for part in account.parts) == pytest.approx(step.wall_us, rel=1e-6)
    found = diagnose_program(step, account)
    assert all(
        0 < finding.ceiling_us <= step.wall_us for finding in found.findings if not finding.good
    )
    assert found.together_us <= step.wall_us * (1 + 1e-9)
    if name in FIRST:
        assert found.findings[0].rule == FIRST[name]


@pytest.mark.corpus
@pytest.mark.parametrize("name", DOES)
def test_what_the_host_does_has_a_name(name: str) -> None:
    step = find_step(read_trace(real(name)))
    found = diagnose_program(step, account_of(step))
    message = " ".join((*found.notes, *(each.summary for each in found.findings)))
    assert all(words in message for words in DOES[name]), message


@pytest.mark.corpus
@pytest.mark.parametrize("name", STEPS)
def test_the_step_that_people_mean(name: str) -> None:
    ms, launches, first = STEPS[name]
    step = find_step(read_trace(real(name)))
    # of the loader's steps the expert counted the first one, too
    assert step.wall_us == pytest.approx(1e3 * ms, rel=0.06)
    assert step.launches == launches
    assert diagnose_program(step, account_of(step)).findings[0].rule == first
