"""The scan family on NumPy: its reference, its sizes, and that its rungs launch at every one."""

from __future__ import annotations

import numpy as np
import pytest
from family_sizes import verified_sizes
from hypothesis import given
from hypothesis import strategies as st

from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.kernel.ladder import catalogue
from ncu_toolkit.kernel.ladder.problems import Case, compare, problem_for
from ncu_toolkit.kernel.ladder.rung import Rung

PROBLEM = problem_for("scan")
RUNGS = [rung for rung in catalogue.find_family("scan").rungs if not rung.library]


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=50))
def test_sums_wrap_around(values: list[int]) -> None:
    x = np.array(values, dtype=np.int32)
    size = PROBLEM.parse_size(str(len(values)))
    expected = PROBLEM.reference(Case(size, "int32", xp=np), {"x": x})["y"]
    for i, value in enumerate(expected.values):
        assert int(value) == (sum(values[: i + 1]) + 2**31) % 2**32 - 2**31
    right = np.cumsum(x.view(np.uint32), dtype=np.uint32).view(np.int32)  # as the kernels compute
    assert compare(np, "y", right, expected).passed
    right[-1] ^= 1
    assert not compare(np, "y", right, expected).passed


@pytest.mark.parametrize(("text", "says"), [("0", "too small"), ("2^31", "too large")])
def test_impossible_sizes_are_refused(text: str, says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        PROBLEM.parse_size(text)


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
@pytest.mark.parametrize(
    "text", [*verified_sizes(PROBLEM), *PROBLEM.bench_sizes, "4097", "8193", "2147483647"]
)
def test_every_rung_launches_at_every_size(rung: Rung, text: str) -> None:
    size = PROBLEM.parse_size(text)
    scalars = {name: s.value for name, s in PROBLEM.scalars(Case(size, "int32")).items()}
    scratch = rung.scratch_counts(scalars, None, 132)
    launches = rung.launch_geometry(scalars, None, 132)
    known = {"x", "y", *scalars, *scratch}
    assert all(set(launch.args) <= known for launch in launches)
    if "sums" in scratch:  # one a block of the first launch
        assert scratch["sums"] == launches[0].grid[0] == launches[2].grid[0]
        assert len(launches) == 3
    else:  # one word a tile, and a block each
        parameters = rung.with_parameters()
        tile = 4 * parameters["VECTORS"] * parameters["BLOCK"]
        assert scratch["words"] * tile >= size["n"]
        assert launches[0].grid[0] <= scratch["words"]
