"""Experiments against a driver and a kernel that only count: no GPU."""

from __future__ import annotations

import contextlib
import ctypes
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import recorded
from click.testing import CliRunner

from ncu_toolkit.base.core.errors import EnvironmentProblem
from ncu_toolkit.base.hardware.specs import occupancy
from ncu_toolkit.base.model import Device
from ncu_toolkit.base.model.profile import Launch
from ncu_toolkit.base.model.trace import KINDS, KernelTrace
from ncu_toolkit.cli import cli
from ncu_toolkit.guests.probe import pressure, probe
from ncu_toolkit.guests.probe.pressure import Pressure, _Control
from ncu_toolkit.kernel.build.nvcc import Resources
from ncu_toolkit.kernel.gpu import cuda
from ncu_toolkit.kernel.gpu.launch import Runnable
from ncu_toolkit.kernel.gpu.runner import Session
from ncu_toolkit.kernel.ladder.problems import problem_for
from ncu_toolkit.kernel.ladder.rung import LaunchGeometry
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.kernel.runs.store import recordings_root

SMS = 132


class Driver:
    """Answers as the driver does; pressure runs on as many multiprocessors as it has blocks."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT=9)

    def __init__(self, free: int = 8 << 30, on: int = SMS, ends_early: bool = False, needs: int = -1) -> None:  # fmt: skip
        self.free, self.on, self.ends_early, self.needs = free, on, ends_early, needs
        self.blocks = 0
        self.launched: list[int] = []
        self.carveouts: list[int] = []
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
            if name == "cuFuncSetAttribute":
                self.carveouts.append(given[2])
            if name in ("cuMemcpyDtoH", "cuMemcpyDtoHAsync"):
                self._seen(_Control.from_address(given[0]))
            return (
                (0, 7) if name.startswith(("cuModule", "cuStreamCreate", "cuEventCreate")) else (0,)
            )

        return call

    def _seen(self, control: Any) -> None:
        control.begin, control.end, control.rounds = 1000, 101_000, 5000
        control.first = 2000
        waits = self.blocks == SMS and self.needs > (self.carveouts or [-1])[-1]
        control.finished = 50_000 if self.ends_early or waits else 102_000
        control.failed = 0
        bits = (1 << min(self.blocks, self.on)) - 1
        control.sms = (ctypes.c_uint32 * 8)(*(bits >> 32 * at & 0xFFFFFFFF for at in range(8)))


class Watch:
    stream = 0

    def __init__(self, *_: Any) -> None: ...

    def enqueue(self, run: Any, before: Any = None, after: Any = None) -> None:
        for each in (before, run, after):
            if each is not None:
                each()

    def elapsed_us(self, _: None) -> float:
        return 100.0


class Kernel:
    runs = halves = 0
    launched: tuple[Launch, ...] = ()
    launch_count = 1
    rung = SimpleNamespace(name="k")

    def run(self) -> None:
        self.runs += 1

    @contextlib.contextmanager
    def padded(self) -> Iterator[bool]:
        self.halves += 1
        yield True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cuda, "device", lambda: Device("H200", (9, 0), sm_count=SMS))
    monkeypatch.setattr(probe, "compiled", lambda _: b"cubin")
    monkeypatch.setattr(probe, "Stopwatch", Watch)

    def made(**how: Any) -> tuple[Driver, Pressure]:
        driver = Driver(**how)
        for module in (pressure,):
            monkeypatch.setattr(module, "driver", lambda: driver)
        return driver, Pressure(b"cubin", SMS)

    return made


def _measured(kernel: Any) -> KernelTrace:
    return probe.Bench().measure(kernel, "flushed")


def test_every_condition_runs_as_often_as_the_others(fake: Any) -> None:
    fake()
    kernel = Kernel()
    found = _measured(kernel)
    assert set(found.conditions) == {"plain", "half_occupancy", *KINDS}
    assert {len(times) for times in found.conditions.values()} == {15}
    assert kernel.runs == 3 + 3 * 2 + 15 * len(found.conditions)
    assert kernel.halves == 1 + 15
    assert set(found.rates) == set(KINDS)
    assert found.rates["dram"] == pytest.approx((1.0,) * 15)
    assert (found.median_us, found.missing) == (100.0, "")


def test_streams_fill_multiprocessors_and_pipes_leave_room(fake: Any) -> None:
    driver, press = fake()
    assert (press.blocks("dram"), press.blocks("fp32"), press.blocks("")) == (33, SMS, 0)
    press.start("dram", 0, 1)
    press.start("fp32", 0, 1)
    assert driver.launched == [1024, 160]


def test_a_run_that_outlasts_its_pressure_is_left_out(fake: Any) -> None:
    fake(ends_early=True)
    kernel = Kernel()
    found = _measured(kernel)
    assert (set(found.conditions), found.missing) == ({"plain", "half_occupancy"}, probe.WAITED)
    assert kernel.runs == 3 + 2 + 15 * 5  # Beside the pressure it is not tried again.


def test_pressure_that_shares_multiprocessors_is_left_out(fake: Any) -> None:
    fake(on=100)
    found = _measured(Kernel())
    assert found.missing == probe.NO_ROOM
    assert set(found.conditions) == {"plain", "half_occupancy", "alone", "dram", "l2"}


def test_a_kernel_that_waits_for_the_pressure_gets_its_shared_memory(fake: Any) -> None:
    """The fake's pressure lasts as long as the kernel once all of the L1 is shared memory."""
    driver, _ = fake(needs=100)
    found = _measured(Kernel())
    beside = sum(not kind.alone for kind in KINDS.values())
    assert driver.carveouts == [-1] * beside + [100] * 2 * beside
    assert found.missing == ""
    driver, _ = fake()
    _measured(Kernel())
    # No faster with more.
    assert driver.carveouts == [-1] * beside + [100] * beside + [-1] * beside


def test_a_run_keeps_what_its_kernels_did_under_pressure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded.run_of(recordings_root() / "h200-pathology")
    case = next(each for each in run.cases if each.rung == "dram_bandwidth")
    profile = next(p for p in run.profiles if p.context and p.context.rung == "dram_bandwidth")
    session = Session(replace(run, cases=(case,)), tmp_path)
    times = {"plain": (1.0,) * 5, "dram": (1.5,) * 5}
    kernel = KernelTrace(profile.launch, 1, 1, 1, 1, 1, times, {"dram": (0.4,)})
    monkeypatch.setattr(probe, "rungs", lambda *_: iter([(case, kernel, None)]))
    reporter: Any = None
    probe.press_all(session, reporter)
    (kept,) = store.load_manifest(tmp_path).cases
    assert (kept.pressure_us, kept.pressure_kept) == (times, {"dram": 0.4})
    (tied,) = store.tie([profile], [kept])
    assert tied.context is not None
    assert tied.context.pressure_us == times


def test_no_memory_for_the_pressure(fake: Any) -> None:
    small = fake(free=64 << 20)[1]
    assert small.usable(KINDS) == tuple(kind for kind in KINDS if not kind.startswith("dram"))
    driver, press = fake()
    assert press.usable(KINDS) == tuple(KINDS)
    driver.out_of_memory = True
    with pytest.raises(EnvironmentProblem, match="no memory left for the pressure"):
        Pressure(b"cubin", SMS)


def test_slices_are_written_until_the_program_ends(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake()
    done = threading.Event()
    (tmp_path / "cubin").write_bytes(b"cubin")
    asked = {"cubin": tmp_path / "cubin", "kinds": ["dram", "alone"], "sm_count": SMS, "seed": 1}

    monkeypatch.setattr(pressure, "_SETTLE", 0.01)
    thread = threading.Thread(target=pressure.run_slices, args=(str(tmp_path / "out"), asked, done))
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
    times = {"plain": row["time_us"], "half_occupancy": row["time_us"]}
    for name, kind in KINDS.items():
        times[name] = times[kind.control or "plain"] * (1 + slopes[name])
    launch = Launch("k", "k", (32768, 1, 1), (256, 1, 1), 18, 0, 0)
    found = KernelTrace(
        launch, 1, *[row["time_us"]] * 4,
        {name: (time,) * 5 for name, time in times.items()},
        {name: (part,) * 5 for name, part in row["kept"].items()},
    )  # fmt: skip
    device = Device("NVIDIA H200", (9, 0), sm_count=SMS)

    class Rung:
        def __init__(self, rung: Any, space: Any, parameters: Any) -> None:
            self.rung, self.cubin, self.verified = rung, None, 0

        def verify(self) -> None:
            self.verified += 1

    press = SimpleNamespace(close=lambda: None)
    bench = SimpleNamespace(kinds=tuple(KINDS), pressure=press, measure=lambda *_: found)
    for name, value in {
        "Runnable": Rung, "Workspace": lambda rung, *_: SimpleNamespace(problem=problem_for(rung.family)), "Bench": lambda: bench,
    }.items():  # fmt: skip
        monkeypatch.setattr(probe, name, value)
    monkeypatch.setattr(cuda, "cupy", lambda: None)
    monkeypatch.setattr(cuda, "device", lambda: device)
    monkeypatch.setattr(cuda, "context_works", lambda: True)
    ended = CliRunner().invoke(cli, ["probe", "--kernel", "dram_bandwidth", "--no-tuned"])
    assert ended.exception is None
    assert "DRAM bandwidth" in ended.output
    assert "likely cause" in ended.output
    assert "grid 32,768, block 256, 18 registers" in ended.output
