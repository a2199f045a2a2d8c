"""What a reader takes from a page is right without knowing how it was made: thresholds, levels of
memory, units, headings, links, places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from urllib.parse import unquote

import pytest
import render_fixture

from ncu_toolkit.hardware.occupancy import occupancy, what_if_block, what_if_registers
from ncu_toolkit.model import Evidence
from ncu_toolkit.model.run import Ceilings
from ncu_toolkit.render.book import Book, open_book
from ncu_toolkit.render.columns import COLUMNS, gain_cell
from ncu_toolkit.render.family_view import family_view
from ncu_toolkit.render.glossary_view import column_term, columns_explained, kind_of
from ncu_toolkit.render.html import write_index, write_run
from ncu_toolkit.render.page_tables import _what_if, occupancy_section, traffic_table
from ncu_toolkit.render.page_view import evidence_table
from ncu_toolkit.render.reproduce import commands, opening
from ncu_toolkit.render.roofline import Point, _crosses, roofline
from ncu_toolkit.render.roofs import roofs
from ncu_toolkit.render.run_view import run_view
from ncu_toolkit.render.views import Table


@pytest.fixture(scope="module")
def book() -> Book:
    return open_book(render_fixture.run(), render_fixture.diagnosis)


@pytest.mark.parametrize(
    ("value", "comparison", "words"),
    [
        (0.67, ">=", "≥ 70.2 %: not met"),
        (0.71, ">=", "≥ 70.2 %: met"),
        (0.5, "<", "< 70.2 %: met"),
        (0.9, "<=", "≤ 70.2 %: not met"),
    ],
)
def test_evidence_says_whether_its_threshold_is_met(
    value: float, comparison: str, words: str
) -> None:
    fact = Evidence(
        "fma_pipe_active", "FMA pipe", value, "fraction", "", 0.702, comparison, "somewhere"
    )  # type: ignore[arg-type]
    table = evidence_table((fact, replace(fact, threshold=None, comparison="")), "Evidence")
    assert [row[2].text.replace("\u2009", " ") for row in table.rows] == [words, "–"]


def test_a_column_in_which_nothing_stands_is_left_out() -> None:
    fact = Evidence("fma_pipe_active", "FMA pipe", 0.5, "fraction", "busy")
    table = evidence_table((fact,), "Evidence")
    assert [column.label for column in table.columns] == ["Figure", "Measured", "Meaning"]


def test_what_shared_memory_keeps_busy_is_not_ascribed_to_global_accesses(book: Book) -> None:
    profile = next(p for p in book.run.profiles if p.value("l1_data_pipe_active") is not None)
    rows = {row[0].text: row for row in traffic_table(profile, None).rows}
    assert rows["L1 data stage"][4].value == profile.value("l1_data_pipe_active")
    assert rows["L1 (global)"][4].value != profile.value("l1_data_pipe_active")


def test_whole_things_are_counted_whole() -> None:
    base = occupancy((9, 0), 1024, 32, 0, 0, None)
    for label, found in (
        ("threads per block", what_if_block(base)),
        ("registers per thread", what_if_registers(base)),
    ):
        values = [
            row[0].text for row in _what_if("x", label, found, (32.0, 64.0), 1, 64).table.rows
        ]
        assert not [
            text for text in values if "." in text or float(text.replace("\u2009", "")) not in found
        ]


def tables(view: object) -> Iterator[Table]:
    """Every table of a view, wherever it stands."""
    if isinstance(view, Table):
        yield view
    elif is_dataclass(view):
        yield from (table for field in fields(view) for table in tables(getattr(view, field.name)))
    elif isinstance(view, Mapping | list | tuple):
        yield from (
            table
            for part in (view.values() if isinstance(view, Mapping) else view)
            for table in tables(part)
        )


def test_headings_are_explained_by_their_table(book: Book) -> None:
    """One word means another thing in another table: a speedup that was achieved is no
    occupancy."""
    found = {kind_of(table): table for table in tables(run_view(book))}
    explained = {kind: dict(columns_explained(found[kind])) for kind in ("ladder", "calibration")}
    assert "occupancy" not in explained["calibration"]["Achieved"].lower()
    assert "warps" in explained["ladder"]["Achieved"].lower()
    for texts in explained.values():
        assert len(set(texts.values())) == len(texts)
        assert set(texts) == {
            column.label for column in found["ladder" if "Rung" in texts else "calibration"].columns
        }
    assert all(
        column_term(found["traffic"], column) != "metric-memory-throughput"
        for column in found["traffic"].columns
    )


def test_times_under_the_profiler_are_not_explained_as_unprofiled() -> None:
    run = render_fixture.run()
    strangers = replace(
        run, profiles=tuple(replace(profile, context=None) for profile in run.profiles), timings=()
    )
    launches = next(
        table
        for table in tables(run_view(open_book(strangers, render_fixture.diagnosis)))
        if table.key == "launches"
    )
    explained = dict(columns_explained(launches))
    for label in ("Time", "Median"):
        assert "under ncu" in explained[label]
        assert "unprofiled" not in explained[label]


@pytest.mark.parametrize(
    ("speedup", "good", "text"),
    [(1.0, False, "n/a"), (1.003, False, "n/a"), (1.6, False, "1.60×"), (1.0, True, "n/a")],
)
def test_no_gain_is_claimed_to_be_nothing(
    book: Book, speedup: float, good: bool, text: str
) -> None:
    finding = replace(
        render_fixture.diagnosis(book.run.profiles[0]).primary,
        speedup=speedup,
        good=good,
        arithmetic=("Why not.",),
    )
    cell = gain_cell(finding)
    assert cell.text == text
    assert not cell.missing or "Why not" in cell.title or "roof" in cell.title


def test_the_verdict_comes_before_the_details(book: Book) -> None:
    """What a reader looks for first is among the first columns, so that a screen of 1440 pixels
    shows it."""
    keys = [spec.column.key for spec in COLUMNS]
    assert keys[:6] == ["rung", "time", "rate", "baseline", "bottleneck", "predicted"]


def test_an_analysis_alone_links_to_no_front_page(tmp_path: Path) -> None:
    run = render_fixture.run()
    alone = replace(
        run,
        profiles=tuple(replace(profile, context=None) for profile in run.profiles[:2]),
        timings=(),
        report_files=(),
    )
    write_run(
        alone, tmp_path / "analysis", book=open_book(alone, render_fixture.diagnosis), front=False
    )
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) == 4
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "Ladders" not in text
        for link in re.findall(r'href="([^"#]+)"', text):
            assert (page.parent / unquote(link)).is_file(), (page, link)


def test_the_stall_table_has_no_rows_of_nothing(book: Book) -> None:
    """Only rungs that were profiled, only reasons that count in one of them; what is left out is
    summed or counted."""
    for panel in family_view(book, "gemm_fp32").panels:
        for chart in panel.charts:
            if chart.title == "Stall migration":
                assert not any(cell.missing for row in chart.table.rows for cell in row)
                shares = [[cell.value for cell in row[1:]] for row in chart.table.rows]
                for column in range(len(shares[0]) - 1):
                    assert max(row[column] / sum(row) for row in shares) >= 0.01
                assert ("not profiled" in chart.table.note) == (
                    len(chart.table.rows) < len(panel.table.rows)
                )


def test_labels_of_the_roofline_keep_off_the_lines() -> None:
    """Where a side is free of points, roofs and path, the label stands there."""
    points = [
        Point("left", 1e12, {"dram": 20.0}, "step", "#000000"),
        Point("right", 1e12, {"dram": 90.0}, "step", "#000000"),
    ]
    figure = roofline(points, roofs(render_fixture.DEVICE, Ceilings(copy=4e12, fp32=6e13)), "fp32")
    trace = next(trace for trace in figure["data"] if trace["name"] == "rungs at DRAM")
    assert trace["text"] == ["left", "right"]
    assert trace["textposition"] == ["middle left", "middle right"]
    assert _crosses((0, 0, 10, 10), (4, 4, 6, 6))
    assert not _crosses((0, 0, 10, 10), (6, 0, 9, 4))
    assert not _crosses((0, 5, 3, 5), (4, 4, 6, 6))


def test_every_ladder_has_a_card_that_links_its_page(tmp_path: Path) -> None:
    run = render_fixture.run()
    other = replace(
        run,
        title="other",
        timings=tuple(replace(timing, family="transpose") for timing in run.timings[:2]),
        profiles=(),
    )
    books = [open_book(run, render_fixture.diagnosis), open_book(other, render_fixture.diagnosis)]
    text = write_index(tmp_path, [("a", run), ("b", other)], books=books).read_text(
        encoding="utf-8"
    )
    assert text.count('<article class="ladder') == 2
    for address in ("./a/index.html", "./b/index.html"):
        assert f'<h2><a href="{address}' in text


def test_commands_can_be_typed(book: Book) -> None:
    """Two section folders are told apart, no file is named that is not there, and a packed report
    is unpacked before it is opened."""
    recorded = "ncu --section-folder sections --section-folder sections --export p python3 -m ncu_toolkit.gpu.target profile-plan.json"
    run = replace(
        book.run,
        commands=(recorded,),
        report_files=("p.ncu-rep.xz", "../q.ncu-rep.xz", "a b.ncu-rep"),
    )
    own, typed = commands(run, "naive", "4096")
    assert own.text == "ncu-toolkit profile --kernel naive --size 4096"
    assert (
        "--section-folder $NCU_TOOLKIT/sections --section-folder $NSIGHT_COMPUTE/sections"
        in typed.text
    )
    assert typed.text.endswith("ncu_toolkit.gpu.target $PLAN")
    assert all(name in typed.what for name in ("$NCU_TOOLKIT", "$NSIGHT_COMPUTE", "$PLAN"))
    assert commands(replace(run, live=True))[0].text == recorded
    assert [command.text for command in opening(run, "p.ncu-rep.xz")] == [
        "xz --decompress --keep p.ncu-rep.xz\nncu-ui p.ncu-rep"
    ]
    assert [command.text for command in opening(run, "a b.ncu-rep")] == ["ncu-ui 'a b.ncu-rep'"]
    assert opening(run, "../q.ncu-rep.xz") == opening(run, "elsewhere.ncu-rep") == ()


def test_the_diamond_lies_where_the_launch_is(book: Book) -> None:
    """Not at the nearest value that was tried: one register more may halve the warps."""
    for profile in book.run.profiles[:4]:
        _, studies, _ = occupancy_section(profile)
        launch = profile.launch
        now = occupancy(
            profile.device.cc,
            launch.threads_per_block,
            launch.registers,
            launch.shared_static,
            launch.shared_dynamic,
        )
        assert [chart.figure["data"][1]["y"] for chart in studies] == [[now.active_warps]] * 3
        assert studies[0].figure["data"][1]["x"] == [now.registers]


def test_the_verdict_on_a_launch_needs_no_scrolling() -> None:
    run = render_fixture.run()
    strangers = replace(
        run,
        profiles=tuple(replace(profile, context=None) for profile in run.profiles[:2]),
        timings=(),
    )
    launches = next(
        table
        for table in tables(run_view(open_book(strangers, render_fixture.diagnosis)))
        if table.key == "launches"
    )
    keys = [column.key for column in launches.columns]
    assert keys[:5] == ["kernel", "time", "share", "bottleneck", "predicted"]
    for row in launches.rows:
        assert row[3].text != row[3].value
        assert row[4].text.endswith(("×", "n/a"))
