"""Traces of `torch.profiler` (Kineto): Chrome's JSON, plain or packed with gzip.

Learnt from traces of PyTorch 1.8 to 2.9. Times are microseconds with up to three decimals; since
2.4 they count from `baseTimeNanoseconds`. Traces of 2021 have other names of categories. A line of
the user's comes from Python calls (`with_stack=True`): the first line of the innermost function
that is the user's own, or in traces of 2021 the line in the operator's `Call stack`. Work that
autograd queues on its own thread gets the line of the forward operator (`Sequence number`).

Python's calls are kept as samples of their stacks, on threads that call CUDA, for time in which no
GPU works. A program of Python makes a million calls in a few seconds, so they are looked at every
20 us, or less often in a long trace, and not at each call."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.model.profile import Extents
from ncu_toolkit.program.model import OTHER_WORK_US, OpKind, Trace
from ncu_toolkit.program.traces.builder import (
    MODULE,
    STEP,
    UNLOCK,
    GpuWork,
    LaunchShape,
    TraceBuilder,
    figure,
    own_code,
    whole,
)
from ncu_toolkit.program.traces.classes import exchange_kind

#: Categories as PyTorch names them now, by all names that they have had.
_CATEGORIES: Final = {
    "kernel": "kernel", "Kernel": "kernel",
    "gpu_memcpy": "copy", "Memcpy": "copy",
    "gpu_memset": "copy", "Memset": "copy",
    "cuda_runtime": "call", "cuda_driver": "call", "Runtime": "call",
    "cpu_op": "operator", "Operator": "operator",
    "user_annotation": "range",
    "python_function": "python",
}  # fmt: skip
_COPY: Final = re.compile(r"Memcpy (\w+) \((\w+) -> (\w+)\)")
#: `model.py(21): forward`
_PLACE: Final = re.compile(r"(.+?)\((\d{1,9})\): (.*)")
#: Nanoseconds from which time without work of a GPU has samples, and of a sample at least; most
#: samples of a trace.
_IDLE_NS: Final = round(OTHER_WORK_US * 1e3)
_TICK_NS: Final = 20_000
_MOST_SAMPLES: Final = 50_000
#: Most functions of a stack, those of C included: a forged file has ranges without end.
_DEEPEST: Final = 200
#: Longest text in which a line of code is looked for.
_LONGEST: Final = 4000
#: Most sizes that an operator's name is given.
_SIZES: Final = 12
_RECORD: Final = "Record it with torch.profiler on an NVIDIA GPU: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
_AGAIN: Final = "Let the program end, so that the profiler writes all of it, or copy the file again"
#: Where the list of events begins, what is between two of them, and what after the last.
_LIST: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN: Final = re.compile(rb',\s*(?=\{\s*"(?:ph|name)"\s*:)')
_END: Final = re.compile(rb"(?<=\})\s*\]\s*[,}]")
#: Bytes in which the first that is no blank is looked for.
_BLANKS: Final = 256


class _KinetoFile(msgspec.Struct):
    """What is read of a file."""

    traceEvents: list[msgspec.Raw] | None = None
    deviceProperties: Any = None
    distributedInfo: Any = None


class _Arguments(msgspec.Struct, gc=False):
    """What is read of an event's arguments. Each may hold anything."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(name="registers per thread", default=None)
    shared: Any = msgspec.field(name="shared memory", default=None)
    bytes: Any = None
    node: Any = msgspec.field(name="graph node id", default=None)
    dims: Any = msgspec.field(name="Input Dims", default=None)
    sequence: Any = msgspec.field(name="Sequence number", default=None)
    forward: Any = msgspec.field(name="Fwd thread id", default=None)
    stack: Any = msgspec.field(name="Call stack", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    sent: Any = msgspec.field(name="In msg nelems", default=None)
    received: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None


#: Bytes of an element, by PyTorch's names of types in what it says of collectives.
_WIDTHS: Final = {
    "Bool": 1, "Byte": 1, "Char": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Short": 2, "Half": 2, "BFloat16": 2,
    "Int": 4, "Float": 4, "Long": 8, "Double": 8, "ComplexFloat": 8,
}  # fmt: skip


class _Event(msgspec.Struct, gc=False):
    """What is read of an event."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float | str = math.nan
    dur: float | str = math.nan
    pid: int | str | float = 0
    tid: int | str | float = 0
    args: _Arguments | None = None


Place = tuple[str, int]
"""A file and a line."""
Thread = tuple[int, int]
"""A process and one of its threads."""


class _Frames:
    """Ranges of one thread: start, end, a user's line, or None for the line of what they are in,
    and the place of Python's function (`TraceBuilder.frame`), or -1."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int, Place | None, int]] = []
        self.calls: list[tuple[int, int]] = []
        """Start and place in `TraceBuilder.calls`."""
        self.forward: list[tuple[int, int]] = []
        """Start and sequence number of operators that autograd recorded."""

    def lines(self, points: list[tuple[int, int]]) -> Iterator[tuple[int, Place]]:
        """The line of each point of time that lies in a range with one."""
        for point, around in self._around(points):
            if around and (line := around[-1][1]) is not None:
                yield point, line

    def stacks(self, points: list[tuple[int, int]]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The innermost functions of Python (_DEEPEST) at each point of time, the outermost first."""
        for point, around in self._around(points):
            yield point, tuple(frame for _, _, frame in around[-_DEEPEST:] if frame >= 0)

    def _around(
        self, points: list[tuple[int, int]]
    ) -> Iterator[tuple[int, list[tuple[int, Place | None, int]]]]:
        """The ranges around each point of time, the outermost first: end, line and function."""
        around: list[tuple[int, Place | None, int]] = []
        ranges = sorted(self.ranges, key=lambda each: (each[0], -each[1]))
        at = 0
        for time, point in sorted(points):
            while at < len(ranges) and ranges[at][0] <= time:
                start, end, line, frame = ranges[at]
                while around and around[-1][0] <= start:
                    around.pop()
                around.append((end, line or (around[-1][1] if around else None), frame))
                at += 1
            while around and around[-1][0] <= time:
                around.pop()
            yield point, around


def read(path: Path, data: bytes) -> Trace:
    """The trace in a file of PyTorch's profiler, given its unpacked content.

    Raises:
        InputProblem: it is no JSON, not of PyTorch's profiler, of another maker's GPU, or has no
            work of a GPU.
    """
    document, problem = _parsed(path, data)
    builder = TraceBuilder()
    reader = _Events(builder)
    for raw in document.traceEvents or ():
        reader.event(raw)
    unrecorded = builder.unrecorded
    if builder.empty or reader.foreign or unrecorded:
        raise problem if problem and builder.empty else _nothing(path, reader, document, unrecorded)
    properties = document.deviceProperties
    for each in properties if type(properties) is list else ():
        if type(each) is dict:
            names = ("id", "name", "computeMajor", "computeMinor", "numSms")
            memory, threads = each.get("totalGlobalMem"), each.get("maxThreadsPerMultiprocessor")
            builder.gpu(*map(each.get, names), 0, memory, 0, whole(threads) // 32)
    reader.add_lines()
    reader.add_samples()
    if reader.damaged:
        some = f"{reader.damaged} event{'' if reader.damaged == 1 else 's'}"
        builder.notes.append(f"{some} could not be read.")
    trace, job = builder.trace("PyTorch profiler"), document.distributedInfo
    rank = figure(job.get("rank")) if type(job) is dict else None
    return trace if rank is None else msgspec.structs.replace(trace, rank=rank)


def _parsed(path: Path, data: bytes) -> tuple[_KinetoFile, InputProblem | None]:
    """The file, and what is wrong with it where only its events were found."""
    try:
        if data[:_BLANKS].lstrip()[:1] == b"[":
            return _KinetoFile(msgspec.json.decode(data, type=list[msgspec.Raw])), None
        return msgspec.json.decode(data, type=_KinetoFile), None
    except msgspec.ValidationError as error:
        raise InputProblem(
            f"'{path}' is JSON, but not a trace of torch.profiler: {visible(str(error), 200)}",
            _RECORD,
        ) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if data[-_BLANKS:].rstrip()[-1:] not in (b"}", b"]"):
            raise InputProblem(f"'{path}' is cut short", _AGAIN) from None
        what = f"is damaged JSON: {visible(str(error), 200)}"
        return _salvaged(data), InputProblem(f"'{path}' {what}", _AGAIN)


def _salvaged(data: bytes) -> _KinetoFile:
    """The events of a file that is no JSON as a whole, each by itself: PyTorch writes names with
    quotes, backslashes and control characters as they are (pytorch/kineto#336,
    pytorch/pytorch#98432 and #136180)."""
    found = _LIST.search(data)
    if found is None:
        return _KinetoFile()
    try:
        document = msgspec.json.decode(data[: found.end()] + b"]}", type=_KinetoFile)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        document = _KinetoFile()
    pieces = _BETWEEN.split(data[found.end() :])
    pieces[-1] = _END.split(pieces[-1])[0]
    document.traceEvents = list(map(msgspec.Raw, pieces))
    return document


class _Events:
    """Reads events one by one, so that a damaged one costs only itself."""

    def __init__(self, builder: TraceBuilder) -> None:
        self.damaged = 0
        self.operators = 0
        self.foreign = ""
        """A function of AMD's that was called."""
        self._to = builder
        self._decode = msgspec.json.Decoder(_Event).decode
        self._numbers: dict[str, int] = {}
        self._frames: dict[Thread, _Frames] = defaultdict(_Frames)
        self._in_python: set[Thread] = set()
        self._modules: list[tuple[Thread, int, int, str]] = []
        self._places: dict[str, tuple[Place | None, int]] = {}
        self._backward: list[tuple[Thread, int, int, int]] = []
        """Thread, start, end and sequence number."""

    def event(self, raw: msgspec.Raw) -> None:
        try:
            event = self._decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            self.damaged += 1
            return
        what = _CATEGORIES.get(event.cat)
        if what is None or event.ph != "X":
            return
        start, end = _times(event)
        getattr(self, f"_{what}")(event, event.args or _Arguments(), start, end)

    def _thread(self, event: _Event) -> Thread:
        return self._number(event.pid), self._number(event.tid)

    def _number(self, value: Any) -> int:
        if type(value) is int:
            return value if -(1 << 63) <= value < 1 << 63 else 0
        known = figure(value) if type(value) is str else None
        new = -1 - len(self._numbers)
        return self._numbers.setdefault(str(value), new) if known is None else known

    def _kernel(self, event: _Event, args: _Arguments, start: int | None, end: int | None) -> None:
        sizes = _three(args.grid), _three(args.block), figure(args.registers), figure(args.shared)
        shape = self._to.shape(LaunchShape(event.name, *sizes))
        group = f"{args.group} {args.ranks}"[:_LONGEST] if args.group is not None else ""
        size = None
        if width := _WIDTHS.get(args.dtype) if isinstance(args.dtype, str) else None:
            scattered = exchange_kind(event.name) == "reduce-scatter"
            elements = figure(args.received if scattered else args.sent)
            size = elements * width if elements else None
        where = self._where(event, args)
        self._to.op(GpuWork(start, end, "kernel", shape, **where, group=group, size=size))

    def _copy(self, event: _Event, args: _Arguments, start: int | None, end: int | None) -> None:
        found = _COPY.match(event.name)
        path, source, to = found.groups() if found else ("", "", "")
        path = path if path in ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH") else ""
        host = {"HtoD": source, "DtoH": to}.get(path, "")
        pinned = {"Pinned": True, "Pageable": False}.get(host)
        where, size = self._where(event, args), figure(args.bytes)
        kind: OpKind = "set" if event.cat.lower().endswith("memset") else "copy"
        self._to.op(GpuWork(start, end, kind, **where, size=size, path=path, pinned=pinned))

    def _where(self, event: _Event, args: _Arguments) -> dict[str, Any]:
        device = args.device if type(args.device) is int else whole(event.pid)
        stream = args.stream if args.stream is not None else event.tid
        where = {"key": _key(args.correlation), "device": device, "node": whole(args.node)}
        return {**where, "stream": self._number(stream)}

    def _call(self, event: _Event, args: _Arguments, start: int | None, end: int | None) -> None:
        if event.name.startswith("hip"):
            self.foreign = self.foreign or visible(event.name, 60)
        process, thread = self._thread(event)
        before = len(self._to.calls)
        self._to.call(start, end, event.name, (thread, process), _key(args.correlation))
        if len(self._to.calls) > before and start is not None:
            self._frames[process, thread].calls.append((start, before))

    def _range(self, event: _Event, args: _Arguments, start: int | None, end: int | None) -> None:
        self._to.mark(start, end, "range", event.name, self._thread(event)[::-1])

    def _operator(
        self, event: _Event, args: _Arguments, start: int | None, end: int | None
    ) -> None:
        self.operators += 1
        if event.name.startswith(STEP):  # in traces of 2021
            return self._range(event, args, start, end)
        where = self._thread(event)
        sizes = list(_sizes(args.dims))
        self._to.sized = self._to.sized or bool(sizes)
        self._to.mark(start, end, "operator", " ".join((event.name, *sizes)), where[::-1])
        if start is None or end is None:
            return None
        if type(args.stack) is str and args.stack:
            stack = args.stack.split(";")
            line = next((line for line, _ in map(self._place, stack) if line), None)
            self._frames[where].ranges.append((start, end, line, -1))
            self._name_program(stack[-1])
        if type(args.sequence) is int:
            if whole(args.forward) or event.name.startswith("autograd::"):
                self._backward.append((where, start, end, args.sequence))
            else:
                self._frames[where].forward.append((start, args.sequence))
        return None

    def _python(self, event: _Event, args: _Arguments, start: int | None, end: int | None) -> None:
        if start is None or end is None:
            return
        where = self._thread(event)
        self._frames[where].ranges.append((start, end, *self._place(event.name)))
        self._in_python.add(where)
        self._name_program(event.name)
        if event.name.startswith(MODULE):
            self._modules.append((where, start, -end, event.name))

    def _name_program(self, outermost: str) -> None:
        if not self._to.program and outermost.endswith(": <module>"):
            line, _ = self._place(outermost)
            self._to.program = re.split(r"[/\\]", line[0])[-1] if line else ""

    def _place(self, text: str) -> tuple[Place | None, int]:
        """The file and line of `model.py(21): forward` where the code is the user's own, and the
        place of the function. What C wrote has neither: its time is that of who called it."""
        if text not in self._places:
            found = _PLACE.fullmatch(text[:_LONGEST].strip())
            place, line, frame = None, None, -1
            if found:
                place = found[1], int(found[2])
                frame = self._to.frame(found[3], *place)
                line = place if own_code(found[1]) else None
            self._places[text] = line, frame
        return self._places[text]

    def add_lines(self) -> None:
        """Give each call its line of the user's."""
        self._join_python()
        outermost: dict[Thread, int] = {}
        for where, start, ends, name in sorted(self._modules):  # not those that a module calls
            if start >= outermost.get(where, start):
                outermost[where] = -ends
                self._to.mark(start, -ends, "range", name, where[::-1])
        known: dict[int, Place | None] = {}
        for frames in self._frames.values():
            first = dict(reversed([*frames.lines(frames.forward)]))
            for sequence, line in first.items():  # each thread counts for itself
                known[sequence] = line if known.get(sequence, line) == line else None
        for where, start, end, sequence in self._backward:
            self._frames[where].ranges.append((start, end, known.get(sequence), -1))
        for frames in self._frames.values():
            for call, line in frames.lines(frames.calls):
                self._to.line(call, line)

    def add_samples(self) -> None:
        """Give the threads that call CUDA their stacks in time in which no GPU works."""
        without_work = self._to.idle(_IDLE_NS) if self._in_python else []
        for where, frames in self._frames.items():
            own = [each for each in frames.ranges if each[3] >= 0]
            if not own or not frames.calls:
                continue
            low, high = min(each[0] for each in own), max(each[1] for each in own)
            idle = [(max(each.start, low), min(each.end, high)) for each in without_work]
            tick = max(_TICK_NS, sum(max(0, b - a) for a, b in idle) // _MOST_SAMPLES)
            ticks = [(at, min(at + tick, b)) for a, b in idle for at in range(a, b, tick)]
            points = [((start + end) // 2, i) for i, (start, end) in enumerate(ticks)]
            merged: list[tuple[int, int, tuple[int, ...]]] = []
            for i, stack in frames.stacks(points):
                start, end = ticks[i]
                if merged and merged[-1][1:] == (start, stack):
                    start = merged.pop()[0]
                merged.append((start, end, stack))
            for start, end, stack in merged:
                if stack:
                    self._to.sample(start, end, self._to.stack(stack), where[::-1])

    def _join_python(self) -> None:
        """PyTorch 2.0 to 2.3 records Python's calls as of thread 0: they are the main thread's."""
        calling = [where for where, frames in self._frames.items() if frames.calls]
        main = [each for each in calling if each[0] == each[1] and each not in self._in_python]
        for where in self._in_python:
            frames = self._frames[where]
            if where[1] == 0 and not frames.calls and len(main) == 1:
                self._frames[main[0]].ranges += frames.ranges


def _nothing(path: Path, reader: _Events, document: _KinetoFile, unrecorded: str) -> InputProblem:
    """Why a file without any work of a GPU is not read."""
    remedy = _RECORD
    what = "is JSON, but not a trace of torch.profiler: it has no list 'traceEvents'"
    if reader.foreign:
        what = f"is a trace of an AMD GPU (it calls {reader.foreign}); only NVIDIA's are read"
    elif unrecorded:
        what, remedy = f"has no kernel of a GPU, {unrecorded}", UNLOCK
    elif reader.operators:
        what = "has no work of an NVIDIA GPU: torch.profiler recorded the CPU only, or another accelerator"
    elif document.traceEvents is not None:
        what = "is a trace of events, but has none of a GPU as torch.profiler writes them (categories kernel, gpu_memcpy, cuda_runtime)"
        remedy = "Trace a program that does not use PyTorch with `nsys profile`, and export that with `nsys export --type sqlite`"
    return InputProblem(f"'{path}' {what}", remedy)


def _times(event: _Event) -> tuple[int | None, int | None]:
    """Start and end in nanoseconds; None where they cannot be read."""
    start, length = event.ts, event.dur
    if isinstance(start, str) or isinstance(length, str) or not abs(start) < 1e16 > length >= 0:
        return None, None
    us, part = divmod(start, 1.0)
    begin = int(us) * 1000 + round(part * 1000)
    return begin, begin + round(length * 1000)


def _key(correlation: Any) -> int | None:
    """What ties work to its call; 0 ties nothing."""
    return correlation if type(correlation) is int and correlation else None


def _three(value: Any) -> Extents | None:
    """Of a grid or block; None where it is none, as of kernels in a CUDA graph."""
    if type(value) is list and len(value) == 3:
        x, y, z = value if {*map(type, value)} == {int} else map(whole, value)
        if 0 < x < 1 << 63 and 0 < y < 1 << 63 and 0 < z < 1 << 63:
            return x, y, z
    return None


def _sizes(dims: Any) -> Iterator[str]:
    """`[128, 64]` for each input of an operator that is a tensor, or a list of some."""
    rest = list(reversed(dims)) if type(dims) is list else []
    held = 0
    while rest and held < _SIZES:
        each = rest.pop()
        if type(each) is not list or not each:
            continue
        if all(type(size) is int for size in each):
            held += 1
            yield f"[{', '.join(map(str, each[:_SIZES]))}]"
        else:
            rest.extend(reversed(each[:_SIZES]))
