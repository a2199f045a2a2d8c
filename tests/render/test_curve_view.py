"""The curve over sizes against the library."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import recorded
import render_fixture

from ncu_toolkit.base.model import Timing
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.kernel.pages.book import Book, open_book
from ncu_toolkit.kernel.pages.charts import size_axis
from ncu_toolkit.kernel.pages.curve_view import library_curve
from ncu_toolkit.kernel.runs import store

SIZES = ("256", "1024", "4096", "16384")


def timed(rung: str, size: str, gflops: float, baseline_us: float | None = None) -> Timing:
    n = int(size)
    us = 2.0 * n**3 / gflops / 1e3
    return Timing(
        "gemm_fp32", rung, size, "float32", {"M": n, "N": n, "K": n}, {}, tuple(us * (1 + k / 100) for k in (-2, -1, 0, 1, 2)), "warm",
        2.0 * n**3, 12.0 * n**2, 0.5, baseline_us,
    )  # fmt: skip


def book_of(curve: tuple[Timing, ...], run: Run | None = None) -> Book:
    base = run or replace(render_fixture.run(), timings=())
    return open_book(replace(base, curve=curve), render_fixture.diagnosis)


def curve() -> tuple[Timing, ...]:
    slow = 1000.0
    return tuple(
        timing
        for index, size in enumerate(SIZES)
        for timing in (
            timed("cublas", size, 40_000.0),
            timed("register_blocked", size, 40_000.0 * (0.9, 1.0, 1.1, 1.2)[index]),
            timed("naive", size, slow),
            timed("vectorized", size, 20_000.0),
            timed("warp_tiled", size, 30_000.0),
        )
    )


def test_the_fastest_rungs_and_the_library_over_all_sizes() -> None:
    chart = library_curve(book_of(curve()), "gemm_fp32")
    assert chart is not None
    names = [trace["name"] for trace in chart.figure["data"]]
    assert names == ["cublas", "register_blocked", "warp_tiled", "vectorized"], (
        "three rungs, the fastest first; naive is left out"
    )
    assert (
        chart.figure["layout"]["xaxis"]["type"] == chart.figure["layout"]["yaxis"]["type"] == "log"
    )
    assert chart.figure["layout"]["xaxis"]["ticktext"] == list(SIZES)
    assert chart.figure["data"][1]["y"] == pytest.approx([36, 40, 44, 48])
    assert [row[0].text for row in chart.table.rows] == list(SIZES)
    assert [row[3].value for row in chart.table.rows] == pytest.approx([0.9, 1.0, 1.1, 1.2])
    mean = (0.9 * 1.0 * 1.1 * 1.2) ** 0.25
    assert (
        f"register_blocked: ahead at 2 of 4 sizes, geometric mean {mean:.2f}× cublas (0.900× to 1.20×)"
        in chart.summary
    )
    bars = chart.figure["data"][0]["error_y"]
    assert bars["array"][0] == pytest.approx(40 / 0.984 - 40, rel=1e-3)
    assert bars["arrayminus"][0] == pytest.approx(40 - 40 / 1.016, rel=1e-3)


def test_sizes_that_nobody_tuned_are_marked() -> None:
    rows = (
        *curve(),
        timed("cublas", "5000", 40_000.0),
        *(timed(rung, "5000", 42_000.0) for rung in ("register_blocked", "warp_tiled")),
        timed("vectorized", "5000", 20_000.0),
    )
    chart = library_curve(book_of(rows), "gemm_fp32")
    assert chart is not None
    place = [row[0].text for row in chart.table.rows].index("5000, unseen")
    for trace in chart.figure["data"]:
        marks = trace["marker"]["symbol"]
        assert [mark.endswith("-open") for mark in marks].index(True) == place
        assert sum(mark.endswith("-open") for mark in marks) == 1
    assert "1 of 5; geometric mean there: register_blocked 1.05×" in chart.summary
    seen = library_curve(book_of(curve()), "gemm_fp32")
    assert seen is not None
    assert "Open marks" not in seen.summary


def test_sizes_that_do_not_grow_lie_side_by_side() -> None:
    """Attention at 4096 tokens, causal and head size 64, has the extents' product of head size 128
    without a mask; rows of all lengths of a softmax have one number of elements."""
    attention = {
        f"{n}x{d}{'xcausal' * (mask - 1)}": {"N": n, "D": d, "mask": mask}
        for n in (1024, 4096)
        for d in (128, 64)
        for mask in (1, 2)
    }
    axis = size_axis(attention)
    assert list(axis.places) == [
        "1024x64", "4096x64", "1024x128", "4096x128",
        "1024x64xcausal", "4096x64xcausal", "1024x128xcausal", "4096x128xcausal",
    ]  # fmt: skip
    assert list(axis.places.values()) == list(range(1, 9))
    assert axis.layout.get("type") != "log"
    assert axis.line(["1024x64", "4096x64", "4096x64xcausal"]) == [
        "1024x64", "4096x64", None, "4096x64xcausal",
    ]  # fmt: skip
    softmax = size_axis({f"{r}x{2**20 // r}": {"rows": r, "cols": 2**20 // r} for r in (64, 1024)})
    assert list(softmax.places) == ["1024x1024", "64x16384"]
    assert softmax.line(softmax.places) == ["1024x1024", "64x16384"], "one line, no gap"
    assert size_axis({"64": {"n": 64}, "32": {"n": 32}}).places == {"32": 32, "64": 64}


def test_a_gap_in_a_line_is_no_point() -> None:
    rows = tuple(
        replace(
            t,
            size=f"{t.size}{mask}",
            dims={"N": t.dims["M"], "D": 64, "mask": 1 + (mask == "xcausal")},
        )
        for t in curve()
        for mask in ("", "xcausal")
    )
    chart = library_curve(book_of(rows), "gemm_fp32")
    assert chart is not None
    trace = chart.figure["data"][1]
    assert trace["x"] == [1, 2, 3, 4, None, 5, 6, 7, 8]
    assert trace["y"][4] is trace["error_y"]["array"][4] is trace["text"][4] is None
    assert len(chart.table.rows) == 8


def test_the_interleaved_baseline_counts_where_there_is_one() -> None:
    rows = tuple(
        replace(t, baseline_us=2 * t.median_us) if t.rung == "register_blocked" else t
        for t in curve()
    )
    chart = library_curve(book_of(rows), "gemm_fp32")
    assert chart is not None
    assert [row[3].value for row in chart.table.rows] == pytest.approx([2.0] * 4)


def test_too_few_sizes_make_no_curve() -> None:
    assert (
        library_curve(book_of(tuple(t for t in curve() if t.size in SIZES[:2])), "gemm_fp32")
        is None
    )
    assert (
        library_curve(book_of(tuple(t for t in curve() if t.rung != "cublas")), "gemm_fp32") is None
    )


def test_a_run_of_its_own_goes_before_the_run_s_timings() -> None:
    run = replace(render_fixture.run(), timings=tuple(replace(t, times_us=(1e9,)) for t in curve()))
    chart = library_curve(book_of(curve(), run), "gemm_fp32")
    assert chart is not None
    assert chart.figure["data"][1]["y"][0] == pytest.approx(36)


def test_a_recording_may_carry_a_curve(tmp_path: Path) -> None:
    folder = recorded.small_recording(tmp_path / "small")
    assert store.load_run(folder, live=False).curve == ()
    store.write_json(folder / store.CURVE, "timings", list(curve()))
    assert store.load_run(folder, live=False).curve == curve()
