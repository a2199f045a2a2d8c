"""Exports of Nsight Systems."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from program.nsys_files import ACTIVITY, CALL, COPY, GPU, KERNEL, PID, RANGE, tables, write

from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.program.model import Trace
from ncu_toolkit.program.traces.files import is_trace, read_trace


def read(path: Path, **more: Any) -> Trace:
    return read_trace(write(path / "run.sqlite", tables(**more)))


def test_a_kernel_has_its_shape_call_and_device(tmp_path: Path) -> None:
    found = read(tmp_path)
    (op,), (call,), (shape,), (device,) = found.ops, found.calls, found.shapes, found.devices
    assert (op.start, op.end, op.kind, op.call, op.stream, op.process) == (
        1000,
        4000,
        "kernel",
        0,
        7,
        PID,
    )
    assert (call.start, call.end, call.kind, call.thread, call.process) == (
        0,
        800,
        "launch",
        680,
        PID,
    )
    assert found.names[call.name] == "cudaLaunchKernel"
    assert (shape.kernel, shape.function) == ("void at::copy<float>(int)", "copy")
    assert (shape.grid, shape.block) == ((4, 2, 1), (128, 1, 1))
    assert (shape.registers, shape.shared_static, shape.shared_dynamic) == (32, 16, 1024)
    assert (device.name, device.cc, device.sm_count, device.index) == (GPU["name"], (8, 0), 108, 3)
    assert (device.max_sm_hz, device.l2_bytes) == (1.41e9, 41943040)
    assert (found.source, found.program) == ("Nsight Systems 2024.5", "app")
    assert found.lacks == ("marks", "lines", "shapes")


def test_columns_and_tables_that_are_not_there_are_unknown(tmp_path: Path) -> None:
    """As exports of 2019 and 2020 are, or with other options of nsys."""
    few = {
        name: KERNEL[name]
        for name in ("start", "end", "deviceId", "correlationId", "demangledName")
    }
    content = {**tables(), f"{ACTIVITY}KERNEL": [few]}
    for name in (f"{ACTIVITY}RUNTIME", "TARGET_INFO_GPU", "PROCESSES", "META_DATA_EXPORT"):
        del content[name]
    found = read_trace(write(tmp_path / "old.sqlite", content))
    assert (found.shapes[0].grid, found.ops[0].call) == (None, -1)
    assert found.lacks == ("host calls", "marks", "lines", "shapes", "grids", "registers")
    assert (found.source, found.devices[0].name) == ("Nsight Systems", "an unknown GPU")


@pytest.mark.parametrize(
    ("kind", "source", "to", "path", "pinned"),
    [
        (1, 0, 2, "HtoD", False), (1, 1, 2, "HtoD", True), (2, 2, 0, "DtoH", False), (2, 2, 1, "DtoH", True),
        (8, 2, 2, "DtoD", None), (10, 2, 2, "PtoP", None), (11, 4, 4, "HtoD", None), (1, None, None, "HtoD", None),
        (99, 0, 2, "", None), ("x", 0, 2, "", None),
    ],
)  # fmt: skip
def test_copies(tmp_path: Path, kind: Any, source: Any, to: Any, path: str, pinned: Any) -> None:
    copy = {**COPY, "copyKind": kind, "srcKind": source, "dstKind": to}
    call = {**CALL, "start": 5500, "end": 5600, "correlationId": 12, "nameId": 4}
    found = read(tmp_path, **{f"{ACTIVITY}MEMCPY": [copy], f"{ACTIVITY}RUNTIME": [CALL, call]})
    op = found.ops[1]
    assert (op.kind, op.path, op.pinned, op.size, op.call) == ("copy", path, pinned, 4096, 1)
    assert found.calls[1].kind == "copy"


def test_sets_and_whole_graphs(tmp_path: Path) -> None:
    graph = {**COPY, "start": 20000, "end": 30000, "graphId": 4}
    found = read(tmp_path, **{f"{ACTIVITY}MEMSET": [COPY], f"{ACTIVITY}GRAPH_TRACE": [graph]})
    assert [op.kind for op in found.ops] == ["kernel", "set", "kernel"]
    assert found.shapes[found.ops[2].shape].workload == "graph"
    assert "as a whole" in found.notes[0]


def test_kinds_of_calls(tmp_path: Path) -> None:
    calls = [
        CALL,
        {**CALL, "nameId": 6, "correlationId": 13},
        {**CALL, "nameId": 8, "correlationId": 14},
    ]
    found = read(tmp_path, **{f"{ACTIVITY}RUNTIME": calls})
    assert [(call.kind, found.names[call.name]) for call in found.calls] == [
        ("launch", "cudaLaunchKernel"),
        ("sync", "cudaStreamSynchronize"),
        ("allocate", "cuMemAlloc"),
    ]


def test_marks(tmp_path: Path) -> None:
    torch = "aten::mm, seq = 10, op_id = 3, sizes = [[64, 128], [128, 32]]"
    found = read(
        tmp_path,
        NVTX_EVENTS=[
            RANGE,
            {**RANGE, "text": torch, "start": 600, "end": 700},
            {**RANGE, "text": "ProfilerStep#4", "start": 800, "end": 900, "eventType": 60},
            {**RANGE, "text": "a mark", "end": None, "eventType": 34},
            {**RANGE, "text": "never ended", "end": None},
            {**RANGE, "text": "NCCL", "eventType": 75, "domainId": 9, "end": None},
            {**RANGE, "text": "ncclAllReduce", "domainId": 9},
        ],
    )
    assert [(mark.kind, found.names[mark.name]) for mark in found.marks] == [
        ("range", "step"),
        ("operator", "aten::mm [64, 128] [128, 32]"),
        ("step", "ProfilerStep#4"),
    ]
    assert found.lacks == ("lines",)


@pytest.mark.parametrize("event_class", [0, 67])
def test_a_call_chain_with_python_gives_the_line(tmp_path: Path, event_class: int) -> None:
    """nsys of 2022 writes the chain to its own row, with the call's number."""
    strings = tables()["StringIds"]
    more = [
        {"id": 50, "value": "/usr/lib/python3/site-packages/torch/nn.py:9"},
        {"id": 51, "value": "/w/train.py:33"},
        {"id": 52, "value": "/w/train.py:90"},
    ]
    chain = [
        {"id": 1, "symbol": 50 + depth, "module": 0, "stackDepth": depth} for depth in range(3)
    ]
    with_chain = {**CALL, "callchainId": 1, "eventClass": event_class}
    calls = [with_chain] if event_class == 0 else [CALL, with_chain]
    found = read(
        tmp_path,
        StringIds=[*strings, *more],
        CUDA_CALLCHAINS=chain,
        **{f"{ACTIVITY}RUNTIME": calls},
    )
    assert [found.lines[call.line] for call in found.calls] == ["train.py:33"]


def test_the_device_of_a_process_is_the_one_that_it_sees(tmp_path: Path) -> None:
    gpus = [{**GPU, "id": 0, "cuDevice": 0}, {**GPU, "id": 1, "name": "second", "cuDevice": 1}]
    found = read(
        tmp_path,
        TARGET_INFO_GPU=gpus,
        TARGET_INFO_CUDA_DEVICE=[{"gpuId": 1, "cudaId": 0, "pid": PID}],
    )
    assert [device.name for device in found.devices] == ["second"]


def test_work_is_tied_to_calls_of_its_own_process(tmp_path: Path) -> None:
    other = {**CALL, "globalTid": CALL["globalTid"] + (5 << 24), "start": 900}
    assert read(tmp_path, **{f"{ACTIVITY}RUNTIME": [other, CALL]}).ops[0].call == 1


def test_serial_numbers_of_a_high_machine_are_negative(tmp_path: Path) -> None:
    """A `globalPid` has 64 bits, and its first byte is the machine."""
    machine = -(1 << 63)
    kernel = {**KERNEL, "globalPid": KERNEL["globalPid"] + machine}
    call = {**CALL, "globalTid": CALL["globalTid"] + machine}
    found = read(tmp_path, **{f"{ACTIVITY}KERNEL": [kernel], f"{ACTIVITY}RUNTIME": [call]})
    assert (found.ops[0].call, found.ops[0].process, found.calls[0].thread) == (0, PID, 680)


def test_what_nsys_says_of_lost_events_is_a_note(tmp_path: Path) -> None:
    message = [
        {"text": "Not all CUDA events might have been collected.\n/home/x", "severity": 2},
        {"text": "CUDA injection initialized successfully.", "severity": 1},
        {"text": "Not all NVTX events might have been collected.", "severity": 2},
    ]
    notes = read(tmp_path, DIAGNOSTIC_EVENT=message).notes
    assert notes == ("Nsight Systems: Not all CUDA events might have been collected.",)


@pytest.mark.parametrize(
    "bad",
    [
        {"end": 1}, {"start": -(2**63)}, {"end": 2**63 - 1}, {"start": None}, {"start": "soon"}, {"end": 1.5},
        {"start": b"\xff"},
    ],
)  # fmt: skip
def test_absurd_times_are_left_out_and_reported(tmp_path: Path, bad: dict[str, Any]) -> None:
    found = read(tmp_path, **{f"{ACTIVITY}KERNEL": [KERNEL, {**KERNEL, **bad}]})
    assert (len(found.ops), found.notes) == (1, ("Left out for impossible times: 1 launch.",))


def test_absurd_values_are_unknown(tmp_path: Path) -> None:
    odd = dict.fromkeys(KERNEL, b"\xff\x00") | {"start": 1, "end": 2}
    huge = dict.fromkeys(KERNEL, -(2**63)) | {"start": 3, "end": 4}
    text = dict.fromkeys(KERNEL, "9" * 30) | {"start": 5, "end": 6}
    found = read(tmp_path, **{f"{ACTIVITY}KERNEL": [odd, huge, text]})
    assert [shape.kernel for shape in found.shapes] == ["an unnamed kernel"]
    assert all(op.call == -1 and op.node == 0 for op in found.ops)


def sqlite(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as base:
        for statement in statements:
            base.execute(statement)
        base.commit()
    return path


def test_other_databases_are_reported_what_they_are(tmp_path: Path) -> None:
    other = sqlite(tmp_path / "a.sqlite", "CREATE TABLE test (a)")
    nvprof = sqlite(
        tmp_path / "b.sqlite",
        "CREATE TABLE StringTable (_id_, value)",
        f"CREATE TABLE {ACTIVITY}RUNTIME (_id_ INTEGER, cbid, start, end)",
    )
    idle = write(tmp_path / "c.sqlite", {**tables(), f"{ACTIVITY}KERNEL": []})
    for path, message in (
        (other, "no export of Nsight"),
        (nvprof, "nvprof"),
        (idle, "no work of a GPU"),
    ):
        assert is_trace(path)
        with pytest.raises(InputProblem, match=message):
            read_trace(path)


def test_why_there_is_no_work_of_a_gpu_is_what_nsys_said(tmp_path: Path) -> None:
    message = [{"text": "No CUDA events collected. Does the process use CUDA?", "severity": 2}]
    path = write(
        tmp_path / "no.sqlite",
        {**tables(DIAGNOSTIC_EVENT=message), f"{ACTIVITY}KERNEL": [], f"{ACTIVITY}RUNTIME": []},
    )
    with pytest.raises(
        InputProblem, match=r"recorded; Nsight Systems says: No CUDA events collected"
    ):
        read_trace(path)


def test_a_view_is_not_run(tmp_path: Path) -> None:
    """It could be an endless query."""
    endless = "WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT start, start AS end FROM n"
    path = sqlite(
        tmp_path / "v.sqlite",
        "CREATE TABLE StringIds (id, value)",
        "CREATE TABLE ThreadNames (nameId, globalTid)",
        f"CREATE VIEW {ACTIVITY}KERNEL AS {endless}",
    )
    with pytest.raises(InputProblem, match="no work of a GPU"):
        read_trace(path)


def test_a_generated_column_cannot_call_out(tmp_path: Path) -> None:
    path = sqlite(
        tmp_path / "g.sqlite",
        "CREATE TABLE StringIds (id, value)",
        f"CREATE TABLE {ACTIVITY}KERNEL (start, end AS (abs(start + 1)))",
        f"INSERT INTO {ACTIVITY}KERNEL (start) VALUES (1)",
    )
    with pytest.raises(InputProblem):
        read_trace(path)


def test_every_cut_is_reported(tmp_path: Path) -> None:
    data = write(tmp_path / "run.sqlite", tables()).read_bytes()
    for length in (16, 20, 99, 100, 4096, len(data) // 2, len(data) - 1):
        cut = tmp_path / "cut.sqlite"
        cut.write_bytes(data[:length])
        with pytest.raises(InputProblem) as caught:
            read_trace(cut)
        assert "\n" not in str(caught.value)


def test_damage_never_ends_in_a_traceback(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "run.sqlite", tables()).read_bytes())
    for at in range(100, len(data), 401):
        damaged = bytearray(data)
        damaged[at : at + 3] = b"\xff\xff\xff"
        path = tmp_path / "damaged.sqlite"
        path.write_bytes(damaged)
        try:
            read_trace(path)
        except InputProblem:
            pass


def test_pages_that_are_read_twice_have_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ncu_toolkit.program.traces.nsight_systems._LEAST_ROW", 1 << 20)
    with pytest.raises(InputProblem, match="more rows than its size allows"):
        read(tmp_path)


def test_long_names_take_no_long_time(tmp_path: Path) -> None:
    long = [
        {"id": 60, "value": "aten::x, " + "sizes = [" * 100_000},
        {"id": 61, "value": "x" * 1_000_000},
    ]
    start = time.process_time()
    found = read(
        tmp_path,
        StringIds=[*tables()["StringIds"], *long],
        NVTX_EVENTS=[{**RANGE, "textId": 60}],
        CUDA_CALLCHAINS=[{"id": 1, "symbol": 61, "module": 61, "stackDepth": 0}],
        **{f"{ACTIVITY}RUNTIME": [{**CALL, "callchainId": 1}]},
    )
    assert len(found.marks) == 1
    assert time.process_time() - start < 5


def test_launches_without_kernels_are_not_taken_for_a_program_without_a_gpu(tmp_path: Path) -> None:
    for more in ({}, {f"{ACTIVITY}MEMCPY": [COPY]}):
        path = write(tmp_path / f"{len(more)}.sqlite", {**tables(**more), f"{ACTIVITY}KERNEL": []})
        with pytest.raises(InputProblem, match=r"although the host made 1 launch") as caught:
            read_trace(path)
        assert "WSL" in caught.value.remedy


def test_a_log_beside_the_database_and_a_view_are_said(tmp_path: Path) -> None:
    path = write(tmp_path / "open.sqlite", tables(KERNELS=[KERNEL]))
    (tmp_path / "open.sqlite-wal").write_bytes(b"frames")
    assert any("open.sqlite-wal" in note for note in read_trace(path).notes)
    with closing(sqlite3.connect(path)) as base:
        base.execute(f"DROP TABLE {ACTIVITY}KERNEL")
        base.execute(f"CREATE VIEW {ACTIVITY}KERNEL AS SELECT * FROM KERNELS")
        base.commit()
    (tmp_path / "open.sqlite-wal").write_bytes(b"frames")
    with pytest.raises(InputProblem, match=r"KERNEL is a view and is not read.*open.sqlite-wal"):
        read_trace(path)


def test_a_graph_recorded_as_a_whole_has_no_grid(tmp_path: Path) -> None:
    graph = {key: KERNEL[key] for key in ("start", "end", "globalPid", "deviceId", "correlationId")}
    content = {**tables(), f"{ACTIVITY}GRAPH_TRACE": [{**graph, "graphId": 4}]}
    del content[f"{ACTIVITY}KERNEL"]
    found = read_trace(write(tmp_path / "graph.sqlite", content))
    assert (found.shapes[0].grid, found.shapes[0].block, found.shapes[0].blocks) == (None,) * 3
    assert "grids" in found.lacks
