"""The pages in a real browser: nothing fetched, nothing refused, charts drawn, keyboard, themes,
narrow screens, printing, hostile text inert."""

from __future__ import annotations

import fcntl
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import recorded
import render_fixture
from browser import Browser, require_chromium
from render_hostile import MARKER, hostile_diagnosis, hostile_run

from ncu_toolkit.base.render import html
from ncu_toolkit.kernel.analysis.analyze import Options, analyze
from ncu_toolkit.kernel.pages.book import open_book
from ncu_toolkit.kernel.pages.html import write_analysis, write_run, write_standalone

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PANEL = "document.querySelector('.panel:not([data-off])')"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_chromium()
    folder = tmp_path_factory.mktemp("reports")
    run = render_fixture.run()
    long = replace(run.profiles[-1], instructions=render_fixture.instructions(10_000))
    run = replace(run, profiles=(*run.profiles[:-1], long))
    book = open_book(run, render_fixture.diagnosis)
    write_run(run, folder / "fixture", book=book)
    write_standalone(book, folder / "fixture" / "report.html")
    render_fixture.write_front(folder, {"fixture": book})
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
    browser.evaluate(
        "document.querySelectorAll('.family > details').forEach(each => { each.open = true })"
    )
    scroll_through(browser)
    browser.wait_for(f"{PANEL}.querySelectorAll('.plot[data-drawn]').length === 1")
    browser.wait_for("document.querySelectorAll('.plot svg.main-svg').length >= 2")
    assert browser.evaluate(f"{PANEL}.querySelectorAll('.bars .track i').length") > 20
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


def test_tables_sort_by_keyboard_with_missing_values_last(browser: Browser, reports: Path) -> None:
    browser.open(reports / "fixture" / "index.html")
    browser.wait_for("document.documentElement.dataset.filled")
    browser.evaluate(f"{PANEL}.querySelector('.fold').open = true")
    column = f"{PANEL}.querySelector('table[data-sortable]')"
    first = f"{column}.tBodies[0].rows[0].cells[0].textContent.trim()"
    assert browser.evaluate(first) == "naive"
    browser.evaluate(f"{column}.querySelectorAll('thead button')[4].focus()")
    browser.press("Enter", 13, "\r")
    assert browser.evaluate(first).startswith("register_blocked")
    assert (
        browser.evaluate(f"{column}.querySelectorAll('thead th')[4].getAttribute('aria-sort')")
        == "descending"
    )
    browser.press("Enter", 13, "\r")
    assert browser.evaluate(first) == "naive"
    last = f"Array.from({column}.tBodies[0].rows, r => r.cells[3].querySelector('.na') ? 1 : 0).join('')"
    browser.evaluate(f"{column}.querySelectorAll('thead button')[3].click()")
    order = browser.evaluate(last)
    assert "1" in order
    assert "10" not in order


def test_reasons_show_on_hover(browser: Browser, reports: Path) -> None:
    browser.open(reports / "fixture" / "index.html")
    browser.wait_for("document.documentElement.dataset.filled")
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
    scroll_through(browser)
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
  const backs = new Map(), lums = new Map(), bad = new Set();
  const back = e => {  // that of each element once: rows of code are thousands
    if (!e) return 'rgb(255, 255, 255)';
    if (!backs.has(e)) {
      const own = getComputedStyle(e).backgroundColor;
      backs.set(e, parse(own)[3] > 0.99 ? own : back(e.parentElement));
    }
    return backs.get(e);
  };
  const of = c => { if (!lums.has(c)) lums.set(c, lum(parse(c))); return lums.get(c); };
  for (const e of document.querySelectorAll('main *, .bar *')) {
    const own = Array.from(e.childNodes).some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.closest('svg, .heat')) continue;
    const a = of(getComputedStyle(e).color), b = of(back(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.add(`${e.tagName}.${e.className} ${ratio.toFixed(2)}`);
  }
  return [...bad];
})()"""


def test_the_address_of_a_section_opens_it(browser: Browser, reports: Path) -> None:
    page = next(iter((reports / "fixture").glob("*vectorized*.html")))
    for address in (page.resolve().as_uri(), (reports / "fixture" / "report.html").resolve().as_uri() + "#page-" + page.stem):  # fmt: skip
        browser.open("about:blank")
        browser.open(address, width=1440)
        browser.wait_for("document.documentElement?.dataset.ready")
        link = "[...document.querySelectorAll('.fold:not([open]) > summary > .anchor')].find(link => link.checkVisibility())"
        where = browser.evaluate(f"{link}.href")
        browser.open("about:blank")
        browser.open(where, width=1440)
        browser.wait_for("document.documentElement?.dataset.ready")
        name = where.partition("#")[2]
        browser.wait_for(f"document.getElementById('{name}')?.querySelector('.fold').open")


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


def test_packed_pages_of_one_file_unpack_when_turned_to(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "PLAIN_BYTES", 0)
    run = render_fixture.run()
    page = write_standalone(
        open_book(run, render_fixture.diagnosis), tmp_path / "run" / "report.html"
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
    browser.evaluate("void setTimeout(() => history.back())")
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
    browser.wait_for("document.documentElement.dataset.filled")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    folded = "document.querySelector('.diff').closest('details').open"
    assert browser.evaluate(folded)
    listed = "document.querySelector('[id$=figures] details').open"
    assert not browser.evaluate(listed), "lists of everything stay folded"
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not browser.evaluate(folded)


def test_hostile_text_is_inert(browser: Browser, tmp_path: Path) -> None:
    run = hostile_run()
    book = open_book(run, hostile_diagnosis, {})
    write_run(run, tmp_path / "run", book=book)
    write_standalone(book, tmp_path / "run" / "report.html")
    render_fixture.write_front(tmp_path, {"run": book})
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


def test_a_term_opens_its_entry_in_place_and_without_script_in_the_glossary(
    browser: Browser, reports: Path
) -> None:
    page = reports / "fixture" / "gemm_fp32-naive-4096.html"
    browser.open(page)
    browser.wait_for("document.documentElement.dataset.filled")
    term = "document.querySelector('#stall-section a.term[href$=\"#term-stall-lg-throttle\"]')"
    entry = "document.getElementById('entry')"
    assert not browser.evaluate(f"{entry}.matches(':popover-open')")
    browser.evaluate("document.querySelector('#stall-section details').open = true")
    browser.evaluate(f"{term}.focus()")
    browser.press("Enter", 13, "\r")
    assert browser.evaluate(f"{entry}.matches(':popover-open')")
    assert "queue" in browser.evaluate(f"{entry}.textContent")
    browser.press("Escape", 27)
    assert not browser.evaluate(f"{entry}.matches(':popover-open')")
    healthy(browser)
    browser.open(page, script=False)
    browser.open(reports / "fixture" / "index.html", script=False)
    link = browser.evaluate("document.querySelector('main a.term').href")
    browser.open(reports / "glossary.html", script=False)
    address, _, place = link.partition("#")
    assert browser.evaluate("location.href") == address
    assert browser.evaluate(f"document.getElementById('{place}').tagName") == "DT"


@pytest.fixture(scope="session")
def recorded_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of every recording, and of one launch as `analyze --standalone` writes it. One
    worker writes them for all."""
    require_chromium()
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "recorded-pages"
    with (folder.parent / "recorded-pages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "index.html").is_file():
            _write_recorded_pages(folder)
    return folder


def _write_recorded_pages(folder: Path) -> None:
    report = folder / "one.ncu-rep"
    folder.mkdir(exist_ok=True)
    report.write_bytes(recorded.first_launches(1))
    write_analysis(analyze([report], Options(profiles=True)), folder / "alone.html")
    books = {
        source.name: open_book(recorded.run_of(source), recorded.diagnosed)
        for source in recorded.FOLDERS
    }
    for name, book in books.items():
        write_run(book.run, folder / name, book=book)
    render_fixture.write_front(folder, books)


@pytest.mark.parametrize("name", ["alone.html", *(folder.name for folder in recorded.FOLDERS)])
def test_every_page_opens(browser: Browser, recorded_pages: Path, name: str) -> None:
    """With contrast AA, no wider than the screen, and with nothing fetched or refused."""
    pages = [recorded_pages / name]
    if name != "alone.html":
        pages = sorted(p for p in pages[0].glob("*.html") if p.name != "index.html")
        folder = next(each for each in recorded.FOLDERS if each.name == name)
        assert len(pages) == len(recorded.run_of(folder).profiles)
    for at, path in enumerate(pages):
        browser.open(path, width=1440, height=900, scheme=("light", "dark")[at % 2])
        browser.wait_for(
            "document.readyState === 'complete' && !document.querySelector('.hotspots:not([data-ready])')"
        )
        assert browser.evaluate("document.documentElement.scrollWidth") <= 1440, path.name
        assert browser.evaluate(CONTRAST) == [], path.name
        healthy(browser)


def test_defects_are_a_gallery(browser: Browser, recorded_pages: Path) -> None:
    browser.open(recorded_pages / "h200-pathology" / "index.html", width=1440)
    browser.wait_for("document.documentElement.dataset.filled")
    assert browser.evaluate("document.querySelectorAll('.gallery .defect').length") == 24
    assert browser.evaluate("document.querySelectorAll('.panel .plot').length") == 0
    left = browser.evaluate(
        "[...document.querySelectorAll('.defect .gain')].map(gain =>"
        " [parseFloat(gain.querySelector('.left').style.getPropertyValue('--v')), parseFloat(gain.innerText)])"
    )
    assert all(part == pytest.approx(message, rel=0.06) for part, message in left)
    # predictions: each point is its row of the table
    browser.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    browser.evaluate("document.getElementById('predictions').scrollIntoView()")
    browser.wait_for("document.querySelector('#predictions .plot').dataset.drawn")
    points = browser.evaluate(
        "document.querySelector('#predictions .plot').data.filter(trace => trace.mode === 'markers')"
        ".flatMap(trace => trace.customdata.map((name, at) => [name, trace.x[at], trace.y[at]]))"
    )
    table = browser.evaluate(
        "[...document.querySelectorAll('#predictions tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    rows = {re.sub(r"\s", " ", f"{step}, {size}"): (gain, came) for step, size, gain, came in table}
    assert len(points) == len(rows) > 10
    for name, *drawn in points:
        for number, message in zip(drawn, rows[re.sub(r"\s", " ", name)], strict=True):
            assert float(message.split("×")[0]) == pytest.approx(number, rel=0.006)


def test_a_bar_opens_its_rung_and_the_address_keeps_size_and_kernel(
    browser: Browser, reports: Path
) -> None:
    page = reports / "fixture" / "index.html"
    filled = "document.documentElement && document.documentElement.dataset.filled"
    browser.open("about:blank")
    browser.open(f"{page.as_uri()}#size=1024")
    browser.wait_for(filled)
    assert browser.evaluate(f"{PANEL}.dataset.label") == "1024"
    browser.evaluate("document.querySelectorAll('.tabs input')[2].click()")
    chosen = browser.evaluate(f"{PANEL}.dataset.label")
    assert browser.evaluate("location.hash") == f"#size={chosen}"
    browser.open("about:blank")
    browser.open(f"{page.as_uri()}#size=4096")
    browser.wait_for(filled)
    browser.evaluate(f"{PANEL}.querySelector('.bars a.row').focus()")
    browser.press("Enter", 13, "\r")
    browser.wait_for("location.pathname.endsWith('gemm_fp32-naive-4096.html')")
    browser.evaluate("void setTimeout(() => history.back())")
    browser.wait_for("document.querySelector('tr.chosen') && document.querySelector('.row.chosen')")
    assert browser.evaluate("location.hash") == "#size=4096&kernel=naive"


def test_the_glossary_is_filtered(browser: Browser, reports: Path) -> None:
    browser.open(reports / "glossary.html")
    browser.wait_for("document.documentElement && document.documentElement.dataset.ready")
    shown = (
        "[...document.querySelectorAll('dl.entries dt')].filter(t => t.checkVisibility()).length"
    )
    whole = browser.evaluate(shown)
    typed = "(() => { const f = document.querySelector('[data-filter]'); f.value = '%s'; f.dispatchEvent(new Event('input')); })()"
    browser.evaluate(typed % "short scoreboard")
    assert 0 < browser.evaluate(shown) < whole / 4
    browser.evaluate(typed % "")
    assert browser.evaluate(shown) == whole
    healthy(browser)


def test_guess_first_hides_the_verdict_and_counts(browser: Browser, reports: Path) -> None:
    browser.open(reports / "fixture" / "gemm_fp32-vectorized-4096.html")
    browser.wait_for("document.documentElement.dataset.filled")
    seen = "document.querySelector('.nc-title').checkVisibility()"
    assert browser.evaluate(seen)
    message = "[...document.querySelectorAll('.memory .wire')].map(w => w.textContent).join()"
    marked = "[...document.querySelectorAll('.memory .mark')].some(m => m.checkVisibility())"
    assert "DRAM 1\u202f% busy" in browser.evaluate(message)
    assert browser.evaluate(marked)
    browser.evaluate("document.getElementById('guess').click()")
    assert not browser.evaluate(seen)
    assert not browser.evaluate(marked)
    assert not browser.evaluate("document.getElementById('verdict').checkVisibility()")
    assert browser.evaluate("document.querySelector('.nc-bars').checkVisibility()")
    browser.evaluate("document.querySelector('[data-ask=cause] [data-right]').click()")
    browser.evaluate("document.querySelector('[data-ask=gain] input:not([data-right])').click()")
    browser.evaluate("document.querySelector('.guess button').click()")
    assert browser.evaluate(seen)
    assert browser.evaluate("document.getElementById('guess').textContent").endswith("1 of 2 right")
    browser.evaluate("document.querySelector('.steps a').click()")
    root = "document.documentElement"
    browser.wait_for(
        f"location.hash === '#guess=1.2' && {root} && {root}.dataset.ready"
        f" && document.querySelector('.nc-title') && !{seen}"
    )
    healthy(browser)
