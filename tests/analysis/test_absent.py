"""A figure that a file does not hold is absent from every output: each is blanked in turn, and no
output may show a zero that it did not show before."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ncu_toolkit
from ncu_toolkit.base.document.views import Answer
from ncu_toolkit.base.model import Frame, Presence, Profile, Reading
from ncu_toolkit.base.render.html import fragment
from ncu_toolkit.base.render.markdown import brief, markdown
from ncu_toolkit.base.render.text import plain_text
from ncu_toolkit.kernel.analysis import answers
from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, Options, judge
from ncu_toolkit.program.analysis.program import Programs, answer_of, judged
from ncu_toolkit.program.model import Trace
from ncu_toolkit.program.pages import json as program_json
from ncu_toolkit.program.traces.files import read_trace

TESTS = Path(__file__).resolve().parents[1]
SHARED = TESTS.parents[1] / "shared"
REPORTS = (
    TESTS / "origins/reports/few-metrics.ncu-rep.xz", TESTS / "origins/reports/set-full.ncu-rep.xz",
    SHARED / "strangers2/v100-undecoded.ncu-rep.xz", SHARED / "strangers/rtx4070s-fp64.ncu-rep",
)  # fmt: skip
TRACES = (
    *(TESTS / f"program/recorded/h100-{name}.ncu-trace" for name in ("decode", "waves_graph", "loader")),
    *(SHARED / "traces" / name for name in ("copies-before-the-module.sqlite", "dominant-gather.json.gz")),
)  # fmt: skip
#: A zero with what it is of: `0 ns`, `0 blocks`, `"total_us": 0.0`. Shares of 0 % are not among them:
#: an idle unit has one.
ZERO = re.compile(
    r"(?<![\d.,\w×])0(?:\.0+)?\s(?:ns|µs|ms|s|[kMGT]?B|[kMGT]?B/s|blocks?|threads?|registers?|bytes)\b"
)


def there(paths: Iterable[Path]) -> list[Any]:
    absent = [pytest.mark.skipif(not path.exists(), reason="not here") for path in paths]
    return [
        pytest.param(path, marks=mark, id=path.name)
        for path, mark in zip(paths, absent, strict=True)
    ]


def zeros(shown: Answer, document: str) -> Counter[str]:
    html = re.sub(r"<[^>]+>", " ", fragment(shown))
    texts = (plain_text(shown), markdown(shown), brief(shown), html)
    found = Counter(zero for text in texts for zero in ZERO.findall(text))
    return found + Counter(zero_values(json.loads(document)))


def zero_values(plain: Any, of: str = "") -> Iterator[str]:
    """The keys of a document with a zero; of evidence the metric."""
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield from zero_values(value, str(plain.get("metric", key)))
    elif isinstance(plain, list):
        for value in plain:
            yield from zero_values(value, of)
    elif plain == 0 and not isinstance(plain, bool):
        yield of


def of_report(profiles: Iterable[Profile]) -> tuple[Answer, Counter[str]]:
    launches = tuple(judge(each, "a.ncu-rep", Options(figures=True)) for each in profiles)
    analysis = Analysis((FileResult("a.ncu-rep", launches, read=len(launches)),))
    shown = answers.of_analysis(analysis)
    return shown, zeros(shown, program_json.report_document(analysis))


def without(profile: Any, name: str) -> Any:
    absent = Reading(name, None, profile.reading(name).unit, Presence.NOT_COLLECTED)
    return replace(profile, readings={**profile.readings, name: absent})


@pytest.mark.parametrize("path", there(REPORTS))
def test_no_figure_of_a_report_turns_into_zero(path: Path) -> None:
    profiles = tuple(ncu_toolkit.load(path))[:2]
    _, before = of_report(profiles)
    for name in sorted(
        {n for each in profiles for n, found in each.readings.items() if found.value}
    ):
        shown, now = of_report(without(each, name) for each in profiles)
        assert not now - before, name
        if name == "duration":
            assert "time not collected" in plain_text(shown)


@pytest.mark.parametrize("path", there(REPORTS))
def test_pages_and_comparisons_of_a_report_without_times_show_none(
    path: Path, tmp_path: Path
) -> None:
    report = ncu_toolkit.load(path)
    assert isinstance(report, ncu_toolkit.Report)
    bare = replace(report, profiles=tuple(without(each, "duration") for each in report))

    def of_page(shown: ncu_toolkit.Report) -> Counter[str]:
        text = shown.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
        body = re.sub(r"(?s)<(script|style).*?</\1>", "", text)
        return Counter(ZERO.findall(re.sub(r"<[^>]+>", " ", body)))

    assert not of_page(bare) - of_page(report)
    for pair in ((report, bare), (bare, report), (bare, bare)):
        assert not ZERO.search(str(ncu_toolkit.compare(*pair)))


#: What a trace may lack of its launches, and of its copies.
BLANKS: dict[str, tuple[dict[str, None], dict[str, None]]] = {
    "grid": ({"grid": None}, {}),
    "shape": (dict.fromkeys(("grid", "block", "registers", "shared_static", "shared_dynamic")), {}),
    "size": ({}, {"size": None, "pinned": None}),
}


def of_trace(trace: Trace) -> tuple[Answer, Counter[str]]:
    found = judged(trace, "a.sqlite", Analysis(()))
    return answer_of(found), zeros(
        answer_of(found), program_json.program_document(Programs((found,)))
    )


@pytest.mark.parametrize("blank", BLANKS)
@pytest.mark.parametrize("path", there(TRACES))
def test_no_figure_of_a_trace_turns_into_zero(path: Path, blank: str) -> None:
    trace = read_trace(path)
    shapes, ops = BLANKS[blank]
    bare = msgspec.structs.replace(
        trace,
        shapes=tuple(replace(each, **shapes) for each in trace.shapes),  # type: ignore[arg-type]
        ops=tuple(msgspec.structs.replace(each, **ops) for each in trace.ops),
    )
    (_, before), (shown, now) = of_trace(trace), of_trace(bare)
    assert not now - before
    if shapes:
        assert not {"grid-too-small", "idle-streams", "small-ops-loop"} & {
            card.bottleneck for card in shown.cards
        }


UNDECODED = SHARED / "strangers2/v100-undecoded.ncu-rep.xz"


@pytest.mark.skipif(not UNDECODED.exists(), reason="not here")
def test_machine_code_that_is_not_decoded_is_said_and_not_shown() -> None:
    report = ncu_toolkit.load(UNDECODED)
    assert "???" not in str(report) + str(report.to_frame("instructions"))
    card = next(
        each.card for each in report if each.launch.function == "compute_tendencies_x_279_gpu"
    )
    assert card.where[0].short.endswith(".F90:288"), "not an instruction of unknown line"
    assert "machine code of sm_70 is not decoded" in card.missing


@pytest.mark.parametrize(
    ("functions", "message"),
    [(("cudaLaunchKernel",), ""), (("cuLaunchKernel", "solve"), "from solve")],
)
def test_a_call_of_cuda_alone_says_nothing_of_who_launched(
    functions: tuple[str, ...], message: str
) -> None:
    (profile, *_) = ncu_toolkit.load(REPORTS[0])
    frames = tuple(Frame(name, "", 0, "libcuda.so") for name in functions)
    launched = replace(profile, launch=replace(profile.launch, stack=frames))
    assert launched.card.called == message
