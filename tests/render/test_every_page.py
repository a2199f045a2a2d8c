"""One page of each kind, in a real browser: all text has contrast in light and dark, nothing is wider
than a phone, every link leads somewhere, and a notebook's own styles leave the card alone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from urllib.parse import unquote

import pytest
import recorded
import render_fixture
from browser import Browser, require_chromium
from program_found import small

from ncu_toolkit.base.core import guests
from ncu_toolkit.base.core.errors import EnvironmentProblem
from ncu_toolkit.base.render.html import fragment
from ncu_toolkit.kernel.analysis import answers, gate
from ncu_toolkit.kernel.analysis.analyze import Options, analyze
from ncu_toolkit.kernel.build.toolchain import find_tool
from ncu_toolkit.kernel.diagnosis.static import analyse_source
from ncu_toolkit.kernel.explain.code import of_code
from ncu_toolkit.kernel.pages.book import open_book
from ncu_toolkit.kernel.pages.html import write_analysis, write_answer, write_run, write_standalone
from ncu_toolkit.program.pages.program_view import write_program_page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

HELDOUT = recorded.ROOT / "tests" / "heldout" / "three" / "h200.ncu-rep.xz"
DOTS = (
    'extern "C" __global__ void dots(const float* a, const float* b, float* c, int n) {\n'
    "    float sum = 0.f;\n"
    "    for (int k = 0; k < n; ++k) sum += a[threadIdx.x * n + k] * b[k * n + threadIdx.x];\n"
    "    c[threadIdx.x] = sum;\n}\n"
)
KINDS = (
    "front", "glossary", "ladder", "launch", "one file", "report", "step", "comparison", "code",
    *guests.known("tune", "history"), "notebook", "classic notebook",
)  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind; that of code only where there is a compiler."""
    require_chromium()
    root = tmp_path_factory.mktemp("kinds")
    run = render_fixture.run()
    book = open_book(run, render_fixture.diagnosis)
    ladder = write_run(run, root / "fixture", book=book)
    for name in run.report_files:  # a run's pages lie beside its reports
        (root / "fixture" / name).touch()
    found = analyze([HELDOUT], Options(profiles=True))
    sides = gate.sides_of(found)
    compared = gate.compare(sides, sides, ({}, {}), [], [("n02_a", "n02_b")])
    pages = {
        "front": render_fixture.write_front(root, {"fixture": book}),
        "glossary": root / "glossary.html",
        "ladder": ladder,
        "launch": root / "fixture" / "gemm_fp32-vectorized-4096.html",
        "one file": write_standalone(book, root / "fixture" / "one.html"),
        "report": write_analysis(found, root / "report.html"),
        "step": write_program_page(small(), root / "step.html"),
        "comparison": write_answer(answers.of_comparison(compared), "C", root / "comparison.html"),
        **_notebooks(root, fragment(answers.of_analysis(found, 2))),
    }
    if view := guests.guest("tune.view"):
        (search, *_) = view.kept("NVIDIA H200", "gemm_fp32")["autotuned"]
        pages["tune"] = root / "tuned.html"
        pages["tune"].write_text(view.page(search), encoding="utf-8")
    if guests.there("history"):
        pages["history"] = write_answer(_history(root), "History", root / "history.html")
    try:
        find_tool("nvcc"), find_tool("nvdisasm")
    except EnvironmentProblem:
        return pages
    source = root / "dots.cu"
    source.write_text(DOTS)
    code = of_code(analyse_source(source, "sm_90", block=128), {source.name: DOTS})
    return {**pages, "code": write_answer(code, "Code", root / "code.html")}


def _history(root: Path):  # type: ignore[no-untyped-def]
    pytest.importorskip("duckdb")
    import history_rows

    from ncu_toolkit.guests.history import history, trends

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NCU_TOOLKIT_HISTORY", str(root / "history"))
        history.add(
            [
                replace(history_rows.day(at, name=name, time_us=us), launch=name)
                for name, times in {"slower": (50.0, 50.0, 60.0), "once": (20.0,)}.items()
                for at, us in enumerate(times, 1)
            ]
        )
        with history.opened(trends.COLUMNS) as found:
            return trends.of_all(trends.all_series(found), page=True)


def _notebooks(root: Path, shown: str) -> dict[str, Path]:
    """The documentation's notebook, its first card `shown`, as JupyterLab and the classic notebook
    style it."""
    nbconvert = pytest.importorskip("nbconvert")
    nbformat = pytest.importorskip("nbformat")
    notebook = json.loads((recorded.ROOT / "docs" / "notebook.ipynb").read_text())
    outputs = [each for cell in notebook["cells"] for each in cell.get("outputs", ())]
    next(o for o in outputs if "nc-card" in str(o))["data"]["text/html"] = shown
    found = {}
    for name, template in (("notebook", "lab"), ("classic notebook", "classic")):
        exporter = nbconvert.HTMLExporter(template_name=template)
        text, _ = exporter.from_notebook_node(nbformat.reads(json.dumps(notebook), 4))
        found[name] = root / f"{template}.html"
        fetched = r'<script[^>]* src="http[^"]*"[^>]*></script>'
        found[name].write_text(re.sub(fetched, "", text), encoding="utf-8")
    return found


def opened(browser: Browser, page: Path, width: int = 1280, scheme: str = "light") -> None:
    browser.open("about:blank")
    browser.open(page, width=width, scheme=scheme)
    browser.evaluate(f"document.body.dataset.jpThemeLight = '{scheme == 'light'}'.toLowerCase()")
    browser.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    browser.evaluate(
        "(async () => { for (let y = 0; y < document.body.scrollHeight; y += 400) {"
        " scrollTo({top: y, behavior: 'instant'}); await new Promise(r => setTimeout(r, 40)); } })()"
    )
    browser.wait_for(
        "[...document.querySelectorAll('.plot')].every(p => !p.checkVisibility() || p.querySelector('svg'))"
    )


#: Each visible text with the least contrast of its colour with what is painted behind it, at five
#: places of its first line: what lies there is blended from the back to the front, a gradient by each
#: of its colours. Text with an outline or a glow of the page's colour stands on that. Ratios below
#: those of WCAG AA are returned: 4.5, and 3 from 24 pixels on, or from 18.66 pixels in bold.
CONTRAST = r"""(() => {
  const style = document.createElement('style');
  style.textContent = '* { pointer-events: auto !important } .bar { position: static !important }';
  document.head.append(style);
  const COLOUR = /rgba?\([^)]*\)|color\(srgb [^)]*\)/g;
  const parse = c => { const m = (c || '').match(/^color\(srgb (.*)\)/);
    if (m) { const v = m[1].split(/[ /]+/).map(Number); return [...v.slice(0, 3).map(x => 255 * x), v[3] ?? 1]; }
    const n = (c || '').match(/^rgba?\((.*)\)/); if (!n) return [0, 0, 0, 0];
    const v = n[1].split(/[ ,/]+/).map(Number); return [...v.slice(0, 3), v[3] ?? 1]; };
  const over = (a, b, alpha) => a.slice(0, 3).map((v, i) => v * alpha + b[i] * (1 - alpha));
  const linear = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const faded = e => { let found = 1; for (; e; e = e.parentElement) found *= Number(getComputedStyle(e).opacity); return found; };
  const paints = e => { const s = getComputedStyle(e), fade = faded(e);
    if (e instanceof SVGElement && !(e instanceof SVGSVGElement)) {
      const c = parse(s.fill); return e.matches('text, tspan') ? [] : [[[...c.slice(0, 3), c[3] * Number(s.fillOpacity) * fade]]]; }
    const c = parse(s.backgroundColor), found = [[[...c.slice(0, 3), c[3] * fade]]];
    const stops = (s.backgroundImage.match(COLOUR) || []).map(parse);
    if (stops.length) found.push(stops.concat([[0, 0, 0, 0]]).map(c => [...c.slice(0, 3), c[3] * fade]));
    return found; };
  const bad = new Set(), walker = document.createTreeWalker(document.querySelector('.nc-alone') || document.body, NodeFilter.SHOW_TEXT);
  let node, seen = 0;
  while ((node = walker.nextNode())) {
    const e = node.parentElement;
    if (!node.textContent.trim() || e.closest('script, style, title, noscript, option, [inert]')) continue;
    if (!e.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    const range = document.createRange(); range.selectNodeContents(node);
    const box = range.getClientRects()[0];
    if (!box || box.width < 2 || box.height < 4) continue;
    const s = getComputedStyle(e), svg = e instanceof SVGElement;
    const ink = parse(svg ? s.fill : s.color), size = parseFloat(s.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(s.fontWeight) >= 700), glow = s.textShadow.match(COLOUR) || [];
    const outlined = svg && s.paintOrder.startsWith('stroke') && s.stroke !== 'none';
    const halo = outlined ? parse(s.stroke) : glow.length > 2 ? parse(glow[0]) : null;
    let least = 99;
    for (const part of [0.02, 0.25, 0.5, 0.75, 0.98]) {
      const stack = document.elementsFromPoint(box.left + part * box.width, box.top + box.height / 2);
      if (!stack.includes(e)) continue;  // cut off, or under something else
      seen += 1;
      let backs = [[255, 255, 255]];
      if (getComputedStyle(document.documentElement).colorScheme === 'dark') backs = [[18, 18, 18]];
      for (const each of stack.slice(stack.indexOf(e)).reverse())
        for (const colours of paints(each)) backs = colours.flatMap(c => backs.map(b => over(c, b, c[3])));
      if (halo) backs = backs.map(b => over(halo, b, halo[3] ?? 1));
      const alpha = ink[3] * (svg ? Number(s.fillOpacity) : 1) * faded(e);
      least = Math.min(least, ...backs.map(b => ratio(over(ink, b, alpha), b)));
    }
    const named = [e.parentElement, e].map(each => `${each.tagName}.${each.getAttribute('class') || ''}`).join(' > ');
    if (least < (large ? 3 : 4.5) - 0.005) bad.add(`${least.toFixed(2)} ${named}: ${node.textContent.trim().slice(0, 40)}`);
  }
  style.remove();
  return [seen, [...bad]];
})()"""


@pytest.mark.parametrize(("kind", "scheme"), product(KINDS, ("light", "dark")))
def test_all_text_has_contrast(
    browser: Browser, pages: dict[str, Path], kind: str, scheme: str
) -> None:
    if kind not in pages:
        pytest.skip("no nvcc or nvdisasm here")
    opened(browser, pages[kind], scheme=scheme)
    browser.resize(1280, min(16_000, browser.evaluate("document.documentElement.scrollHeight")))
    browser.evaluate("scrollTo(0, 0)")
    seen, bad = browser.evaluate(CONTRAST)
    assert seen > 50
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("kind", KINDS[:-2])
def test_a_phone_needs_no_sideways_scrolling(
    browser: Browser, pages: dict[str, Path], kind: str
) -> None:
    if kind not in pages:
        pytest.skip("no nvcc or nvdisasm here")
    opened(browser, pages[kind], width=390)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.complaints() == []
    assert all(each.startswith(("file:", "data:", "blob:")) for each in browser.requests())


#: The styles of the card's elements.
STYLES = """(() => {
  const STYLES = 'float fontSize fontFamily fontWeight color backgroundColor textAlign margin padding border display lineHeight'.split(' ');
  return [...document.querySelectorAll('.nc-alone .nc-card *')].map(e => { const s = getComputedStyle(e);
    return [e.tagName, e.className, ...STYLES.map(name => s[name])].join(); });
})()"""


@pytest.mark.parametrize("kind", ["notebook", "classic notebook"])
def test_a_notebook_s_styles_leave_the_card_alone(
    browser: Browser, pages: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    """Every element is styled as on a page that has no styles at all."""
    bare = tmp_path / "bare.html"
    shown = re.search(r'<div class="nc-alone">.*</article>', pages[kind].read_text(), re.DOTALL)
    assert shown
    bare.write_text(f"<!doctype html><body>{shown[0]}", encoding="utf-8")
    found = []
    for page in (bare, pages[kind]):
        opened(browser, page)
        found.append(browser.evaluate(STYLES))
    alone, hosted = found
    assert hosted == alone != []


#: Links of the page in view that lead nowhere: to no file beside it, or to no place in a file. What is
#: packed counts by its name.
DEAD = """(() => {
  const bad = [], others = new Set();
  for (const a of document.querySelectorAll('main a[href], .bar a[href]')) {
    const url = new URL(a.href, location.href), place = decodeURIComponent(url.hash.slice(1));
    if (url.protocol === 'blob:' || url.protocol === 'data:' || a.hasAttribute('data-csv')) continue;
    const own = url.pathname === location.pathname;
    const packed = document.querySelector(`script.packed[data-page="${CSS.escape(place)}"]`);
    if (own && place && !packed && !document.getElementById(place)) bad.push(`${a.textContent.trim()} -> #${place}`);
    if (!own) others.add(url.href);
  }
  return [bad, [...others], document.querySelectorAll('main a[href]').length];
})()"""


@pytest.mark.parametrize("kind", KINDS[:-2])
def test_every_link_leads_somewhere(browser: Browser, pages: dict[str, Path], kind: str) -> None:
    if kind not in pages:
        pytest.skip("no nvcc or nvdisasm here")
    opened(browser, pages[kind])
    dead, others, links = browser.evaluate(DEAD)
    assert links or kind in ("history", "tune")
    assert not dead
    for address in others:
        assert address.startswith("file:"), address
        path, _, place = unquote(address.removeprefix("file://")).partition("#")
        assert Path(path).is_file(), address
        if place and path.endswith(".html"):
            assert f'id="{place}"' in Path(path).read_text(encoding="utf-8"), address


@pytest.mark.parametrize("kind", ["launch", "report", "step", "comparison", "code"])
def test_a_card_explains_its_words(browser: Browser, pages: dict[str, Path], kind: str) -> None:
    """The verdict links to the whole page of its bottleneck, and each unit and each wait to its entry."""
    if kind not in pages:
        pytest.skip("no nvcc or nvdisasm here")
    opened(browser, pages[kind])
    titles = "[...document.querySelectorAll('.nc-title, .program .first b')].filter(t => t.checkVisibility())"
    found = browser.evaluate(f"{titles}.map(t => t.querySelector('a.term')?.href || t.textContent)")
    assert found
    for address in found:
        assert address.startswith("file:"), f"{address} is not linked"
        path, _, place = unquote(address.removeprefix("file://")).partition("#")
        text = Path(path).read_text(encoding="utf-8")
        entry = text.partition(f'id="{place}"')[2].partition("<dt")[0]
        assert "<h3>What to change</h3>" in entry, address
    named = "[...document.querySelectorAll('.nc-card :is(.nc-bars, .nc-waits) th')].filter(t => !t.querySelector('a.term')).map(t => t.textContent)"
    assert browser.evaluate(named) == []
