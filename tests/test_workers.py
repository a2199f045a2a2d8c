"""Work shared between forks of this process."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ncu_toolkit import workers
from ncu_toolkit.errors import InputProblem


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process without other threads, whatever runs the tests."""
    monkeypatch.setattr(threading, "active_count", lambda: 1)


def test_forks_do_everything_once(tmp_path: Path) -> None:
    workers.forked(lambda n: (tmp_path / f"{n}-{os.getpid()}").touch(), range(20), jobs=3, least=2)
    made = [path.name.split("-") for path in tmp_path.iterdir()]
    assert sorted(int(n) for n, _ in made) == list(range(20))
    assert len({pid for _, pid in made}) == 3
    assert str(os.getpid()) not in {pid for _, pid in made}


@pytest.mark.parametrize(("jobs", "threads"), [(1, 1), (8, 1), (8, 2)], ids=["one", "too few items", "other threads"])
def test_what_is_not_worth_a_fork_is_done_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, threads: int) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: threads)
    count = 40 if threads > 1 else 7
    workers.forked(lambda n: (tmp_path / f"{n}-{os.getpid()}").touch(), range(count), jobs=jobs, least=4)
    assert {path.name.split("-")[1] for path in tmp_path.iterdir()} == {str(os.getpid())}
    assert len(list(tmp_path.iterdir())) == count


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


def test_the_collector_is_back_afterwards() -> None:
    import gc

    def work() -> None:
        with workers.without_collector():
            assert not gc.isenabled()
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        work()
    assert gc.isenabled()
