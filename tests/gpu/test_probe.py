"""The tracer, what it writes, and what is read from that. No GPU and no CUPTI."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
from enum import IntEnum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest
from click.testing import CliRunner

from ncu_toolkit.cli import cli
from ncu_toolkit.core.errors import EnvironmentProblem, UsageProblem
from ncu_toolkit.diagnosis.engine import diagnose
from ncu_toolkit.diagnosis.regime import profile_of
from ncu_toolkit.explain.probed import Probed, answer_of
from ncu_toolkit.gpu import trace

#: A kernel's record, with what is read of it: like CUPTI's, but shorter.
LAYOUT = numpy.dtype(
    {
        "names": [
            "kind", "registers_per_thread", "start", "end", "device_id", "grid_x", "grid_y",
            "grid_z", "block_x", "block_y", "block_z", "static_shared_memory",
            "dynamic_shared_memory", "name",
        ],
        "formats": [
            "<i4", "<u2", "<u8", "<u8", "<u4", "<i4", "<i4", "<i4", "<i4", "<i4", "<i4", "<i4",
            "<i4", "<i8",
        ],
        "offsets": [0, 6, 16, 24, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72],
        "itemsize": 88,
    }
)  # fmt: skip
KERNEL = 10


def rows(spans: list[tuple[int, int, int]], **values: int) -> Any:
    """Records of (name, start, end) in nanoseconds."""
    made = numpy.zeros(len(spans), LAYOUT)
    made["kind"] = KERNEL
    for extent in ("grid_x", "grid_y", "grid_z", "block_y", "block_z"):
        made[extent] = 1
    made["block_x"], made["registers_per_thread"] = 256, 32
    for at, (name, start, end) in enumerate(spans):
        made[at]["name"], made[at]["start"], made[at]["end"] = name, start, end
    for field, value in values.items():
        made[field] = value
    return made


def written(folder: Path, records: Any, names: dict[int, str], **facts: Any) -> Path:
    (folder / "7.kernels").write_bytes(records.tobytes())
    lines = [f"0 {address} {name}\n" for address, name in names.items()]
    (folder / "7.names").write_text("".join(lines), encoding="utf-8")
    plain = {
        "itemsize": LAYOUT.itemsize,
        "offsets": {name: LAYOUT.fields[name][1] for name in LAYOUT.names or ()},
        "formats": {name: LAYOUT.fields[name][0].str for name in LAYOUT.names or ()},
        "devices": {"0": {"name": "NVIDIA H200", "major": 9, "minor": 0, "sm_count": 132}},
        "notes": [],
        "ended": 1.0,
    }
    (folder / "7.json").write_text(json.dumps({**plain, **facts}), encoding="utf-8")
    return folder


def test_kernels_gaps_and_shapes(tmp_path: Path) -> None:
    launches = [(1, 1000 * at, 1000 * at + 400) for at in range(10)]
    launches += [(2, 20_000, 90_000), (1, 95_000, 95_400)]
    names = {1: "_Z3fooIfEvPf", 2: "big"}
    found = trace.read(written(tmp_path, rows(launches, grid_x=4096), names))
    assert [(kernel.launch.function, kernel.launches) for kernel in found.kernels] == [
        ("big", 1),
        ("foo<float>", 11),
    ]
    assert found.kernels[0].median_us == pytest.approx(70.0)
    assert (found.launches, found.span_us) == (12, pytest.approx(95.4))
    assert found.busy_us == pytest.approx(70.0 + 11 * 0.4)
    first = found.gaps[0]
    assert (first.after, first.before, first.times) == ("foo<float>", "big", 1)
    assert first.total_us == pytest.approx(20.0 - 9.4)
    assert found.gap_us == pytest.approx(0.6)


def test_an_address_can_get_another_name(tmp_path: Path) -> None:
    folder = written(tmp_path, rows([(1, 0, 9), (1, 10, 12), (1, 20, 25), (1, 30, 32)]), {1: "a"})
    with (folder / "7.names").open("a") as file:
        file.write("2 1 b c\n")
    found = trace.read(folder)
    assert {each.launch.function: each.launches for each in found.kernels} == {"a": 2, "b c": 2}


def test_overlapping_kernels_count_once(tmp_path: Path) -> None:
    found = trace.read(
        written(tmp_path, rows([(1, 0, 1000), (1, 200, 500), (1, 1500, 2000)]), {1: "a"})
    )
    assert found.busy_us == pytest.approx(1.5)
    assert found.span_us == pytest.approx(2.0)


def test_launches_go_to_the_pressure_that_covers_them(tmp_path: Path) -> None:
    ours = rows([(9, 10_000, 20_000), (9, 40_000, 50_000)])
    theirs = rows([(1, at, at + 500) for at in range(0, 60_000, 1000)])
    slices = [
        # All blocks ran from 1 to 9 µs after the record's start; the GPU's clock is 5000 ahead.
        {
            "kind": kind,
            "blocks": 33,
            "multiprocessors": 33,
            "first": begin,
            "last": begin + 1000,
            "finished": begin + 9000,
            "rounds": 8,
        }
        for kind, begin in (("dram", 15_000), ("alone", 45_000))
    ]
    text = "".join(json.dumps(each) + "\n" for each in slices)
    (tmp_path / "7.pressure").write_text(text + '{"kind": "dr', encoding="utf-8")
    # Alone the pressure did 8 rounds in 5 of its 10 µs.
    (tmp_path / "plan").write_text('{"alone": {"dram": 0.0016}}', encoding="utf-8")
    names = {1: "theirs", 9: "pressure_dram"}
    mixed = numpy.zeros(len(theirs) + len(ours), LAYOUT)
    mixed[: len(theirs)], mixed[len(theirs) :] = theirs, ours
    (kernel,) = trace.read(written(tmp_path, mixed, names)).kernels
    counts = {name: len(times) for name, times in kernel.conditions.items()}
    # Of ten launches in each slice the first and the last run while blocks come and go.
    assert counts == {"plain": 40, "dram": 8, "alone": 8}
    # 8 rounds in 9 µs are 0.56 of its speed. The kernel fills half of the slice; in the other half
    # the pressure had all of its speed, so 0.11 is left for that beside the kernel.
    assert set(kernel.rates) == {"dram"}
    assert kernel.rates["dram"] == (pytest.approx(0.11, abs=0.01),)


def test_kernels_that_share_slices_are_told_apart_by_their_parts() -> None:
    """Two kernels in turn: the first takes half of the unit, the second a tenth. In slices that hold
    both in the same parts, neither can be told."""
    lines, which = numpy.zeros(400, LAYOUT), numpy.arange(400) % 2
    lines["start"] = numpy.arange(400) * 1000
    lines["end"] = lines["start"] + 1000

    def kept(begins: list[int], span: int) -> dict[int, dict[str, float]]:
        windows = []
        for at in begins:
            first = sum(
                max(0, min(e + 1000, at + span) - max(e, at)) for e in range(0, 400_000, 2000)
            )
            lost = (0.5 * first + 0.1 * (span - first)) / span
            windows.append(trace._Slice("dram", at, at, at + span, at + span, 1 - lost))
        return trace._kept(lines, which, windows)

    told = kept([at * 10_000 + at * 150 for at in range(20)], 2500)
    assert told[0]["dram"] == pytest.approx(0.5, abs=0.01)
    assert told[1]["dram"] == pytest.approx(0.9, abs=0.01)
    assert kept([at * 10_000 for at in range(20)], 4000) == {}


def test_a_killed_program_and_two_gpus_are_said(tmp_path: Path) -> None:
    both = rows([(1, 0, 9000), (1, 10_000, 12_000)])
    both["device_id"] = [0, 1]
    folder = written(tmp_path, both, {1: "a"})
    facts = json.loads((folder / "7.json").read_text())
    del facts["ended"]
    (folder / "7.json").write_text(json.dumps(facts))
    found = trace.read(folder)
    assert found.launches == 1
    assert "ended from outside" in found.notes[0]
    assert "2 GPUs or processes" in found.notes[1]


def test_a_small_grid_is_found_without_counters(tmp_path: Path) -> None:
    found = trace.read(written(tmp_path, rows([(1, 0, 480_000)], grid_x=16), {1: "few"}))
    verdict = diagnose(profile_of(found.kernels[0], found.device))
    assert verdict.primary.bottleneck == "grid-too-small"
    (card,) = answer_of(found, [Probed(verdict)], top=3).cards
    assert "16 blocks for 132 SMs" in card.summary
    assert card.shape.startswith("grid 16, block 256, 32 registers, theoretical occupancy 100")
    assert card.shape.endswith("0.0152 waves")
    assert card.missing.startswith("Measured without counters")


@pytest.mark.parametrize(
    ("file", "text", "error", "words"),
    [
        ("", "", UsageProblem, "no Python started"),
        ("1.json", "{}", UsageProblem, "launched no kernel"),
        ("1.error", "x\nNo module named 'cupti'\n", EnvironmentProblem, "no cupti-python"),
        ("1.error", "x\nlibcuda.so.1: cannot open\n", EnvironmentProblem, "no CUDA driver"),
        ("1.error", "ERROR_INSUFFICIENT_PRIVILEGES", EnvironmentProblem, "too old"),
        ("1.error", "Register failed with 39", EnvironmentProblem, "another profiler records"),
        ("1.error", "something else", EnvironmentProblem, "something else"),
    ],
)
def test_nothing_recorded(
    tmp_path: Path, file: str, text: str, error: type[Exception], words: str
) -> None:
    if file:
        (tmp_path / file).write_text(text)
    with pytest.raises(error, match=words):
        trace.read(tmp_path)


class _Kind(IntEnum):
    CONCURRENT_KERNEL = KERNEL


class _Other(IntEnum):
    RESOURCE = 3
    MODULE_LOADED = 6


#: Exit codes that a program left with.
left: list[int] = []


@pytest.fixture
def tracer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tracer whose CUPTI does nothing by itself."""
    fake: Any = ModuleType("cupti.cupti")
    fake.activity_kernel10_dtype = LAYOUT
    fake.ActivityKind, fake.CallbackDomain, fake.CallbackIdResource = _Kind, _Other, _Other
    for name in (
        "get_timestamp", "activity_enable", "activity_disable", "activity_flush_all",
        "activity_flush_period", "enable_callback", "subscribe",
    ):  # fmt: skip
        setattr(fake, name, lambda *_: 0)
    package: Any = ModuleType("cupti")
    package.cupti = fake
    monkeypatch.setitem(sys.modules, "cupti", package)
    monkeypatch.setitem(sys.modules, "cupti.cupti", fake)
    path = Path(trace.__file__).parent / "inside" / "tracer.py"
    spec = importlib.util.spec_from_file_location("tracer_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "_loaded_library", lambda: None)
    monkeypatch.setattr(module, "_device", lambda _: {"name": "X", "major": 9, "minor": 0})
    monkeypatch.setattr(module.atexit, "register", lambda _: None)
    monkeypatch.setattr(module.os, "register_at_fork", lambda **_: None)
    monkeypatch.setattr(module.Tracer, "_register", lambda _: None)
    monkeypatch.setattr(module.os, "_exit", left.append)
    return module.Tracer(str(tmp_path))


def test_the_tracer_copies_buffers_and_code(tracer: Any, tmp_path: Path) -> None:
    buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    tracer.on_requested(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
    assert buffer.value is not None
    assert buffer.value % 8 == 0
    name = ctypes.create_string_buffer(b"kernel", 6 + 1)
    records = rows([(ctypes.addressof(name), 5, 9)] * 3)
    ctypes.memmove(buffer.value, records.tobytes(), records.nbytes)
    tracer.on_completed(None, 0, buffer.value, size.value, records.nbytes)
    name.value = b"second"  # The module was unloaded, and its string's place taken.
    tracer.on_requested(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
    ctypes.memmove(buffer.value, records.tobytes(), records.nbytes)
    tracer.on_completed(None, 0, buffer.value, size.value, records.nbytes)
    code = ctypes.create_string_buffer(b"\x7fELF cubin", 10)
    module = (ctypes.c_uint64 * 3)(1, 10, ctypes.addressof(code))
    tracer._called(None, 3, 6, SimpleNamespace(resource_descriptor=ctypes.addressof(module)))
    tracer.end()
    found = trace.read(tmp_path)
    assert {each.launch.function: each.launches for each in found.kernels} == {
        "kernel": 3,
        "second": 3,
    }
    assert [path.read_bytes() for path in found.cubins] == [b"\x7fELF cubin"]


def test_os_exit_writes_what_is_left(tracer: Any, tmp_path: Path) -> None:
    sys.modules["os"]._exit(5)
    assert left.pop() == 5
    assert "ended" in json.loads(next(tmp_path.glob("*.json")).read_text())


def test_pressure_that_reached_few_multiprocessors_counts_for_nothing(tmp_path: Path) -> None:
    both = rows([(1, 0, 5_000), (1, 12_000, 13_000), (9, 10_000, 20_000)])
    line = {"kind": "fp32", "blocks": 132, "multiprocessors": 25, "rounds": 8}
    line |= {"first": 10_000, "last": 10_000, "finished": 20_000}
    (tmp_path / "7.pressure").write_text(json.dumps(line) + "\n", encoding="utf-8")
    (kernel,) = trace.read(written(tmp_path, both, {1: "theirs", 9: "pressure_fp32"})).kernels
    assert {name: len(times) for name, times in kernel.conditions.items()} == {"plain": 1}


def test_records_of_another_layout_are_refused(tracer: Any, tmp_path: Path) -> None:
    records = rows([(0, 5, 9)] * 2, kind=4)
    place = ctypes.create_string_buffer(records.tobytes(), records.nbytes)
    tracer.on_completed(None, 0, ctypes.addressof(place), records.nbytes, records.nbytes)
    assert "lays its records out in another way" in tracer.facts["notes"][0]


def test_the_program_keeps_its_output_and_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The program's own sitecustomize still runs, and a tracer that fails disturbs nothing."""
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    (tmp_path / "cupti.py").write_text("raise ImportError('broken here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    probe = tmp_path / "probe"
    probe.mkdir()
    code = trace.run([sys.executable, "-c", "import sys; print(sys.argv); sys.exit(7)", "x"], probe)
    assert code == 7
    assert capfd.readouterr().out.splitlines() == ["theirs", "['-c', 'x']"]
    with pytest.raises(EnvironmentProblem, match="broken here"):
        trace.read(probe)


def test_the_command_names_what_is_missing() -> None:
    ended = CliRunner().invoke(cli, ["probe"])
    assert isinstance(ended.exception, UsageProblem)
    ended = CliRunner().invoke(cli, ["probe", "--", "./there-is-none"])
    assert "there is no program" in str(ended.exception)
