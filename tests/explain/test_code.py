"""What compiled code alone tells, as an answer: its card, its loops and its code on every output."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from click.testing import CliRunner

from ncu_toolkit.base.core.errors import EnvironmentProblem
from ncu_toolkit.base.document.views import BarChart, StepChart
from ncu_toolkit.base.render.html import answer_page
from ncu_toolkit.base.render.markdown import markdown
from ncu_toolkit.base.render.text import plain_text
from ncu_toolkit.cli import cli
from ncu_toolkit.kernel.build.toolchain import find_tool
from ncu_toolkit.kernel.diagnosis.glossary import definitions
from ncu_toolkit.kernel.diagnosis.static import StaticAnalysis, analyse_source
from ncu_toolkit.kernel.explain.code import of_code

SOURCE = """extern "C" __global__ void dots(const float* a, const float* b, float* c, int n) {
    float sum = 0.f;
    for (int k = 0; k < n; ++k) sum += a[threadIdx.x * n + k] * b[k * n + threadIdx.x];
    c[threadIdx.x] = sum;  // <script>alert(1)</script>
}
"""


def have(name: str) -> bool:
    try:
        find_tool(name)
    except EnvironmentProblem:
        return False
    return True


pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.skipif(not all(map(have, ("nvcc", "nvdisasm"))), reason="no nvcc or nvdisasm here"),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("code") / "dots.cu"
    path.write_text(SOURCE)
    return path


def test_the_card_the_loops_and_the_code_are_on_every_output(source: Path) -> None:
    shown = of_code(analyse_source(source, "sm_90", block=128), {source.name: SOURCE})
    (card,) = shown.cards
    assert (card.state, card.gain) == ("slow", "no estimate without a profile")
    assert "n/a" not in card.head
    assert card.where[0].place == "dots.cu:3"
    assert card.where[0].text == SOURCE.splitlines()[2].strip()
    titles = [table.caption for table in shown.tables]
    assert titles[0] == "Resources"
    assert titles[-1] == "Busiest loops"
    (point,) = shown.points
    assert point.startswith("Only a profile shows how long")
    assert "memory latency" in point
    listing, sass = shown.code
    assert [note for mark, note, _ in listing.lines if mark == "*"] == ["3"]
    assert any("LDG" in text for _, _, text in sass.lines)
    for text in (plain_text(shown), markdown(shown)):
        assert card.title in text
        assert "for (int k = 0; k < n; ++k)" in text
        assert "Busiest loops" in text
    for line in plain_text(shown, 60).splitlines():
        assert len(line) <= 60 or line.startswith("next"), line


def test_the_page_is_written_and_its_source_is_text(source: Path, tmp_path: Path) -> None:
    page = tmp_path / "dots.html"
    words = ["static", str(source), "--arch", "sm_90", "--block", "128"]
    answer = CliRunner().invoke(
        cli, [*words, "--format", "html", "-o", str(page)], catch_exceptions=False
    )
    assert answer.output == f"Open {page}\n"
    text = page.read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text
    assert 'class="nc-hot"' in text


def test_a_file_without_code_says_so() -> None:
    found = of_code(StaticAnalysis("x.cubin", "sm_90", "", {}, "", "", (), "the file is empty"))
    assert found.headline == "x.cubin for sm_90, the file is empty."
    assert (found.cards, found.tables) == ((), ())


def test_bars_show_what_a_pass_of_each_loop_costs(source: Path) -> None:
    found = analyse_source(source, "sm_90", block=128)
    (kernel,) = found.kernels
    chart, registers = of_code(found).charts
    assert isinstance(registers, StepChart)
    assert isinstance(chart, BarChart)
    loops = [row.name for row in chart.rows if not row.segments]
    assert len(loops) == len(kernel.regions) > 1
    region = kernel.regions[0]
    units = itertools.takewhile(lambda row: row.segments, chart.rows[1:])
    first = {row.name: row for row in units}
    assert first.pop("dependency chain").figures == (str(region.dependency_cycles),)
    assert next(row.segments[0].kind for row in first.values()) == "limit"
    sizes = [row.segments[0].sizes[0] for row in first.values()]
    assert sizes == sorted(sizes, reverse=True)
    most = max(max(each.cycles.values()) for each in kernel.regions)
    longest = max([most, *(each.dependency_cycles for each in kernel.regions)])
    assert sizes[0] == pytest.approx(100 * max(region.cycles.values()) / longest)
    assert [row[0].text for row in chart.table.rows] == [row.name for row in chart.rows]
    assert "What does one iteration of each loop cost?" in answer_page(
        of_code(found), "C", definitions()
    )


def test_registers_are_drawn_over_the_code(source: Path) -> None:
    """The line over all instructions, the numbers at each line of both listings, and no word of it
    in the document."""
    found = analyse_source(source, "sm_90", block=128)
    (kernel,) = found.kernels
    assert len(kernel.live) == len(kernel.code) == kernel.instructions
    shown = of_code(found, {source.name: SOURCE})
    registers = next(chart for chart in shown.charts if isinstance(chart, StepChart))
    assert registers.now == (kernel.live.index(kernel.live_registers), kernel.live_registers)
    assert registers.turns[-1] == (kernel.instructions - 1, kernel.live[-1])
    assert registers.most == kernel.registers
    text, code = shown.code
    lines = {number: live for (_, number, _), live in zip(text.lines, text.live, strict=True)}
    assert lines["3"] > 0 == lines["2"]
    assert max(lines.values()) == kernel.live_registers
    assert len(code.live) == len(code.lines) == len(kernel.regions[0].code)
    data = found.as_document()["data"]["kernels"][0]
    assert not {"code", "live"} & set(data)
