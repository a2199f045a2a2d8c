"""The view of an invented run: one set of formatted values behind HTML, terminal, Markdown, JSON
and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
import render_fixture
from msgspec import structs
from rich.console import Console

from ncu_toolkit.base.document.tables import Table
from ncu_toolkit.base.document.views import BarChart, Chart, RunView, StepChart
from ncu_toolkit.base.model import Presence, Reading
from ncu_toolkit.base.model.run import Ceilings
from ncu_toolkit.base.render.html import table_csv
from ncu_toolkit.base.render.text import RunText
from ncu_toolkit.kernel.diagnosis.figures import inputs
from ncu_toolkit.kernel.ladder.catalogue import find_rung, split
from ncu_toolkit.kernel.pages import json as json_out
from ncu_toolkit.kernel.pages.book import Book, open_book
from ncu_toolkit.kernel.pages.family_view import _traffic_chart
from ncu_toolkit.kernel.pages.roofline import Spot, roofline, roofs
from ncu_toolkit.kernel.pages.run_view import PAGES, page_names, paged, run_summary, run_view


@pytest.fixture(scope="module")
def book() -> Book:
    return open_book(render_fixture.run(), render_fixture.diagnosis)


@pytest.fixture(scope="module")
def view(book: Book) -> RunView:
    return run_view(book)


def every_chart(view: RunView) -> Iterator[Chart | BarChart | StepChart]:
    for family in view.families:
        yield from family.charts
        for panel in family.panels:
            yield from panel.charts
    for page in view.pages:
        yield from (chart for charts in render_fixture.parts(page, "stairs") for chart in charts)


def every_table(view: RunView) -> Iterator[Table]:
    yield from (chart.table for chart in every_chart(view))
    for family in view.families:
        yield from (*family.tables, *(panel.table for panel in family.panels))
    for page in view.pages:
        yield from render_fixture.page_tables(page).values()


def ladder(view: RunView, size: str) -> Table:
    return next(panel.table for panel in view.families[0].panels if panel.label == size)


def test_sentence_says_start_end_library_and_roof(view: RunView) -> None:
    sentence = view.families[0].sentence
    assert "From naive at 499 GFLOP/s to register_blocked at 51.1 TFLOP/s" in sentence
    assert "101 % of cublas" in sentence
    assert "of the measured FP32 roof" in sentence


def test_table_has_what_the_report_promises(view: RunView) -> None:
    keys = [column.key for column in ladder(view, "4096").columns]
    promised = (
        "rung time bottleneck predicted rate baseline stall registers theoretical_occupancy achieved_occupancy limiter dram l2 l1 conflicts "
        "lds lds128 sts sts128 ldgsts hmma"
    )
    assert keys[: len(promised.split())] == promised.split()


def test_regressions_and_planted_defects_are_marked(view: RunView) -> None:
    badges = {
        row[0].value: [mark for mark, _ in row[0].badges] for row in ladder(view, "4096").rows
    }
    assert badges["b_transposed"] == ["regression"]
    assert badges["async_copy_broken"] == ["planted"]
    assert badges["cublas"] == ["baseline"]
    assert badges["vectorized"] == []


def test_sizes_that_were_only_timed_say_so(view: RunView) -> None:
    """In a sentence, instead of columns in which no rung has a value."""
    table = ladder(view, "512")
    assert [column.key for column in table.columns] == ["rung", "time", "rate", "baseline"]
    assert "No rung was profiled at this size" in table.note
    assert not ladder(view, "4096").note


def test_every_missing_value_has_a_reason(view: RunView) -> None:
    cells = [cell for table in every_table(view) for row in table.rows for cell in row]
    assert any(cell.missing for cell in cells)
    assert all(cell.title for cell in cells if cell.missing)
    assert all(cell.text for cell in cells if cell.value is not None and cell.value != "")


def test_the_three_kinds_of_absence_are_told_apart(view: RunView) -> None:
    table = render_fixture.page_tables(view.pages[0])["metrics"]
    titles = {row[0].text: row[1].title for row in table.rows if row[1].missing}
    assert titles["Tensor pipe active"].endswith("its denominator is zero")
    assert titles["FP16 pipe active"].endswith("not available on this architecture")
    assert titles["MIO issue"].endswith("not collected in this report")


def test_zero_is_a_value(book: Book) -> None:
    subject = book.run.profiles[0]
    assert subject.reading("local_load_sectors").value == 0
    cell = next(
        row[1]
        for row in render_fixture.page_tables(run_view(book).pages[0])["metrics"].rows
        if row[0].text == "Local load sectors"
    )
    assert (cell.text, cell.missing) == ("0 sectors", False)


def test_every_chart_is_a_valid_figure_with_a_table(view: RunView) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    seen = set()
    for chart in every_chart(view):
        kind = chart.key.rsplit("-", 1)[-1]
        assert chart.table.rows
        assert chart.summary
        if kind not in seen and isinstance(chart, Chart):
            graph_objects.Figure(json.loads(json.dumps(chart.figure)))
        seen.add(kind)
    assert {
        "ladder",
        "stalls",
        "roofline",
        "traffic",
        "sizes",
        "registers",
        "shared",
        "block",
    } <= seen


def bar_chart(view: RunView, key: str) -> BarChart:
    chart = next(chart for chart in every_chart(view) if chart.key.endswith(key))
    assert isinstance(chart, BarChart)
    return chart


def test_the_ladder_has_lines_kinds_and_what_each_rung_does(view: RunView) -> None:
    chart = bar_chart(view, "4096-float32-ladder")
    assert len(chart.marks) == 3
    assert [mark.at for mark in chart.marks] == sorted(mark.at for mark in chart.marks)
    assert {kind.words for kind in chart.kinds.values()} == {
        "our kernels", "libraries", "slower, kept to show it"
    }  # fmt: skip
    for row in chart.rows:
        assert row.note
        (bar,) = row.segments
        assert row.figures[0] in bar.words
        assert "90th percentile" in bar.words


def test_stalls_are_reported_in_cycles_and_shares(view: RunView) -> None:
    for row in bar_chart(view, "4096-float32-stalls").rows:
        assert sum(part.sizes[1] for part in row.segments) == pytest.approx(100, abs=2)


def test_a_path_joins_rungs_of_one_function() -> None:
    points = [
        Spot(name, rate, {"dram": 10.0}, "step", "#000000", True, root)
        for name, rate, root in (("a", 1e12, "a"), ("b", 2e12, "a"), ("c", 1e12, "c"))
    ]
    figure = roofline(
        points, roofs(render_fixture.DEVICE, Ceilings(copy=4e12, tensor=2e15)), "tensor"
    )
    path = next(trace for trace in figure["data"] if trace["name"] == "path")
    assert path["y"] == [1e12, 2e12, None, 1e12]
    assert figure["layout"]["yaxis"]["ticktext"][-1] == "1P"


def test_measured_roofs_stand_beside_the_device_peaks() -> None:
    found = roofs(render_fixture.DEVICE, Ceilings(copy=4e12, fp32=6e13))
    assert [roof.measured for roof in found if roof.name == "fp32"] == [True, False]
    assert next(roof.rate for roof in found if roof.label == "FP32, device peak") == pytest.approx(
        66.9e12, rel=1e-3
    )
    assert next(roof.rate for roof in found if roof.label == "DRAM, device peak") == pytest.approx(
        4.9e12, rel=5e-3
    )
    unknown = roofs(replace(render_fixture.DEVICE, cc=(99, 0)), Ceilings())
    assert {roof.name for roof in unknown} == {"dram"}


def test_renderings_agree(view: RunView, book: Book) -> None:
    document = json.loads(json_out.document(view, book, page_names(book)))
    rung = next(
        row
        for size in document["families"][0]["sizes"]
        if size["size"] == "4096"
        for row in size["rungs"]
        if row["rung"] == "vectorized"
    )
    rows = list(csv.DictReader(io.StringIO(table_csv(ladder(view, "4096")))))
    line = next(row for row in rows if row["Rung"] == "vectorized")
    assert float(line["Time (us)"]) == rung["time"]
    assert float(line["Registers (count)"]) == rung["registers"]
    shown = {row[0].value: row[1].text for row in ladder(view, "4096").rows}["vectorized"]
    console = Console(width=220, record=True, file=io.StringIO())
    console.print(RunText(run_summary(book)))
    assert shown in console.export_text()


def test_a_narrow_terminal_loses_columns_and_no_digits(view: RunView, book: Book) -> None:
    row = next(row for row in ladder(view, "4096").rows if row[0].value == "vectorized")
    for width in (60, 80, 100, 220):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(RunText(run_summary(book)))
        lines = [
            line for line in console.export_text().splitlines() if line.startswith("vectorized")
        ]
        assert any(row[1].text in line for line in lines), "the time, with its unit"
        assert not any("…" in line for line in lines) or width < 80


def test_json_lists_every_launch_with_its_verdict(view: RunView, book: Book) -> None:
    launches = json_out.plain(view, book, page_names(book))["launches"]
    assert len(launches) == len(book.run.profiles)
    first = launches[0]
    assert first["kernel"].startswith("naive(")
    assert first["status"] == "complete"
    assert first["diagnosis"]["bottleneck"] == "uncoalesced-global-access"
    assert first["diagnosis"]["runners_up"][0]["bottleneck"] == "low-occupancy"
    assert first["page"] == "gemm_fp32-naive-1024.html"


def test_pages_tell_the_step(view: RunView) -> None:
    page = next(page for page in view.pages if page.slug == "gemm_fp32-vectorized-4096")
    [(before, _)], [diff] = (
        render_fixture.parts(page, "compared"),
        render_fixture.parts(page, "diff"),
    )
    assert before.text == "mini_tile"
    assert {kind for kind, _ in diff} >= {"+", "-", "@"}
    tables = render_fixture.page_tables(page)
    assert "Stall: short scoreboard" in [row[0].text for row in tables["moved"].rows]
    assert tables["checks"].rows
    assert render_fixture.parts(page, "claim")
    assert page.previous is not None
    assert page.previous.href.endswith("-4096.html")
    assert any(fact.label == "Other size" for fact in page.siblings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ("", False),
        ("\n// a remark\n", False),
        ("\n#include <climits>\n", True),
        ("\nextern int more;\n", True),
    ],
)
def test_a_kernel_that_changed_since_it_was_recorded_is_reported(
    change: str, reported: bool
) -> None:
    """In the ladder's notes and on the kernel's page; other blocks in another layout are no change,
    nor is the text that it was recorded with, and blanked source says nothing."""
    run = render_fixture.run()
    head, code, tail = split(find_rung("vectorized").text)
    former = "/*+++\nminimum_cc = '8.0'\n+++*/\n"
    label = find_rung("vectorized").label

    def embedded(text: str) -> RunView:
        profiles = tuple(
            replace(p, sources={f"/src/{label}": text})
            if p.context and p.context.rung == "vectorized"
            else replace(p, sources={})
            for p in run.profiles
        )
        return run_view(open_book(replace(run, profiles=profiles), render_fixture.diagnosis))

    def message(view: RunView) -> tuple[bool, bool]:
        notes = [note for panel in view.families[0].panels for note in panel.notes]
        pages = [page.former for page in view.pages if "vectorized" in page.title]
        return any("Changed since the recording: vectorized" in note for note in notes), any(
            label in former for former in pages
        )

    for whole in (head.replace("title", "title ") + code + change + tail, former + code + change):
        assert message(embedded(whole)) == (reported, reported)
    assert message(embedded("x" * 100)) == (False, False)


def test_repeated_launches_are_grouped_not_overwritten() -> None:
    template = render_fixture.profile("naive", 1024)
    strangers = tuple(
        replace(
            template,
            context=None,
            origin=replace(template.origin, action_index=n),
            readings={
                **template.readings,
                "duration": Reading("duration", 10.0 + n, "us", Presence.PRESENT),
            },
        )
        for n in range(5)
    )
    view = run_view(
        open_book(
            replace(render_fixture.run(), profiles=strangers, timings=()), render_fixture.diagnosis
        )
    )
    assert view.launches is not None
    (row,) = view.launches.rows
    cells = dict(zip((column.key for column in view.launches.columns), row, strict=True))
    assert cells["launches"].value == 5
    assert cells["time"].value == 60
    assert cells["median"].value == 12
    assert cells["median"].title == "10.0 µs to 14.0 µs"
    assert len({page.slug for page in view.pages}) == 5
    assert {page.kicker.partition(" in ")[0] for page in view.pages} == {
        f"Launch {n} of 5" for n in range(1, 6)
    }
    assert view.order is not None
    assert view.order["place"] == [1, 2, 3, 4, 5]
    assert view.order["row"] == [0] * 5
    assert view.order["us"] == [10.0 + n for n in range(5)]
    assert set(view.order["page"]) == {page.slug for page in view.pages}


@pytest.mark.slow
def test_very_many_launches_get_pages_for_each_kind_first() -> None:
    template = replace(render_fixture.profile("naive", 1024), context=None, instructions=())
    strangers = tuple(
        replace(
            template,
            origin=replace(template.origin, action_index=n),
            launch=replace(template.launch, kernel=f"k{n % 3}", function=f"k{n % 3}"),
        )
        for n in range(PAGES + 50)
    )
    book = open_book(
        replace(render_fixture.run(), profiles=strangers, timings=()), render_fixture.diagnosis
    )
    chosen = paged(book)
    assert len(chosen) == PAGES
    assert {profile.launch.kernel for profile in chosen} == {"k0", "k1", "k2"}
    view = run_view(book)
    slugs = {page.slug for page in view.pages}
    links = [
        cell.href.removesuffix(".html")
        for page in view.pages
        for cell in (page.previous, page.following)
        if cell
    ]
    assert len(links) == 2 * PAGES - 2
    assert set(links) <= slugs
    table = view.launches
    assert table is not None
    assert "50 launches have no page." in table.note


def test_incomplete_launches_are_named() -> None:
    broken = render_fixture.profile("naive", 1024)
    broken = replace(
        broken,
        context=None,
        launch=replace(broken.launch, status="incomplete: it crashed", grid=(0, 1, 1)),
        readings={},
    )
    view = run_view(
        open_book(
            replace(render_fixture.run(), profiles=(broken,), timings=()), render_fixture.diagnosis
        )
    )
    assert view.skipped is not None
    assert any("incomplete: it crashed" in row[1].text for row in view.skipped.rows)
    assert view.answer is not None
    assert view.answer.notes == ("incomplete: it crashed: naive",)
    assert view.answer.cards == ()


def test_bytes_that_bypass_a_level_are_named_and_not_drawn() -> None:
    """A point far below the compulsory bytes would press all others together."""
    whole = render_fixture.profile("naive", 4096)
    empty = {
        name: replace(whole.reading(name), value=0.0, presence=Presence.PRESENT)
        for name in inputs("l1_global_bytes")
    }
    bypass = replace(whole, readings={**whole.readings, **empty})
    drawn = []
    for profile in (whole, bypass):
        run = replace(render_fixture.run(), profiles=(profile,))
        book = open_book(run, render_fixture.diagnosis)
        chart = _traffic_chart(
            next(e for e in book.families["gemm_fp32"].values() if e.variant.size == "4096")
        )
        assert chart is not None
        drawn.append("l1" in chart.kinds)
        assert drawn[-1] == ("Not drawn" not in chart.summary)
    assert drawn == [True, False]
    assert "Not drawn, below 0.1×: naive bypasses L1." in chart.summary


def test_pairs_are_not_shown_as_a_climb() -> None:
    run = render_fixture.run()
    whole = open_book(run, render_fixture.diagnosis)
    info = {
        name: structs.replace(rung, kind="planted")
        for (_, name), rung in whole.rungs.items()
        if name == "mini_tile"
    }
    info |= {name: rung for (_, name), rung in whole.rungs.items() if name == "vectorized"}
    kept = tuple(profile for profile in run.profiles if profile.launch.function in info)
    pair = replace(
        run, profiles=kept, timings=tuple(timing for timing in run.timings if timing.rung in info)
    )
    view = run_view(
        open_book(
            pair,
            render_fixture.diagnosis,
            {("gemm_fp32", name): rung for name, rung in info.items()},
        )
    )
    assert view.families[0].sentence.startswith(
        "1 kernel with one planted defect and repaired, at size 4096: a repaired kernel is 1.50× faster in the median"
    )
