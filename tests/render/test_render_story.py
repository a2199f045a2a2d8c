"""The story that the front page and the ladders tell, on the shipped recordings: what is compared
with what, what is slower, what is judged."""

from __future__ import annotations

import re

import pytest
import recorded

from ncu_toolkit.base.core import units
from ncu_toolkit.base.document.views import BarChart
from ncu_toolkit.base.model import Diagnosis, Finding, Profile, Timing
from ncu_toolkit.kernel.diagnosis import calibrate
from ncu_toolkit.kernel.pages.book import Book, Entry, open_book
from ncu_toolkit.kernel.pages.calibration import calibration
from ncu_toolkit.kernel.pages.columns import ladder_table
from ncu_toolkit.kernel.pages.family_sentence import _of_roof
from ncu_toolkit.kernel.pages.family_view import family_view
from ncu_toolkit.kernel.pages.roofline import DeviceRoof


def verdict(profile: Profile) -> Diagnosis:
    """A stand-in: the story does not depend on the verdicts."""
    return Diagnosis((Finding("shared-bank-conflict", "", "high", (), 1.03, (), ()),))


@pytest.fixture(scope="module")
def books() -> list[Book]:
    return [open_book(recorded.run_of(folder), verdict) for folder in recorded.FOLDERS]


def sentence(books: list[Book], family: str) -> str:
    return next(family_view(book, family).sentence for book in books if family in book.families)


def test_ladders_of_one_family_are_not_compared_with_each_other(books: list[Book]) -> None:
    gelu, gray = sentence(books, "elementwise").split(" From ")
    rates = {
        name: units.si(timing_of(books, name, "16384").byte_rate, "B/s")
        for name in ("gelu_unfused", "rgb_to_gray", "rgb_to_gray_vectorized")
    }
    assert gelu.startswith(f"From gelu_unfused at {rates['gelu_unfused']} to gelu_vectorized")
    assert "of cupy_gelu" in gelu
    assert "rgb" not in gelu
    assert gray.startswith(
        f"rgb_to_gray at {rates['rgb_to_gray']} to rgb_to_gray_vectorized at {rates['rgb_to_gray_vectorized']}"
    )
    gain = (
        timing_of(books, "rgb_to_gray", "16384").median_us
        / timing_of(books, "rgb_to_gray_vectorized", "16384").median_us
    )
    assert f"{units.ratio(gain)} faster" in gray
    assert "of cupy_rgb_to_gray" in gray


def timing_of(books: list[Book], rung: str, size: str) -> Timing:
    timing = entry_of(books, rung, size)[1].timing
    assert timing is not None
    return timing


def entry_of(books: list[Book], rung: str, size: str) -> tuple[Book, Entry]:
    return next(
        (book, e)
        for book in books
        for e in book.entries
        if (e.rung, e.variant.size) == (rung, size)
    )


def test_a_step_that_is_slower_is_marked(books: list[Book]) -> None:
    book, slower = entry_of(books, "warp_tiled", "4096")
    assert slower.shown_kind == "slower"
    for rung, kind in (("double_buffered", "step"), ("b_transposed", "regression")):
        book, entry = entry_of(books, rung, "4096")
        assert entry.shown_kind == kind
    ladder = book.families["gemm_fp32"][slower.variant]
    rows = {row[0].text: row for row in ladder_table(ladder).rows}
    assert [mark for mark, _ in rows["warp_tiled"][0].badges] == ["slower"]
    chart = next(
        c
        for p in family_view(book, "gemm_fp32").panels
        if p.label == "4096"
        for c in p.charts
        if c.key.endswith("ladder")
    )
    assert isinstance(chart, BarChart)
    worse = {row.name for row in chart.rows if row.segments[0].kind == "worse"}
    kinds = {entry.label: entry.kind for entry in ladder}
    assert {name for name in worse if kinds[name] == "step"} == {"warp_tiled"}
    assert {kinds[name] for name in worse} == {"step", "regression", "planted"}


def test_the_report_judges_the_cases_that_the_command_judges(books: list[Book]) -> None:
    steps = [rung for book in books for rung in book.rungs.values()]
    whole = calibrate.judged(calibrate.pairs([book.run for book in books], steps), verdict)
    tables = [table for book in books if (table := calibration(book))]
    assert sum(len(table.rows) for table in tables) == len(whole)
    cases, ranked = (
        sum(int(found[1]) for t in tables if (found := re.search(words, t.note)))
        for words in (r"^(\d+) of \d+ steps are scored", r"(\d+) of them are scored by rank")
    )
    score = calibrate.score((judged, judged.ours) for judged in whole)
    assert (cases, ranked) == (score.cases, score.ranked)
    hits = [
        found
        for table in tables
        if (found := re.search(r"ranks first in (\d+) of (\d+) cases", table.note))
    ]
    assert sum(int(found[1]) for found in hits) == score.first
    assert sum(int(found[2]) for found in hits) == score.ranked


def test_more_than_a_copy_is_compared_with_the_peak(books: list[Book]) -> None:
    """Kernels that mostly read go beyond a copy's rate: that is no share of a roof."""
    message = sentence(books, "reduction")
    assert "roof" not in message
    shares = {what: float(share) for share, what in re.findall(r"([\d.]+) % of ([^,.(]+)", message)}
    assert shares["the measured rate of a device-to-device copy "] > 100
    assert shares["the device's DRAM peak"] < 100
    copy, peak = DeviceRoof("dram", "", 4e12, True, ""), DeviceRoof("dram", "", 5e12, False, "")
    assert len(_of_roof(3.9e12, (copy, peak), "dram")) == 1
    assert "not an upper bound" in _of_roof(4.5e12, (copy,), "dram")[0]

    assert len(_of_roof(1.0e12, (DeviceRoof("fp32", "", 2e12, True, ""),), "fp32")) == 1
    library = DeviceRoof("tensor", "", 8e14, True, "")
    assert "not an upper bound" in _of_roof(8.4e14, (library,), "tensor")[0]


def test_what_is_not_judged_stands_in_parentheses(books: list[Book]) -> None:
    tables = [table for book in books if (table := calibration(book))]
    cells = [
        dict(zip((column.key for column in table.columns), row, strict=True))
        for table in tables
        for row in table.rows
    ]
    small = next(
        row
        for row in cells
        if row["step"].text == "naive → coalesced" and row["size"].text.startswith("1024")
    )
    assert small["rank"].text.startswith("(")
    assert small["error"].text.startswith("(")
    slow = next(
        row
        for row in cells
        if row["step"].text == "autotuned → warp_tiled" and row["size"].text.startswith("4096")
    )
    assert "slower" in slow["achieved"].text
    assert slow["error"].missing
    assert not any("-" in row["achieved"].text for row in cells)
