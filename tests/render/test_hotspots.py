"""Hot spots: live registers, what is beyond the ideal, and the lines that the diagnosis names."""

from __future__ import annotations

from dataclasses import replace

import pytest
import render_fixture

from ncu_toolkit.base.document.card import CodeLine
from ncu_toolkit.base.model import Finding, Instruction, Location
from ncu_toolkit.kernel.pages.code_folds import hot_spots


def finding(address: int) -> Finding:
    return replace(
        render_fixture.diagnosis(render_fixture.profile("naive", 4096)).primary,
        locations=(Location("vectorized.cu", 24, address, "LDS.128", 0.6, "samples"),),
    )


def test_the_lines_of_the_diagnosis_are_marked() -> None:
    profile = render_fixture.profile("vectorized", 4096)
    row = profile.instructions[107]  # the hottest
    spots = hot_spots(profile, [finding(row.address)])
    assert spots is not None
    assert spots.data["named"] == [107]
    marked = [cells[1].text for cells in spots.hottest.rows if cells[1].badges]
    assert marked == [f"vectorized.cu:{row.line}"]
    plain = hot_spots(profile)
    assert plain is not None
    assert plain.data["named"] == []
    assert not any(cells[1].badges for cells in plain.hottest.rows)


@pytest.mark.parametrize(
    ("sass", "expected"),
    [("LDS.128 R9", "LDS.128 R9,"), ("LDS.128", "LDS.128"), ("", "")],
)
def test_the_pane_opens_on_the_place_of_the_card(sass: str, expected: str) -> None:
    profile = render_fixture.profile("vectorized", 4096)
    row = next(row for row in profile.instructions if row.sass.startswith(sass or "STS"))
    hottest = max(profile.instructions, key=lambda row: row.sample_count)
    assert (row.file, row.line) != (hottest.file, hottest.line)
    where = CodeLine(row.file, row.line, "", sass, 0.5, "the samples wait for it, at k.cu:1")
    spots = hot_spots(profile, (), where)
    assert spots is not None
    shown = profile.instructions[spots.data["open"]]
    assert (shown.file, shown.line) == (row.file, row.line)
    assert shown.sass.startswith(expected)
    plain = hot_spots(profile)
    assert plain is not None
    assert plain.data["open"] == hottest.index


@pytest.mark.parametrize("layout", ["today's", "with all in one header", "somebody's"])
def test_the_source_opens_at_the_kernel(layout: str) -> None:
    """Blocks of our own kernels are left out, and each line keeps its number."""
    code = "#include <climits>\n\n__global__ void vectorized() {\n}\n"
    text = {
        "today's": f"/*+++\ntitle = 't'\n+++*/\n\n{code}\n/*+++\nminimum_cc = '8.0'\n+++*/\n",
        "with all in one header": f"/*+++\ntitle = 't'\nminimum_cc = '8.0'\n+++*/\n{code}",
        "somebody's": f"\n// mine\n{code}",
    }[layout]
    profile = render_fixture.profile("vectorized", 4096)
    (name,) = {row.file for row in profile.instructions}
    spots = hot_spots(replace(profile, sources={name: text}))
    assert spots is not None
    assert spots.data["files"] == [name]
    ((start,), (lines,)) = spots.data["from"], spots.data["sources"]
    whole = text.splitlines()
    assert list(lines) == whole[start - 1 : start - 1 + len(lines)]
    assert lines[-1] == "}"
    assert lines[0] == ("" if layout == "somebody's" else "#include <climits>")


def test_code_that_the_report_leaves_out_gets_no_pane() -> None:
    profile = render_fixture.profile("cublas", 4096)
    blank = tuple(
        replace(row, sass="", opcode="", file="", line=0)
        for row in render_fixture.profile("vectorized", 4096).instructions
    )
    spots = hot_spots(replace(profile, instructions=blank))
    assert spots is not None
    assert not spots.data
    assert spots.hottest is None
    assert spots.note == "The library's code is not part of the recording."


def test_what_is_beyond_the_ideal_has_a_column_where_it_was_collected() -> None:
    profile = render_fixture.profile("vectorized", 4096)
    assert "Wavefronts beyond" not in [
        column.label for column in hot_spots(profile).hottest.columns
    ]  # type: ignore[union-attr]
    rows = tuple(
        replace(row, counters={"shared_wavefronts": 12.0, "shared_wavefronts_ideal": 4.0})
        if row.opcode == "LDS.128"
        else row
        for row in profile.instructions
    )
    spots = hot_spots(replace(profile, instructions=rows))
    assert spots is not None
    labels = [column.label for column in spots.hottest.columns]
    assert "Wavefronts beyond" in labels
    assert "Sectors beyond" not in labels
    at = labels.index("Wavefronts beyond")
    shown = {cells[1].text: cells[at].value for cells in spots.hottest.rows}
    lines = {}
    for row in rows:
        if row.opcode == "LDS.128":
            lines[f"vectorized.cu:{row.line}"] = lines.get(f"vectorized.cu:{row.line}", 0.0) + 8.0
    assert {where: value for where, value in shown.items() if isinstance(value, float)} == {
        w: v for w, v in lines.items() if w in shown
    }
    beyond = next(
        counter
        for counter in spots.data["counters"]
        if counter["name"] == "shared wavefronts beyond the ideal"
    )
    assert sum(value or 0 for value in beyond["values"]) == sum(lines.values())


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((), "of the 124 that the compiler allocated"),
        ((0xF0, 0x0), "of the 240 that its warps take at run time (setmaxnreg)"),
        ((0xF0, 0xE0), ""),
    ],
)
def test_a_peak_of_registers_goes_by_what_its_warps_take(
    asked: tuple[int, ...], message: str
) -> None:
    profile = render_fixture.profile("vectorized", 4096)
    rows = [
        replace(row, sass=f"USETMAXREG.TRY_ALLOC.CTAPOOL UP0, {asked[row.index]:#x}", opcode="USETMAXREG.TRY_ALLOC.CTAPOOL")
        if row.index < len(asked)
        else row
        for row in profile.instructions
    ]  # fmt: skip
    spots = hot_spots(replace(profile, instructions=tuple(rows)))
    assert spots is not None
    assert [message in hint for hint in spots.hints] == ([True] if message else [])


def test_a_wait_is_linked_with_what_it_waits_for() -> None:
    rows = tuple(
        Instruction(at, 16 * at, sass, sass.split()[0], "/x/k.cu", 10 + at, 9, 288, samples)
        for at, (sass, samples) in enumerate(
            [
                ("LDG.E R4, [R2]", {"wait": 3}),
                ("LDS R6, [R3]", {"wait": 3}),
                ("FFMA R5, R4, R4, R5", {"long_scoreboard": 80}),
                ("FADD R7, R6, R6", {"short_scoreboard": 20}),
                ("EXIT", {"wait": 1}),
            ]
        )
    )
    spots = hot_spots(replace(render_fixture.profile("vectorized", 1024, 0), instructions=rows))
    assert spots is not None
    assert spots.data["waits"] == [(2, [0]), (3, [1])]
