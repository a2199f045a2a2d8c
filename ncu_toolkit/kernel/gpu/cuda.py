"""The GPU as the launcher sees it: CuPy with errors a user can act on, device facts, clock and
power samples."""

import contextlib
import importlib
import os
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ncu_toolkit.base.core.errors import EnvironmentProblem, KernelProblem, extra, first_line
from ncu_toolkit.base.model import Device

_NO_GPU = "`ncu-toolkit report` works without one, from the recordings in the package"


@lru_cache(maxsize=1)
def cupy() -> Any:
    """The CuPy module with a usable device. Raises EnvironmentProblem: CuPy is missing, the driver
    is missing or too old, or there is no GPU."""
    try:
        module = importlib.import_module("cupy")
    except ImportError as error:
        what = f"CuPy cannot be imported ({first_line(error)})"
        raise EnvironmentProblem(what, f"{extra('gpu')}; {_NO_GPU}") from None
    try:
        count = module.cuda.runtime.getDeviceCount()
    except Exception as error:
        what = f"no usable GPU: {first_line(error)}"
        raise EnvironmentProblem(what, f"Check `nvidia-smi`; {_NO_GPU}") from None
    if count == 0:
        raise EnvironmentProblem("this machine has no CUDA GPU", _NO_GPU)
    return module


def _text(value: Any) -> str:
    """Text of a library that gives bytes in some versions."""
    return value.decode() if isinstance(value, bytes) else str(value)


def available() -> bool:
    """Whether a GPU can be used here."""
    with contextlib.suppress(EnvironmentProblem):
        return cupy() is not None
    return False


def device() -> Device:
    """Facts of the current device; rates in Hz, sizes in bytes."""
    cp = cupy()
    properties = cp.cuda.runtime.getDeviceProperties(cp.cuda.Device().id)
    attributes: Mapping[str, int] = cp.cuda.Device().attributes
    return Device(
        name=_text(properties["name"]),
        cc=(int(properties["major"]), int(properties["minor"])),
        sm_count=int(properties["multiProcessorCount"]),
        l2_bytes=int(properties["l2CacheSize"]),
        memory_bytes=int(properties["totalGlobalMem"]),
        max_sm_hz=float(attributes.get("ClockRate", 0)) * 1e3,
        max_memory_hz=float(attributes.get("MemoryClockRate", 0)) * 1e3,
        memory_bus_bits=int(attributes.get("GlobalMemoryBusWidth", 0)),
        max_warps_per_sm=int(attributes.get("MaxThreadsPerMultiProcessor", 0)) // 32,
    )


def free_bytes() -> int:
    """Device memory free now, in bytes, CuPy's own pool included."""
    cp = cupy()
    free, _ = cp.cuda.runtime.memGetInfo()
    return int(free) + int(cp.get_default_memory_pool().free_bytes())


def synchronize(what: str) -> None:
    """Wait for the device. Raises KernelProblem: an earlier launch failed; `what` names it."""
    cp = cupy()
    try:
        cp.cuda.Device().synchronize()
    except Exception as error:
        failed = f"{what} failed on the GPU: {first_line(error)}"
        raise KernelProblem(failed, "Run it under compute-sanitizer: `make sanitize`") from None


def context_works() -> bool:
    """Whether this process can still use the GPU: a kernel that accessed memory out of bounds breaks
    the context."""
    try:
        synchronize("the GPU")
    except KernelProblem:
        return False
    return True


def free_memory() -> None:
    """Give memory that CuPy holds and does not use back to the GPU, where its context works."""
    if context_works():
        cupy().get_default_memory_pool().free_all_blocks()


def environment() -> dict[str, str]:
    """Labels and values of this machine, in display order."""
    import platform

    cp = cupy()
    entries = {"GPU": device().name}
    state = sample()
    if state.driver:
        entries["Driver"] = state.driver
    entries["CUDA driver API"] = _cuda_version(cp.cuda.runtime.driverGetVersion())
    entries["CUDA runtime"] = _cuda_version(cp.cuda.runtime.runtimeGetVersion())
    entries["CuPy"] = str(cp.__version__)
    entries["Python"] = platform.python_version()
    if state.sm_mhz is not None and state.max_sm_mhz is not None:
        sm = f"SM {state.sm_mhz:.0f} MHz at start, {state.max_sm_mhz:.0f} MHz at most"
        memory = "" if state.memory_mhz is None else f"; memory {state.memory_mhz:.0f} MHz"
        entries["Clocks"] = f"not locked; {sm}{memory}"
    return entries


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


@dataclass(frozen=True)
class GpuState:
    """Clocks, power and temperature at one moment; None where NVML does not say."""

    driver: str = ""
    sm_mhz: float | None = None
    max_sm_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: str = ""


#: NVML clock event reasons that mean the GPU runs slower than it could (nvml.h,
#: nvmlClocksEventReason*).
_THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@lru_cache(maxsize=1)
def _nvml() -> tuple[Any, Any] | None:
    """The NVML module and the handle of the current device; None where NVML is missing."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        cp = cupy()
        bus = cp.cuda.runtime.deviceGetPCIBusId(cp.cuda.Device().id)
        bus = bus.encode() if isinstance(bus, str) else bus
        return nvml, nvml.nvmlDeviceGetHandleByPciBusId(bus)
    except Exception:
        # NVML only adds clocks and power; without it they count as not sampled.
        return None


def sample() -> GpuState:
    """The device's state now."""
    pair = _nvml()
    if pair is None:
        return GpuState()
    nvml, _ = pair

    def number(function: str, *arguments: Any, scale: float = 1.0) -> float | None:
        value = _asked(function, *arguments)
        return None if value is None else float(value) * scale

    reasons = _asked("nvmlDeviceGetCurrentClocksEventReasons") or 0
    return GpuState(
        driver=_text(nvml.nvmlSystemGetDriverVersion()),
        sm_mhz=number("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        max_sm_mhz=number("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        memory_mhz=number("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        power_w=number("nvmlDeviceGetPowerUsage", scale=1e-3),
        temperature_c=number("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        throttle=", ".join(name for bit, name in _THROTTLE.items() if reasons & bit),
    )


def _asked(function: str, *arguments: Any) -> Any:
    """What NVML says of the current device; None where it is missing, or the GPU or driver does not
    support it."""
    try:
        nvml, handle = _nvml() or (None, None)
        return getattr(nvml, function)(handle, *arguments)
    except Exception:
        return None


def energy_mj() -> float | None:
    """Energy the device has used since the driver was loaded, in millijoules; None where NVML does
    not say."""
    used = _asked("nvmlDeviceGetTotalEnergyConsumption")
    return None if used is None else float(used)


def uuid() -> str:
    """The current device's UUID; how the process names it where NVML is missing."""
    if (found := _asked("nvmlDeviceGetUUID")) is not None:
        return _text(found)
    return f"GPU {os.environ.get('CUDA_VISIBLE_DEVICES') or cupy().cuda.Device().id}"


#: What there is of a driver without `driver_version`: in some containers, on Jetson, in WSL.
_DEVICES = ("/dev/nvidiactl", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/dxg")


def has_driver() -> bool:
    """Whether this machine, or what a container shows of it, has a driver."""
    return bool(driver_version()) or any(map(os.path.exists, _DEVICES))


def driver_version() -> str:
    """Version of the kernel driver; empty where there is none."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(r"Module.*?(\d+\.\d+(?:\.\d+)?)", text)
    return found.group(1) if found else ""


def gpu_uuid() -> str:
    """UUID of this machine's GPU; empty where there is none, or where several leave open which one
    is used."""
    found = set()
    for path in Path("/proc/driver/nvidia/gpus").glob("*/information"):
        with contextlib.suppress(OSError):
            found |= set(re.findall(r"GPU UUID:\s*(GPU-[0-9a-f-]+)", path.read_text()))
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    named = {uuid for uuid in found if chosen.startswith("GPU-") and uuid.startswith(chosen)}
    return next(iter(named or found)) if len(named or found) == 1 else ""


def cards() -> list[str]:
    """The GPUs that may be used, each as CUDA_VISIBLE_DEVICES takes it: by UUID, by number where
    NVML is missing. Makes no context on them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return visible.split(",")
    count = int(cupy().cuda.runtime.getDeviceCount())
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
        names = [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    except Exception:
        names = []  # NVML is missing, or a container hides it
    return names if len(names) == count else [str(n) for n in range(count)]


def combined(states: Sequence[GpuState]) -> GpuState:
    """Several samples as one: median clocks, the highest power and temperature, every throttle
    reason."""

    def over(name: str, choose: Callable[[list[float]], float]) -> float | None:
        known = [value for state in states if (value := getattr(state, name)) is not None]
        return choose(known) if known else None

    reasons = dict.fromkeys(each for state in states for each in state.throttle.split(", "))
    return GpuState(
        sm_mhz=over("sm_mhz", statistics.median),
        memory_mhz=over("memory_mhz", statistics.median),
        power_w=over("power_w", max),
        temperature_c=over("temperature_c", max),
        throttle=", ".join(filter(None, reasons)),
    )


def disable_tf32() -> None:
    """Keep library baselines in true FP32: CuPy honours this variable when it is set before its
    first matrix product."""
    os.environ["CUPY_TF32"] = "0"
