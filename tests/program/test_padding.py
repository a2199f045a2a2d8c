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

    cpu = float = detach
    is_cuda = True

    def numpy(self) -> Any:
        return np.asarray(self).astype("f4")

    def numel(self) -> int:
        return self.size


_Tensor.__name__ = "Tensor"  # as the recorder knows it


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


def _looks(watch: inside.Batches, frame: FrameType, near: bool = True) -> bool:
    return watch.looks(frame.f_code, frame, near)


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
    assert _looks(watch, forward(0, None, mask))
    found = _read(tmp_path)
    assert found is not None
    assert (found.width, found.elements, found.longest, found.kept) == (16, 32, 10, 8)


def step(batch: Any, given: Any, more: Any = None) -> FrameType:
    return sys._getframe()


def encode(x: Any, mask: Any) -> FrameType:
    return sys._getframe()


_RANDOM = np.random.default_rng(7)
_LENGTHS = np.array([9, 5, 16, 3, 7, 4])


def _batch(lengths: Any = _LENGTHS, width: int = 40, *, left: bool = False) -> tuple[_Tensor, Any]:
    """Features, zeros where there is padding, and which are not."""
    kept = np.arange(width) < np.asarray(lengths)[:, None]
    kept = kept[:, ::-1] if left else kept
    return _tensor(_RANDOM.normal(size=(*kept.shape, 5)) * kept[..., None]), kept


_X, _KEPT = _batch()
_LEFT, _LEFT_KEPT = _batch(left=True)
_IDS = _tensor(np.where(_KEPT, _RANDOM.integers(1, 900, _KEPT.shape), 0))
#: As after an embedding: padding has values too.
_EMBEDDED = _tensor(_RANDOM.normal(size=_X.shape))
#: Scores of attention: what is left out has one value.
_SCORES = _tensor(np.where(np.tri(32)[..., None] > 0, _RANDOM.normal(size=(32, 32, 5)), -1e9))


@pytest.mark.parametrize(
    "frame",
    [
        lambda: step(_X, _tensor(_KEPT)),
        lambda: step(_LEFT, _tensor(_LEFT_KEPT)),
        lambda: step(_X, _tensor(~_KEPT)),
        lambda: step(_X, _tensor(_KEPT[:, None, None])),
        lambda: step(_X, _tensor(_LENGTHS)),
        lambda: step(_IDS, _tensor(_LENGTHS)),
        lambda: step(_X, _IDS),
        lambda: step(_X.transpose(1, 0, 2), _tensor(_LENGTHS)),
        lambda: step(_X.transpose(0, 2, 1), _tensor(_KEPT)),
        lambda: step({"x": _X, "valid": _tensor(_KEPT)}, None),
        lambda: step((_X, _tensor(_KEPT), 3), None),
        lambda: encode(_X, _tensor(_KEPT.astype("f4"))),
    ],
    ids=[
        "a mask", "left", "ones are padding", "broadcast", "lengths", "of tokens", "tokens and features",
        "lengths, time first", "channels first", "in a dict", "in a tuple", "floats",
    ],
)  # fmt: skip
def test_padding_is_known_by_what_arrays_are(
    frame: Any, tmp_path: Path, torch: SimpleNamespace
) -> None:
    watch = inside.Batches(str(tmp_path / "7"), ())
    assert _looks(watch, frame())
    found = _read(tmp_path)
    assert found is not None
    assert (found.width, found.elements, found.longest, found.kept) == (40, 240, 96, 44)


_SQUARE = _tensor(_RANDOM.normal(size=(32, 32, 5)))
_IMAGES = _tensor(_RANDOM.normal(size=(32, 3, 64, 64)))
_SIGNAL = _tensor(_RANDOM.normal(size=(32, 64, 5)))


@pytest.mark.parametrize(
    "frame",
    [
        lambda: encode(_SQUARE, _tensor(np.tri(32, dtype=bool))),
        lambda: encode(_SCORES, _tensor(np.tri(32, dtype=bool))),
        lambda: encode(_SQUARE, _tensor(~np.tri(32, dtype=bool))),
        lambda: encode(_SQUARE, _tensor(np.kron(np.tri(4), np.ones((8, 8))) > 0)),
        lambda: encode(_SIGNAL, _tensor(np.tri(32, 64, 20, dtype=bool))),
        lambda: encode(_SIGNAL, _tensor(np.ones((32, 64), dtype=bool))),
        lambda: encode(_SIGNAL, _tensor(np.arange(64) < _RANDOM.integers(50, 64, 32)[:, None])),
        lambda: encode(_SIGNAL, _tensor(_RANDOM.random((32, 64)) < 0.9)),
        lambda: step(_SIGNAL, _tensor(np.arange(64) < _RANDOM.integers(9, 64, 32)[:, None])),
        lambda: step(_SIGNAL, _tensor(_RANDOM.integers(0, 10, 32))),
        lambda: step(_tensor(_SIGNAL * (_SIGNAL > 1)), _tensor(_RANDOM.integers(0, 10, 32))),
        lambda: step(_IMAGES, _tensor(_RANDOM.integers(0, 10, 32))),
        lambda: step(_IMAGES[:6], _IDS, _tensor(_LENGTHS)),
        lambda: step(_IDS[:, :3].repeat(14, 1), _tensor(np.repeat([[0] * 20 + [1] * 22], 6, 0))),
        lambda: step(_IDS, _tensor(np.repeat([np.arange(40)], 6, 0))),
        lambda: step(_tensor(np.hypot(*np.mgrid[-32:32, -32:32]) < 30), _IMAGES[0].transpose(1, 2, 0)),
        lambda: step(_X, None),
        lambda: step(np.asarray(_X), np.asarray(_KEPT)),
        lambda: encode(_EMBEDDED, _tensor(_KEPT)),
    ],
    ids=[
        "causal", "causal, with scores", "causal, inverted", "causal by blocks", "causal with a past", "all ones", "nearly full",
        "dropout", "shapes alone", "labels", "labels and sparse features", "images", "a small text beside images",
        "token types", "positions", "a field of view", "one array", "of the host", "not filled with one value",
    ],
)  # fmt: skip
def test_what_is_not_padding(frame: Any, tmp_path: Path, torch: SimpleNamespace) -> None:
    watch = inside.Batches(str(tmp_path / "7"), ())
    assert not _looks(watch, frame())
    assert _read(tmp_path) is None


def test_a_cache_is_not_computed(tmp_path: Path, torch: SimpleNamespace) -> None:
    def attend(x: Any, key_cache: Any, lengths: Any) -> FrameType:
        return sys._getframe()

    watch = inside.Batches(str(tmp_path / "7"), ())
    assert not _looks(watch, attend(_X[:, :1], _X, _tensor(_LENGTHS)))
    assert _read(tmp_path) is None


def test_functions_of_packages_are_asked_by_name_alone(
    tmp_path: Path, torch: SimpleNamespace
) -> None:
    watch = inside.Batches(str(tmp_path / "7"), ())
    assert not _looks(watch, step(_X, _tensor(_KEPT)), near=False)
    assert _looks(watch, forward(0, _rows(5, 3)), near=False)


def test_what_jax_compiles_is_asked_each_time(tmp_path: Path, torch: SimpleNamespace) -> None:
    def cache_miss(*args: Any, **kwargs: Any) -> FrameType:
        return sys._getframe()

    watch = inside.Batches(str(tmp_path / "7"), ())
    assert _looks(watch, cache_miss(3), near=False)
    assert _looks(watch, cache_miss([0], _X, _tensor(_KEPT)), near=False)
    found = _read(tmp_path)
    assert found is not None
    assert (found.mask, found.kept) == ("args of jax.jit", 44)


def test_names_of_modules_and_classes_stay(tmp_path: Path, torch: SimpleNamespace) -> None:
    watch = inside.Batches(str(tmp_path / "7"), ())
    code = "import sys\nlook(sys._getframe())\nclass C:\n    a = 1\n    look(sys._getframe())\n"
    names: dict[str, Any] = {"look": lambda frame: _looks(watch, frame), "x": _X, "mask": _KEPT}
    exec(code, names)
    assert {"look", "x", "mask", "sys", "C"} <= {*names}
    assert names["C"].a == 1


def test_a_function_keeps_its_arguments(tmp_path: Path, torch: SimpleNamespace) -> None:
    watch = inside.Batches(str(tmp_path / "7"), ())

    def forward(x: Any, mask: Any) -> Any:
        inner = lambda: (x, mask)  # noqa: E731
        looked = _looks(watch, sys._getframe())
        return looked, inner()[0] is x, locals()["mask"] is mask

    assert forward(_X, _tensor(_KEPT)) == (True, True, True)


def test_a_few_calls_are_read(tmp_path: Path, torch: SimpleNamespace) -> None:
    watch = inside.Batches(str(tmp_path / "7"), ())
    reads = []
    for _ in range(40):
        _looks(watch, step(_SIGNAL, _tensor(_RANDOM.integers(0, 10, 32))))
        reads.append(watch.reads)
    assert reads[-1] == 0
    assert not _looks(watch, step(_X, _tensor(_KEPT)))


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
    own = {id(each.__code__) for each in (forward, other, _inner, _user, _busy_user)}
    return inside.Results(
        str(tmp_path / "7"), monitoring, own, inside.Batches(str(tmp_path / "7"), ())
    )


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


def test_a_single_number_says_nothing(results: inside.Results, tmp_path: Path) -> None:
    """A loss may be the same for some steps."""
    for _ in range(8):
        _returns(results, forward.__code__, _tensor([1.0]))
    assert not _rows_of(results, tmp_path)


def test_results_are_written_where_there_are_new_ones(
    results: inside.Results, tmp_path: Path
) -> None:
    for _ in range(2):
        _returns(results, forward.__code__, _tensor([1.0, 2.0]))
    assert len(_rows_of(results, tmp_path)) == 1
    (tmp_path / "7.results").unlink()
    results.write()
    assert not [*tmp_path.iterdir()]


def _package(watch: inside.Results, value: Any) -> Any:
    return watch._returned(_package.__code__, 0, value)


def _user(watch: inside.Results, value: Any) -> Any:
    return _package(watch, value)


def _busy_user(watch: inside.Results, value: Any) -> Any:
    return _package(watch, _tensor(value))


def test_a_line_that_calls_a_package_is_compared(results: inside.Results, tmp_path: Path) -> None:
    fixed = np.arange(500.0)
    near = fixed * (1 + 1e-9 * np.arange(500))
    assert {_user(results, _tensor(fixed if at % 3 else near)) for at in range(9)} == {None}
    (row,) = _rows_of(results, tmp_path)
    line = _user.__code__.co_firstlineno + 1
    assert row == Result("_package", __file__, line, line, 8, True)


def test_a_line_that_does_more_is_not_compared(results: inside.Results, tmp_path: Path) -> None:
    for at in range(8):
        _busy_user(results, np.arange(500.0) + at)
    assert not _rows_of(results, tmp_path)


def test_packages_are_compared_where_the_user_calls_them(
    results: inside.Results, tmp_path: Path
) -> None:
    for at in range(4):
        _package(results, _tensor(np.arange(500.0)))
        _user(results, _tensor(np.arange(500.0) + at))
    (row,) = _rows_of(results, tmp_path)
    assert (row.calls, row.same) == (2, False)


def test_a_package_is_left_alone_after_many_calls(results: inside.Results) -> None:
    answers = [_user(results, _tensor([3.0])) for _ in range(70)]
    assert answers.count(_STOP) == 70 - inside._RETURNS
    assert _user(results, "no array") is _STOP


def test_what_a_package_returns_may_be_padded(
    results: inside.Results, torch: SimpleNamespace, tmp_path: Path
) -> None:
    _user(results, (_X, _tensor(_KEPT)))
    found = _read(tmp_path)
    assert found is not None
    assert (found.mask, found.kept) == ("result of _package", 44)
    assert found.line.startswith("test_padding.py:")


def test_an_array_of_zeros_says_nothing(results: inside.Results, tmp_path: Path) -> None:
    for at in range(4):
        value = np.zeros(6400)
        value[at + 1] = 1
        _returns(results, forward.__code__, _tensor(value))
    assert not _rows_of(results, tmp_path)


def test_results_that_differ_are_not_looked_at_again(
    results: inside.Results, tmp_path: Path
) -> None:
    code = forward.__code__
    wanted = [_returns(results, code, {"x": _tensor(np.arange(500.0) + at)}) for at in range(8)]
    assert wanted == [None] * 7 + [_STOP]  # lines that call it may come later
    assert [(row.calls, row.same) for row in _rows_of(results, tmp_path)] == [(2, False)]


@pytest.mark.parametrize("value", [None, 3.0, "text", np.arange(9), ()])
def test_what_is_no_array_of_a_gpu_is_left_alone(
    value: object, results: inside.Results, tmp_path: Path
) -> None:
    assert _returns(results, forward.__code__, value) is _STOP
    assert not _rows_of(results, tmp_path)


def test_a_function_is_compared_by_the_line_that_calls_it(
    results: inside.Results, tmp_path: Path
) -> None:
    """The features of the same images at one line, of other ones at the next."""
    answers = [each for at in range(8) for each in _inner(results, at)]
    same, others = _rows_of(results, tmp_path)
    line = _inner.__code__.co_firstlineno + 1
    assert (same.function, same.same, same.calls) == ("other", True, 8)
    assert (others.function, others.same, others.calls) == ("other", False, 2)
    assert [same.caller, others.caller] == [f"{__file__}:{line}", f"{__file__}:{line + 1}"]
    assert answers == [None] * 14 + [_STOP] * 2


def _inner(watch: inside.Results, at: int) -> list[Any]:
    same = _returns(watch, other.__code__, _tensor(np.arange(500.0)))
    return [same, _returns(watch, other.__code__, _tensor(np.arange(500.0) + at))]


def test_a_function_is_compared_at_four_lines(results: inside.Results, tmp_path: Path) -> None:
    value = _tensor(np.arange(500.0))
    lines = "\n".join(["    returns(value)"] * 9)
    scope: dict[str, Any] = {}
    exec(compile(f"def calls(returns, value):\n{lines}", "calls.py", "exec"), scope)
    results.known.add(id(scope["calls"].__code__))
    for _ in range(40):
        scope["calls"](lambda given: _returns(results, other.__code__, given), value)
    rows = _rows_of(results, tmp_path)
    assert [each.caller for each in rows] == [f"calls.py:{at}" for at in (2, 3, 4, 5)]
    assert {each.calls for each in rows} == {8}
    assert results.returns[id(other.__code__)] == 40 * 9


#: A program, `train.py`: `main` calls `step`, which calls `encode` at two lines. What it does, by
#: nanosecond: the function and line, as recorder.c writes them.
_MAIN, _STEP, _ENCODE = 11, 22, 33
_WENT = (
    (_MAIN, 5), (_MAIN, 6), (_STEP, 20), (_ENCODE, 30), (_ENCODE, 31), (_STEP, 20), (_STEP, 21),
    (_ENCODE, 30), (_ENCODE, 31), (_STEP, 21), (_MAIN, 6), (_ENCODE, 30), (_MAIN, 8), (0, 0), (_ENCODE, 30),
)  # fmt: skip


def _went(folder: Path, compared: bool = True) -> list[Any]:
    layout: Any = [("at", "<i8"), ("code", "<u8"), ("thread", "<u4"), ("line", "<u4")]
    rows = [(at, code, 7, line) for at, (code, line) in enumerate(_WENT)]
    (folder / "7.lines").write_bytes(np.array(rows, layout).tobytes())
    (folder / "7.places").write_text(f"{_MAIN} main.py\n{_STEP} step.py\n{_ENCODE} net.py\n")
    if compared:
        (folder / "7.results").touch()
    lines = recorder._lines(recorder.RecordedProcess(7, folder / "7"))
    return [[f"{file}:{line}" for file, line in lines(at, 7)] for at in range(len(_WENT))]


def test_a_launch_has_the_lines_that_called_one_another(tmp_path: Path) -> None:
    went = _went(tmp_path)
    assert went[:3] == [["main.py:5"], ["main.py:6"], ["main.py:6", "step.py:20"]]
    assert went[4] == ["main.py:6", "step.py:20", "net.py:31"]
    assert went[5:7] == [["main.py:6", "step.py:20"], ["main.py:6", "step.py:21"]]
    assert went[8] == ["main.py:6", "step.py:21", "net.py:31"]
    assert went[10:] == [
        ["main.py:6"],
        ["main.py:6", "net.py:30"],
        ["main.py:8"],
        [],
        ["net.py:30"],
    ]


def test_without_results_a_launch_has_its_own_line_alone(tmp_path: Path) -> None:
    assert _went(tmp_path, compared=False)[4] == ["net.py:31"]


def test_results_while_a_graph_is_captured_are_not_read(
    results: inside.Results, torch: SimpleNamespace, tmp_path: Path
) -> None:
    torch.cuda.is_current_stream_capturing = lambda: True
    assert _returns(results, forward.__code__, _tensor([1.0, 2.0])) is None
    assert not _rows_of(results, tmp_path)


def test_a_program_goes_on_where_results_cannot_be_read(
    results: inside.Results, torch: SimpleNamespace, tmp_path: Path
) -> None:
    del torch.cuda.is_initialized
    assert _returns(results, forward.__code__, _tensor([1.0, 2.0])) is _STOP
    assert not _rows_of(results, tmp_path)


def test_names_of_the_user_are_redacted_alike(tmp_path: Path, torch: SimpleNamespace) -> None:
    """The file of a function stays that of its lines."""
    made = programs.Machine("train.py")
    for _ in range(6):
        made.launch(programs.MUL, 100.0, line="/home/ada/train.py:12")
    trace = msgspec.structs.replace(
        made.trace(),
        results=(Result("step", "/home/ada/train.py", 10, 20, 8, True, "/home/ada/train.py:3"),),
        padding=Padding("attention_mask of forward", "/home/ada/train.py:12", 4, 16, 8, 6),
    )
    plain = redacted(trace)
    assert plain.padding is not None
    assert plain.results[0].file + ":12" == plain.lines[0] == plain.padding.line
    assert plain.results[0].caller == plain.results[0].file + ":3"
    assert "ada" not in plain.lines[0]


def test_locals_of_a_users_function_may_be_padded(
    results: inside.Results, torch: SimpleNamespace, tmp_path: Path
) -> None:
    """Where a package's function is behind a wrapper that Python has seen before."""
    dense, _valid = _X, _tensor(_KEPT)
    own = sys._getframe().f_code
    results.known.add(id(own))
    assert results._returned(own, 0, _tensor(dense.sum(1))) is None
    found = _read(tmp_path)
    assert found is not None
    assert (found.mask.split()[0], found.kept) == ("_valid", 44)
