"""Where tasks run: in this process and on its GPU, or elsewhere (`cluster.py`). Every executor calls
the same functions with the same tasks."""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from ncu_toolkit.base.core.errors import EnvironmentProblem, ToolkitError
from ncu_toolkit.base.core.workers import Done
from ncu_toolkit.base.model import Device
from ncu_toolkit.kernel.build import nvcc
from ncu_toolkit.kernel.build.toolchain import toolchain_description
from ncu_toolkit.kernel.gpu import collect, cuda
from ncu_toolkit.kernel.gpu.selection import Cases
from ncu_toolkit.kernel.ladder.catalogue import find_rung

P = ParamSpec("P")
R = TypeVar("R")
#: Labels of a run's environment that must not change within a run.
SAME: Final = ("GPU", "Driver", "CUDA runtime", "CuPy", "Compiler", "ncu")


#: Arguments of one function, one call each.
Tasks = Iterable[tuple[Any, ...]]


class Reporter(Protocol):
    """Where tasks and stages report progress."""

    def stage(self, title: str, total: int) -> None:
        """A stage of `total` steps begins."""

    def step(self, label: str) -> None:
        """One step of the stage is done."""

    def doing(self, label: str) -> None:
        """What is under way; called several times a second."""

    def note(self, text: str) -> None:
        """Something the user should know."""


class Executor:
    """Where tasks run: this process and its GPU, one task after another."""

    @property
    def boards(self) -> int:
        """GPUs of a cluster that measure at once; 0 where tasks run in this process."""
        return 0

    def device(self) -> Device:
        """The model of the GPUs."""
        return cuda.device()

    def environment(self) -> Mapping[str, str]:
        """Labels and values of the machines."""
        return machine()

    def uuid(self) -> str:
        """The GPU's UUID where there is only one, else empty."""
        return cuda.gpu_uuid()

    def ncu(self) -> str:
        """The version of the ncu there. Raises EnvironmentProblem where there is none."""
        return collect.find_ncu().version

    def works(self) -> bool:
        """Whether tasks can still use the GPU, whatever earlier ones did to its context."""
        return cuda.context_works()

    def place(self, path: Path) -> Path | None:
        """`path` where tasks can write there; None where they need their own folder."""
        return path

    def pieces(self, cases: Cases) -> list[Cases]:
        """Cases in pieces for a task each."""
        return [cases]

    def run(
        self, function: Callable[..., Any], tasks: Tasks, reporter: Reporter | None = None
    ) -> Iterator[Done]:
        """Call `function` with each task's arguments, on a GPU; results come as they are ready. A
        task is taken from `tasks` only when it can be started. `reporter` is passed on by its name
        where it is given. Raises Exception: whatever else than a ToolkitError a task raised in this
        process; whatever `tasks` raised, after the results of those under way."""
        cuda.disable_tf32()
        named = {} if reporter is None else {"reporter": reporter}
        for index, task in enumerate(tasks):
            try:
                done = Done(index, function(*task, **named))
            except ToolkitError as error:
                done = Done(index, error=error)
            yield done

    def build(
        self, requests: Sequence[nvcc.BuildRequest], progress: nvcc.OnBuilt, jobs: int | None = None
    ) -> list[nvcc.BuildOutcome]:
        """Compile: see `nvcc.build_many`. Needs no GPU."""
        return nvcc.build_many(requests, progress, jobs)


HERE: Final = Executor()


def machine() -> dict[str, str]:
    """Labels and values of this machine: GPU, driver, CUDA, compiler."""
    return {**cuda.environment(), "Compiler": toolchain_description()}


_KEPT_HERE: Final[list[Callable[[], None]]] = []


def kept_here(make: Callable[P, R]) -> Callable[P, R]:
    """Keep what the last call made in this process, until `forget`."""
    kept = lru_cache(maxsize=1)(make)
    _KEPT_HERE.append(kept.cache_clear)
    return kept  # type: ignore[return-value]  # called with hashable arguments only


def forget() -> None:
    """Give back what tasks before this one keep in this process."""
    for clear in _KEPT_HERE:
        clear()


def check_source(name: str, source: str) -> None:
    """Raise EnvironmentProblem where this machine's code of a rung differs from the client's."""
    if source and nvcc.source_digest(find_rung(name)) != source:
        raise EnvironmentProblem(
            f"the code of {name} on {socket.gethostname()} differs from the client's",
            "Install the same ncu-toolkit on both",
        )
