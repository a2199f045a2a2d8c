"""What a report of many launches tells of the program."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import diagnosis_cases as cases
import jsonschema
import program_traces
import pytest
from program_traces import function_of, sgemm

from ncu_toolkit.base.model import Frame, Launch, Origin
from ncu_toolkit.kernel.analysis import answers
from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, LaunchResult, Options, judge
from ncu_toolkit.kernel.pages import json as documents
from ncu_toolkit.program.analysis import reported
from ncu_toolkit.program.analysis.reported import ReportedLaunch
from ncu_toolkit.program.model import Trace
from ncu_toolkit.program.pages import json as program_json


@lru_cache(maxsize=4)
def _judged(kernel: str, us: float, grid: tuple[int, int, int], profiles: bool) -> LaunchResult:
    launch = {"kernel": kernel, "function": function_of(kernel), "grid": grid}
    profile = cases.build({"metrics": {"duration": us}, "launch": launch})
    profile = replace(profile, device=program_traces.H200)
    return judge(profile, "train.ncu-rep", Options(profiles=profiles))


def report(
    trace: Trace, last: int | None = None, *, only: str = "", profiles: bool = False, **file: Any
) -> Analysis:
    """The kernels of a trace, as a report that holds nothing else of it."""
    kernels = [op for op in trace.ops if op.kind == "kernel"][:last]
    kernels = [op for op in kernels if only in trace.shapes[op.shape].kernel]
    known: dict[int, LaunchResult] = {}
    launches = []
    for at, op in enumerate(kernels):
        shape = trace.shapes[op.shape]
        if op.shape not in known:
            known[op.shape] = _judged(shape.kernel, round(op.us, 1), shape.grid, profiles)
        one = replace(known[op.shape], key=f"0.{at}", duration_us=op.us)
        if one.profile:
            one = replace(one, profile=replace(one.profile, origin=Origin("train.ncu-rep", 0, at)))
        launches.append(one)
    read = {"read": len(launches), "declared": len(launches), **file}
    return Analysis((FileResult("train.ncu-rep", tuple(launches), **read),))


def gpt(steps: int = 4, **more: Any) -> Analysis:
    return report(program_traces.gpt(steps=steps, layers=2, parameters=12), **more)


def test_the_step_is_found_without_times_between_launches() -> None:
    whole = reported.of_analysis(gpt())
    assert whole is not None
    assert whole.leads
    step = whole.found.step
    assert step.how == "repeats"
    assert not step.trace.timed
    full = sum(op.us for op in step.ops)
    assert step.wall_us == pytest.approx(whole.found.account.wall_us)
    assert full == pytest.approx(step.wall_us, rel=0.01), "a step is the mean of all"
    assert not whole.found.account.gaps, "a report has no idle time"
    assert next(each.rule for each in whole.causes) == "fp32-matmul"


def test_the_answer_names_what_a_report_lacks() -> None:
    shown = answers.of_analysis(gpt(), across=reported.across)
    assert "of kernels" in shown.headline
    assert "GPU busy" not in shown.headline
    assert shown.cards[0].bottleneck == "fp32-matmul"
    assert shown.cards[0].missing.endswith("record them with ncu-toolkit profile -- PROGRAM.")
    assert "of kernel time" in shown.cards[0].summary
    assert shown.tables[0].caption == "Kernels of the step"
    assert "--format html" in shown.cards[0].next, "the table of all launches is on that page"


def test_what_needs_the_host_is_not_judged() -> None:
    whole = reported.of_analysis(gpt())
    assert whole is not None
    unknown = {each.bottleneck for each in whole.found.considered if each.outcome == "abstained"}
    assert unknown >= {
        "launch-bound", "host-sync", "host-copy", "serial-copies", "allocation-in-step",
        "host-work", "idle-streams", "exposed-collectives",
    }  # fmt: skip


def test_a_part_of_a_step_is_the_whole_report() -> None:
    cut = gpt(steps=1)
    shown = answers.of_analysis(cut, across=reported.across)
    assert shown.cards[0].bottleneck == "fp32-matmul"
    assert "step of" not in shown.headline
    assert any("the whole report" in each for each in shown.points)


@pytest.mark.parametrize(
    "analysis",
    [
        gpt(last=19),
        gpt(read=9999),
        gpt(left_out="Profiled 80 launches (ncu --kernel-name gemm)."),
        Analysis((*gpt().files, *gpt().files)),
        gpt(only="gemm_128x64_nt"),
    ],
    ids=["few launches", "--kernel", "chosen by name", "two reports", "one kernel"],
)
def test_no_program(analysis: Analysis) -> None:
    assert reported.of_analysis(analysis) is None
    shown = answers.of_analysis(analysis, across=reported.across)
    assert not shown.tables, "today's answer"


def test_one_launch_of_each_kernel_is_a_collection() -> None:
    launch = Launch("k", "k", (1, 1, 1), (32, 1, 1))
    (verdict,) = {id(one.diagnosis): one.diagnosis for one in gpt(last=1).launches}.values()
    each = [
        ReportedLaunch(
            replace(launch, kernel=f"ampere_sgemm_{n}x64_nn"),
            program_traces.H200,
            9.0,
            lambda: verdict,
        )
        for n in range(1, 60)
    ]
    assert reported.of_launches(each) is None
    assert reported.of_launches([*each, *each]) is not None


def test_lines_come_from_the_stacks_of_launches() -> None:
    verdict = gpt(last=1).launches[0].diagnosis
    frames = (Frame("step", "/home/me/train.py", 33, "", python=True),)
    kernels = [sgemm("128x64"), sgemm("64x64"), sgemm("32x128")]
    launches = [
        ReportedLaunch(
            Launch(name, name, (64, 1, 1), (128, 1, 1), stack=frames), program_traces.H200, 50.0, lambda: verdict
        )
        for name in kernels * 8
    ]  # fmt: skip
    whole = reported.of_launches(launches)
    assert whole is not None
    assert whole.causes[0].where == ("train.py:33",)
    assert "lines" not in whole.found.step.trace.lacks


def test_a_kernel_that_costs_more_keeps_todays_answer() -> None:
    analysis = gpt()
    (file,) = analysis.files
    primary = file.launches[0].diagnosis.primary
    slow = replace(primary, speedup=20.0, good=False, bottleneck="bank-conflicts")
    changed = [
        replace(
            each,
            duration_us=40 * (each.duration_us or 0.0),
            diagnosis=replace(each.diagnosis, findings=(slow,)),
        )
        if "vectorized_elementwise" in each.kernel
        else each
        for each in file.launches
    ]
    shown = answers.of_analysis(
        Analysis((replace(file, launches=tuple(changed)),)), across=reported.across
    )
    assert shown.kernels is not None
    assert any(each.startswith("FP32 matrix products") for each in shown.points)


def test_agents_get_the_kernels_and_the_causes_beside_them() -> None:
    shown = answers.of_analysis(gpt(), across=partial(reported.across, leads=False))
    assert shown.kernels is not None
    assert shown.points[0].startswith("FP32 matrix products on CUDA cores: ")


def test_json_holds_the_program_where_there_is_one() -> None:
    shown = json.loads(program_json.report_document(gpt()))
    jsonschema.validate(shown, documents.schema())
    found = shown["program"]
    assert found["findings"][0]["rule"] == "fp32-matmul"
    assert "wall time" in found["lacks"]
    step = documents.schema("program")["properties"]["programs"]["items"]["properties"]["step"]
    jsonschema.validate(found["step"], step)
    assert "program" not in json.loads(program_json.report_document(gpt(), 3)), (
        "--top left some out"
    )
    assert "program" not in json.loads(program_json.report_document(gpt(last=19)))
