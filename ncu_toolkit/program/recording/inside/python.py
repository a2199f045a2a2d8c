"""The Python part of the recorder (recorder.c): os._exit, the line of the user's code that a program
is at, so that a launch gets its line, samples of worker processes, and the experiments of `probe`.

It runs in programs of any environment and imports nothing of ncu-toolkit. `sys.monitoring` (Python
3.12) reports lines of the user's own code alone, to functions of recorder.c; code of packages costs
nothing after its first call. A launch never waits for this: program/recording/recorder.py joins the two by time.
recorder.c writes PID.lines; this writes PID.places, a line for each code: its number there and its
file."""

from __future__ import annotations

import atexit
import ctypes
import gc  # noqa: F401 -- recorder.c uses it and imports nothing
import importlib
import json
import os
import sys
import threading
import time
from types import CodeType
from typing import Any, NoReturn

_EVERY = 0.5
#: Functions whose lines are followed: a program that makes code as it runs has more.
_CODES = 20_000


def plain(path: str, flags: int) -> int:
    """Opens a file to write into, and neither follows a link nor waits for the reader of a FIFO."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


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
        """Once for each code: whether its lines are followed from here on."""
        path = code.co_filename
        if (
            len(self.own) < _CODES
            and not path.startswith("<")
            and not any(part in path for part in self.others)
        ):
            if id(code) not in self.known:
                self.known.add(id(code))
                self.own.append(code)
                self.is_own(code)
            events = self.monitoring.events
            followed = events.LINE | events.PY_RETURN | events.PY_YIELD
            self.monitoring.set_local_events(self.tool, code, followed)
        return self.monitoring.DISABLE

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
        except OSError:  # a full disk is no reason to disturb the program
            self.monitoring.set_events(self.tool, 0)
            self.tool = -1
        self.write_lines(1)


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
            try:
                self._load()
            except (OSError, KeyError):
                pass

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
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            if not path or path not in file.read():
                return
        import ctypes

        ctypes.CDLL(path).ncu_toolkit_flush()
    except (OSError, AttributeError):
        pass
