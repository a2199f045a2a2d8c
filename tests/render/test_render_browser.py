"""The pages in a real browser: nothing fetched, nothing refused, charts drawn, keyboard, themes,
narrow screens, printing, hostile text inert."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import recorded
import render_fixture
from browser import Browser, require_chromium
from render_hostile import MARKER, hostile_diagnosis, hostile_run

from ncu_toolkit.analysis.analyze import Options, analyze
from ncu_toolkit.render import html
from ncu_toolkit.render.analysis_run import write_standalone
from ncu_toolkit.render.book import open_book
from ncu_toolkit.render.html import write_index, write_run

pytestmark = pytest.mark.browser

PANEL = "document.querySelector('.panel:not([data-off])')"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(require_chromium()) as opened:
        yield opened


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_chromium()
    folder = tmp_path_factory.mktemp("reports")
    run = render_fixture.run()
    long = replace(run.profiles[-1], instructions=render_fixture.instructions(10_000))
    run = replace(run, profiles=(*run.profiles[:-1], long))
    book = open_book(run, render_fixture.diagnosis)
    write_run(run, folder / "fixture", book=book)
    write_run(run, folder / "fixture", book=book, standalone=True)
    write_index(folder, [("fixture", run)], books=[book])
    return folder


def scroll_through(browser: Browser) -> None:
    browser.evaluate(
        "(async () => { for (let y = 0; y < document.body.scrollHeight; y += 400) {"
        " scrollTo({top: y, behavior: 'instant'}); await new Promise(r => setTimeout(r, 60)); } })()"
    )


def healthy(browser: Browser) -> None:
    assert browser.complaints() == []
    assert all(address.startswith(("file:", "data:", "blob:")) for address in browser.requests())


def test_front_page_draws_its_charts_and_fetches_nothing(browser: Browser, reports: Path) -> None:
    browser.open(reports / "fixture" / "index.html")
    scroll_through(browser)
    browser.wait_for(f"{PANEL}.querySelectorAll('.plot[data-drawn]').length === 4")
    assert browser.evaluate("document.querySelectorAll('.plot svg.main-svg').length") >= 4
    healthy(browser)


def test_the_front_page_is_a_screen_or_two(browser: Browser, reports: Path) -> None:
    browser.open(reports / "index.html", width=1440)
    found = browser.evaluate(MEASURES)
    assert found["height"] <= 1500
    assert found["words"] <= 500
    assert browser.evaluate("document.querySelectorAll('.ladder .spark rect').length") >= 5
    for line in browser.evaluate(
        "[...document.querySelectorAll('.ladder h2 + p')].map(p => p.innerText)"
    ):
        assert len(line.split()) <= 20, line
    healthy(browser)


def test_the_policy_stops_scripts_that_are_not_ours(browser: Browser, reports: Path) -> None:
    browser.open(reports / "fixture" / "index.html")
    browser.evaluate(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.hurt = 1'; document.body.append(s); })()"
    )
    browser.evaluate(
        "(() => { const i = document.createElement('img'); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i); })()"
    )
    browser.evaluate("fetch('http://127.0.0.1:9/').catch(() => 0)")
    assert browser.evaluate("window.hurt") is None
    assert len(browser.complaints()) >= 3
    assert not any(address.startswith("http") for address in browser.requests())


def test_sizes_are_tabs_for_the_keyboard(browser: Browser, reports: Path) -> None:
    browser.open(reports / "fixture" / "index.html")
    assert browser.evaluate(f"{PANEL}.dataset.label") == "4096"
    browser.evaluate("document.querySelector('.tabs input:checked').focus()")
    browser.press("ArrowRight", 39)
    assert browser.evaluate(f"{PANEL}.dataset.label") == "8192"
    assert browser.evaluate("document.querySelectorAll('.panel:not([data-off])').length") == 1


def test_tables_sort_by_keyboard_with_missing_values_last(browser: Browser, reports: Path) -> None:
    browser.open(reports / "fixture" / "index.html")
    column = f"{PANEL}.querySelector('table[data-sortable]')"
    first = f"{column}.tBodies[0].rows[0].cells[0].textContent.trim()"
    assert browser.evaluate(first) == "naive"
    browser.evaluate(f"{column}.querySelectorAll('thead button')[2].focus()")
    browser.press("Enter", 13, "\r")
    assert browser.evaluate(first).startswith("register_blocked")
    assert (
        browser.evaluate(f"{column}.querySelectorAll('thead th')[2].getAttribute('aria-sort')")
        == "descending"
    )
    browser.press("Enter", 13, "\r")
    assert browser.evaluate(first) == "naive"
    last = f"Array.from({column}.tBodies[0].rows, r => r.cells[5].querySelector('.na') ? 1 : 0).join('')"
    browser.evaluate(f"{column}.querySelectorAll('thead button')[5].click()")
    order = browser.evaluate(last)
    assert "1" in order
    assert "10" not in order


def test_reasons_show_on_hover(browser: Browser, reports: Path) -> None:
    browser.open(reports / "fixture" / "index.html")
    browser.evaluate(
        f"{PANEL}.querySelector('.na').dispatchEvent(new PointerEvent('pointerover', {{bubbles: true}}))"
    )
    assert browser.evaluate("document.getElementById('balloon').hidden") is False
    assert len(browser.evaluate("document.getElementById('balloon').textContent")) > 10


def test_themes(browser: Browser, reports: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    browser.open(reports / "fixture" / "index.html", scheme="dark")
    assert browser.evaluate(background) == "rgb(20, 23, 26)"
    browser.evaluate("document.getElementById('theme').click()")
    assert browser.evaluate(background) == "rgb(255, 255, 255)"
    browser.evaluate("localStorage.clear()")
    browser.open(reports / "fixture" / "index.html", scheme="light")
    assert browser.evaluate(background) == "rgb(255, 255, 255)"
    browser.wait_for(f"{PANEL}.querySelector('.plot[data-drawn]')")
    tick = f"getComputedStyle({PANEL}.querySelector('.plot .ytick text')).fill"
    light = browser.evaluate(tick)
    browser.evaluate("document.getElementById('theme').click()")
    browser.wait_for(f"{tick} !== '{light}'")
    browser.evaluate("localStorage.clear()")


CONTRAST = """(() => {
  const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const linear = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const lum = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const back = e => {
    for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0.99) return c; }
    return [255, 255, 255, 1];
  };
  const bad = new Set();
  for (const e of document.querySelectorAll('main *, .bar *')) {
    const own = Array.from(e.childNodes).some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.closest('svg, .heat')) continue;
    const a = lum(parse(getComputedStyle(e).color)), b = lum(back(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.add(`${e.tagName}.${e.className} ${ratio.toFixed(2)}`);
  }
  return [...bad];
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", ["index.html", "fixture/gemm_fp32-vectorized-4096.html"])
def test_text_has_contrast_aa(browser: Browser, reports: Path, page: str, scheme: str) -> None:
    browser.open(reports / page, scheme=scheme)
    assert browser.evaluate(CONTRAST) == []


@pytest.mark.parametrize(
    "page",
    [
        "index.html",
        "glossary.html",
        "fixture/index.html",
        "fixture/gemm_fp32-vectorized-4096.html",
        "fixture/report.html",
    ],
)
def test_a_phone_needs_no_sideways_scrolling(browser: Browser, reports: Path, page: str) -> None:
    browser.open(reports / page, width=390, height=800)
    scroll_through(browser)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    healthy(browser)


@pytest.mark.parametrize("width", [320, 390, 1400])
def test_no_legend_squeezes_its_chart(browser: Browser, reports: Path, width: int) -> None:
    """On a small phone the legend of the chart over sizes has a line for each rung, and is nearly
    as long as the chart."""
    browser.open(reports / "fixture" / "index.html", width=width)
    scroll_through(browser)
    browser.wait_for(
        f"{PANEL}.querySelectorAll('.plot[data-drawn]').length === {PANEL}.querySelectorAll('.plot').length"
    )
    heights = browser.evaluate(
        "[...document.querySelectorAll('.plot[data-drawn]')].filter(p => p.offsetParent).map(p => p._fullLayout._size.h)"
    )
    assert len(heights) >= 4
    assert min(heights) >= 150, heights
    cut = "[...document.querySelectorAll('.plot[data-drawn] .legend .scrollbar')].filter(b => Number(b.getAttribute('height')) > 0).length"
    assert browser.evaluate(cut) == 0, "a legend is scrolled"


def test_nothing_moves_while_charts_are_drawn(browser: Browser, reports: Path) -> None:
    browser.open(reports / "fixture" / "index.html")
    browser.evaluate(
        "(() => { window.moved = 0; const add = l => l.getEntries().forEach(e => { window.moved += e.value; });"
        " new PerformanceObserver(add).observe({type: 'layout-shift', buffered: true}); })()"
    )
    scroll_through(browser)
    browser.wait_for(f"{PANEL}.querySelectorAll('.plot[data-drawn]').length === 4")
    assert browser.evaluate("window.moved") < 0.01


def test_ten_thousand_instructions_stay_fast(browser: Browser, reports: Path) -> None:
    start = time.monotonic()
    browser.open(reports / "fixture" / "gemm_fp32-cublas-4096.html")
    browser.wait_for("document.querySelector('.hotspots[data-ready]')")
    assert time.monotonic() - start < 8  # seconds; about one here, with room for a busy machine
    assert browser.evaluate("document.querySelectorAll('.hotspots .line').length") < 200
    assert "10000 instructions" in browser.evaluate(
        "document.querySelector('.hot-tools [role=status]').textContent"
    )
    spent = browser.evaluate(
        "(() => { const l = document.querySelectorAll('.list'), s = l[l.length - 1], t = performance.now();"
        " for (let i = 0; i < 50; i++) { s.scrollTop = i * 3000; s.dispatchEvent(new Event('scroll')); } return performance.now() - t; })()"
    )
    assert spent < 2000
    healthy(browser)


def test_hot_spots_link_source_and_sass(browser: Browser, reports: Path) -> None:
    browser.open(reports / "fixture" / "gemm_fp32-vectorized-4096.html")
    browser.wait_for("document.querySelector('.hotspots[data-ready]')")
    assert browser.evaluate("document.querySelectorAll('.list').length") == 2
    sass = "document.querySelectorAll('.list')[1]"
    browser.evaluate(f"{sass}.focus()")
    browser.press("ArrowDown", 40)
    browser.press("End", 35)
    browser.press("Home", 36)
    assert browser.evaluate(f"{sass}.querySelector('.chosen')") is not None
    browser.evaluate(
        "(() => { const s = document.querySelector('.hot-tools input[type=search]'); s.value = 'lds.128'; s.dispatchEvent(new Event('input')); })()"
    )
    assert (
        browser.evaluate("document.querySelector('.hot-tools [role=status]').textContent")
        == "20 of 160 instructions"
    )
    browser.evaluate(f"{sass}.querySelector('.line').click()")
    assert "LDS.128" in browser.evaluate("document.querySelector('.hot-detail').textContent")
    assert browser.evaluate("document.querySelector('.list .related') !== null")
    healthy(browser)


def test_one_file_turns_its_pages(browser: Browser, reports: Path) -> None:
    browser.open(reports / "fixture" / "report.html")
    assert browser.evaluate("document.querySelectorAll('.leaf:not([data-off])').length") == 1
    browser.evaluate(f"{PANEL}.querySelector('tbody a').click()")
    browser.wait_for(
        "document.querySelector('.leaf:not([data-off])').id.startsWith('page-gemm_fp32-naive')"
    )
    browser.wait_for("document.querySelector('.leaf:not([data-off]) .hotspots[data-ready]')")
    assert browser.evaluate("document.querySelector('a[data-csv]').href").startswith("blob:")
    assert browser.evaluate("typeof Plotly") == "object"
    healthy(browser)


def test_packed_pages_of_one_file_unpack_when_turned_to(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "PLAIN_BYTES", 0)
    run = render_fixture.run()
    page = write_run(
        run, tmp_path / "run", standalone=True, book=open_book(run, render_fixture.diagnosis)
    )
    browser.open(page)
    count = browser.evaluate("document.querySelectorAll('script.packed').length")
    assert count == len(run.profiles)
    assert browser.evaluate("document.querySelectorAll('.leaf').length") == 2, (
        "the run and the glossary"
    )
    browser.evaluate(f"{PANEL}.querySelector('tbody a').click()")
    browser.wait_for(
        "document.querySelector('.leaf:not([data-off])').id.startsWith('page-gemm_fp32-naive')"
    )
    browser.wait_for("document.querySelector('.leaf:not([data-off]) .hotspots[data-ready]')")
    assert browser.evaluate("document.querySelectorAll('script.packed').length") == count - 1
    browser.evaluate("location.hash = '#gemm_fp32-vectorized-4096-verdict'")
    browser.wait_for(
        "document.querySelector('.leaf:not([data-off])').id === 'page-gemm_fp32-vectorized-4096'"
    )
    browser.evaluate("history.back()")
    browser.wait_for(
        "document.querySelector('.leaf:not([data-off])').id.startsWith('page-gemm_fp32-naive')"
    )
    browser.open(page, script=False)
    assert "needs JavaScript" in browser.evaluate("document.querySelector('main').innerText")
    healthy(browser)


def test_without_scripts_everything_is_there(browser: Browser, reports: Path) -> None:
    browser.open(reports / "fixture" / "index.html", script=False)
    assert browser.evaluate("document.querySelectorAll('.panel').length") == 5
    assert browser.evaluate(
        "Array.from(document.querySelectorAll('.panel')).every(p => p.getClientRects().length > 0)"
    )
    browser.open(reports / "fixture" / "report.html", script=False)
    assert browser.evaluate(
        "Array.from(document.querySelectorAll('.leaf')).every(p => p.getClientRects().length > 0)"
    )


def test_printing_opens_what_is_folded(browser: Browser, reports: Path) -> None:
    browser.open(reports / "fixture" / "gemm_fp32-vectorized-4096.html")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    folded = "document.querySelector('.diff').closest('details').open"
    assert browser.evaluate(folded)
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not browser.evaluate(folded)


def test_hostile_text_is_inert(browser: Browser, tmp_path: Path) -> None:
    run = hostile_run()
    book = open_book(run, hostile_diagnosis, {})
    write_run(run, tmp_path / "run", book=book)
    write_run(run, tmp_path / "run", book=book, standalone=True)
    write_index(tmp_path, [("run", run)], books=[book])
    paths = sorted(tmp_path.rglob("*.html"))
    assert len(paths) == 8
    for path in paths:
        browser.open(path)
        scroll_through(browser)
        assert browser.evaluate("window.hurt") is None, path
        assert path.name == "glossary.html" or MARKER in browser.evaluate(
            "document.body.textContent"
        ), path
        assert (
            browser.evaluate(
                "document.querySelectorAll('main img, main b[onmouseover], main a[href^=\"javascript\"], svg a').length"
            )
            == 0
        ), path
        assert browser.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
        healthy(browser)


def test_a_term_opens_its_entry_by_key_and_touch_without_script(
    browser: Browser, reports: Path
) -> None:
    """A popover needs no script, so the policy does not matter; Escape closes it."""
    page = next((reports / "fixture").glob("gemm_fp32-naive-4096.html"))
    browser.open(page)
    entry = "document.getElementById('g-stall-lg-throttle')"
    assert browser.evaluate(f"getComputedStyle({entry}).display") == "none"
    browser.evaluate("document.querySelector('#stall-section details').open = true")
    browser.evaluate("document.querySelector('button[popovertarget=g-stall-lg-throttle]').focus()")
    browser.press("Enter", 13, "\r")
    assert browser.evaluate(f"{entry}.matches(':popover-open')")
    assert "queue" in browser.evaluate(f"{entry}.textContent")
    browser.press("Escape", 27)
    assert not browser.evaluate(f"{entry}.matches(':popover-open')")
    healthy(browser)
    browser.open(page, script=False)
    box = browser._call("DOM.getDocument")["root"]["nodeId"]
    for selector in ("#stall-section summary", "button[popovertarget=g-stall-lg-throttle]"):
        node = browser._call("DOM.querySelector", nodeId=box, selector=selector)["nodeId"]
        browser._call("DOM.scrollIntoViewIfNeeded", nodeId=node)
        quad = browser._call("DOM.getBoxModel", nodeId=node)["model"]["content"]
        at = {"x": (quad[0] + quad[2]) / 2, "y": (quad[1] + quad[5]) / 2}
        for kind in ("mousePressed", "mouseReleased"):
            browser._call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)
    opened = browser._call(
        "DOM.querySelector", nodeId=box, selector="#g-stall-lg-throttle:popover-open"
    )["nodeId"]
    assert opened


#: Of the page in view: its height, its words as they can be read, and the lowest edge of what a
#: reader needs first. A word has a letter; rows of a code list that are scrolled out of its box
#: are not in view.
MEASURES = """(() => {
  const page = document.querySelector('.leaf:not([data-off])') || document.querySelector('main');
  const low = q => { const e = page.querySelector(q); return e ? e.getBoundingClientRect().bottom : 0; };
  const rows = [...page.querySelectorAll('.list .line')].filter(row => {
    const box = row.closest('.list').getBoundingClientRect(), own = row.getBoundingClientRect();
    return own.bottom < box.top + 2 || own.top > box.bottom - 2;
  });
  const count = text => text.split(/\\s+/).filter(word => /\\p{L}/u.test(word)).length;
  const hidden = rows.reduce((sum, row) => sum + count(row.innerText), 0);
  return {
    height: document.documentElement.scrollHeight, width: document.documentElement.scrollWidth,
    words: count(page.innerText) - hidden,
    needed: Math.max(...['.nc-title', '.nc-gain', '.nc-where', '.nc-do li, .nc-do'].map(low)),
    title: low('.nc-title'), facts: page.querySelectorAll('.facts').length &&
      [...page.querySelectorAll('.facts')].filter(f => f.checkVisibility()).length,
  };
})()"""


@pytest.fixture(scope="module")
def recorded_pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The pages of two recordings, and of one launch as `analyze --standalone` writes it."""
    require_chromium()
    folder = tmp_path_factory.mktemp("recorded")
    for name in ("h200-transpose", "h200-gemm-tensor"):
        source = next(found for found in recorded.FOLDERS if found.name == name)
        write_run(recorded.run_of(source), folder / name)
    found = sorted(
        path for path in folder.glob("*/*.html") if path.name not in ("index.html", "report.html")
    )
    report = folder / "one.ncu-rep"
    report.write_bytes(recorded.first_launches(1))
    alone = write_standalone(analyze([report], Options(profiles=True)), folder / "alone.html")
    return [*found, alone]


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (375, 667)])
def test_the_first_screen_answers(
    browser: Browser, recorded_pages: list[Path], width: int, height: int
) -> None:
    """Verdict, gain, hottest line and first advice are in view, and no other figure is. Folded, a
    page is a screen or three."""
    for path in recorded_pages:
        browser.open(path, width=width, height=height)
        browser.wait_for("document.documentElement.dataset.ready")
        found = browser.evaluate(MEASURES)
        assert 0 < found["title"] < found["needed"] <= height, (path.name, found)
        assert found["width"] <= width, (path.name, found)
        if path.name != "alone.html":
            assert found["facts"] == 0, path.name
        if width == 1440:
            assert found["height"] <= 3000, (path.name, found)
            assert found["words"] <= 600, (path.name, found)
