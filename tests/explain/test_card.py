"""The card: one value, the same on every output, whatever a report holds or lacks."""

from __future__ import annotations

import html.parser
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import recorded
import render_fixture
import report_files
from render_hostile import EVIL

import ncu_toolkit
from ncu_toolkit.base.document.card import (
    Card,
    UnitBar,
    kernel_label,
)
from ncu_toolkit.base.document.views import Kind, answer
from ncu_toolkit.base.model import (
    Diagnosis,
    Finding,
    Headroom,
    Instruction,
    Location,
    Presence,
    Profile,
    Reading,
)
from ncu_toolkit.base.render import html as pages
from ncu_toolkit.base.render import markdown
from ncu_toolkit.base.render.text import plain_text
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.time_model import RESOURCES
from ncu_toolkit.kernel.explain.verdict import BARS, card
from ncu_toolkit.kernel.pages import json as documents

CORPUS = recorded.ROOT.parent / "shared" / "corpus"
WIDTHS = (40, 60, 80, 100, 140)


def finding(bottleneck: str = "missing-data-reuse", **changes: object) -> Finding:
    base = Finding(
        bottleneck, "One sentence.", "high", (), 1.6, (), ("Do this.", "Then that."), "Less of it."
    )
    return replace(base, **changes)  # type: ignore[arg-type]


BOUNDS = {"l1_data": 99.0, "lsu": 66.0, "issue": 36.0, "fma": 25.0, "dram": 16.0, "l2": 20.0}


#: What the report counts of them.
COUNTERS = {
    "l1_data_pipe_active": 0.99, "lsu_pipe_active": 0.66, "issue_active": 0.36,
    "fma_pipe_active": 0.25, "dram_utilization": 0.16, "l2_utilization": 0.20,
}  # fmt: skip


def profile(**readings: float) -> Profile:
    base = render_fixture.profile("vectorized", 1024, 0)
    units = {name for names, _, _ in RESOURCES.values() for name in names}
    kept = {name: found for name, found in base.readings.items() if name not in units}
    found = {
        name: Reading(name, value, "", Presence.PRESENT)
        for name, value in {**COUNTERS, "duration": 100.0, **readings}.items()
    }
    return replace(base, readings={**kept, **found})


def shown(state: Finding | None = None, **changes: object) -> Card:
    room = Headroom(4.0, "fma", "the FP32 FMA pipe", 0.2)
    verdict = Diagnosis((state or finding(),), (), BOUNDS, headroom=room)
    return card(replace(profile(), **changes), verdict, "before.ncu-rep")  # type: ignore[arg-type]


def every_writer(value: Card) -> Iterator[str]:
    whole = answer([Kind(value)])
    yield from (plain_text(whole, width) for width in WIDTHS)
    yield from (markdown.markdown(whole), markdown.brief(whole), pages.fragment(whole))
    yield json.dumps(documents.card(value))


def test_bars_are_the_busiest_units_with_dram_among_them() -> None:
    value = shown()
    assert [bar.label for bar in value.bars] == ["L1 data stage", "LSU", "issue", "FP32", "DRAM"]
    assert len(value.bars) == BARS
    assert value.bars[0] == UnitBar("l1_data", "L1 data stage", 0.99, True, 0.99)
    assert [bar.limit for bar in value.bars[1:]] == [False] * 4
    assert (value.roof, value.headroom) == ("FP32", pytest.approx(4.0))
    assert value.room.endswith(
        ", then limited by FP32 (25 % of the time, if the fix saves 20 % of that too)"
    )
    idle = card(
        profile(l1_data_pipe_active=0.3, lsu_pipe_active=0.5), Diagnosis((finding(),), (), {})
    )
    assert not any(bar.limit for bar in idle.bars), "a unit that is idle half the time is no limit"


def test_a_busy_unit_is_the_limit_where_the_verdict_is_about_it() -> None:
    def limits(bottleneck: str, **changes: object) -> list[str]:
        return [bar.label for bar in shown(finding(bottleneck, **changes)).bars if bar.limit]

    assert limits("missing-data-reuse") == ["L1 data stage"], "a rule of memory"
    assert limits("barrier-imbalance") == ["L1 data stage"], (
        "about no unit: the busiest, which is full"
    )
    assert limits("barrier-imbalance", relieves=("lsu",)) == ["LSU"], "the one it relieves"


def test_waits_add_up_to_the_whole_time() -> None:
    value = shown()
    assert sum(wait.share for wait in value.waits) == pytest.approx(1)
    assert "issuing" in [wait.label for wait in value.waits]


def test_the_hottest_line_stands_with_its_text() -> None:
    value = shown()
    line = value.where[0]
    assert line.place.startswith("vectorized.cu:")
    assert line.text in render_fixture.SOURCE
    assert line.of.startswith("the samples")
    assert 0 < line.share <= 1
    for text in every_writer(value):
        assert line.place.split(":")[0] in text
    bare = shown(sources={})
    assert bare.where[0].text == ""
    assert "source text" in bare.missing
    nothing = shown(instructions=())
    assert nothing.where == ()
    assert "instructions and source" in nothing.missing


LOAD = (("LDG.E R4, [R2]", 10, 1), ("FFMA R5, R4, R4, R5", 11, 99), ("EXIT", 12, 0))


def waiting(reason: str, code: tuple[tuple[str, int, int], ...] = LOAD, **verdict: object) -> Card:
    """The card of a load and a line that waits for `reason`: its code by line and samples."""
    rows = tuple(
        Instruction(at, 16 * at, sass, sass.split()[0], "/x/k.cu", line, 9, 288, {reason: 100 * n})
        for at, (sass, line, n) in enumerate(code)
    )
    source = {"/x/k.cu": "\n" * 9 + "float v = x[i];\nsum += v * v;\n"}
    return shown(finding(**verdict), instructions=rows, sources=source)


def test_the_instruction_that_warps_wait_for_comes_first() -> None:
    (line,) = waiting("long_scoreboard").where
    assert (line.place, line.text, line.sass) == ("k.cu:10", "float v = x[i];", "LDG.E R4")
    assert line.cost == "99 % of the samples, at k.cu:11, which waits for this load"
    (line,) = waiting("math_pipe_throttle").where
    assert (line.place, line.sass, line.of) == ("k.cu:11", "FFMA R5", "the samples")
    named = Location("/x/k.cu", 11, 16, "FFMA R5, R4, R4, R5", 1.0, "FP32 work")
    (line,) = waiting("long_scoreboard", locations=(named,)).where
    assert line.place == "k.cu:11", "the verdict names the multiply-adds themselves"


@pytest.mark.parametrize(
    ("code", "place", "sass", "cost"),
    [
        pytest.param(
            (("LDG.E R4, [R2]", 11, 1), ("FFMA R5, R4, R4, R5", 11, 98), ("EXIT", 12, 1)),
            "k.cu:11", "LDG.E R4", "99 % of the samples, mostly waiting for this load",
            id="a load and its use on one line",
        ),
        pytest.param(
            (
                ("LDG.E R4, [R2]", 11, 0), ("LDG.E R6, [R2]", 11, 0), ("LDG.E R8, [R2]", 11, 0),
                ("FFMA R5, R4, R4, R5", 11, 33), ("FFMA R5, R6, R6, R5", 11, 33), ("FFMA R5, R8, R8, R5", 11, 33), ("EXIT", 12, 1),
            ),
            "k.cu:11", "LDG.E", "99 % of the samples, mostly waiting for this load",
            id="unrolled",
        ),
        pytest.param(
            (("LDS R4, [R2]", 11, 1), ("IMAD R5, R6, R6, R5", 11, 28), ("ISETP.NE P0, PT, R6, RZ, PT", 11, 28), ("EXIT", 12, 43)),
            "k.cu:11", "", "57 % of the samples",
            id="instructions of several kinds",
        ),
        pytest.param(
            (
                ("LDG.E R4, [R2]", 10, 1), ("FFMA R5, R4, R4, R5", 11, 20), ("FFMA R5, R6, R6, R5", 11, 18),
                ("FFMA R7, R6, R6, R5", 11, 18), ("EXIT", 12, 43),
            ),
            "k.cu:11", "FFMA", "56 % of the samples",
            id="a line that hardly waits for the load",
        ),
        pytest.param(
            (("LDG.E R4, [R2]", 10, 1), ("FFMA R5, R4, R4, R5", 11, 60), ("FFMA R5, R6, R6, R5", 11, 20), ("EXIT", 12, 19)),
            "k.cu:10", "LDG.E R4", "80 % of the samples, at k.cu:11, which waits for this load",
            id="part of a line waits for a load of another",
        ),
    ],
)  # fmt: skip
def test_an_instruction_is_named_with_samples_that_are_its_own(
    code: tuple[tuple[str, int, int], ...], place: str, sass: str, cost: str
) -> None:
    line = waiting("long_scoreboard", code).where[0]
    assert (line.place, line.sass, line.cost) == (place, sass, cost)
    assert "<small> ·" not in pages.fragment(answer([Kind(waiting("long_scoreboard", code))]))


@pytest.mark.parametrize(
    ("changes", "gain", "factor"),
    [
        ({"speedup": 1.6}, "about 1.6× faster if only this is fixed", 1.6),
        ({"speedup": 1.04}, "about 1.04× faster if only this is fixed", 1.04),
        ({"speedup": 12.4}, "about 12× faster if only this is fixed", 12.4),
        ({"speedup": 1.6, "interval": (1.42, 2.1)}, "about 1.6× faster (80 % interval 1.4–2.1×) if only this is fixed", 1.6),
        ({"speedup": 1.06, "interval": (1.0, 13.4)}, "up to 13× faster (80 % interval) if only this is fixed", 1.06),
        ({"speedup": 5.1, "interval": (1.0, 20.0)}, "up to 20× faster (80 % interval) if only this is fixed", 5.1),
        ({"speedup": 5.1, "interval": (2.1, 11.0)}, "2.1–11× faster (80 % interval) if only this is fixed", 5.1),
        ({"speedup": 8.3, "good": True, "provided": "TF32 is accurate enough"}, "8.3× faster if TF32 is accurate enough", 8.3),
        ({"speedup": 1.6, "interval": (1.61, 1.62)}, "1.6× faster (80 % interval) if only this is fixed", 1.6),
        ({"speedup": 1.28, "interval": (1.0, 1.32)}, "up to 1.3× faster (80 % interval) if only this is fixed", 1.28),
        ({"speedup": 1.28, "interval": (1.12, 1.32)}, "1.1–1.3× faster (80 % interval) if only this is fixed", 1.28),
        ({"speedup": 1.0}, "gain not known", None),
        ({"speedup": None}, "gain not known", None),
        ({"speedup": float("inf")}, "gain not known", None),
    ],
)  # fmt: skip
def test_the_gain_is_in_words_on_every_output(
    changes: dict[str, object], gain: str, factor: float | None
) -> None:
    value = shown(finding(**changes))
    assert (value.gain, value.factor) == (gain, factor)
    for text in every_writer(value):
        words = " ".join(_unescaped(text).split())
        narrow = max(map(len, text.splitlines())) <= 60
        assert gain in words or (narrow and value.point in words)
        assert "≤" not in text
        assert "at most" not in text


def _unescaped(text: str) -> str:
    return text.replace("\\u00d7", "×").replace("\\u2013", "–")


def test_a_finished_kernel_names_its_roof_and_has_nothing_to_do() -> None:
    value = shown(finding("dram-bandwidth", good=True, speedup=1.0))
    assert (value.state, value.title, value.gain) == (
        "roof",
        "At the DRAM roof",
        "little left to gain",
    )
    assert (value.do, value.expect, value.next, value.room) == ((), "", "", "")
    left = shown(finding("tensor-pipe", good=True, speedup=1.07))
    assert (left.title, left.gain) == ("At the tensor roof", "up to 1.07× faster")


def test_the_next_cause_is_named_where_it_is_worth_a_word() -> None:
    small, little = finding("grid-too-small", speedup=2.21), finding("narrow-access", speedup=1.05)
    roof = finding("l2-bandwidth", speedup=3.0)
    latency = finding("memory-latency", speedup=None, weight=0.345)
    least = finding("grid-too-small", speedup=None, weight=0.06)
    for others, also in (
        ((roof, little, small, latency), "Grid too small, about 2.2× faster"),
        ((roof, least, latency, small), "Memory latency, gain not known"),
    ):
        value = card(profile(), Diagnosis((finding(), *others), (), BOUNDS))
        assert value.also == also
        for text in every_writer(value):
            assert also.split(",")[0] in _unescaped(text)
    assert not card(profile(), Diagnosis((finding(), roof, little, least), (), BOUNDS)).also


def test_an_incomplete_launch_says_so() -> None:
    launch = replace(profile().launch, status="incomplete: it crashed", grid=(0, 1, 1))
    broken = replace(profile(), launch=launch)
    value = card(broken, diagnose(broken))
    assert (value.state, value.title) == ("incomplete", "Incomplete launch")
    assert value.missing == "incomplete: it crashed"
    assert "grid" not in value.shape
    list(every_writer(value))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_narrow_terminal_keeps_the_gain(width: int) -> None:
    value = replace(shown(), kernel="a_name_" * 8, next="ncu-toolkit compare a b")
    text = plain_text(value, width)
    assert all(len(line) <= width for line in text.splitlines())
    assert "about 1.6×" in text
    assert "One sentence." in text
    assert "60 %" not in text.splitlines()[0]


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_hostile_names_are_inert() -> None:
    name = f"{EVIL}\x1b[31m[red]`|\u202e"
    base = profile()
    rows = tuple(replace(row, sass=name, file=f"/x/{name}") for row in base.instructions)
    evil = replace(
        base,
        instructions=rows,
        sources={f"/x/{name}": f"{name}\n" * 500},
        launch=replace(base.launch, function=name, kernel=name),
        device=replace(base.device, name=name),
    )
    bad = finding(name, summary=name, advice=(name,))
    value = card(evil, Diagnosis((bad,), (), BOUNDS), name)
    for text in every_writer(value):
        assert not [c for c in text if not c.isprintable() and c not in "\n\u202f\u2060"]
    tags = Tags()
    tags.feed(pages.fragment(answer([Kind(value)])))
    assert not tags.found & {"script", "img", "a", "iframe", "svg", "link"}
    assert not [name for name in tags.attributes if name.startswith("on")]
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", markdown.markdown(answer([Kind(value)])))
    assert "<script" not in outside.replace("\\<", "")


def test_several_kernels_are_a_table_and_the_cards_of_three() -> None:
    kinds = [
        Kind(replace(shown(), kernel=f"kernel_{at}", file=f"f/{at}.ncu-rep"), at, 100.0 * at, 1)
        for at in range(9, 0, -1)
    ]
    found = answer(kinds, top=5)
    assert found.kernels
    assert [row[0].text for row in found.kernels.rows] == [f"kernel_{at}" for at in range(9, 4, -1)]
    assert len(found.cards) == 3
    assert found.rest.startswith("4 more kernels take 1.00")
    for width in WIDTHS:
        lines = plain_text(found, width).splitlines()
        start = next(at for at, line in enumerate(lines) if line.startswith("kernel "))
        assert all("1.6×" in line for line in lines[start + 1 : start + 6]), width
        assert all(len(line) <= width for line in lines[start : start + 6])
    assert answer([]).line == "No launch to diagnose."
    assert answer(kinds[-1:]).line == f"kernel_1, {shown().time}"


@pytest.fixture(scope="module")
def real() -> list[Card]:
    """Cards of a recording and, where it is here, of other people's reports."""
    profiles = list(recorded.run_of(recorded.FP32).profiles[::16]) if recorded.FP32 else []
    for path in sorted(CORPUS.glob("*.ncu-rep"))[::4]:
        profiles += ncu_toolkit.load(path).profiles[:2]
    return [card(each, recorded.diagnosed(each), "a.ncu-rep") for each in profiles]


def test_real_cards_are_whole_and_short(real: list[Card]) -> None:
    if not real:
        pytest.skip("no recording and no corpus is here")
    schema = documents.schema()["properties"]["launches"]["items"]["properties"]["card"]
    for value in real:
        jsonschema.validate(json.loads(json.dumps(documents.card(value), allow_nan=False)), schema)
        if value.state == "slow":
            assert value.do
        if value.waits:
            assert sum(wait.share for wait in value.waits) == pytest.approx(1)
        assert value.where or value.missing, value.kernel
        for width in (60, 80, 120):
            for line in plain_text(value, width).splitlines():
                assert len(line) <= width or line.startswith("next"), line


def test_python_shows_the_card(tmp_path: Path) -> None:
    path = tmp_path / "two.ncu-rep"
    path.write_bytes(report_files.first_launches(2))
    report = ncu_toolkit.load(path)
    assert {"Report", "compare", "load", "profile"} <= set(dir(ncu_toolkit))
    assert len(report["naive"]) == 1
    assert report[1].launch.function == "coalesced"
    assert len(report[:1]) == 1
    with pytest.raises(KeyError, match="kernels are naive, coalesced"):
        report["nosuch"]
    assert report[0].card.title in str(report[0])
    assert report[0].card.title in report["naive"]._repr_html_()
    assert str(report).startswith("2 launches of 2 kernels")
    bundle = report._repr_mimebundle_()
    assert bundle["text/plain"] == str(report)
    assert "<script" not in bundle["text/html"]
    assert "<style>" in bundle["text/html"]
    assert len(repr(report)) < 300
    assert len(repr(report[0].diagnosis)) < 200, "a notebook shows a line, not all evidence"
    page = report["naive"].to_html(tmp_path / "pages" / "a.html")
    assert report[0].card.title in page.read_text(encoding="utf-8")
    assert "--fail-on" not in str(ncu_toolkit.compare(report, path))
    with pytest.raises(ValueError, match="no launch"):
        report[:0].to_html(tmp_path / "none.html")


@pytest.mark.parametrize(
    ("function", "kernel", "label"),
    [
        ("cw51c=]", "cudapy::__main__::fold_1_241[abi:v2,cw51cXTL=](Array<float, 1, C, mutable>)", "fold_1"),
        ("gr_c3_b6_c3_9fe[abi:v3,cw51cX]", "__main__::gr_c3_b6_c3_9fe[abi:v3,cw51cX](int)", "größe"),
        ("tagged[abi:v2,wide]", "tagged[abi:v2,wide](float *, int)", "tagged"),
        ("Kernel2", "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>(T1::Params)",
         "cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4"),
        ("Kernel", "void cutlass::Kernel<cutlass::gemm::kernel::B2bGemm<cutlass::A<(int)1>>>(T1)", "B2bGemm"),
        ("for_each", "void lib::for_each<step(float *, int)::[lambda(int) (instance 3)]>(int, T1)", "step (lambda 3): for_each"),
        ("_kernel_agent", "void thrust::core::_kernel_agent<A<w<step(int &, std::v<double>&)::[lambda(long) (instance 1)], void>>>(T2)",
         "step: _kernel_agent"),
        ("gemm", "void gemm<(int)4, float>(float *)", "gemm"),
    ],
)  # fmt: skip
def test_a_kernel_is_called_as_its_user_knows_it(function: str, kernel: str, label: str) -> None:
    assert kernel_label(function, kernel) == label


def test_a_line_shows_the_instruction_of_the_verdict() -> None:
    """Updates wait in line, and each for the load of its address: the verdict is about updates."""
    code = (
        ("LDG.E R4, [R2]", 11, 1), ("ATOMG.E.ADD PT, RZ, [R4], R6", 11, 98), ("EXIT", 12, 1),
    )  # fmt: skip
    (line,) = waiting("long_scoreboard", code).where
    assert line.sass == "LDG.E R4"
    named = Location("/x/k.cu", 11, 16, code[1][0], 1.0, "the LG throttle samples")
    (line,) = waiting("long_scoreboard", code, locations=(named,)).where
    assert (line.place, line.sass, line.of) == ("k.cu:11", "ATOMG.E.ADD PT", "the samples")


def test_a_wait_for_copies_comes_before_the_line_behind_it() -> None:
    """The copy is a function of the toolkit's header, and the samples are on the next instruction."""
    pipeline = "/usr/local/cuda/targets/x86_64-linux/include/cuda_pipeline_helpers.h"
    code = (
        ("LDGSTS.E.128 [R7], [R8.64]", pipeline, 203, 1),
        ("LDGDEPBAR", "/x/k.cu", 10, 1),
        ("DEPBAR.LE SB0, 0x0", "/x/k.cu", 11, 1),
        ("@P2 BRA 0x90", "/x/k.cu", 12, 99),
        ("EXIT", "/x/k.cu", 13, 0),
    )
    rows = tuple(
        Instruction(at, 16 * at, sass, sass.split()[sass[0] == "@"], file, line, 9, 288, {"long_scoreboard": n * 100})
        for at, (sass, file, line, n) in enumerate(code)
    )  # fmt: skip
    (line,) = shown(instructions=rows).where
    assert (line.place, line.sass) == ("k.cu:11", "DEPBAR.LE SB0")
    assert line.of == "the samples, at k.cu:12, which waits for it"


def test_the_stack_pointer_is_no_hot_line() -> None:
    code = {"LDC R1, c[0x0][0x28]": 90, "FADD R2, R2, R3": 10, "EXIT": 1}
    rows = tuple(
        Instruction(at, 16 * at, sass, sass.split()[0], samples={"wait": 100 * n})
        for at, (sass, n) in enumerate(code.items())
    )
    line = shown(instructions=rows).where[0]
    assert (line.sass, round(line.share, 1)) == ("FADD R2", 0.1)


@pytest.mark.parametrize(
    ("kernel", "hint"),
    [
        ("add(float *)", "source lines (compile with -lineinfo)"),
        ("add", 'RawKernel(..., options=("-lineinfo",))'),
        ("app::add[abi:v1,cw51cXTLSUwv1s](int)", "source lines (@cuda.jit(lineinfo=True))"),
        ("walk_6b1fb25a_cuda_kernel_forward", "source lines (wp.config.lineinfo = True)"),
        ("void at::native::reduce_kernel<(int)4>(int)", ""),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_cublas", ""),
    ],
)
def test_how_to_get_source_lines_in_the_kernels_language(kernel: str, hint: str) -> None:
    base = profile()
    rows = tuple(replace(row, file="", line=0) for row in base.instructions)
    launch = replace(base.launch, kernel=kernel)
    missing = shown(instructions=rows, sources={}, launch=launch).missing
    assert hint in missing
    assert hint or "source lines" not in missing
