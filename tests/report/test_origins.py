"""Reports of every origin, made on an H200 by benchmarks/origins/collect.py: none is refused, and what
was not finished is named."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import golden
import jsonschema
import pytest

from ncu_toolkit.cli import main
from ncu_toolkit.kernel.analysis import analyze
from ncu_toolkit.kernel.pages import json as documents
from ncu_toolkit.kernel.report import ncu_action
from ncu_toolkit.kernel.report.reader import LoadedReport, load_report

REPORTS = golden.ORIGINS
NAMES = sorted(path.name.removesuffix(".ncu-rep.xz") for path in REPORTS.glob("*.ncu-rep.xz"))
#: Launches that were not finished: those under way when the program or ncu ended.
INCOMPLETE = {"assert": 1, "illegal-access": 1, "misaligned": 1, "trap": 1}
#: What was profiled as one, with the functions launched in it.
TOGETHER = {
    "app-range-replay": [("range", ("produce", "consume")), ("range", ("consume",) * 3)],
    "graph-whole": [("graph", ("left", "memset32", "right", "join"))] * 2,
    "range-no-time": [("range", ("produce", "consume")), ("range", ("consume",) * 3)],
    "range-replay": [("range", ("produce", "consume")), ("range", ("consume",) * 3)],
}
#: Processes in a report, where there are several.
PROCESSES = ("parent-and-child", "siblings", "child-process")


@lru_cache
def report(name: str) -> LoadedReport:
    return load_report(REPORTS / f"{name}.ncu-rep.xz")


#: Launches for which ncu gave a throughput of L1 above 100 % (147 and 403).
IMPOSSIBLE = {"torch-workers": 1, "principles-full-2": 1}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_is_read_whole(name: str) -> None:
    """Every launch is there, without a contradiction; those not finished are named."""
    found = report(name)
    assert not found.damage
    assert not found.missing
    assert found.read_launches == found.declared_launches == len(found.profiles) > 0
    doubted = [{*p.contradictions.values()} for p in found.profiles if p.contradictions]
    assert doubted == [{("l1_throughput",)}] * IMPOSSIBLE.get(name, 0)
    unfinished = [p.launch.status for p in found.profiles if not p.launch.complete]
    assert len(unfinished) == INCOMPLETE.get(name, 0), unfinished
    together = [(p.launch.workload, p.launch.inside) for p in found.profiles if p.launch.workload]
    assert together == TOGETHER.get(name, [])


@pytest.mark.parametrize(
    ("name", "form"), list(zip(TOGETHER, ("text", "markdown", "json", "html"), strict=True))
)
def test_what_was_profiled_as_one_is_an_answer(
    name: str, form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its time and units, and which kernels are in it; no cause, and no error."""
    output = [f"--output={tmp_path / 'out.html'}"] if form == "html" else []
    path = REPORTS / f"{name}.ncu-rep.xz"
    with pytest.raises(SystemExit) as ended:
        main(["analyze", str(path), "--format", form, *output])
    assert ended.value.code == 0
    message, notes = capfd.readouterr()
    assert "incomplete" not in notes
    workload, inside = TOGETHER[name][-1]
    if form == "json":
        document = json.loads(message)
        jsonschema.validate(document, documents.schema())
        last = document["launches"][-1]
        assert (last["workload"], tuple(last["inside"])) == (workload, inside)
        assert last["duration_us"] > 100
        assert last["card"]["state"] == "together"
        assert not last["diagnosis"]["predicted_speedup"]
        if name != "range-no-time":
            assert "DRAM" in {bar["label"] for bar in last["card"]["bars"]}
        return
    shown = (tmp_path / "out.html").read_text() if form == "html" else message
    for words in (f"A {workload} profiled as one", inside[-1], "--replay-mode kernel"):
        assert words in shown, words
    assert "confidence" not in message


@pytest.mark.slow
def test_a_range_with_machine_code_is_read() -> None:
    """Asked for its source files, NVIDIA's module crashes."""
    path = golden.recorded.ROOT.parent / "shared" / "strangers" / "h200-app-range.ncu-rep.xz"
    if not path.is_file():
        pytest.skip("the reports of strangers are not here")
    (profile,) = load_report(path).profiles
    assert len(profile.launch.inside) == 12
    assert profile.duration_us == pytest.approx(9907.36)
    assert profile.launch.kernel.endswith("vectorized_elementwise_kernel ×9")
    assert not profile.instructions
    assert not profile.sources


def test_a_range_without_a_time_says_so() -> None:
    for profile in report("range-replay").profiles:
        none = {"duration": replace(profile.reading("duration"), value=None)}
        message = ncu_action._status(frozenset(none), none, profile.launch.grid, "range")
        assert "this range was profiled as one, and the report has no time of it" in message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("call-stack", "stacks.cu:11 in launch(float*, int), called by step(float*, int), work"),
        ("call-stack-python", "stacks_app.py:10 in train_step, called by main, <module>"),
    ],
)
def test_the_line_that_launched_comes_first(
    name: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of Python's stack where there is one, since that is what its user wrote."""
    (profile,) = report(name).profiles
    stack = profile.launch.stack
    assert [frame.function for frame in stack if frame.own and not frame.python] == [
        "launch(float*, int)", "step(float*, int)", "work",
    ]  # fmt: skip
    assert stack[-1].function == "_start"
    assert {frame.python for frame in stack} == {False, name == "call-stack-python"}
    with pytest.raises(SystemExit):
        main(["analyze", str(REPORTS / f"{name}.ncu-rep.xz"), "--format", "json"])
    document = json.loads(capfd.readouterr().out)
    jsonschema.validate(document, documents.schema())
    (launch,) = document["launches"]
    assert launch["card"]["called"] == message
    assert len(launch["stack"]) == len(stack)


@pytest.mark.parametrize("name", PROCESSES)
def test_processes_are_told_apart(name: str) -> None:
    launches = [profile.launch for profile in report(name).profiles]
    found = {launch.process for launch in launches}
    assert len(found) == (1 if name == "child-process" else 2)
    assert (found == {0}) == (name == "child-process"), "a single one needs no number"


def test_loads_over_time_are_read_and_drawn(tmp_path: Path) -> None:
    """A launch of 1.7 ms between idle time: PM sampling begins before and ends after it."""
    (profile,) = report("pm-sampling").profiles
    issue = {series.label: series for series in profile.timeline}["issue slots"]
    assert issue.step_us == pytest.approx(1.5, rel=0.01)
    assert 0.3 < max(issue.values) <= 1
    assert issue.step_us * len(issue.values) == pytest.approx(profile.duration_us, rel=0.2)
    assert report("set-full").profiles[0].timeline == (), "5 µs are too short for a course of time"
    page = f"--output={tmp_path / 'out.html'}"
    with pytest.raises(SystemExit):
        main(["analyze", str(REPORTS / "pm-sampling.ncu-rep.xz"), "--format", "html", page])
    shown = (tmp_path / "out.html").read_text()
    assert 'title="issue slots: ' in shown
    assert "Too few samples: DRAM." in shown


def test_gpus_of_one_report_are_told_apart() -> None:
    """By number: those of one machine have one name."""
    (profile,) = report("call-stack").profiles
    others = [
        analyze.judge(
            replace(profile, device=replace(profile.device, index=at)), "a", analyze.Options()
        )
        for at in (0, 1)
    ]
    packed = analyze.Packed(analyze.FileResult("a"), [pickle.dumps(tuple(others))])
    names = [launch.gpu for launch in analyze.unpacked(packed).launches]
    assert names == ["NVIDIA H200 (GPU 0)", "NVIDIA H200 (GPU 1)"]
    alone = analyze.Packed(analyze.FileResult("a"), [pickle.dumps((others[1],))])
    assert [launch.gpu for launch in analyze.unpacked(alone).launches] == ["NVIDIA H200"]


def test_machine_code_is_read_beside_a_source_without_any() -> None:
    """Two sources have one id: the second holds no machine code, and takes none away."""
    assert [each.code.instructions for each in report("few-metrics").profiles] == [22, 22, 83]
