"""Experiments against a driver and a kernel that only count: no GPU."""

from __future__ import annotations

import contextlib
import ctypes
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import recorded
from click.testing import CliRunner

from ncu_toolkit.build.nvcc import Resources
from ncu_toolkit.cli.probe import command
from ncu_toolkit.core.errors import EnvironmentProblem, KernelProblem
from ncu_toolkit.gpu import cuda, pressure, probe, slices
from ncu_toolkit.gpu.launch import Runnable
from ncu_toolkit.gpu.pressure import Pressure, _Control
from ncu_toolkit.hardware.occupancy import occupancy
from ncu_toolkit.ladder.rung import LaunchGeometry
from ncu_toolkit.model import Device
from ncu_toolkit.model.profile import Launch
from ncu_toolkit.model.trace import KINDS

SMS = 132


class Driver:
    """Answers as the driver does; pressure runs on as many multiprocessors as it has blocks."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)

    def __init__(self, free: int = 8 << 30, on: int = SMS, ends_early: bool = False) -> None:
        self.free, self.on, self.ends_early = free, on, ends_early
        self.blocks = 0
        self.launched: list[int] = []
        self.out_of_memory = False

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> tuple[Any, ...]:
            if name == "cuMemGetInfo":
                return 0, self.free, self.free
            if name == "cuCtxGetStreamPriorityRange":
                return 0, 0, -5
            if name == "cuDevicePrimaryCtxGetState":
                return 0, 0, 1
            if name == "cuMemAlloc":
                return (2, None) if self.out_of_memory else (0, 4096)
            if name == "cuLaunchKernel" and given[4] > 1:
                self.blocks = given[1]
                self.launched.append(given[4])
            if name in ("cuMemcpyDtoH", "cuMemcpyDtoHAsync"):
                self._seen(_Control.from_address(given[0]))
            return (
                (0, 7) if name.startswith(("cuModule", "cuStreamCreate", "cuEventCreate")) else (0,)
            )

        return call

    def _seen(self, control: Any) -> None:
        control.begin, control.end, control.rounds = 1000, 101_000, 5000
        control.finished = 50_000 if self.ends_early else 102_000
        control.failed = 0
        bits = (1 << min(self.blocks, self.on)) - 1
        control.sms = (ctypes.c_uint32 * 8)(*(bits >> 32 * at & 0xFFFFFFFF for at in range(8)))


class Watch:
    def enqueue(self, run: Any, before: Any = None, after: Any = None) -> None:
        for each in (before, run, after):
            if each is not None:
                each()

    def elapsed_us(self, _: None) -> float:
        return 100.0


class Kernel:
    runs = halves = 0

    def run(self) -> None:
        self.runs += 1

    @contextlib.contextmanager
    def padded(self) -> Iterator[bool]:
        self.halves += 1
        yield True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    stream = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=0))
    monkeypatch.setattr(cuda, "cupy", lambda: SimpleNamespace(cuda=stream))

    def made(**how: Any) -> tuple[Driver, Pressure]:
        driver = Driver(**how)
        for module in (pressure, slices):
            monkeypatch.setattr(module, "driver", lambda: driver)
        return driver, Pressure(b"cubin", SMS)

    return made


def _measured(press: Pressure, kernel: Any) -> dict[str, probe.Measured]:
    watches: Any = {"warm": Watch(), "flushed": Watch()}
    return probe.experiment(kernel, press, watches, "flushed")


def test_every_condition_runs_as_often_as_the_others(fake: Any) -> None:
    kernel = Kernel()
    found = _measured(fake()[1], kernel)
    assert set(found) == {"plain", "plain_again", "other_cache", "half_occupancy", *KINDS}
    assert {len(each.times_us) for each in found.values()} == {15}
    assert kernel.runs == 3 + 15 * len(found)
    assert kernel.halves == 1 + 15
    assert found["dram"].rates == (0.05,) * 15
    assert found["plain"].rates == ()


def test_streams_fill_multiprocessors_and_pipes_leave_room(fake: Any) -> None:
    driver, press = fake()
    assert (press.blocks("dram"), press.blocks("fma2"), press.blocks("")) == (33, SMS, 0)
    press.start("dram", 0, 1)
    press.start("fma2", 0, 1)
    assert driver.launched == [1024, 160]


def test_a_run_that_outlasts_its_pressure_is_left_out(fake: Any) -> None:
    found = _measured(fake(ends_early=True)[1], Kernel())
    assert found["dram"] == probe.Measured((), (), 15)


def test_pressure_that_shares_multiprocessors_is_left_out(fake: Any) -> None:
    found = _measured(fake(on=100)[1], Kernel())
    assert found["fma2"].left_out == 15
    assert found["dram"].left_out == 0


def test_no_memory_for_the_pressure(fake: Any) -> None:
    small = fake(free=64 << 20)[1]
    assert small.usable(KINDS) == tuple(kind for kind in KINDS if not kind.startswith("dram"))
    driver, press = fake()
    assert press.usable(KINDS) == tuple(KINDS)
    driver.out_of_memory = True
    with pytest.raises(EnvironmentProblem, match="no memory left for the pressure"):
        Pressure(b"cubin", SMS)


def test_a_failed_call_names_what_failed() -> None:
    with pytest.raises(KernelProblem, match="the pressure failed on the GPU"):
        pressure.checked((700,), "the pressure")


def test_slices_are_written_until_the_program_ends(fake: Any, tmp_path: Path) -> None:
    fake()
    done = threading.Event()
    (tmp_path / "cubin").write_bytes(b"cubin")
    asked = {"cubin": tmp_path / "cubin", "kinds": ["dram", "alone"], "sm_count": SMS, "seed": 1}
    thread = threading.Thread(target=slices.run, args=(str(tmp_path / "out"), asked, done))
    thread.start()
    done.wait(0.2)
    done.set()
    thread.join(5)
    lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert {line["kind"] for line in lines} == {"dram", "alone"}
    assert {line["multiprocessors"] for line in lines} == {33}


def _runnable(geometry: LaunchGeometry, registers: int, shared: int) -> tuple[Any, list[int]]:
    """A rung on an H200 as far as `padded` looks at it, and the padding it was given."""
    given: list[int] = []
    runnable = object.__new__(Runnable)
    runnable.device = Device("NVIDIA H200", (9, 0), sm_count=SMS)
    entries = {geometry.kernel: Resources(registers, shared=shared)}
    runnable.cubin = SimpleNamespace(entries=entries)  # type: ignore[assignment]
    runnable._launches = [SimpleNamespace(geometry=geometry, pad=given.append)]  # type: ignore[list-item]
    return runnable, given


def test_padding_halves_the_resident_blocks() -> None:
    geometry = LaunchGeometry("k", (4096, 1, 1), (256, 1, 1), 0, ())
    runnable, given = _runnable(geometry, 32, 4096)
    with runnable.padded() as halved:
        assert halved
    (extra, nothing) = given
    assert nothing == 0
    assert occupancy((9, 0), 256, 32, 4096, 0).active_blocks == 8
    assert occupancy((9, 0), 256, 32, 4096, extra).active_blocks == 4


def test_one_block_cannot_be_halved() -> None:
    geometry = LaunchGeometry("k", (SMS, 1, 1), (1024, 1, 1), 0, ())
    runnable, given = _runnable(geometry, 32, 0)
    with runnable.padded() as halved:
        assert not halved
    assert given == [0]
    assert runnable.launched[0].blocks == SMS


def test_a_rung_from_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what an H200 measured of `dram_bandwidth` (docs/data/probe.json)."""
    row = next(
        each
        for each in json.loads((recorded.ROOT / "docs/data/probe.json").read_text())["kernels"]
        if each["name"].startswith("pathology/dram_bandwidth/")
    )
    slopes = {kind: pair[0] for kind, pair in row["responses"].items()}
    times = {"plain": row["time_us"], "plain_again": row["time_us"]}
    for kind in ("alone_few", "alone", "beside", "half_occupancy"):
        times[kind] = row["time_us"] * (1 + slopes[kind])
    for name, kind in KINDS.items():
        if kind.control:
            times[name] = times[kind.control] * (1 + slopes[name])
    found = {
        name: probe.Measured((time,) * 5, (row["kept"].get(name, 1.0),) * 5)
        for name, time in times.items()
    }
    device = Device("NVIDIA H200", (9, 0), sm_count=SMS)

    class Rung:
        def __init__(self, rung: Any, space: Any, parameters: Any) -> None:
            self.rung, self.cubin, self.launch_count = rung, None, 1
            self.launched = (Launch("k", "k", (32768, 1, 1), (256, 1, 1), 18),)
            self.verified = 0

        def verify(self) -> None:
            self.verified += 1

    press = SimpleNamespace(usable=tuple, close=lambda: None)
    for name, value in {
        "Runnable": Rung, "Workspace": lambda *_: None, "compiled": lambda _: b"",
        "Pressure": lambda *_: press, "stopwatches": dict, "experiment": lambda *_: found,
        "calibrate": lambda _: dict.fromkeys(KINDS, (1.0,)),
    }.items():  # fmt: skip
        monkeypatch.setattr(probe, name, value)
    monkeypatch.setattr(cuda, "cupy", lambda: None)
    monkeypatch.setattr(cuda, "device", lambda: device)
    monkeypatch.setattr(cuda, "context_works", lambda: True)
    ended = CliRunner().invoke(command, ["--kernel", "dram_bandwidth", "--no-tuned"])
    assert ended.exception is None
    assert "DRAM bandwidth" in ended.output
    assert "medium confidence" in ended.output
    assert "grid 32768, block 256, 18 registers" in ended.output
