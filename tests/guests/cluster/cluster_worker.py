"""What workers of a test's cluster preload: a GPU that is none, an ncu that is none, and a tuner that
times by formula and notes what it timed.

In the folder $FAKE_CLUSTER lie `measured` (a line for each measurement: process, setting, repeats)
and what a test puts there: `seconds` (of one measurement), `break` (a setting that breaks the
context of the process that runs it), `probe-NAME` (the time of the probe on the worker NAME),
`version` (another version of this package)."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import fake_gpu
import ladder_runs
import pytest

from ncu_toolkit.base.core.cache import cache_folder
from ncu_toolkit.base.core.errors import KernelProblem
from ncu_toolkit.guests.cluster import cluster
from ncu_toolkit.guests.tune import tune
from ncu_toolkit.guests.tune.halving import Parameters, Round
from ncu_toolkit.kernel.build import nvcc
from ncu_toolkit.kernel.gpu import cuda, timing

BASE = 100.0


def folder() -> Path:
    return Path(os.environ["FAKE_CLUSTER"])


def setting(name: str) -> str:
    path = folder() / name
    return path.read_text() if path.is_file() else ""


def worker_name() -> str:
    from distributed import get_worker

    return str(get_worker().name)


def cost(parameters: Parameters) -> float:
    """A time in microseconds, another for each setting."""
    return BASE * (1 + sum(i * v for i, v in enumerate(sorted(parameters.values()), 1)) / 1000)


class Bench:
    """Stands in for the tuner's bench on a GPU."""

    broken = False

    def __init__(self, rung: Any, size: object, dtype: str, deadline: object) -> None:
        pass

    def trust(self, parameters: Parameters) -> None:
        pass

    def measure(self, parameters: Parameters, repeats: int, limit_us: float | None) -> Round:
        tune._check_context()
        key = json.dumps(dict(sorted(parameters.items())))
        time.sleep(float(setting("seconds") or 0.01))
        if setting("break") == key:
            Bench.broken = True
            raise KernelProblem("an illegal memory access was encountered")
        with (folder() / "measured").open("a") as sink:
            sink.write(json.dumps([os.getpid(), key, repeats]) + "\n")
        return Round((cost(parameters),) * repeats, (BASE,) * repeats)


def compile_rung(
    rung: Any, arch: str, parameters: Any = None, macros: Any = None
) -> nvcc.BuiltCubin:
    key = f"{rung.name}-{'-'.join(str(v) for v in (parameters or {}).values())}"
    place = cache_folder() / "cubins" / key
    place.mkdir(parents=True, exist_ok=True)
    (place / "kernel.cubin").write_bytes(b"code")
    entries = {launch.kernel: nvcc.Resources(64) for launch in rung.launches}
    made = nvcc.BuiltCubin(
        place / "kernel.cubin", "sm_90", entries, dict(parameters or {}), "", (), ""
    )
    record = asdict(made) | {"path": ""}
    (place / "report.json").write_text(json.dumps(record))
    return made


def synchronize(what: str) -> None:
    if Bench.broken:
        raise KernelProblem(f"{what} failed on the GPU: an illegal memory access")


def probe() -> tuple[float, float, str]:
    return float(setting(f"probe-{worker_name()}") or 1000.0), 100.0, ""


def install(patch: pytest.MonkeyPatch) -> None:
    """Put the stand-ins in place."""
    ladder_runs.install(patch, folder())
    patch.setattr(tune, "_Bench", Bench)
    patch.setattr(nvcc, "compile_rung", compile_rung)
    patch.setattr(cuda, "synchronize", synchronize)
    patch.setattr(cuda, "uuid", lambda: f"GPU-{worker_name()}")
    patch.setattr(timing, "probe", probe)
    patch.setattr(cluster, "machine", lambda: {"GPU": cuda.device().name, "Compiler": "nvcc 13"})
    model = setting(f"model-{os.environ.get('CUDA_VISIBLE_DEVICES', '')}")
    if model:
        patch.setattr(cuda, "device", lambda: replace(fake_gpu.DEVICE, name=model))
    if setting("version"):
        patch.setattr(cluster, "__version__", setting("version"))


def dask_setup(worker: object) -> None:
    """Called by Dask in each worker."""
    install(pytest.MonkeyPatch())
