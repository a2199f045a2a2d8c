"""Stressors: kernels that load one unit of the GPU on their own stream while another kernel
runs.

They run in the primary context of this process, through cuda-bindings' driver API, so they can run
beside a program of any library. kernels/common/pressure.cu says how they work."""

import ctypes
import json
import os
import random
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ncu_toolkit.base.core.errors import EnvironmentProblem, KernelProblem, extra, first_line
from ncu_toolkit.base.model.trace import KINDS

#: Reported where `usable` leaves a kind out.
NO_STREAMS: Final = "too little device memory is free to put DRAM under pressure"
#: Threads of a block that fills a multiprocessor, and of one that leaves room (pressure.cu).
_FULL: Final = 1024
_SMALL: Final = 160
#: Bytes of the buffer that is streamed, where they are free: several times the L2 of any GPU so
#: far, and read so that its lines leave the L2 first.
_STREAMED: Final = 1 << 28
#: Bytes that the L2 stream reads again and again: they stay in the L2 of any GPU since Volta.
_RESIDENT: Final = 1 << 22
#: One warp reads this many bytes per round.
_PIECE: Final = 4096


class _Control(ctypes.Structure):
    """The control block of pressure.cu."""

    _fields_ = (
        ("phase", ctypes.c_uint32),
        ("ready", ctypes.c_uint32),
        ("rounds", ctypes.c_uint64),
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
        ("failed", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("sms", ctypes.c_uint32 * 8),
        ("first", ctypes.c_uint64),
        ("finished", ctypes.c_uint64),
    )

    def multiprocessors(self) -> int:
        return sum(int(word).bit_count() for word in self.sms)


#: What `carve` takes: the driver's choice, and all of the shared memory (percent).
CARVEOUTS: Final = (-1, 100)
#: Nanoseconds of a slice by which a kind of pressure is calibrated.
_CALIBRATION_NS: Final = 2_000_000
#: Coarsest step of the GPU's timer.
_TICK_NS: Final = 1_100
_NEVER: Final = (1 << 64) - 1
_FIRST: Final = _Control.first.offset
#: Nanoseconds of a slice, how many times longer some are, for long kernels, and of 24 slices how
#: many are so. Short ones hold kernels in other parts than the program does on the whole.
SLICE_NS: Final = 1_000_000
_LONGER: Final = (1, 4, 16, 64)
_OFTEN: Final = (10, 10, 3, 1)
#: Of four slices, how many have each of CARVEOUTS.
_SPLITS: Final = (3, 1)
#: Seconds between two slices.
PAUSE: Final = 0.003
#: How often a program is looked at that has not used the GPU yet, and how long its libraries have
#: to load their code before the first slice, in seconds.
_WATCH: Final = 0.02
_SETTLE: Final = 0.3


@dataclass(frozen=True)
class StressorRun:
    """How a stressor did beside one measured run.

    `rate` is rounds of work a nanosecond while the run was under way, `multiprocessors` how many it
    ran on. `started` is False where its blocks did not all start in time, `lasted` where it ended
    before the run did.
    """

    rate: float
    multiprocessors: int
    started: bool
    lasted: bool


def driver() -> Any:
    """cuda-bindings' driver API. Raises EnvironmentProblem where it is missing."""
    try:
        from cuda.bindings import driver as module
    except ImportError:
        what = "cuda-bindings is missing; the experiments need it"
        raise EnvironmentProblem(what, extra("probe")) from None
    return module


def checked(answer: tuple[Any, ...], what: str) -> Any:
    """What a call of the driver returned.

    Raises:
        EnvironmentProblem: not enough device memory. KernelProblem: any other failure.
    """
    status = int(answer[0])
    if status == 2:  # CUDA_ERROR_OUT_OF_MEMORY
        remedy = "Choose a smaller size, or --no-experiments"
        raise EnvironmentProblem(f"the GPU has no memory left for {what}", remedy)
    if status:
        raise KernelProblem(f"{what} failed on the GPU ({answer[0]})")
    return answer[1] if len(answer) == 2 else answer[1:]


def first_device() -> tuple[str, int]:
    """Architecture and multiprocessors of the first device that programs see, without a context.
    Raises EnvironmentProblem: cuda-bindings or a GPU is missing."""
    d = driver()
    try:
        checked(d.cuInit(0), "the driver")
        device = checked(d.cuDeviceGet(0), "the device")
    except (KernelProblem, RuntimeError) as error:
        what = f"no usable GPU: {first_line(error)}"
        raise EnvironmentProblem(what, "Check `nvidia-smi`") from None
    names = ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT")
    wanted = (getattr(d.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}") for name in names)
    major, minor, sm_count = (
        int(checked(d.cuDeviceGetAttribute(attribute, device), "the device"))
        for attribute in wanted
    )
    return f"sm_{major}{minor}", sm_count


def compiled(arch: str) -> bytes:
    """The pressure kernels for an architecture, as a cubin. Raises as `nvcc.compile_file`."""
    from ncu_toolkit.kernel.build import nvcc
    from ncu_toolkit.kernel.ladder.catalogue import kernels_root

    return nvcc.compile_file(kernels_root() / "common" / "pressure.cu", arch).path.read_bytes()


def use_primary_context() -> Any:
    """Make the first device's primary context current in this thread: that of the CUDA runtime, and
    so of CuPy, PyTorch and the others. Returns the device, to release it with. Raises
    EnvironmentProblem, KernelProblem: no device, or no memory for a context."""
    d, what = driver(), "the context"
    checked(d.cuInit(0), "the driver")
    device = checked(d.cuDeviceGet(0), "the device")
    context = checked(d.cuDevicePrimaryCtxRetain(device), what)
    checked(d.cuCtxSetCurrent(context), what)
    return device


class Pressure:
    """The pressure kernels, loaded into the first device's primary context from `image`. Raises
    EnvironmentProblem: cuda-bindings is missing, or no memory is free."""

    def __init__(self, image: bytes, sm_count: int) -> None:
        self._driver, self.sm_count, self._image = driver(), sm_count, image
        self._device = use_primary_context()
        call, d, what = checked, self._driver, "the stream of the pressure"
        self._module = call(d.cuModuleLoadData(self._image), "the pressure kernels")
        _, highest = call(d.cuCtxGetStreamPriorityRange(), what)
        # 1: CU_STREAM_NON_BLOCKING
        self.stream = call(d.cuStreamCreateWithPriority(1, highest), what)
        self._event = call(d.cuEventCreate(2), "the event of the pressure")  # 2: without timing
        self._control = call(d.cuMemAlloc(ctypes.sizeof(_Control)), "the pressure")
        self._never = call(d.cuMemAlloc(1024), "the pressure")
        self._bytes, self._data = self._buffer()
        self._functions: dict[str, Any] = {}
        for name in ("begin", "finish", *(f"pressure_{kind}" for kind in KINDS)):
            found = call(d.cuModuleGetFunction(self._module, name.encode()), name)
            call(d.cuFuncLoad(found), name)  # now, and not at the first launch
            self._functions[name] = found
        self._seed = 0

    def _buffer(self) -> tuple[int, Any]:
        """The largest buffer for the streams that is free: a power of two of bytes."""
        d, size = self._driver, _STREAMED
        free, _ = checked(d.cuMemGetInfo(), "the pressure")
        while size > free // 4 and size > _RESIDENT:
            size //= 2
        data = checked(d.cuMemAlloc(size), "the pressure")
        checked(d.cuMemsetD8(data, 0, size), "the pressure")
        return size, data

    def close(self) -> None:
        """Free what the pressure took."""
        d = self._driver
        d.cuStreamSynchronize(self.stream)
        for pointer in (self._data, self._never, self._control):
            d.cuMemFree(pointer)
        d.cuEventDestroy(self._event)
        d.cuStreamDestroy(self.stream)
        d.cuModuleUnload(self._module)
        d.cuDevicePrimaryCtxRelease(self._device)

    def usable(self, kinds: Iterable[str]) -> tuple[str, ...]:
        """The kinds that press on what they are named after. Without memory for a buffer that is
        too large for the L2, streams do not reach device memory."""
        whole = self._bytes == _STREAMED
        return tuple(kind for kind in kinds if whole or KINDS[kind].resource != "dram")

    def blocks(self, name: str) -> int:
        """Blocks of a kind of pressure; 0 for none."""
        if not name:
            return 0
        share = KINDS[name].alone
        return max(1, round(share * self.sm_count)) if share else self.sm_count

    def carve(self, percent: int) -> None:
        """Have multiprocessors that pressure beside a kernel reaches first split off so much of
        their L1 as shared memory (one of CARVEOUTS).

        The split can only change while nothing runs there, so a kernel that needs a larger part
        than the pressure beside it has to wait for the end of the pressure. The streams keep the
        driver's choice: with a small L1 they read half as fast."""
        wanted = self._driver.CUfunction_attribute
        attribute = wanted.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        for name, kind in KINDS.items():
            if not kind.alone:
                function = self._functions[f"pressure_{name}"]
                checked(self._driver.cuFuncSetAttribute(function, attribute, percent), name)

    def start(self, name: str, stream: int, most_ns: int) -> None:
        """Enqueue on `stream` a wait for pressure of a kind ("" for none), and start the pressure
        once everything before on `stream` is done. It ends with `stop`, or after `most_ns`."""
        d, what = self._driver, "the pressure"
        checked(d.cuMemsetD8Async(self._control, 0, _FIRST, stream), what)
        rest = ctypes.sizeof(_Control) - _FIRST
        checked(d.cuMemsetD8Async(int(self._control) + _FIRST, 0xFF, rest, stream), what)
        if name:
            checked(d.cuEventRecord(self._event, stream), what)
            checked(d.cuStreamWaitEvent(self.stream, self._event, 0), what)
            self.launch(name, int(self._control), most_ns, self.blocks(name))
        words = (
            ctypes.c_uint64(int(self._control)), ctypes.c_uint32(self.blocks(name)),
            ctypes.c_uint64(2_000), ctypes.c_uint64(50_000_000),
        )  # fmt: skip
        self._launch("begin", 1, 1, words, stream)

    def stop(self, stream: int) -> None:
        """Enqueue on `stream` the end of the pressure."""
        self._launch("finish", 1, 1, (ctypes.c_uint64(int(self._control)),), stream)

    def seen(self, stream: int) -> StressorRun:
        """Wait for the pressure and `stream` to end, and read what the pressure saw."""
        d, control = self._driver, _Control()
        checked(d.cuStreamSynchronize(stream), "the kernel under pressure")
        checked(d.cuStreamSynchronize(self.stream), "the pressure")
        where = ctypes.addressof(control)
        checked(d.cuMemcpyDtoH(where, self._control, ctypes.sizeof(control)), "the pressure")
        span = control.end - control.begin
        lasted = control.finished + _TICK_NS >= control.end
        rate = control.rounds / span if span > 0 else 0.0
        return StressorRun(rate, control.multiprocessors(), not control.failed, lasted)

    def slice(self, name: str, span_ns: int) -> dict[str, int]:
        """Run a kind of pressure for this many nanoseconds beside whatever else is running, and wait
        for its end.

        Returns:
            first, last: when its first and last block started; finished: when the first one ended,
            in nanoseconds of the GPU's timer. rounds, blocks, multiprocessors.
        """
        d, what, control = self._driver, "the pressure", _Control()
        control.phase, control.first, control.finished = 1, _NEVER, _NEVER
        place, size = ctypes.addressof(control), ctypes.sizeof(control)
        checked(d.cuMemcpyHtoDAsync(self._control, place, size, self.stream), what)
        # A busy GPU has not room for a block on every multiprocessor at once: more of them reach
        # most, and those that come second to one only wait.
        blocks = self.blocks(name) if KINDS[name].alone else 2 * self.blocks(name)
        self.launch(name, int(self._control), span_ns, blocks)
        checked(d.cuStreamSynchronize(self.stream), what)
        checked(d.cuMemcpyDtoHAsync(place, self._control, size, self.stream), what)
        checked(d.cuStreamSynchronize(self.stream), what)
        seen = {key: getattr(control, key) for key in ("first", "last", "finished", "rounds")}
        return seen | {"blocks": self.blocks(name), "multiprocessors": control.multiprocessors()}

    def speeds(self, kinds: Iterable[str], times: int = 1) -> dict[str, float]:
        """Rounds a nanosecond of each kind of pressure, the fastest of this many slices: an idle GPU
        has to raise its clock first. Nothing else may run on it."""
        found = dict.fromkeys(kinds, 0.0)
        for name in [*found] * times:
            seen = self.slice(name, _CALIBRATION_NS)
            speed = seen["rounds"] / max(1, seen["finished"] - seen["first"])
            found[name] = max(found[name], speed)
        return found

    def launch(self, name: str, control: int, most_ns: int, blocks: int) -> None:
        """Launch a kind of pressure on its stream with a control block."""
        self._seed += 1
        resident = KINDS[name].resource == "l2"
        words = (
            ctypes.c_uint64(control), ctypes.c_uint64(int(self._data)),
            ctypes.c_uint64((_RESIDENT if resident else self._bytes) // _PIECE - 1),
            ctypes.c_uint32(self._seed), ctypes.c_uint64(most_ns), ctypes.c_uint64(int(self._never)),
        )  # fmt: skip
        threads = _FULL if KINDS[name].alone else _SMALL
        self._launch(f"pressure_{name}", blocks, threads, words, int(self.stream))

    def _launch(
        self, kernel: str, blocks: int, threads: int, words: tuple[Any, ...], stream: int
    ) -> None:
        places = (ctypes.c_void_p * len(words))(*map(ctypes.addressof, words))
        answer = self._driver.cuLaunchKernel(
            self._functions[kernel], blocks, 1, 1, threads, 1, 1, 0, stream,
            ctypes.addressof(places), 0,
        )  # fmt: skip
        checked(answer, kernel)


def run_slices(path: str, asked: dict[str, Any], done: threading.Event) -> None:
    """Run stressors in a program that is not ours until `done`, from a thread of it, and write a
    line for each slice to `path`.

    A slice is a stressor for a few milliseconds, in an order by lot, with pauses between. Launches
    of the program that fall into a slice ran alongside it; those in no slice ran without. The program
    is not stopped, and nothing of it is changed but its speed.

    Args:
        asked: "cubin" (path of the pressure kernels), "kinds", "sm_count", "seed".

    Raises:
        ToolkitError: the pressure cannot be had here; the program is not disturbed.
    """
    d = driver()
    checked(d.cuInit(0), "the driver")
    device = checked(d.cuDeviceGet(0), "the device")
    while True:
        _, active = checked(d.cuDevicePrimaryCtxGetState(device), "the device")
        if active and not done.wait(_SETTLE):
            break
        if done.wait(_WATCH):
            return
    # What this thread does must not spoil a graph that the program captures meanwhile.
    relaxed = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    checked(d.cuThreadExchangeStreamCaptureMode(relaxed), "the capture mode")
    pressure = Pressure(Path(asked["cubin"]).read_bytes(), int(asked["sm_count"]))
    pressure.carve(CARVEOUTS[0])
    shuffler = random.Random(int(asked["seed"]))
    usable = pressure.usable(asked["kinds"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        if len(usable) < len(asked["kinds"]):
            file.write(json.dumps({"note": NO_STREAMS}) + "\n")
        while not done.is_set():
            kinds = list(usable)
            shuffler.shuffle(kinds)
            for kind in kinds:
                if done.wait(PAUSE * (0.5 + shuffler.random())):
                    break
                # The driver's split of the L1 joins kernels that are there, and fewer of those that
                # use shared memory can come later; with the other one it is the other way round.
                (carveout,) = shuffler.choices(CARVEOUTS, _SPLITS)
                pressure.carve(carveout)
                (longer,) = shuffler.choices(_LONGER, _OFTEN)
                seen = pressure.slice(kind, SLICE_NS * longer)
                file.write(json.dumps({"kind": kind, **seen}) + "\n")
                file.flush()
