"""SQLite databases that `nsys export --type sqlite` writes.

Learnt from exports of Nsight Systems 2020 to 2026 and from its documentation ("SQLite Schema
Reference" in the Nsight Systems user guide): tables and columns differ, so what is there is read.
The file is untrusted: it is opened read-only, only tables are read, and no more rows than its size
can hold."""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ncu_toolkit.base.core import files, units
from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.program.model import MarkKind, OpKind, Trace
from ncu_toolkit.program.traces.builder import (
    UNLOCK,
    GpuWork,
    LaunchShape,
    TraceBuilder,
    figure,
    own_code,
    whole,
)

_ACTIVITY: Final = "CUPTI_ACTIVITY_KIND_"
#: Tables that are read.
_OF_NSYS: Final = re.compile(
    f"({_ACTIVITY}\\w+|StringIds|TARGET_INFO_\\w+|NVTX_EVENTS|CUDA_CALLCHAINS|PROCESSES|DIAGNOSTIC_EVENT)$"
)
#: Columns of what `_where` takes.
_WHERE: Final = ("globalPid", "deviceId", "streamId", "correlationId")
#: `copyKind` by CUpti_ActivityMemcpyKind; 11 to 13 are migrations of managed memory.
_PATHS: Final = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD"}  # fmt: skip
#: `srcKind` and `dstKind` of memory on the host.
_PINNED: Final = {0: False, 1: True}
#: `eventType` of NVTX ranges: pushed and popped, started and ended.
_RANGES: Final = (59, 60)
#: `eventClass` of the backtrace of a call.
_BACKTRACE: Final = 67
#: Domains of NVIDIA's libraries, whose ranges are not the program's.
_LIBRARIES: Final = ("NCCL", "CCCL")
_DOMAIN_CREATED: Final = 75
#: What `torch.autograd.profiler.emit_nvtx(record_shapes=True)` adds to an operator's name.
_OPERATOR: Final = re.compile(
    r"^(aten::\w+|[\w:]+(?=, (?:seq|op_id) = ))(?:, .*?(?:sizes = (\[.*\]))?)?$"
)
_SIZES: Final = re.compile(r"\[\d[\d, ]*\]")
#: A frame of Python's: `train.py:33`, `train.py(33)`, `File "train.py", line 33`.
#: No public export with such frames was found, so how nsys writes them is a guess.
_PYTHON: Final = re.compile(r"([^\"'\s(]+\.py)(?:\"?, line |[:(])(\d{1,9})")
#: Least bytes of a row; pages that are read twice, as in a forged file, have more rows than that.
_LEAST_ROW: Final = 8
#: SQLite's actions that a query may take.
_ALLOWED: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA)
#: Longest text or blob of a row, in bytes.
_LONGEST: Final = 1 << 24
#: Longest text of which a part is looked for.
_NAME: Final = 4000
#: What a message about lost events says, and most messages that are passed on.
_LOST: Final = re.compile(
    r"\b(lost|dropped|missing|not all|no cuda events|incomplete|might have not)\b", re.I
)
_MOST_NOTES: Final = 5
_EXPORT: Final = "Record the program with `nsys profile --trace=cuda,nvtx`, then run `nsys export --type sqlite` on its .nsys-rep"


def read(path: Path) -> Trace:
    """The trace in an export of Nsight Systems.

    Raises:
        InputProblem: it is larger than `files.limit()`, damaged, cut short, of another program, or has
            no work of a GPU.
    """
    with files.opened(path) as stream:
        head, size = stream.read(32), stream.seek(0, 2)
    page = int.from_bytes(head[16:18], "big") or 1
    pages = int.from_bytes(head[28:], "big")
    files.refuse_larger(path, size)
    if pages * (65536 if page == 1 else page) > size:
        raise InputProblem(
            f"'{path}' is cut short: it has {size} bytes of {pages * page}", "Export it again"
        )
    try:
        name = quote(str(path.absolute()))
        with closing(sqlite3.connect(f"file:{name}?mode=ro&immutable=1", uri=True)) as base:
            return _Database(path, base, size // _LEAST_ROW).trace()
    except (sqlite3.Error, ValueError, OverflowError) as error:
        raise InputProblem(
            f"'{path}' is a damaged SQLite database: {visible(str(error), 200)}", "Export it again"
        ) from None


def _process(serial: Any) -> int:
    """The process in a `globalPid` or `globalTid`, which SQLite may hold as a negative number."""
    return serial >> 24 & 0xFFFFFF if type(serial) is int else 0


def _thread(serial: Any) -> int:
    return serial & 0xFFFFFF if type(serial) is int else 0


class _Database:
    """Reads the tables of one database into a trace."""

    def __init__(self, path: Path, base: sqlite3.Connection, rows: int) -> None:
        self._path, self._base, self._rows = path, base, rows
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        base.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        base.execute("PRAGMA trusted_schema=OFF")
        base.execute("PRAGMA query_only=ON")
        base.text_factory = lambda text: text.decode("utf-8", "replace")
        base.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
        )
        self._columns: dict[str, frozenset[str]] = {}
        views = []
        known = "SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view')"
        for name, sql in base.execute(known):
            # a view and a virtual table run code
            if not re.fullmatch(r"\w+", str(name)):
                continue
            if re.match(r"\s*CREATE\s+TABLE\b", str(sql), re.I):
                columns = base.execute(f'PRAGMA table_info("{name}")')
                self._columns[name] = frozenset(str(column[1]) for column in columns)
            elif _OF_NSYS.match(name):
                views.append(visible(name, 60))
        self._to = TraceBuilder()
        if views:
            verb = "are views and are" if len(views) > 1 else "is a view and is"
            names = units.listed(views[:_MOST_NOTES])
            self._to.notes.append(f"{names} {verb} not read: only tables are.")
        log = path.with_name(f"{path.name}-wal")  # of one that was not closed, or copied while open
        if log.is_file() and log.stat().st_size:
            self._to.notes.append(
                f"'{log.name}' next to the database holds changes that are not read: end what still writes it, or export it again."
            )
        self._strings: dict[int, str] = {}

    def trace(self) -> Trace:
        """The trace. Raises InputProblem, and sqlite3.Error for a damaged file."""
        self._check()
        for number, text in self._select("StringIds", "id", "value"):
            if type(number) is int and type(text) is str:
                self._strings[number] = text
        self._devices()
        self._kernels()
        self._copies()
        self._graphs()
        self._calls()
        messages, unrecorded = self._complaints(), self._to.unrecorded
        if self._to.empty or unrecorded:
            reason = f"; Nsight Systems says: {messages[0].rstrip('.')}" if messages else ""
            what = "no CUDA kernel or copy was recorded"
            if unrecorded:
                what = f"no CUDA kernel was recorded, {unrecorded}"
            raise InputProblem(
                f"'{self._path}' has no work of a GPU: {what}{reason}{self._unread()}",
                UNLOCK if unrecorded else _EXPORT,
            )
        self._marks()
        busiest = Counter(call[5] for call in self._to.calls).most_common(1)
        for process, name in self._select("PROCESSES", "globalPid", "name"):
            if busiest and _process(process) == busiest[0][0] and type(name) is str:
                program = visible(re.split(r"[/\\]", name)[-1], 100)
                self._to.program = "" if program.startswith("nsys") else program  # not yet started
        self._to.notes += [f"Nsight Systems: {text}" for text in messages]
        return self._to.trace(f"Nsight Systems {self._version()}".rstrip())

    def _check(self) -> None:
        """Raise InputProblem for what is no export of Nsight Systems."""
        known = self._columns
        if "StringTable" in known or "_id_" in known.get(f"{_ACTIVITY}RUNTIME", ()):
            raise InputProblem(f"'{self._path}' is a profile of nvprof, which is not read", _EXPORT)
        ours = {"StringIds", "ThreadNames"} <= set(known) or "TARGET_INFO_GPU" in known
        if not ours and not any(name.startswith(_ACTIVITY) for name in known):
            raise InputProblem(
                f"'{self._path}' is an SQLite database, but no export of Nsight Systems{self._unread()}",
                _EXPORT,
            )

    def _unread(self) -> str:
        """What was noted before a table was read, after a sentence without its stop."""
        return "".join(f"; {note.rstrip('.')}" for note in self._to.notes)

    def _select(self, table: str, *columns: str) -> Iterator[Sequence[Any]]:
        """Rows of a table, None for a column that it lacks; none where there is no such table.
        Raises InputProblem where there are more rows than the file can hold."""
        there = self._columns.get(table, frozenset())
        if not there.intersection(columns):
            return
        wanted = ", ".join(f'"{each}"' if each in there else "NULL" for each in columns)
        for row in self._base.execute(f'SELECT {wanted} FROM "{table}"'):
            self._rows -= 1
            if self._rows < 0:
                raise InputProblem(
                    f"'{self._path}' has more rows than its size allows: it is damaged",
                    "Export it again",
                )
            yield row

    def _text(self, number: Any) -> str:
        return self._strings.get(number, "") if type(number) is int else ""

    def _devices(self) -> None:
        """Devices by what `_device` gives for an event's."""
        gpus = self._to.devices
        self._by_process: dict[tuple[int, int], int] = {}
        self._by_number: dict[int, int] = {}
        for row in self._select(
            "TARGET_INFO_GPU", "id", "name", "computeMajor", "computeMinor", "smCount", "l2CacheSize",
            "totalMemory", "clockRate", "maxWarpsPerSm", "cuDevice",
        ):  # fmt: skip
            self._to.gpu(*row[:9])
            if type(row[9]) is int and type(row[0]) is int:
                self._by_number.setdefault(row[9], row[0])
        for row in self._select(
            "TARGET_INFO_CUDA_GPU", "deviceId", "name", "computeCapabilityMajor", "computeCapabilityMinor",
            "numMultiprocessors", "l2CacheSize", "globalMemorySize", "coreClockRate", "maxWarpsPerMultiprocessor",
        ):  # fmt: skip
            if row[0] not in gpus or not gpus[row[0]].sm_count:
                self._to.gpu(*row)
        for gpu, number, process in self._select(
            "TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid"
        ):
            if all(type(each) is int for each in (gpu, number, process)):
                self._by_process[process, number] = gpu

    def _where(self, process: Any, device: Any, stream: Any, correlation: Any) -> dict[str, Any]:
        number, pid = whole(device), _process(process)
        gpu = self._by_process.get((pid, number), self._by_number.get(number, number))
        key = (pid, correlation) if type(correlation) is int and correlation else None
        stream = stream if type(stream) is int else 0
        return {"key": key, "device": gpu, "stream": stream, "process": pid}

    def _kernels(self) -> None:
        known: dict[tuple[Any, ...], int] = {}
        for start, end, process, device, stream, correlation, node, *raw in self._select(
            f"{_ACTIVITY}KERNEL", "start", "end", *_WHERE, "graphNodeId",
            "demangledName", "shortName", "mangledName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
            "registersPerThread", "staticSharedMemory", "dynamicSharedMemory",
        ):  # fmt: skip
            if (key := tuple(raw)) not in known:
                known[key] = self._shape(*raw)
            where = self._where(process, device, stream, correlation)
            self._to.op(GpuWork(start, end, "kernel", known[key], **where, node=whole(node)))

    def _shape(self, name: Any, short: Any, mangled: Any, *figures: Any) -> int:
        gx, gy, gz, bx, by, bz = map(whole, figures[:6])
        registers, static, dynamic = map(figure, figures[6:])
        kernel = self._text(name) or self._text(mangled) or self._text(short) or "an unnamed kernel"
        function = self._text(short)[:_NAME]
        return self._to.shape(
            LaunchShape(kernel, (gx, gy, gz), (bx, by, bz), registers, static, dynamic, function)
        )

    def _copies(self) -> None:
        """Copies, and sets of memory, which have no path."""
        columns = ("bytes", "graphNodeId", "copyKind", "srcKind", "dstKind")
        tables: dict[OpKind, str] = {"copy": "MEMCPY", "set": "MEMSET"}
        for what, table in tables.items():
            for start, end, *where, size, node, kind, source, to in self._select(
                f"{_ACTIVITY}{table}", "start", "end", *_WHERE, *columns
            ):
                path = _PATHS.get(kind, "") if type(kind) is int else ""
                host = source if path == "HtoD" else to if path == "DtoH" else None
                pinned = _PINNED.get(host) if type(host) is int and kind in (1, 2) else None
                work = GpuWork(start, end, what, **self._where(*where), path=path, pinned=pinned)
                self._to.op(work._replace(size=figure(size), node=whole(node)))

    def _graphs(self) -> None:
        """Launches of CUDA graphs that were recorded as a whole."""
        rows = [*self._select(f"{_ACTIVITY}GRAPH_TRACE", "start", "end", *_WHERE, "graphId")]
        for start, end, *where, graph in rows:
            name = f"CUDA graph {whole(graph)}"
            shape = LaunchShape(name, None, None, function=name, workload="graph")
            place = self._to.shape(shape)
            self._to.op(GpuWork(start, end, "kernel", place, **self._where(*where)))
        if rows:
            self._to.notes.append(
                "CUDA graphs were recorded as a whole: their kernels are not known. `nsys profile --cuda-graph-trace=node` records them."
            )

    def _calls(self) -> None:
        lines = self._python_lines()
        chains: dict[tuple[int, int], int] = {}
        keys: dict[int, tuple[int, int]] = {}
        for start, end, thread, correlation, name, chain, what in self._select(
            f"{_ACTIVITY}RUNTIME", "start", "end", "globalTid", "correlationId", "nameId", "callchainId", "eventClass"
        ):  # fmt: skip
            process, number = _process(thread), _thread(thread)
            key = (process, correlation) if type(correlation) is int and correlation else None
            if key and type(chain) is int and chain in lines:
                chains[key] = chain
            if what == _BACKTRACE:
                continue
            if key:
                keys[len(self._to.calls)] = key
            called = self._text(name) or "an unnamed call"
            self._to.call(start, end, called, (number, process), key)
        for call, key in keys.items() if chains else ():
            if key in chains:
                self._to.line(call, lines[chains[key]])

    def _python_lines(self) -> dict[int, tuple[str, int]]:
        """The user's innermost line in Python by the id of a call chain, where chains have Python's."""
        found: dict[int, tuple[int, str, int]] = {}
        places: dict[Any, tuple[str, int] | None] = {}
        for chain, symbol, module, depth in self._select(
            "CUDA_CALLCHAINS", "id", "symbol", "module", "stackDepth"
        ):
            if type(chain) is not int or type(depth) is not int:
                continue
            if (symbol, module) not in places:
                texts = (self._text(each)[:_NAME] for each in (module, symbol))
                place = next(filter(None, map(_PYTHON.search, texts)), None)
                own = place is not None and own_code(place[1])
                places[symbol, module] = (place[1], int(place[2])) if place and own else None
            line = places[symbol, module]
            if line is not None and (chain not in found or depth < found[chain][0]):
                found[chain] = depth, *line
        return {chain: (file, line) for chain, (_, file, line) in found.items()}

    def _marks(self) -> None:
        domains: dict[tuple[int, int], str] = {}
        ranges = []
        for start, end, kind, text, number, thread, domain in self._select(
            "NVTX_EVENTS", "start", "end", "eventType", "text", "textId", "globalTid", "domainId"
        ):
            name = text if type(text) is str and text else self._text(number)
            process = _process(thread)
            if kind == _DOMAIN_CREATED:
                domains[process, whole(domain)] = name
            elif end is not None and (kind in _RANGES or kind is None):
                ranges.append((start, end, name, _thread(thread), process, whole(domain)))
        for start, end, name, thread, process, domain in ranges:
            if domain and domains.get((process, domain)) in _LIBRARIES:
                continue
            operator = _OPERATOR.match(name[:_NAME])
            if operator:
                sizes = _SIZES.findall(operator[2] or "")
                self._to.sized = self._to.sized or bool(sizes)
                name = " ".join((operator[1], *sizes))
            mark: MarkKind = "operator" if operator else "range"
            self._to.mark(start, end, mark, name, (thread, process))

    def _complaints(self) -> list[str]:
        """What nsys reports about CUDA events that it lacks."""
        found = (
            visible(text.partition("\n")[0], 200)
            for text, severity in self._select("DIAGNOSTIC_EVENT", "text", "severity")
            if type(text) is str and whole(severity) >= 2 and "CUDA" in text and _LOST.search(text)
        )
        return list(dict.fromkeys(found))[:_MOST_NOTES]

    def _version(self) -> str:
        """`2025.3`, of the release that exported it."""
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            for name, value in self._select(table, "name", "value"):
                found = re.match(r"\d+\.\d+", str(value))
                if found and name == "EXPORT_PRODUCT_VERSION":
                    return found[0]
        return ""
