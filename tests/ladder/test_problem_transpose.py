"""The transpose family on NumPy: its reference, its refusals, and the index arithmetic of the rungs
that are not plain."""

from __future__ import annotations

import numpy as np
import pytest

from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.kernel.ladder import catalogue
from ncu_toolkit.kernel.ladder.problems import Case, compare, problem_for

PROBLEM = problem_for("transpose")
COPY = {"op": "copy"}
SIZE = PROBLEM.parse_size("33x70")


@pytest.mark.parametrize("options", [{}, COPY], ids=["transpose", "copy"])
def test_reference(options: dict[str, str]) -> None:
    inputs = PROBLEM.make_inputs(Case(SIZE, "float32", options, np), 1, ["x", "y"])
    x = inputs["x"]
    assert (x.shape, x.dtype) == ((33, 70), np.float32)
    expected = PROBLEM.reference(Case(SIZE, "float32", options, np), inputs)["y"]
    right = x.copy() if options else np.ascontiguousarray(x.T)
    assert PROBLEM.arrays(Case(SIZE, "float32", options))["y"].shape == right.shape
    assert compare(np, "y", right, expected).passed
    wrong = right.copy()
    wrong[-1, -1] = np.nextafter(wrong[-1, -1], np.float32(2))
    assert not compare(np, "y", wrong, expected).passed
    wrong[-1, -1] = np.nan
    assert not compare(np, "y", wrong, expected).passed


def test_refusals() -> None:
    with pytest.raises(UsageProblem, match="no operation 'rotate'"):
        PROBLEM.arrays(Case(SIZE, "float32", {"op": "rotate"}))
    with pytest.raises(UsageProblem, match="too large"):
        PROBLEM.parse_size("1x1073741825")
    with pytest.raises(UsageProblem, match="no library baseline"):
        PROBLEM.library(Case(SIZE, "float32", xp=np), "geam", {})


@pytest.mark.parametrize(
    "name", ["transpose_naive", "transpose_smem", "transpose_padded", "transpose_swizzled"]
)
def test_too_many_rows_for_the_grid_are_refused(name: str) -> None:
    with pytest.raises(UsageProblem, match="rows must be at most"):
        catalogue.find_rung(name).launch_geometry(
            {"rows": 65535 * 32 + 1, "cols": 1, "count": 65535 * 32 + 1}, None, 132
        )


def bank_groups(quartets: list[int]) -> bool:
    """Whether a 128-bit access is free of conflicts: each 8 neighbouring lanes reach 8 different
    16-byte columns of the 128-byte bank row."""
    return all(
        len({q % 8 for q in quartets[first : first + 8]}) == 8
        for first in range(0, len(quartets), 8)
    )


@pytest.mark.parametrize("tile", catalogue.find_rung("transpose_vectorized").search["TILE"])
def test_the_vectorized_tile_is_a_transpose_without_conflicts(tile: int) -> None:
    """The layout of transpose_vectorized, replayed: quartet r of column c lies at [c][r ^ (c /
    4)]."""
    quartets = tile // 4
    x = np.arange(tile * tile).reshape(tile, tile)
    shared = np.full((tile, quartets, 4), -1)
    for warp in range(quartets * quartets // 32):
        lanes = [divmod(warp * 32 + lane, quartets) for lane in range(32)]  # (r, q)
        for m in range(4):
            assert bank_groups([(4 * q + m) * quartets + (r ^ q) for r, q in lanes])
            for r, q in lanes:
                shared[4 * q + m, r ^ q] = x[4 * r : 4 * r + 4, 4 * q + m]
        for c in range(0, tile, quartets):
            assert bank_groups([(r + c) * quartets + (q ^ ((r + c) // 4)) for r, q in lanes])
    y = np.stack(
        [np.concatenate([shared[c, q ^ (c // 4)] for q in range(quartets)]) for c in range(tile)]
    )
    assert (y == x.T).all()
