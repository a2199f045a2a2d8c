"""The written pages: structure, links that lead somewhere, nothing from a report read as markup."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from urllib.parse import unquote

import pytest
import render_fixture
from render_hostile import MARKER, hostile_diagnosis, hostile_run

from ncu_toolkit.base.model.run import Run
from ncu_toolkit.base.render.html import packed
from ncu_toolkit.kernel.pages.book import open_book
from ncu_toolkit.kernel.pages.html import write_run, write_standalone

VOID = {"meta", "link", "input", "br", "img", "hr", "wbr"}


#: The icon lies in the page itself.
_BASE = resources.files("ncu_toolkit.base.render").joinpath("templates", "base.html").read_text()
ICON = _BASE.partition('rel="icon" href="')[2].partition('"')[0]


class Page(HTMLParser):
    """Tags, ids, links and text of a page; complains about elements that do not nest."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.tables: list[bool] = []
        self.text: list[str] = []
        self.headings: list[int] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self.tables.append(False)
        if tag == "caption":
            self.tables[-1] = True
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src") and value != ICON:
                self.links.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self._open
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not (self._open and self._open[-1] in ("script", "style")):
            self.text.append(data)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    run = render_fixture.run()
    book = open_book(run, render_fixture.diagnosis)
    (folder / "fixture").mkdir()
    (folder / "fixture" / "gemm_fp32.ncu-rep.xz").write_bytes(b"")
    write_run(run, folder / "fixture", book=book)
    render_fixture.write_front(folder, {"fixture": book})
    return folder


def pages(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.html"))


def test_pages_are_well_formed_and_ids_unique(reports: Path) -> None:
    assert len(pages(reports)) == 3 + 30  # front page, run, glossary; launches
    for path in pages(reports):
        page = Page(path)
        assert max(Counter(page.ids).values()) == 1, path
        assert page.tags["h1"] == 1
        assert page.tags["main"] == 1


def test_every_link_leads_to_a_file_or_place_here(reports: Path) -> None:
    for path in pages(reports):
        page = Page(path)
        for link in page.links:
            assert not re.match(r"[a-z]+:|//", link), link
            target, _, fragment = link.partition("#")
            if target:
                assert (path.parent / unquote(target)).is_file(), (path, link)
            elif fragment:
                assert fragment in page.ids, (path, link)


def test_a_strict_policy_and_no_inline_script(reports: Path) -> None:
    for path in pages(reports):
        page = Page(path)
        policy = next(
            value
            for tag, name, value in page.attributes
            if tag == "meta" and name == "content" and "default-src" in value
        )
        assert "default-src 'none'" in policy
        assert re.search(r"script-src 'self' 'sha256-[A-Za-z0-9+/=]+';", policy)
        assert not any(name.startswith("on") for _, name, _ in page.attributes)
        assert "http-equiv" in path.read_text().split("<script")[0]


def test_tables_have_captions_and_charts_a_table_and_words(reports: Path) -> None:
    for path in pages(reports):
        page = Page(path)
        assert all(page.tables) or "figures" in page.ids, path
        assert page.tags["details"] >= page.tags["figure"]
        images = sum(
            1
            for tag, name, value in page.attributes
            if (tag, name, value) == ("div", "role", "img")
        )
        labelled = sum(
            1 for tag, name, _ in page.attributes if tag == "div" and name == "aria-labelledby"
        )
        drawn = sum(
            name == "class" and bool(re.match("memory|bars|roofs|savings", str(value)))
            for tag, name, value in page.attributes
            if tag == "figure"
        )
        assert images == labelled == page.tags["figure"] - drawn


def test_json_and_csv_lie_beside_the_page(reports: Path) -> None:
    document = json.loads((reports / "fixture" / "report.json").read_text())
    assert document["schema"] == "ncu-toolkit/report"
    assert (
        (reports / "fixture" / "gemm_fp32-4096-float32-table.csv")
        .read_text()
        .startswith("Rung,Time (us),Bottleneck,Predicted → achieved (ratio),Rate (FLOP/s)")
    )


def test_writing_again_leaves_no_rubbish(reports: Path) -> None:
    before = sorted(path.name for path in reports.rglob("*"))
    run = render_fixture.run()
    write_run(run, reports / "fixture", book=open_book(run, render_fixture.diagnosis))
    assert sorted(path.name for path in reports.rglob("*")) == before


def test_one_file_holds_everything(tmp_path: Path) -> None:
    run = render_fixture.run()
    path = write_standalone(
        open_book(run, render_fixture.diagnosis), tmp_path / "x" / "report.html"
    )
    assert [p.name for p in (tmp_path / "x").iterdir()] == [path.name]
    assert not (tmp_path / "assets").exists()
    page = Page(path)
    assert max(Counter(page.ids).values()) == 1
    assert all(link.startswith("#") or link.endswith(".ncu-rep.xz") for link in page.links)
    packed = {
        value for tag, name, value in page.attributes if tag == "script" and name == "data-page"
    }
    assert {link[1:] for link in page.links if link.startswith("#page-")} <= set(page.ids) | packed
    terms = {link for link in page.links if link.startswith("#term-")}
    assert {"#term-stall-lg-throttle", "#term-concept-roofline"} <= terms
    assert {link[1:] for link in terms} <= set(page.ids)


def test_pages_hold_what_they_have_in_common_once(reports: Path) -> None:
    """Folded sections are packed against the sample beside the pages, and come out as they were."""
    folder = reports / "fixture"
    shared = json.loads((folder / "shared.js").read_text().partition("=")[2].rstrip(";\n"))
    samples = json.loads(unpacked(shared["samples"]))
    text = (folder / "gemm_fp32-vectorized-4096.html").read_text()
    found = re.findall(r'class="part" data-key="([a-z-]+)">([^<]+)<', text)
    parts = {key: unpacked(body, samples[key]) for key, body in found}
    assert {"step", "stall-section", "occupancy-section", "verdict", "figures"} <= parts.keys()
    assert "DRAM throughput" in parts["figures"]
    assert "vectorized" in parts["reproduce"]
    assert len(text) < sum(map(len, parts.values()))
    assert "invented source" in unpacked(shared["sources"])


def unpacked(text: str, sample: str = "") -> str:
    letters = "".join(chr(at) for at in range(33, 127) if chr(at) not in '"<\\')
    pairs = zip(text[:-1:2], text[1::2], strict=False)
    held = sum(
        (91 * letters.index(a) + letters.index(b)) << 13 * at for at, (a, b) in enumerate(pairs)
    )
    data = held.to_bytes(13 * (len(text) // 2) // 8 + 1, "little")
    data = data[: 13 * (len(text) // 2) // 8 - int(text[-1])]
    stream = zlib.decompressobj(-zlib.MAX_WBITS, zdict=sample.encode())
    return stream.decompress(data).decode()


@pytest.mark.parametrize("size", [0, 1, 2, 3, 12, 13, 14, 27, 5000])
def test_packed_text_has_no_letter_that_ends_it(size: int) -> None:
    text = "".join(chr(32 + at * at % 90) for at in range(size))
    found = packed(text.encode())
    assert not set('"<\\ \n') & set(found)
    assert unpacked(found) == text


def test_the_front_page_prefers_the_whole_ladder(tmp_path: Path) -> None:
    whole = render_fixture.run()
    single = replace(
        whole,
        id="later",
        title="One rung, later",
        live=True,
        created="2026-01-01T00:00:00Z",
        profiles=whole.profiles[:1],
        timings=whole.timings[:1],
    )
    books = [open_book(run, render_fixture.diagnosis) for run in (single, whole)]
    path = render_fixture.write_front(tmp_path, dict(zip(("later", "whole"), books, strict=True)))
    text = path.read_text()
    assert '<a href="./whole/index.html">FP32 matrix product</a>' in text
    assert "Also in" in text
    assert text.count("FP32 matrix product</a>") == 1


def test_an_empty_folder_gets_a_page_that_says_what_to_do(tmp_path: Path) -> None:
    text = render_fixture.write_front(tmp_path, {}).read_text()
    assert "No runs yet" in text
    assert "ncu-toolkit report" in text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    folder = tmp_path_factory.mktemp("hostile")
    run = hostile_run()
    book = open_book(run, hostile_diagnosis, {})
    write_run(run, folder / "run", book=book)
    write_standalone(book, folder / "run" / "report.html")
    render_fixture.write_front(folder, {"run": book})
    return folder, run


def test_hostile_text_makes_no_elements(hostile: tuple[Path, Run]) -> None:
    folder, _ = hostile
    seen = 0
    for path in pages(folder):
        page = Page(path)
        assert page.tags["img"] == page.tags["iframe"] == 0
        assert not any(name.startswith("on") for _, name, _ in page.attributes)
        assert not any(re.match(r"\s*(javascript|data|https?|file):", link) for link in page.links)
        seen += MARKER in "".join(page.text)
        raw = path.read_text()
        assert not set(raw) & set("\x00\x1b\x07\u202e\u2066\u200b"), path
    assert seen >= 3


def test_hostile_names_reach_no_other_folder(hostile: tuple[Path, Run]) -> None:
    folder, run = hostile
    assert {path.parent for path in folder.rglob("*") if path.is_file()} == {
        folder,
        folder / "run",
        folder / "assets",
    }
    for path in pages(folder):
        assert not any(".." in unquote(link).removeprefix("../") for link in Page(path).links)
    assert run.report_files[0].startswith("../")
