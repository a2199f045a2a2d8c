"""How cuBLASLt is called: what it is told of the matrices, and which of its algorithms is taken."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from ncu_toolkit.base.core.errors import EnvironmentProblem, KernelProblem
from ncu_toolkit.kernel.ladder import turns
from ncu_toolkit.kernel.ladder.problems._cublaslt import Operand, fastest

FLOAT32 = 0


def value(argument: Any) -> Any:
    """What a scalar or a pointer made by byref holds."""
    argument = getattr(argument, "_obj", argument)
    return getattr(argument, "value", argument)


class Library:
    """cuBLASLt that notes its calls. Its algorithm i takes `times[i]` microseconds."""

    def __init__(self, times: list[float], status: int = 0) -> None:
        self.calls: list[tuple[str, list[Any]]] = []
        self.times, self.status, self.clock = times, status, 0.0
        self.ran: list[int] = []

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append((name, [value(each) for each in arguments]))
            if name == "cublasLtMatmulAlgoGetHeuristic":
                for index in range(len(self.times)):
                    arguments[8][index].algorithm[0] = index
                arguments[9]._obj.value = len(self.times)
            if name == "cublasLtMatmul":
                index = arguments[12]._obj.algorithm[0]
                self.ran.append(index)
                self.clock += self.times[index]
                return self.status
            return 0

        return call

    def of(self, name: str) -> list[list[Any]]:
        return [arguments for called, arguments in self.calls if called == name]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library([30.0, 20.0, 25.0])
    monkeypatch.setattr(ctypes, "CDLL", lambda name: made)
    monkeypatch.setattr(turns.time, "sleep", lambda seconds: None)
    return made


def cupy_of(library: Library) -> Any:
    class Event:
        def record(self) -> None:
            self.at = library.clock

        def synchronize(self) -> None: ...

    class Array(numpy.ndarray):
        @property
        def data(self) -> Any:  # type: ignore[override]
            return SimpleNamespace(ptr=1)

    return SimpleNamespace(
        cuda=SimpleNamespace(
            device=SimpleNamespace(get_cublas_handle=lambda: 0),
            runtime=SimpleNamespace(runtimeGetVersion=lambda: 13000),
            get_current_stream=lambda: SimpleNamespace(ptr=0),
            get_elapsed_time=lambda start, end: (end.at - start.at) / 1e3,
            Event=Event,
        ),
        uint8=numpy.uint8,
        empty=lambda count, dtype: numpy.empty(1, dtype).view(Array),
        zeros=lambda shape: numpy.zeros(shape, numpy.float32).view(Array),
    )


def test_matrices_are_reported_as_a_library_counts_them_and_the_fastest_algorithm_runs(
    library: Library,
) -> None:
    """C^T = B^T A^T, by columns; B that is held transposed, with longer rows, is turned."""
    cp = cupy_of(library)
    a, b, c = (Operand(cp.zeros(shape), FLOAT32) for shape in ((2, 5), (5, 3), (2, 3)))
    run = fastest(cp, (2, 3, 5), a, b, c)
    layouts = [each[2:] for each in library.of("cublasLtMatrixLayoutCreate")]
    assert layouts == [[3, 5, 3], [5, 2, 5], [3, 2, 3]]
    preferred = [each[1:3] for each in library.of("cublasLtMatmulPreferenceSetAttribute")]
    assert preferred[1] == [3, 2], "parts are added up in float32"
    library.ran.clear()
    run()
    assert library.ran == [1]

    library.calls.clear()
    held = Operand(cp.zeros((3, 8)), FLOAT32, transposed=True)
    fastest(cp, (2, 3, 5), a, held, c)
    layouts = [each[2:] for each in library.of("cublasLtMatrixLayoutCreate")]
    assert layouts[0] == [5, 3, 8]
    turned = [each[1:3] for each in library.of("cublasLtMatmulDescSetAttribute")]
    assert turned == [[3, 1], [4, 0]]


def test_no_algorithm_and_a_failed_call_are_reported(library: Library) -> None:
    cp = cupy_of(library)
    operands = [Operand(cp.zeros((4, 4)), FLOAT32) for _ in range(3)]
    library.times = []
    with pytest.raises(EnvironmentProblem, match="no algorithm for 4x4x4"):
        fastest(cp, (4, 4, 4), *operands)
    library.times, library.status = [1.0], 13
    with pytest.raises(KernelProblem, match="failed with status 13 at 4x4x4"):
        fastest(cp, (4, 4, 4), *operands)()
