"""Tasks on the workers of a Dask cluster, one GPU each. A result comes back to this process, which
stores it at once. Dask is imported only where `--cluster` asks for it (extra `cluster`,
docs/cluster.md)."""

import contextlib
import contextvars
import importlib
import logging
import os
import platform
import queue
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from ncu_toolkit import __version__
from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.cache import CACHE_VARIABLE, cache_folder, private
from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    KernelProblem,
    ToolkitError,
    UsageProblem,
    refused,
)
from ncu_toolkit.base.core.workers import Done
from ncu_toolkit.base.model import Device
from ncu_toolkit.base.model.run import RunCase
from ncu_toolkit.kernel.build import nvcc
from ncu_toolkit.kernel.gpu import collect, cuda
from ncu_toolkit.kernel.gpu.executor import (
    SAME,
    Executor,
    Reporter,
    Tasks,
    check_source,
    forget,
    machine,
)
from ncu_toolkit.kernel.gpu.selection import Cases, groups_of
from ncu_toolkit.kernel.ladder.catalogue import find_rung

#: A GPU is left out where a part of its probe takes this many times the median of its model. Sinha
#: et al., "Not All GPUs Are Created Equal" (SC 2022, arXiv:2208.11035): GPUs of one cluster differ by
#: 8 % (at most 22 %), and outliers are up to 1.5 times slower than the median.
SLOW: Final = 1.5
#: Tasks of a board that are on their way: one runs, the others wait beside it while its result
#: travels. A setting takes a few milliseconds in tune's later rounds, about as long as the way.
_AHEAD: Final = 3
#: Seconds between two looks at which workers there are.
_LOOK_EVERY: Final = 2.0
#: Seconds to reach a scheduler, and to wait for a first board or for a lost one to come back. Jobs
#: of a queue may wait longer: `wait` in the file of a cluster.
CONNECT_SECONDS: Final = 10.0
WAIT_SECONDS: Final = 60.0
#: Seconds that a board's introduction may take: CuPy's import, a compilation and the probe.
_INTRODUCTION_SECONDS: Final = 180.0
#: Times that a task may begin on a context that another task broke.
_RETRIES: Final = 4
#: Times that a task may break a context, as a board that falls off does too, before it has failed.
STRIKES: Final = 2
#: Seconds to fetch a result that is there.
_RESULT_SECONDS: Final = 5.0
#: Packages whose functions a worker is asked to run.
_OURS: Final = ("ncu_toolkit.", "benchmarks.")
_KEPT: Final = "What was finished is kept: run the same command again"


# What runs on a worker. A worker is asked by name, for functions of this project alone; what it gets
# and gives are plain values.


@dataclass(frozen=True)
class Board:
    """A GPU of the cluster, as its worker sees it. The times are those of `timing.probe`."""

    uuid: str
    host: str
    device: Device
    environment: Mapping[str, str]
    versions: Mapping[str, str]
    compute_us: float
    memory_us: float
    throttle: str = ""

    @property
    def label(self) -> str:
        return f"{self.uuid} on {self.host}"


@dataclass
class Reply:
    """What a worker gives back: a value or an error, what was reported meanwhile, and whether its
    context on the GPU is broken."""

    value: Any = None
    error: ToolkitError | None = None
    defect: str = ""
    """Any other exception."""
    reported: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    context_lost: bool = False
    worker: str = ""
    """Its address."""


class _Recorder:
    """A reporter that remembers the calls."""

    def __init__(self, calls: list[tuple[str, tuple[Any, ...]]]) -> None:
        self._calls = calls

    def __getattr__(self, kind: str) -> Callable[..., None]:
        return lambda *words: self._calls.append((kind, words))


def versions() -> dict[str, str]:
    """Versions that a client and its workers must share."""
    import distributed

    return {
        "ncu-toolkit": __version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "distributed": distributed.__version__,
    }


def answer(function: str, task: tuple[Any, ...], gpu: bool, report: bool) -> Reply:
    """Carry out one task on a worker. `function` is "module:name", of this project."""
    if not function.startswith(_OURS):
        return Reply(error=UsageProblem(f"'{function}' is not a task of ncu-toolkit"))
    from distributed import get_worker

    worker, within = get_worker().address, contextvars.copy_context()
    call = partial(_answer, worker, function, task, gpu, report)
    return _gpu_thread(worker).submit(within.run, call).result() if gpu else call()


@lru_cache(maxsize=1024)
def _gpu_thread(worker: str) -> ThreadPoolExecutor:
    """The one thread of a worker that uses its GPU: CuPy makes a cuBLAS handle for each thread, which
    would fall into the time of a baseline."""
    return ThreadPoolExecutor(1, thread_name_prefix="ncu-toolkit-gpu")


def _answer(worker: str, function: str, task: tuple[Any, ...], gpu: bool, report: bool) -> Reply:
    found, (module, _, name) = Reply(worker=worker), function.partition(":")
    named = {"reporter": _Recorder(found.reported)} if report else {}
    cuda.disable_tf32()
    try:
        if gpu:
            cuda.context_works()  # Makes the context current in this thread.
        for given in task:
            for case in given if isinstance(given, tuple) else ():
                if isinstance(case, RunCase):
                    check_source(f"{case.family}/{case.rung}", case.source)
        found.value = getattr(importlib.import_module(module), name)(*task, **named)
    except ToolkitError as error:
        found.error = error
    except OSError as error:
        found.error = EnvironmentProblem(f"{error.strerror or error}: {error.filename or ''}")
    except Exception as error:
        found.defect = f"{type(error).__name__}: {error}"
    with contextlib.suppress(EnvironmentProblem):  # no GPU at all
        found.context_lost = gpu and not cuda.context_works()
    return found


def introduce() -> Board:
    """Describe this worker's GPU, and time the probe on it."""
    from ncu_toolkit.kernel.gpu import timing

    forget()
    cuda.cupy().get_default_memory_pool().free_all_blocks()
    environment = machine()
    with contextlib.suppress(ToolkitError):
        environment["ncu"] = collect.find_ncu().version
    host, times = socket.gethostname(), timing.probe()
    return Board(cuda.uuid(), host, cuda.device(), environment, versions(), *times)


@dataclass(frozen=True)
class Built:
    """A compilation on a worker: its entry in the cache of cubins, by file name."""

    cubin: nvcc.BuiltCubin
    key: str
    files: Mapping[str, bytes]


def compiled(
    name: str, arch: str, parameters: Mapping[str, int], macros: Mapping[str, str], source: str
) -> Built:
    """Compile a rung on a worker. `source` is the digest of its code on the client. Raises
    EnvironmentProblem: the worker has other code for it. Raises ToolkitError: as
    `nvcc.compile_rung`."""
    check_source(name, source)
    cubin = nvcc.compile_rung(find_rung(name), arch, parameters, macros)
    folder = cubin.path.parent
    return Built(cubin, folder.name, {path.name: path.read_bytes() for path in folder.iterdir()})


def missing(keys: Sequence[str]) -> list[str]:
    """Entries that this machine's cache of cubins lacks."""
    return [key for key in keys if not (cache_folder() / "cubins" / key / "report.json").is_file()]


def adopt(built: Sequence[Built]) -> None:
    """Put compilations of other machines into this machine's cache of cubins."""
    for each in built:
        with refused("a compiled kernel cannot be kept", f"Set {CACHE_VARIABLE} to another folder"):
            folder = private(cache_folder(), "cubins") / Path(each.key).name
        if (folder / "report.json").is_file():
            continue
        work = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
        for name, content in each.files.items():
            files.replace(work / Path(name).name, content, mode=0o600)
        try:
            work.rename(folder)
        except OSError:  # Another process was first.
            shutil.rmtree(work, ignore_errors=True)


# What runs on the client.


@dataclass
class _Flight:
    """A task under way, and the workers that may run it (all of them where None)."""

    index: int
    task: tuple[Any, ...]
    allowed: frozenset[str] | None
    attempt: int = 0


def _taken(ended: queue.Queue[Any]) -> list[Any]:
    """What has ended; none where nothing has for _LOOK_EVERY."""
    taken = []
    with contextlib.suppress(queue.Empty):
        taken.append(ended.get(timeout=_LOOK_EVERY))
        while True:
            taken.append(ended.get_nowait())
    return taken


class Dask(Executor):
    """The workers of a Dask cluster. Tasks that measure take the resource GPU, one a worker, on
    GPUs whose probe was timed; compilations run on any worker. A board is a worker's GPU.

    Args:
        client: connected to the scheduler.
        note: gets lines for the user.
        wait: seconds to wait for a first board, or for one to come back.
        slow_boards: use boards that the probe finds slow as well.
        remedy: what to do where no board comes.
    """

    def __init__(
        self, client: Any, note: Callable[[str], None], wait: float, slow_boards: bool, remedy: str
    ) -> None:
        self._client, self._note, self._wait = client, note, wait
        self._slow_boards, self._remedy = slow_boards, remedy
        self._used: dict[str, Board] = {}
        self._all: dict[str, Board | None] = {}
        """By address of the worker; None while it introduces itself, and where it could not."""
        self._introductions: dict[str, Any] = {}
        self._labels: dict[str, str] = {}
        """Of every board that was used, by address."""
        self._broken: list[str] = []
        self._left = 0.0
        self._threads = 1
        self._built: dict[str, Built] = {}
        self._model: Board | None = None
        self._looked = 0.0
        self._first_boards()

    @property
    def boards(self) -> int:
        return max(1, len(self._used))

    def device(self) -> Device:
        assert self._model is not None
        return self._model.device

    def environment(self) -> Mapping[str, str]:
        assert self._model is not None
        return self._model.environment

    def uuid(self) -> str:
        uuids = {board.uuid for board in self._used.values()}
        return uuids.pop() if len(uuids) == 1 else ""

    def ncu(self) -> str:
        version = self.environment().get("ncu")
        if version is None:
            remedy = "Install Nsight Compute there, or set NCU"
            raise EnvironmentProblem("the boards of the cluster have no ncu", remedy)
        return version

    def works(self) -> bool:
        return True  # A worker whose context is broken is replaced.

    def place(self, path: Path) -> Path | None:
        return None

    def pieces(self, cases: Cases) -> list[Cases]:
        """Of one problem and size, and enough of them that the boards end at about the same time."""
        most, found = max(1, len(cases) // (2 * self.boards)), list[Cases]()
        for group in groups_of(cases):
            found += (group[start : start + most] for start in range(0, len(group), most))
        return found

    def build(
        self, requests: Sequence[nvcc.BuildRequest], progress: nvcc.OnBuilt, jobs: int | None = None
    ) -> list[nvcc.BuildOutcome]:
        tasks = (
            (f"{r.rung.family}/{r.rung.name}", r.arch, dict(r.parameters), dict(r.macros), nvcc.source_digest(r.rung)) for r in requests
        )  # fmt: skip
        outcomes: dict[int, nvcc.BuildOutcome] = {}
        for done in self._tasks(compiled, tasks, None, gpu=False, at_once=jobs):
            cubin, built = None, done.value
            if built is not None:
                adopt([built])
                self._built[built.key] = built
                path = cache_folder() / "cubins" / built.key / "kernel.cubin"
                cubin = replace(built.cubin, path=path)
            outcomes[done.index] = nvcc.BuildOutcome(requests[done.index], cubin, done.error)
            progress(len(outcomes), len(requests), outcomes[done.index])
        self._send_cubins(list(self._used))
        return [outcomes[index] for index in range(len(requests))]

    def run(
        self, function: Callable[..., Any], tasks: Tasks, reporter: Reporter | None = None
    ) -> Iterator[Done]:
        return self._tasks(function, tasks, reporter, gpu=True)

    def _tasks(
        self, function: Callable[..., Any], tasks: Tasks, reporter: Reporter | None, *, gpu: bool, at_once: int | None = None
    ) -> Iterator[Done]:  # fmt: skip
        """Keep as many tasks under way as there is room for, and yield each result as it comes."""
        name = f"{function.__module__}:{function.__qualname__}"
        ended: queue.Queue[Any] = queue.Queue()
        flights: dict[Any, _Flight] = {}
        source, more = enumerate(tasks), True
        raised: Exception | None = None

        def send(flight: _Flight) -> None:
            if gpu and not self._used:
                self._restart_broken()
                self._look()  # Waits for a board.
            flight.allowed = frozenset(self._used) if gpu else None
            future = self._submit(name, flight.task, flight.allowed, reporter is not None)
            flights[future] = flight
            future.add_done_callback(ended.put)

        try:
            while True:
                self._look_after(flights)
                for future, flight in list(flights.items()):
                    stranded = flight.allowed is not None and not flight.allowed & self._used.keys()
                    if stranded and future.status != "finished":
                        self._client.cancel([future], force=True)
                        send(flights.pop(future))
                room = len(self._used) * _AHEAD if gpu else at_once or self._threads + 2
                while more and len(flights) < room:
                    try:
                        index, task = next(source)
                    except StopIteration:
                        more = False
                    except Exception as error:  # What makes the tasks stops here.
                        more, raised = False, error
                    else:
                        send(_Flight(index, task, None))
                if not more and not flights:
                    break
                # Others were sent again.
                ready = [each for each in _taken(ended) if each in flights]
                again: list[_Flight] = []
                for future, found in zip(ready, self._results(ready), strict=True):
                    flight = flights.pop(future)
                    final = self._final(flight, future, found)
                    if final is None:
                        again.append(flight)
                        continue
                    for kind, words in final.reported:
                        getattr(reporter, kind)(*words)
                    where = self._labels.get(final.worker, final.worker)
                    yield Done(flight.index, final.value, final.error, where)
                for flight in again:
                    send(flight)
        finally:
            if flights:
                with contextlib.suppress(Exception):
                    self._client.cancel(list(flights), force=True)
        if raised is not None:
            raise raised

    def _look_after(self, flights: Iterable[Any]) -> None:
        """Restart broken workers, and see which boards there are."""
        # Which task broke a context is among the answers that its worker still holds.
        held = [each for each in flights if each.status == "finished"]
        if not held or time.monotonic() - self._left > _LOOK_EVERY:
            self._restart_broken()
        if not self._broken:
            self._look()

    def _final(self, flight: _Flight, future: Any, found: Reply | None) -> Reply | None:
        """The answer to a task; None where it is sent again."""
        if found is None:
            self._client.cancel([future], force=True)
            flight.attempt += 1
            if flight.attempt < _RETRIES:
                return None
            text = f"its worker ended {flight.attempt} times"
            return Reply(error=KernelProblem(text, "See the logs of the workers"))
        if found.context_lost:
            self._leave(found.worker)
            # Of another task's kernel, or else the kernel's or the board's own fault.
            innocent = isinstance(found.error, EnvironmentProblem)
            flight.attempt += 1
            if found.error and flight.attempt < (_RETRIES if innocent else STRIKES):
                return None
        if found.defect:
            raise RuntimeError(f"{found.defect} (on a worker)")
        return found

    def _submit(
        self, name: str, task: tuple[Any, ...], allowed: Iterable[str] | None, report: bool
    ) -> Any:
        workers = None if allowed is None else sorted(allowed)
        return self._client.submit(
            answer, name, task, workers is not None, report,
            key=f"{name.rpartition(':')[2]}-{os.urandom(8).hex()}", workers=workers,
            resources=None if workers is None else {"GPU": 1}, pure=False,
        )  # fmt: skip

    def _results(self, futures: Sequence[Any]) -> list[Reply | None]:
        """Answers of tasks that have ended, in one exchange with the scheduler where none failed."""
        if len(futures) > 1 and all(each.status == "finished" for each in futures):
            with contextlib.suppress(Exception):
                return list(self._client.gather(list(futures)))
        return [self._result(future) for future in futures]

    def _result(self, future: Any) -> Reply | None:
        """A task's answer; None where it was lost with its worker before it came here. Raises
        EnvironmentProblem: the scheduler is gone, or the worker lacks this package."""
        from distributed.scheduler import KilledWorker

        if future.status == "cancelled":
            raise self._gone()
        try:
            found: Reply = future.result(timeout=_RESULT_SECONDS)
            return found
        except KilledWorker as error:
            text = f"its worker ended {error.allowed_failures + 1} times while it ran"
            return Reply(error=KernelProblem(text, "See the logs of the workers"))
        except ImportError as error:
            what = f"a worker cannot run this task ({error})"
            raise EnvironmentProblem(what, _same_package()) from None
        except Exception as error:
            if self._client.status != "running" or future.status == "cancelled":
                raise self._gone() from None
            if isinstance(error, OSError | TimeoutError):
                self._identity()
                return None
            what = f"a worker failed: {type(error).__name__}: {error}"
            raise EnvironmentProblem(what, _same_package()) from None

    def _gone(self) -> EnvironmentProblem:
        where = self._client.scheduler.address if self._client.scheduler else "the cluster"
        return EnvironmentProblem(f"the Dask scheduler at {where} is gone", _KEPT)

    def _leave(self, address: str) -> None:
        """Send no more tasks to a worker whose context on the GPU is broken."""
        board = self._used.pop(address, None)
        if board is not None:
            self._all[address] = None
            self._broken.append(address)
            self._left = time.monotonic()
            broken = f"the GPU's context on {board.label} is broken, by a kernel or a fault"
            self._note(f"{broken}; its worker is restarted")

    def _restart_broken(self) -> None:
        """Replace the workers whose context is broken; they introduce themselves again."""
        while self._broken:
            # It takes seconds, while others go on.
            threading.Thread(target=self._restart, args=(self._broken.pop(),), daemon=True).start()

    def _restart(self, address: str) -> None:
        with contextlib.suppress(Exception):  # A worker without a nanny is gone for good.
            self._client.restart_workers([address], timeout=WAIT_SECONDS, raise_for_error=False)
        self._all.pop(address, None)

    # Which boards there are.

    def _identity(self) -> dict[str, Any]:
        """What the scheduler knows of itself and its workers."""
        ask = self._client.scheduler.identity
        try:
            return dict(self._client.sync(ask, n_workers=-1, callback_timeout=CONNECT_SECONDS))
        except Exception:
            raise self._gone() from None

    def _workers(self) -> dict[str, dict[str, Any]]:
        """What the scheduler knows of each worker, by address."""
        return dict(self._identity()["workers"])

    @property
    def dashboard(self) -> str:
        """The address of Dask's dashboard; empty where the scheduler has none."""
        shown = "dashboard" in self._identity()["services"]
        return str(self._client.dashboard_link) if shown else ""

    def _first_boards(self) -> None:
        """Wait for the first boards, choose the model that most have, and use those that fit."""
        started = time.monotonic()
        while not (found := self._with_gpus(workers := self._workers())):
            wait = min(self._wait, CONNECT_SECONDS) if workers else self._wait
            if time.monotonic() - started > wait:
                have = f"{len(workers)} workers and none offers a GPU" if workers else "no worker"
                raise EnvironmentProblem(f"the cluster has {have}", self._remedy)
            time.sleep(0.2)
        for address in found:
            self._begin(address)
        for address in found:
            self._learn(address, _INTRODUCTION_SECONDS)
        known = {address: board for address, board in list(self._all.items()) if board}
        for most, _ in Counter(map(_kind, known.values())).most_common(1):
            self._model = next(board for board in known.values() if _kind(board) == most)
            for address, board in known.items():
                self._admit(address, board)
        if not self._used:
            raise EnvironmentProblem("no board of the cluster can be used", "See the notes above")

    def _with_gpus(self, workers: Mapping[str, Mapping[str, Any]]) -> list[str]:
        return [a for a, each in workers.items() if each.get("resources", {}).get("GPU", 0) >= 1]

    def _look(self) -> None:
        """Name boards that are gone, and begin with those that came; every few seconds. Raises
        EnvironmentProblem: no board is left, and none came back within the time to wait."""
        if time.monotonic() - self._looked < _LOOK_EVERY and self._used:
            return
        lost_since = time.monotonic()
        while True:
            workers = self._workers()
            self._threads = sum(int(each["nthreads"]) for each in workers.values())
            found = self._with_gpus(workers)
            for address in [address for address in list(self._all) if address not in found]:
                self._all.pop(address, None)
                self._introductions.pop(address, None)
                if (board := self._used.pop(address, None)) is not None:
                    self._note(f"{board.label} is gone; what it was doing goes to another board")
            for address in found:
                if address not in self._all:
                    self._begin(address)
                elif address in self._introductions:
                    self._learn(address, 0.0)
            self._looked = time.monotonic()
            if self._used:
                return
            if time.monotonic() - lost_since > self._wait:
                raise EnvironmentProblem("no board of the cluster is left", _KEPT)
            time.sleep(0.2)

    def _begin(self, address: str) -> None:
        self._all[address] = None
        name = f"{introduce.__module__}:{introduce.__name__}"
        self._introductions[address] = self._submit(name, (), [address], False)

    def _learn(self, address: str, seconds: float) -> None:
        """Take a board's introduction where it is there within this many seconds."""
        future = self._introductions[address]
        deadline = time.monotonic() + seconds
        while not future.done():
            if time.monotonic() > deadline:
                if seconds:
                    self._note(f"the worker at {address} does not answer, and is not used yet")
                return
            time.sleep(0.02)
        del self._introductions[address]
        try:
            found = self._result(future)
        except EnvironmentProblem as error:
            if self._model is None:
                raise
            self._note(f"the worker at {address} is left out: {error.message}")
            return
        if found is None:
            self._all.pop(address, None)
            return
        board: Board | None = found.value
        if board is None:
            self._note(f"the worker at {address} cannot use its GPU: {found.error or found.defect}")
            return
        differs = [
            f"{name} {board.versions.get(name, 'none')} there, {here} here"
            for name, here in versions().items()
            if board.versions.get(name) != here
        ]
        if differs:
            text = f"the worker at {address} differs: {', '.join(differs)}"
            if self._model is None:
                raise EnvironmentProblem(text, _same_package())
            self._note(f"{text}; it is left out")
            return
        self._all[address] = board
        if self._model is not None:
            self._admit(address, board)

    def _admit(self, address: str, board: Board) -> None:
        """Use a board where it fits the others, else name it and leave it out."""
        reason = self._unfit(board)
        if not reason and (slow := slowness(board, self._known())) > SLOW:
            reason = f"it takes {slow:.2f} times the median of its model in the probe"
            if self._slow_boards:
                self._note(f"{board.label} is slow ({reason}), and is used as you asked")
                reason = ""
            else:
                reason += "; --slow-boards uses it"
        if reason:
            self._note(f"{board.label} is left out: {reason}")
            return
        if board.throttle:
            self._note(f"{board.label} slows itself down ({board.throttle})")
        self._used[address] = board
        self._labels[address] = board.label
        self._send_cubins([address])

    def _known(self) -> list[Board]:
        # A thread of `_restart` may take one out meanwhile.
        return [board for board in list(self._all.values()) if board and not self._unfit(board)]

    def _unfit(self, board: Board) -> str:
        assert self._model is not None
        for label, here, there in zip(SAME, _kind(self._model)[1:], _kind(board)[1:], strict=True):
            if here != there:
                return f"its {label} is {there or 'none'}, that of the others {here or 'none'}"
        return ""

    def _send_cubins(self, addresses: list[str]) -> None:
        """Put what was compiled into the caches of boards that lack it."""
        if not self._built or not addresses:
            return
        try:
            lacking = self._client.run(missing, list(self._built), workers=addresses)
            for address, keys in lacking.items():
                if keys:
                    chosen = [self._built[key] for key in keys]
                    self._client.run(adopt, chosen, workers=[address])
        except Exception:
            logging.getLogger(__name__).debug("cubins were not sent", exc_info=True)
            # The board compiles them itself.


def _kind(board: Board) -> tuple[object, ...]:
    return (board.device.cc, *(board.environment.get(label, "") for label in SAME))


def slowness(board: Board, others: Sequence[Board]) -> float:
    """How many times the median of `others` a board takes in the slower part of its probe. Of an
    even number the lower of the two middle times counts, so that of two boards the slow one shows.
    """
    compute = statistics.median_low([each.compute_us for each in others])
    memory = statistics.median_low([each.memory_us for each in others])
    return max(board.compute_us / compute, board.memory_us / memory)


def _same_package() -> str:
    return f"Install ncu-toolkit {__version__} with the same Python and Dask on every worker"
