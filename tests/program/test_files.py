"""The toolkit's own format, and which files are traces."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest
from program import kineto_files, nsys_files

from ncu_toolkit.base.core import files as core_files
from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.model.profile import Device, Frame, Launch
from ncu_toolkit.program.model import Call, Mark, Op, Trace
from ncu_toolkit.program.traces import files
from ncu_toolkit.program.traces.files import is_trace, read_trace, write_trace

DEVICE = Device("NVIDIA H100", (9, 0), 132, max_sm_hz=1.98e9)
SHAPE = Launch(
    "void k<int>(int)",
    "k",
    (1, 2, 3),
    (32, 1, 1),
    16,
    nvtx=("a",),
    stack=(Frame("f", "t.py", 3, "", True),),
)


def trace(ops: int = 3) -> Trace:
    return Trace(
        source="PyTorch profiler",
        program="train.py",
        devices=(DEVICE,),
        shapes=(SHAPE,),
        ops=(
            *(Op(10 * i, 10 * i + 7, "kernel", 0, i, stream=7, process=5) for i in range(ops)),
            Op(10 * ops, 10 * ops + 1, "copy", -1, -1, size=1 << 40, path="HtoD", pinned=False),
        ),
        calls=tuple(Call(5 * i, 5 * i + 3, "launch", 0, 1, 5, 0) for i in range(ops)),
        marks=(Mark(0, 100, "step", 1), Mark(3, 9, "operator", 2)),
        names=("cudaLaunchKernel", "ProfilerStep#1", "aten::mm \u202e"),
        lines=("train.py:3",),
        lacks=("memory kinds",),
        notes=("Left out for impossible times: 2 ranges.",),
    )  # fmt: skip


def packed(document: object) -> bytes:
    return core_files.packed(files.SUFFIX, files._MAGIC + msgspec.msgpack.encode(document))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "run.ncu-trace"
    write_trace(trace(), path)
    assert is_trace(path)
    assert read_trace(path) == trace()
    assert is_trace(path.rename(tmp_path / "renamed"))
    assert read_trace(tmp_path / "renamed") == trace()


def test_every_cut_and_every_flipped_byte_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "run.ncu-trace"
    write_trace(trace(), path)
    data = path.read_bytes()
    for at in range(0, len(data), 14):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]):
            path.write_bytes(damaged)
            assert is_trace(path)
            with pytest.raises(InputProblem) as caught:
                read_trace(path)
            assert "\n" not in str(caught.value)


def test_what_newer_versions_add_is_skipped(tmp_path: Path) -> None:
    plain = msgspec.to_builtins(trace())
    plain["ops"] = [[*op, "new"] for op in plain["ops"]]
    plain["later"] = {"x": 1}
    path = tmp_path / "newer.ncu-trace"
    path.write_bytes(packed({"version": 1, "trace": plain, "more": 2}))
    assert read_trace(path) == trace()


def test_what_older_files_lack_has_its_default(tmp_path: Path) -> None:
    plain = msgspec.to_builtins(trace())
    plain["ops"] = [op[:4] for op in plain["ops"]]
    for name in ("samples", "stacks", "frames"):
        del plain[name]
    path = tmp_path / "older.ncu-trace"
    path.write_bytes(packed({"version": 1, "trace": plain}))
    assert read_trace(path).ops[0] == Op(0, 7, "kernel", 0)
    assert read_trace(path).samples == ()


def test_another_version_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "run.ncu-trace"
    path.write_bytes(packed({"version": 2, "trace": 7}))
    with pytest.raises(InputProblem, match="version 2 of the format, this release reads 1"):
        read_trace(path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ops": (Op(0, 1, "kernel", 1),)}, {"ops": (Op(0, 1, "kernel"),)}, {"ops": (Op(0, 1, "kernel", 0, 99),)},
        {"ops": (Op(0, 1, "copy", device=1),)}, {"ops": (Op(0, 1, "copy", device=-1),)},
        {"ops": (Op(9, 10, "copy"), Op(0, 1, "copy"))}, {"ops": (Op(5, 1, "copy"),)}, {"ops": (Op(-5, 1, "copy"),)},
        {"calls": (Call(0, 1, "sync", 77),)}, {"calls": (Call(0, 1, "sync", -1),)}, {"calls": (Call(0, 1, "sync", 0, line=1),)},
        {"marks": (Mark(0, 1, "step", 3),)}, {"devices": (Device("x", (9, 0), max_sm_hz=float("nan")),)},
    ],
)  # fmt: skip
def test_places_that_do_not_exist_are_reported(tmp_path: Path, wrong: dict[str, object]) -> None:
    path = tmp_path / "run.ncu-trace"
    write_trace(msgspec.structs.replace(trace(), **wrong), path)
    with pytest.raises(InputProblem, match="is a damaged trace"):
        read_trace(path)


def test_values_of_other_types_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "run.ncu-trace"
    for document in (
        {"version": 1},
        [1],
        {"version": 1, "trace": {"ops": "x"}},
        {"version": 1, "trace": [[[[]]]]},
    ):
        path.write_bytes(packed(document))
        with pytest.raises(InputProblem, match="is a damaged trace"):
            read_trace(path)


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(core_files.LIMIT_VARIABLE, str(1 << 20))
    bomb = core_files.packed(files.SUFFIX, files._MAGIC + bytes(1 << 24))
    for name in ("bomb.ncu-trace", "bomb.json"):
        (tmp_path / name).write_bytes(bomb)
        with pytest.raises(InputProblem, match="more than"):
            read_trace(tmp_path / name)
    gz = kineto_files.write(tmp_path / "bomb.json.gz", b"[" + b" " * (1 << 24))
    with pytest.raises(InputProblem, match="more than"):
        read_trace(gz)


def test_a_trace_that_needs_too_much_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events take several times their size in the file."""
    write_trace(trace(2000), tmp_path / "run.ncu-trace")
    monkeypatch.setenv(core_files.LIMIT_VARIABLE, str(200_000))
    with pytest.raises(InputProblem, match="unpacks to"):
        read_trace(tmp_path / "run.ncu-trace")


def test_a_damaged_gzip_is_reported(tmp_path: Path) -> None:
    path = kineto_files.write(
        tmp_path / "run.json.gz", kineto_files.trace(kineto_files.launch(1, 1.0))
    )
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputProblem, match="damaged gzip"):
        read_trace(path)


def test_reports_of_nsys_name_the_command_that_exports_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("my run.nsys-rep", "old.qdrep", "part.qdstrm"):
        path = tmp_path / name
        path.write_bytes(b"\x08\x01nsys")
        assert is_trace(path)
        with pytest.raises(InputProblem, match="nsys export --type sqlite"):
            read_trace(path)


def test_a_report_of_nsys_is_exported_where_nsys_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = nsys_files.write(tmp_path / "exported.sqlite", nsys_files.tables())
    nsys = tmp_path / "nsys"
    nsys.write_text(
        f'#!/bin/sh\nwhile [ "$1" != --output ]; do shift; done\n/bin/cp {exported} "$2"\n'
    )
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"\x08\x01nsys")
    assert read_trace(report) == read_trace(exported)
    nsys.write_text("#!/bin/sh\necho it is of a newer release >&2\nexit 1\n")
    with pytest.raises(InputProblem, match=r"it is of a newer release\. Run `nsys export"):
        read_trace(report)


def test_other_files(tmp_path: Path) -> None:
    cases = {
        "empty.ncu-trace": (b"", True, "is empty"),
        "text.ncu-trace": (b"hello", True, "is damaged"),
        "empty.sqlite": (b"", True, "is empty"),
        "text.sqlite": (b"hello, world, hello", True, "is damaged"),
        "lfs.pt.trace.json": (b"version https://git-lfs.github.com/spec/v1\n", True, "Git LFS"),
        "list.txt": (b"some text", False, "not a trace in a known format"),
        "other.json": (b'{"schema": "ncu-toolkit/run"}', False, "no list 'traceEvents'"),
        "report.ncu-rep": (b"NVR\0" + bytes(80), False, "not a trace in a known format"),
        "program": (b"\x7fELF" + bytes(80), False, "not a trace in a known format"),
    }
    for name, (data, is_one, message) in cases.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert is_trace(path) == is_one, name
        with pytest.raises(InputProblem, match=message) as caught:
            read_trace(path)
        assert (caught.value.exit_code, "\n" in str(caught.value)) == (4, False)


def test_missing_files_folders_and_fifos(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("none", "no trace at"),
        ("pipe", "not a regular file"),
        ("", "is a folder"),
    ):
        assert not is_trace(tmp_path / name)
        with pytest.raises(InputProblem, match=message):
            read_trace(tmp_path / name)
    assert is_trace(tmp_path / "none.sqlite")


def test_a_hundred_thousand_launches_take_seconds(tmp_path: Path) -> None:
    large, path, start = trace(100_000), tmp_path / "large.ncu-trace", time.process_time()
    write_trace(large, path)
    assert read_trace(path) == large
    assert time.process_time() - start < 5
