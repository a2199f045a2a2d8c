"""Programs that this process starts: each in its own session, and ended with all that it started.

A watchdog (this file, run as a script) does so where this process is killed: it reads a pipe that
only this process writes to, and whose end it sees however this process ends."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

#: Variable by which the processes of a child are known, also those with their own session.
MARK: Final = "NCU_TOOLKIT_RUN"
#: Seconds that a child has to end by itself after a signal; that killed processes have to go.
GRACE: Final = 10.0
_GONE: Final = 5.0
_POLL: Final = 0.01
#: Time for which the watchdog finds no process of a child before it ends: one may be starting.
_QUIET: Final = 0.2

_lock: Final = threading.Lock()
_running: Final[set["Child"]] = set()
#: Of this process: its id, the watchdog and the pipe to it. A fork has none of its own.
_watchdog: tuple[int, Any, int] = 0, None, -1


class Child(subprocess.Popen[bytes]):
    """A program in its own session. In `with` it is killed where the block raises.

    Args:
        environment: variables besides those of this process.
        how: as for Popen.
    """

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str] | None = None, **how: Any
    ) -> None:
        self.mark = secrets.token_hex(16)
        _tell(f"{self.mark} 0")
        variables = {**os.environ, **(environment or {}), MARK: self.mark}
        try:
            super().__init__(list(words), env=variables, start_new_session=True, **how)
        except BaseException:  # Ctrl-C may come once it was started
            _kill(self.mark, 0)
            _tell(f"{self.mark} -")
            raise
        _running.add(self)
        _tell(f"{self.mark} {self.pid}")

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:
            self.end(signal.SIGKILL)
        super().__exit__(kind, *rest)
        self._leave()

    def _leave(self) -> None:
        _running.discard(self)
        _tell(f"{self.mark} -")

    def send(self, how: signal.Signals, spare: tuple[str, ...] = ()) -> None:
        """Signal all of its processes, but those whose names begin like one of `spare`."""
        for each in processes(self.mark, self.pid):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if not Path(f"/proc/{each}/comm").read_text().startswith(spare or "\0"):
                    os.kill(each, how)

    def end(self, how: signal.Signals = signal.SIGTERM, grace: float = GRACE) -> None:
        """End it with all that it started: by `how`, after `grace` seconds by SIGTERM, then by
        SIGKILL, which it also gets at a KeyboardInterrupt."""
        try:
            for each in dict.fromkeys((how, signal.SIGTERM)):
                if signal.SIGKILL in (how, each) or self.poll() is not None:
                    break
                self.send(each)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.wait(grace)
        finally:
            _kill(self.mark, self.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in a driver
                self.wait(_GONE)
            self._leave()


def run(
    words: Sequence[str], timeout: float | None = None, **how: Any
) -> subprocess.CompletedProcess[str]:
    """A program's exit code and output. Where it takes too long, or Ctrl-C comes, it is killed with
    all that it started. Raises OSError, subprocess.TimeoutExpired."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Child(words, **{**pipes, **how}) as child:
        texts = [
            (each or b"").decode(errors="replace") for each in child.communicate(timeout=timeout)
        ]
    return subprocess.CompletedProcess(list(words), child.returncode, *texts)


def end_all() -> None:
    """Kill all children of this process, for work that other threads wait for."""
    for each in [*_running]:
        each.end(signal.SIGKILL)


def processes(mark: str, leader: int = 0, name: str = MARK) -> Iterator[int]:
    """The processes of a child that still run: those of its session, and those whose variable `name`
    begins with its mark."""
    word = f"\0{name}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
            mine = leader and str(leader) in state[2:4]
            if state[0] not in "ZX" and (mine or word in b"\0" + (path / "environ").read_bytes()):
                yield int(path.name)


def _kill(mark: str, leader: int) -> None:
    """Kill what is left of a child, until nothing is."""
    until, left = time.monotonic() + _GONE, True
    while left and time.monotonic() < until:
        left = False
        for each in processes(mark, leader):
            left = True
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)
        time.sleep(_POLL if left else 0)


def _tell(line: str) -> None:
    """Tell the watchdog, which is started for it, of a child: its mark and leader (0: not started)."""
    global _watchdog
    with _lock:
        if _watchdog[0] != os.getpid():
            reading, writing = os.pipe()
            nothing = subprocess.DEVNULL
            # Without marks, by which another one would end it too; a Python may need its libraries.
            variables = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__], stdin=reading, stdout=nothing, stderr=nothing,
                env=variables, cwd="/", start_new_session=True,
            )  # fmt: skip
            os.close(reading)
            _watchdog = os.getpid(), process, writing
        with contextlib.suppress(OSError):  # somebody killed it
            os.write(_watchdog[2], f"{line}\n".encode())


def _watch() -> None:
    """The watchdog: keep the children in mind until the pipe ends, and kill those that are left."""
    children: dict[str, int] = {}
    for line in sys.stdin:
        mark, leader = line.split()
        if leader == "-":
            children.pop(mark, None)
        else:
            children[mark] = int(leader)
    until = time.monotonic() + _QUIET
    while children and time.monotonic() < until:
        for mark, leader in children.items():
            if any(processes(mark, leader)):
                _kill(mark, leader)
                until = time.monotonic() + _QUIET
        time.sleep(_POLL)


if __name__ == "__main__":
    _watch()
