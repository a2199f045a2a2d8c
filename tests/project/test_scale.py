"""Ten thousand launches and fifty thousand instructions: nothing grows faster than they do, and the
pages open.

Times are processor time where that is what grows, ratios where machines differ, and limits far
above what an idle machine needs. The goal for opening a page is 2 s (benchmarks/scale.py and the
browser's own clock measure it: about half a second); a busy machine gets a multiple of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import recorded
import report_files
from browser import Browser

from ncu_toolkit.base.render import markdown
from ncu_toolkit.base.render.text import plain_text
from ncu_toolkit.cli.analyze import write_pages
from ncu_toolkit.kernel.analysis import answers
from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, LaunchResult, Options
from ncu_toolkit.kernel.pages import json as documents
from ncu_toolkit.kernel.pages import run_view
from ncu_toolkit.kernel.report import framing, integrity, messages

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(recorded.FP32 is None, reason="the recording is not here"),
]

#: Seconds within which a page must be there; the goal on an idle machine is 2.
OPEN_SECONDS = 8.0
KINDS = 400


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> LaunchResult:
    path = tmp_path_factory.mktemp("scale") / "one.ncu-rep"
    path.write_bytes(report_files.many_launches(1))
    (launch,) = report_files.read(str(path), Options(figures=True, profiles=True)).launches
    return launch


def analysis(one: LaunchResult, count: int, *, profiles: bool = False) -> Analysis:
    """`count` launches of KINDS kernels, as read from a report of so many."""
    assert one.profile is not None
    launches = []
    for index in range(count):
        name = f"kernel_{index % KINDS}"
        profile = replace(
            one.profile,
            origin=replace(one.profile.origin, action_index=index),
            launch=replace(one.profile.launch, kernel=f"{name}(float*)", function=name),
        )
        launches.append(
            replace(
                one,
                key=f"0.{index}",
                kernel=f"{name}(float*)",
                function=name,
                profile=profile if profiles else None,
            )
        )
    return Analysis(
        (FileResult("many.ncu-rep", tuple(launches), "2025.3.1", count, count),),
        Options(figures=True, profiles=profiles),
    )


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


FORMATS = {
    "text": lambda found: plain_text(answers.of_analysis(found)),
    "markdown": lambda found: markdown.markdown(answers.of_analysis(found)),
    "json": documents.analysis_document,
    "csv": documents.csv,
    "brief": lambda found: markdown.brief(answers.digest(found)),
}


@pytest.mark.parametrize("form", FORMATS)
def test_formats_grow_no_faster_than_the_launches(one: LaunchResult, form: str) -> None:
    few, many = (
        seconds(lambda count=count: FORMATS[form](analysis(one, count)))
        for count in (2_500, 10_000)
    )
    assert many < 6 * few + 0.5
    assert many < 30


def test_checking_a_report_grows_no_faster_than_its_launches() -> None:
    taken = []
    for count in (250, 1_000):
        data = report_files.many_launches(count, 50)
        frame = framing.parse(data)
        sources = messages.sources(frame)
        taken.append(seconds(lambda frame=frame, of=sources: integrity.inspect(frame, of)))
    assert taken[1] < 6 * taken[0] + 0.5


def read_long(folder: Path, count: int) -> tuple[FileResult, float]:
    """A kernel of `count` instructions, with the seconds that reading and judging it took."""
    path = folder / f"{count}.ncu-rep"
    path.write_bytes(report_files.long_kernel(count))
    found: list[FileResult] = []
    taken = seconds(lambda: found.append(report_files.read(str(path), Options(profiles=True))))
    (launch,) = found[0].launches
    assert launch.complete, launch.status
    assert launch.profile is not None
    assert len(launch.profile.instructions) == count
    assert all(row.sass for row in launch.profile.instructions)
    return found[0], taken


@pytest.fixture(scope="module")
def fifty_thousand(tmp_path_factory: pytest.TempPathFactory) -> tuple[FileResult, float]:
    return read_long(tmp_path_factory.mktemp("long"), 50_000)


def test_reading_a_long_kernel_grows_no_faster_than_its_instructions(
    fifty_thousand: tuple[FileResult, float], tmp_path: Path
) -> None:
    assert fifty_thousand[1] < 6 * read_long(tmp_path, 12_500)[1] + 1


def test_pages_are_not_made_for_all(
    one: LaunchResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_view, "PAGES", 5)
    monkeypatch.setattr(run_view, "GROUPS_SHOWN", 300)
    page = write_pages(analysis(one, 10_000, profiles=True), None, tmp_path, standalone=False)
    assert page is not None
    assert len(list(page.parent.glob("launch-*.html"))) == 5
    text = page.read_text(encoding="utf-8")
    assert len(text) < 3 << 20
    assert f"{KINDS - 300} more kinds of launches are not listed" in text
    assert "9995 launches have no page" in text.replace("\u202f", "").replace(",", "")


#: A key whose effect takes longer is felt.
KEYSTROKE_SECONDS = 0.1
_LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"


def opened(browser: Browser, page: Path) -> float:
    """Seconds until everything of a page was loaded and its scripts had run; the better of two, as
    the first one also starts the browser."""
    found = []
    for _ in range(2):
        browser.open(page)
        browser.wait_for("document.documentElement.dataset.ready")
        found.append(float(browser.evaluate(_LOADED)))
        assert browser.complaints() == []
    return min(found)


def keystrokes(browser: Browser) -> Iterator[float]:
    """What each letter typed into the filter of the launches costs the page's thread, in every way
    to group them: the median of a word's letters."""
    browser.wait_for("document.querySelector('.launches[data-ready]')")
    for rows in ("", "kernel", "bottleneck", "launch"):
        browser.evaluate(
            f"(rows => {{ rows.value = '{rows}'; rows.dispatchEvent(new Event('change')) }})(document.querySelector('.launches select')),"
            "(filter => { filter.value = ''; filter.focus() })(document.querySelector('.launches input'))"
        )
        taken = []
        for letter in "kernel_12":
            before = browser.worked()
            browser.press(letter, text=letter)
            browser.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
            taken.append(browser.worked() - before)
        yield statistics.median(taken)


@pytest.mark.browser
def test_ten_thousand_launches_open(
    one: LaunchResult, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_view, "PAGES", 60)  # more than a single file holds as they are
    whole = analysis(one, 10_000, profiles=True)
    page = write_pages(whole, None, tmp_path, standalone=False)
    assert page is not None
    assert opened(browser, page) < OPEN_SECONDS
    assert browser.evaluate("document.querySelectorAll('*').length") < 30_000
    assert max(keystrokes(browser)) < KEYSTROKE_SECONDS
    single = write_pages(whole, None, tmp_path / "single.html", standalone=True)
    assert single is not None
    assert opened(browser, single) < OPEN_SECONDS
    assert browser.evaluate("document.querySelectorAll('script.packed').length") > 0
    assert browser.evaluate("document.querySelectorAll('*').length") < 100_000


@pytest.mark.browser
def test_fifty_thousand_instructions_open(
    fifty_thousand: tuple[FileResult, float], browser: Browser, tmp_path: Path
) -> None:
    page = write_pages(
        Analysis((fifty_thousand[0],), Options(profiles=True)),
        None,
        tmp_path / "reports",
        standalone=False,
    )
    assert page is not None
    (launch,) = page.parent.glob("launch-*.html")
    assert launch.stat().st_size < 10 << 20
    assert opened(browser, launch) < OPEN_SECONDS
    browser.wait_for("document.querySelector('.hotspots[data-ready]')")
    assert "50000 instructions" in browser.evaluate(
        "document.querySelector('.hot-tools [role=status]').textContent"
    )
    assert browser.evaluate("document.querySelectorAll('.hotspots .line').length") < 200
