"""Charts and what else the page says of the same figure, both read in a browser: places, widths and
heights are the numbers of the card, of the chart's own table, or of its labels."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import render_fixture
from browser import Browser, require_chromium

from ncu_toolkit.base.core.errors import EnvironmentProblem
from ncu_toolkit.kernel.pages.book import open_book
from ncu_toolkit.kernel.pages.html import write_answer, write_run

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PREFIX = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "n": 1e-9, "µ": 1e-6, "m": 1e-3}  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_chromium()
    folder = tmp_path_factory.mktemp("charts")
    book = open_book(render_fixture.run(), render_fixture.diagnosis)
    write_run(book.run, folder / "fixture", book=book)
    render_fixture.write_front(folder, {"fixture": book})
    return folder


def every(selector: str, of: str) -> str:
    """The JavaScript that reads `of` from each element `at`."""
    return f"[...document.querySelectorAll('{selector}')].map(at => {of})"


#: The texts of a row's cells.
CELLS = "[...at.cells].map(cell => cell.textContent)"


def quantity(text: str) -> float:
    """A figure as the pages write it: `58.3 TFLOP/s`, `12 %`, `1,024`, `3.1×`."""
    plain = re.sub("[\u202f ]", " ", text).strip()
    found = re.match(r"[<÷×]? ?(\d+(?:,\d{3})*(?:\.\d+)?) ?(.?)", plain)
    assert found, text
    unit = found[2] if re.search(r"\d [kKMGTnµm][A-Za-z]", plain) else ""
    return float(found[1].replace(",", "")) * PREFIX[unit]


def shown(browser: Browser, page: Path, width: int = 1440) -> None:
    browser.open("about:blank")
    browser.open(page, width=width)
    browser.wait_for("document.documentElement?.dataset.ready")
    if page.parent.name == "fixture":
        browser.wait_for("document.documentElement.dataset.filled")


def proportional(pairs: Sequence[tuple[float, float]], within: float) -> None:
    """Sizes are as the numbers, each given as a part of the largest."""
    assert len(pairs) > 1
    most = max(pairs, key=lambda pair: pair[1])
    for size, number in pairs:
        assert size / most[0] == pytest.approx(number / most[1], abs=within), pairs


def test_bars_of_the_card_are_its_percents(browser: Browser, pages: Path) -> None:
    page = next((pages / "fixture").glob("*smem*.html"), None)
    page = page or next((pages / "fixture").glob("gemm*4096.html"))
    shown(browser, page)
    rows: list[tuple[float, str]] = browser.evaluate(
        "[...document.querySelectorAll('.nc-figures tr')].map(row => { const cell = row.querySelector('.nc-bar'), style = getComputedStyle(cell);"
        " const room = cell.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);"
        " return [cell.querySelector('span').getBoundingClientRect().width / room, row.querySelector('.nc-n').innerText]; })"
    )
    assert len(rows) > 3
    for part, message in rows:
        assert part == pytest.approx(quantity(message) / 100, abs=0.012)


def test_bars_of_the_front_page_are_its_rates(browser: Browser, pages: Path) -> None:
    shown(browser, pages / "index.html")
    bars = browser.evaluate(
        "[...document.querySelector('.spark').querySelectorAll('rect')].map(bar => [bar.height.baseVal.value - 2, bar.textContent])"
    )
    proportional([(high, quantity(message.split(": ")[1].split(". ")[0])) for high, message in bars], 0.01)  # fmt: skip
    text = browser.evaluate("document.querySelector('.ladder .best').innerText")
    assert quantity(text.split("Best: ")[1]) == max(quantity(message.split(": ")[1]) for _, message in bars)  # fmt: skip


def test_stalls_and_traffic_of_a_ladder_are_their_tables(browser: Browser, pages: Path) -> None:
    shown(browser, pages / "fixture" / "index.html")
    panel = "document.querySelector('.panel:not([data-off])')"
    read = (
        "(figure => [[...figure.querySelectorAll('.row')].map(row => [row.querySelector('b').textContent, row.querySelector('.n').textContent,"
        " [...row.querySelectorAll('i')].map(part => part.getBoundingClientRect().width),"
        " [...row.querySelectorAll('u')].map(point => [point.title, parseFloat(point.style.left)])]),"
        " [...figure.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.textContent)),"
        " [...figure.querySelectorAll('.axis em')].map(mark => [mark.textContent, parseFloat(mark.style.left)])])"
    )
    rows, table, _ = browser.evaluate(f"{read}({panel}.querySelector('[id$=stalls]'))")
    proportional([(sum(parts), quantity(total)) for _, total, parts, _ in rows], 0.01)
    assert [row[0] for row in rows] == [cells[0] for cells in table]
    rows, table, marks = browser.evaluate(f"{read}({panel}.querySelector('[id$=traffic]'))")
    (low, at_low), (high, at_high) = [(quantity(text), at) for text, at in marks][:2]
    data = {cells[0]: [cell for cell in cells[1:] if cell[:1].isdigit()] for cells in table}
    assert len(rows) > 3
    for name, _, _, points in rows:
        for message, at in points:
            factor = message.split(": ")[1]
            # of the bytes in the table each is over the fewest that are needed
            moved = [quantity(cell) for cell in data[name]]
            assert min(abs(quantity(factor) * min(moved) / each - 1) for each in moved) < 0.01
            place = at_low + (at_high - at_low) * math.log(quantity(factor) / low) / math.log(
                high / low
            )
            assert at == pytest.approx(place, abs=0.5)


def test_charts_with_zoom_hold_their_tables(browser: Browser, pages: Path) -> None:
    """Rooflines and curves over sizes: each number that is drawn is in the chart's table."""
    shown(browser, pages / "fixture" / "index.html")
    browser.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    browser.evaluate(
        "(async () => { for (let y = 0; y < document.body.scrollHeight; y += 500) { scrollTo({top: y, behavior: 'instant'});"
        " await new Promise(done => setTimeout(done, 80)); } })()"
    )
    browser.wait_for(
        "[...document.querySelectorAll('.plot')].filter(plot => plot.checkVisibility()).every(plot => plot.dataset.drawn)"
    )
    charts: list[Any] = browser.evaluate(
        "[...document.querySelectorAll('.plot')].filter(plot => plot.data).map(plot => [plot.closest('figure').id,"
        " plot.data.map(trace => ({name: trace.name, text: [...(trace.text || [])].map(String), y: [...(trace.y || [])]})),"
        " [...plot.closest('figure').querySelectorAll('table tr')].map(row => [...row.cells].map(cell => cell.textContent.trim()))])"
    )
    compared = 0
    for key, traces, table in charts:
        words = {cell.replace("\u202f", " ") for row in table for cell in row}
        for trace in traces:
            for text, y in zip(trace["text"], trace["y"], strict=False):
                if "roofline" in key and text:
                    rate = next(row[1] for row in table if row[0] == text)
                    assert quantity(rate) == pytest.approx(y, rel=0.006)
                    compared += 1
                elif key.endswith(("sizes", "curve")) and ": " in text:
                    rate = text.split(": ")[1].split("<")[0]
                    assert rate in words
                    compared += 1
    assert compared > 10
    assert browser.complaints() == []


def test_what_if_charts_mark_the_launch(browser: Browser, pages: Path) -> None:
    """The diamond is at the launch's registers or block, and as high as its table says."""
    page = next((pages / "fixture").glob("*vectorized*.html"))
    shown(browser, page)
    browser.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    charts = browser.evaluate(
        "[...document.querySelectorAll('.steps-chart')].map(chart => [chart.querySelector('.now').getAttribute('d'),"
        " chart.querySelector('.now').getAttribute('title') || chart.querySelector('.now').dataset.title,"
        " [...chart.querySelectorAll('svg text')].map(text => [text.textContent,"
        " Number(text.getAttribute('x')), Number(text.getAttribute('y')), text.getAttribute('text-anchor')]),"
        " [...chart.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))])"
    )
    assert charts
    for path, message, texts, table in charts:
        x, y = map(float, re.findall(r"[\d.]+", path)[:2])
        now, warps = (float(number) for number in re.findall(r"[\d.]+", message)[:2])
        axis = {anchor: (float(text), at) for text, at, _, anchor in texts if anchor in ("start", "middle") and text[:1].isdigit()}  # fmt: skip
        (first, left), (middle, centre) = axis["start"], axis["middle"]
        assert left + (now - first) / (middle - first) * (centre - left) == pytest.approx(x, abs=2)
        high = {float(text): at - 4 for text, _, at, anchor in texts if anchor == "end" and text[:1].isdigit() and at < 145}  # fmt: skip
        most = max(high)
        assert high[0] + (high[most] - high[0]) * warps / most == pytest.approx(y + 7, abs=8)
        heights = [(quantity(cells[0]), quantity(cells[1])) for cells in table]
        assert [fit for start, fit in heights if start <= now][-1] == warps


def test_lanes_of_the_memory_chart_are_its_bytes(browser: Browser, pages: Path) -> None:
    page = next((pages / "fixture").glob("*vectorized*.html"))
    shown(browser, page)
    browser.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    lanes = browser.evaluate(
        "[...document.querySelectorAll('.memory .lane')].map(lane => [lane.querySelector('b').textContent,"
        " [...lane.querySelectorAll('p b')].map(flow => flow.textContent), lane.querySelector('i').getBoundingClientRect().width])"
    )
    assert lanes
    sums = [(wide, sum(map(quantity, flows))) for _, flows, wide in lanes]
    if len(sums) > 1:
        proportional(sums, 0.02)
    table = dict(cells[:2] for cells in browser.evaluate(every("[id$=traffic] tbody tr", CELLS)))
    wires = browser.evaluate(every(".memory .end .wire", "[...at.querySelectorAll('p b')].map(flow => flow.textContent)"))  # fmt: skip
    moved = {"L1 (global)": next(flows for name, flows, _ in lanes if name == "global"), "DRAM": wires[0]}  # fmt: skip
    for level, flows in moved.items():
        assert sum(map(quantity, flows)) == pytest.approx(quantity(table[level]), rel=0.01)


def test_trends_of_the_history_are_its_times(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("ncu_toolkit.guests.history")
    import history_rows

    from ncu_toolkit.guests.history import history, trends

    monkeypatch.setenv("NCU_TOOLKIT_HISTORY", str(tmp_path / "history"))
    times = (300.0, 180.0, 240.0, 150.0)
    history.add([replace(history_rows.day(at, time_us=us), launch=str(at)) for at, us in enumerate(times, 1)])  # fmt: skip
    with history.opened() as found:
        overview = trends.of_all(trends.all_series(found), page=True)
        one = trends.of_kernels(trends.series_of(found, "naive"))
    shown(browser, write_answer(overview, "History", tmp_path / "all.html"))
    line = browser.evaluate("document.querySelector('.nc-course polyline').getAttribute('points')")
    points = [float(point.split(",")[1]) for point in line.split()]
    _linear(points, times, 0.01)
    last = browser.evaluate("document.querySelector('#kernels tbody .nc-at-time').innerText")
    assert quantity(last) == pytest.approx(times[-1] * 1e-6)
    shown(browser, write_answer(one, "One", tmp_path / "one.html"))
    points = browser.evaluate("[...document.querySelectorAll('.nc-trend circle')].map(point => Number(point.getAttribute('cy')))")  # fmt: skip
    _linear(points, times, 0.01)
    labels = browser.evaluate(every(".nc-trend text[text-anchor=end]", "[at.textContent, Number(at.getAttribute('y')) - 4]"))  # fmt: skip
    places = {quantity(text) * 1e6: y for text, y in labels if text[:1].isdigit()}
    scale = (places[0.0] - min(places.values())) / max(places)
    assert points[0] == pytest.approx(places[0.0] - times[0] * scale, abs=2)


def _linear(places: Sequence[float], numbers: Sequence[float], within: float) -> None:
    """Places on an upright axis lie as the numbers do."""
    assert len(places) == len(numbers)
    deep, high, least, most = max(places), min(places), min(numbers), max(numbers)
    for place, number in zip(places, numbers, strict=True):
        assert (deep - place) / (deep - high) == pytest.approx((number - least) / (most - least), abs=within)  # fmt: skip


def test_a_landscape_is_its_table(browser: Browser, tmp_path: Path) -> None:
    tune_view = pytest.importorskip("ncu_toolkit.guests.tune.view")
    (search, *_) = tune_view.kept("NVIDIA H200", "gemm_fp32")["autotuned"]
    page = tmp_path / "landscape.html"
    page.write_text(tune_view.page(search), encoding="utf-8")
    shown(browser, page)
    browser.wait_for("document.querySelector('.plot').data")
    best, rows = browser.evaluate(
        "[Math.max(...document.querySelector('.plot').data[0].z.flat().filter(value => value !== null)),"
        " [...document.querySelectorAll('.chart tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))]"
    )
    heads = browser.evaluate("[...document.querySelectorAll('.chart thead th')].map(head => head.textContent)")  # fmt: skip
    at = heads.index("of baseline")
    assert best == pytest.approx(max(quantity(row[at]) for row in rows) / 100, rel=0.01)
    assert browser.complaints() == []


def test_costs_and_registers_of_code_are_their_tables(browser: Browser, tmp_path: Path) -> None:
    from ncu_toolkit.kernel.build.toolchain import find_tool
    from ncu_toolkit.kernel.diagnosis.static import analyse_source
    from ncu_toolkit.kernel.explain.code import of_code

    try:
        found = [find_tool(name) for name in ("nvcc", "nvdisasm")]
    except EnvironmentProblem:
        pytest.skip("no nvcc or nvdisasm here")
    assert found
    source = tmp_path / "dots.cu"
    code = (
        'extern "C" __global__ void dots(const float* a, const float* b, float* c, int n) {\n'
        "    float sum = 0.f;\n"
        "    for (int k = 0; k < n; ++k) sum += a[threadIdx.x * n + k] * b[k * n + threadIdx.x];\n"
        "    c[threadIdx.x] = sum;\n}\n"
    )
    source.write_text(code)
    answer = of_code(analyse_source(source, "sm_90", block=128), {source.name: code})
    shown(browser, write_answer(answer, "Code", tmp_path / "code.html"))
    bars, table = browser.evaluate(
        "(figure => [[...figure.querySelectorAll('.row')].filter(row => row.querySelector('i')).map(row =>"
        " [row.querySelector('i').getBoundingClientRect().width, row.querySelector('.n').textContent]),"
        " [...figure.querySelectorAll('tbody tr')].map(row => row.cells[1].textContent).filter(Boolean)])(document.querySelector('#costs'))"
    )
    proportional([(wide, quantity(cycles)) for wide, cycles in bars], 0.02)
    assert [cycles for _, cycles in bars] == table
    lines = browser.evaluate(
        "[...document.querySelectorAll('.nc-code')[0].querySelectorAll('u')].filter(bar => bar.textContent).map(bar =>"
        " [bar.previousElementSibling.textContent, bar.textContent, bar.style.getPropertyValue('--v'), bar.title || bar.dataset.title])"
    )
    rows = dict(browser.evaluate(every("#registers-data tbody tr", CELLS)))
    assert len(lines) > 2
    for number, live, part, message in lines:
        assert rows[f"dots.cu:{number}"] == live
        assert quantity(part) == pytest.approx(100 * float(live) / float(message.split(" of ")[1].split()[0]), abs=0.6)  # fmt: skip
    message = browser.evaluate("document.querySelector('#registers .now').getAttribute('title')")
    assert f"{max(int(live) for _, live, _, _ in lines)} registers" in message
    assert browser.complaints() == []


def test_the_account_of_a_step_is_its_table(browser: Browser, tmp_path: Path) -> None:
    from program_found import small

    from ncu_toolkit.program.pages.program_view import write_program_page

    shown(browser, write_program_page(small(), tmp_path / "step.html"))
    browser.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    browser.wait_for("document.querySelector('#parts tbody')")
    parts, track, table = browser.evaluate(
        "[[...document.querySelectorAll('#account .track i')].map(part => part.getBoundingClientRect().width),"
        " document.querySelector('#account .track').offsetWidth,"
        " [...document.querySelectorAll('#parts tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))]"
    )
    shares = sorted(quantity(cells[2]) for cells in table[:-1])
    assert sorted(100 * wide / track for wide in parts) == pytest.approx(shares, abs=0.6)
