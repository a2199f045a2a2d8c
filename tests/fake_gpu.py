"""A GPU that is none: NumPy in CuPy's place and Python functions instead of kernels, so that
launching, profiling and sessions run on any machine.

A behaviour takes a launch's arguments by name and writes the outputs, as the kernel would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from ncu_toolkit.base.model import Device
from ncu_toolkit.kernel.build import nvcc
from ncu_toolkit.kernel.gpu import cuda, launch

Behaviour = Callable[[Mapping[str, Any]], None]
DEVICE = Device("Fake GPU", (9, 0), sm_count=132, l2_bytes=2**20, memory_bytes=2**34)


class FakeCupy:
    """NumPy with the parts of CuPy's `cuda` that the launcher touches; `events` records profiler
    and NVTX calls and launches in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.behaviours: dict[str, Behaviour] = {}
        self.free = 2**34
        note = self.events.append
        self.cuda = SimpleNamespace(
            function=SimpleNamespace(Module=lambda: SimpleNamespace(load=lambda data: None)),
            profiler=SimpleNamespace(start=lambda: note("start"), stop=lambda: note("stop")),
            nvtx=SimpleNamespace(
                RangePush=lambda name: note(f"push {name}"), RangePop=lambda: note("pop")
            ),
        )
        self._pool = SimpleNamespace(free_all_blocks=lambda: None, free_bytes=lambda: 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)

    def get_default_memory_pool(self) -> Any:
        return self._pool


class FakeBound:
    """One launch: runs the behaviour registered under the kernel's name."""

    cupy: FakeCupy

    def __init__(
        self, module: Any, geometry: Any, arguments: Any, static_shared: int, who: str
    ) -> None:
        self.repeat, self._kernel = geometry.repeat, geometry.kernel
        self._arguments = dict(zip(geometry.args, arguments, strict=True))

    def enqueue(self) -> None:
        self.cupy.events.append(self._kernel)
        self.cupy.behaviours[self._kernel](self._arguments)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> FakeCupy:
    """Replace CuPy, the compiler and launches by the fake."""
    fake = FakeCupy()
    code = folder / "fake.cubin"
    code.write_bytes(b"")
    monkeypatch.setattr(cuda, "cupy", lambda: fake)
    monkeypatch.setattr(cuda, "device", lambda: DEVICE)
    monkeypatch.setattr(cuda, "free_bytes", lambda: fake.free)
    monkeypatch.setattr(cuda, "synchronize", lambda what: fake.events.append("sync"))
    monkeypatch.setattr(cuda, "environment", lambda: {"GPU": DEVICE.name})
    monkeypatch.setattr(
        nvcc,
        "compile_rung",
        lambda rung, *_, **__: SimpleNamespace(
            path=code, entries={}, parameters=dict(rung.parameters)
        ),
    )
    monkeypatch.setattr(launch, "_Bound", FakeBound)
    FakeBound.cupy = fake
    return fake


def product(arguments: Mapping[str, Any]) -> None:
    """A right FP32 product."""
    b = arguments["B"] if "B" in arguments else arguments["B_col"].T
    arguments["C"][...] = (arguments["A"].astype(numpy.float64) @ b).astype(numpy.float32)


def forgetful(arguments: Mapping[str, Any]) -> None:
    """A product that leaves one element unwritten."""
    kept = arguments["C"][-1, -1].copy()
    product(arguments)
    arguments["C"][-1, -1] = kept
