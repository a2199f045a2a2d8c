"""The sizes that benchmarks/unseen_sizes.py draws, and what it makes of their times."""

from __future__ import annotations

import pytest

from benchmarks import unseen_sizes


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_sizes_are_drawn_as_declared(seed: int) -> None:
    found = unseen_sizes.draw(seed)
    assert found == unseen_sizes.draw(seed)
    assert found != unseen_sizes.draw(seed + 1)
    sides = [[int(side) for side in size.split("x")] for size in found]
    squares, shapes = sides[:24], sides[24:]
    assert all(len(each) == 1 and 1000 <= each[0] <= 12000 for each in squares)
    assert all(len(each) == 3 and min(each) >= 512 and max(each) <= 16384 for each in shapes)
    for group in (squares, shapes):
        assert sum(all(side % 64 == 0 for side in each) for each in group) == 12
        assert sum(all(side % 8 == 0 for side in each) for each in group) >= 18
        assert not any(side % 64 == 0 for each in group[1::2] for side in each)


def row(size: str, ours: float | None, cublas: float, lt: float) -> dict[str, object]:
    us = {"cublas": cublas, "cublaslt": lt, **({} if ours is None else {"BM=64": ours})}
    return {"top": "fp32", "size": size, "ours": ["BM=64"], "expected_us": {"BM=64": 9.0}, "us": us}


def test_a_ratio_is_to_the_better_library_and_a_wrong_result_counts_as_none() -> None:
    text = unseen_sizes.table([row("1024", 10.0, 14.0, 12.0), row("1001", 10.0, 13.0, 20.0)])
    assert "| 1024 | BM=64 | 9.0 | 10.0 | 14.0 | 12.0 | 1.200 |" in text
    assert "median 1.250 (goal 1.10), least 1.200 (goal 1.00), ahead at 2 of 2" in text
    assert "where all sides are multiples of 8: median 1.200 of 1" in text
    wrong = unseen_sizes.table([row("1024", None, 14.0, 12.0)])
    assert "| wrong |" in wrong
    assert "least 0.000" in wrong
