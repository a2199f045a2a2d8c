"""The attention family on NumPy: sizes, inputs, reference and tolerance, the cuDNN call, and the
order of tiles and tickets of the top rung."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from family_sizes import verified_sizes

from ncu_toolkit.base.core.errors import EnvironmentProblem, UsageProblem
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.kernel.gpu import runner
from ncu_toolkit.kernel.gpu.selection import case_of
from ncu_toolkit.kernel.ladder import catalogue
from ncu_toolkit.kernel.ladder.problems import Case, Size, compare
from ncu_toolkit.kernel.ladder.problems.attention import PROBLEM, batch, heads
from ncu_toolkit.kernel.ladder.problems.base import from_bits, to_bits

DTYPE = "bfloat16"


def inputs_of(size: Size, seed: int = 3) -> dict[str, np.ndarray]:
    return PROBLEM.make_inputs(Case(size, DTYPE, xp=np), seed, ("Q", "K", "V"))


def attend(
    size: Size,
    inputs: dict[str, np.ndarray],
    round_powers: bool = False,
    scale: float = 1.0,
    shift: int = 0,
    skip: slice | None = None,
) -> np.ndarray:
    """The formula in float64 for all heads at once, with defects to plant."""
    shape = (heads(size), size["N"], size["D"])
    q, k, v = (
        from_bits(np, inputs[name], DTYPE).astype(np.float64).reshape(shape) for name in "QKV"
    )
    scores = q @ k.transpose(0, 2, 1) * (scale / math.sqrt(size["D"]))
    rows, columns = np.indices(scores.shape[1:])
    if size["mask"] == 2:
        scores[:, columns > rows + shift] = -np.inf
    if skip is not None:
        scores[:, :, skip] = -np.inf
    powers = np.exp(scores - scores.max(axis=2, keepdims=True))
    total = powers.sum(axis=2, keepdims=True)
    if round_powers:
        bits = to_bits(np, powers.astype(np.float32), DTYPE)
        powers = from_bits(np, bits, DTYPE).astype(np.float64)
    return (powers @ v / total).reshape(-1, shape[2])


def stored(values: np.ndarray) -> np.ndarray:
    """As a kernel's output is decoded: rounded to the dtype."""
    return from_bits(np, to_bits(np, values.astype(np.float32), DTYPE), DTYPE)


@pytest.mark.parametrize(
    ("text", "label", "dims"),
    [
        ("4096x64", "4096x64", (4096, 64, 1)),
        ("4096", "4096x128", (4096, 128, 1)),
        (" 77 x 64 x Causal ", "77x64xcausal", (77, 64, 2)),
        ("1024xcausal", "1024x128xcausal", (1024, 128, 2)),
    ],
)
def test_a_size_is_tokens_head_size_and_mask(
    text: str, label: str, dims: tuple[int, int, int]
) -> None:
    size = PROBLEM.parse_size(text)
    assert (size.label, tuple(size.as_dict().values())) == (label, dims)
    assert PROBLEM.parse_size(size.label) == size


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("causal", "is not a size of attention"),
        ("4096x128x2", "is not a size of attention"),
        ("fast", "is not a size of attention"),
        ("4096x96", "no head size 96"),
        ("0x64", "too small"),
        ("2097152x64", "too large"),
    ],
)
def test_other_sizes_are_refused(text: str, says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        PROBLEM.parse_size(text)


def test_long_sequences_make_up_the_same_work() -> None:
    for text, sequences, count in (("1024x128", 16, 256), ("16384x64", 1, 32), ("200x64", 1, 3)):
        size = PROBLEM.parse_size(text)
        assert (batch(size), heads(size)) == (sequences, count)
    full, causal = (
        PROBLEM.flops(Case(PROBLEM.parse_size(f"4096x128{m}"), PROBLEM.dtypes[0]))
        for m in ("", "xcausal")
    )
    assert full == 4 * 4096 * 4096 * 128 * 64
    assert causal / full == pytest.approx(0.5, rel=1e-3)


def test_the_head_size_is_compiled_in() -> None:
    assert PROBLEM.macros(DTYPE)["HEAD_SIZE"] == "128"
    assert PROBLEM.macros(DTYPE, PROBLEM.parse_size("1x64")) == {
        "ELEM_BFLOAT16": "1",
        "HEAD_SIZE": "64",
    }


def test_each_head_size_is_built() -> None:
    rung = catalogue.find_rung("attention_mma")
    texts = ("512x64", "512x64xcausal", "512x128")
    cases = [case_of(rung, PROBLEM.parse_size(text), DTYPE) for text in texts]
    seen: list[str] = []

    def build(requests: list[Any], _: Any) -> list[Any]:
        seen.extend(request.macros["HEAD_SIZE"] for request in requests)
        return []

    executor: Any = SimpleNamespace(device=lambda: SimpleNamespace(arch="sm_90"), build=build)
    reporter: Any = SimpleNamespace(stage=lambda title, total: None)
    runner.build_all(runner.Session(Run("", "", ""), Path()), cases, reporter, executor)
    assert seen == ["64", "128"]


@pytest.mark.parametrize("text", ["1x64", "7x64xcausal", "129x64", "150x128xcausal"])
def test_right_results_pass(text: str) -> None:
    size = PROBLEM.parse_size(text)
    inputs = inputs_of(size)
    expected = PROBLEM.reference(Case(size, DTYPE, xp=np), inputs)["O"]
    assert np.allclose(expected.values, attend(size, inputs), atol=1e-12)
    for rounded in (False, True):
        result = compare(np, "O", stored(attend(size, inputs, rounded)), expected)
        assert result.passed, result.message
    assert expected.bound.max() < 0.05


@pytest.mark.parametrize("text", ["150x64xcausal", "200x128"])
def test_wrong_results_fail(text: str) -> None:
    size = PROBLEM.parse_size(text)
    inputs = inputs_of(size)
    expected = PROBLEM.reference(Case(size, DTYPE, xp=np), inputs)["O"]
    right = attend(size, inputs)
    one, unwritten = right.copy(), right.copy()
    one[-1, -1] += 0.05
    unwritten[1, 2] = np.nan
    wrong = {
        "no scale": attend(size, inputs, scale=math.sqrt(size["D"])),
        "a block of keys left out": attend(size, inputs, skip=slice(64, 128)),
        "one key left out": attend(size, inputs, skip=slice(100, 101)),
        "another head's values": np.roll(right, size["N"], axis=0),
        "one element": one,
        "unwritten": unwritten,
    }
    if size["mask"] == 2:
        wrong["the mask one key late"] = attend(size, inputs, shift=1)
    for name, values in wrong.items():
        assert not compare(np, "O", stored(values), expected).passed, name


def fake_cudnn(log: list[Any]) -> SimpleNamespace:
    """The part of cuDNN's interface that the baseline calls."""

    class Tensor:
        """Hashed by identity, as pybind's are."""

    output: Any = Tensor()
    output.set_output = lambda on: output
    output.set_dim = lambda dim: output
    output.set_stride = lambda stride: log.append(("stride", stride)) or output

    def pygraph(**_: Any) -> SimpleNamespace:
        return SimpleNamespace(
            tensor=lambda dim, stride, kind, name: log.append((name, dim, stride)) or name,
            sdpa=lambda **keys: log.append(keys) or (output, None),
            build=lambda modes: None,
            get_workspace_size=lambda: 64,
            execute=lambda pointers, workspace, handle: log.append(list(pointers.values())),
        )

    return SimpleNamespace(
        data_type=SimpleNamespace(BFLOAT16="bf16", FLOAT="f32"),
        heur_mode=SimpleNamespace(A="a"),
        create_handle=lambda: "handle",
        set_stream=lambda handle, stream: log.append(stream),
        pygraph=pygraph,
    )


def fake_array(pointer: int) -> SimpleNamespace:
    return SimpleNamespace(data=SimpleNamespace(ptr=pointer))


def fake_cupy() -> SimpleNamespace:
    stream = SimpleNamespace(ptr=7)
    return SimpleNamespace(
        uint8=np.uint8,
        empty=lambda count, dtype: fake_array(count),
        cuda=SimpleNamespace(get_current_stream=lambda: stream),
    )


def test_a_missing_or_refusing_cudnn_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    size = PROBLEM.parse_size("4096x64")
    monkeypatch.setitem(sys.modules, "cudnn", None)
    with pytest.raises(EnvironmentProblem, match="cuDNN") as missing:
        PROBLEM.library(Case(size, DTYPE, xp=fake_cupy()), "cudnn", {})
    assert "pip install nvidia-cudnn-frontend" in missing.value.remedy
    broken = fake_cudnn([])
    broken.create_handle = lambda: 1 / 0
    monkeypatch.setitem(sys.modules, "cudnn", broken)
    with pytest.raises(EnvironmentProblem, match="4096x64: division by zero"):
        PROBLEM.library(Case(size, DTYPE, xp=fake_cupy()), "cudnn", {})
    with pytest.raises(UsageProblem, match="no library baseline"):
        PROBLEM.library(Case(size, DTYPE, xp=np), "cub", {})


@pytest.mark.parametrize("text", sorted({*verified_sizes(PROBLEM), *PROBLEM.bench_sizes}))
def test_every_tile_of_queries_is_dealt_out_once(text: str) -> None:
    """`query_tile` of kernels/attention/tiles.cuh, replayed: the longest first within a section."""
    rung = catalogue.find_rung("attention_warp_specialized")
    size = PROBLEM.parse_size(text)
    n, d, count = size["N"], size["D"], heads(size)
    tiles = -(-n // rung.parameters[f"ROWS_{d}"])
    section = max(1, (rung.parameters["SECTION_MIB"] << 20) // (4 * d) // n)
    seen, before = set(), (0, -tiles)
    for index in range(tiles * count):
        first = index // (section * tiles) * section
        within, shared = index % (section * tiles), min(section, count - first)
        head, tile = first + within % shared, tiles - 1 - within // shared
        seen.add((head, tile))
        assert (first, -tile) >= before
        before = (first, -tile)
    assert seen == {(head, tile) for head in range(count) for tile in range(tiles)}
