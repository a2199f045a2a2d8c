"""What a reader takes from a page is right without knowing how it was made: thresholds, levels of
memory, units, headings, links, places."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from urllib.parse import unquote

import pytest
import render_fixture

from ncu_toolkit.base.document.card import UnitBar
from ncu_toolkit.base.document.tables import Table
from ncu_toolkit.base.hardware.specs import occupancy, what_if_block, what_if_registers
from ncu_toolkit.base.model import Evidence, Presence, Reading
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.glossary import definitions
from ncu_toolkit.kernel.explain.sections import Use, gain_cell
from ncu_toolkit.kernel.pages.book import Book, open_book
from ncu_toolkit.kernel.pages.family_view import _cached, family_view
from ncu_toolkit.kernel.pages.html import write_run
from ncu_toolkit.kernel.pages.page_view import commands, evidence_table, opening
from ncu_toolkit.kernel.pages.run_view import run_view
from ncu_toolkit.kernel.pages.unit_folds import (
    _all_fit,
    _studies,
    memory_view,
    occupancy_fold,
    occupancy_table,
)


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
    assert [row[2].text for row in table.rows] == [words, "–"]


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
    found = {
        definitions().kind(table): table
        for table in sorted(tables(run_view(book)), key=lambda table: len(table.columns))
    }
    explained = {
        kind: dict(definitions().columns(found[kind])) for kind in ("ladder", "calibration")
    }
    assert "occupancy" not in explained["calibration"]["Achieved"].lower()
    assert "warps" in explained["ladder"]["Achieved occupancy"].lower()
    for texts in explained.values():
        assert len(set(texts.values())) == len(texts)
        assert set(texts) == {
            column.label for column in found["ladder" if "Rung" in texts else "calibration"].columns
        }
    assert all(
        definitions().of_column(found["traffic"], column) != "metric-memory-throughput"
        for column in found["traffic"].columns
    )


def test_the_full_name_of_a_kernel_is_on_its_page(book: Book) -> None:
    first = book.run.profiles[0]
    full = f"void ns::{first.launch.function}<float, (int)4>(ns::Params<float>)"
    profile = replace(first, context=None, launch=replace(first.launch, kernel=full))
    other = replace(first, context=None, launch=replace(first.launch, kernel=first.launch.function))
    run = replace(book.run, profiles=(profile, other), timings=())
    pages = run_view(open_book(run, render_fixture.diagnosis)).pages
    assert [page.signature for page in pages] == [full, ""]


@pytest.mark.parametrize(
    ("speedup", "good", "text"),
    [(1.0, False, "n/a"), (1.003, False, "n/a"), (1.6, False, "1.6×"), (1.0, True, "n/a")],
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
        for link in re.findall(r'href="(?!data:)([^"#]+)"', text):
            assert (page.parent / unquote(link)).is_file(), (page, link)


def test_the_stall_table_has_no_rows_of_nothing(book: Book) -> None:
    """Only rungs that were profiled, only reasons that count in one of them; what is left out is
    summed or counted."""
    for panel in family_view(book, "gemm_fp32").panels:
        for chart in panel.charts:
            if chart.term == "Stall migration":
                assert not any(cell.missing for row in chart.table.rows for cell in row)
                shares = [[cell.value for cell in row[1:]] for row in chart.table.rows]
                for column in range(len(shares[0]) - 1):
                    assert max(row[column] / sum(row) for row in shares) >= 0.01
                assert ("not profiled" in chart.table.note) == (
                    len(chart.table.rows) < len(panel.table.rows)
                )


def test_every_ladder_has_a_card_that_links_its_page(tmp_path: Path) -> None:
    run = render_fixture.run()
    other = replace(
        run,
        title="other",
        timings=tuple(replace(timing, family="transpose") for timing in run.timings[:2]),
        profiles=(),
    )
    books = [open_book(run, render_fixture.diagnosis), open_book(other, render_fixture.diagnosis)]
    text = render_fixture.write_front(tmp_path, dict(zip("ab", books, strict=True))).read_text(
        encoding="utf-8"
    )
    assert text.count('<article class="ladder') == 2
    for address in ("./a/index.html", "./b/index.html"):
        assert f'<h2><a href="{address}' in text


def test_commands_can_be_typed(book: Book) -> None:
    """Two section folders are told apart, no file is named that is not there, and a packed report
    is unpacked before it is opened."""
    recorded = "ncu --section-folder sections --section-folder sections --export p python3 -m ncu_toolkit.kernel.gpu.target profile-plan.json"
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
    assert typed.text.endswith("ncu_toolkit.kernel.gpu.target $PLAN")
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
        studies = dict(occupancy_fold(profile).parts)["stairs"]
        launch = profile.launch
        now = occupancy(
            profile.device.cc,
            launch.threads_per_block,
            launch.registers,
            launch.shared_static,
            launch.shared_dynamic or 0,
        )
        assert [chart.now[1] for chart in studies] == [now.active_warps] * 3
        assert studies[0].now[0] == now.registers


def test_the_split_that_the_driver_chose_is_no_limit() -> None:
    """254 registers allow one block of 256 threads; its 96 KiB of shared memory would allow two."""
    base = render_fixture.profile("vectorized", 1024, 0)
    launch = replace(
        base.launch, block=(256, 1, 1), registers=254, shared_static=0, shared_dynamic=98304
    )
    limits = {"registers": 1.0, "shared": 1.0, "warps": 8.0, "blocks": 32.0, "barriers": 32.0}
    found = {
        f"block_limit_{name}": Reading(name, value, "count", Presence.PRESENT)
        for name, value in limits.items()
    }
    profile = replace(base, launch=launch, readings={**base.readings, **found})
    assert figures.block_limits(profile)["block_limit_shared"] == 2
    assert figures.occupancy_limiters(profile) == ("block_limit_registers",)
    assert figures.value(profile, "blocks_per_sm") == 1
    table = occupancy_table(profile)
    rows = {row[0].text: row for row in table.rows}
    assert (rows["shared memory"][1].value, rows["shared memory"][2].text) == (2.0, "")
    assert rows["shared memory"][1].title.startswith("Nsight: 1,")
    asked = replace(found["block_limit_registers"], value=4.0)
    small = replace(profile, readings={**profile.readings, "block_limit_registers": asked})
    assert figures.occupancy_limiters(small) == ("block_limit_shared",), "a split asked for"


def test_atomic_units_are_shown_in_their_level_and_not_on_a_link(book: Book) -> None:
    """The unit of one slice can be busy all the time while the link to L1 idles."""
    first = book.run.profiles[0]
    busiest = Reading("l2_atomic_unit_busiest", 0.83, "fraction", Presence.PRESENT)
    profile = replace(first, readings={**first.readings, busiest.name: busiest})
    used = {"atomic": Use(0.83), "l2": Use(0.01)}
    card = replace(book.card(first), bars=(UnitBar("atomic", "L2 atomics", 0.83, True, 0.83),))
    shown = memory_view(profile, card, used)
    assert shown is not None
    assert shown.l2.units == (("busiest atomic unit 83 %", True),)
    assert not any(link.limit for link in (shown.link, *(link for link, _ in shown.ends)))
    assert shown.link.busy == "L2 1 %"


@pytest.mark.parametrize(
    ("achieved", "waves", "words"),
    [
        (0.469, 0.5, "The grid is too small"),
        (0.469, 12.0, "end too early"),
        (0.469, None, "Blocks end too early, or the grid is too small"),
        (0.97, 12.0, "and 97.0 % was achieved."),
        (None, None, "changing them cannot raise it"),
    ],
)
def test_what_keeps_occupancy_low_where_all_warps_fit(
    book: Book, achieved: float | None, waves: float | None, words: str
) -> None:
    first = book.run.profiles[0]
    given = {"achieved_occupancy": achieved, "waves": waves}
    readings = {
        name: Reading(
            name, value, "fraction", Presence.PRESENT if value else Presence.NOT_COLLECTED
        )
        for name, value in given.items()
    }
    message = _all_fit(replace(first, readings={**first.readings, **readings}))
    assert words in message
    assert "allow 100" in message


def test_what_fits_in_l2_is_said_of_named_kernels(book: Book) -> None:
    timed = next(entry for entry in book.entries if entry.timing)
    assert timed.timing is not None
    small, large = (
        replace(timed, timing=replace(timed.timing, compulsory_bytes=needs), label=label)
        for needs, label in ((2e6, "small"), (9e8, "large"))
    )
    (note,) = _cached([small, large], 60 << 20)
    assert note.startswith("The data of small (2.00 MB) fit in the L2")
    assert _cached([large], 60 << 20) == []
    assert _cached([small], 60 << 20)[0].startswith("The data of all kernels")


def test_whole_things_are_counted_whole() -> None:
    """A table has a row where the warps change, by whole registers and threads."""
    base = occupancy((9, 0), 1024, 32, 0, 0, None)
    registers, _, block = _studies(base)
    for chart, tried in ((registers, what_if_registers(base)), (block, what_if_block(base))):
        rows = [(float(row[0].text.replace(",", "")), row[1].value) for row in chart.table.rows]
        assert all(tried[int(count)].active_warps == warps for count, warps in rows)
        assert all(before != after for (_, before), (_, after) in itertools.pairwise(rows))
        assert len(rows) > 1
