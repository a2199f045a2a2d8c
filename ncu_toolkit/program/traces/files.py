"""Files of traces: which files they are, reading them, and the toolkit's own format.

`.ncu-trace` is zstd with a checksum around a line that names the format and a MessagePack map of
its version and a `Trace`, whose events are arrays. A reader skips what newer versions append to
those; what older files lack has its default. A change that is no addition raises the version."""

import math
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from ncu_toolkit.base.core import children, files
from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.core.safe import shell_word, visible
from ncu_toolkit.program.model import Trace
from ncu_toolkit.program.traces import kineto, nsight_systems

#: Suffix of the toolkit's own files.
SUFFIX: Final = ".ncu-trace"
_MAGIC: Final = b"ncu-toolkit trace\n"
_VERSION: Final = 1
_SQLITE: Final = b"SQLite format 3\0"
_GZIP: Final = b"\x1f\x8b"
#: Reports of Nsight Systems, which only its own tools read: nsys exports all but the last.
_CLOSED: Final = (".nsys-rep", ".qdrep", ".qdstrm")
#: What is near the start of a trace of events in JSON.
_OF_EVENTS: Final = re.compile(
    rb'"(traceEvents|schemaVersion|deviceProperties|displayTimeUnit)"\s*:'
)
_HEAD: Final = 1 << 16
#: Names that begin an export of Nsight Systems: each of 104 public ones has one in its first 64 KiB.
_TABLES: Final = (b"StringIds", b"CUPTI_ACTIVITY", b"TARGET_INFO")
#: Seconds that nsys has to export a report, as long as ncu has for a program.
_EXPORT_S: Final = 1800.0
_DAMAGED: Final = "Copy it again, or record the program again"


class _TraceFile(msgspec.Struct):
    version: int
    trace: msgspec.Raw


def is_trace(path: Path) -> bool:
    """Whether a file is a trace of a program, by its first bytes; by its name alone where those
    are not enough, also if it is missing or damaged, so that `read_trace` says what is wrong."""
    name = path.name.lower()
    head = files.head(path, _HEAD)
    if head.startswith(files.REPORT):
        return False
    named = (SUFFIX, ".sqlite", ".pt.trace.json", ".pt.trace.json.gz", *_CLOSED)
    if head.startswith((_SQLITE, _MAGIC)) or name.endswith(named):
        return True
    return head.lstrip()[:1] in (b"{", b"[") and _OF_EVENTS.search(head) is not None


def is_trace_inside(path: Path) -> bool:
    """As `is_trace`, of a file that nobody named, only that it lies in a folder: other databases and
    JSON files are left alone."""
    if path.name.lower().endswith(".sqlite"):
        head = files.head(path, _HEAD)
        return head.startswith(_SQLITE) and any(table in head for table in _TABLES)
    return is_trace(path)


def read_trace(path: Path) -> Trace:
    """The trace in a file of the toolkit's own, of `nsys export --type sqlite` or of
    `torch.profiler`; a report of Nsight Systems where nsys is on PATH and exports it.

    Raises:
        InputProblem: missing, empty, damaged, cut short, larger than `files.limit()`, or none of
            these, saying what it is instead.
    """
    try:
        return _read(path)
    except FileNotFoundError:
        raise InputProblem(f"no trace at '{path}'", "Check the path") from None
    except IsADirectoryError:
        raise InputProblem(f"'{path}' is a folder, not a trace", "Name the file in it") from None
    except OSError as error:
        raise InputProblem(f"'{path}' cannot be read: {error.strerror or error}") from None


def _read(path: Path) -> Trace:
    with files.opened(path) as stream:
        start = stream.read(len(_SQLITE))
    if not start:
        raise InputProblem(
            f"'{path}' is empty (0 bytes)", "Let the program end, and record it again"
        )
    if start == _SQLITE:
        return nsight_systems.read(path)
    name = path.name.lower()
    if name.endswith(_CLOSED):
        return _exported(path)
    if start.startswith(b"version https://"):
        raise InputProblem(f"'{path}' is a Git LFS pointer, not the trace", "Run `git lfs pull`")
    data = files.read_gzip(path) if start.startswith(_GZIP) else files.read_bytes(path)
    if data.startswith(_MAGIC):
        return _own(path, data)
    if data[:256].lstrip()[:1] in (b"{", b"["):
        return kineto.read(path, data)
    what = "is not a trace in a known format"
    if name.endswith((SUFFIX, ".sqlite")):
        what = f"is damaged: it does not start as a {path.suffix} file does"
    raise InputProblem(
        f"'{path}' {what}",
        "Name a .ncu-trace file, an export of Nsight Systems (.sqlite), or a trace of torch.profiler (.json)",
    )


def _exported(path: Path) -> Trace:
    """A report of Nsight Systems, by the nsys that is installed."""
    nsys = shutil.which("nsys")
    why = "which only nsys reads"
    if nsys and not path.name.lower().endswith(".qdstrm"):
        with tempfile.TemporaryDirectory(prefix="ncu-toolkit-nsys-") as folder:
            target = Path(folder, "trace.sqlite")
            words = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true"]
            try:
                done = children.run(
                    [*words, "--output", str(target), str(path.absolute())], _EXPORT_S
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                why = f"and nsys did not export it: {error}"
            else:
                if done.returncode == 0 and target.is_file():
                    return nsight_systems.read(target)
                lines = (done.stderr or done.stdout).strip().splitlines() or ["it wrote nothing"]
                why = f"and nsys did not export it: {visible(lines[-1], 200)}"
    raise InputProblem(
        f"'{path}' is a report of Nsight Systems, {why}",
        f"Run `nsys export --type sqlite {shell_word(str(path))}`, and name the .sqlite file",
    )


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace as `.ncu-trace`, whatever the path's suffix. Raises as `write_atomic`."""
    data = _MAGIC + msgspec.msgpack.encode({"version": _VERSION, "trace": trace})
    files.write_atomic(path, files.packed(SUFFIX, data))


def _own(path: Path, data: bytes) -> Trace:
    if len(data) > files.json_limit():
        raise InputProblem(
            f"'{path}' unpacks to {len(data)} bytes, more than {files.json_limit()}",
            f"If that is right and memory is large enough, set {files.LIMIT_VARIABLE} to a larger number",
        )
    try:
        file = msgspec.msgpack.decode(memoryview(data)[len(_MAGIC) :], type=_TraceFile)
        if file.version > _VERSION:
            raise InputProblem(
                f"'{path}' has version {file.version} of the format, this release reads {_VERSION}",
                "Use the release that wrote it",
            )
        trace = msgspec.msgpack.decode(file.trace, type=Trace)
        problem = _problem(trace)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, OverflowError) as error:
        problem = str(error)
    if problem:
        raise InputProblem(f"'{path}' is a damaged trace: {visible(problem, 200)}", _DAMAGED)
    return trace


def _problem(trace: Trace) -> str:
    """What is wrong with a trace that was read: places that do not exist, times that cannot be."""
    names, lines, calls = len(trace.names), len(trace.lines), len(trace.calls)
    for what in ("ops", "calls", "marks", "samples"):
        last = -1
        for event in getattr(trace, what):
            if not last <= event.start <= event.end:
                return f"the times of its {what} are out of order"
            last = event.start
    places = (
        ("shape", (op.shape for op in trace.ops if op.kind == "kernel"), 0, len(trace.shapes)),
        ("call", (op.call for op in trace.ops), -1, calls),
        ("device", (op.device for op in trace.ops), 0, len(trace.devices)),
        ("name", (call.name for call in trace.calls), 0, names),
        ("name", (mark.name for mark in trace.marks), 0, names),
        ("line", (call.line for call in trace.calls), -1, lines),
        ("line", (line for each in trace.callers for line in each), 0, lines),
        ("caller", (call.callers for call in trace.calls), -1, len(trace.callers)),
        ("stack", (sample.stack for sample in trace.samples), 0, len(trace.stacks)),
        ("frame", (frame for stack in trace.stacks for frame in stack), 0, len(trace.frames)),
    )
    for what, found, least, count in places:
        known = set(found)
        if known and not least <= min(known) <= max(known) < count:
            return f"a {what} is not in its table"
    rates = (hz for each in trace.devices for hz in (each.max_sm_hz, each.max_memory_hz))
    return "" if all(map(math.isfinite, rates)) else "a clock rate is not a number"
