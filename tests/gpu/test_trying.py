"""Rounds of runs with switches: what is tried, in which order, and that nothing is left over."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_programs
import msgspec
import pytest
from program_found import small

from ncu_toolkit.base.core.errors import EXIT_INTERRUPTED, UsageProblem
from ncu_toolkit.kernel.gpu import cuda
from ncu_toolkit.program.analysis.trial import TryRun, load_trial
from ncu_toolkit.program.model import Edit
from ncu_toolkit.program.recording import recorder, trying
from ncu_toolkit.program.recording.trying import (
    ProgramRunner,
    TryJob,
    TryVariant,
    build_words,
    clocks_differ,
    keep_lines,
    suggested,
    try_program,
    try_variants,
    variants,
    winners,
    with_ceiling,
)
from ncu_toolkit.program.switches import switches
from ncu_toolkit.program.traces.files import read_trace
from ncu_toolkit.program.traces.replay import Replay
from ncu_toolkit.program.traces.step import find_step

TESTS = Path(__file__).parents[1]
TORCH = frozenset({"torch"})


class Program:
    """A program by its step's time with each switch; it notes what was asked of it."""

    def __init__(self, **us: float | str | type[BaseException]) -> None:
        self.us = {name.replace("_", "-"): value for name, value in us.items()}
        self.asked: list[str] = []

    def __call__(self, variant: TryVariant, following: Sequence[TryVariant] = ()) -> TryRun:
        self.asked.append(variant.label)
        time = self.us.get(variant.label, 1000.0)
        applied = frozenset(switch.id for switch, _ in variant.on)
        run = TryRun(None, 20, printed="loss 2.5", applied=applied, modules=TORCH)
        if isinstance(time, type):
            raise time
        if time == "idle":
            return replace(run, us=1000.0, applied=frozenset())
        if isinstance(time, str):
            return replace(run, problem=time, code=1)
        return replace(run, us=time + len(self.asked) % 3)


def names(found: Sequence[TryVariant]) -> list[str]:
    return [each.label for each in found]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tf23", "Did you mean 'tf32'"),
        ("tf32:1", "takes no value"),
        ("triton-warps:many", "no number after the colon"),
        ("fast-math", "needs the command that builds the program"),
    ],
)
def test_names_that_are_none(name: str, message: str) -> None:
    with pytest.raises(UsageProblem) as found:
        variants([name])
    assert message in str(found.value)


def test_rounds_alternate_in_turning_order() -> None:
    program = Program()
    try_variants(variants(["tf32", "compile"]), program, 2)
    assert program.asked == ["", "tf32", "compile", "", "compile", "tf32"]


def test_what_came_of_each() -> None:
    program = Program(
        tf32=400.0, compile="exit code 1: no", fused_optimizer="idle", cuda_graphs=1500.0
    )
    chosen = variants(["tf32", "compile", "fused-optimizer", "cuda-graphs", "channels-last"])
    tried, plain, done = try_variants(chosen, program, 5)
    assert done
    assert len(plain) == 5
    assert [each.outcome for each in tried] == ["faster", "broke", "not applied", "slower", "same"]
    assert tried[1].description == "The program fails with it: exit code 1: no."
    assert (
        tried[2].description
        == "It changes nothing: the program has no optimizer of PyTorch that has a fused form."
    )
    assert tried[0].keep == ('torch.set_float32_matmul_precision("high")',)
    assert program.asked.count("compile") == 1  # it is not run again
    assert program.asked.count("fused-optimizer") == 1


def test_ctrl_c_keeps_what_was_measured() -> None:
    class Interrupted(Program):
        def __call__(self, variant: TryVariant, following: Sequence[TryVariant] = ()) -> TryRun:
            if len(self.asked) == 7:
                raise KeyboardInterrupt
            return super().__call__(variant)

    chosen = variants(["tf32", "compile"])
    tried, plain, done = try_variants(chosen, Interrupted(tf32=400.0), 5)
    assert not done
    assert len(plain) == 3
    assert [(each.outcome, len(each.after_us)) for each in tried] == [("faster", 2), ("same", 2)]
    nothing, _, _ = try_variants(chosen, Program(**{"": KeyboardInterrupt}), 5)
    assert nothing == []


def test_a_program_that_fails_by_itself() -> None:
    with pytest.raises(UsageProblem, match="fails without a setting: exit code 3"):
        try_variants(variants(["tf32"]), Program(**{"": "exit code 3"}), 5)


def test_winners_have_one_of_each_group() -> None:
    chosen = variants(["tf32", "bf16-autocast", "compile", "cuda-graphs", "batch-size"])
    program = Program(tf32=600.0, bf16_autocast=500.0, compile=700.0, cuda_graphs=1200.0)
    tried, _, _ = try_variants(chosen, program, 5)
    both = winners(tried, chosen)
    assert both is not None
    assert both.label == "bf16-autocast + compile"
    assert winners(tried[:1], chosen) is None


def test_a_variable_acts_unseen_but_a_hook_does_not() -> None:
    tf32 = TryVariant(((switches()["tf32"], ""),))

    def run(*modules: str) -> list[str]:
        def one(variant: TryVariant, following: Sequence[TryVariant] = ()) -> TryRun:
            return TryRun(1000.0, 20, modules=frozenset(modules))

        return [each.outcome for each in try_variants([tf32], one, 2)[0]]

    assert run() == ["same"]  # a native program
    assert run("cupy") == ["same"]
    assert run("torch") == ["not applied"]


def test_what_findings_suggest() -> None:
    found = small()
    assert names(suggested(found, {"torch"}, built=False))[:2] == ["tf32", "bf16-autocast"]
    assert "batch-size:2" in names(suggested(found, {"torch"}, built=False))  # launch-bound
    assert names(suggested(found, {"jax"}, built=False)) == ["tf32"]
    assert names(suggested(found, (), built=True))[:2] == ["tf32", "fast-math"]


def test_what_it_saves_at_most_by_the_findings() -> None:
    plain = small()
    edit = Edit(moved=frozenset(range(5)))
    first = msgspec.structs.replace(plain.findings[0], edit=edit)
    found = msgspec.structs.replace(plain, findings=(first, *plain.findings[1:]))
    tf32 = variants(["tf32"])[0]
    tried, _, _ = try_variants([tf32], Program(), 2)
    saved = Replay(found.step, found.account).saved_us(edit)
    assert with_ceiling(tried[0], tf32, found).ceiling_us == pytest.approx(saved)
    assert saved > 0
    assert with_ceiling(tried[0], tf32, found).causes == ("fp32-matmul",)
    assert with_ceiling(tried[0], variants(["channels-last"])[0], found).ceiling_us is None


def test_lines_to_keep_are_of_the_program_s_framework() -> None:
    tf32 = variants(["tf32"])[0]
    assert keep_lines(tf32, {"cupy"}) == ("export CUPY_TF32=1",)
    assert keep_lines(variants(["triton-warps:8"])[0], {"triton"}) == (
        "num_warps=8 where the kernel is launched",
    )
    assert "cublasSetMathMode" in keep_lines(tf32, ())[0]


def test_clocks_are_watched() -> None:
    runs = [TryRun(1.0, sm_mhz=1980.0), TryRun(1.0, sm_mhz=1975.0)]
    assert clocks_differ(runs) == ""
    assert "1500 to 1980 MHz" in clocks_differ([*runs, TryRun(1.0, sm_mhz=1500.0)])
    assert "power cap" in clocks_differ([*runs, TryRun(1.0, throttle="power cap")])


def test_a_build_with_other_words(tmp_path: Path) -> None:
    build = ["nvcc", "-O2", "-G", "app.cu", "-o", "app", "-maxrregcount=40"]

    def words(name: str) -> list[str]:
        return build_words(build, variants([name], built=True)[0], tmp_path / "new")[0]

    ends = f" -o {tmp_path / 'new'}"
    assert (
        " ".join(words("fast-math")) == f"nvcc -O2 -G app.cu -maxrregcount=40 -use_fast_math{ends}"
    )
    assert " ".join(words("optimize")) == f"nvcc app.cu -maxrregcount=40 -O3{ends}"
    assert "-maxrregcount=40" not in words("max-registers:64")
    assert build_words(build, TryVariant(), tmp_path)[1] == "app"
    assert build_words(["nvcc", "a.cu"], TryVariant(), tmp_path)[1] == "a.out"
    assert build_words(["nvcc", "a.cu", "--output-file=b"], TryVariant(), tmp_path)[1] == "b"


# ---- real processes, with a CUPTI that is none

needs_cc = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_programs.build(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def runner(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., ProgramRunner]:
    monkeypatch.setenv("FAKE_CUPTI", str(made / "libcupti.so.13"))
    monkeypatch.setattr(
        recorder, "cupti_libraries", lambda command: (str(made / "libcupti.so.13"),)
    )
    monkeypatch.setattr(trying, "_GRACE", 0.3)
    monkeypatch.setattr(trying.cuda, "available", lambda: False)
    (tmp_path / "runs").mkdir()

    def make(*command: str, ahead: int = 0, **more: float) -> ProgramRunner:
        return ProgramRunner(TryJob(command, **more), tmp_path / "runs", ahead)  # type: ignore[arg-type]

    return make


def left_over(word: str) -> bool:
    """Whether a process runs whose command line has the word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return any(word.encode() in each for each in found)


@needs_cc
def test_a_program_from_start_to_end(
    runner: Callable[..., ProgramRunner], made: Path, tmp_path: Path
) -> None:
    app = runner(str(made / "app"), "30")
    trial, trace = try_program(app.job, ["tf32"], tmp_path / "reports", runs=2, runner=app)
    (tried,) = trial.tried
    assert tried.outcome in ("same", "faster", "slower", "other step")  # steps of a microsecond
    assert len(tried.before_us) == len(tried.after_us) == 2
    assert trial.gpu == "NVIDIA H200"
    assert load_trial(trace) == trial
    assert not list((tmp_path / "runs").iterdir())


@needs_cc
def test_a_switch_reaches_the_program(runner: Callable[..., ProgramRunner], tmp_path: Path) -> None:
    script = tmp_path / "print.py"
    script.write_text("import os; print(os.environ.get('CUPY_TF32')); raise SystemExit(3)")
    found = runner(sys.executable, str(script))(variants(["tf32"])[0])
    assert found.printed == "1\n"
    assert found.problem == "exit code 3"


@needs_cc
def test_a_program_that_hangs_is_ended_with_its_children(
    runner: Callable[..., ProgramRunner], tmp_path: Path
) -> None:
    word = f"sleep-{os.getpid()}-hang"
    script = tmp_path / f"{word}.py"
    script.write_text(
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if len(sys.argv) < 2: subprocess.Popen([sys.executable, __file__, 'child'])\n"
        "time.sleep(60)"
    )
    found = runner(sys.executable, str(script), timeout=1.0)(TryVariant())
    assert found.problem == "it did not end within 1 s"
    assert not left_over(word)


@needs_cc
def test_what_a_program_leaves_running_is_ended(
    runner: Callable[..., ProgramRunner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole tree: children that outlive it, in its session and in one of their own."""
    monkeypatch.setattr(cuda, "has_driver", lambda: True)
    word = f"tree-{os.getpid()}"
    script = tmp_path / f"{word}.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "depth = int(sys.argv[1]) if len(sys.argv) > 1 else 0\n"
        "if depth < 3:\n"
        "    for own in (False, True):\n"
        "        words = [sys.executable, '-S', __file__, str(depth + 1)]\n"
        "        subprocess.Popen(words, start_new_session=own, stdout=subprocess.DEVNULL)\n"
        "time.sleep(0.5 if depth == 0 else 60)\n"
    )
    with runner(sys.executable, str(script)) as one:
        found = one(variants(["tf32"])[0])
    assert found.problem  # it does nothing on a GPU
    for _ in range(50):
        if not left_over(word):
            break
        time.sleep(0.02)  # the kernel takes a moment
    assert not left_over(word)
    assert not list((tmp_path / "runs").iterdir())


@needs_cc
def test_a_second_ctrl_c_leaves_nothing(
    runner: Callable[..., ProgramRunner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = f"twice-{os.getpid()}"
    script = tmp_path / f"{word}.py"
    script.write_text("import time; time.sleep(60)")
    clear, again = trying._Started.clear, iter([KeyboardInterrupt])

    def interrupted(*words: Any) -> None:
        for error in again:
            raise error
        clear(*words)

    monkeypatch.setattr(trying._Started, "clear", interrupted)
    monkeypatch.setattr(
        ProgramRunner, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt), runner(sys.executable, str(script)) as one:
        one(TryVariant())
    assert not left_over(word)
    assert not list((tmp_path / "runs").iterdir())


FAKE_TORCH = """
precision = "highest"
def get_float32_matmul_precision(): return precision
def set_float32_matmul_precision(value):
    global precision
    precision = value
class backends:
    class cudnn: benchmark, allow_tf32 = False, True
class nn:
    class Module:
        def __call__(self): pass
"""


@needs_cc
def test_switches_that_are_of_no_use(
    runner: Callable[..., ProgramRunner], made: Path, tmp_path: Path
) -> None:
    """One changes results, one breaks the program, one changes nothing; each is reported as such, and only
    the first runs in all rounds."""
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    log = tmp_path / "log"
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys, torch\n"
        f"open({str(log)!r}, 'a').write('x')\n"
        "if torch.backends.cudnn.benchmark: sys.exit('no such algorithm')\n"
        "print('loss', 2.5 if torch.precision == 'highest' else 9.5, flush=True)\n"
        f"os.execv({str(made / 'app')!r}, ['app', '30'])\n"
    )
    one = runner(sys.executable, str(script), ahead=2)
    names = ["tf32", "cudnn-benchmark", "compile"]
    trial, trace = try_program(one.job, names, tmp_path / "reports", runs=2, runner=one)
    came = {each.switches[0]: each for each in trial.tried}
    assert came["tf32"].results == "differ"
    assert "It may change this: " in came["tf32"].compared
    assert not came["tf32"].good
    assert came["cudnn-benchmark"].outcome == "broke"
    assert "no such algorithm" in came["cudnn-benchmark"].description
    assert came["compile"].outcome == "not applied"
    assert trial.best is None
    assert load_trial(trace) == trial
    assert log.read_text() == "x" * (1 + 2 * 2 + 2)  # traced, two rounds of two, and once each
    assert not list((tmp_path / "runs").iterdir())
    assert sorted(each.name for each in trace.parent.iterdir()) == [
        "program.ncu-trace", "program.ncu-trace.tried.json",
    ]  # fmt: skip


@needs_cc
def test_ctrl_c_on_the_command_line(made: Path, tmp_path: Path) -> None:
    """What was measured until then is shown and kept, and nothing is left over."""
    word = f"cli-{os.getpid()}"
    library, reports, rounds = made / "libcupti.so.13", tmp_path / "reports", tmp_path / "rounds"
    script = tmp_path / f"{word}.py"
    script.write_text(
        f"import os, time\nopen({str(rounds)!r}, 'a').write('x')\n"
        f"if len(open({str(rounds)!r}).read()) > 4: time.sleep(60)\n"
        f"os.execv({str(made / 'app')!r}, ['app', '30'])\n"
    )
    main = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # not if ours is ignored
        "from ncu_toolkit.program.recording import recorder, trying; from ncu_toolkit.__main__ import run\n"
        f"recorder.cupti_libraries = lambda command: ({str(library)!r},)\n"
        "trying.cuda.available = lambda: False; run()"
    )
    words = ["try", "tf32", "--reports", str(reports), "--", sys.executable, str(script)]
    environment = {
        **os.environ, "FAKE_CUPTI": str(library), "TMPDIR": str(tmp_path / "scratch"), "PYTHONPATH": str(TESTS.parent),
        "NCU_TOOLKIT_HISTORY": str(tmp_path / "history"),
    }  # fmt: skip
    (tmp_path / "scratch").mkdir()
    command = [sys.executable, "-c", main, *words]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:  # fmt: skip
        for _ in range(600):
            if rounds.is_file() and len(rounds.read_text()) > 4:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert "Traceback" not in err
    assert "It was interrupted: what was measured until then is shown." in out
    assert process.returncode == EXIT_INTERRUPTED
    (kept,) = reports.rglob("*.tried.json")
    assert '"tf32"' in kept.read_text()
    assert not left_over(word)
    assert not list((tmp_path / "scratch").iterdir())


@needs_cc
def test_the_next_run_waits_for_its_turn(
    runner: Callable[..., ProgramRunner], tmp_path: Path
) -> None:
    """It imports its framework meanwhile; what never gets its turn is ended."""
    (tmp_path / "torch.py").write_text("")
    word = f"wait-{os.getpid()}"
    log = tmp_path / "log"
    script = tmp_path / f"{word}.py"
    script.write_text(
        f"import time, torch\nopen({str(log)!r}, 'a').write('a')\n"
        f"time.sleep(0.3)\nopen({str(log)!r}, 'a').write('z')\nraise SystemExit(3)"
    )
    tf32 = variants(["tf32"])[0]
    with runner(sys.executable, str(script), ahead=1) as one:
        assert one(TryVariant()).modules == TORCH
        one(TryVariant(), [tf32, TryVariant()])
        assert [each.variant for each in one.waiting] == [tf32]
        one(tf32)
        assert log.read_text() == "azazaz"  # never two at once
        one.imports = True
        one.waiting.append(one._start(tf32, recorder.RecordOptions(), wait=True))
        time.sleep(0.5)
        assert log.read_text() == "azazaz"
        assert left_over(word)
    assert not left_over(word)
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize(
    ("name", "light"),
    [("jax_ragged_batches", False), ("jax_transformer_scan", True), ("cuda_spin_chain", True)],
)
def test_host_calls_are_recorded_where_the_step_needs_them(name: str, light: bool) -> None:
    """Without its calls a JAX program that compiles in each step has another step; XLA's ranges give
    those of others."""
    trace = TESTS.parent / "benchmarks/programs/recordings" / f"{name}.before.ncu-trace"
    assert trying._light(find_step(read_trace(trace))) is light
