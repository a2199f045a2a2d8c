"""Work shared between forks of this process."""

from __future__ import annotations

import _thread
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import recorded

from ncu_toolkit.base.core import workers
from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, UsageProblem

THREADS = workers._threads


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process without other threads, whatever runs the tests."""
    monkeypatch.setattr(workers, "_threads", lambda: 1)


def test_forks_do_everything_once(tmp_path: Path) -> None:
    workers.forked(lambda n: (tmp_path / f"{n}-{os.getpid()}").touch(), range(20), jobs=3, least=2)
    made = [path.name.split("-") for path in tmp_path.iterdir()]
    assert sorted(int(n) for n, _ in made) == list(range(20))
    assert len({pid for _, pid in made}) == 3
    assert str(os.getpid()) not in {pid for _, pid in made}


@pytest.mark.parametrize(
    ("jobs", "threads"), [(1, 1), (8, 1), (8, 2)], ids=["one", "too few items", "other threads"]
)
def test_what_is_not_worth_a_fork_is_done_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, threads: int
) -> None:
    monkeypatch.setattr(workers, "_threads", lambda: threads)
    count = 40 if threads > 1 else 7
    workers.forked(
        lambda n: (tmp_path / f"{n}-{os.getpid()}").touch(), range(count), jobs=jobs, least=4
    )
    assert {path.name.split("-")[1] for path in tmp_path.iterdir()} == {str(os.getpid())}
    assert len(list(tmp_path.iterdir())) == count


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_threads_of_numpy_do_not_count() -> None:
    """A fork ends those of its OpenBLAS; any other thread stays."""
    code = (
        "import threading, numpy\n"
        "from ncu_toolkit.base.core.workers import _threads\n"
        "print(_threads())\n"
        "stop = threading.Event(); threading.Thread(target=stop.wait).start()\n"
        "print(_threads()); stop.set()\n"
    )
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["1", "2"]


@pytest.mark.slow
def test_errors_come_back() -> None:
    def refuse(n: int) -> None:
        if n == 3:
            raise InputProblem("no", "do")

    def break_down(n: int) -> None:
        if n == 3:
            raise ValueError("odd")

    def die(n: int) -> None:
        if n == 3:
            os._exit(9)

    with pytest.raises(InputProblem, match="no") as refused:
        workers.forked(refuse, range(8), jobs=2)
    assert refused.value.remedy == "do"
    with pytest.raises(RuntimeError, match="ValueError: odd"):
        workers.forked(break_down, range(8), jobs=2)
    with pytest.raises(RuntimeError, match="without an answer"):
        workers.forked(die, range(8), jobs=2)


def test_a_fork_that_never_starts_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_be_worker", lambda *_: os._exit(1))
    with pytest.raises(RuntimeError, match="without an answer"):
        workers.forked(print, range(4), jobs=2)


# ---- forked workers


def whoami(how: str = "") -> tuple[int, str]:
    """A task: the process it runs in and what was prepared there; some end it."""
    if how == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "files":
        return os.getpid(), ",".join(sorted(os.listdir("/proc/self/fd")))
    if how == "full":
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/x")
    if how == "memory":
        raise MemoryError
    if how == "hang":
        time.sleep(600)
    if how == "print":
        os.write(1, b"native chatter")
    return os.getpid(), PREPARED[-1] if PREPARED else ""


PREPARED: list[str] = []


def forked(
    fork: int,
    tasks: list[str],
    jobs: int,
    prepare: Callable[[], object] | None = None,
    **options: bool,
) -> list[workers.Done]:
    with workers.WorkerPool(
        "test_workers:whoami", 60, lambda index: f"task {index}", **options
    ) as made:
        made.fork(fork, prepare)
        return sorted(made.run([(task,) for task in tasks], jobs), key=lambda done: done.index)


def test_forks_are_prepared_and_work() -> None:
    done = forked(2, [""] * 6, 2, lambda: PREPARED.append("ready"))
    assert [d.value[1] for d in done] == ["ready"] * 6
    assert os.getpid() not in {d.value[0] for d in done}
    assert len({d.value[0] for d in done}) == 2
    assert not PREPARED


def test_forks_that_wait_count_and_come_first() -> None:
    with workers.WorkerPool("test_workers:whoami", 60, str) as made:
        made.fork(1, lambda: PREPARED.append("first"))
        made.fork(2, lambda: PREPARED.append("second"))
        made.fork(1, lambda: PREPARED.append("third"))
        done = [*made.run([("",)], 1), *made.run([], 1)]
        assert len(made._all) == 2
    assert [each.value[1] for each in done] == ["first"]


def test_a_fork_that_has_other_threads_makes_none_for_its_tasks() -> None:
    """It is replaced as soon as that is known."""
    done = forked(1, [""], 1, lambda: setattr(workers, "_threads", lambda: 2), fresh=True)
    assert [each.error for each in done] == [None]
    done = forked(1, [""], 1, lambda: PREPARED.append("ready"), fresh=True)
    assert [each.value[1] for each in done] == ["ready"]


def test_forks_return_what_their_work_does() -> None:
    assert workers.forked(lambda n: (n, os.getpid() != os.getppid()), range(5), jobs=2) == [
        (n, True) for n in range(5)
    ]
    assert workers.shared(lambda n: n * n, 7, jobs=3) == [n * n for n in range(7)]
    assert workers.shared(lambda n: n * n, 7, jobs=3, least=4) == [n * n for n in range(7)]
    assert workers.shared(lambda n: n, 0, jobs=3) == []


@pytest.mark.parametrize("forks", [2, 0])
def test_a_new_process_for_every_task(forks: int) -> None:
    """A fork of one that is prepared."""
    tasks = ["", "die", *[""] * 3]
    done = forked(forks, tasks, 2, lambda: PREPARED.append("ready"), fresh=True)
    assert "task 1 ended with signal 11 (SIGSEGV)" in str(done.pop(1).error)
    assert len({d.value[0] for d in done}) == 4
    assert [d.value[1] for d in done].count("ready") >= min(forks, 1) * 2


@pytest.mark.parametrize("fresh", [False, True])
def test_a_worker_that_the_system_ends_for_its_memory_is_no_fault_of_the_file(fresh: bool) -> None:
    (done,) = forked(1, ["kill"], 1, fresh=fresh)
    assert isinstance(done.error, EnvironmentProblem)
    assert "when memory runs out" in str(done.error)


def test_the_end_of_a_fork_costs_one_task() -> None:
    done = forked(2, ["", "die", "print", ""], 2)
    assert "task 1 ended with signal 11 (SIGSEGV)" in str(done[1].error)
    assert all(done[index].error is None for index in (0, 2, 3))


@pytest.mark.parametrize("how", ["dies", "fails"])
def test_what_goes_wrong_while_preparing_costs_nothing(how: str) -> None:
    def prepare() -> None:
        if how == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        raise ValueError("odd")

    done = forked(2, [""] * 4, 2, prepare)
    assert [d.error for d in done] == [None] * 4


def test_a_fork_holds_nothing_open_that_its_maker_has(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w"):
        (done,) = forked(3, ["files"], 1)
    assert len(done.value[1].split(",")) <= 6, (
        "three streams, two pipes, and the folder that is listed"
    )


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="only Linux shows them")
def test_threads_that_python_does_not_know_count() -> None:
    wait, started = threading.Lock(), threading.Lock()
    wait.acquire()
    started.acquire()
    _thread.start_new_thread(lambda: (started.release(), wait.acquire()), ())
    started.acquire()
    try:
        assert THREADS() > threading.active_count()
    finally:
        wait.release()


def test_unused_forks_end_with_their_crew() -> None:
    with workers.WorkerPool("test_workers:whoami", 60, str) as made:
        made.fork(2)
        pids = [worker.pid for worker in made._all]
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_meanwhile_is_called_once() -> None:
    called: list[int] = []
    with workers.WorkerPool("test_workers:whoami", 60, str) as made:
        done = list(made.run([("",)] * 3, 2, lambda: called.append(1)))
    assert len(done) == 3
    assert called == [1]


def test_what_the_machine_lacks_is_no_fault_of_the_file() -> None:
    done = forked(2, ["full", "memory"], 2)
    for each, says in zip(done, ("No space left on device: /tmp/x", "out of memory"), strict=True):
        assert isinstance(each.error, EnvironmentProblem)
        assert says in str(each.error)
        assert "Please report" not in str(each.error)


_MAKER = """
import sys, threading
sys.path[:0] = [{tests!r}, {root!r}]
from ncu_toolkit.base.core import cache, workers
with workers.WorkerPool("test_workers:whoami", 600, str) as made:
    if {fork}:
        made.fork(1)
    threading.Timer(1.0, lambda: print(*[w.pid for w in made._all], flush=True)).start()
    list(made.run([("hang",)], 1))
"""


@pytest.mark.parametrize("fork", [True, False])
def test_a_worker_does_not_outlive_a_maker_that_is_killed(fork: bool) -> None:
    code = _MAKER.format(tests=str(recorded.ROOT / "tests"), root=str(recorded.ROOT), fork=fork)
    maker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    (worker,) = map(int, maker.stdout.readline().split())
    maker.kill()
    maker.wait()
    for _ in range(100):
        if _ended(worker):
            return
        time.sleep(0.05)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("it works on, with nobody to answer to")


def _ended(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


def test_a_time_limit_ends_what_hangs_and_nothing_else() -> None:
    late = UsageProblem("too long")
    with workers.time_limit(60, late):
        pass
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    with pytest.raises(UsageProblem, match="too long"), workers.time_limit(0.05, late):
        time.sleep(60)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
