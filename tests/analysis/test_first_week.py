"""What costs trust in the first week: names cut to one, columns that go first, advice that cannot be
followed, options of the command line in Python."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import recorded
import render_fixture

import ncu_toolkit
from ncu_toolkit.base.core.errors import EXIT_INPUT, InputProblem
from ncu_toolkit.base.model import Profile
from ncu_toolkit.cli import main
from ncu_toolkit.kernel.analysis import answers, gate
from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, Options
from ncu_toolkit.kernel.analysis.gate import Side
from ncu_toolkit.kernel.explain import differences
from ncu_toolkit.kernel.report.reader import partly

TRANSPOSE = recorded.ROOT / "ncu_toolkit/data/recordings/h200-transpose/profile.ncu-rep.xz"


@pytest.fixture(scope="module")
def report() -> ncu_toolkit.Report:
    return ncu_toolkit.load(TRANSPOSE)


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
    message = capsys.readouterr()
    assert ended.value.code == EXIT_INPUT
    whole = "no launch could be read" not in message.err and "expect" in message.out
    assert ("--allow-partial" in message.out + message.err) is whole


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
    assert not any("is the same" in point for point in found.points)
    (listing,) = found.code
    assert listing.title == "Source: the difference of slow → fast in a.cu"
    marked = [(mark, text) for mark, _, text in listing.lines if mark in "+-" and mark]
    assert ("-", "    x[threadIdx.x * 32] += 1;") in marked
    assert ("+", "    x[threadIdx.x] += 1;") in marked
    assert len(marked) == 4
    same = differences.between(of("slow", 2), of("slow", 2))
    assert "The source of slow is the same." in same.points
    hidden = differences.between(of("slow", 2), of("macro_made", 2))
    assert any("the same lines of source" in point for point in hidden.points)
