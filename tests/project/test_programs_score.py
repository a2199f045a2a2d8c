"""The scorer of whole programs, on simulated traces: no recording and no real label is needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import diagnosis_cases
import program_traces
import pytest
from program_found import machine

from benchmarks.field import half
from benchmarks.programs import hta, score
from ncu_toolkit.base.core.errors import EXIT_INPUT, EXIT_OK, EXIT_USAGE
from ncu_toolkit.base.model import RuleMessage
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.program.model import Trace
from ncu_toolkit.program.rules import step_rules
from ncu_toolkit.program.traces.files import read_trace, write_trace
from ncu_toolkit.program.traces.step import find_step


def _named(stem: str, which: str = "development") -> str:
    return next(name for at in range(99) if half(name := f"{stem}_{at}") == which)


GPT, BOUND, IDLE = _named("torch_gpt"), _named("cuda_bound"), _named("torch_well")
SEALED = _named("jax_hidden", "sealed")


def _own() -> Trace:
    """One kernel of the author's own, all the time."""
    made = machine("own")
    for _ in range(9):
        made.launch("my_stencil(float*)", 900.0, line="own.cu:9")
        made.sync()
    return made.trace()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings, times and labels of four programs, one of them of the sealed half."""
    here = tmp_path_factory.mktemp("recordings")
    traces = {
        GPT: program_traces.gpt(steps=5, layers=2, parameters=6),
        BOUND: program_traces.launch_bound(),
        IDLE: program_traces.healthy(steps=5),
        SEALED: program_traces.loader(),
    }
    times: dict[str, Any] = {}
    for name, trace in traces.items():
        write_trace(trace, here / f"{name}.before.ncu-trace")
        side = {"us": [100.0, 101.0, 99.0], "seconds": 2.0, "result": [1.0, 2.0]}
        after = {**side, "us": [40.0, 41.0, 39.0]}
        times[name] = {
            "before": {**side, "profile_seconds": 5.0, "recorded_us": 102.0},
            "after": after,
        }
    (here / "times.json").write_text(json.dumps(times))
    return here


def _labels(**other: dict[str, Any]) -> dict[str, Any]:
    return {
        GPT: {"cause": "fp32-matmul", "second": "unfused-attention", "tolerance": 0.01},
        BOUND: {"cause": "kernel:coalescing", "second": "launch-bound"},
        IDLE: {"cause": "none", "healthy": True},
        SEALED: {"cause": "host-copy", "second": ""},
        **other,
    }


def test_each_cause_is_compared_with_its_label(folder: Path) -> None:
    programs, left_out = score.read(folder, _labels(), "development")
    assert not left_out
    assert {each.name for each in programs} == {GPT, BOUND, IDLE}, "the sealed half is not read"
    found = {case.name: case for case in score.cases(programs, score.ours)}
    assert set(found) == {GPT, BOUND}
    assert found[GPT].rank == 1
    assert found[GPT].language == "torch"
    assert found[GPT].achieved == pytest.approx(0.6)
    low, high = found[GPT].interval or (0.0, 0.0)
    assert 0 < low < found[GPT].predicted < high < 1
    (ceiling, _) = score.cases(programs, score.ceilings)
    assert ceiling.interval == (0.0, ceiling.predicted)
    assert found[BOUND].rank is None
    text = score.document(programs, every=True)
    assert "| ncu-toolkit | 2 | 1 (50%) |" in text
    assert "Our first is the label or what it also accepts: 2 of 2; skill " in text
    assert "saving whatever the cause: skill " in text
    assert "promised more than 10%: 0 of 1." in text
    assert "Profiling took at most three times the program and 30 s for 3 of 3." in text
    assert "A recorded step: 1.02 times" in text


def test_rivals_know_what_they_can(folder: Path) -> None:
    programs, _ = score.read(folder, _labels(**{BOUND: {"cause": "launch-bound"}}), "development")
    biggest = {
        case.name: case for case in score.cases(programs, score.RIVALS["the biggest kernel"])
    }
    assert biggest[GPT].rank == 1, "the biggest kernel is an FP32 product"
    assert biggest[BOUND].rank is None
    idle = {case.name: case for case in score.cases(programs, score.RIVALS["idle over 20 %"])}
    assert idle[BOUND].rank == 1
    assert not idle[GPT].named
    (ncu,) = (name for name in score.RIVALS if name.startswith("Nsight"))
    assert not any(case.named for case in score.cases(programs, score.RIVALS[ncu])), "no report"
    text = score.document(programs)
    assert f"| {ncu} |" not in text
    assert "own rules were recorded" in text


def test_ncus_own_rules_are_asked_about_the_biggest_kernel(folder: Path) -> None:
    programs, _ = score.read(folder, _labels(), "development")
    rules = (
        RuleMessage("SOLBottleneck", "Memory", "", "optimization", 30.0, "global"),
        RuleMessage("CPIStall", "Stall", "", "optimization", 60.0, "local"),
    )
    stock = replace(diagnosis_cases.build({}), rules=rules)
    (gpt,) = (replace(each, stock=stock) for each in programs if each.name == GPT)
    (ncu,) = (name for name in score.RIVALS if name.startswith("Nsight"))
    _, saved, _ = score.RIVALS[ncu](gpt)
    assert saved == pytest.approx(0.3 * score.RIVALS["the biggest kernel"](gpt)[1])
    assert f"| {ncu} | 1 |" in score.document([gpt])


def test_a_trace_is_one_of_pytorchs(tmp_path: Path) -> None:
    """What hta.py writes is read back as the same work."""
    trace = program_traces.gpt(steps=5, layers=2, parameters=6)
    path = tmp_path / "gpt.json"
    path.write_text(json.dumps(hta.kineto(trace)))
    again = read_trace(path)
    assert len(again.ops) == len(trace.ops)
    assert find_step(again).launches == find_step(trace).launches
    assert find_step(again).wall_us == pytest.approx(find_step(trace).wall_us, rel=1e-3)


def test_the_largest_part_is_what_hta_says(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    parts = {"host wait": 0.7, "kernel wait": 0.1, "largest": 0.15, "computation": 0.2}
    (tmp_path / "hta.json").write_text(json.dumps({BOUND: parts, GPT: {"error": "not read"}}))
    programs, _ = score.read(tmp_path, _labels(**{BOUND: {"cause": "host-sync"}}), "development")
    message = {
        case.name: case for case in score.cases(programs, score.RIVALS["HolisticTraceAnalysis"])
    }
    assert (message[BOUND].rank, message[BOUND].predicted) == (1, 0.7)
    assert not message[GPT].named
    assert "HolisticTraceAnalysis 0, for 5 causes" in score.document(programs)


def test_a_kernel_of_ones_own_is_no_cause(tmp_path: Path) -> None:
    write_trace(_own(), tmp_path / f"{GPT}.before.ncu-trace")
    times = {"us": [9.0, 9.0], "code": 0}
    (tmp_path / "times.json").write_text(
        json.dumps({GPT: {"before": times, "after": {**times, "us": [3.0, 3.0]}}})
    )
    programs, _ = score.read(tmp_path, {GPT: {"cause": "library"}}, "development")
    (case,) = score.cases(programs, score.ours)
    assert case.named == (frozenset((score.OWN,)),)
    assert case.rank == 1
    assert "no report is there: 1, of which 1 have the kernel named" in score.document(programs)


def test_what_does_not_count_is_reported(folder: Path, tmp_path: Path) -> None:
    for name in (GPT, BOUND):
        (tmp_path / f"{name}.before.ncu-trace").write_bytes(
            (folder / f"{name}.before.ncu-trace").read_bytes()
        )
    times = json.loads((folder / "times.json").read_text())
    times[GPT]["after"]["code"] = 1
    times[BOUND]["after"]["us"] = [99.0]
    times[BOUND]["after"]["result"] = [2.0]
    (tmp_path / "times.json").write_text(json.dumps(times))
    programs, left_out = score.read(tmp_path, _labels(), "development")
    assert sorted(left_out) == sorted(
        [f"{GPT}: a run failed or was not timed", f"{IDLE}: not recorded"]
    )
    assert score.document(programs, left_out) == "No program is recorded.\n"
    times[BOUND]["after"]["us"] = [20.0]
    (tmp_path / "times.json").write_text(json.dumps(times))
    text = score.document(*score.read(tmp_path, _labels(), "development"))
    assert f"differ by more than the label allows: {BOUND}." in text
    assert f"{IDLE}: not recorded" in text


def test_labels_mean_rules() -> None:
    assert score.meant("launch-bound") == {"launch-bound"}
    assert score.meant("kernel:tail-effect") == {"tail-effect"}
    assert "uncoalesced-global-access" in score.meant("kernel:uncoalesced")
    assert {each for ids in score.MEANINGS.values() for each in ids} <= set(load_rules())
    assert {each for ids in score.BY_CLASS.values() for each in ids} <= {
        *step_rules(), *score.OTHERS,
    }  # fmt: skip
    for wrong in ("kernel:xyzzy", "something"):
        with pytest.raises(ValueError, match="no meaning is known"):
            score.meant(wrong)


def _written(path: Path, **changed: dict[str, Any]) -> None:
    lines = [
        f'["{name}"]\n' + "\n".join(f"{key} = {json.dumps(value)}" for key, value in label.items())
        for name, label in _labels(**changed).items()
    ]
    path.write_text("\n".join(lines))


def test_a_second_set_is_scored_after_the_first(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "programs.md"
    _written(tmp_path / "labels.toml", **{BOUND: {"cause": "launch-bound", "set": "second"}})
    words = ["--recordings", str(folder), "--labels", str(tmp_path), "--out", str(page), "--sealed"]
    assert [score.main(words) for _ in range(3)] == [EXIT_OK, EXIT_OK, EXIT_USAGE]
    one, both = page.read_text().partition("## The second sealed set")[::2]
    assert "## The sealed half" in one
    assert (BOUND in one, BOUND in both) == (False, False), "no case without --cases"
    assert "| ncu-toolkit | 1 |" in both
    assert score.main(words[:-1]) == EXIT_OK
    there = [each for each in score.HEADINGS if f"## {score.HEADINGS[each]}\n" in page.read_text()]
    assert there == ["development", "sealed", "now", "second", "second-now"]


def test_both_halves_stay_on_the_page(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "programs.md"
    _written(tmp_path / "labels.toml", **{BOUND: {"cause": "launch-bound"}})
    common = ["--recordings", str(folder), "--labels", str(tmp_path), "--out", str(page)]
    assert score.main(common) == EXIT_OK
    once = page.read_text()
    assert "The sealed half" not in once
    assert score.main([*common, "--sealed"]) == EXIT_OK
    fell = page.read_text()
    assert score.main([*common, "--sealed"]) == EXIT_USAGE, "it is scored once"
    assert page.read_text() == fell
    assert score.main(common) == EXIT_OK
    both = page.read_text()
    assert fell.partition("## The sealed half\n")[2].partition("<!--")[0].strip() in both
    assert both.index("## The development half") < both.index("## The sealed half")
    assert both.count("| ncu-toolkit |") == 3, "the half after its fixes too"
    assert score.main([*common, "--recordings", str(tmp_path / "none")]) == EXIT_INPUT


def test_the_printed_step_is_found_or_a_part_of_it() -> None:
    assert score.of_printed(1000.0, 1049.0) == 1
    assert score.of_printed(1000.0, 3100.0) == 3
    assert score.of_printed(1000.0, 1300.0) == 0
    assert score.of_printed(1000.0, 400.0) == 0
    assert score.of_printed(0.0, 400.0) == 0
