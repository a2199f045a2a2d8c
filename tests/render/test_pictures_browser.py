"""Pictures and the table of launches in a real browser: every number is the card's, and all of it works
by keyboard, from one file."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import recorded
import render_fixture
from browser import Browser, require_chromium

from ncu_toolkit.base.core import units
from ncu_toolkit.base.document.card import short_gain
from ncu_toolkit.base.document.tables import plain_table, text
from ncu_toolkit.base.document.views import Answer, Chart
from ncu_toolkit.kernel.analysis import answers, gate
from ncu_toolkit.kernel.analysis.analyze import Options, analyze
from ncu_toolkit.kernel.pages.book import open_book
from ncu_toolkit.kernel.pages.html import write_analysis, write_answer, write_run

pytestmark = [pytest.mark.slow, pytest.mark.browser]

HELDOUT = recorded.ROOT / "tests" / "heldout" / "three" / "h200.ncu-rep.xz"
READY = "document.querySelector('.launches[data-ready]')"
ROWS = "[...document.querySelectorAll('.launches tbody tr')].map(row => [...row.cells].map(cell => cell.innerText.trim()))"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A report of many launches as one file."""
    require_chromium()
    found = analyze([HELDOUT], Options(profiles=True))
    return found, write_analysis(found, tmp_path_factory.mktemp("program") / "report.html")


def plain(text: str) -> str:
    return text.replace("\u202f", " ")


def say(browser: Browser, text: str) -> None:
    for letter in text:
        browser.press(letter, text=letter)


def test_savings_are_those_of_the_cards(browser: Browser, program: tuple[Any, Path]) -> None:
    found, page = program
    browser.open(page, width=1440)
    bars = browser.evaluate(
        "[...document.querySelectorAll('.savings a.row')].map(row => [row.querySelector('code').innerText, row.querySelector('b').innerText,"
        " row.querySelector('.cause').innerText, row.querySelector('.gain').innerText, row.querySelector('.save').innerText,"
        " row.querySelector('i').offsetWidth / row.querySelector('.track').offsetWidth])"
    )

    def saves(launch: Any) -> float:
        card = launch.card
        slow = card.factor and card.state == "slow"
        return float(launch.duration_us * (1 - 1 / card.factor)) if slow else 0.0

    launches = sorted(found.launches, key=lambda launch: (-saves(launch), -launch.duration_us))
    assert len(bars) == 12
    for (name, time, cause, gain, save, part), launch in zip(bars, launches, strict=False):
        card = launch.card
        assert (name, plain(time), cause, gain) == (
            card.kernel,
            plain(card.time),
            card.title,
            short_gain(card),
        )
        saved = saves(launch)
        assert plain(save) == (plain(units.duration(saved)) if saved else "–")
        assert part == pytest.approx(saved / launch.duration_us, abs=0.02)
    total = sum(launch.duration_us for launch in launches)
    saved = sum(map(saves, launches))
    sentence = plain(browser.evaluate("document.querySelector('.savings .lead').innerText"))
    assert sentence.startswith(
        f"{units.significant(saved / 1e3)} of {plain(units.duration(total))} to save inside the kernels, by fixing the first cause of each."
    )
    assert browser.complaints() == []
    # the table has the same sum
    browser.wait_for(READY)
    table = browser.evaluate(
        "[...document.querySelectorAll('.launches tbody tr')].reduce((sum, tr) => sum + Number(tr.cells[5].dataset.v || 0), 0)"
    )
    assert table == pytest.approx(saved)


def test_launches_are_filtered_grouped_and_sorted_by_keyboard(
    browser: Browser, program: tuple[Any, Path]
) -> None:
    browser.open("about:blank")
    browser.open(program[1], width=1440)
    browser.wait_for(READY)
    assert not any("complete" in cell for row in browser.evaluate(ROWS) for cell in row)
    browser.press("/", text="/")
    say(browser, "divergence n12")
    rows = browser.evaluate(ROWS)
    assert [row[0] for row in rows] == ["n12_a", "n12_b"]
    assert plain(
        browser.evaluate("document.querySelector('.launches .matches').innerText")
    ).startswith("2 of 34: 1.20 ms, 769 µs")
    browser.wait_for("location.hash.includes('filter=divergence+n12')")
    browser.press("ArrowDown", 40)
    assert browser.evaluate("document.activeElement.innerText") == "n12_a"
    browser.press("ArrowUp", 38)
    browser.press("Escape", 27)
    assert len(browser.evaluate(ROWS)) == 34
    browser.evaluate("document.querySelector('.launches select').focus()")
    say(browser, "by cause")
    browser.wait_for("document.querySelector('.launches tr.group')")
    groups = browser.evaluate(ROWS)
    assert groups[0][0] == "Warp divergence"
    assert sum(int(row[6]) for row in groups) == 34
    browser.evaluate("document.querySelector('.launches tr.group button').focus()")
    browser.press("Enter", 13, "\r")
    assert [row[0] for row in browser.evaluate(ROWS)][:3] == ["Warp divergence", "n12_a", "n12_b"]
    browser.evaluate("document.querySelector('.launches th[data-key=time] button').focus()")
    browser.press("Enter", 13, "\r")
    browser.press("Enter", 13, "\r")
    assert (
        browser.evaluate("document.querySelector('.launches th[data-key=time]').ariaSort")
        == "ascending"
    )
    assert browser.evaluate(ROWS)[-1][0] == "n12_a"
    # the address keeps it all
    address = browser.evaluate("location.href")
    assert "sort=launches.time.ascending" in address
    browser.open("about:blank")
    browser.open(address, width=1440)
    browser.wait_for(READY)
    again = browser.evaluate(ROWS)
    assert [row[0] for row in again] == [row[0] for row in groups][::-1]


def test_a_roofline_has_the_numbers_of_the_bars(
    browser: Browser, program: tuple[Any, Path]
) -> None:
    browser.open("about:blank")
    browser.open(program[1], width=1440)
    browser.wait_for("document.documentElement.dataset.ready")
    pages = browser.evaluate(
        "[...document.querySelectorAll('.launches tbody th a')].map(link => link.hash.slice(1))"
    )
    seen = 0
    for page in pages:
        browser.evaluate(f"location.hash = '#{page}'")
        shown = f"document.getElementById('{page}')"
        browser.wait_for(f"{shown}?.checkVisibility()")
        cells = f"[...{shown}.querySelectorAll('.nc-bars tr')].map(row => [row.cells[0].innerText, row.cells[2].innerText])"
        bars = {unit: re.findall(r"\d+", busy)[0] for unit, busy in browser.evaluate(cells)}
        reported = browser.evaluate(
            f"{shown}.querySelector('.roofline')?.getAttribute('aria-label') || ''"
        )
        for unit, share in re.findall(r"(?:^|; )([A-Za-z0-9 ]+?) <?\D?(\d+)\D%", reported):
            if unit in bars:
                assert share == bars[unit], (page, reported, bars)
                seen += 1
    assert seen > 30
    assert browser.complaints() == []


def test_bars_of_a_ladder_are_its_table(browser: Browser, tmp_path: Path) -> None:
    run = render_fixture.run()
    book = open_book(run, render_fixture.diagnosis)
    browser.open("about:blank")
    browser.open(write_run(run, tmp_path / "run", book=book), width=1440)
    browser.wait_for("document.documentElement.dataset.filled")
    panel = "document.querySelector('.panel:not([data-off])')"
    bars = browser.evaluate(
        f"[...{panel}.querySelectorAll('.bars.noted .row')].map(row => [row.querySelector('b').innerText,"
        " ...[...row.querySelectorAll('.n, .cause')].map(cell => cell.innerText), row.querySelector('i').offsetWidth])"
    )
    keys = ("time", "rate", "baseline", "bottleneck")
    rows = browser.evaluate(
        f"[...{panel}.querySelectorAll('.fold tbody tr')].map(row => Object.fromEntries([...row.cells].map((cell, at) =>"
        " [cell.closest('table').tHead.rows[0].cells[at].dataset.key, [cell.textContent, cell.dataset.v]])))"
    )
    table = {row["rung"][1]: row for row in rows}
    assert len(bars) > 5
    fastest = max(bars, key=lambda bar: bar[-1])
    for name, rate, time, part, cause, width in bars:
        reported = [table[name][key][0] for key in keys]
        assert [plain(text) for text in reported] == [
            plain(text) for text in (time, rate, part, cause)
        ]
        most = float(table[fastest[0]]["rate"][1])
        assert width / fastest[-1] == pytest.approx(float(table[name]["rate"][1]) / most, abs=0.01)
    # lengths of stalls, in cycles or as shares
    stalls = f"{panel}.querySelectorAll('.bars:has(.views)')[0]"
    ends = (
        f"[...{stalls}.querySelectorAll('.track')].map(track =>"
        " [...track.querySelectorAll('i')].reduce((sum, part) => sum + part.offsetWidth, 0) / track.offsetWidth)"
    )
    before = browser.evaluate(ends)
    assert max(before) - min(before) > 0.2
    browser.evaluate(f"{stalls}.querySelector('[value=\"1\"]').click()")
    assert min(browser.evaluate(ends)) > 0.97
    assert browser.complaints() == []


def test_a_comparison_is_drawn(browser: Browser, program: tuple[Any, Path], tmp_path: Path) -> None:
    """Bars join, the causes have their table once, and both rooflines have the cards' numbers."""
    sides = gate.sides_of(program[0])
    found = gate.compare(sides, sides, ({}, {}), [], [("n02_a", "n02_b")])
    page = write_answer(answers.of_comparison(found), "Comparison", tmp_path / "pair.html")
    browser.open(page, width=1440)
    browser.wait_for("document.documentElement.dataset.ready")
    ends = browser.evaluate(
        "[...document.querySelectorAll('#waterfall .track > :is(i:last-child, u)')].map(bar => { const at = bar.getBoundingClientRect();"
        " return bar.tagName === 'U' ? [at.left + at.width / 2, at.left + at.width / 2] : [at.left, at.right]; })"
    )
    assert len(ends) > 4
    for before, after in pairwise(ends):
        assert min(abs(a - b) for a in before for b in after) < 2
    captions = browser.evaluate(
        "[...document.querySelectorAll('caption')].map(caption => caption.textContent)"
    )
    assert sum("by cause" in caption for caption in captions) == 1
    reported = browser.evaluate("document.querySelector('.roofline').getAttribute('aria-label')")
    busy = browser.evaluate(
        "[...document.querySelectorAll('.nc-beside .nc-limit')].map(row => [row.cells[0].innerText, row.cells[2].innerText])"
    )
    assert len(busy) == 2
    for unit, percent in busy:
        assert f"{unit} {plain(percent).removesuffix(' limit')} busy" in plain(reported)
    rows = browser.evaluate(
        "[...document.querySelectorAll('.nc-kernels')].map(table => table.querySelectorAll('tbody tr').length)"
    )
    assert rows[0] == 6
    more = browser.evaluate("document.querySelector('.nc-further > summary').innerText")
    assert more.startswith(f"{rows[1]} more rows")
    assert not browser.evaluate("document.querySelector('.nc-further').open")
    assert browser.complaints() == []


def test_loads_over_the_launch_s_time(browser: Browser, tmp_path: Path) -> None:
    """As high as the table says, and as long as it was sampled."""
    report = recorded.ROOT / "tests" / "origins" / "reports" / "pm-sampling.ncu-rep.xz"
    browser.open(
        write_analysis(analyze([report], Options(profiles=True)), tmp_path / "pm.html"),
        width=1440,
    )
    browser.wait_for("document.documentElement.dataset.ready")
    drawn = browser.evaluate(
        "[...document.querySelectorAll('[id$=over-time] tbody tr')].map(row => { const svg = row.querySelector('svg').getBoundingClientRect(),"
        " line = row.querySelector('polyline').getBoundingClientRect(); return [(svg.bottom - line.top) / svg.height, line.width / svg.width,"
        " row.cells[3].innerText, row.cells[4].innerText]; })"
    )
    assert len(drawn) == 5
    for height, length, most, sampled in drawn:
        assert height == pytest.approx(2 / 28 + 24 / 28 * float(plain(most)[:-2]) / 100, abs=0.12)
        time, unit = plain(sampled).split()
        assert length == pytest.approx(float(time) * (1e-3 if unit == "µs" else 1) / 1.56, abs=0.03)
    assert browser.complaints() == []


def test_an_answer_s_page_draws_a_chart_with_zoom(browser: Browser, tmp_path: Path) -> None:
    """Plotly is in the page of such a chart alone, and follows the theme."""
    table = plain_table("data", "Data", ["x", "y"], [[text("1"), text("2")]])
    axes = {"height": 300, "margin": {"b": 40}, "xaxis": {}, "yaxis": {}}
    figure = {"data": [{"type": "bar", "x": [1], "y": [2]}], "layout": axes}
    chart = Chart("drawn", "Which is fast?", "One bar.", figure, table)
    page = write_answer(Answer("T", charts=(chart,)), "T", tmp_path / "chart.html")
    plain_page = write_answer(Answer("T"), "T", tmp_path / "plain.html")
    assert plain_page.stat().st_size * 5 < page.stat().st_size < 2_200_000
    browser.open(page, width=768, scheme="dark")
    browser.wait_for("document.querySelector('.plot svg .bars')")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 768
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.complaints() == []
