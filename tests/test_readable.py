"""What a reader takes from a page is right without knowing how it was made: thresholds, levels of memory, units, headings, links, places."""

from __future__ import annotations

from dataclasses import replace

import pytest
import render_fixture

from ncu_toolkit.model import Evidence
from ncu_toolkit.occupancy import occupancy, what_if_block, what_if_registers
from ncu_toolkit.render.book import Book, open_book
from ncu_toolkit.render.page_tables import _what_if, traffic_table
from ncu_toolkit.render.page_view import evidence_table


@pytest.fixture(scope="module")
def book() -> Book:
    return open_book(render_fixture.run(), render_fixture.diagnosis)


@pytest.mark.parametrize(
    ("value", "comparison", "words"),
    [(0.67, ">=", "≥ 70.2 %: not met"), (0.71, ">=", "≥ 70.2 %: met"), (0.5, "<", "< 70.2 %: met"), (0.9, "<=", "≤ 70.2 %: not met")],
)
def test_evidence_says_whether_its_threshold_is_met(value: float, comparison: str, words: str) -> None:
    fact = Evidence("fma_pipe_active", "FMA pipe", value, "fraction", "", 0.702, comparison, "somewhere")  # type: ignore[arg-type]
    assert evidence_table((fact,), "Evidence").rows[0][2].text.replace("\u2009", " ") == words
    assert evidence_table((replace(fact, threshold=None, comparison=""),), "Evidence").rows[0][2].text == "–"


def test_what_shared_memory_keeps_busy_is_not_ascribed_to_global_accesses(book: Book) -> None:
    profile = next(p for p in book.run.profiles if p.value("l1_data_pipe_active") is not None)
    rows = {row[0].text: row for row in traffic_table(profile, None).rows}
    assert rows["L1 data stage"][4].value == profile.value("l1_data_pipe_active")
    assert rows["L1 (global)"][4].value != profile.value("l1_data_pipe_active")


def test_whole_things_are_counted_whole() -> None:
    base = occupancy((9, 0), 1024, 32, 0, 0, None)
    for label, found in (("threads per block", what_if_block(base)), ("registers per thread", what_if_registers(base))):
        values = [row[0].text for row in _what_if("x", label, found, 32, 1, 64).table.rows]
        assert not [text for text in values if "." in text or float(text.replace("\u2009", "")) not in found]
