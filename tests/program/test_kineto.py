"""Traces of torch.profiler."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from program.kineto_files import H100, event, launch, trace, write

from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.program.model import Trace
from ncu_toolkit.program.traces.files import is_trace, read_trace


def read(path: Path, events: list[Any], **more: Any) -> Trace:
    return read_trace(write(path / "run.pt.trace.json", trace(events, **more)))


def line_of(found: Trace, op: int) -> str:
    line = found.calls[found.ops[op].call].line
    return found.lines[line] if line >= 0 else ""


def test_a_kernel_has_its_shape_call_and_times(tmp_path: Path) -> None:
    found = read(tmp_path, launch(7, 1000.0, "void at::native::copy<float>(int)", 2.24))
    (op,), (call,), (shape,) = found.ops, found.calls, found.shapes
    assert (op.start, op.end, op.kind, op.call, op.stream, op.process) == (
        5000,
        7240,
        "kernel",
        0,
        7,
        100,
    )
    assert (call.start, call.end, call.kind, found.names[call.name]) == (
        0,
        4000,
        "launch",
        "cudaLaunchKernel",
    )
    assert (shape.kernel, shape.function) == ("void at::native::copy<float>(int)", "copy")
    assert (shape.grid, shape.block, shape.registers, shape.shared_static) == (
        (4, 2, 1),
        (128, 1, 1),
        32,
        1024,
    )
    assert (found.devices[0].name, found.devices[0].cc, found.devices[0].sm_count) == (
        H100["name"],
        (9, 0),
        132,
    )
    assert found.source == "PyTorch profiler"
    assert found.lacks == ("marks", "lines", "shapes")


def test_times_are_exact_to_the_nanosecond_far_from_zero(tmp_path: Path) -> None:
    events = launch(1, 5125096980934.513) + launch(2, 5125096980999.001)
    assert [op.start for op in read(tmp_path, events).ops] == [5000, 69488]
    old = launch(1, 1717552939102061) + launch(2, 1717552939102161)
    assert [op.start for op in read(tmp_path, old).ops] == [5000, 105000]


@pytest.mark.parametrize(
    ("name", "path", "pinned"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD", False),
        ("Memcpy HtoD (Pinned -> Device)", "HtoD", True),
        ("Memcpy DtoH (Device -> Pageable)", "DtoH", False),
        ("Memcpy DtoH (Device -> Unknown)", "DtoH", None),
        ("Memcpy DtoD (Device -> Device)", "DtoD", None),
        ("Memcpy PtoP (Device -> Device)", "PtoP", None),
        ("Memcpy", "", None),
    ],
)
def test_a_copy_says_where_and_from_which_memory(
    tmp_path: Path, name: str, path: str, pinned: Any
) -> None:
    args = {"correlation": 3, "device": 0, "stream": 7, "bytes": 4096}
    (op,) = read(tmp_path, [event("gpu_memcpy", name, 10, 2, args=args)]).ops
    assert (op.kind, op.path, op.pinned, op.size, op.call) == ("copy", path, pinned, 4096, -1)


def test_without_kinds_of_memory_it_says_so(tmp_path: Path) -> None:
    copy = event("gpu_memcpy", "Memcpy HtoD (Unknown -> Device)", 10, 2, args={"device": 0})
    assert "memory kinds" in read(tmp_path, [copy]).lacks


def test_marks_are_steps_ranges_and_operators_with_sizes(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        [
            event("user_annotation", "ProfilerStep#3", 0, 100),
            event("user_annotation", "Optimizer.step#AdamW.step", 50, 20),
            event("cpu_op", "aten::mm", 10, 20, args={"Input Dims": [[8, 16], [16, 4], []]}),
            event("cpu_op", "aten::_foreach_add_", 60, 5, args={"Input Dims": [[[3, 3], [3]], []]}),
            event("gpu_user_annotation", "ProfilerStep#3", 5, 80, pid=0, tid=7),
            *launch(1, 12.0),
        ],
    )
    shown = [(mark.kind, found.names[mark.name]) for mark in found.marks]
    assert shown == [
        ("step", "ProfilerStep#3"),
        ("operator", "aten::mm [8, 16] [16, 4]"),
        ("range", "Optimizer.step#AdamW.step"),
        ("operator", "aten::_foreach_add_ [3, 3] [3]"),
    ]
    assert found.lacks == ("lines",)


def test_a_launch_gets_the_innermost_line_of_the_user(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        [
            event("python_function", "threading.py(973): _bootstrap", 0, 1000),
            event("python_function", "/data/work/train.py(12): <module>", 1, 900),
            event("python_function", "model.py(21): forward", 10, 100),
            event("python_function", "torch/nn/modules/linear.py(114): forward", 15, 50),
            event("python_function", "<built-in function linear>", 16, 40),
            *launch(1, 20.0),
            *launch(2, 200.0),
            *launch(3, 950.0),
        ],
    )
    assert [line_of(found, op) for op in range(3)] == ["model.py:21", "train.py:12", ""]
    assert found.program == "train.py"


def test_backward_work_gets_the_line_of_its_forward_operator(tmp_path: Path) -> None:
    other = {"pid": 100, "tid": 555}
    back = "autograd::engine::evaluate_function: MmBackward0"
    kernel = launch(9, 505.0)
    kernel[0].update(other)
    found = read(
        tmp_path,
        [
            event("python_function", "model.py(21): forward", 0, 100),
            event("cpu_op", "aten::mm", 10, 30, args={"Sequence number": 42, "Fwd thread id": 0}),
            {
                **event("cpu_op", back, 500, 90, args={"Sequence number": 42, "Fwd thread id": 1}),
                **other,
            },
            *kernel,
        ],
    )
    assert line_of(found, 0) == "model.py:21"


def test_backward_work_of_two_forward_threads_has_no_line(tmp_path: Path) -> None:
    """Both count their operators from 0, and a trace does not say which of them it is."""
    forward = {"Sequence number": 0, "Fwd thread id": 0}
    events = [*launch(9, 505.0)]
    for tid, name in ((100, "model.py(21): forward"), (200, "model.py(30): other")):
        events += [
            {**event("python_function", name, 0, 100), "tid": tid},
            {**event("cpu_op", "aten::mm", 10, 30, args=forward), "tid": tid},
        ]
    back = {"Sequence number": 0, "Fwd thread id": 1}
    events.append(
        {**event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 500, 90, args=back)}
    )
    assert line_of(read(tmp_path, events), 0) == ""


def test_python_of_thread_0_is_the_main_thread(tmp_path: Path) -> None:
    """As PyTorch 2.0 to 2.3 writes it."""
    frame = {**event("python_function", "train.py(7): step", 0, 100), "pid": 0, "tid": 0}
    assert line_of(read(tmp_path, [frame, *launch(1, 10.0)]), 0) == "train.py:7"


def test_a_trace_of_2021(tmp_path: Path) -> None:
    stack = (
        "/x/lib/python3.7/site-packages/torch/nn/functional.py(1): linear;train.py(44): <module>"
    )
    args = {"correlation": 5, "stream": 7, "grid": [1, 1, 1], "block": [64, 1, 1], "device": 0}
    found = read(
        tmp_path,
        [
            event("Operator", "ProfilerStep#5", 0, 100, tid="100"),
            event("Operator", "aten::linear", 10, 20, tid="100", args={"Call stack": stack}),
            event("Runtime", "cudaLaunchKernel", 12, 3, tid="100", args={"correlation": 5}),
            event("Kernel", "volta_sgemm", 40, 9, pid=0, tid="stream 7", args=args),
            event(
                "Memset",
                "Memset (Device)",
                60,
                1,
                pid=0,
                tid="stream 7",
                args={"stream": 7, "bytes": 8},
            ),
        ],
    )
    assert [op.kind for op in found.ops] == ["kernel", "set"]
    assert [mark.kind for mark in found.marks] == ["step", "operator"]
    assert line_of(found, 0) == "train.py:44"
    assert found.program == "train.py"


def test_work_queued_before_the_recording_is_of_the_same_process(tmp_path: Path) -> None:
    found = read(tmp_path, [launch(1, 10.0)[1], *launch(2, 30.0)])
    assert [(op.call, op.process) for op in found.ops] == [(-1, 100), (0, 100)]


def test_only_devices_with_work_are_reported(tmp_path: Path) -> None:
    devices = [{**H100, "id": number} for number in range(8)]
    found = read(tmp_path, launch(1, 10.0, device=5), deviceProperties=devices)
    assert [device.index for device in found.devices] == [5]
    for properties in ("?", [7, {"name": "x"}, {"id": "0"}]):
        unknown = read(tmp_path, launch(1, 10.0), deviceProperties=properties)
        assert (unknown.devices[0].name, unknown.devices[0].cc) == ("an unknown GPU", (0, 0))


@pytest.mark.parametrize(
    "bad",
    [
        {"dur": -1}, {"dur": 1e300}, {"ts": 1e17}, {"ts": "soon"}, {"ts": None},
    ],
)  # fmt: skip
def test_absurd_times_are_left_out_and_reported(tmp_path: Path, bad: dict[str, Any]) -> None:
    events = launch(1, 10.0) + launch(2, 20.0)
    events[3].update(bad)
    found = read(tmp_path, events)
    assert len(found.ops) == 1
    message = ("impossible times", "could not be read")
    assert any(text in note for note in found.notes for text in message)


@pytest.mark.parametrize(
    "args",
    [
        {"correlation": {"a": 1}, "grid": ["x", None, -3], "stream": [1], "device": "7"},
        {"correlation": 1 << 80, "grid": [1 << 90] * 3, "stream": 1 << 70, "registers per thread": -5},
        {"correlation": 2.5, "block": [1, 2], "bytes": "many", "graph node id": True},
    ],
)  # fmt: skip
def test_absurd_arguments_are_unknown(tmp_path: Path, args: dict[str, Any]) -> None:
    found = read(tmp_path, [event("kernel", "k", 1, 1, pid=0, args=args)])
    assert found.ops[0].call == -1
    assert found.shapes[0].grid is None
    assert found.shapes[0].registers is None


def test_the_bytes_of_a_collective_are_its_elements(tmp_path: Path) -> None:
    shown = {"In msg nelems": 1000, "Out msg nelems": 250}
    names = ("ncclDevKernel_AllReduce_Sum_f32", "ncclDevKernel_ReduceScatter_Sum_f32")
    kinds = [(names[0], "Float"), (names[1], "BFloat16"), (names[0], [1]), (names[0], "Odd")]
    events = [
        each
        for at, (name, dtype) in enumerate(kinds, 1)
        for each in launch(at, 100.0 * at, name, dtype=dtype, **shown)
    ]
    assert [op.size for op in read(tmp_path, events).ops] == [4000, 500, None, None]


def test_a_damaged_event_costs_only_itself(tmp_path: Path) -> None:
    found = read(tmp_path, [*launch(1, 10.0), {"ph": "X", "cat": 7}, 3, None, {"args": "text"}])
    assert len(found.ops) == 1
    assert found.notes == ("4 events could not be read.",)


@pytest.mark.parametrize(
    "name",
    [b'{"device": "cpu"}(12): run', b"torch\\cuda\\__init__.py(219): f", b"config.py(0): \x01\xff"],
)
def test_names_that_pytorch_does_not_escape_cost_only_their_events(
    tmp_path: Path, name: bytes
) -> None:
    """pytorch/kineto#336, pytorch/pytorch#98432, #136180 and #146900"""
    events = [event("python_function", "HERE", 1, 2), *launch(1, 10.0)]
    plain = json.dumps(trace(events, traceName="run[1].json"), indent=2).encode()
    for data in (plain.replace(b"HERE", name), b" ".join(plain.replace(b"HERE", name).split())):
        found = read_trace(write(tmp_path / "run.pt.trace.json", data))
        assert (len(found.ops), found.ops[0].call, found.devices[0].cc) == (1, 0, (9, 0))
        assert (
            len(read_trace(write(tmp_path / "x.json", data.replace(b"[1].json", b"\x01"))).ops) == 1
        )
        assert found.notes == ("1 event could not be read.",)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (trace([event("cpu_op", "aten::mm", 1, 1)]), "recorded the CPU only"),
        (trace([event("cuda_runtime", "hipLaunchKernel", 1, 1), launch(1, 1)[1]]), "AMD GPU"),
        (
            {"traceEvents": [{"ph": "X", "name": "fusion.1", "pid": 1, "ts": 1, "dur": 2}]},
            "none of a GPU",
        ),
        ({"schema": "other"}, "no list 'traceEvents'"),
        ({"traceEvents": {}}, "not a trace of torch.profiler"),
        (json.dumps(trace(launch(1, 10.0))).encode()[:-40], "cut short"),
        (b'{"traceEvents": [NaN]}', "damaged JSON"),
        (b'{"traceEvents": ' + b"[" * 200_000 + b"]", "damaged JSON"),
        (b'{"schemaVersion": NaN}', "damaged JSON"),
    ],
)
def test_what_is_no_trace_is_reported_in_one_line(
    tmp_path: Path, document: Any, message: str
) -> None:
    path = write(tmp_path / "odd.pt.trace.json", document)
    assert is_trace(path)
    with pytest.raises(InputProblem, match=message) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600 + len(str(path))


def test_long_names_take_no_long_time(tmp_path: Path) -> None:
    names = ["(1): " * 200_000 + "\n", "<" * 1_000_000, "a::" * 300_000, "(" * 1_000_000]
    events = [event("python_function", name, 0, 100) for name in names]
    events += [part for at, name in enumerate(names, 1) for part in launch(at, 10.0 * at, name)]
    start = time.process_time()
    found = read(tmp_path, events)
    assert max(len(shape.kernel) for shape in found.shapes) == 4000
    assert time.process_time() - start < 5


def test_the_outermost_modules_are_ranges(tmp_path: Path) -> None:
    """They tell passes from layers; every module of a large model would be too many."""
    events = [
        event("python_function", "nn.Module: Net_0", 0, 100),
        event("python_function", "nn.Module: Linear_0", 10, 40),
        event("python_function", "nn.Module: Linear_1", 50, 50),
        event("python_function", "nn.Module: Loss_0", 100, 20),
        *launch(1, 20.0),
    ]
    trace = read(tmp_path, events)
    assert [(trace.names[mark.name], mark.kind) for mark in trace.marks] == [
        ("nn.Module: Net_0", "range"),
        ("nn.Module: Loss_0", "range"),
    ]


def test_work_of_a_graph_has_its_node_and_the_call(tmp_path: Path) -> None:
    events = launch(1, 10.0, **{"graph node id": 17})
    events[0]["name"] = "cudaGraphLaunch"
    found = read(tmp_path, events)
    assert found.ops[0].node == 17
    assert found.calls[0].kind == "graph"


def test_python_is_sampled_where_no_gpu_works(tmp_path: Path) -> None:
    """Not in the 100 us between the first two kernels, nor on a thread that never calls CUDA. What C
    wrote counts for who called it."""
    other = {"tid": 7}
    events = [
        *launch(1, 1000.0, dur=50.0),
        *launch(2, 1150.0, dur=50.0),
        *launch(3, 6000.0, dur=50.0),
        event("python_function", "train.py(3): <module>", 900.0, 6000.0),
        event("python_function", "/env/lib/site-packages/lib/load.py(9): read", 1300.0, 3000.0),
        event("python_function", "<built-in function open>", 1300.0, 2900.0),
        event("python_function", "nn.Module: Net_0", 5500.0, 400.0),
        event("python_function", "threading.py(1): wait", 900.0, 6000.0, **other),
    ]  # fmt: skip
    found = read(tmp_path, events)
    shown = [
        (round(each.us), [found.frames[at].file for at in found.stacks[each.stack]])
        for each in found.samples
    ]
    head = ["train.py"]
    assert [stack for _, stack in shown] == [
        head, head, [*head, "site-packages/lib/load.py"], head, head,
    ]  # fmt: skip
    assert sum(us for us, stack in shown if len(stack) == 2) == pytest.approx(3000, abs=40)
    assert found.frames[found.stacks[found.samples[0].stack][0]].line == 3
    assert {each.thread for each in found.samples} == {100}


def test_ranges_that_overlap_without_end_make_no_deep_stacks(tmp_path: Path) -> None:
    names = (f"a.py({at}): f" for at in range(1, 2000))
    python = [event("python_function", name, at * 2.0, 9e3) for at, name in enumerate(names)]
    found = read(tmp_path, [*launch(1, 1.0), *launch(2, 8000.0), *python])
    assert max(map(len, found.stacks)) == 200
