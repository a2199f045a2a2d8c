"""Traces of programs without a GPU: a small simulator of a host and of the streams of GPUs, and
programs with a known step, known idle time and known causes.

    trace = gpt(steps=9)

The host calls one after another; a launch takes 3 to 5 us of it. Work of a stream runs in order and
begins at the earliest `REACH` after its call returned and `NEXT` after the work before it. A
synchronising call and a pageable copy hold the host. A seed gives the same trace each time."""

from __future__ import annotations

import contextlib
import functools
import random
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ncu_toolkit.base.model.profile import Device, Launch
from ncu_toolkit.program.model import (
    Call,
    CallKind,
    Lack,
    Mark,
    MarkKind,
    Op,
    OpKind,
    PythonFrame,
    Sample,
    Trace,
)

H200: Final = Device(
    name="NVIDIA H200", cc=(9, 0), sm_count=132, l2_bytes=50 << 20, memory_bytes=141 << 30,
    max_sm_hz=1.98e9, max_memory_hz=3.2e9, memory_bus_bits=6144, max_warps_per_sm=64,
)  # fmt: skip
#: Microseconds from the end of a launch's call to its start on an idle GPU.
REACH: Final = 1.6
#: Microseconds between two queued kernels of a stream.
NEXT: Final = 0.9
#: Launches that the queue holds; a further launch waits.
QUEUE: Final = 1024
#: Bytes per microsecond between host and device.
PINNED, PAGEABLE, ON_DEVICE = 50e3, 6e3, 2.0e6


class Machine:
    """A host with threads and its GPUs. Times given are microseconds; events are nanoseconds."""

    def __init__(self, program: str = "train.py", seed: int = 0, process: int = 0) -> None:
        self.program, self.process, self.thread = program, process, 1
        self.now = 1000.0
        self.random = random.Random(seed)
        self.shapes: dict[Launch, int] = {}
        self.names: dict[str, int] = {}
        self.lines: dict[str, int] = {}
        self.devices: list[Device] = [H200]
        self.ops: list[list[Any]] = []
        self.calls: list[list[Any]] = []
        self.marks: list[list[Any]] = []
        self.samples: list[tuple[float, float, tuple[PythonFrame, ...], int]] = []
        self.ends: dict[tuple[int, int], float] = {}
        self.queued: deque[float] = deque()
        self.loaded: set[str] = set()

    def host(self, us: float, *stack: str) -> None:
        """Work of the host alone, in Python's functions `train.py:3 main`, the outermost first."""
        start = self.now
        self.now += us if stack else us * self._noise(0.02)
        if stack:
            self.samples.append((start, self.now, tuple(map(frame_of, stack)), self.thread))

    def launch(
        self,
        kernel: str,
        us: float,
        grid: int = 528,
        block: int = 256,
        *,
        line: str = "",
        stream: int = 7,
        device: int = 0,
        registers: int = 32,
        shared: int = 0,
        host_us: float = 4.0,
    ) -> None:
        """A kernel of `us` microseconds. The first use of its name loads a module."""
        if kernel not in self.loaded:
            self.loaded.add(kernel)
            self._call("load", "cuModuleLoadData", 900.0, line)
        while self.queued and self.queued[0] <= self.now:
            self.queued.popleft()
        call = self._call(
            "launch", "cudaLaunchKernel", host_us * self.random.uniform(0.8, 1.2), line
        )
        while len(self.queued) >= QUEUE:
            self.now = max(self.now, self.queued.popleft())
            self.calls[call][1] = self.now
        shape = Launch(
            kernel=kernel, function=function_of(kernel), grid=(grid, 1, 1), block=(block, 1, 1),
            registers=registers, shared_dynamic=shared,
        )  # fmt: skip
        end = self._work("kernel", us * self._noise(0.01), call, stream, device, shape=shape)
        self.queued.append(end)

    def copy(
        self,
        path: str,
        size: int,
        *,
        pinned: bool = True,
        line: str = "",
        stream: int = 7,
        device: int = 0,
    ) -> None:
        """A copy; a pageable one holds the host until it is done."""
        rate = ON_DEVICE if path == "DtoD" else PINNED if pinned else PAGEABLE
        call = self._call("copy", "cudaMemcpyAsync", 6.0, line)
        between = path in ("HtoD", "DtoH")
        end = self._work(
            "copy", 1.2 + size / rate, call, stream, device, size=size, path=path,
            pinned=pinned if between else None,
        )  # fmt: skip
        if between and not pinned:
            self.now = max(self.now, end + 2.0)
            self.calls[call][1] = self.now

    def set(self, size: int, *, line: str = "", stream: int = 7) -> None:
        call = self._call("set", "cudaMemsetAsync", 3.0, line)
        self._work("set", 1.0 + size / ON_DEVICE, call, stream, 0, size=size)

    def sync(self, name: str = "cudaStreamSynchronize", *, line: str = "") -> None:
        """The host waits for all work."""
        call = self._call("sync", name, 2.0, line)
        self.now = max(self.now, *self.ends.values(), 0.0) + 3.0
        self.calls[call][1] = self.now

    def item(self, *, line: str = "") -> None:
        """A read-back of a scalar: `loss.item()`."""
        self.copy("DtoH", 4, pinned=False, line=line)
        self.sync(line=line)

    def allocate(self, us: float = 150.0, *, line: str = "") -> None:
        self._call("allocate", "cudaMalloc", us, line)

    def free(self, us: float = 200.0, *, line: str = "") -> None:
        """`cudaFree` waits for the device first."""
        call = self._call("free", "cudaFree", us, line)
        self.now = max(self.now, *self.ends.values(), 0.0) + 5.0
        self.calls[call][1] = self.now

    def graph(
        self, nodes: list[tuple[str, float, int]], *, line: str = "", stream: int = 7
    ) -> None:
        """One call that runs (kernel, us, grid) one after another."""
        call = self._call("graph", "cudaGraphLaunch", 9.0, line)
        for node, (kernel, us, grid) in enumerate(nodes, 1):
            shape = Launch(kernel, function_of(kernel), (grid, 1, 1), (256, 1, 1), registers=32)
            self._work("kernel", us * self._noise(0.01), call, stream, 0, shape=shape, node=node)

    def wait(self, stream: int, other: int, device: int = 0) -> None:
        """`stream` goes on after what `other` holds now."""
        self._call("other", "cudaStreamWaitEvent", 1.5, "")
        key = (device, stream)
        self.ends[key] = max(self.ends.get(key, 0.0), self.ends.get((device, other), 0.0))

    @contextlib.contextmanager
    def mark(self, name: str, kind: MarkKind = "range") -> Iterator[None]:
        start, thread = self.now, self.thread
        yield
        self.marks.append([start, self.now, kind, self._name(name), thread])

    @contextlib.contextmanager
    def on_thread(self, thread: int) -> Iterator[None]:
        """Another thread works while this one waits: PyTorch's backward."""
        before, self.thread = self.thread, thread
        yield
        self.thread = before

    def trace(self, *others: Machine, lacks: tuple[Lack, ...] = ()) -> Trace:
        """What was recorded, with that of other processes."""
        names: dict[str, int] = {}
        lines: dict[str, int] = {}
        shapes: dict[Launch, int] = {}
        ops: list[tuple[Any, ...]] = []
        calls: list[tuple[Any, ...]] = []
        marks: list[Mark] = []
        devices: list[Device] = []
        stacks: dict[tuple[PythonFrame, ...], int] = {}
        samples: list[Sample] = []
        for one in (self, *others):
            for start, end, stack, thread in one.samples:
                at = stacks.setdefault(stack, len(stacks))
                samples.append(Sample(_ns(start), _ns(end), at, thread, one.process))
            name = [names.setdefault(each, len(names)) for each in one.names]
            line = [lines.setdefault(each, len(lines)) for each in one.lines]
            shape = [shapes.setdefault(each, len(shapes)) for each in one.shapes]
            before, first = len(calls), len(devices)
            devices += one.devices
            for start, end, kind, called, thread, at in one.calls:
                place = line[at] if at >= 0 else -1
                calls.append((_ns(start), _ns(end), kind, name[called], thread, one.process, place))
            for start, end, kind, at, call, device, stream, size, path, pinned, node in one.ops:
                which = shape[at] if at >= 0 else -1
                ops.append(
                    (_ns(start), _ns(end), kind, which, call + before, first + device, stream,
                     one.process, size, path, pinned, node)
                )  # fmt: skip
            for start, end, mark, at, thread in one.marks:
                marks.append(Mark(_ns(start), _ns(end), mark, name[at], thread, one.process))
        order = sorted(range(len(calls)), key=lambda i: calls[i][0])
        place_of = {old: new for new, old in enumerate(order)}
        frames = [*dict.fromkeys(frame for stack in stacks for frame in stack)]
        return Trace(
            source="simulator",
            program=self.program,
            devices=tuple(devices),
            shapes=tuple(shapes),
            ops=tuple(
                Op(*row[:4], place_of[row[4]], *row[5:]) for row in sorted(ops, key=lambda o: o[0])
            ),
            calls=tuple(Call(*calls[i]) for i in order),
            marks=tuple(sorted(marks, key=lambda mark: (mark.start, -mark.end))),
            names=tuple(names),
            lines=tuple(lines),
            samples=tuple(sorted(samples, key=lambda each: (each.start, each.end))),
            stacks=tuple(tuple(map(frames.index, stack)) for stack in stacks),
            frames=tuple(frames),
            lacks=lacks,
        )

    def _noise(self, part: float) -> float:
        return max(0.5, self.random.gauss(1.0, part))

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def _call(self, kind: CallKind, name: str, us: float, line: str) -> int:
        place = self.lines.setdefault(line, len(self.lines)) if line else -1
        start = self.now + 0.3
        self.now = start + us
        self.calls.append([start, self.now, kind, self._name(name), self.thread, place])
        return len(self.calls) - 1

    def _work(
        self,
        kind: OpKind,
        us: float,
        call: int,
        stream: int,
        device: int,
        *,
        shape: Launch | None = None,
        size: int = 0,
        path: str = "",
        pinned: bool | None = None,
        node: int = 0,
    ) -> float:
        start = max(self.now + REACH, self.ends.get((device, stream), 0.0) + NEXT)
        end = self.ends[device, stream] = start + us
        at = self.shapes.setdefault(shape, len(self.shapes)) if shape else -1
        self.ops.append([start, end, kind, at, call, device, stream, size, path, pinned, node])
        return end


def frame_of(text: str) -> PythonFrame:
    """`train.py:3 main`."""
    place, _, function = text.partition(" ")
    file, _, line = place.partition(":")
    return PythonFrame(function, file, int(line))


def _ns(us: float) -> int:
    return round(us * 1000)


def function_of(kernel: str) -> str:
    """A kernel's name without template and parameter lists."""
    name, depth = "", 0
    for letter in kernel.removeprefix("void "):
        if letter == "(" and not depth and name and not name.endswith("::"):
            break
        depth += (letter == "<") - (letter == ">")
        if not depth and letter != ">":
            name += letter
    return name.strip()


# ---- names of kernels ----------------------------------------------------------------------------


def kernel_names() -> list[list[str]]:
    """Rows of `program/kernel_names.tsv`: kernel, class, arithmetic of a product, short name."""
    text = (Path(__file__).parent / "program" / "kernel_names.tsv").read_text("utf-8")
    return [line.split("\t") for line in text.splitlines() if line and line[0] != "#"]


_NAMED: Final = {row[3]: row[0] for row in kernel_names() if len(row) > 3}


def sgemm(tile: str = "128x64", layout: str = "nn") -> str:
    return f"ampere_sgemm_{tile}_{layout}"


def xmma(layout: str = "tn", tile: str = "128x128x8") -> str:
    return (
        f"sm80_xmma_gemm_f32f32_f32f32_f32_{layout}_n_tilesize{tile}_stage3_warpsize2x2x1_ffma"
        "_aligna4_alignc4_execute_kernel__5x_cublas"
    )


ADD: Final = _NAMED["ADD"]
MUL: Final = _NAMED["MUL"]
SCALE: Final = _NAMED["SCALE"]
TANH: Final = _NAMED["TANH"]
POW: Final = _NAMED["POW"]
FILL: Final = _NAMED["FILL"]
SQRT: Final = _NAMED["SQRT"]
DIV: Final = _NAMED["DIV"]
LERP: Final = _NAMED["LERP"]
ADDCMUL: Final = _NAMED["ADDCMUL"]
ADDCDIV: Final = _NAMED["ADDCDIV"]
MASK: Final = _NAMED["MASK"]
TO_LAYOUT: Final = _NAMED["TO_LAYOUT"]
MEAN: Final = _NAMED["MEAN"]
SUM: Final = _NAMED["SUM"]
SOFTMAX: Final = _NAMED["SOFTMAX"]
SOFTMAX_BACK: Final = _NAMED["SOFTMAX_BACK"]
LOG_SOFTMAX: Final = _NAMED["LOG_SOFTMAX"]
LOG_SOFTMAX_BACK: Final = _NAMED["LOG_SOFTMAX_BACK"]
NLL: Final = _NAMED["NLL"]
NLL_BACK: Final = _NAMED["NLL_BACK"]
EMBED: Final = _NAMED["EMBED"]
EMBED_BACK: Final = _NAMED["EMBED_BACK"]
RANDOM: Final = _NAMED["RANDOM"]
FLASH: Final = _NAMED["FLASH"]
FLASH_BACK: Final = _NAMED["FLASH_BACK"]
BF16_PRODUCT: Final = _NAMED["BF16_PRODUCT"]
NORM: Final = _NAMED["NORM"]
FOREACH_ADAM: Final = _NAMED["FOREACH_ADAM"]
ALL_REDUCE: Final = _NAMED["ALL_REDUCE"]


# ---- programs ------------------------------------------------------------------------------------


@functools.cache
def gpt(
    steps: int = 9,
    layers: int = 3,
    parameters: int = 62,
    *,
    marked: str = "",
    evaluate: int = 0,
    autotune: int = 0,
    seed: int = 0,
) -> Trace:
    """A GPT as people first write it: FP32 products, attention, GELU and norm spelled out, AdamW of
    12 launches a parameter. `marked` names an NVTX range a step ("step marks" gives marks of kind
    step); `evaluate` forward passes follow; `autotune` products of other shapes come first."""
    machine = Machine("train.py", seed)
    for i in range(parameters):
        machine.allocate(40.0)
        machine.launch(RANDOM, 6.0 + i % 5, 264, 256, line="model.py:12")
    machine.copy("HtoD", 1 << 20, pinned=False, line="train.py:14")
    for i in range(autotune):
        machine.launch(xmma("nn", f"{32 << i % 3}x{32 << i % 2}x8"), 90.0 + i, 100 + i)
    for at in range(steps):
        if marked == "step marks":
            with machine.mark(f"step {at}", "step"):
                _gpt_step(machine, layers, parameters)
        elif marked:
            with machine.mark(marked):
                _gpt_step(machine, layers, parameters)
        else:
            _gpt_step(machine, layers, parameters)
    machine.item(line="train.py:40")
    for _ in range(evaluate):
        _gpt_forward(machine, layers)
        machine.item(line="train.py:48")
    return machine.trace()


def _gpt_step(machine: Machine, layers: int, parameters: int) -> None:
    machine.copy("HtoD", 64 << 10, pinned=True, line="train.py:28")
    _gpt_forward(machine, layers)
    with machine.on_thread(2):
        _gpt_backward(machine, layers)
    for i in range(parameters):
        _adamw(machine, 40.0 if i < 2 else 9.0 if i % 3 else 2.2)


def _gpt_forward(machine: Machine, layers: int) -> None:
    def go(kernel: str, us: float, line: int, grid: int = 2048, block: int = 128) -> None:
        machine.launch(kernel, us, grid, block, line=f"model.py:{line}")

    go(EMBED, 30.0, 50, 1056)
    go(ADD, 24.0, 51)
    for _ in range(layers):
        _norm(go, 15)
        go(sgemm("128x64", "tn"), 750.0, 22, 768)
        go(ADD, 40.0, 22, 6144)
        for _ in "qkv":
            go(TO_LAYOUT, 26.0, 23, 8192)
        go(xmma("tn", "128x128x8"), 310.0, 25, 4096)
        go(SCALE, 110.0, 26, 12288)
        go(MASK, 150.0, 27, 12289, 64)
        go(SOFTMAX, 210.0, 28, 12290)
        go(sgemm("128x128", "nn"), 280.0, 29, 1536)
        go(TO_LAYOUT, 26.0, 30, 8192)
        go(sgemm("128x64", "tn"), 260.0, 31, 256)
        go(ADD, 24.0, 31, 2048)
        go(ADD, 24.0, 32)
        _norm(go, 15)
        go(sgemm("128x64", "tn"), 1000.0, 36, 1024)
        go(ADD, 60.0, 36, 8192)
        for kernel in (POW, SCALE, ADD, SCALE, TANH, ADD, MUL):
            go(kernel, 62.0, 37, 8193)
        go(sgemm("128x64", "tn"), 1000.0, 38, 257)
        go(ADD, 24.0, 38, 2048)
        go(ADD, 24.0, 39)
    _norm(go, 15)
    go(sgemm("128x128", "tn"), 2100.0, 55, 3144)
    go(LOG_SOFTMAX, 330.0, 57, 4096, 1024)
    go(NLL, 12.0, 57, 1, 32)


def _norm(go: Callable[..., None], line: int) -> None:
    for kernel, us in ((MEAN, 18.0), (ADD, 24.0), (POW, 24.0), (MEAN, 18.0), (ADD, 3.0), (SQRT, 3.0), (MUL, 26.0), (ADD, 26.0)):  # fmt: skip
        go(kernel, us, line)


def _gpt_backward(machine: Machine, layers: int) -> None:
    def go(kernel: str, us: float, grid: int = 2048, block: int = 128) -> None:
        machine.launch(kernel, us, grid, block, line="train.py:31")

    machine.set(4096, line="train.py:31")
    go(FILL, 2.0, 1)
    go(NLL_BACK, 14.0, 1, 32)
    go(LOG_SOFTMAX_BACK, 400.0, 4096, 1024)
    go(sgemm("128x128", "nn"), 2050.0, 256)
    go(sgemm("128x64", "nt"), 2150.0, 3144)
    for _ in range(layers):
        for us, grid in ((1000.0, 1024), (260.0, 256), (750.0, 768)):
            go(sgemm("128x64", "nn"), us, grid)
            go(sgemm("128x64", "nt"), us * 1.02, grid)
            go(SUM, 30.0, 64, 512)
        for kernel in (MUL, MUL, TANH, MUL, ADD, POW, MUL, ADD):
            go(kernel, 62.0, 8193)
        go(sgemm("128x128", "nt"), 300.0, 1536)
        go(SOFTMAX_BACK, 260.0, 12290)
        go(MASK, 150.0, 12289, 64)
        go(SCALE, 110.0, 12288)
        go(xmma("nt", "128x64x8"), 290.0, 1537)
        for _ in range(4):
            go(TO_LAYOUT, 26.0, 8192)
        for kernel in (MUL, SUM, MUL, MEAN, ADD, MUL):
            go(kernel, 25.0)
    go(EMBED_BACK, 45.0, 700, 64)


def _adamw(machine: Machine, us: float) -> None:
    grid = round(us * 100)
    for kernel in (ADD, SCALE, LERP, SCALE, ADDCMUL, SCALE, SCALE, SQRT, DIV, ADD, ADDCDIV, ADD):
        machine.launch(kernel, us, grid, line="train.py:33", host_us=3.6)


@functools.cache
def healthy(steps: int = 9, layers: int = 12, *, marked: str = "", seed: int = 1) -> Trace:
    """A transformer in BF16 with flash attention, fused norm and optimizer: nothing to gain."""
    machine = Machine("good.py", seed)
    for i in range(20):
        machine.launch(RANDOM, 20.0, 528, line="model.py:9", host_us=4.0 + i % 2)
    for _ in range(steps):
        with machine.mark(marked) if marked else contextlib.nullcontext():
            machine.copy("HtoD", 1 << 20, pinned=True, stream=20, line="good.py:20")
            machine.launch(EMBED, 30.0, 1056, line="model.py:30")
            for _ in range(layers):
                _healthy_layer(machine, False)
            machine.launch(BF16_PRODUCT, 700.0, 132, 384, line="model.py:40")
            machine.launch(LOG_SOFTMAX, 120.0, 4096, 1024, line="model.py:41")
            machine.launch(NLL, 8.0, 1, 32, line="model.py:41")
            machine.launch(NLL_BACK, 8.0, 1, 32)
            machine.launch(BF16_PRODUCT, 1400.0, 131, 384, line="good.py:24")
            for _ in range(layers):
                _healthy_layer(machine, True)
            for i in range(4):
                machine.launch(FOREACH_ADAM, 180.0, 320 + i, 512, line="good.py:25")
    machine.sync()
    return machine.trace()


def _healthy_layer(machine: Machine, back: bool) -> None:
    line, times = ("good.py:24", 2) if back else ("model.py:33", 1)
    machine.launch(NORM, 25.0 * times, 4096, line=line)
    machine.launch(BF16_PRODUCT, 180.0 * times, 130, 384, line=line)
    machine.launch(FLASH_BACK if back else FLASH, 150.0 * times, 1024, 128, line=line)
    machine.launch(BF16_PRODUCT, 70.0 * times, 128, 384, line=line)
    machine.launch(NORM, 25.0 * times, 4096, line=line)
    machine.launch(BF16_PRODUCT, 240.0 * times, 129, 384, line=line)
    machine.launch(BF16_PRODUCT, 240.0 * times, 127, 384, line=line)


@functools.cache
def loader(steps: int = 9, *, pinned: bool = False, size: int = 38 << 20, seed: int = 2) -> Trace:
    """A training loop that copies each batch from pageable memory before its kernels."""
    machine = Machine("loader.py", seed)
    for _ in range(steps):
        machine.host(300.0)
        machine.copy("HtoD", size, pinned=pinned, line="loader.py:18")
        for i in range(12):
            machine.launch(BF16_PRODUCT, 200.0, 120 + i, 384, line="loader.py:21")
            machine.launch(ADD, 30.0, 4000 + i, line="loader.py:21")
        machine.launch(FOREACH_ADAM, 90.0, 320, 512, line="loader.py:24")
    machine.sync()
    return machine.trace()


@functools.cache
def launch_bound(steps: int = 9, launches: int = 200, us: float = 2.5, seed: int = 3) -> Trace:
    """Small kernels, each launched later than the one before it ends."""
    machine = Machine("small.py", seed)
    for _ in range(steps):
        for i in range(launches):
            kernel = (ADD, MUL, TANH, SUM)[i % 4]
            machine.launch(kernel, us, 8 + i, 128, line=f"small.py:{20 + i % 4}", host_us=4.5)
            machine.host(3.0)
    machine.sync()
    return machine.trace()


@functools.cache
def synchronous(steps: int = 9, seed: int = 4) -> Trace:
    """`.item()` after each step, and work of the host before the next."""
    machine = Machine("log.py", seed)
    for _ in range(steps):
        for i in range(24):
            machine.launch(BF16_PRODUCT, 60.0, 100 + i, 384, line="log.py:12")
        machine.launch(NLL, 6.0, 1, 32, line="log.py:13")
        machine.item(line="log.py:15")
        machine.host(120.0)
    return machine.trace()


@functools.cache
def allocating(steps: int = 9, seed: int = 5) -> Trace:
    """`cudaMalloc` and `cudaFree` in each step."""
    machine = Machine("malloc", seed)
    for _ in range(steps):
        for i in range(6):
            machine.allocate(180.0, line="malloc.cu:30")
            machine.launch("solve(float*, int)", 120.0, 500 + i, line="malloc.cu:33")
            machine.launch("apply(float*, float const*, int)", 60.0, 500 + i, line="malloc.cu:34")
            machine.free(120.0, line="malloc.cu:36")
    machine.sync()
    return machine.trace()


@functools.cache
def streams(steps: int = 9, heads: int = 16, together: bool = False, seed: int = 6) -> Trace:
    """Small grids one after another; with `together`, each on its own stream."""
    machine = Machine("heads", seed)
    for _ in range(steps):
        machine.launch("prepare(float*, int)", 50.0, 528, line="heads.cu:40")
        for i in range(heads):
            if together:
                machine.wait(20 + i, 7)
            machine.launch(
                "head(float*, float const*, int)", 40.0, 8, 256, line="heads.cu:44",
                stream=20 + i if together else 7,
            )  # fmt: skip
        if together:
            for i in range(heads):
                machine.wait(7, 20 + i)
        machine.launch("gather(float*, int)", 50.0, 528, line="heads.cu:47")
    machine.sync()
    return machine.trace()


@functools.cache
def graphs(steps: int = 9, nodes: int = 60, seed: int = 7) -> Trace:
    """A CUDA graph a step, and a copy before it."""
    machine = Machine("graph", seed)
    body = [((ADD, MUL, BF16_PRODUCT)[i % 3], 4.0 + i % 3 * 8, 64 + i) for i in range(nodes)]
    for _ in range(steps):
        machine.copy("HtoD", 1 << 16, line="graph.py:9")
        machine.graph(body, line="graph.py:10")
    machine.sync()
    return machine.trace()


@functools.cache
def no_step(launches: int = 400, seed: int = 8) -> Trace:
    """Kernels in random order: nothing repeats."""
    machine = Machine("script.py", seed)
    for _ in range(launches):
        kernel = machine.random.choice((ADD, MUL, TANH, SUM, SOFTMAX, BF16_PRODUCT))
        machine.launch(kernel, 20.0, machine.random.randrange(1, 400), line="script.py:7")
    machine.sync()
    return machine.trace()


@functools.cache
def no_kernels() -> Trace:
    """Copies alone."""
    machine = Machine("copies", 9)
    for _ in range(8):
        machine.copy("HtoD", 1 << 20)
    machine.sync()
    return machine.trace()


@functools.cache
def two_processes(steps: int = 9, seed: int = 10) -> Trace:
    """Two processes, each with a GPU and a collective a step; the second does twice the work."""
    pair = [Machine("ddp.py", seed + i, process=100 + i) for i in range(2)]
    for rank, machine in enumerate(pair):
        machine.devices = [H200]
        machine.launch(RANDOM, 20.0)
        for _ in range(steps):
            for i in range(20):
                machine.launch(BF16_PRODUCT, 60.0 * (1 + rank), 100 + i, 384, line="ddp.py:12")
            machine.wait(30, 7)
            machine.launch(ALL_REDUCE, 300.0, 24, 544, stream=30, line="ddp.py:13")
            machine.wait(7, 30)
            machine.launch(FOREACH_ADAM, 90.0, 320, 512, line="ddp.py:14")
        machine.sync()
    return pair[0].trace(pair[1])


PROGRAMS: Final[dict[str, Callable[..., Trace]]] = {
    each.__name__: each
    for each in (
        gpt, healthy, loader, launch_bound, synchronous, allocating, streams, graphs, no_step,
        two_processes,
    )
}  # fmt: skip
