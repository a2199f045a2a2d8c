"""Worker processes: a crash or a hang of native code costs one task, not the run.

A worker reads tasks from its standard input and writes answers to a pipe. It runs many tasks, and
is replaced when it dies."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Final, NoReturn, TypeVar

from ncu_toolkit.base.core.errors import (
    LESS,
    EnvironmentProblem,
    InputProblem,
    ToolkitError,
    for_user,
)

T = TypeVar("T")
R = TypeVar("R")
_Prepare = Callable[[], object] | None
_Call = Callable[..., object] | None
_MAIN: Final = "import sys; sys.path[:] = {path!r}; from ncu_toolkit.base.core.workers import serve; serve({parent}, {fresh})"


@dataclass(frozen=True)
class Done:
    """How a task ended: `value` or `error`; `where` names the board that ran it on a cluster."""

    index: int
    value: Any = None
    error: ToolkitError | None = None
    where: str = ""


def forked(
    work: Callable[[T], R],
    items: Sequence[T],
    *,
    jobs: int,
    least: int = 1,
    tell: Callable[[T], object] = lambda _: None,
) -> list[R]:
    """Call `work` with each item in forks of this process, the next as one is free, and `tell` here with
    each that is done. Returns what `work` does, for each item.

    Runs here where a fork would have fewer than `least` items, or where there are other threads,
    whose locks would stay locked in the fork. Raises ToolkitError of the first item that failed, or
    RuntimeError for any other error of a fork."""
    jobs = min(jobs, len(items) // least)
    if jobs < 2 or not hasattr(os, "fork") or _threads() > 1:
        here = []
        for item in items:
            here.append(work(item))
            tell(item)
        return here
    made = dict[int, R]()
    forks = [_Forked(call=lambda at: work(items[at])) for _ in range(jobs)]
    try:
        turns, busy, errors = iter(range(len(items))), dict[IO[bytes], tuple[_Forked, int]](), []
        free = list(forks)
        while free or busy:
            for fork, at in zip(free, turns, strict=False):
                fork.ready()
                _ask(fork, "", (at,))
                busy[fork.stdout] = fork, at
            free = []
            for stream in select.select(list(busy), [], [])[0] if busy else ():
                fork, at = busy.pop(stream)
                made[at], error = _answer(fork)
                errors.append(error)
                tell(items[at])
                free.append(fork)
    except (EOFError, OSError, pickle.UnpicklingError):
        errors = ["a process that shared the work ended without an answer"]
    finally:
        for fork in forks:
            _end(fork)
    for error in errors:
        if error is not None:
            raise RuntimeError(error) if isinstance(error, str) else error
    return [made[at] for at in range(len(items))]


def shared(work: Callable[[int], T], count: int, *, jobs: int, least: int = 1) -> list[T]:
    """What `work` returns for each number below `count`, in order; in forks as `forked`."""
    jobs = max(1, min(jobs, count // least))
    spans = [range(count * at // jobs, count * (at + 1) // jobs) for at in range(jobs)]
    parts = forked(lambda span: [work(at) for at in span], spans, jobs=jobs)
    return [made for part in parts for made in part]


def _threads() -> int:
    """Threads of this process, on Linux those of native code too. Those of numpy's OpenBLAS do not
    count: a fork makes it end them (its `openblas_fork_handler`), so one is made for that."""
    try:
        found = len(os.listdir("/proc/self/task"))
        if found > threading.active_count() == 1:
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
            found = len(os.listdir("/proc/self/task"))
        return found
    except OSError:
        return threading.active_count()


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, or now if it has (Linux, prctl(2))."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)


@contextlib.contextmanager
def time_limit(seconds: float, error: ToolkitError) -> Iterator[None]:
    """Raise `error` after this many seconds; only the main thread gets the signal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(number: int, frame: object) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _memory_limit() -> int:
    """Bytes of memory that a process may have, by its limits; 0 without one. NVIDIA's report module
    aborts where it gets no more."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    return 0 if most == resource.RLIM_INFINITY else most


def default_jobs() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    function: str,
    tasks: Sequence[tuple[Any, ...]],
    *,
    jobs: int,
    timeout: float,
    label: Callable[[int], str],
    forks: bool = False,
) -> Iterator[Done]:
    """Call `function` ("module:name") with each task's arguments in up to `jobs` processes; results
    come as they are ready.

    Args:
        timeout: seconds for one task, after which its process is killed.
        label: names a task in the error of a dead worker.
        forks: workers may be forks of this process.
    """
    with WorkerPool(function, timeout, label) as workers:
        if forks:
            workers.fork(min(jobs, len(tasks)))
        yield from workers.run(tasks, jobs)


class WorkerPool:
    """Workers for one function, one for each thread, forked ones first.

    Args:
        function, timeout, label: as for `run`.
        fresh: a fork of the worker for every task, for code that does not give memory back.
    """

    def __init__(
        self, function: str, timeout: float, label: Callable[[int], str], *, fresh: bool = False
    ) -> None:
        self._function, self.timeout, self._label, self._fresh = function, timeout, label, fresh
        self._mine = threading.local()
        self._all: list[_Worker] = []
        self._waiting: list[_Worker] = []
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fork(self, count: int, prepare: _Prepare = None) -> None:
        """Have `count` workers wait that are forks of this process, a tenth of a second faster than
        starting them, where it can be forked (`forked`). Each new one calls `prepare` before its first
        task; errors of that are ignored, and a worker that it kills is replaced, or a fresh one that
        has other threads then."""
        if not hasattr(os, "fork") or _threads() > 1:
            return
        made = [_Forked(prepare, fresh=self._fresh) for _ in range(count - len(self._waiting))]
        self._all += made
        self._waiting += made

    def run(
        self,
        tasks: Sequence[tuple[Any, ...]],
        jobs: int,
        meanwhile: _Prepare = None,
        before: Callable[[int], object] = lambda _: None,
    ) -> Iterator[Done]:
        """As the function `run`; `before` is called with a task's index when its turn comes."""
        if not tasks:
            return
        pool = ThreadPoolExecutor(max(1, min(jobs, len(tasks))))
        try:
            waiting = [pool.submit(self.do, *each, before) for each in enumerate(tasks)]
            if meanwhile is not None:
                meanwhile()
            for future in as_completed(waiting):
                yield future.result()
        finally:
            self.close()
            pool.shutdown(wait=True, cancel_futures=True)

    def _worker(self) -> _Worker:
        worker: _Worker | None = getattr(self._mine, "worker", None)
        if worker is None or worker.poll() is not None:
            with self._lock:
                if self._closed:
                    raise RuntimeError("the pool was closed")
                if self._waiting:
                    worker = self._waiting.pop(0)
                else:
                    code = _MAIN.format(path=sys.path, parent=os.getpid(), fresh=self._fresh)
                    # In its own session, so that Ctrl-C reaches only this process.
                    worker = subprocess.Popen(
                        [sys.executable, "-c", code],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                    self._all.append(worker)
            self._mine.worker = worker
        return worker

    def do(
        self, index: int, task: tuple[Any, ...], before: Callable[[int], object] = lambda _: None
    ) -> Done:
        before(index)
        worker = self._worker()
        late = threading.Event()

        def give_up() -> None:
            late.set()
            worker.kill()

        timer = threading.Timer(self.timeout, give_up)
        timer.start()
        try:
            while isinstance(worker, _Forked) and not worker.ready() and not late.is_set():
                _end(worker)
                worker = self._worker()
            _ask(worker, self._function, task)
            value, error = _answer(worker)
            if isinstance(error, str):
                error = InputProblem(
                    f"reading {self._label(index)} failed: {error}",
                    "Please report this with the file, if you can share it",
                )
            return Done(index, value, error)
        except (EOFError, OSError, pickle.UnpicklingError):
            _end(worker)
            return Done(index, error=self._death(index, worker, late.is_set()))
        finally:
            timer.cancel()

    def _death(self, index: int, worker: _Worker, late: bool) -> ToolkitError:
        what = self._label(index)
        if late:
            return InputProblem(
                f"{what} did not finish within {self.timeout:.0f} s",
                "Allow more time with --timeout, or read fewer launches with --kernel",
            )
        code = worker.returncode or 0
        how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        if code == -signal.SIGKILL:
            killed = (
                f"reading {what} was ended from outside, as the system does when memory runs out"
            )
            return EnvironmentProblem(killed, f"{LESS}, or read fewer launches with --kernel")
        if code == -signal.SIGABRT and (most := _memory_limit()):
            return EnvironmentProblem(
                f"reading {what} ended with {how} under a limit of {most >> 20} MiB of memory",
                f"Raise the limit (ulimit -v), or read fewer launches with --kernel. {LESS}",
            )
        hint = "NVIDIA's report module crashed on it. The file is damaged, or of an unknown kind"
        return InputProblem(f"reading {what} ended with {how}", hint)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for worker in self._all:
                if worker.poll() is None:
                    worker.kill()
        for worker in self._all:
            worker.wait()


class _Forked:
    """A fork with the interface of subprocess.Popen that the pool uses. It does `call` with each
    task, or else the function that the task names; if `fresh` in its own fork."""

    def __init__(
        self, prepare: _Prepare = None, call: _Call = None, *, fresh: bool = False
    ) -> None:
        requests, ours = os.pipe()
        theirs, answers = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.returncode: int | None = None
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            _be_worker(requests, answers, prepare, call, parent, fresh)
        os.close(requests)
        os.close(answers)
        self.stdin, self.stdout = os.fdopen(ours, "wb"), os.fdopen(theirs, "rb")
        self._reaping = threading.Lock()
        self._prepared = False

    def ready(self) -> bool:
        """Wait until it is prepared; False where it died."""
        self._prepared = self._prepared or self.stdout.read(1) != b""
        return self._prepared

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int | None:
        return self._reap(0)

    def kill(self) -> None:
        with self._reaping:  # A reaped id may be another process by now.
            if self.returncode is None:
                os.kill(self.pid, signal.SIGKILL)

    def _reap(self, how: int) -> int | None:
        with self._reaping:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, how)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


_Worker = subprocess.Popen[bytes] | _Forked


def _end(worker: _Worker) -> None:
    worker.kill()
    worker.wait()


def _ask(worker: _Worker, function: str, task: tuple[Any, ...]) -> None:
    assert worker.stdin is not None
    pickle.dump((function, task), worker.stdin)
    worker.stdin.flush()


def _answer(worker: _Worker) -> tuple[Any, ToolkitError | str | None]:
    """The value, or the error. Raises EOFError, OSError or UnpicklingError where the worker died."""
    assert worker.stdout is not None
    if isinstance(worker, _Forked):
        worker.ready()
    value, error = pickle.load(worker.stdout)
    return value, error


def _be_worker(
    requests: int, answers: int, prepare: _Prepare, call: _Call, parent: int, fresh: bool
) -> NoReturn:
    """Child loop: close inherited files, serve, `_exit`."""
    try:
        gc.freeze()  # Leave inherited objects to the parent.
        os.setsid()  # Ctrl-C reaches only the parent.
        _die_with(parent)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        low, high = sorted((requests, answers))
        for first, end in ((3, low), (low + 1, high), (high + 1, os.sysconf("SC_OPEN_MAX"))):
            os.closerange(first, end)
        if prepare is not None:
            with contextlib.suppress(Exception):
                prepare()
        if not fresh or _threads() == 1:
            os.write(answers, b"\n")
            _serve_tasks(os.fdopen(requests, "rb"), os.fdopen(answers, "wb"), call, fresh)
    finally:
        os._exit(0)


def serve(parent: int, fresh: bool = False) -> None:
    """A worker's loop; ends with its input or its parent."""
    _die_with(parent)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Keep prints of native code out of the answers.
    _serve_tasks(sys.stdin.buffer, answers, fresh=fresh)


def _serve_tasks(
    requests: IO[bytes], answers: IO[bytes], call: _Call = None, fresh: bool = False
) -> None:
    while True:
        try:
            function, task = pickle.load(requests)
        except EOFError:
            return
        if fresh and hasattr(os, "fork") and _threads() == 1:
            _in_a_fork(partial(_work, answers, call, function, task))
        else:
            _work(answers, call, function, task)
        del task  # not kept while waiting: it may be hundreds of megabytes


def _work(answers: IO[bytes], call: _Call, function: str, task: tuple[Any, ...]) -> None:
    answer: tuple[Any, ToolkitError | str | None]
    try:
        module, _, name = function.partition(":")
        work = call or getattr(importlib.import_module(module), name)
        answer = (work(*task), None)
    except Exception as error:
        answer = (None, for_user(error) or f"{type(error).__name__}: {error}")
    pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
    answers.flush()


def _in_a_fork(work: Callable[[], object]) -> None:
    """Do it in a fork of this process, and end as the fork did where that was no good end."""
    gc.freeze()
    parent = os.getpid()
    if not (child := os.fork()):
        code = 1
        try:
            _die_with(parent)
            work()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(parent, -code)
    if code:
        os._exit(code)
