"""The page of a program's step: its picture, its findings and its tables have the account's figures."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import program_traces
import pytest
import render_fixture
from markupsafe import Markup
from msgspec import structs
from program_found import found, machine, small
from render_hostile import EVIL

from ncu_toolkit.base.document.card import Tile
from ncu_toolkit.base.render.html import content, program_page
from ncu_toolkit.base.render.text import plain_text
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.glossary import definitions
from ncu_toolkit.program.diagnosis import diagnose_program
from ncu_toolkit.program.explain.program import program_answer, saving
from ncu_toolkit.program.model import ProgramDiagnosis
from ncu_toolkit.program.pages.program_view import COLOURS, program_view, write_program_page
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.step import find_step


@pytest.fixture(scope="module")
def shown() -> ProgramDiagnosis:
    return small()


def tiles(shown: ProgramDiagnosis) -> dict[str, Tile]:
    return {tile.name: tile for tile in program_view(shown).icicle.tiles}


def test_tiles_of_a_level_lie_in_those_above_and_add_up(shown: ProgramDiagnosis) -> None:
    stack: list[tuple[Tile, float]] = []
    for tile in program_view(shown).icicle.tiles:
        while stack and stack[-1][0].level >= tile.level:
            parent, filled = stack.pop()
            children = filled > parent.start
            assert not children or filled == pytest.approx(parent.start + parent.part)
        if stack:
            parent, filled = stack[-1]
            assert tile.level == parent.level + 1
            assert tile.start == pytest.approx(filled)
            stack[-1] = (parent, filled + tile.part)
        stack.append((tile, tile.start))
    assert stack[0][0].part == 1.0


def test_the_step_is_split_by_range_line_class_and_kernel(shown: ProgramDiagnosis) -> None:
    picture = program_view(shown).icicle
    path: list[str] = []
    paths = []
    for tile in picture.tiles:
        path[tile.level :] = [tile.name]
        paths.append(" > ".join(path))
    assert "step > forward > model.py:3 > Matrix products > nvjet_tst_128x256" in paths
    assert any(
        re.match(r"step > no range > train.py:9 > .* > HtoD, pageable", each) for each in paths
    )
    assert any(each.startswith("step > GPU idle > ") for each in paths)


def test_a_cause_is_hatched_by_what_it_saves(shown: ProgramDiagnosis) -> None:
    """The part that a finding saves of a tile is that of its own launches only."""
    by_name = tiles(shown)
    first, second = (each for each in shown.findings)
    step = by_name["step"]
    assert step.saved[0] * shown.account.wall_us == pytest.approx(first.ceiling_us)
    assert step.saved[1] * shown.account.wall_us == pytest.approx(second.ceiling_us)
    assert by_name["nvjet_tst_128x256"].saved == pytest.approx((0.5, 0.0))
    assert by_name["GPU idle"].saved[1] > 0 == by_name["GPU idle"].saved[0]
    assert by_name["HtoD, pageable"].saved == ()


def test_marks_that_hold_the_step_and_marks_within_others_are_left_out() -> None:
    names = set(tiles(small()))
    assert {"forward", "no range"} <= names
    assert not {"epoch", "attention"} & names


def test_narrow_tiles_become_one() -> None:
    program = machine()
    for at in range(1200):
        program.launch(f"kernel_{at}(float*)", 5.0, line=f"model.py:{at}")
    program.launch("large(float*)", 20_000.0, line="model.py:1")
    view = program_view(found(program.trace()))
    assert len(view.icicle.tiles) <= 220
    more = [tile for tile in view.icicle.tiles if tile.name.endswith(" more")]
    assert more
    assert sum(tile.part for tile in view.icicle.tiles if tile.level == 1) == pytest.approx(1.0)


def test_the_account_adds_up(shown: ProgramDiagnosis) -> None:
    view = program_view(shown)
    (row,) = view.account.rows
    assert sum(part.sizes[0] for part in row.segments) == pytest.approx(100)
    *parts, total = [[cell.value for cell in row] for row in view.account.table.rows]
    assert sum(float(part[1] or 0) for part in parts) == pytest.approx(total[1])
    assert total[1] == pytest.approx(shown.step.wall_us)
    assert total[2] == pytest.approx(1.0)


def test_findings_say_what_the_card_says(shown: ProgramDiagnosis) -> None:
    view = program_view(shown)
    assert [each.predicted.text for each in view.findings] == [
        saving(each, shown) for each in shown.findings
    ]
    assert view.together == "Fixing both: leaves about 2.2 of 4.48 ms"
    where = view.findings[0].locations
    assert where is not None
    assert where.rows[0][0].text == "model.py:3"


def test_a_healthy_step_says_so(shown: ProgramDiagnosis, tmp_path: Path) -> None:
    healthy = structs.replace(shown, findings=(), together_us=0.0)
    page = write_program_page(healthy, tmp_path / "page.html").read_text("utf-8")
    card = program_answer(healthy).cards[0]
    assert card.state != "slow"
    assert card.title in page.replace("\u202f", " ")
    assert "What would save time?" not in page
    assert "<select>" not in page.partition("launches")[0]


def test_a_page_needs_nothing_else_and_is_small(shown: ProgramDiagnosis, tmp_path: Path) -> None:
    page = write_program_page(shown, tmp_path / "deep" / "page.html").read_text("utf-8")
    assert not re.findall(r'(?:src|href)="(?!#|data:|\./|--)[^"]+"', page)
    body = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.DOTALL)
    assert len(body.encode()) < 60_000


def test_text_of_a_trace_is_harmless(tmp_path: Path) -> None:
    program = machine(EVIL)
    with program.mark(EVIL):
        program.launch(f"{EVIL}(float*)", 20.0, line=EVIL)
    program.launch("plain(float*)", 20.0)
    page = write_program_page(found(program.trace()), tmp_path / "page.html").read_text("utf-8")
    assert EVIL not in page
    assert "<img" not in page
    assert "\u202e" not in page


def test_a_kernel_that_a_report_tells_of_leads_to_its_page(
    shown: ProgramDiagnosis, tmp_path: Path
) -> None:
    base = render_fixture.profile("vectorized", 1024, 0)
    shape = shown.step.ops[1].shape
    launch = shown.step.trace.shapes[shape]
    profile = replace(base, launch=launch, context=None)
    known = {shape: (profile, diagnose(profile))}
    view = program_view(shown, known)
    (page,) = view.pages
    leading = [tile for tile in view.icicle.tiles if tile.href]
    assert {tile.name for tile in leading} == {"nvjet_tst_128x256"}
    assert {tile.href for tile in leading} == {f"{page.slug}.html"}
    assert view.launches is not None
    heads = [column.key for column in view.launches.columns]
    row = next(row for row in view.launches.rows if row[0].href)
    assert row[heads.index("bottleneck")].value == known[shape][1].primary.bottleneck
    text = write_program_page(shown, tmp_path / "page.html", known).read_text("utf-8")
    assert f'<a href="#page-{page.slug}" class="tile q-product"' in text
    assert f'id="page-{page.slug}"' in text


def test_operators_tell_where_lines_are_not_known() -> None:
    program = machine()
    with program.mark("aten::linear [8, 16]", "operator"):
        program.host(5.0)
        with program.mark("aten::addmm [8, 16]", "operator"):
            program.launch("nvjet_tst_128x256", 50.0)
    with program.mark("autograd::engine::evaluate_function: AddmmBackward0", "operator"):
        program.launch("nvjet_tst_128x64", 80.0)
    program.launch("nvjet_tst_64x64", 10.0)
    view = program_view(found(program.trace()))
    second = [tile.name for tile in view.icicle.tiles if tile.level == 1]
    assert second == ["AddmmBackward0", "aten::linear", "no operator", "GPU idle"]
    assert view.launches is not None
    heads = [column.key for column in view.launches.columns]
    callers = [row[heads.index("operator")].text for row in view.launches.rows]
    assert callers == ["AddmmBackward0", "aten::linear", ""]


Colour = tuple[float, ...]


def mixed(one: Colour, part: float, other: Colour) -> Colour:
    return tuple(part * a + (1 - part) * b for a, b in zip(one, other, strict=True))


def contrast(*colours: Colour) -> float:
    """As WCAG 2 has it."""

    def bright(colour: Colour) -> float:
        parts = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in colour]
        return sum(part * of for part, of in zip(parts, (0.2126, 0.7152, 0.0722), strict=True))

    dark, light = sorted(map(bright, colours))
    return (light + 0.05) / (dark + 0.05)


def test_names_can_be_read_on_every_colour_and_stripe() -> None:
    css = content("icicle.css").decode()
    light, dark = (int(part) / 100 for part in re.findall(r"--mix: (\d+)%", css)[:2])
    (stripe,) = set(re.findall(r"--stripe: color-mix\(in srgb, var\(--k\) (\d+)%", css))
    (shade,) = set(re.findall(r"--stripe: color-mix\(in srgb, var\(--bg\) (\d+)%", css))

    def colour(text: str) -> Colour:
        return tuple(int(text[at : at + 2], 16) / 255 for at in (1, 3, 5))

    for name in COLOURS.values():
        tint = mixed(colour(name), light, colour("#ffffff"))
        drawn = mixed(colour(name), int(stripe) / 100, tint)
        assert min(contrast(each, colour("#1a1e23")) for each in (tint, drawn)) >= 4.5, name
        tint = mixed(colour(name), dark, colour("#14171a"))
        drawn = mixed(colour("#14171a"), int(shade) / 100, tint)
        assert min(contrast(each, colour("#e4e7ea")) for each in (tint, drawn)) >= 4.5, name


@pytest.fixture(scope="module")
def gpt() -> ProgramDiagnosis:
    """A step of 985 launches as the toolkit diagnoses it."""
    step = find_step(program_traces.gpt(steps=6))
    return diagnose_program(step, account_of(step))


def test_the_picture_of_a_thousand_launches_is_small(gpt: ProgramDiagnosis, tmp_path: Path) -> None:
    page = write_program_page(gpt, tmp_path / "page.html").read_text("utf-8")
    picture = page.partition('<div class="icicle"')[2].partition('<div class="below">')[0]
    assert gpt.step.launches == 985
    assert len(picture.encode()) < 40_000
    strips = sum(map(len, re.findall('<figure class="strip">.*?</figure>', page, re.DOTALL)))
    assert len(page.encode()) - strips < 200_000  # with all scripts and styles
    assert strips < 4_000 * (len(gpt.costly) + 1)


def test_each_finding_hatches_what_it_saves(gpt: ProgramDiagnosis) -> None:
    view = program_view(gpt)
    whole, *tiles = view.icicle.tiles
    assert len(gpt.findings) >= 3
    for at, each in enumerate(gpt.findings):
        assert whole.saved[at] * gpt.account.wall_us == pytest.approx(each.ceiling_us)
        below = [tile for tile in tiles if tile.level == 1 and tile.saved]
        saved = sum(tile.part * tile.saved[at] for tile in below)
        assert saved == pytest.approx(whole.saved[at])
    assert view.launches is not None
    heads = [column.key for column in view.launches.columns]
    times = [row[heads.index("time")].value for row in view.launches.rows]
    kernels = sum(
        us
        for us, op in zip(gpt.account.exclusive_us, gpt.step.ops, strict=True)
        if op.kind == "kernel"
    )
    assert sum(map(float, filter(None, times))) == pytest.approx(kernels)


def test_a_page_shows_the_step_before_and_after_each_fix() -> None:
    """Bars end with the step, on an axis as long as the recorded one; and none where the replay is off."""
    program = program_traces.Machine("train.py")
    for _ in range(12):
        for i in range(40):
            program.launch(f"kernel_{i}(float*)", 4.0, host_us=20.0)
    step = find_step(program.trace())
    made = diagnose_program(step, account_of(step))
    view = program_view(made)
    strip, first = view.findings[0].strip, made.costly[0]
    assert strip is not None
    assert strip == program_answer(made).cards[0].strip
    assert strip.us == pytest.approx((step.wall_us, step.wall_us - first.ceiling_us))
    assert strip.idle[0] == pytest.approx(1 - made.account.busy)
    assert [row.name for row in strip.rows] == ["host", "GPU"]
    gpu = strip.rows[1]
    busy = [sum(eighths for _, eighths in each) / 8 for each in (gpu.before, gpu.after)]
    work = sum(made.account.exclusive_us)
    assert [each / len(gpu.before) * strip.us[0] for each in busy] == pytest.approx(
        [work, work], rel=0.1
    )
    last = max(at for at, (_, eighths) in enumerate(gpu.after) if eighths)
    assert last / len(gpu.after) == pytest.approx(strip.us[1] / strip.us[0], abs=0.02)
    text = plain_text(program_answer(made), 100)
    lines = [line for line in text.splitlines() if "│" in line and "Height" not in line]
    assert [line[:16].split() for line in lines] == [
        ["GPU", "recorded"],
        ["if", "fixed"],
        ["host", "recorded"],
        ["if", "fixed"],
    ]
    assert f"idle {round(100 * strip.idle[0])} %" in lines[0].replace("\u202f", " ")
    assert lines[1].index("│") - 18 == pytest.approx(
        (lines[0].index("│") - 18) * strip.us[1] / strip.us[0], abs=1
    )
    assert "│" not in plain_text(program_answer(made), 79)
    page = program_page(view, definitions())
    assert page.count('<figure class="strip">') == len(made.costly) + (len(made.costly) > 1)
    assert Markup('aria-label="{}"').format(strip.words) in page
    off = structs.replace(made, times=None)
    assert program_answer(off).cards[0].strip is None
    assert '<figure class="strip">' not in program_page(program_view(off), definitions())
