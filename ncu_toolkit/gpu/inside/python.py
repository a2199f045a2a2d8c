"""The Python part of the recorder (recorder.c): os._exit, the line of the user's code that a program
is at, so that a launch gets its line, and the experiments of `probe`.

It runs in programs of any environment and imports nothing of ncu-toolkit. `sys.monitoring` (Python
3.12) reports lines of the user's own code alone; code of packages costs nothing after its first
call. A launch never waits for this: gpu/recorder.py joins the two by time. Into the folder it
writes PID.lines, triples of 64 bits: the system's time in nanoseconds, the thread's number, and the
line (0: back in no code of the user's); and PID.places, the lines' texts in order, from 1."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from array import array
from collections import Counter
from types import CodeType, FrameType
from typing import Any, NoReturn

#: Lines that are kept before they are written, and in all: 24 bytes each.
_WAITING, _MOST = 3 << 13, 3 << 24
_EVERY = 0.5


class Lines:
    """Collects lines until the process ends."""

    def __init__(self, folder: str, others: tuple[str, ...]) -> None:
        self.stem, self.others, self.pid = (
            os.path.join(folder, str(os.getpid())),
            others,
            os.getpid(),
        )
        self.waiting, self.written = array("Q"), 0
        self.places: dict[tuple[CodeType, int], int] = {}
        self.told, self.wrote = 0, 0.0
        self.own: dict[CodeType, bool] = {}
        self.lock = threading.Lock()
        self.monitoring: Any = getattr(sys, "monitoring", None)
        if self.monitoring is None:
            raise RuntimeError("lines need Python 3.12 or newer")
        self.tool = next((n for n in (4, 3) if self.monitoring.get_tool(n) is None), -1)
        if self.tool < 0:
            raise RuntimeError("other tools watch the program's lines")
        self.monitoring.use_tool_id(self.tool, "ncu-toolkit")
        events = self.monitoring.events
        self.monitoring.register_callback(self.tool, events.PY_START, self._started)
        self.monitoring.register_callback(self.tool, events.PY_RESUME, self._started)
        self.monitoring.register_callback(self.tool, events.LINE, self._at)
        self.monitoring.register_callback(self.tool, events.PY_RETURN, self._left)
        self.monitoring.register_callback(self.tool, events.PY_YIELD, self._left)
        self.monitoring.set_events(self.tool, events.PY_START | events.PY_RESUME)
        atexit.register(self.write)
        threading.Thread(target=self._often, daemon=True).start()

    def _mine(self, code: CodeType) -> bool:
        found = self.own.get(code)
        if found is None:
            path = code.co_filename
            found = not path.startswith("<") and not any(part in path for part in self.others)
            self.own[code] = found
        return found

    def _started(self, code: CodeType, _: int) -> Any:
        """Once for each code: whether its lines are told from here on."""
        if self._mine(code):
            events = self.monitoring.events
            told = events.LINE | events.PY_RETURN | events.PY_YIELD
            self.monitoring.set_local_events(self.tool, code, told)
        return self.monitoring.DISABLE

    def _at(self, code: CodeType, line: int) -> None:
        place = self.places.setdefault((code, line), len(self.places) + 1)
        self._keep(place)

    def _left(self, code: CodeType, _: int, __: Any) -> None:
        """The line that it goes back to."""
        frame: FrameType | None = sys._getframe(1).f_back
        while frame is not None and not self._mine(frame.f_code):
            frame = frame.f_back
        if frame is None:
            self._keep(0)
        else:
            self._at(frame.f_code, frame.f_lineno)

    def _keep(self, place: int) -> None:
        self.waiting.extend((time.time_ns(), threading.get_native_id(), place))
        if len(self.waiting) > _WAITING:
            self._mute()
            self.write()

    def _mute(self) -> None:
        """Leave out the code that made most of these lines, if they came fast: a loop in Python would
        become slow by telling each. What it launches has the line that called it."""
        if time.process_time() - self.wrote > _EVERY:
            return
        texts = [*self.places]
        count = Counter(texts[place - 1][0] for place in self.waiting[2::3] if place)
        for code, _ in count.most_common(1):
            self.monitoring.set_local_events(self.tool, code, 0)
            self._at(code, code.co_firstlineno)

    def _often(self) -> None:
        while self.pid == os.getpid() and self.tool >= 0:
            time.sleep(_EVERY)
            self.write()

    def write(self) -> None:
        """Write what waits. A forked child has the parent's lines, and leaves them alone."""
        if self.pid != os.getpid() or not self.lock.acquire(blocking=False):
            return
        try:
            self.wrote = time.process_time()
            ready, self.waiting = self.waiting, array("Q")
            texts = [*self.places][self.told :]
            with open(self.stem + ".places", "a", encoding="utf-8", errors="replace") as file:
                for code, line in texts:
                    path = code.co_filename.replace("\n", " ")
                    file.write(f"{path}:{line}\n")
            self.told += len(texts)
            with open(self.stem + ".lines", "ab") as raw:
                ready.tofile(raw)
            self.written += len(ready)
            if self.written > _MOST:
                self._stop()
        except OSError:  # a full disk is no reason to disturb the program
            self._stop()
        finally:
            self.lock.release()

    def _stop(self) -> None:
        if self.tool >= 0:
            self.monitoring.set_events(self.tool, 0)
            self.monitoring.free_tool_id(self.tool)
            self.tool = -1


def start(folder: str) -> None:
    """Record this process's lines into `folder` where $NCU_TOOLKIT_RECORD_LINES names what is not the
    user's: parts of paths, by commas. Raises RuntimeError: this Python cannot."""
    leave, pid, done = os._exit, os.getpid(), threading.Event()
    lines: list[Lines] = []

    def leaving(status: int) -> NoReturn:
        """os._exit, which runs no atexit."""
        done.set()
        if pid == os.getpid():
            for each in lines:
                each.write()
            _flush()
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
        from ncu_toolkit.gpu.pressure import run_slices

        run_slices(path, asked, done)
    except BaseException as error:
        with open(path, "a", encoding="utf-8") as file:
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
