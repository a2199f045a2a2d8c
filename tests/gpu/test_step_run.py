"""Which launches of a program's step ncu is asked for, and `profile -- PROGRAM` around it."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fake_programs
import msgspec
import program_traces
import pytest
from click.testing import CliRunner
from rich.console import Console

import ncu_toolkit
from ncu_toolkit.cli import _common, _log, cli, profile
from ncu_toolkit.kernel.gpu import collect, cuda
from ncu_toolkit.kernel.report import slim
from ncu_toolkit.program.model import Step, Trace
from ncu_toolkit.program.recording import program_run, recorder, step_run
from ncu_toolkit.program.recording.step_run import Limits, choose, seconds_for, selection
from ncu_toolkit.program.traces.step import find_step


@pytest.fixture(scope="module")
def step() -> Step:
    return find_step(program_traces.gpt())


def ncu_profiles(
    trace: Trace, words: Sequence[str], symbols: dict[str, tuple[str, ...]]
) -> list[int]:
    """What ncu takes with the options of a selection: places in `Trace.ops`, in order. Each name,
    grid and block is counted for itself."""
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert given["--filter-mode"] == "per-launch-config"
    assert given["--launch-count"] == "1"
    pattern = given.get("--kernel-name", "regex:").removeprefix("regex:")
    count: Counter[Any] = Counter()
    taken = []
    for at in sorted(range(len(trace.ops)), key=lambda at: trace.ops[at].start):
        op = trace.ops[at]
        if op.kind != "kernel":
            continue
        shape = trace.shapes[op.shape]
        if not any(re.search(pattern, name) for name in symbols.get(shape.kernel, (shape.kernel,))):
            continue
        key = (op.process, shape.kernel, shape.grid, shape.block)
        count[key] += 1
        if count[key] == int(given["--launch-skip"]) + 1:
            taken.append(at)
    return taken


def test_each_chosen_kernel_is_profiled_once(step: Step) -> None:
    chosen = choose(step, Limits())
    assert 3 <= len(chosen) <= 24
    symbols = {shape.kernel: (f"_Z{at}",) for at, shape in enumerate(step.trace.shapes)}
    words, expected = selection(step, chosen, symbols)
    taken = ncu_profiles(step.trace, words, symbols)[:expected]
    shapes = [step.trace.ops[at].shape for at in taken]
    assert set(chosen) <= set(shapes)
    assert len(set(shapes)) == len(shapes)
    assert expected <= 2 * len(chosen)


def test_the_program_ends_after_the_step_with_the_last_launch(step: Step) -> None:
    words, expected = selection(step, choose(step, Limits()), {})
    last = ncu_profiles(step.trace, words, {})[expected - 1]
    assert step.trace.ops[last].start < step.windows[1].end


def test_processes_are_counted_apart(step: Step) -> None:
    trace = step.trace
    both = [*trace.ops, *(msgspec.structs.replace(op, process=1, call=-1) for op in trace.ops)]
    two = msgspec.structs.replace(trace, ops=tuple(sorted(both, key=lambda op: op.start)))
    other = msgspec.structs.replace(step, trace=two, process=0, device=0)
    chosen = choose(step, Limits())
    one, _ = selection(step, chosen, {})
    assert selection(other, chosen, {})[0] == one


def test_names_too_long_for_a_command_line_are_left_out(step: Step) -> None:
    chosen = choose(step, Limits())
    symbols = {
        shape.kernel: ("_Z" + "y" * 60_000 + str(at),) for at, shape in enumerate(step.trace.shapes)
    }
    words, expected = selection(step, chosen, symbols)
    assert max(map(len, words)) < 1000
    assert "--kernel-name" not in words
    assert len(ncu_profiles(step.trace, words, {})) >= expected


# ---- profile -- PROGRAM


@dataclass
class Played:
    """A program that is recorded without CUPTI, and an ncu that writes a shipped report."""

    folder: Path
    trace: Trace
    recorded: list[Any]
    code: int = 0

    @property
    def words(self) -> list[str]:
        return (self.folder / "words").read_text().splitlines()


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Step) -> Played:
    found = Played(tmp_path, step.trace, [])
    monkeypatch.setenv("NCU", str(fake_programs.write_ncu(tmp_path)))

    def record(command: Sequence[str], folder: Path, asked: recorder.RecordOptions) -> int:
        found.recorded.append((list(command), asked))
        return found.code

    monkeypatch.setattr(recorder, "record", record)
    monkeypatch.setattr(recorder, "read_recording", lambda folder, name="": found.trace)
    monkeypatch.setattr(recorder, "symbols", lambda folder: {})
    monkeypatch.setattr(cuda, "gpu_uuid", lambda: "")
    monkeypatch.setattr(cuda, "driver_version", lambda: "580")
    return found


def profiled(played: Played, *words: str) -> Any:
    place = str(played.folder / "reports")
    script = played.folder / "train.py"
    script.write_text("print(1)\n")
    command = ["profile", "--output", place, *words, "--", sys.executable, str(script)]
    return CliRunner().invoke(cli, command)


def test_a_program_is_recorded_and_then_profiled(played: Played) -> None:
    done = profiled(played)
    assert done.exit_code == 0, done.output
    assert len(played.recorded) == 1
    words = played.words
    assert words[words.index("--kernel-name") + 1].startswith("regex:^(")
    assert words[words.index("--filter-mode") + 1] == "per-launch-config"
    assert "--call-stack-type" not in words, "that costs milliseconds at each launch"
    (run,) = (played.folder / "reports").glob("*train*")
    assert {"program.ncu-trace", "profile.ncu-rep", "step.html", "index.html"} <= {
        each.name for each in run.iterdir()
    }
    assert "ms" in done.output
    assert "ncu-toolkit analyze" in done.output
    assert "--kernel-name" not in done.output
    message = " ".join(done.output.split())
    assert "had no launch under ncu, or none as recorded" in message
    assert re.search(r"Recording took 0 s, and profiling \d+ s for 2 launches\.", message)
    reports = played.folder / "reports"
    assert f'href="./{run.name}/step.html"' in (reports / "index.html").read_text()
    assert 'href="./step.html"' in (run / "index.html").read_text()
    trial = re.search(r"ncu-toolkit try [\w-]+", done.output)
    assert trial
    switch = trial[0].split()[-1]
    assert f"<span>try</span> <span>{switch}</span>" in (run / "step.html").read_text()


def test_launches_follow_from_the_programs_own_time(step: Step) -> None:
    for alone in (0.0, 3.0, 12.0, 60.0):
        recorded = alone / 0.85 + 1
        whole = recorded + 1.1 * alone + 3 + seconds_for(recorded) + 10
        assert 1.5 < seconds_for(recorded) < whole <= 3 * alone + 30
    chosen = [choose(step, Limits(24, seconds)) for seconds in (0.1, 5, 15, 1000)]
    launches = [selection(step, each, {})[1] for each in chosen]
    assert launches == sorted(launches)
    assert len(chosen[0]) == len(set(chosen[0])) >= 1
    assert launches[2] <= 10 < launches[3]
    assert set(chosen[1]) < set(chosen[3]) == set(choose(step, Limits(24)))


def test_long_kernels_cost_more() -> None:
    machine = program_traces.Machine("long.py")
    for _ in range(6):
        machine.launch("long", 2e6, 64, line="long.py:3")
        machine.launch("short", 1.9e6, 64, line="long.py:4")
        machine.sync()
    step = find_step(machine.trace())
    assert len(choose(step, Limits(24))) == 2
    assert len(choose(step, Limits(24, 40))) == 1  # 16 passes of 2 s


def test_progress_is_shown_on_a_terminal_only(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "launch 1 of" not in profiled(played).output
    shown: list[str] = []

    @contextlib.contextmanager
    def line() -> Iterator[Callable[[str], None]]:
        yield shown.append

    monkeypatch.setattr(profile, "one_line", line)
    ncu = played.folder / "ncu"
    slow = ncu.read_text().replace(
        'naive": 0%....',
        "naive\": 0%', end='', flush=True); import time; time.sleep(0.3); print('....",
    )
    ncu.write_text(slow)
    assert profiled(played, "--launches", "3").exit_code == 0
    assert any(re.fullmatch(r"launch \d of \d: naive", each) for each in shown)


def test_one_line_is_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, quiet in ((True, False), (True, True), (False, False)):
        screen = Console(file=io.StringIO(), force_terminal=terminal, width=80)
        monkeypatch.setattr(_common, "console", lambda stderr=False, made=screen: made)
        monkeypatch.setattr(_log.Verbosity, "quiet", quiet)
        with _common.one_line() as show:
            show("launch 1 of 3: a\x1bb")
        shown = screen.file.getvalue()  # type: ignore[attr-defined]
        assert ("launch 1 of 3: a\\x1bb" in shown) == (terminal and not quiet)


def test_the_next_command_names_the_report_where_it_lies(played: Played) -> None:
    done = profiled(played, "--launch-count", "2")
    assert done.exit_code == 0, done.output
    (run,) = (played.folder / "reports").glob("*train*")
    assert "compare profile.ncu-rep" not in done.output
    assert f"compare {run}/profile.ncu-rep after.ncu-rep" in done.output


def test_choosing_launches_looks_for_no_step(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(profile, "_profile_program", lambda job, _: asked.append(job.request))
    for words in (
        ["--launch-count", "3"],
        ["--launch-skip", "2"],
        ["--nvtx", "step/"],
        ["--no-ranges"],
        ["--kernel", "gemm"],
    ):
        assert profiled(played, *words).exit_code == 0
    assert len(asked) == 5
    assert played.recorded == []


def test_a_script_that_marks_ranges_is_profiled_as_before(played: Played) -> None:
    script = played.folder / "marked.py"
    script.write_text("torch.cuda.profiler.start()\n")
    CliRunner().invoke(
        cli, ["profile", "-o", str(played.folder / "r"), "--", sys.executable, str(script)]
    )
    assert "--profile-from-start" in played.words
    assert played.recorded == []


def test_limits_of_the_recording(played: Played) -> None:
    (played.folder / "says").write_text("==ERROR== ERR_NVGPUCTRPERM\n")
    profiled(played, "--seconds", "30", "--no-lines", "--launches", "2")
    ((_, asked),) = played.recorded
    assert (asked.seconds, asked.lines, asked.enough) == (30, False, None)
    assert played.words[played.words.index("--kernel-name") + 1].count("|") <= 1
    profiled(played, "--steps", "5")
    assert played.recorded[-1][1].enough(Path()) is True
    profiled(played, "--steps", "500")
    assert played.recorded[-1][1].enough(Path()) is False


# ---- from Python


def test_profile_program(played: Played) -> None:
    found = ncu_toolkit.profile_program(
        [sys.executable, "train.py"], output=played.folder / "reports", launches=3, seconds=5
    )
    assert found.step.launches > 100
    assert found.findings
    assert Path(found.path).name == "program.ncu-trace"
    assert (Path(found.path).parent / "step.html").is_file()
    ((command, asked),) = played.recorded
    assert (command[1], asked.seconds, asked.lines) == ("train.py", 5, True)
    assert "where the step goes" in str(found)


def test_the_program_is_ended_when_all_is_profiled(played: Played) -> None:
    """It would run on for a minute; ncu then says that it failed, which is no news."""
    waiting(played, 40)
    began = time.monotonic()
    done = profiled(played)
    assert done.exit_code == 0, done.output
    assert time.monotonic() - began < 55


def test_launches_that_do_not_come_cost_no_more_than_is_promised(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: k-means, whose grids follow from its data, cost 120 s for 5."""
    monkeypatch.setattr(step_run, "seconds_for", lambda _: 30.0)
    monkeypatch.setattr(step_run, "under_ncu", lambda _: 0.5)
    waiting(played, 1)
    began = time.monotonic()
    done = profiled(played)
    assert time.monotonic() - began < 55
    assert done.exit_code == 0, done.output
    message = " ".join(done.output.split())
    assert re.search(r"was ended after 0 s, a limit that --launches \d+ lifts", message)
    done = profiled(played, "--launches", "2", "--timeout", "3")
    assert "was ended under ncu" not in done.output


def test_an_ncu_that_crashes_is_run_again(played: Played) -> None:
    """Seen with JAX: its first start crashes, and the next does not."""
    code = (played.folder / "ncu").read_text()
    (played.folder / "ncu").write_text(
        f"#!{sys.executable}\nimport pathlib, sys\n"
        "flag = pathlib.Path(__file__).parent / 'crashed'\n"
        "if sys.argv[1:] != ['--version'] and not flag.exists(): flag.touch(); sys.exit(139)\n"
        + code.partition("\n")[2]
    )
    done = profiled(played)
    assert done.exit_code == 0, done.output
    assert (played.folder / "crashed").exists()
    assert "2 launches" in " ".join(done.output.split())


def waiting(played: Played, launches: int) -> None:
    """An ncu under which a program launches some kernels, and then none for a minute."""
    (played.folder / "ncu").write_text(
        f"#!{sys.executable}\nimport pathlib, shutil, subprocess, sys\n"
        "words, here = sys.argv[1:], pathlib.Path(__file__).parent\n"
        "if words == ['--version']: print('Version 2025.3.1.0 (build 1)'); sys.exit()\n"
        "program = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"for _ in range({launches}): print('==PROF== Profiling \"naive\": 0%....100% - 14 passes', flush=True)\n"
        "code = program.wait()\n"
        f"if {launches}: shutil.copyfile(here / 'base.ncu-rep', words[words.index('--export') + 1])\n"
        "print(f'==ERROR== The application returned an error code ({code}).')\n"
        "sys.exit(1)\n"
    )


@pytest.mark.parametrize("launches", [0, 2])
def test_a_program_that_launches_no_more_of_them_is_ended(
    played: Played, monkeypatch: pytest.MonkeyPatch, launches: int
) -> None:
    """An hour of training in which a tuner chose other kernels."""
    monkeypatch.setattr(step_run, "_patience", lambda *_: 0.5)
    waiting(played, launches)
    began = time.monotonic()
    done = profiled(played)
    assert time.monotonic() - began < 55
    assert "where the step goes" in done.output
    assert done.exit_code == (0 if launches else 1), done.output
    if not launches:
        assert "launched none of the" in str(done.exception)


def test_patience_follows_from_the_recording(step: Step) -> None:
    ops = step.trace.ops
    span = (max(op.end for op in ops) - min(op.start for op in ops)) * 1e-9
    until = (step.windows[1].end - min(op.start for op in ops)) * 1e-9
    assert step_run._patience(step, span + 10) == pytest.approx(3 * (10 + until) + 30)
    assert step_run._patience(step, 0) == pytest.approx(3 * until + 30)


def test_a_slimmed_report_is_the_one_that_the_run_knows(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: the run kept the checksum of the report before, and its pages refused it."""
    monkeypatch.setattr(slim, "_LARGE", 0)
    done = profiled(played)
    assert done.exit_code == 0, done.output
    (run,) = (played.folder / "reports").glob("*train*")
    before = (played.folder / "base.ncu-rep").stat().st_size
    assert (run / "profile.ncu-rep").stat().st_size < before
    assert "kept without the code of kernels" in done.output
    assert (run / "index.html").is_file()


def test_a_kernel_of_many_grids_alone_is_not_profiled_for_each(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = program_traces.Machine("fold.py")
    for _ in range(6):
        for grid in (4096, 2048, 1024, 512, 256, 128, 64, 32):
            machine.launch("fold", 20.0, grid, line="fold.py:3")
        machine.sync()
    step = find_step(machine.trace())
    chosen = choose(step, Limits(3))
    assert chosen
    assert selection(step, chosen, {})[1] > 3
    played.trace = step.trace
    asked: list[list[bool]] = []
    inner = program_run.profile

    def profile_most(*words: Any, enough: collect.Enough, **named: Any) -> Any:
        asked.append([enough(finished, "") for finished in range(5)])
        return inner(*words, enough=enough, **named)

    monkeypatch.setattr(program_run, "profile", profile_most)
    profiled(played, "--launches", "3")
    assert asked == [[False, False, False, True, True]]
