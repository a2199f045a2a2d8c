"""The framing of report files: whole, cut, extended and altered ones, and files that are no reports
at all."""

from __future__ import annotations

import lzma
import os
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import recorded
import report_files
from hypothesis import given, settings
from hypothesis import strategies as st

from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import EXIT_INPUT, InputProblem, UsageProblem
from ncu_toolkit.kernel.report import framing, messages, reader, scrub

ORIGINS = recorded.ROOT / "tests" / "origins" / "reports"


@pytest.fixture(scope="module")
def whole() -> bytes:
    return recorded.report_bytes()


def test_a_whole_report_fits_and_declares_its_launches(whole: bytes) -> None:
    frame = framing.parse(whole)
    assert frame.problem == ""
    assert frame.intact_bytes == len(whole)
    assert recorded.FP32 is not None
    assert frame.declared_launches == len(recorded.run_of(recorded.FP32).profiles)
    for block in frame.blocks:
        for offset, length in (*block.sources, *block.results):
            assert block.offset < offset < offset + length <= len(whole)


@pytest.mark.parametrize("cut", [1, 2, 1000, "half", "all but the header"])
def test_a_cut_report_says_where_and_keeps_what_is_before(whole: bytes, cut: int | str) -> None:
    end = {"half": len(whole) // 2, "all but the header": 40}.get(str(cut)) or len(whole) - int(cut)
    frame = framing.parse(whole[:end])
    assert f"of {end} bytes" in frame.problem
    assert frame.intact_bytes < end
    again = framing.parse(whole[: frame.intact_bytes])
    assert again.blocks == frame.blocks
    assert frame.declared_launches < framing.parse(whole).declared_launches


def with_graph(data: bytes, record: bytes) -> bytes:
    """The report with the record of a graph in front of each result, as ncu 2026 writes it."""
    pieces, at = [], 0
    for block in framing.parse(data).blocks:
        if not block.results:
            continue
        start, head = block.results[0][0] - 4, block.offset + 4 + len(block.header)
        end = block.results[-1][0] + block.results[-1][1]
        graph = struct.pack("<I", len(record)) + record
        varint = report_files.varint
        header = report_files.without(block.header, lambda number, _: number == 5)
        header += varint(5 << 3) + varint(end - head + len(graph)) + varint(10 << 3) + varint(1)
        pieces += [data[at : block.offset], struct.pack("<I", len(header)), header]
        pieces += [data[head:start], graph, data[start:end]]
        at = end
    return b"".join([*pieces, data[at:]])


@pytest.mark.parametrize("name", ["graph-whole", "app-range-replay", "kernel-regex"])
def test_records_of_graphs_are_no_launches_and_no_damage(tmp_path: Path, name: str) -> None:
    """Their place was found with NVIDIA's module, which reads no launch where they are elsewhere."""
    data = framing.read_bytes(ORIGINS / f"{name}.ncu-rep.xz")
    node = b"\x08\x07\x12\x10/home/alice/node"
    record = b"\x08\x05\x10\x02\x18\x07" + b"\x32" + bytes([len(node)]) + node
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(with_graph(data, record))
    frame = framing.parse(path.read_bytes())
    launches = framing.parse(data).declared_launches
    assert (frame.problem, frame.declared_launches) == ("", launches)
    assert sum(len(block.graphs) for block in frame.blocks) == launches
    assert len(reader.load_report(path).profiles) == launches
    assert b"alice" not in scrub.scrub(path.read_bytes(), paths=True).data


@pytest.mark.parametrize("empty", ["launches", "blocks"])
def test_more_messages_than_bytes_for_them_are_refused(tmp_path: Path, empty: str) -> None:
    """56 MB of memory went into each MB of empty messages, and 59 KB of xz hold 100 MB of them."""
    header = framing.MAGIC + struct.pack("<I", 2) + b"\x08\x07"
    if empty == "launches":
        count = report_files.varint(1 << 20)
        block = b"\x10" + count + b"\x28" + report_files.varint(4 << 20)
        data = header + struct.pack("<I", len(block)) + block + bytes(4 << 20)
    else:
        data = header + (struct.pack("<I", 2) + b"\x10\x00") * (1 << 20)
    path = tmp_path / "a.ncu-rep.xz"
    path.write_bytes(files.packed(path.name, data))
    tracemalloc.start()
    frame = framing.parse(framing.read_bytes(path))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "too many for its size" in frame.problem
    assert most < 5 * len(data)


@pytest.mark.parametrize("tail", [b"\0", b"\0\0\0\0garbage", b"NVR\0", bytes(64)])
def test_what_hangs_on_at_the_end_is_noticed(whole: bytes, tail: bytes) -> None:
    frame = framing.parse(whole + tail)
    assert frame.problem, "trailing bytes were taken for blocks"
    assert frame.declared_launches == framing.parse(whole).declared_launches


def test_a_length_that_lies_is_noticed(whole: bytes) -> None:
    frame = framing.parse(whole)
    block = frame.blocks[len(frame.blocks) // 2]
    for change in (-1, 1, 2**31):
        data = bytearray(whole)
        (length,) = struct.unpack_from("<I", data, block.offset)
        struct.pack_into("<I", data, block.offset, (length + change) % 2**32)
        assert framing.parse(bytes(data)).problem


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(noise: bytes) -> None:
    frame = framing.parse(framing.MAGIC + noise)
    assert frame.problem
    assert 0 <= frame.intact_bytes <= len(framing.MAGIC + noise)
    for function in (lambda: list(framing.fields(noise)), lambda: framing.read_varint(noise, 0)):
        try:
            function()
        except framing.Malformed:
            pass  # the one exception it may raise


STRANGERS = {
    "empty": (b"", "is empty (0 bytes)"),
    "text": (
        b"==PROF== Connected to process 42\n",
        "is a text file that begins with '==PROF== Connect…'",
    ),
    "LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "is a Git LFS pointer",
    ),
    "sqlite": (
        b"SQLite format 3\0" + bytes(84),
        "is an SQLite database, as `nsys export` writes it",
    ),
    "chrome": (
        b'{\n  "schemaVersion": 1,\n  "deviceProperties": [',
        "is a trace of events (Chrome's JSON, as PyTorch's profiler writes it)",
    ),
    "elf": (b"\x7fELF\x02\x01\x01" + bytes(57), "is a program or compiled code (ELF)"),
    "zip": (b"PK\x03\x04rest", "is a zip archive"),
    "gzip": (b"\x1f\x8b\x08rest", "is a gzip file"),
    "damaged zstd": (b"\x28\xb5\x2f\xfdrest", "is a damaged zstd file"),
    "cut zstd": (
        files.packed("a.ncu-repz", b"NVR\0" + bytes(range(256)))[:-20],
        "is a damaged zstd file: its data are cut off",
    ),
    "zstd of text": (files.packed("a.ncu-repz", b"just text, compressed"), "is a text file"),
    "wrong magic": (
        b"NVX\0" + bytes(range(60)),
        "does not start with a report's signature (offset 0: 4e 56 58 00, expected 4e 56 52 00)",
    ),
    "damaged xz": (lzma.compress(b"NVR\0" + bytes(500))[:-20], "is a damaged xz file"),
    "xz of text": (lzma.compress(b"just text, compressed"), "is a text file"),
}


@pytest.mark.parametrize(
    "data", [b"\n\x9d\xb2\x08\x12\x0e/host:metadata", b'[\n {\n "children": [\n {']
)
def test_profiles_of_frameworks_say_how_to_record_what_is_read(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "profile").write_bytes(data)
    with pytest.raises(InputProblem, match=r"XLA|Proton") as caught:
        framing.read_bytes(tmp_path / "profile")
    assert "ncu-toolkit profile -- PROGRAM" in caught.value.remedy


@pytest.mark.parametrize("name", STRANGERS)
def test_strangers_are_named(tmp_path: Path, name: str) -> None:
    data, says = STRANGERS[name]
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(data)
    with pytest.raises(InputProblem) as caught:
        framing.read_bytes(path)
    assert caught.value.exit_code == EXIT_INPUT
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.nsys-rep", b"\x0a\x14NVIDIA Tegra Profiler", "is a report of Nsight Systems (nsys)"),
        ("a.qdrep", b"\x00\x01\x02\x03", "is a report of Nsight Systems (nsys)"),
        ("trace.json.gz", b"\x1f\x8b\x08rest", "is a packed trace of events"),
        ("trace.json", b'[{"ph": "X", "name": "k"', "is JSON, perhaps a trace of events"),
    ],
)
def test_traces_are_named_with_what_to_do(
    tmp_path: Path, name: str, data: bytes, says: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputProblem) as caught:
        framing.read_bytes(path)
    assert says in caught.value.message
    assert "with ncu, and pass the .ncu-rep" in caught.value.remedy


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(InputProblem, match="there is no file"):
        framing.read_bytes(tmp_path / "missing.ncu-rep")
    with pytest.raises(InputProblem, match="is a folder, not a report"):
        framing.read_bytes(tmp_path)


@pytest.mark.parametrize("suffix", files.REPORT_SUFFIXES)
def test_packed_reports_are_unpacked(tmp_path: Path, whole: bytes, suffix: str) -> None:
    block = framing.parse(whole).blocks[1]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(files.packed(path.name, whole[: block.offset]))
    assert framing.read_bytes(path) == whole[: block.offset]
    assert path.read_bytes().startswith(framing.MAGIC) == (suffix == ".ncu-rep")


def test_a_checksum_in_zstd_is_checked(tmp_path: Path) -> None:
    """Nothing else tells a changed bit of what zstd stored as it was."""
    whole = bytearray(files.packed("a.ncu-repz", framing.MAGIC + os.urandom(4000)))
    whole[2000] ^= 1
    path = tmp_path / "a.ncu-repz"
    path.write_bytes(whole)
    with pytest.raises(InputProblem, match=r"is a damaged zstd file: .*checksum") as caught:
        framing.read_bytes(path)
    assert caught.value.exit_code == EXIT_INPUT


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.ncu-rep"
    os.mkfifo(fifo)
    with pytest.raises(InputProblem, match="not a regular file"):
        framing.read_bytes(fifo)


@pytest.mark.parametrize("suffix", files.REPORT_SUFFIXES)
def test_strangers_are_refused_by_their_first_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """However much follows: 440 KB of xz held 9 GB, and a sparse file is as large as one likes."""
    path = tmp_path / "zeros.ncu-rep"
    if suffix != ".ncu-rep":
        path.write_bytes(files.packed(suffix, bytes(16 << 20)))
    else:
        with path.open("wb") as sink:
            sink.truncate(16 << 20)
    monkeypatch.setenv(files.LIMIT_VARIABLE, str(2 << 20))  # what is read further, fails otherwise
    with pytest.raises(InputProblem, match="does not start with a report's signature"):
        framing.read_bytes(path)


@pytest.mark.parametrize("suffix", files.REPORT_SUFFIXES)
def test_no_more_is_read_than_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    data = framing.MAGIC + bytes(4 << 20)
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(files.packed(suffix, data))
    assert framing.read_bytes(path) == data
    monkeypatch.setenv(files.LIMIT_VARIABLE, str(1 << 20))
    with pytest.raises(InputProblem, match="has more than 1048576 bytes") as refused:
        framing.read_bytes(path)
    assert files.LIMIT_VARIABLE in refused.value.remedy
    monkeypatch.setenv(files.LIMIT_VARIABLE, "1G")
    with pytest.raises(UsageProblem, match="not a number of bytes"):
        framing.read_bytes(path)


def test_several_streams_of_xz_and_their_padding(tmp_path: Path) -> None:
    first, second = framing.MAGIC + bytes(100), bytes(range(256)) * 5000
    path = tmp_path / "a.ncu-rep.xz"
    whole = lzma.compress(first) + bytes(8) + lzma.compress(second) + bytes(4)
    path.write_bytes(whole)
    assert framing.read_bytes(path) == first + second
    zstd = files.packed(".ncu-repz", first) + files.packed(".ncu-repz", second)
    path.write_bytes(zstd)
    assert framing.read_bytes(path) == first + second
    path.write_bytes(zstd + b"junk")
    with pytest.raises(InputProblem, match="the data after its end are not zstd"):
        framing.read_bytes(path)
    for junk in (b"junk", b"\xfd7zXY\x00", lzma.compress(b"x")[:20]):
        path.write_bytes(whole + junk)
        with pytest.raises(InputProblem, match="is a damaged xz file"):
            framing.read_bytes(path)


@pytest.mark.parametrize("suffix", [".ncu-rep.xz", ".ncu-repz"])
def test_reports_are_unpacked_whatever_their_name(tmp_path: Path, suffix: str) -> None:
    """Without that the profiler's module found nothing in it, which read as 'upgrade'."""
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(files.packed(suffix, report_files.first_launches(2)))
    assert len(reader.load_report(path).profiles) == 2


def slowly(message: bytes, names: list[bytes]) -> dict[bytes, object]:
    """A launch's metrics, field by field."""
    found: dict[bytes, object] = {}
    for number, metric in framing.fields(message):
        if number != messages.RESULT_METRIC or not isinstance(metric, bytes):
            continue
        name, value = -1, None
        for part, content in framing.fields(metric):
            if part == messages.METRIC_INSTANCE:
                break
            if part == 1 and isinstance(content, int):
                name = content
            elif part == 2 and isinstance(content, bytes):
                value = messages._scalar(content)
        if 0 <= name < len(names):
            found[names[name]] = value
    return found


def outcome(read: Callable[[], object]) -> str:
    try:
        return repr(read())
    except framing.Malformed:
        return "malformed"


def test_metrics_read_in_runs_are_the_same_as_one_by_one() -> None:
    """Of whole messages and of damaged ones."""
    data = report_files.first_launches(3)
    frame = framing.parse(data)
    names = messages.metric_names(frame)
    source = random.Random(5)
    for _, _, message in frame.results():
        found, values = messages.scalars(message, names)
        assert len(values) > 500
        assert found == messages.identity(message)
        assert values == slowly(message, names)
        metrics = message.index(bytes([messages.RESULT_METRIC << 3 | 2]))
        for _ in range(60):
            changed = bytearray(message)
            changed[source.randrange(metrics, len(changed))] ^= 1 << source.randrange(8)
            one = bytes(changed)
            assert outcome(lambda one=one: messages.scalars(one, names)[1]) == outcome(
                lambda one=one: slowly(one, names)
            )
