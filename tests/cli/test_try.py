"""`ncu-toolkit try` on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner, Result
from program_found import small

from ncu_toolkit.base.core.errors import GateFailed, InputProblem
from ncu_toolkit.cli import cli
from ncu_toolkit.kernel.pages import json as json_pages
from ncu_toolkit.program.analysis.trial import save_trial, trial_path
from ncu_toolkit.program.model import ProgramTrial, Results, Tried, TryOutcome
from ncu_toolkit.program.recording import trying
from ncu_toolkit.program.traces.files import write_trace

TRIED = Tried(
    switches=("tf32",), title="TF32", outcome="faster", description="46.6 ms → 17.9 ms, 2.60× as fast.",
    before_us=(46600.0,) * 5, after_us=(17900.0,) * 5, keep=("one line",),
)  # fmt: skip
TRIAL = ProgramTrial(
    program="train.py", gpu="NVIDIA H100", word="step", before_us=(46600.0,), tried=(TRIED,)
)


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["try", *words])


@pytest.fixture
def asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[tuple[trying.TryJob, Sequence[str]]]:
    found: list[tuple[trying.TryJob, Sequence[str]]] = []

    def fake(
        job: trying.TryJob, names: Sequence[str], *_: object, **__: object
    ) -> tuple[ProgramTrial, Path]:
        found.append((job, names))
        return TRIAL, tmp_path / "program.ncu-trace"

    monkeypatch.setattr(trying, "try_program", fake)
    monkeypatch.setenv("NCU_TOOLKIT_HISTORY", str(tmp_path / "history"))
    return found


def test_switches_and_the_program(asked: list[tuple[trying.TryJob, Sequence[str]]]) -> None:
    done = run("tf32", "triton-warps:8", "--runs", "3", "--", "python", "train.py", "--lr", "1")
    assert done.exit_code == 0, done.output
    job, names = asked[0]
    assert (job.command, names) == (("python", "train.py", "--lr", "1"), ("tf32", "triton-warps:8"))
    assert "measured 46.6" in done.output
    run("--all", "--build", "nvcc 'a b.cu' -o app", "--", "./app")
    assert asked[1][0].build == ("nvcc", "a b.cu", "-o", "app")
    assert asked[1][1] == ()


def test_other_formats(asked: list[tuple[trying.TryJob, Sequence[str]]], tmp_path: Path) -> None:
    done = run("tf32", "--format", "json", "-o", str(tmp_path / "a.json"), "--", "python")
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["schema"] == "ncu-toolkit/trial"
    assert found["tried"][0]["after"] == 17900.0
    schema = json_pages.schema("trial")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(found, schema)
    switch = schema["properties"]["tried"]["items"]
    assert set(found) == set(schema["required"])
    assert set(found["tried"][0]) == set(switch["required"])
    assert set(switch["properties"]["outcome"]["enum"]) == set(get_args(TryOutcome))
    assert set(switch["properties"]["results"]["enum"]) == set(get_args(Results))
    again = CliRunner().invoke(cli, ["compare", *[str(tmp_path / "a.json")] * 2])
    assert "step with tf32" in again.output  # the document is a trial too
    done = run("tf32", "--format", "html", "-o", str(tmp_path / "a.html"), "--", "python")
    assert done.exit_code == 0, done.output
    assert "2.60×" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "python", "a.py"], "no setting is named"),
        (["tf23", "--", "python", "a.py"], "Did you mean 'tf32'?"),
        (["tf32"], "no program to run"),
        (["--all", "tf32", "--", "python"], "--all takes no names of settings"),
        (["tf32", "--kernel", "(", "--", "python"], "--kernel"),
    ],
)
def test_requests_that_make_no_sense(words: list[str], message: str) -> None:
    done = run(*words)
    assert done.exit_code != 0
    assert message in f"{done.output} {done.exception}"


def test_the_list() -> None:
    done = run("--list")
    assert done.exit_code == 0
    assert "fused-optimizer" in done.output


def test_analyze_shows_what_was_measured(tmp_path: Path) -> None:
    trace = small().step.trace
    path = tmp_path / "program.ncu-trace"
    write_trace(trace, path)
    plain = CliRunner().invoke(cli, ["analyze", str(path)]).output
    save_trial(TRIAL, trial_path(path))
    tried = CliRunner().invoke(cli, ["analyze", str(path)]).output
    assert "Tried: tf32 took the step from" in tried
    assert plain != tried
    trial_path(path).write_text("{")
    assert "What was tried is left out" in CliRunner().invoke(cli, ["analyze", str(path)]).output


def test_two_trials_are_compared(tmp_path: Path) -> None:
    """By folder or trace: the step as it is and with each switch, tested as kernels are."""

    def made(name: str, trial: ProgramTrial) -> Path:
        (tmp_path / name).mkdir()
        path = tmp_path / name / "program.ncu-trace"
        write_trace(small().step.trace, path)
        save_trial(trial, trial_path(path))
        return path

    def compared(*words: object) -> Result:
        return CliRunner().invoke(cli, ["compare", *map(str, words)])

    times = (46600.0, 46610.0, 46620.0, 46590.0, 46580.0)
    old = msgspec.structs.replace(TRIAL, before_us=times)
    one = made("one", old)
    other = made("two", msgspec.structs.replace(old, before_us=tuple(1.1 * each for each in times)))
    found = compared(one.parent, other)
    assert found.exit_code == 0, found.output
    assert re.search(r"^step +46.6.ms +51.3.ms +\+10.0.%", found.output, re.MULTILINE)
    assert re.search(r"^step with tf32 +17.9.ms +17.9.ms +=", found.output, re.MULTILINE)
    assert "kernel" not in found.output
    failed = compared(one, other, "--fail-on", "time>5%")
    assert isinstance(failed.exception, GateFailed)
    assert "regression: step: time 46.6 ms" in failed.output
    assert "2 steps compared: no regression" in compared(one, one, "--fail-on", "time>5%").output
    elsewhere = made("three", msgspec.structs.replace(old, gpu="Another GPU"))
    undecided = compared(one, elsewhere, "--fail-on", "time>5%")
    assert isinstance(undecided.exception, InputProblem)
    assert "other GPU" in compared(one, elsewhere).output
    missing = compared(one, one, "--fail-on", "registers_per_thread>10")
    assert "a side has no registers_per_thread" in str(missing.exception)
    assert "not kernels" in str(compared(one, one, "--kernel", "x").exception)
    by_hand = compared(one, one, "--pair", "step=step with tf32")
    assert re.search(r"^step → step with tf32 +46.6.ms +17.9.ms", by_hand.output, re.MULTILINE)
    (tmp_path / "none").mkdir()
    assert "holds none" in str(compared(one, tmp_path / "none").exception)
    both = compared(tmp_path, one)
    assert "there are several trials of 'train.py'" in str(both.exception)
    trial_path(other).write_text("{")
    assert isinstance(compared(one, other).exception, InputProblem)
