"""What was tried of a program, in its findings, and from there on everything that shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import program_traces
import pytest
from click.testing import CliRunner
from program_found import small

from ncu_toolkit.cli import cli
from ncu_toolkit.program.analysis.program import analyze_programs
from ncu_toolkit.program.analysis.trial import save_trial, trial_path
from ncu_toolkit.program.diagnosis import with_trial
from ncu_toolkit.program.model import ProgramDiagnosis, ProgramTrial, Tried
from ncu_toolkit.program.traces.files import write_trace


def tried(name: str, left: float = 0.5, **more: Any) -> Tried:
    values = {
        "outcome": "faster" if left < 1 else "same",
        "results": "equal",
        "causes": ("fp32-matmul",),
        **more,
    }
    known = {
        "title": name,
        "description": "It ran.",
        "before_us": (1000.0,) * 5,
        "after_us": (1000.0 * left,) * 5,
    }
    return Tried(switches=(name,), **{**known, **values})  # type: ignore[arg-type]


def trial(*each: Tried) -> ProgramTrial:
    return ProgramTrial(
        program="a.py", gpu="H100", word="step", before_us=(1000.0,) * 5, tried=each
    )


@pytest.fixture
def found() -> ProgramDiagnosis:
    """With the switch that is made for its first finding."""
    plain = small()
    first, *others = plain.findings
    first = msgspec.structs.replace(first, switch="tf32")
    return msgspec.structs.replace(plain, findings=(first, *others))


def of_products(found: ProgramDiagnosis, *each: Tried) -> Any:
    return next(f for f in with_trial(found, trial(*each)).findings if f.rule == "fp32-matmul")


def test_what_it_saved_takes_the_place_of_the_ceiling(found: ProgramDiagnosis) -> None:
    line = 'torch.set_float32_matmul_precision("high")'
    one = of_products(found, tried("tf32", keep=(line,)))
    assert one.measured_us == pytest.approx(found.step.wall_us / 2)
    assert [str(each).count(line) for each in one.advice] == [
        1
    ]  # the finding says the line already
    kept = of_products(found, tried("tf32", keep=("export CUPY_TF32=1",)))
    assert kept.advice[0] == "Keep it: export CUPY_TF32=1"


def test_another_switch_for_the_same_cause_counts(found: ProgramDiagnosis) -> None:
    """The best one, by the findings that it was tried for."""
    one = of_products(found, tried("tf32", 0.6), tried("bf16-autocast", 0.3))
    assert one.switch == "bf16-autocast"
    assert one.measured_us == pytest.approx(found.step.wall_us * 0.7)


@pytest.mark.parametrize("outcome", ["broke", "not applied", "other step"])
def test_what_cannot_be_used_is_not_offered_again(found: ProgramDiagnosis, outcome: str) -> None:
    one = of_products(found, tried("tf32", outcome=outcome))
    assert (one.switch, one.measured_us) == ("", None)


def test_other_results_are_no_gain(found: ProgramDiagnosis) -> None:
    one = of_products(found, tried("tf32", results="differ"))
    assert (one.switch, one.measured_us) == ("", None)


def test_no_gain_is_reported_and_comes_last(found: ProgramDiagnosis) -> None:
    last = with_trial(found, trial(tried("tf32", 1.0))).findings[-1]
    assert (last.rule, last.measured_us) == ("fp32-matmul", 0.0)


# ---- everywhere that findings are shown


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "gpt.ncu-trace"
    write_trace(program_traces.gpt(), path)
    return path


def shown(trace: Path, form: str) -> str:
    to = trace.with_name(f"shown.{form}")
    done = CliRunner().invoke(cli, ["analyze", str(trace), "--format", form, "-o", str(to)])
    assert done.exit_code == 0, done.output
    text = to.read_text()
    return text if form == "json" else re.sub(r"</?(?:span|code)[^>]*>|\\", "", text)


@pytest.fixture
def served(trace: Path) -> Iterator[Callable[[], dict[str, Any]]]:
    """The first finding, as a model gets it from one server."""
    pytest.importorskip("ncu_toolkit.guests.mcp")
    from ncu_toolkit.guests.mcp import digest, root, tools
    from ncu_toolkit.guests.mcp import reports as kept

    reports = kept.Reports(root.Root(trace.parent))
    served = tools.Tools(reports)
    yield lambda: json.loads(digest.encoded(served.call("analyze", {"report": trace.name})))[
        "launches"
    ][0]
    reports.close()


def test_what_was_measured_is_shown_in_its_place(
    trace: Path, served: Callable[[], dict[str, Any]]
) -> None:
    assert not served()["gain"].startswith("measured ")
    (_, plain) = analyze_programs([trace], jobs=1).found[0]
    wall = plain.account.wall_us
    saved = msgspec.structs.replace(tried("tf32", 0.5), keep=("keep-this-line",))
    save_trial(trial(saved), trial_path(trace))
    for form in ("text", "markdown", "html"):
        text = shown(trace, form)
        assert "measured" in text, form
        assert "keep-this-line" in text, form
        assert "ncu-toolkit try tf32" not in text, form
    (program,) = json.loads(shown(trace, "json"))["programs"]
    assert program["findings"][0]["measured_us"] == pytest.approx(wall / 2)
    first = served()
    assert first["gain"].startswith("measured ")
    assert any("keep-this-line" in step for step in first["do"])
