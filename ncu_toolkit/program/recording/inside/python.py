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
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NoReturn

_EVERY = 0.5
#: Functions whose lines are followed: a program that makes code as it runs has more.
_CODES = 20_000
#: Names of arguments that mask the padding of a batch; how many batches are read, of which each mask is
#: copied to the host; and how many seconds to wait for such a copy.
_MASKS = ("attention_mask", "key_padding_mask", "src_key_padding_mask")
_BATCHES = 4
_PATIENCE = 5
#: Calls of a function by the last of which it is known whether its results differ, arrays of a result
#: that are compared, and elements of each.
_CALLS = 8
_ARRAYS = 4
_SOME = 64


def plain(path: str, flags: int) -> int:
    """Opens a file to write into, and neither follows a link nor waits for the reader of a FIFO."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _own(path: str, others: tuple[str, ...]) -> bool:
    """Whether a file is the user's, by the parts of paths that are not."""
    return not path.startswith("<") and not any(part in path for part in others)


def _callers(frame: Any) -> Iterator[Any]:
    """A frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


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
        self.padding, self.results = Batches(self.stem, others), Results(self.stem, self.monitoring)
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
        if len(self.own) < _CODES and _own(code.co_filename, self.others):
            if id(code) not in self.known:
                self.known.add(id(code))
                self.own.append(code)
                self.is_own(code)
                self.results.follow(code)
            events = self.monitoring.events
            followed = events.LINE | events.PY_RETURN | events.PY_YIELD
            self.monitoring.set_local_events(self.tool, code, followed)
        return None if self.padding.looks(code, sys._getframe(1)) else self.monitoring.DISABLE

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
    """Writes which functions of the user's return the same arrays of a GPU again: PID.results, a line for
    each that was called often enough."""

    def __init__(self, stem: str, monitoring: Any) -> None:
        self.path, self.monitoring = stem + ".results", monitoring
        self.seen = dict[CodeType, list[Any]]()
        self.changed = self.looking = False
        """What it looks at may be a function's that is followed too."""
        self.tool = 3 if monitoring.get_tool(3) is None else -1
        if self.tool >= 0:
            monitoring.use_tool_id(self.tool, "ncu-toolkit results")
            monitoring.register_callback(self.tool, monitoring.events.PY_RETURN, self._returned)

    def follow(self, code: CodeType) -> None:
        if self.tool >= 0:
            self.monitoring.set_local_events(self.tool, code, self.monitoring.events.PY_RETURN)

    def _returned(self, code: CodeType, _: int, value: Any) -> Any:
        """Compare it with what the function returned before, at calls 1, 2, 4 and 8."""
        calls, same, before, callers = self.seen.setdefault(code, [0, True, None, None])
        if (calls + 1) & calls or self.looking:
            self.seen[code][0] += not self.looking
            return None
        above = {each.f_code for each in _callers(sys._getframe(1).f_back)}
        self.looking = True
        try:
            now = _aside(lambda torch: _sampled(torch, value))
        except Exception:  # whatever this framework lacks, the program goes on
            now = []
        finally:
            self.looking = False
        if now is None:
            return None
        self.changed = True
        same = same and now == (before or now)
        self.seen[code] = [calls + 1, same, now, above if callers is None else above & callers]
        known = not now or not same or calls + 1 == _CALLS
        return self.monitoring.DISABLE if known else None

    def write(self) -> None:
        known = {code: row for code, row in [*self.seen.items()] if row[2] and row[0] > 1}
        if not known or not self.changed:
            return
        self.changed = False
        with open(self.path, "w", encoding="utf-8", opener=plain) as file:
            places = {code: at for at, code in enumerate(known)}
            for code, (calls, same, _, callers) in known.items():
                last = max(line for _, _, line in code.co_lines() if line)
                place = code.co_qualname, code.co_filename, code.co_firstlineno, last
                within = [places[each] for each in callers if each in places and each is not code]
                file.write(f"{json.dumps([*place, calls, same, within])}\n")


class Batches:
    """Writes how full the first batches are, from the first function of PyTorch's that is given a mask of
    rows and columns: PID.padding, a line for each batch."""

    def __init__(self, stem: str, others: tuple[str, ...]) -> None:
        self.path, self.others, self.left = stem + ".padding", others, _BATCHES
        self.code: CodeType | None = None

    def looks(self, code: CodeType, frame: Any) -> bool:
        """Whether it wants to see the next call of this function too."""
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        mask = next((name for name in _MASKS if name in names), "")
        if not mask or not self.left or self.code not in (None, code):
            return False
        try:
            seen = _aside(lambda torch: _full(torch, frame.f_locals, mask))
            if seen:
                self.code, self.left = code, self.left - 1
                row = [f"{mask} of {code.co_qualname}", self._line(frame), *seen]
                with open(self.path, "a", encoding="utf-8", opener=plain) as file:
                    file.write(f"{json.dumps(row)}\n")
            return seen != [] and self.left > 0
        except Exception:  # whatever this PyTorch lacks, the program goes on
            return False

    def _line(self, frame: Any) -> str:
        """The user's line that is running."""
        for each in _callers(frame):
            if _own(path := each.f_code.co_filename, self.others):
                return f"{os.path.basename(path)}:{each.f_lineno}"
        return ""


def _aside(work: Callable[[Any], list[Any]]) -> list[Any] | None:
    """What `work` finds with PyTorch's module (None if it is not imported), on a thread of its own and
    this one's stream: here, torch.compile would compile it. None while a CUDA graph is captured."""
    torch: Any = sys.modules.get("torch")
    found, stream = list[Any](), None
    if torch is not None and torch.cuda.is_initialized():
        if torch.cuda.is_current_stream_capturing():
            return None
        stream = torch.cuda.current_stream()

    def run() -> None:
        on = contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)
        with contextlib.suppress(Exception), on:
            found.extend(work(torch))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return found


def _full(torch: Any, named: Any, mask: str) -> list[int]:
    """Columns and elements of a batch, its elements if it were as wide as its longest row, and those that
    are not padding. Empty unless the argument is a mask whose rows are padded on one side."""
    value = named[mask]
    known = torch is not None and type(value) is torch.Tensor and value.dim() == 2
    if not known or value.is_floating_point():
        return []
    kept = value.detach().cpu() != (mask != "attention_mask")
    rows, columns = kept.shape
    if not kept.numel() or int((kept[:, 1:] != kept[:, :-1]).sum(1).max()) > 1:
        return []
    return [columns, rows * columns, rows * int(kept.any(0).sum()), int(kept.sum())]


def _sampled(torch: Any, value: Any) -> list[Any]:
    """Some elements of the arrays of a GPU in what a function returned."""
    values = value.values() if isinstance(value, dict) else value
    several = isinstance(value, (dict, tuple, list))
    found = []
    for array in itertools.islice(values if several else (value,), _ARRAYS):
        kind = f"{type(array).__module__.partition('.')[0]}.{type(array).__name__}"
        if torch is not None and isinstance(array, torch.Tensor):
            if type(array) not in (torch.Tensor, torch.nn.Parameter) or not array.is_cuda:
                continue
            array = array.detach()
        elif kind not in ("cupy.ndarray", "jaxlib.ArrayImpl", "jax.ArrayImpl"):
            continue
        flat = array.reshape(-1)
        found.append([[*array.shape], flat[:: max(1, flat.shape[0] // _SOME)][:_SOME].tolist()])
    return found


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
