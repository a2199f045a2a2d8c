"""The Python part of the recorder (recorder.c): os._exit, the line of the user's code that a program
is at, so that a launch gets its line, samples of worker processes, and the experiments of `probe`.

It runs in programs of any environment and imports nothing of ncu-toolkit. `sys.monitoring` (Python
3.12) reports lines of the user's own code alone, to functions of recorder.c; code of packages costs
nothing after its first call. A launch never waits for this: program/recording/recorder.py joins the two by time.
recorder.c writes PID.lines; this writes PID.places, a line for each code: its number there and its
file."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc  # noqa: F401 -- recorder.c uses it and imports nothing
import importlib
import itertools
import json
import linecache
import math
import opcode
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import CodeType, SimpleNamespace
from typing import Any, NoReturn

_EVERY = 0.5
#: Functions whose lines are followed: a program that makes code as it runs has more.
_CODES = 20_000
#: Names of arguments that mask the padding of a batch, whatever else is given; how many batches are read,
#: of up to how many calls whose arguments may be a mask; and how many seconds to wait for a copy to the host.
_MASKS = ("attention_mask", "key_padding_mask", "src_key_padding_mask")
_BATCHES, _READS, _PATIENCE = 4, 32, 5
#: Of other batches: columns at least, elements that are read to see what padding is filled with, and the
#: part that counts, above which they are full enough.
_COLUMNS, _PIECE, _FULL = 16, 1 << 22, 0.9
#: Values in a tuple, list or dict that are looked at, and features of a batch.
_INNER = 8
#: Parts of names of what is padded and yet not computed in each step.
_CACHES = ("cache", "past", "memory", "key", "value")
#: Flags of code by its kind; of these, those of a function whose locals are no dict and that never resumes.
_KINDS, _FUNCTION = 0x2A3, 0x3
#: Calls of a function by the last of which it is known whether its results differ, arrays of a result
#: that are compared, elements of each, and how far those of sums by atomics lie apart.
_CALLS, _ARRAYS, _SOME, _APART = 8, 4, 64, 1e-6
#: Returns of a package's function that are seen, those of one of the user's, all of packages that are
#: compared, and lines that call a function of the user's of which it is known.
_RETURNS, _OWN_RETURNS, _LOOKS, _SITES = 64, 256, 200, 4

#: Whether a thread of ours looks at values.
_looking = False


def plain(path: str, flags: int) -> int:
    """Opens a file to write into, and neither follows a link nor waits for the reader of a FIFO."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _own(path: str, others: tuple[str, ...]) -> bool:
    """Whether a file is the user's, by the parts of paths that are not."""
    return not path.startswith("<") and not any(part in path for part in others)


def _locals(frame: Any) -> dict[str, Any]:
    """The names of a function that is no generator. Before Python 3.13 the frame keeps a copy: none is
    left, since it would keep arrays alive."""
    if frame.f_code.co_flags & _KINDS != _FUNCTION:
        return {}
    held = frame.f_locals
    named = {**held}
    if type(held) is dict:
        held.clear()
    return named


class Lines:
    """Collects lines until the process ends."""

    def __init__(self, folder: str, others: tuple[str, ...]) -> None:
        self.stem, self.others = os.path.join(folder, str(os.getpid())), others
        self.pid, self.own = os.getpid(), list[CodeType]()  # kept: their numbers are addresses
        self.known, self.sent = set[int](), 0
        self.monitoring: Any = getattr(sys, "monitoring", None)
        if self.monitoring is None or not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise RuntimeError("lines need Python 3.12 or newer, with its lock")
        self.tool = next((n for n in (4, 3) if self.monitoring.get_tool(n) is None), -1)
        if self.tool < 0:
            raise RuntimeError("other tools watch the program's lines")
        library = ctypes.PyDLL(os.environ["CUDA_INJECTION64_PATH"])
        make, self.write_lines, self.is_own = (
            library.ncu_toolkit_lines, library.ncu_toolkit_write_lines, library.ncu_toolkit_own,
        )  # fmt: skip
        make.restype = ctypes.py_object
        make.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.py_object, ctypes.py_object)
        self.is_own.argtypes, self.is_own.restype = (ctypes.py_object,), None
        self.padding = Batches(self.stem, others)
        self.results = Results(self.stem, self.monitoring, self.known, self.padding)
        path, disable = os.fsencode(self.stem + ".lines"), self.monitoring.DISABLE
        at_line, at_return = (make(which, path, None, disable) for which in (0, 1))
        self.monitoring.use_tool_id(self.tool, "ncu-toolkit")
        events = self.monitoring.events
        for event, does in (
            (events.PY_START, self._started), (events.PY_RESUME, self._started), (events.LINE, at_line),
            (events.PY_RETURN, at_return), (events.PY_YIELD, at_return),
        ):  # fmt: skip
            self.monitoring.register_callback(self.tool, event, does)
        self.monitoring.set_events(self.tool, events.PY_START | events.PY_RESUME)
        atexit.register(self.write)
        threading.Thread(target=self._often, daemon=True).start()

    def _started(self, code: CodeType, _: int) -> Any:
        """Once for each code: whether its lines are followed from here on. Again for what looks at
        padding."""
        frame = sys._getframe(1)
        near = len(self.own) < _CODES and _own(code.co_filename, self.others)
        if near:
            if id(code) not in self.known:
                self.known.add(id(code))
                self.own.append(code)
                self.is_own(code)
                self.results.follow(code)
            events = self.monitoring.events
            followed = events.LINE | events.PY_RETURN | events.PY_YIELD
            self.monitoring.set_local_events(self.tool, code, followed)
        elif frame.f_back is not None and id(frame.f_back.f_code) in self.known:
            near = True  # the user's code calls it
            self.results.follow(code)
        return None if self.padding.looks(code, frame, near) else self.monitoring.DISABLE

    def _often(self) -> None:
        while self.pid == os.getpid() and self.tool >= 0:
            time.sleep(_EVERY)
            self.write()

    def write(self) -> None:
        """Write what waits. A forked child has the parent's lines, and leaves them alone."""
        if self.pid != os.getpid():
            return
        ready, self.sent = self.own[self.sent :], len(self.own)
        try:
            place = self.stem + ".places"
            with open(place, "a", encoding="utf-8", errors="replace", opener=plain) as file:
                for code in ready:
                    file.write(f"{id(code)} {code.co_filename.splitlines()[0]}\n")
            self.results.write()
        except OSError:  # a full disk is no reason to disturb the program
            self.monitoring.set_events(self.tool, 0)
            self.tool = -1
        self.write_lines(1)


class Results:
    """Writes which functions of the user's, by the line that calls them, and which lines that call one of
    a package, return the same arrays of a GPU again: PID.results, a line for each that was called often
    enough."""

    def __init__(self, stem: str, monitoring: Any, known: set[int], padding: Batches) -> None:
        self.path, self.monitoring = stem + ".results", monitoring
        self.known, self.padding = known, padding
        self.seen = dict[int, dict[Any, SimpleNamespace]]()
        """By code, then by the caller's code and line: as numbers, since a code's hash takes long."""
        self.returns, self.looks, self.changed = dict[int, int](), _LOOKS, False
        self.tool = 3 if monitoring.get_tool(3) is None else -1
        if self.tool >= 0:
            monitoring.use_tool_id(self.tool, "ncu-toolkit results")
            monitoring.register_callback(self.tool, monitoring.events.PY_RETURN, self._returned)

    def follow(self, code: CodeType) -> None:
        if self.tool >= 0:
            self.monitoring.set_local_events(self.tool, code, self.monitoring.events.PY_RETURN)

    def _returned(self, code: CodeType, _: int, value: Any) -> Any:
        """Compare it with what the function returned first, at calls 2, 4 and 8."""
        try:
            values = value[:_ARRAYS] if type(value) in (tuple, list) else (value,)
            if any(map(_may_hold, map(type, values))):
                return self._compared(code, sys._getframe(1), value)
        except Exception:  # whatever this framework lacks, the program goes on
            pass
        return self.monitoring.DISABLE

    def _compared(self, code: CodeType, frame: Any, value: Any) -> Any:
        caller, key = frame.f_back, id(code)
        own, rows = key in self.known, self.seen.setdefault(key, {})
        returned = self.returns[key] = self.returns.get(key, 0) + 1
        if returned > (_OWN_RETURNS if own else _RETURNS) or not (own or self.looks > 0):
            return self.monitoring.DISABLE
        while own and caller and id(caller.f_code) not in self.known:
            caller = caller.f_back
        if not own and (caller is None or id(caller.f_code) not in self.known):
            return None
        place = (code, caller.f_code, caller.f_lineno or 0) if caller else (code, None, 0)
        at = id(place[1]), place[2]
        if at not in rows and (not own or len(rows) < _SITES):
            rows[at] = SimpleNamespace(place=place, calls=0, same=True, first=[], known=False)
        if at in rows and not rows[at].known and not _looking:
            self._look(rows[at], frame, value, own)
        done = own and all(row.known for row in rows.values())
        done = done and (returned >= _CALLS or not any(row.first for row in rows.values()))
        return self.monitoring.DISABLE if done else None

    def _look(self, row: SimpleNamespace, frame: Any, value: Any, own: bool) -> None:
        code = row.place[0]
        found: list[Any] | None = []
        if (row.calls + 1) & row.calls:
            row.calls += 1
            return
        if own or row.calls or _alone(frame.f_back):
            named = {**(_locals(frame) if own else {}), "": value}
            found = _aside(lambda: [self.padding.read(code, named), _sampled(value)])
            self.looks -= not own
        if found is None:
            return
        batch, now = found or ([], [])
        self.padding.write(code, frame, batch)
        row.first = row.first or now
        row.same = row.same and _alike(now, row.first)
        row.known = not now or not row.same or row.calls + 1 == _CALLS
        row.calls += 1
        self.changed = True

    def write(self) -> None:
        seen = (row for rows in [*self.seen.values()] for row in [*rows.values()])
        known = [row for row in seen if row.first and row.calls > 1]
        if known and self.changed:
            self.changed = False
            with open(self.path, "w", encoding="utf-8", opener=plain) as file:
                for row in known:
                    *place, by = _place(row.place, id(row.place[0]) in self.known)
                    file.write(f"{json.dumps([*place, row.calls, row.same, by])}\n")


def _place(
    place: tuple[CodeType, CodeType | None, int], own: bool
) -> tuple[str, str, int, int, str]:
    """A function's name, file, first line and last, and the line that calls it; of one of a package, the
    file and line that call it."""
    code, caller, line = place
    path = caller.co_filename if caller else ""
    if own:
        last = max(line for _, _, line in code.co_lines() if line)
        by = f"{path}:{line}" if path else ""
        return code.co_qualname, code.co_filename, code.co_firstlineno, last, by
    called = re.search(r"([\w.]+)\(", linecache.getline(path, line))
    return called[1] if called else code.co_qualname, path, line, line, ""


def _alone(frame: Any) -> bool:
    """Whether a frame's line does nothing on a GPU but the call that runs: what it launches is the
    call's. A property is no call."""
    code, work = frame.f_code, ("CALL", "BINARY", "UNARY", "COMPARE")
    names: list[str] = [opcode.opname[at] for at in code.co_code[::2]]
    places = zip(names, code.co_positions(), strict=False)
    on = [name for name, (line, *_) in places if line == frame.f_lineno]
    calls = sum(name.startswith(work) and "INTRINSIC" not in name for name in on)
    runs = [name for name in names[: frame.f_lasti // 2 + 1] if name != "CACHE"]
    return calls == 1 and runs[-1].startswith("CALL")


class Batches:
    """Writes how full the first batches are, from the first function that is given or returns a mask of
    rows and columns, or the rows' lengths: PID.padding, a line for each batch."""

    def __init__(self, stem: str, others: tuple[str, ...]) -> None:
        self.path, self.others, self.left, self.reads = stem + ".padding", others, _BATCHES, _READS
        self.code: CodeType | None = None

    def looks(self, code: CodeType, frame: Any, near: bool) -> bool:
        """Whether it wants to see the next call of this function too.

        Args:
            near: it is the user's, or called by the user's.
        """
        if not self.left or not self.reads or self.code not in (None, code):
            return False
        flags, compiles = code.co_flags, code.co_name == "cache_miss"  # of jax.jit
        number = code.co_argcount + code.co_kwonlyargcount + (flags >> 2 & 1) + (flags >> 3 & 1)
        names = code.co_varnames[:number]
        if not (near or compiles or any(each in names for each in _MASKS)):
            return False
        try:
            held = _locals(frame)
            named = {name: held[name] for name in names if name in held}
            inner = ((name, each) for name in named for _, each in _inner(name, named[name]))
            arrays = sum((name in _MASKS) + _may_hold(type(each)) for name, each in inner)
            seen = _aside(lambda: self.read(code, named)) if arrays > 1 or compiles else []
            self.write(code, frame, seen or [])
        except Exception:  # whatever this framework lacks, the program goes on
            return False
        return self.left > 0 and (compiles or seen is None or self.code is code)

    def read(self, code: CodeType, named: dict[str, Any]) -> list[Any]:
        """A batch, if there is one among the values."""
        if not self.left or not self.reads or self.code not in (None, code):
            return []
        with contextlib.suppress(Exception):
            pairs = _pairs(named)
            self.reads -= bool(pairs)
            return next(filter(None, (_full(*each) for each in pairs)), [])
        return []

    def write(self, code: CodeType, frame: Any, seen: list[Any]) -> None:
        if seen:
            self.code, self.left = code, self.left - 1
            where = "jax.jit" if code.co_name == "cache_miss" else code.co_qualname
            lines = ((x.f_code.co_filename, line) for x, line in traceback.walk_stack(frame))
            own = (f"{os.path.basename(x)}:{line}" for x, line in lines if _own(x, self.others))
            row = [f"{seen[0] or 'result'} of {where}", next(own, ""), *seen[1:]]
            with open(self.path, "a", encoding="utf-8", opener=plain) as file:
                file.write(f"{json.dumps(row)}\n")


def _aside(work: Callable[[], list[Any]]) -> list[Any] | None:
    """What `work` finds, on a thread of its own and this one's stream of PyTorch: here, torch.compile
    would compile it. None while a CUDA graph is captured, or another thread looks."""
    global _looking
    torch: Any = sys.modules.get("torch")
    found, stream = list[Any](), None
    if _looking:
        return None
    if torch is not None and torch.cuda.is_initialized():
        if torch.cuda.is_current_stream_capturing():
            return None
        stream = torch.cuda.current_stream()

    def run() -> None:
        on = contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)
        with contextlib.suppress(Exception), on:
            found.extend(work())

    thread = threading.Thread(target=run, daemon=True)
    _looking = True  # what it calls may be followed too
    try:
        thread.start()
        thread.join(_PATIENCE)
    finally:
        _looking = False
    return found


def _may_hold(kind: type) -> int:
    """How many arrays a value of a type may be: 0 needs no work, 2 are several."""
    several = issubclass(kind, (dict, tuple, list))
    return 2 * several or kind.__name__ in ("Tensor", "Parameter", "ndarray", "ArrayImpl")


def _inner(name: str, value: Any) -> Iterator[tuple[Any, Any]]:
    """What is looked at of a value, with names: the first in a dict, tuple or list, or itself."""
    if type(value) is dict:
        return itertools.islice(value.items(), _INNER)
    return ((name, each) for each in (value[:_INNER] if type(value) in (tuple, list) else (value,)))


def _on_gpu(value: Any) -> bool:
    """Whether it is an array of a framework that we know, on a GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter):
        return bool(value.is_cuda)
    kind = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
    return kind in ("cupy.ndarray", "jaxlib.ArrayImpl", "jax.ArrayImpl")


def _pairs(named: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What may say which elements of a batch are padding, by shapes and types: its name, the array, the
    batch, and the batch's axes of rows and columns. A mask that is known by its name needs no batch."""
    torch, arrays = sys.modules.get("torch"), []
    for name, value in named.items():
        for key, each in _inner(name, value):
            if _on_gpu(each) or (torch is not None and type(each) is torch.Tensor):
                kind = str(each.dtype).rpartition(".")[2].rstrip("0123456789")
                arrays.append((key if type(key) is str else "", each, kind, [*each.shape]))
    found = list[tuple[Any, ...]]()
    for name, each, kind, shape in arrays:
        if name in _MASKS and len(shape) == 2 and "float" not in kind:
            return [(name, each, None, 0, 1)]
        short = [size for size in shape if size > 1] if len(shape) > 2 else shape
        masks = len(short) == 2 or (len(shape) == 1 and kind == "int")
        if not masks or "complex" in kind or short[0] < 2 or math.prod(shape) > _PIECE:
            continue
        alike = [sizes for *_, sizes in arrays if short[0] in sizes[:2]]
        for whose, batch, of, sizes in arrays:
            fits = (len(sizes) > 2 and "float" in of) or (len(sizes) == 2 and of == "int")
            fits = fits and batch is not each and _on_gpu(batch)
            if not fits or sizes != max(alike, key=math.prod) or any(x in whose for x in _CACHES):
                continue
            for at in ((0, 1), *((1, 0), (0, 2)) * (len(sizes) == 3)):
                same = [sizes[axis] for axis in at][: len(short)] == short
                found += [(name, each, batch, *at)] * (same and sizes[at[1]] >= _COLUMNS)
    return found[:_ARRAYS]


def _host(array: Any) -> Any:
    """An array's copy of numbers in NumPy."""
    if hasattr(array, "detach"):
        return array.detach().float().cpu().numpy()
    return sys.modules["numpy"].asarray(getattr(array, "get", lambda: array)()).astype("float32")


def _full(name: str, mask: Any, batch: Any, rows: int, columns: int) -> list[Any]:
    """The name, columns and elements of a batch, its elements if it were as wide as its longest row, and
    those that are not padding. Empty unless rows are padded on one side, with a single value."""
    numpy: Any = sys.modules["numpy"]
    value = _host(mask)
    kept = value != (name != "attention_mask")
    if batch is not None:
        height, width = batch.shape[rows], batch.shape[columns]
        sides = [value.reshape(height, -1) != 0, value.reshape(height, -1) == 0]
        if value.ndim == 1:
            fits = 0 <= value.min() <= value.max() <= width
            sides = [numpy.arange(width) < value[:, None]] if fits else []
        sides += [x | numpy.pad(x, ((0, 0), (1, 0)))[:, :-1] for x in sides]  # of targets
        few = [slice(1)] * batch.ndim
        few[-1], few[columns] = slice(_INNER), slice(None)
        few[rows] = slice(max(2, _PIECE // (width * _INNER)))
        here = hasattr(batch, "detach")  # JAX would compile a slice
        if not sides or not (here or math.prod(batch.shape) <= 8 * _PIECE):
            return []
        piece = _host(batch[tuple(few)]) if here else _host(batch)[tuple(few)]
        piece = numpy.moveaxis(piece, (rows, columns), (0, 1))
        piece = piece.reshape(*piece.shape[:2], -1)
        filled = (each for each in sides if _blank(piece, each[: len(piece)]))
        kept = next(filled, value[:0].reshape(0, 0))
        steps = numpy.diff(kept.sum(1))
        grows = height == width and ((steps >= 0).all() or (steps <= 0).all())
        if grows or (kept.size and kept.mean() > _FULL):  # grows: which tokens attend to which
            return []
    if not kept.size or (kept[:, 1:] != kept[:, :-1]).sum(1).max() > 1:
        return []
    longest = kept.shape[0] * int(kept.any(0).sum())
    return [name, kept.shape[1], kept.size, longest, int(kept.sum())]


def _blank(piece: Any, kept: Any) -> bool:
    """Whether padding has one value in a part of a batch, and what counts has others."""
    padding, rest = piece[~kept], piece[kept]
    if not padding.size or not rest.size or (padding != padding.flat[0]).any():
        return False
    return bool((rest != padding.flat[0]).any(1).mean() > 0.1)


def _sampled(value: Any) -> list[Any]:
    """Some elements of the arrays of a GPU in what a function returned; none of single numbers, as a loss
    is, nor of an array in which they are all alike, as in one that is mostly zeros."""
    found = []
    values = value.values() if isinstance(value, dict) else value
    values = values if isinstance(value, (dict, tuple, list)) else (value,)
    for array in filter(_on_gpu, itertools.islice(values, _ARRAYS)):
        flat = (array.detach() if hasattr(array, "detach") else array).reshape(-1)
        some = flat[:: max(1, flat.shape[0] // _SOME)][:_SOME].tolist()
        if 1 < flat.shape[0] <= _SOME or any(each != some[0] for each in some):
            found.append([[*array.shape], some])
    return found


def _alike(now: list[Any], first: list[Any]) -> bool:
    """Whether samples are the same but for the order of sums."""
    return [shape for shape, _ in now] == [shape for shape, _ in first] and all(
        one == two or (type(one) is float and math.isclose(one, two, rel_tol=_APART))
        for (_, ones), (_, twos) in zip(now, first, strict=True)
        for one, two in zip(ones, twos, strict=True)
    )


class WorkerSampling:
    """Has the recorder sample the processes that work for this one: those of multiprocessing, so of
    PyTorch's DataLoader and of pools. Other processes sample themselves once they use CUDA."""

    def __init__(self, folder: str, every: int) -> None:
        self.folder, self.every = os.fsencode(folder), every
        self.library: Any = None
        os.register_at_fork(before=self._prepare, after_in_child=self._begin)
        if "--multiprocessing-fork" in sys.argv:  # one that was spawned
            self._load().ncu_toolkit_sample(self.folder, every)

    def _load(self) -> Any:
        self.library = self.library or ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"])
        return self.library

    def _prepare(self) -> None:
        """Load what the child needs while this process can: a lock that another thread holds when
        this one forks is never released in the child."""
        if _makes_worker():
            with contextlib.suppress(OSError, KeyError):
                self._load()

    def _begin(self) -> None:
        if self.library is not None and _makes_worker():
            self.library.ncu_toolkit_sample(self.folder, self.every)


def _makes_worker() -> bool:
    """Whether the function that called os.fork is multiprocessing's."""
    name = str(sys._getframe(2).f_globals.get("__name__", ""))
    return name.rpartition(".")[2] in ("popen_fork", "forkserver")


def start(folder: str) -> None:
    """Record this process's lines into `folder` where $NCU_TOOLKIT_RECORD_LINES names what is not the
    user's: parts of paths, by commas. Raises RuntimeError: this Python cannot."""
    leave, pid, done = os._exit, os.getpid(), threading.Event()
    lines: list[Lines] = []
    every = int(os.environ.get("NCU_TOOLKIT_RECORD_SAMPLES") or 0)
    workers = WorkerSampling(folder, every) if every else None

    def leaving(status: int) -> NoReturn:
        """os._exit, which runs no atexit."""
        done.set()
        if pid == os.getpid():
            for each in lines:
                each.write()
            _flush()
        elif workers is not None and workers.library is not None:
            workers.library.ncu_toolkit_flush()
        leave(status)

    os._exit = leaving
    plan = os.environ.get("NCU_TOOLKIT_PROBE_PLAN", "")
    if plan:
        atexit.register(done.set)
        path = os.path.join(folder, f"{pid}.pressure")
        threading.Thread(target=_experiment, args=(path, plan, done), daemon=True).start()
    others = os.environ.get("NCU_TOOLKIT_RECORD_LINES", "")
    if others:
        lines.append(Lines(folder, tuple(filter(None, others.split(",")))))


def _experiment(path: str, plan: str, done: threading.Event) -> None:
    """Put the program's kernels under pressure; why not, as a note where the slices are."""
    try:
        with open(plan, encoding="utf-8") as file:
            asked = json.load(file)
        sys.path.append(asked["root"])
        importlib.import_module(asked["module"]).run_slices(path, asked, done)
    except BaseException as error:
        with open(path, "a", encoding="utf-8", opener=plain) as file:
            file.write(json.dumps({"note": f"no experiments: {error!r}"}) + "\n")


def _flush() -> None:
    """What the injected library still has, if the program used CUDA."""
    path = os.environ.get("CUDA_INJECTION64_PATH", "")
    with contextlib.suppress(OSError, AttributeError):
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            used = path and path in file.read()
        if used:
            ctypes.CDLL(path).ncu_toolkit_flush()
