"""Puts a `Trace` together from events in any order, whichever profiler recorded them."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.model.profile import Device, Extents, Launch
from ncu_toolkit.kernel.sass.disassembly import readable
from ncu_toolkit.program.model import (
    STEP_RANGE,
    Call,
    CallKind,
    Interval,
    Lack,
    Mark,
    MarkKind,
    Op,
    OpKind,
    Padding,
    PythonFrame,
    Result,
    Sample,
    Trace,
)

#: Times (ns) beyond this are absurd: it is 146 years.
_FAR: Final = 1 << 62
#: Nanoseconds by which work may begin before its call, and the part of the operations that may do so
#: earlier. Of 72 public traces with calls one is beyond, where 113 of 179 do, by up to 200 us; in the
#: others none does.
_SAME_TIME: Final = 1000
_FEW_EARLY: Final = 0.01
#: What to do where host calls were recorded and no kernel: pytorch/kineto#762, pytorch/pytorch#99615.
UNLOCK: Final = (
    "Allow access to the GPU performance counters (in WSL in the NVIDIA Control Panel of Windows), update the driver, end other "
    "profilers of the program, and record it again; `ncu-toolkit doctor` shows what this machine allows"
)
#: How the name of a step begins that `torch.profiler` marks.
STEP: Final = "ProfilerStep#"
#: How it names the call of a module: `nn.Module: Linear_3`.
MODULE: Final = "nn.Module: "
#: Longest name of a CUDA function, and of anything else, that is kept.
_FUNCTION: Final = 200
_LONGEST: Final = 4000
#: What CUPTI and the driver's headers add to a function's name: `cudaMalloc_v3020`, `cuMemAlloc_v2`.
_VERSION: Final = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")
#: Kinds of calls by their names without `cuda` and `cu`, the first that matches.
_KINDS: Final[Sequence[tuple[str, CallKind]]] = (
    ("^GraphLaunch", "graph"),
    ("^(Launch(?!HostFunc)|GridLaunch)", "launch"),
    ("Synchronize$", "sync"),
    ("^Memcpy", "copy"),
    ("^Memset", "set"),
    (
        "^(Malloc|HostAlloc|(Mem)?HostRegister|Mem(Host)?Alloc|MemCreate|MemMap$|MemSetAccess)",
        "allocate",
    ),
    ("^(Free|(Mem)?HostUnregister|MemFree|MemRelease|MemUnmap)", "free"),
    ("^(ModuleLoad|ModuleGetFunction|LibraryLoad|LibraryGet|Link|KernelGetFunction)", "load"),
)
#: Where the path of Python code that is not the user's own ends and its module begins.
INSTALLED: Final = re.compile(r".*?(?:(?:site|dist)-packages|\blib[/\\]python3[^/\\]*)[/\\]")
#: Where a package's path begins, and one of the standard library.
_PACKAGED: Final = re.compile(r"[/\\](?P<rest>(site|dist)-packages[/\\].*)")
_STANDARD: Final = re.compile(r"[/\\]lib(64)?[/\\]python3(\.\d+t?)?[/\\](?P<rest>.*)")
#: IPython's file name of a notebook's cell, and the folder in which ipykernel writes cells.
_CELL: Final = "<ipython-input-"
_CELLS: Final = "ipykernel_"
_PACKAGES: Final = frozenset(
    [
        "torch", "torchvision", "torchaudio", "functorch", "triton", "numpy", "scipy", "pandas", "cupy", "numba",
        "jax", "jaxlib", "flax", "transformers", "accelerate", "diffusers", "lightning", "pytorch_lightning",
        "lightning_fabric", "deepspeed", "megatron", "apex", "flash_attn", "xformers", "einops", "timm", "peft",
        "datasets", "vllm", "sglang", "fsspec", "tqdm", "wandb", "hydra", "torch_tb_profiler", "IPython",
        "ipykernel", "ipykernel_launcher", "colab_kernel_launcher", "debugpy", "tornado", "traitlets", "PIL", "cv2",
        "albumentations", "skimage", "sklearn", "h5py", "zarr", "pyarrow", "torch_geometric", "torch_sparse", "torch_scatter",
        "torchmetrics", "torchdata", "tensorflow", "keras", "tensorboard", "tensorboardX", "matplotlib", "tokenizers",
        "huggingface_hub", "safetensors", "kornia", "webdataset", "ray", "optax", "chex", "dgl", "ignite", "monai",
    ]
)  # fmt: skip
#: Names that are as likely the user's as the standard library's.
_USUAL: Final = frozenset(("test", "code", "profile", "trace", "main"))


@lru_cache(maxsize=1 << 12)
def call_name(name: str) -> str:
    """A CUDA function's name without the version that a header or CUPTI adds to it."""
    return _VERSION.sub("", name)


@lru_cache(maxsize=1 << 12)
def call_kind(name: str) -> CallKind:
    """What a function of the CUDA runtime or driver does, by its name."""
    plain = re.sub(r"^(cuda|cu)(?=[A-Z])", "", call_name(name))
    return next((kind for pattern, kind in _KINDS if re.search(pattern, plain)), "other")


@lru_cache(maxsize=1 << 14)
def function_name(kernel: str) -> str:
    """A kernel's name without return type, namespaces, template and parameter lists:
    `void at::native::copy<float>(int)` is `copy`."""
    text = readable(kernel).replace("(anonymous namespace)", "").replace("operator()", "operator")
    plain, depth = [], 0
    for at, character in enumerate(text):
        if character in "<({[":
            if character == "(" and not depth:
                break
            depth += 1
        elif character in ")}]" or (character == ">" and text[at - 1 : at] != "-"):
            depth = max(0, depth - 1)
        elif not depth:
            plain.append(character)
    words = "".join(plain).split()
    return (words[-1].rpartition("::")[2] if words else "") or kernel


@lru_cache(maxsize=1 << 14)
def own_code(file: str) -> bool:
    """Whether Python code is the user's: no installed package, not the standard library. Profilers
    leave out the folder that a module was imported from, so its first part counts too."""
    if file.startswith(_CELL):
        return True
    if not file or "<" in file or INSTALLED.match(file):
        return False
    top = re.split(r"[/\\]", file)[0].removesuffix(".py")  # empty of an absolute path
    return top not in _PACKAGES and (top in _USUAL or top not in sys.stdlib_module_names)


def sound_time(start: Any, end: Any) -> bool:
    """Whether two times in nanoseconds can be an event's."""
    return type(start) is int and type(end) is int and -_FAR < start <= end < _FAR


def figure(value: Any) -> int | None:
    """A field that is to be a number from 0 to 2⁶³; None where it is anything else, or absent."""
    if type(value) is int:
        return value if 0 <= value < 1 << 63 else None
    if type(value) is float:
        return int(value) if 0 <= value < 1e15 else None
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return None


def whole(value: Any) -> int:
    """As `figure`, of a field in which 0 means that there is none: an id, a size of a GPU."""
    return figure(value) or 0


class _Places(dict[Any, int]):
    """Values in the order in which they came, with the place of each."""

    def __missing__(self, value: Any) -> int:
        self[value] = place = len(self)
        return place


class LaunchShape(NamedTuple):
    """What launches of one kernel share."""

    kernel: str
    grid: Extents | None
    block: Extents | None
    registers: int | None = None
    static: int | None = None
    dynamic: int | None = None
    function: str = ""
    workload: str = ""


class GpuWork(NamedTuple):
    """Work of a GPU, as profilers record it."""

    start: Any
    end: Any
    kind: OpKind
    shape: int = -1
    key: Any = None
    """That of the call that queued it."""
    device: Any = 0
    stream: int = 0
    process: int = -1
    """-1 for that of the call."""
    size: int | None = None
    path: str = ""
    pinned: bool | None = None
    node: int = 0
    group: str = ""


class TraceBuilder:
    """Gathers a trace. Events whose times cannot be are left out and counted (`left_out`)."""

    def __init__(self) -> None:
        self.names = _Places()
        self.shapes = _Places()
        self.devices: dict[Any, Device] = {}
        """By what `op` is given as `device`."""
        self.left_out: Counter[str] = Counter()
        self.notes: list[str] = []
        self._clocks_differ = False
        self.sized = False
        """Whether an operator's input shapes are known."""
        self.program = ""
        self.padding: Padding | None = None
        self.results: list[Result] = []
        """With whole paths of files."""
        self.calls: list[tuple[int, int, CallKind, int, int, int]] = []
        """start, end, kind, name, thread, process."""
        self._lines: dict[int, tuple[tuple[str, int], ...]] = {}
        self._called: dict[Any, int | list[int]] = {}
        self._ops: list[GpuWork] = []
        self._marks: list[tuple[int, int, MarkKind, int, int, int]] = []
        self._samples: list[tuple[int, int, int, int, int]] = []
        self._stacks, self._frames = _Places(), _Places()

    def shape(self, shape: LaunchShape) -> int:
        """The place of a kernel with a launch's shape."""
        return self.shapes[shape._replace(kernel=shape.kernel[:_LONGEST])]

    def call(
        self, start: Any, end: Any, name: str, thread: tuple[int, int] = (0, 0), key: Any = None
    ) -> None:
        """A call of the host by a thread of a process. `key` is that of the work that it queued."""
        if not sound_time(start, end):
            self.left_out["call"] += 1
            return
        place, name = len(self.calls), name[:_FUNCTION]
        self.calls.append((start, end, call_kind(name), self.names[call_name(name)], *thread))
        if key is not None:
            there = self._called.setdefault(key, place)
            if there is not place and isinstance(there, int):
                self._called[key] = [there, place]
            elif isinstance(there, list):
                there.append(place)

    def gpu(self, number: Any, name: Any, *figures: Any) -> None:
        """A GPU by its number: compute capability (two), SMs, bytes of L2 and of memory, Hz, warps of an SM.
        Each may hold anything."""
        major, minor, sms, l2, memory, clock, warps = map(whole, figures)
        if type(number) is int:
            self.devices[number] = Device(
                visible(name, 100) if type(name) is str and name else "an unknown GPU",
                (major, minor), sm_count=sms, l2_bytes=l2, memory_bytes=memory,
                max_sm_hz=float(clock), max_warps_per_sm=warps, index=number if 0 <= number < 1 << 16 else 0,
            )  # fmt: skip

    def line(self, call: int, *lines: tuple[str, int]) -> None:
        """The user's line that made a call, by its place in `calls`, after those that called one another."""
        self._lines[call] = lines

    def op(self, work: GpuWork) -> None:
        if sound_time(work.start, work.end):
            self._ops.append(work)
        else:
            self.left_out[{"kernel": "launch", "copy": "copy"}.get(work.kind, "set")] += 1

    def mark(
        self, start: Any, end: Any, kind: MarkKind, name: str, thread: tuple[int, int] = (0, 0)
    ) -> None:
        """A named range of time; "range" turns to "step" where PyTorch's profiler or
        `ncu_toolkit.step` named it so."""
        if kind == "range" and (name == STEP_RANGE or name.startswith(STEP)):
            kind = "step"
        if not sound_time(start, end):
            self.left_out["range"] += 1
        elif name:
            self._marks.append((start, end, kind, self.names[name[:_LONGEST]], *thread))

    def frame(self, function: str, file: str, line: int) -> int:
        """The place of a function of Python."""
        return self._frames[function[:_FUNCTION], file, line]

    def stack(self, frames: tuple[int, ...]) -> int:
        """The place of a stack of Python by the places of its functions, the outermost first."""
        return self._stacks[frames]

    def sample(self, start: int, end: int, stack: int, thread: tuple[int, int] = (0, 0)) -> None:
        """A thread of a process was on a stack from start to end."""
        if sound_time(start, end):
            self._samples.append((start, end, stack, *thread))

    def idle(self, least: int) -> list[Interval]:
        """Times of `least` nanoseconds or more in which no GPU works, in order; the first begins long
        before the first work, the last ends long after the last."""
        until, found = -_FAR, []
        for work in sorted(self._ops, key=lambda work: work.start):
            if work.start - until >= least:
                found.append(Interval(until, work.start))
            until = max(until, work.end)
        return [*found, Interval(until, _FAR)]

    @property
    def unrecorded(self) -> str:
        """What to say of launches none of whose kernels was recorded, after "no kernel"; empty where
        there are none, or some kernel was."""
        launches = sum(call[2] in ("launch", "graph") for call in self.calls)
        if not launches or any(work.kind == "kernel" for work in self._ops):
            return ""
        return f"although the host made {units.counted(launches, 'launch')}: likely the driver did not let the profiler see the GPU"

    @property
    def empty(self) -> bool:
        """Whether a GPU did nothing."""
        return not self._ops

    def trace(self, source: str) -> Trace:
        """The trace; its first event starts at 0."""
        zero = min(
            (each[0] for part in (self._ops, self.calls, self._marks) for each in part), default=0
        )
        order = sorted(range(len(self.calls)), key=lambda at: self.calls[at][:2])
        place = sorted(order, key=order.__getitem__)  # of each in that order
        (labels, lines, callers), line_of = self._named()
        devices, launching, ops = _Places(), set[int](), list[Op]()
        made = [self._caller(work) for work in self._ops]
        usual = self._usual_processes(made)
        for work, call in sorted(zip(self._ops, made, strict=True), key=lambda each: each[0][:2]):
            start, end, kind, shape, _, device, stream, process, *_ = work
            if kind == "kernel" and call >= 0 and self.calls[call][2] == "other":
                launching.add(call)  # newer than the profiler, which calls it INVALID
            if process < 0:
                process = self.calls[call][5] if call >= 0 else usual.get(device, 0)
            call = place[call] if call >= 0 else -1
            where = devices[device], stream, process, work.size, work.path, work.pinned, work.node, work.group  # fmt: skip
            ops.append(Op(start - zero, end - zero, kind, shape, call, *where))
        calls = tuple(
            Call(start - zero, end - zero, "launch" if old in launching else kind, name, thread, process, *line_of.get(old, (-1, -1)))
            for old in order
            for start, end, kind, name, thread, process in (self.calls[old],)
        )  # fmt: skip
        marks = tuple(
            Mark(start - zero, end - zero, kind, *rest)
            for start, end, kind, *rest in sorted(self._marks, key=lambda each: (each[0], -each[1]))
        )
        self._compare_clocks(ops, calls)
        left = (units.counted(number, what) for what, number in self.left_out.items())
        self.notes += [f"Left out for impossible times: {each}." for each in left]
        return Trace(
            source=source,
            program=self.program,
            devices=tuple(
                self.devices.get(each) or Device("an unknown GPU", (0, 0), index=whole(each))
                for each in devices or _Places({0: 0})
            ),
            shapes=tuple(map(_launch, self.shapes)),
            ops=tuple(ops),
            calls=calls,
            marks=marks,
            names=tuple(self.names),
            lines=tuple(lines),
            callers=tuple(callers),
            samples=tuple(
                Sample(max(0, start - zero), end - zero, *rest)
                for start, end, *rest in sorted(self._samples)
                if end > zero  # what ran before the first event is left out
            ),
            stacks=tuple(self._stacks),
            frames=tuple(
                PythonFrame(name, labels[file], line) for name, file, line in self._frames
            ),
            padding=self.padding,
            results=tuple(_labelled(each, labels) for each in self.results),
            lacks=tuple(self._lacks(ops)),
            notes=tuple(self.notes),
        )

    def _named(self) -> tuple[tuple[dict[str, str], _Places, _Places], dict[int, tuple[int, int]]]:
        """What files are called, the lines and those that called one another, and both of each call."""
        files = {file for _, file, _ in self._frames} | {each.file for each in self.results}
        files |= {each.caller.rpartition(":")[0] for each in self.results}
        files |= {file for each in {*self._lines.values()} for file, _ in each}
        lines, callers, labels = _Places(), _Places(), _labels(files)
        line_of = {}
        for call, running in self._lines.items():
            if call < len(self.calls):
                *outer, line = (lines[f"{labels[file]}:{number}"] for file, number in running)
                line_of[call] = line, callers[tuple(outer)] if outer else -1
        return (labels, lines, callers), line_of

    def _caller(self, work: GpuWork) -> int:
        """The call that queued work: of several with its key, the last before it."""
        found = self._called.get(work.key, -1) if work.key is not None else -1
        if isinstance(found, int):
            return found
        before = [at for at in found if self.calls[at][0] <= work.start]
        return max(before, key=lambda at: self.calls[at][0], default=-1)

    def _usual_processes(self, callers: Sequence[int]) -> dict[Any, int]:
        """Of each device, the process that called for most of its work: work that was queued before
        the recording began is of that one too."""
        counts: dict[Any, Counter[int]] = {}
        for call, op in zip(callers, self._ops, strict=True):
            of_device = counts.setdefault(op.device, Counter())
            if call >= 0:
                of_device[self.calls[call][5]] += 1
        overall = Counter(call[5] for call in self.calls)
        usual = max(overall, key=overall.__getitem__, default=0)
        return {
            device: max(each, key=each.__getitem__, default=usual)
            for device, each in counts.items()
        }

    def _compare_clocks(self, ops: Sequence[Op], calls: Sequence[Call]) -> None:
        """Note where work begins before the call that queued it: the host's clock and the GPU's
        disagree then, so that a wait cannot be explained by calls."""
        early = [calls[op.call].start - op.start for op in ops if op.call >= 0]
        early = [by for by in early if by > _SAME_TIME]
        self._clocks_differ = len(early) > _FEW_EARLY * len(ops)
        if self._clocks_differ:
            self.notes.append(
                f"The clocks of host and GPU disagree: {len(early)} of {len(ops)} operations begin before the"
                f" call that queued them, by up to {max(early) / 1e3:.0f} µs. So the trace does not show why the GPU waited."
            )

    def _lacks(self, ops: Sequence[Op]) -> Iterable[Lack]:
        if not self.calls or self._clocks_differ:
            yield "host calls"
        if not self._marks:
            yield "marks"
        if not self._lines:
            yield "lines"
        if not self.sized:
            yield "shapes"
        shapes = [*self.shapes]
        if any(op.kind == "kernel" and not all(shapes[op.shape][2] or (0,)) for op in ops):
            yield "grids"
        if not any(shape[4] for shape in shapes):
            yield "registers"
        with_host = [op for op in ops if op.path in ("HtoD", "DtoH")]
        if with_host and all(op.pinned is None for op in with_host):
            yield "memory kinds"


def _launch(shape: LaunchShape) -> Launch:
    kernel, grid, block, registers, static, dynamic, function, workload = shape
    sizes = grid, block, registers, static, dynamic
    return Launch(readable(kernel), function or function_name(kernel), *sizes, workload=workload)


def _labelled(each: Result, labels: Mapping[str, str]) -> Result:
    path, colon, line = each.caller.rpartition(":")
    return msgspec.structs.replace(each, file=labels[each.file], caller=labels[path] + colon + line)


def _labels(files: Iterable[str]) -> dict[str, str]:
    """What each file is called: `train.py`, with its folder where two of the user's have one name.
    Installed files and the standard library's are named from there, and no folder of the machine is."""
    shown, parts = dict[str, str](), dict[str, list[str]]()
    for file in set(files):
        installed = _PACKAGED.search(file) or _STANDARD.search(file)
        if installed or not own_code(file):
            shown[file] = file[installed.start("rest") :] if installed else file
        else:
            parts[file] = _parts(file)
    several = Counter(each[-1] for each in parts.values())
    for file, each in parts.items():
        shown[file] = "/".join(each[-2:] if several[each[-1]] > 1 else each[-1:])
    return shown


def _parts(file: str) -> list[str]:
    """Folders and name of a file, `cell 5` for a notebook's fifth cell."""
    if file.startswith(_CELL):
        return [f"cell {file.removeprefix(_CELL).partition('-')[0]}"]
    parts = re.split(r"[/\\]", file)
    return ["notebook cell"] if len(parts) > 1 and parts[-2].startswith(_CELLS) else parts
