"""What the recorder's Python part sees of masks and of results. PyTorch is not here: its tensors are
NumPy's."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import program_traces as programs
import pytest

from ncu_toolkit.program.model import Padding, Result
from ncu_toolkit.program.recording import recorder
from ncu_toolkit.program.recording.inside import python as inside
from ncu_toolkit.program.recording.step_run import redacted
from ncu_toolkit.program.traces.builder import TraceBuilder


class _Tensor(np.ndarray):
    """What is asked of a tensor and has another name in NumPy."""

    def dim(self) -> int:
        return self.ndim

    def is_floating_point(self) -> bool:
        return self.dtype.kind == "f"

    def detach(self) -> _Tensor:
        return self

    cpu = detach
    is_cuda = True

    def numel(self) -> int:
        return self.size


def _tensor(values: Any) -> _Tensor:
    return np.asarray(values).view(_Tensor)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        is_current_stream_capturing=lambda: False,
        current_stream=lambda: None,
        stream=lambda _: contextlib.nullcontext(),
    )
    made = SimpleNamespace(Tensor=_Tensor, cuda=cuda, nn=SimpleNamespace(Parameter=_Tensor))
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def forward(input_ids: Any, attention_mask: Any = None, key_padding_mask: Any = None) -> FrameType:
    return sys._getframe()


def other(values: Any) -> FrameType:
    return sys._getframe()


def _rows(*lengths: int, width: int = 16) -> _Tensor:
    return _tensor([[int(at < length) for at in range(width)] for length in lengths])


def _read(folder: Path) -> Padding | None:
    builder = TraceBuilder()
    recorder._add_arrays(builder, folder)
    return builder.padding


def _looks(watch: inside.Batches, frame: FrameType) -> bool:
    return watch.looks(frame.f_code, frame)


def test_the_first_batches_of_the_first_function_with_a_mask(
    tmp_path: Path, torch: SimpleNamespace
) -> None:
    watch = inside.Batches(str(tmp_path / "7"), ("site-packages",))
    assert not _looks(watch, other(_rows(3)))
    wanted = [_looks(watch, forward(0, _rows(5, 3))) for _ in range(6)]
    assert wanted == [True, True, True, False, False, False]
    found = _read(tmp_path)
    assert found is not None
    assert (found.width, found.elements, found.longest, found.kept) == (16, 128, 40, 32)
    assert found.mask == "attention_mask of forward"
    assert found.line.startswith("test_padding.py:")


def test_a_mask_of_padding_says_what_does_not_count(tmp_path: Path, torch: SimpleNamespace) -> None:
    watch = inside.Batches(str(tmp_path / "7"), ())
    mask = _tensor(np.asarray(_rows(5, 3)) == 0)
    assert not _looks(watch, forward(0, None, mask)), "the first mask of a function counts"
    named = {"key_padding_mask": mask}
    assert inside._full(torch, named, "key_padding_mask") == [16, 32, 10, 8]


@pytest.mark.parametrize(
    "mask",
    [
        None,
        _tensor(np.ones((2, 16), dtype=np.float32)),
        _tensor(np.ones((2, 1, 16, 16), dtype=np.int64)),
        _tensor(np.abs(np.subtract.outer(np.arange(16), np.arange(16))) < 3),
        _tensor(np.ones((0, 16), dtype=np.int64)),
    ],
    ids=["none", "added to scores", "by pair", "a band", "empty"],
)
def test_other_masks_are_left_alone(
    mask: _Tensor | None, tmp_path: Path, torch: SimpleNamespace
) -> None:
    watch = inside.Batches(str(tmp_path / "7"), ())
    assert not _looks(watch, forward(0, mask))
    assert _read(tmp_path) is None


def test_a_capture_is_not_disturbed(tmp_path: Path, torch: SimpleNamespace) -> None:
    torch.cuda.is_current_stream_capturing = lambda: True
    watch = inside.Batches(str(tmp_path / "7"), ())
    assert _looks(watch, forward(0, _rows(5))), "a later call may not be captured"
    assert _read(tmp_path) is None


def test_a_program_goes_on_whatever_fails(tmp_path: Path, torch: SimpleNamespace) -> None:
    del torch.cuda.is_initialized
    watch = inside.Batches(str(tmp_path / "7"), ())
    assert not _looks(watch, forward(0, _rows(5)))
    assert _read(tmp_path) is None


def test_a_line_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "7.padding").write_text('["a of b", "t.py:3", 16, 32, 10, 8]\n["a of b", "t.')
    found = _read(tmp_path)
    assert found is not None
    assert (found.line, found.kept) == ("t.py:3", 8)


_STOP = object()


@pytest.fixture
def results(tmp_path: Path, torch: SimpleNamespace) -> inside.Results:
    monitoring = SimpleNamespace(
        DISABLE=_STOP,
        events=SimpleNamespace(PY_RETURN=1),
        get_tool=lambda _: None,
        use_tool_id=lambda *_: None,
        register_callback=lambda *_: None,
    )
    return inside.Results(str(tmp_path / "7"), monitoring)


def _returns(watch: inside.Results, code: CodeType, value: Any) -> Any:
    """As Python calls it: from the frame of the function that returns."""
    return watch._returned(code, 0, value)


def _rows_of(watch: inside.Results, folder: Path) -> list[Result]:
    watch.write()
    builder = TraceBuilder()
    recorder._add_arrays(builder, folder)
    return builder.results


def test_results_are_compared_at_four_of_eight_calls(
    results: inside.Results, tmp_path: Path
) -> None:
    code = forward.__code__
    wanted = [_returns(results, code, (_tensor(np.arange(500.0)), 3)) for _ in range(8)]
    assert wanted == [None] * 7 + [_STOP]
    (row,) = _rows_of(results, tmp_path)
    assert (row.function, row.calls, row.same) == ("forward", 8, True)
    assert row.file == __file__
    assert row.first == code.co_firstlineno
    assert row.last > row.first


def test_results_are_written_where_there_are_new_ones(
    results: inside.Results, tmp_path: Path
) -> None:
    for _ in range(2):
        _returns(results, forward.__code__, _tensor([1.0]))
    assert len(_rows_of(results, tmp_path)) == 1
    (tmp_path / "7.results").unlink()
    results.write()
    assert not [*tmp_path.iterdir()]


def test_results_that_differ_are_not_looked_at_again(
    results: inside.Results, tmp_path: Path
) -> None:
    code = forward.__code__
    assert _returns(results, code, {"x": _tensor(np.arange(500.0))}) is None
    assert _returns(results, code, {"x": _tensor(np.arange(500.0) + 1)}) is _STOP
    assert [(row.calls, row.same) for row in _rows_of(results, tmp_path)] == [(2, False)]


@pytest.mark.parametrize("value", [None, 3.0, "text", np.arange(9), ()])
def test_what_is_no_array_of_a_gpu_is_left_alone(
    value: object, results: inside.Results, tmp_path: Path
) -> None:
    assert _returns(results, forward.__code__, value) is _STOP
    assert not _rows_of(results, tmp_path)


def test_a_function_that_was_running_is_noted(results: inside.Results, tmp_path: Path) -> None:
    for _ in range(8):
        _inner(results)
        _returns(results, _inner.__code__, _tensor([1.0]))
    inner, outer = _rows_of(results, tmp_path)
    assert (inner.function, inner.within) == ("other", (1,))
    assert (outer.function, outer.within) == ("_inner", ())


def _inner(results: inside.Results) -> None:
    results_of_other = _tensor([2.0])

    def other_returns() -> None:
        _returns(results, other.__code__, results_of_other)

    other_returns()


def test_results_while_a_graph_is_captured_are_not_read(
    results: inside.Results, torch: SimpleNamespace, tmp_path: Path
) -> None:
    torch.cuda.is_current_stream_capturing = lambda: True
    assert _returns(results, forward.__code__, _tensor([1.0])) is None
    assert not _rows_of(results, tmp_path)


def test_a_program_goes_on_where_results_cannot_be_read(
    results: inside.Results, torch: SimpleNamespace, tmp_path: Path
) -> None:
    del torch.cuda.is_initialized
    assert _returns(results, forward.__code__, _tensor([1.0])) is _STOP
    assert not _rows_of(results, tmp_path)


def test_names_of_the_user_are_redacted_alike(tmp_path: Path, torch: SimpleNamespace) -> None:
    """The file of a function stays that of its lines."""
    made = programs.Machine("train.py")
    for _ in range(6):
        made.launch(programs.MUL, 100.0, line="/home/ada/train.py:12")
    trace = msgspec.structs.replace(
        made.trace(),
        results=(Result("step", "/home/ada/train.py", 10, 20, 8, True, ()),),
        padding=Padding("attention_mask of forward", "/home/ada/train.py:12", 4, 16, 8, 6),
    )
    plain = redacted(trace)
    assert plain.padding is not None
    assert plain.results[0].file + ":12" == plain.lines[0] == plain.padding.line
    assert "ada" not in plain.lines[0]
