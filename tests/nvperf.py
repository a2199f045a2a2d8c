"""The metrics that each chip has, asked of the profiler's own host library: `libnvperf_host.so` in
the ncu-report package. Needs no GPU.

The structures are those of NVIDIA's nvperf_host.h: size of the structure, a private pointer,
arguments, results."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Chips by compute capability, as the library names them.
CHIPS = {
    (7, 0): "gv100",
    (7, 5): "tu102",
    (8, 0): "ga100",
    (8, 6): "ga102",
    (8, 9): "ad102",
    (9, 0): "gh100",
    (10, 0): "gb100",
    (12, 0): "gb202",
}
_KINDS = (0, 1, 2)  # counters, ratios, throughputs
_POINTER, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p


def _parameters(name: str, fields: list[tuple[str, type]]) -> type[ctypes.Structure]:
    return type(
        name,
        (ctypes.Structure,),
        {"_fields_": [("structSize", _SIZE), ("pPriv", _POINTER), *fields]},
    )


_Host = _parameters("Host", [])
_Scratch = _parameters(
    "Scratch", [("chip", _TEXT), ("availability", _POINTER), ("scratch_size", _SIZE)]
)
_Open = _parameters(
    "Open",
    [
        ("scratch", _POINTER),
        ("scratch_size", _SIZE),
        ("chip", _TEXT),
        ("availability", _POINTER),
        ("data", _POINTER),
        ("data_size", _SIZE),
        ("evaluator", _POINTER),
    ],
)
_Names = _parameters(
    "Names",
    [
        ("evaluator", _POINTER),
        ("kind", ctypes.c_uint8),
        ("names", _POINTER),
        ("starts", ctypes.POINTER(_SIZE)),
        ("count", _SIZE),
    ],
)
_Convert = _parameters(
    "Convert",
    [("evaluator", _POINTER), ("metric", _TEXT), ("request", _POINTER), ("request_size", _SIZE)],
)
_Close = _parameters("Close", [("evaluator", _POINTER)])


class _Request(ctypes.Structure):
    _fields_ = (
        ("index", _SIZE),
        ("kind", ctypes.c_uint8),
        ("rollup", ctypes.c_uint8),
        ("submetric", ctypes.c_uint16),
    )


def library_path() -> Path | None:
    """The library beside the report module; None where that is not installed from the package."""
    found = importlib.util.find_spec("ncu_report")
    path = (
        Path(found.origin).parent / "libnvperf_host.so"
        if found is not None and found.origin
        else None
    )
    return path if path is not None and path.is_file() else None


class Chip:
    """One chip's metrics."""

    def __init__(self, library: ctypes.CDLL, evaluator: int) -> None:
        self._library, self._evaluator = library, evaluator

    def names(self) -> frozenset[str]:
        """Base names: counters, ratios and throughputs, without roll-up and submetric."""
        found: set[str] = set()
        for kind in _KINDS:
            answer = call(
                self._library,
                "NVPW_MetricsEvaluator_GetMetricNames",
                _Names(evaluator=self._evaluator, kind=kind),
            )
            found.update(
                ctypes.string_at(answer.names + answer.starts[i]).decode()
                for i in range(answer.count)
            )
        return frozenset(found)

    def has(self, metric: str) -> bool:
        """Whether the chip has a metric by its whole name, roll-up and submetric included."""
        request = _Request()
        question = _Convert(
            evaluator=self._evaluator,
            metric=metric.encode(),
            request=ctypes.addressof(request),
            request_size=12,
        )
        question.structSize = ctypes.sizeof(question)
        return (
            int(
                self._library.NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest(
                    ctypes.byref(question)
                )
            )
            == 0
        )


def call(library: ctypes.CDLL, function: str, parameters: ctypes.Structure) -> ctypes.Structure:
    """Call a function of the library; raises OSError with its name and status where it refuses."""
    parameters.structSize = ctypes.sizeof(parameters)
    status = getattr(library, function)(ctypes.byref(parameters))
    if status != 0:
        raise OSError(f"{function} answered {status}")
    return parameters


@contextmanager
def chip(name: str) -> Iterator[Chip]:
    """The metrics of a chip such as `gh100`."""
    path = library_path()
    assert path is not None
    library = ctypes.CDLL(str(path))
    call(library, "NVPW_InitializeHost", _Host())
    size = call(
        library,
        "NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize",
        _Scratch(chip=name.encode()),
    ).scratch_size
    scratch = ctypes.create_string_buffer(size)
    opened = call(
        library,
        "NVPW_CUDA_MetricsEvaluator_Initialize",
        _Open(scratch=ctypes.addressof(scratch), scratch_size=size, chip=name.encode()),
    )
    try:
        yield Chip(library, opened.evaluator)
    finally:
        call(library, "NVPW_MetricsEvaluator_Destroy", _Close(evaluator=opened.evaluator))
