"""What costs trust in the first week: names cut to one, columns that go first, advice that cannot be
followed, options of the command line in Python."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path

import pytest
import recorded
import render_fixture
from rich.console import Console

import ncu_toolkit
from ncu_toolkit.base.core.errors import EXIT_INPUT, InputProblem
from ncu_toolkit.base.document.card import cut_apart
from ncu_toolkit.base.document.tables import plain_table, text
from ncu_toolkit.base.model import Profile
from ncu_toolkit.base.render.text import Fitted, plain_text
from ncu_toolkit.cli import main
from ncu_toolkit.kernel.analysis import answers, gate
from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, Options, analyze
from ncu_toolkit.kernel.analysis.gate import Side
from ncu_toolkit.kernel.explain import differences
from ncu_toolkit.kernel.pages import html
from ncu_toolkit.kernel.report.reader import partly

TRANSPOSE = recorded.ROOT / "ncu_toolkit/data/recordings/h200-transpose/profile.ncu-rep.xz"


@pytest.fixture(scope="module")
def report() -> ncu_toolkit.Report:
    return ncu_toolkit.load(TRANSPOSE)


def table(shown: object, width: int) -> list[str]:
    return [line.plain for line in Fitted(shown).lines(width)]  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_table_keeps_time_and_gain_and_tells_names_apart(
    report: ncu_toolkit.Report, width: int
) -> None:
    kernels = report._answer.kernels
    assert kernels is not None
    head, *lines = table(kernels, width)
    assert {"kernel", "time", "gain"} <= set(head.split())
    rows = lines[:12]
    assert all(len(line) <= width for line in lines)
    assert all("s" in row and ("×" in row or "at its roof" in row or "–" in row) for row in rows)
    names = {line.split("  ")[0] for line in rows}
    assert len(names) == len({each.launch.function for each in report}), names


def test_the_grid_is_shown_where_names_repeat(report: ncu_toolkit.Report) -> None:
    kernels = report._answer.kernels
    assert kernels is not None
    head, *lines = table(kernels, 100)
    assert "grid" in head.split()
    assert len({line.split("ms")[0].split("µs")[0][:35] for line in lines[:12]}) == 12
    once = report[:1]._answer.kernels or report[-2:]._answer.kernels
    assert once is None or "grid" not in table(once, 100)[0].split()


@pytest.mark.parametrize("width", [40, 56, 72])
def test_a_narrow_comparison_keeps_old_new_and_change(width: int) -> None:
    long = "void cutlass_80_tensorop_s16816gemm_relu_f16_256x128_32x3_nn_align8_{}"
    sides = {(at,): Side(f"{long.format(at)}_tail", "GPU", (10.0 + at,)) for at in range(3)}
    found = answers.of_comparison(gate.compare(sides, sides)).kernels
    assert found is not None
    head, *rows = table(found, width)
    assert {"kernel", "old", "new", "change"} <= set(head.split())
    assert all(row.count("µs") == 2 for row in rows[:3]), rows
    assert len({row.split("  ")[0] for row in rows[:3]}) == 3


@pytest.mark.parametrize("width", [40, 56, 64])
def test_columns_that_say_nothing_go_before_launches(width: int) -> None:
    launches = plain_table("k", "", ["kernel", "launches", "time", "gain"], [
        [text("a_kernel_with_a_name_of_some_length"), text("13"), text("4.19 ms"), text("–")]
    ])  # fmt: skip
    wide = dataclasses.replace(
        launches,
        columns=(*launches.columns[:3], dataclasses.replace(launches.columns[3], label="gain" * 8)),
    )
    head, *rest = table(wide, width)
    assert head.split() == ["kernel", "launches", "time"]
    assert len(rest) == 1, "nothing is said to be left out"
    assert "gain" in table(wide, 120)[0]


def test_nothing_changed_is_said_in_three_lines() -> None:
    report = gate.sides_of(
        analyze([recorded.ROOT / "tests/heldout/three/h200.ncu-rep.xz"], Options(profiles=True))
    )
    found = plain_text(answers.of_comparison(gate.compare(report, report)), 120).splitlines()
    assert found[0] == "34 kernels, none changed"
    assert len([line for line in found if line]) == 3
    slower = {
        key: dataclasses.replace(side, times_us=tuple(2 * us for us in side.times_us))
        for key, side in report.items()
    }
    assert answers.of_comparison(gate.compare(report, slower)).kernels is not None


def test_names_are_cut_so_that_they_differ() -> None:
    names = [f"a_very_long_common_beginning_{at}_and_a_common_ending" for at in "xyz"]
    for longest in (12, 16, 24, 32):
        cut = cut_apart(names, longest)
        assert len(set(cut)) == 3, cut
        assert all(len(each) <= longest for each in cut)
    assert cut_apart(["short", "short"], 16) == ["short", "short"]
    (pair,) = cut_apart(["matrix_multiply_first → matrix_multiply_second"], 24)
    assert " → " in pair
    assert len(pair) <= 24


def test_columns_of_a_pipe_are_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main(["analyze", str(TRANSPOSE), "-j", "1"])
    shown = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in shown if "ncu-toolkit " not in line) <= 60
    monkeypatch.setenv("COLUMNS", "wide")
    with pytest.raises(SystemExit):
        main(["analyze", str(TRANSPOSE), "-j", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert 60 < max(len(line) for line in lines if "ncu-toolkit " not in line) <= 100


def test_python_names_no_option_of_the_command_line(report: ncu_toolkit.Report) -> None:
    shown = [str(report), str(report[0]), report._repr_html_()]
    for each in shown:
        assert "--top" not in each
        assert "--format" not in each
    assert "ncu_toolkit.compare('profile.ncu-rep.xz', 'after.ncu-rep')" in shown[0].replace(
        str(TRANSPOSE), "profile.ncu-rep.xz"
    )
    many = dataclasses.replace(report, profiles=report.profiles * 1)
    kinds = answers.of_analysis(many._analysis, top=2, flags=False)
    assert "10 more kernels take" in kinds.rest
    assert "--top" not in kinds.rest


def test_a_table_of_launches_has_the_whole_verdict(report: ncu_toolkit.Report) -> None:
    frame = report.to_frame()
    first = frame.iloc[0]
    card, finding = report[0].card, report[0].diagnosis.primary
    assert (first["title"], first["confidence"]) == (card.title, finding.confidence)
    assert (first["speedup_low"], first["speedup_high"]) == finding.interval
    assert first["line"] == card.where[0].place
    assert frame["share"].sum() == pytest.approx(1.0)
    assert first["share"] == pytest.approx(first["duration"] / frame["duration"].sum())
    assert list(report[:0].to_frame()["title"]) == []


def test_reports_without_a_common_kernel_are_no_empty_comparison(
    report: ncu_toolkit.Report,
) -> None:
    old = report["transpose_naive"]
    new = dataclasses.replace(
        report, profiles=(*report["transpose_smem"].profiles, *report["copy"].profiles)
    )
    with pytest.raises(InputProblem, match=r"pair=\('transpose_naive', 'transpose_smem'\)"):
        ncu_toolkit.compare(old, new)
    found = ncu_toolkit.compare(old, new, pair=("transpose_naive", "transpose_smem"))
    assert list(found.to_frame()["kernel"]) == ["transpose_naive → transpose_smem"] * 2
    assert len(ncu_toolkit.compare(old, new, pair=[("transpose_naive", "copy")]).to_frame()) == 2
    with pytest.raises(InputProblem, match="no kernel 'x' left"):
        ncu_toolkit.compare(old, new, pair=("x", "copy"))


def test_the_pair_that_is_likely_meant_is_named() -> None:
    def sides(*names: str) -> dict[tuple[object, ...], Side]:
        return {(name,): Side(name, "GPU", (1.0,)) for name in names}

    found = gate.compare(sides("apple", "x_bad"), sides("x_good", "pear"))
    assert found.likely == ("x_bad", "x_good")
    assert answers.by_hand(found) == "x_bad=x_good"
    far = gate.compare(sides("qqqq", "rrrr"), sides("vvv", "www"))
    assert far.likely is None
    assert answers.by_hand(far) == "OLD=NEW"


def test_partial_reading_is_advised_only_where_something_is_left(
    report: ncu_toolkit.Report,
) -> None:
    nothing = FileResult("cut.ncu-rep", error=InputProblem("damaged", "Copy it again"))
    some = FileResult("cut.ncu-rep", error=InputProblem("damaged", partly("cut.ncu-rep")))
    assert "--allow-partial" not in answers.next_command(Analysis((nothing,), Options()))
    assert "--allow-partial" in answers.next_command(Analysis((some,), Options()))
    again = Analysis((some,), Options(allow_partial=True))
    assert "--allow-partial" not in answers.next_command(again)
    assert "--allow-partial" not in FileResult("a", missing="half of it").incomplete.remedy


def test_a_launch_that_is_all_of_a_file_and_incomplete_is_not_advised_to_be_read_in_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = recorded.ROOT.parent / "shared" / "corpus" / "a100-incomplete-launch.ncu-rep"
    if not at.is_file():
        pytest.skip("no foreign reports here")
    with pytest.raises(SystemExit) as ended:
        main(["analyze", str(at), "-j", "1"])
    said = capsys.readouterr()
    assert ended.value.code == EXIT_INPUT
    whole = "no launch could be read" not in said.err and "expect" in said.out
    assert ("--allow-partial" in said.out + said.err) is whole


def test_plain_text_is_for_consoles_too(report: ncu_toolkit.Report) -> None:
    sink = io.StringIO()
    Console(file=sink, width=60).print(plain_text(report._answer, 60))
    assert sink.getvalue()


def test_cards_of_a_page_lead_to_their_launch(tmp_path: Path) -> None:
    at = recorded.ROOT / "tests/origins/reports/set-full.ncu-rep.xz"
    report = ncu_toolkit.load(at)
    page = html.write_analysis_folder(report._analysis, tmp_path)
    text = page.read_text(encoding="utf-8")
    heads = re.findall(r'<p class="nc-head"><b>(.*?)</b>', text)
    assert len(heads) >= 2
    for head in heads:
        (href,) = re.findall(r'<a href="\./([^"]+)">', head)
        assert (page.parent / href).is_file()
    assert re.search(r'<dd class="nc-where"><a href="\./[^"]+"', text)
    alone = report.to_html(tmp_path / "alone.html").read_text(encoding="utf-8")
    hrefs = re.findall(r'<p class="nc-head"><b><a href="#(page-[^"]+)">', alone)
    assert hrefs
    assert all(f'id="{href}"' in alone for href in hrefs)


TWO_KERNELS = """\
__global__ void slow(float* x) {
    x[threadIdx.x * 32] += 1;
}
__global__ void fast(float* x) {
    x[threadIdx.x] += 1;
}
"""


def test_two_kernels_of_one_file_have_no_same_source() -> None:
    def of(name: str, line: int, samples: int = 100) -> Profile:
        base = render_fixture.profile("naive", 1024)
        row = dataclasses.replace(
            base.instructions[0], file="a.cu", line=line, samples={"wait": samples}
        )
        return dataclasses.replace(
            base,
            launch=dataclasses.replace(base.launch, function=name, kernel=f"{name}(float*)"),
            instructions=(row,),
            sources={"a.cu": TWO_KERNELS},
        )  # fmt: skip

    found = differences.between(of("slow", 2), of("fast", 5))
    assert not any("source is the same" in point for point in found.points)
    (listing,) = found.code
    assert listing.title == "Source: the difference of slow → fast in a.cu"
    marked = [(mark, text) for mark, _, text in listing.lines if mark in "+-" and mark]
    assert ("-", "    x[threadIdx.x * 32] += 1;") in marked
    assert ("+", "    x[threadIdx.x] += 1;") in marked
    assert len(marked) == 4
    same = differences.between(of("slow", 2), of("slow", 2))
    assert "The source is the same." in same.points
    hidden = differences.between(of("slow", 2), of("macro_made", 2))
    assert any("the same lines of source" in point for point in hidden.points)


def test_a_large_change_has_no_more_digits_than_are_known() -> None:
    assert answers.percent(0.1234) == "+12.3 %"
    assert answers.percent(122.456) == "123×"
    assert answers.percent(-0.995) == "-99.5 %"
