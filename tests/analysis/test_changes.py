"""Two traces of a program: what became of the step, and what is not called a change."""

import contextlib
import io
import json
import random
from pathlib import Path

import msgspec
import program_traces
import pytest
from program import kineto_files

import ncu_toolkit
from ncu_toolkit.base.core.errors import EXIT_GATE, EXIT_INPUT, EXIT_USAGE, InputProblem
from ncu_toolkit.base.render.text import plain_text
from ncu_toolkit.cli import main
from ncu_toolkit.kernel.analysis import gate
from ncu_toolkit.program.analysis import changes
from ncu_toolkit.program.analysis.program import Programs, TraceResult, analyze_programs
from ncu_toolkit.program.diagnosis import diagnose_program
from ncu_toolkit.program.model import Trace
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.files import read_trace, write_trace
from ncu_toolkit.program.traces.step import find_step

HERE = Path(__file__).resolve().parents[1]
RECORDED = HERE / "program" / "recorded"
PAGEABLE, PINNED = (program_traces.loader(15, pinned=pinned) for pinned in (False, True))


def judged(trace: Trace, windows: slice = slice(None)) -> Programs:
    step = find_step(trace)
    held = step.windows[windows]
    middle = sorted(range(len(held)), key=lambda at: held[at].us)[(len(held) - 1) // 2]
    step = msgspec.structs.replace(step, windows=held, typical=middle)
    return Programs((TraceResult("x", diagnose_program(step, account_of(step), {})),))


def change(old: Programs, new: Programs) -> changes.StepChange:
    return changes.compare_programs(old, new)[1][0]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("pair")
    for name, trace in (("old", PAGEABLE), ("new", PINNED)):
        write_trace(trace, folder / f"{name}.ncu-trace")
    return str(folder / "old.ncu-trace"), str(folder / "new.ncu-trace")


def run(*words: str) -> tuple[int, str]:
    """The exit code and what is printed, errors last."""
    out, error = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        pytest.raises(SystemExit) as ended,
    ):
        main(["compare", *words])
    return int(ended.value.code or 0), out.getvalue() + error.getvalue()


def test_a_host_that_is_slower_is_no_change_of_the_program() -> None:
    trace = read_trace(RECORDED / "h100-decode.ncu-trace")
    step = find_step(trace)
    # each step begins 1 ms later than the one before it ended
    begins = [window.start for window in step.windows]
    shift = [1_000_000 * sum(op.start >= begin for begin in begins) for op in trace.ops]
    later = tuple(
        msgspec.structs.replace(op, start=op.start + by, end=op.end + by)
        for op, by in zip(trace.ops, shift, strict=True)
    )
    calls = tuple(
        msgspec.structs.replace(call, start=call.start + by, end=call.end + by)
        for call in trace.calls
        for by in [1_000_000 * sum(call.start >= begin for begin in begins)]
    )
    found = change(judged(trace), judged(msgspec.structs.replace(trace, ops=later, calls=calls)))
    assert found.host_alone
    assert "only the host's time differs" in " ".join(changes._points(found))
    assert not change(judged(PAGEABLE), judged(PINNED)).host_alone


def test_a_fix_has_its_account_its_finding_and_its_prediction() -> None:
    found = change(judged(PAGEABLE), judged(PINNED))
    assert found.changed
    assert found.parts[0].key == "copy"
    assert sum(part.us for part in found.parts) == pytest.approx(
        found.walls_us[1] - found.walls_us[0]
    )
    went = [old.rule for old, new in found.findings if old and not new]
    came = [new.rule for old, new in found.findings if new and not old]
    assert went == ["host-copy"]
    assert came == ["serial-copies"]
    assert found.prediction is not None
    first, saved, where = found.prediction
    assert first.rule == "host-copy"
    assert saved == pytest.approx(found.walls_us[0] - found.walls_us[1])
    assert first.expected_us is not None
    low, _, high = first.expected_us
    assert where == ("below" if saved < low else "above" if saved > high else "inside")
    assert where != "above", "pinned copies take their time all the same"
    assert change(judged(PINNED), judged(PAGEABLE)).prediction is None


def test_the_same_program_again_is_three_lines() -> None:
    old, again = judged(PAGEABLE), judged(program_traces.loader(15, seed=9))
    found = change(old, again)
    assert not found.changed
    shown = plain_text(changes.answer_of(*changes.compare_programs(old, again)))
    assert len([line for line in shown.splitlines() if line]) == 3
    assert "no difference" in shown


@pytest.mark.parametrize("name", ["h100-gpt", "h100-decode", "h100-loader", "h100-cupy"])
def test_halves_of_a_recording_are_alike(name: str) -> None:
    trace = read_trace(RECORDED / f"{name}.ncu-trace")
    middle = len(find_step(trace).windows) // 2
    assert not change(judged(trace, slice(middle)), judged(trace, slice(middle, None))).changed


def test_a_step_of_several_passes_is_compared_by_the_pass() -> None:
    trace = PAGEABLE
    step = find_step(trace)
    merged = tuple(
        msgspec.structs.replace(group[0], end=group[-1].end, last=group[-1].last)
        for group in zip(*[iter(step.windows)] * 3, strict=False)
    )
    whole = msgspec.structs.replace(step, windows=merged, typical=0)
    three = Programs((TraceResult("x", diagnose_program(whole, account_of(whole), {})),))
    found = change(judged(trace), three)
    assert found.scales == pytest.approx((1.0, 1 / 3))
    assert not found.changed
    assert change(three, judged(trace)).scales == pytest.approx((1 / 3, 1.0))


def test_many_more_steps_may_be_of_an_inner_loop() -> None:
    """14 steps of 40 launches, and 250 of 3 with the same kernels."""

    def made(steps: int, letters: str) -> Programs:
        machine = program_traces.Machine("fit.py")
        for _ in range(steps):
            for letter in letters:
                machine.launch(letter, 30.0)
            machine.item()
        return judged(machine.trace())

    found = change(made(14, "abc" * 3 + "adb" * 9 + "cbe"), made(250, "abc"))
    assert found.doubtful
    assert found.prediction is None
    assert not change(judged(PAGEABLE), judged(PINNED)).doubtful
    assert not change(made(14, "abc"), made(250, "abc")).doubtful


def test_the_noise_of_steps_covers_drift_and_few_steps() -> None:
    noise = random.Random(0)
    steady = tuple(100 + noise.random() for _ in range(30))
    slower = tuple(us * 1.06 for us in steady)
    assert gate.step_difference("step", steady, slower).certain_change > 0
    assert not gate.step_difference(
        "step", steady, tuple(us * 1.015 for us in steady)
    ).certain_change
    drift = tuple(100 + at for at in range(30))
    assert not gate.step_difference("step", drift, tuple(us + 5 for us in drift)).certain_change
    assert not gate.step_difference("step", (100.0,), (104.0,)).certain_change
    assert gate.step_difference("step", (100.0,), (120.0,)).certain_change > 0


def test_gates(pair: tuple[str, str]) -> None:
    old, new = pair
    assert run(old, new, "--fail-on", "step>5%")[0] == 0
    code, shown = run(new, old, "--fail-on", "step>5%")
    assert code == EXIT_GATE
    assert "regression: loader.py: step 3.67 ms → 9.64 ms (+162 %) (step>5%)" in shown
    assert run(new, old, "--fail-on", "step>1ms")[0] == EXIT_GATE
    assert run(old, new, "--fail-on", "step>20ms")[0] == 0
    assert run(old, new, "--kernel", "x")[0] == EXIT_USAGE


def test_formats(pair: tuple[str, str], tmp_path: Path) -> None:
    document = json.loads(run(*pair, "--format", "json")[1])
    assert document["steps"][0]["changed"]
    assert document["steps"][0]["prediction"]["rule"] == "host-copy"
    assert document["steps"][0]["account"][0]["key"] == "copy"
    page = tmp_path / "page.html"
    assert run(*pair, "--format", "html", "-o", str(page))[0] == 0
    assert 'id="waterfall"' in page.read_text()
    assert run(*pair, "--comment")[1].startswith("<!-- ncu-toolkit compare -->")
    assert run(*pair, "--format", "sarif")[0] == EXIT_USAGE


def test_wrong_pairs_are_errors_of_one_line(pair: tuple[str, str], tmp_path: Path) -> None:
    report = str(HERE / "program" / "profiled" / "h100-waves.ncu-rep.xz")
    other = tmp_path / "other.ncu-trace"
    write_trace(program_traces.allocating(15), other)
    for old, new, words in (
        (pair[0], report, "is a trace of a program"),
        (report, pair[0], "is a trace of a program"),
        (pair[0], str(other), "are different programs"),
    ):
        code, shown = run(old, new)
        assert code == EXIT_INPUT
        assert words in shown
        assert len(shown.splitlines()) == 1


def test_folders_of_profile_are_compared_by_their_traces() -> None:
    folder = str(HERE / "program" / "profiled")
    code, shown = run(folder, folder)
    assert code == 0
    assert "numba_fold.py" in shown
    assert "no difference" in shown
    paths = [HERE / "program" / "profiled"]
    old, new = analyze_programs(paths), analyze_programs(paths)
    assert len(changes.compare_programs(old, new)[1]) == 2


def test_json_of_pytorch_is_no_trial(tmp_path: Path) -> None:
    events = [event for at in range(1, 40) for event in kineto_files.launch(at, 100.0 * at)]
    path = kineto_files.write(tmp_path / "run.json", kineto_files.trace(events))
    code, shown = run(str(path), str(path))
    assert code == 0
    assert "no difference" in shown


def test_python(pair: tuple[str, str]) -> None:
    found = ncu_toolkit.compare(*pair)
    assert isinstance(found, ncu_toolkit.TraceComparison)
    assert found.steps[0].prediction is not None
    assert "2.62× faster" in str(found)
    frame = found.to_frame()
    assert frame["part"].iloc[0] == "Exposed copies"
    report = HERE / "program" / "profiled" / "h100-waves.ncu-rep.xz"
    with pytest.raises(InputProblem, match="is a trace of a program"):
        ncu_toolkit.compare(pair[0], report)
