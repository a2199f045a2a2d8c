"""Record what a program does on its GPUs, without counters: run it with the recorder inside
(inside/recorder.c and python.py), and read what those wrote as a `Trace`.

The offsets of fields are those of CUPTI's headers, and the same from CUDA 12.0 to 13.5: records only
grow at their end (tests/gpu/test_recorder.py asks the headers that are installed)."""

import contextlib
import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy

from ncu_toolkit import __version__
from ncu_toolkit.base.core.cache import (
    CACHE_VARIABLE,
    cache_folder,
    holds_code,
    keep_code,
    private,
    without_collector,
)
from ncu_toolkit.base.core.children import Child, run
from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, UsageProblem, refused
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.base.model.profile import Device
from ncu_toolkit.kernel.gpu import cuda
from ncu_toolkit.kernel.sass.disassembly import readable
from ncu_toolkit.program.model import Padding, Result, Trace
from ncu_toolkit.program.traces.builder import GpuWork, LaunchShape, TraceBuilder

_INSIDE: Final = Path(__file__).parent / "inside"
_SOURCE: Final = _INSIDE / "recorder.c"
#: Kinds of activity, by CUPTI's numbers.
_COPY, _SET, _DRIVER, _RUNTIME, _DEVICE, KERNEL, _MARKER, _PEER = 1, 2, 4, 5, 8, 10, 12, 22
#: Ours: what NCCL says of a collective (`struct message` of recorder.c).
_MESSAGE: Final = 126
_OPS: Final = (KERNEL, _COPY, _PEER, _SET)
#: Fields by kind: name, offset in bytes, numpy's format.
FIELDS: Final[dict[int, tuple[tuple[str, int, str], ...]]] = {
    KERNEL: (
        ("registersPerThread", 6, "u2"), ("start", 16, "i8"), ("end", 24, "i8"), ("deviceId", 40, "u4"),
        ("streamId", 48, "u4"), ("gridX", 52, "i4"), ("gridY", 56, "i4"), ("gridZ", 60, "i4"), ("blockX", 64, "i4"),
        ("blockY", 68, "i4"), ("blockZ", 72, "i4"), ("staticSharedMemory", 76, "i4"), ("dynamicSharedMemory", 80, "i4"),
        ("correlationId", 92, "u4"), ("name", 104, "u8"), ("graphNodeId", 144, "u8"),
    ),
    _COPY: (
        ("copyKind", 4, "u1"), ("srcKind", 5, "u1"), ("dstKind", 6, "u1"), ("bytes", 8, "i8"), ("start", 16, "i8"),
        ("end", 24, "i8"), ("deviceId", 32, "u4"), ("streamId", 40, "u4"), ("correlationId", 44, "u4"), ("graphNodeId", 64, "u8"),
    ),
    _PEER: (
        ("copyKind", 4, "u1"), ("srcKind", 5, "u1"), ("dstKind", 6, "u1"), ("bytes", 8, "i8"), ("start", 16, "i8"),
        ("end", 24, "i8"), ("deviceId", 32, "u4"), ("streamId", 40, "u4"), ("correlationId", 60, "u4"), ("graphNodeId", 72, "u8"),
    ),
    _SET: (
        ("bytes", 8, "i8"), ("start", 16, "i8"), ("end", 24, "i8"), ("deviceId", 32, "u4"), ("streamId", 40, "u4"),
        ("correlationId", 44, "u4"), ("graphNodeId", 64, "u8"),
    ),
    _RUNTIME: (("cbid", 4, "u4"), ("start", 8, "i8"), ("end", 16, "i8"), ("threadId", 28, "u4"), ("correlationId", 32, "u4")),
    _MARKER: (("flags", 4, "u4"), ("timestamp", 8, "i8"), ("id", 16, "u4"), ("objectId", 28, "u4"), ("name", 40, "u8"), ("domain", 48, "u8")),
    _MESSAGE: (("thread", 4, "u4"), ("time", 8, "i8"), ("schema", 16, "u4"), ("size", 20, "u4"), ("first", 24, "u8"), ("second", 32, "u8")),
    _DEVICE: (
        ("globalMemorySize", 16, "u8"), ("l2CacheSize", 28, "u4"), ("coreClockRate", 36, "u4"), ("numMultiprocessors", 44, "u4"),
        ("maxWarpsPerMultiprocessor", 52, "u4"), ("computeCapabilityMajor", 104, "u4"), ("computeCapabilityMinor", 108, "u4"),
        ("id", 112, "u4"), ("uuid", 120, "V16"), ("name", 136, "u8"),
    ),
}  # fmt: skip
FIELDS[_DRIVER] = FIELDS[_RUNTIME]
_PATHS: Final = ("", "HtoD", "DtoH", "HtoD", "DtoH", "DtoD", "DtoD", "DtoD", "DtoD", "HtoH", "PtoP")
#: CUPTI's memory kinds of the host.
_HOST_MEMORY: Final = {1: False, 2: True}
_DOMAINS: Final = {_DRIVER: 1, _RUNTIME: 2}
_RANGE_START, _RANGE_END = 2, 4
#: NCCL's numbers of its functions in NVTX payloads (its src/include/nvtx.h), each with the bytes that
#: follow the size of the message; since 2.26 the communicator's hash comes before it. What is received
#: is not counted: a peer sends it.
_MESSAGES: Final = {4: 0, 5: 8, 6: 8, 7: 8, 8: 8, 9: 8}
#: Host calls that are recorded, by how their names begin: what queues work, waits, takes memory or
#: loads code. A framework makes many more (which device, is a graph captured?) that cost nothing.
CALLS: Final = tuple(
    prefix + name
    for prefix in ("cuda", "cu")
    for name in (
        "Launch", "GraphLaunch", "GraphInstantiate", "Memcpy", "Memset", "DeviceSynchronize", "CtxSynchronize", "StreamSynchronize",
        "EventSynchronize", "StreamWaitEvent", "Malloc", "Free", "HostAlloc", "HostRegister", "HostUnregister", "MemAlloc", "MemFree",
        "MemHostAlloc", "MemHostRegister", "MemCreate", "MemMap", "MemUnmap", "MemRelease", "ModuleLoad", "ModuleUnload",
        "LibraryLoad", "LinkComplete",
    )
)  # fmt: skip
#: Parts of paths of Python code that is not the user's; the last is what PyTorch Geometric generates.
_OTHERS: Final = ("site-packages", "dist-packages", "/lib/python3", "<frozen", str(_INSIDE), "_propagate_")  # fmt: skip
#: Nanoseconds between two clocks that only another profiler makes, which gives CUPTI its own clock.
_JUMP: Final = 1_000_000_000
#: Microseconds between two samples of Python's stacks, if one costs little (recorder.c).
_PAUSE_US: Final = 1000
#: Bytes that a process writes at most.
_MOST: Final = 2 << 30
#: Frames of a stack at most, as recorder.c has it.
_DEEPEST: Final = 200
_POLL: Final = 0.1
_COMPILERS: Final = ("cc", "gcc", "clang")
_FLAGS: Final = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-o")
_AFTER: Final = ("-ldl", "-lpthread")
#: Why CUPTI cannot record, by its message, and what to do.
_PROBLEMS: Final = (
    (
        "INSUFFICIENT_PRIVILEGES",
        "this user may not record here",
        "Run as root, or ask the machine's administrator",
    ),
    (
        "NOT_INITIALIZED|NOT_COMPATIBLE|OLD_PROFILER|insufficient driver",
        "the driver is too old for this CUPTI",
        "Update the driver, or install the CUPTI of the driver's CUDA release: pip install nvidia-cuda-cupti-cu12",
    ),
    (
        "MULTIPLE_SUBSCRIBERS",
        "another profiler records this program already (ncu, nsys, or one that it runs itself)",
        "Run it without the other one",
    ),
    (
        "cannot open shared object|no CUPTI was named|file too short|invalid ELF",
        "no CUPTI library was found",
        "Install the CUDA toolkit, or pip install nvidia-cuda-cupti, or name a folder with libcupti in LD_LIBRARY_PATH",
    ),
)


#: Makes one clock's times another's.
Clock = Callable[[Any], Any]
_Frames = Callable[[int], list[tuple[str, str, int]]]
_Lines = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class RecordOptions:
    """How a program is recorded."""

    calls: tuple[str, ...] = CALLS
    """How the names of the host calls begin that are recorded; ("all",), or () for none."""
    ranges: bool = True
    """NVTX ranges."""
    lines: bool = False
    """The user's Python line of each launch (Python 3.12)."""
    samples: bool = False
    """Python's stacks, of the threads that call CUDA and of worker processes."""
    code: bool = False
    """The modules that the program loads, as NUMBER.cubin."""
    seconds: float = 0.0
    """End the program after that long; 0: let it run."""
    enough: Callable[[Path], bool] | None = None
    """Asked from time to time whether what lies in the folder is enough; then the program is
    ended."""
    environment: dict[str, str] = field(default_factory=dict)


def built() -> Path:
    """The recorder as a shared library, compiled at first use into the cache, and again where what
    lies there is not what was compiled.

    Raises EnvironmentProblem: no C compiler, or it refuses the file; others can write to the cache."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    source = _SOURCE.read_bytes()
    digest = hashlib.sha256(b"\0".join((source, repr((_FLAGS, compiler)).encode()))).hexdigest()
    remedy = f"Remove it, or set {CACHE_VARIABLE}"
    with refused("the recorder is not loaded from the cache", remedy):
        path = private(cache_folder(), "recorder") / f"{digest[:20]}.so"
        if holds_code(path):
            return path
    if compiler is None:
        raise EnvironmentProblem(
            f"no C compiler ({', '.join(_COMPILERS)}) is on PATH, and the recorder is built at first use",
            "Install gcc or clang; `ncu-toolkit profile --launch-count 20` profiles the first launches without it",
        )
    made = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        words = [compiler, *_FLAGS, str(made), str(_SOURCE), *_AFTER]
        answer = run(words, timeout=120)
        if answer.returncode:
            text = (answer.stderr.strip() or "it says nothing").splitlines()[-1]
            raise EnvironmentProblem(
                f"the recorder cannot be built with {compiler}: {text}",
                "Install gcc or clang, or put it before this compiler on PATH",
            )
        keep_code(path, made.read_bytes())
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"the recorder cannot be built: {error}") from None
    finally:
        made.unlink(missing_ok=True)
    return path


def cupti_libraries(command: Sequence[str]) -> tuple[str, ...]:
    """CUPTI libraries in the order in which the recorder tries them: those of the program's own
    Python, of this one, of the CUDA toolkit, and the loader's."""
    program = shutil.which(command[0]) if command else None
    sites = [*Path(program).parent.parent.glob("lib/python3*/site-packages")] if program else []
    sites += [Path(entry) for entry in sys.path if entry]
    folders = [site / "nvidia" / name / "lib" for site in sites for name in ("cu13", "cuda_cupti")]
    nvcc = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    homes.insert(2, str(Path(nvcc).resolve().parent.parent) if nvcc else None)
    for home in filter(None, homes):
        parts = ("extras/CUPTI/lib64", "lib64", "lib", "targets/x86_64-linux/lib")
        folders += [Path(home) / part for part in parts]
    folders += [Path(each) for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each]
    found: dict[Path, str] = {}
    for folder in folders:
        for path in sorted(folder.glob("libcupti.so.1[0-9]*"), key=lambda path: len(path.name)):
            found.setdefault(path.resolve(), str(path))
    plain = ("libcupti.so.13", "libcupti.so.12", "libcupti.so")
    return tuple([path for path in found.values() if ":" not in path][:8]) + plain


def record(command: Sequence[str], folder: Path, asked: RecordOptions | None = None) -> int:
    """Run a program with the recorder, its input and output as they are.

    Args:
        folder: where the recorder writes; made if it is missing.

    Returns:
        The program's exit code; 128 + the number of the signal that ended it; 0 where it was ended
        because `asked` had enough.

    Raises:
        KeyboardInterrupt: the program was ended by it; what it recorded can be read.
        UsageProblem: there is no such program, or something else is injected into it.
        EnvironmentProblem: the recorder cannot be built, or the program not started.
    """
    asked = asked or RecordOptions()
    environment = prepared(command, folder, asked)
    with refused(f"'{command[0]}' cannot be started"):
        process = Child(command, environment)
    with process:
        try:
            code = _watched(process, folder, asked)
        except KeyboardInterrupt:
            process.end(signal.SIGINT)
            raise
    return 128 - code if code < 0 else code


def prepared(command: Sequence[str], folder: Path, asked: RecordOptions) -> dict[str, str]:
    """The variables by which a program records itself into `folder`, which is made. Raises as
    `record`."""
    if not command or shutil.which(command[0]) is None:
        what = f"there is no program '{command[0]}'" if command else "no program to record"
        raise UsageProblem(what, "Write `python name.py` for a script, ./name for a program here")
    if os.environ.get("CUDA_INJECTION64_PATH"):
        raise UsageProblem(
            "CUDA_INJECTION64_PATH is set: another profiler is injected into CUDA programs already",
            "Unset it, or leave that profiler",
        )
    folder.mkdir(parents=True, exist_ok=True)
    kinds = [_DEVICE, *_OPS, *[_DRIVER, _RUNTIME] * bool(asked.calls), *[_MARKER] * asked.ranges]
    libraries = cupti_libraries(command)
    paths = filter(None, (str(_INSIDE / "start"), os.environ.get("PYTHONPATH")))
    values = {
        "CUDA_INJECTION64_PATH": str(built()),
        "NCU_TOOLKIT_RECORD": str(folder.resolve()),
        "NCU_TOOLKIT_RECORD_CUPTI": ":".join(libraries),
        "NCU_TOOLKIT_RECORD_KINDS": ",".join(map(str, kinds)),
        "NCU_TOOLKIT_RECORD_CALLS": ",".join(asked.calls),
        "NCU_TOOLKIT_RECORD_BYTES": str(_MOST),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    if asked.ranges and not os.environ.get("NVTX_INJECTION64_PATH"):
        values["NVTX_INJECTION64_PATH"] = libraries[0]
    if asked.code:
        values["NCU_TOOLKIT_RECORD_CODE"] = "1"
    if asked.lines:
        values["NCU_TOOLKIT_RECORD_LINES"] = ",".join(_OTHERS)
    if asked.samples:
        values["NCU_TOOLKIT_RECORD_SAMPLES"] = str(_PAUSE_US)
    return {**values, **asked.environment}


def _watched(process: Child, folder: Path, asked: RecordOptions) -> int:
    """Wait for a program; end it where what was recorded is enough. Looking takes a tenth of the
    time at most."""
    if not asked.seconds and asked.enough is None:
        return process.wait()
    began, look = time.monotonic(), 2.0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_POLL)
        spent = time.monotonic() - began
        enough = bool(asked.seconds) and spent > asked.seconds
        if not enough and asked.enough is not None and spent > look:
            enough = asked.enough(folder)
            look = time.monotonic() - began + max(2.0, 10 * (time.monotonic() - began - spent))
        if enough:
            process.end(signal.SIGINT)
            return 0


def layout(kind: int, size: int) -> Any:
    """The type of records of a kind; with more bytes than `size` where its fields do not fit."""
    names, offsets, formats = (list(each) for each in zip(*FIELDS[kind], strict=True))
    whole = max(size, offsets[-1] + numpy.dtype(formats[-1]).itemsize)
    fields: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": whole}
    return numpy.dtype(fields)


@dataclass
class RecordedProcess:
    """What one process wrote."""

    number: int
    stem: Path
    sizes: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    calls: dict[tuple[int, int], str] = field(default_factory=dict)
    clocks: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What went wrong while it was recorded."""
    failed: str = ""
    ended: bool = False

    def rows(self, kind: int) -> Any:
        """Its records of a kind, as an array of `FIELDS`; the last may be cut off."""
        size = self.sizes.get(kind, 0)
        empty = numpy.zeros(0, layout(kind, size))
        path = self.stem.with_name(f"{self.stem.name}.{kind}.records")
        if not size or not path.is_file():
            return empty
        if empty.itemsize != size:
            raise InputProblem(f"records of kind {kind} have {size} bytes: no CUPTI known here")
        raw = path.read_bytes()
        return numpy.frombuffer(raw[: len(raw) // size * size], empty.dtype)

    def devices(self) -> dict[int, tuple[bytes, Device]]:
        """Its GPUs by their number there, each with its UUID: the same in all processes."""
        found = {}
        for memory, l2, clock, sms, warps, *cc, number, uuid, name in self.rows(_DEVICE).tolist():
            device = Device(
                self.names.get(name, "an unknown GPU"),
                (cc[0], cc[1]),
                sm_count=sms,
                l2_bytes=l2,
                memory_bytes=memory,
                max_sm_hz=1e3 * clock,
                max_warps_per_sm=warps,
                index=number,
            )
            found[number] = uuid, device
        return found


def _process(path: Path) -> RecordedProcess:
    found = RecordedProcess(int(re.split("[.-]", path.name)[0]), path.with_suffix(""))
    lost = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        what, _, rest = line.partition(" ")
        words = rest.split(" ")
        try:
            if what == "size":
                found.sizes[int(words[0])] = int(words[1])
            elif what == "name":
                found.names[int(words[0])] = rest.partition(" ")[2]
            elif what == "call":
                found.calls[int(words[0]), int(words[1])] = words[2]
            elif what == "clock":
                found.clocks.append((int(words[0]), int(words[1])))
            elif what == "lost":
                lost += int(words[0])
            elif what == "note" and rest not in found.notes:
                found.notes.append(rest)
            elif what == "failed":
                found.failed = rest
            elif what == "ended":
                found.ended = True
        except (ValueError, IndexError):
            continue  # the last line of a process that was killed
    if lost:
        found.notes.append(f"CUPTI lost {lost} records")
    apart = [theirs - ours for theirs, ours in found.clocks]
    if apart and abs(apart[-1] - apart[0]) > _JUMP:
        del found.clocks[-1]
        found.notes.append(
            "another profiler began inside the program (PyTorch's?), and what came after that is not recorded: switch it off"
        )
    if not found.ended:
        found.notes.append(
            "the program was ended from outside: the last half second may be missing"
        )
    return found


def processes(folder: Path) -> list[RecordedProcess]:
    """The processes of a recording, by the time at which they began. Raises InputProblem."""
    found = map(_process, _facts(folder))
    return sorted(found, key=lambda x: (x.clocks[0][1] if x.clocks else 1 << 62, x.stem.name))


def _facts(folder: Path) -> list[Path]:
    """The files of facts of a recording's processes. Raises InputProblem: something in the folder is
    a link, a FIFO or a device, which might never end or lead elsewhere."""
    for each in folder.iterdir():
        if not stat.S_ISREG(each.lstat().st_mode):
            raise InputProblem(
                f"'{visible(each.name, 100)}' in the recording is not a regular file (a link, FIFO or device)",
                "Find out what in the program makes it, and record again",
            )
    return [*folder.glob("*.facts")]


@without_collector()
def read_recording(folder: Path, program: str = "") -> Trace:
    """What `record` wrote, also while it is being written. Times start at the first event.

    Raises:
        EnvironmentProblem: CUPTI could not record; why.
        UsageProblem: no CUDA program ran, or it launched nothing.
        InputProblem: the records cannot be read.
    """
    builder = TraceBuilder()
    builder.program = program
    found = processes(folder)
    working, notes = 0, list[str]()
    places = dict[str, tuple[int, Clock]]()
    for process in found:
        try:
            used = _add(builder, process, working)
        except (OSError, ValueError) as error:
            raise InputProblem(
                f"the records of process {process.number} cannot be read: {error}"
            ) from None
        if used:
            places[process.stem.name] = working, _clock(process)
            working += 1
            notes += [f"{note[:1].upper()}{note[1:]}." for note in process.notes]
    if builder.empty:
        raise nothing(found)
    notes += _add_samples(builder, folder, places)
    if working > 1:
        notes.append(f"The program used the GPU from {working} processes.")
    for path in sorted(folder.glob("*.error")):
        text = path.read_text(encoding="utf-8", errors="replace").strip() or "no reason given"
        notes.append(f"Lines are not known: {text.splitlines()[-1]}.")
    builder.notes += list(dict.fromkeys(notes))
    _add_arrays(builder, folder)
    return builder.trace(f"ncu-toolkit {__version__}")


def _add_arrays(builder: TraceBuilder, folder: Path) -> None:
    """What inside/python.py saw of masks and results, in the first process that has any."""
    if rows := _first(folder, "padding", tuple[str, str, int, int, int, int]):
        mask, line, width, *_ = rows[-1]
        full = (sum(each) for each in zip(*(row[3:] for row in rows), strict=True))
        builder.padding = Padding(mask, line, width, *full)
    rows = _first(folder, "results", tuple[str, str, int, int, int, bool, str])
    builder.results = [Result(*row) for row in rows]


def _first(folder: Path, what: str, form: Any) -> list[Any]:
    """Rows of the first process that wrote such; a last one that was cut off is left out."""
    for path in sorted(folder.glob(f"*.{what}")):
        rows = []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                rows.append(msgspec.json.decode(line, type=form))
        if rows:
            return rows
    return []


def symbols(folder: Path) -> dict[str, tuple[str, ...]]:
    """The mangled names of each kernel in a recording, by its `Launch.kernel`."""
    names = (name for path in _facts(folder) for name in _process(path).names.values())
    return {kernel: tuple(each) for kernel, each in grouped(dict.fromkeys(names), readable).items()}


def nothing(found: Sequence[RecordedProcess]) -> EnvironmentProblem | UsageProblem:
    """Why a recording is empty."""
    failed = next((each.failed for each in found if each.failed), "")
    if failed:
        for pattern, problem, remedy in _PROBLEMS:
            if re.search(pattern, failed):
                return EnvironmentProblem(problem, remedy)
        what = f"CUPTI cannot record here ({failed})"
        return EnvironmentProblem(what, "Check `ncu-toolkit doctor`")
    if found and not any(each.ended for each in found):
        return UsageProblem(
            "the program was killed, or ended by _exit, before anything was written",
            "Let it work for a second or longer, or end by return or exit",
        )
    if found:
        hint = "Check that it uses the GPU; its own output is above"
        return UsageProblem("the program launched no kernel", hint)
    if not cuda.has_driver():
        return EnvironmentProblem(
            "the program used no GPU: this machine has no NVIDIA driver",
            "Run it on a machine with a GPU; `ncu-toolkit doctor` says what works here",
        )
    return UsageProblem(
        "the program did not use CUDA, or was killed before it did",
        "Check that it runs on the GPU; a program in a container or behind sudo loses CUDA_INJECTION64_PATH",
    )


def _add(builder: TraceBuilder, process: RecordedProcess, place: int) -> bool:
    """A process's events; False where it used no GPU."""
    rows = {kind: process.rows(kind) for kind in _OPS}
    if not any(map(len, rows.values())):
        return False
    devices: dict[int, Any] = {}
    for number, (key, device) in process.devices().items():
        devices[number], builder.devices[key] = key, device
    outer = _add_calls(builder, process, place, _lines(process))
    messages = _messages(process, rows[KERNEL])
    unfinished = 0
    for kind, found in rows.items():
        done = found[found["end"] > 0]
        unfinished += len(found) - len(done)
        for row in done.tolist():
            values = dict(zip(found.dtype.names, row, strict=True))
            if kind == KERNEL:
                values["message"] = messages.get(values["correlationId"], (None, ""))
            values["correlationId"] = outer.get(values["correlationId"], values["correlationId"])
            values["deviceId"] = devices.get(values["deviceId"], values["deviceId"])
            _add_op(builder, process, kind, values, place)
    if unfinished:
        builder.notes.append(
            f"{unfinished} launches and copies had not ended when the program did."
        )
    _add_ranges(builder, process, place)
    return True


def _add_op(
    builder: TraceBuilder, process: RecordedProcess, kind: int, row: dict[str, Any], place: int
) -> None:
    work = GpuWork(
        row["start"], row["end"], "set", key=(place, row["correlationId"]), device=row["deviceId"],
        stream=row["streamId"], process=place, node=row["graphNodeId"], size=row.get("bytes"),
    )  # fmt: skip
    if kind == KERNEL:
        shape = LaunchShape(
            process.names.get(row["name"], "an unknown kernel"),
            (row["gridX"], row["gridY"], row["gridZ"]),
            (row["blockX"], row["blockY"], row["blockZ"]),
            row["registersPerThread"], row["staticSharedMemory"], row["dynamicSharedMemory"],
        )  # fmt: skip
        size, group = row["message"]
        work = work._replace(kind="kernel", shape=builder.shape(shape), size=size, group=group)
    elif kind != _SET:
        path = _PATHS[row["copyKind"]] if row["copyKind"] < len(_PATHS) else ""
        path = "PtoP" if kind == _PEER else path
        host = {"HtoD": row["srcKind"], "DtoH": row["dstKind"]}.get(path, 0)
        work = work._replace(kind="copy", path=path, pinned=_HOST_MEMORY.get(host))
    builder.op(work)


def _messages(process: RecordedProcess, kernels: Any) -> dict[int, tuple[int, str]]:
    """Of NCCL's kernels by correlation number, the bytes of a rank's message, as NCCL counts them, and
    the communicator: of all that its thread asked for since the one before, since a group of
    collectives is one kernel."""
    asks = process.rows(_MESSAGE).tolist()
    events = [
        (thread, time, -1, size, schema, *sizes) for thread, time, schema, size, *sizes in asks
    ]
    if not events:
        return {}
    names = [number for number, name in process.names.items() if "nccl" in name]
    exchanges = {*kernels["correlationId"][numpy.isin(kernels["name"], names)].tolist()}
    for kind in _DOMAINS:
        calls = (row[2:] for row in process.rows(kind).tolist() if row[4] in exchanges)
        events += [(thread, end, key, 0, 0, 0, 0) for end, thread, key in calls]
    found, asked, last = dict[int, tuple[int, str]](), list[tuple[int, str]](), -1
    for thread, _, correlation, size, schema, first, second in sorted(events):
        if thread != last:
            asked, last = [], thread
        if correlation >= 0:
            if asked:
                found[correlation] = sum(each[0] for each in asked), asked[0][1]
            asked = []
        elif schema in _MESSAGES:
            hashed = size > 8 + _MESSAGES[schema]
            asked.append((second, f"{first:x}") if hashed else (first, ""))
    return found


def _add_calls(
    builder: TraceBuilder, process: RecordedProcess, place: int, line_at: Callable[..., _Lines]
) -> dict[int, int]:
    """The host's calls, without those that the runtime makes of the driver: of each of these, the
    number of the one that made it."""
    merged, inside, outer = [], {}, 0
    for kind, domain in _DOMAINS.items():
        rows = process.rows(kind)
        merged += [
            (thread, start, -end, domain, cbid, end, correlation)
            for cbid, start, end, thread, correlation in rows.tolist()
            if end > 0
        ]
    merged.sort()
    thread_now, until = -1, 0
    for thread, start, _, domain, cbid, end, correlation in merged:
        if thread != thread_now:
            thread_now, until = thread, 0
        if end <= until:
            inside[correlation] = outer
            continue
        until, outer = end, correlation
        name = process.calls.get((domain, cbid), f"call {domain}.{cbid}")
        builder.call(start, end, name, (thread, place), (place, correlation))
        if lines := line_at(start, thread):
            builder.line(len(builder.calls) - 1, *lines)
    return inside


def _add_ranges(builder: TraceBuilder, process: RecordedProcess, place: int) -> None:
    """NVTX ranges; one that was never closed is left out."""
    opened: dict[int, tuple[int, int, int]] = {}
    for flags, at, number, thread, name, _ in process.rows(_MARKER).tolist():
        if flags & _RANGE_START:
            opened[number] = at, thread, name
        elif flags & _RANGE_END and number in opened:
            start, thread, name = opened.pop(number)
            builder.mark(start, at, "range", process.names.get(name, ""), (thread, place))


def _clock(process: RecordedProcess) -> Clock:
    """What makes times of the system's clock, nanoseconds, times of CUPTI's in a process."""
    theirs, ours = zip(*process.clocks, strict=True) if process.clocks else ((0,), (0,))
    apart = numpy.subtract(theirs, ours)
    return lambda times: times + numpy.interp(times.astype("f8"), ours, apart).astype("i8")


def _add_samples(
    builder: TraceBuilder, folder: Path, places: dict[str, tuple[int, Clock]]
) -> list[str]:
    """Add the samples of Python's stacks in all processes; returns notes on them.

    Args:
        places: the place in the trace and the clock of each process that used a GPU, by its files'
            stem. Others, such as a loader's workers, come after these.
    """
    notes: list[str] = []
    place, clock = next(iter(places.values()))
    others = len(places)
    for path in sorted(folder.glob("*.samples")):
        rows, frames, more = _samples(path)
        notes += more
        if path.stem in places:
            place, clock = places[path.stem]
        else:
            place, others = others, others + bool(rows)
        times = numpy.array(rows, "i8").reshape(-1, 4)
        starts, ends = clock(times[:, 0]).tolist(), clock(times[:, 0] + times[:, 1]).tolist()
        stacks: dict[int, int] = {}
        for start, end, (_, _, stack, thread) in zip(starts, ends, rows, strict=True):
            if stack not in stacks:
                stacks[stack] = builder.stack(tuple(builder.frame(*x) for x in frames(stack)))
            builder.sample(start, end, stacks[stack], (thread, place))
    return notes


def _samples(path: Path) -> tuple[list[tuple[int, ...]], _Frames, list[str]]:
    """Samples (start, length, place on a stack, thread), what gives function, file and line of the
    frames at such a place, the outermost first, and notes of one process, as recorder.c wrote them. The
    last line of a process that was killed may be cut off."""
    rows, callers = list[tuple[int, ...]](), dict[int, tuple[int, ...]]()
    functions, notes = dict[int, tuple[str, str]](), list[str]()
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
        kind, _, rest = line.partition(" ")
        words = rest.split(" ", 1) if kind == "f" else rest.split(" ")
        try:
            if kind == "s" and len(words) == 4 and int(words[2]) in callers:
                rows.append(tuple(map(int, words)))
            elif kind == "n" and len(words) == 4:
                callers[int(words[0])] = tuple(map(int, words[1:]))
            elif kind == "f":
                name, _, file = words[1].partition("\t")
                functions[int(words[0])] = name, file
            elif kind == "note":
                notes.append(f"{rest[:1].upper()}{rest[1:]}.")
        except (ValueError, IndexError):
            continue

    def frames(stack: int) -> list[tuple[str, str, int]]:
        found: list[tuple[str, str, int]] = []
        while stack in callers and len(found) < _DEEPEST:
            stack, function, line = callers[stack]
            found.append((*functions.get(function, ("?", "?")), line))
        return found[::-1]

    return rows, frames, notes


def _lines(process: RecordedProcess) -> Callable[[int, int], _Lines]:
    """The user's line by time (CUPTI's clock) and thread, where results were compared after those that
    called one another; empty where none is known. A thread that runs no Python, as that of autograd, has
    the line at which the main thread waits for it."""
    try:
        raw = process.stem.with_suffix(".lines").read_bytes()
        places = process.stem.with_suffix(".places").read_text(encoding="utf-8").splitlines()
    except OSError:
        return lambda at, thread: ()
    layout: Any = [("at", "<i8"), ("code", "<u8"), ("thread", "<u4"), ("line", "<u4")]
    rows = numpy.frombuffer(raw[: len(raw) // 24 * 24], layout)
    files = {int(number): path for number, _, path in (each.partition(" ") for each in places)}
    times = _clock(process)(rows["at"].astype("i8"))
    compared = process.stem.with_suffix(".results").exists()
    threads = {}
    for thread in numpy.unique(rows["thread"]):
        own = rows["thread"] == thread
        threads[int(thread)] = times[own], rows[own], _callers(rows[own if compared else []], files)
    main = threads.get(process.number, (times[:0], rows[:0], _callers(rows[:0], files)))

    def found(at: int, thread: int) -> _Lines:
        began, mine, callers = threads.get(thread, main)
        before = int(began.searchsorted(at, "right")) - 1
        path = files.get(int(mine[before]["code"]), "") if before >= 0 else ""
        return (*callers(before), (path, int(mine[before]["line"]))) if path else ()

    return found


def _callers(rows: Any, files: Mapping[int, str]) -> Callable[[int], _Lines]:
    """The lines that had called one another where a thread was at one of its rows.

    A function that was running goes on once those that it called have ended. One that calls itself
    counts once."""
    ends = numpy.append(numpy.flatnonzero(rows["code"][1:] != rows["code"][:-1]), len(rows) - 1)
    chains, places, found = list[_Lines]([()]), dict[tuple[int, int, int], int](), list[int]()
    running = dict[int, int]()  # of a function, its place in `chains`
    for code, line in rows[["code", "line"]][ends[: len(rows)]].tolist():
        while code in running and next(reversed(running)) != code:
            running.popitem()
        running.pop(code, None)
        outer = running[next(reversed(running))] if running else 0
        found.append(outer)
        running[code] = places.setdefault((outer, code, line), len(chains))
        if running[code] == len(chains):
            chains.append((*chains[outer], (files.get(code, "?"), line))[-_DEEPEST:])
        if not code:
            running.clear()
    return lambda at: chains[found[int(ends.searchsorted(at))]] if found else ()
