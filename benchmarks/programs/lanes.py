"""Programs on all GPUs of a machine: a lane is a GPU with its share of the CPU cores. And how all that
was started ends, whatever its session, so that no process keeps a GPU."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ncu_toolkit.base.core import children
from ncu_toolkit.kernel.gpu import cuda

#: The variable by which what was started is found.
MARK = "PROGRAMS_RUN"
#: Seconds that it has to end after SIGTERM, before SIGKILL; and killed processes to be gone.
GRACE = 5.0
#: Cores of a lane from which on programs may import beside one that is timed.
CORES = 8
#: Set when the time is over, or a signal ends it: nothing more is to be started.
STOPPED = threading.Event()


@dataclass(frozen=True)
class Lane:
    """A GPU, as CUDA_VISIBLE_DEVICES takes it, and cores that no other lane has; none where there are
    too few."""

    number: int
    card: str
    cores: tuple[int, ...] = ()

    def split(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The cores of a timed program, and of what imports and reads beside it. Where there are fewer
        than CORES, the timed program gets all and nothing should run alongside it.

        A program that waits for its host is slowed down by any other thread on its cores, so the two
        have none in common. Both halves are of one size: PyTorch takes a thread for each core that it
        sees when it is imported. A program that was imported in the other half before its turn must
        have as many as one that was not."""
        half = len(self.cores) // 2
        if len(self.cores) < CORES:
            return self.cores, ()
        return self.cores[:half], self.cores[half : 2 * half]


def lanes() -> list[Lane]:
    """One for each GPU that may be used, with shares of one size."""
    cards, cores = cuda.cards(), sorted(os.sched_getaffinity(0), key=_place)
    size = len(cores) // len(cards)
    size = size if size >= 2 else 0
    return [
        Lane(at, card, tuple(cores[at * size : (at + 1) * size])) for at, card in enumerate(cards)
    ]


def _place(cpu: int) -> tuple[int, int]:
    """Both threads of a physical core side by side, so that they are of one share."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    first = re.match(r"\d+", path.read_text()) if path.is_file() else None
    return int(first[0]) if first else cpu, cpu


def pin(cores: Collection[int], thread: int = 0) -> None:
    """Keep a thread, 0 for this one, and what it starts from now on, to some cores; none: as it is."""
    if cores:
        os.sched_setaffinity(thread, cores)


def move(process: int, cores: Collection[int]) -> None:
    """Keep all threads of a process to some cores; twice, as one may start another meanwhile."""
    for _ in range(2):
        for task in Path(f"/proc/{process}/task").glob("*"):
            with contextlib.suppress(OSError):
                pin(cores, int(task.name))


def end(mark: str, how: signal.Signals) -> int:
    """Signal every process with a mark in its environment; their number."""
    count = 0
    for process in children.processes(mark, name=MARK):
        with contextlib.suppress(OSError):
            os.kill(process, how)
            count += 1
    return count


def kill(mark: str) -> None:
    """End for certain what has a mark, and wait until it is gone."""
    until = time.monotonic() + GRACE
    while end(mark, signal.SIGKILL) and time.monotonic() < until:
        time.sleep(0.02)


def _later(seconds: float, do: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()
    return timer


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """After `seconds`, and at SIGTERM, SIGHUP or Ctrl-C, STOPPED is set and all that was started in
    here is ended: by SIGTERM, after GRACE by SIGKILL. Nothing is left running afterwards. After a
    signal the process ends with 128 + its number, once what is in here is done."""
    mark = f"{os.getpid()}-{secrets.token_hex(4)}"
    came: list[int] = []

    def stop() -> None:
        STOPPED.set()
        end(mark, signal.SIGTERM)
        _later(GRACE, lambda: kill(mark))

    def take(number: int, _: object) -> None:
        came.append(number)
        stop()

    STOPPED.clear()
    os.environ[MARK] = mark
    timer = _later(seconds, stop)
    before = {
        number: signal.signal(number, take)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        if signal.getsignal(number) != signal.SIG_IGN  # as under nohup
    }
    try:
        yield
    finally:
        timer.cancel()
        kill(mark)
        del os.environ[MARK]
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        sys.exit(128 + came[0])
