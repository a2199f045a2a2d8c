"""The command line from the outside: help, bad input, missing tools. One line on standard error,
the right exit code, never a traceback."""

from __future__ import annotations

import json
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import fake_gpu
import pytest
import recorded
import report_files
from fake_gpu import FakeCupy

import benchmarks.record  # noqa: F401 (adds the command)
from ncu_toolkit.base.core.errors import (
    EXIT_ENVIRONMENT,
    EXIT_GATE,
    EXIT_INPUT,
    EXIT_KERNEL,
    EXIT_OK,
    EXIT_USAGE,
    EnvironmentProblem,
)
from ncu_toolkit.base.model.run import LadderOptions
from ncu_toolkit.base.model.run import Run as RunValue
from ncu_toolkit.cli import commands, main
from ncu_toolkit.kernel.build import toolchain
from ncu_toolkit.kernel.gpu import collect, cuda
from ncu_toolkit.kernel.runs import store


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that a failed command leaves on standard error; progress lines before it are
        not part of it."""
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        assert self.err.endswith(lines[0] + "\n"), "the error is the last line"
        return lines[0]


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NCU_TOOLKIT_DEBUG", raising=False)

    def call(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err + captured.out
        return Ended(int(ended.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCupy:
    (tmp_path / "code").mkdir()
    return fake_gpu.install(monkeypatch, tmp_path / "code")


@pytest.fixture
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ModuleNotFoundError(f"No module named '{name}'")

    cuda.cupy.cache_clear()
    monkeypatch.setattr(cuda, "importlib", SimpleNamespace(import_module=refuse))


@pytest.mark.parametrize("command", commands())
def test_every_command_has_help(run: Run, command: str) -> None:
    for option in ("--help", "-h"):
        ended = run(command, option)
        assert ended.code == EXIT_OK
        assert f"Usage: ncu-toolkit {command}" in ended.out
        assert len(ended.out.split("\n\n")[1].split()) >= 4, "it says what it does"


def test_top_level_help_and_version(run: Run) -> None:
    ended = run("--help")
    assert ended.code == EXIT_OK
    assert all(name in ended.out for name in commands())
    ended = run("--version")
    assert ended.code == EXIT_OK
    assert ended.out.startswith("ncu-toolkit ")


BAD: list[tuple[str, str, int]] = [
    ("profle", "no command 'profle'; did you mean 'profile'?", EXIT_USAGE),
    (
        "profile",
        "nothing to profile. Name a program: ncu-toolkit profile -- python train.py",
        EXIT_USAGE,
    ),
    (
        "profile --kernel vectorised --size 64",
        "'vectorised'. Did you mean 'vectorized'?",
        EXIT_USAGE,
    ),
    ("bench --family gemm_fp23", "'gemm_fp23'. Did you mean 'gemm_fp32'?", EXIT_USAGE),
    ("profile --kernel naive,,coalesced", "empty entry", EXIT_USAGE),
    ("profile --kernel naive --size 0", "size '0': M = 0 is too small", EXIT_USAGE),
    ("profile --kernel naive --size -64", "size '-64': M = -64 is too small", EXIT_USAGE),
    ("profile --kernel naive --size big", "size 'big' is not a number", EXIT_USAGE),
    ("bench --kernel naive --size 512,x,1024", "size 'x' is not a number", EXIT_USAGE),
    ("bench --kernel naive --size 512,,1024", "empty entry", EXIT_USAGE),
    ("bench --kernel naive --size 64x64", "has 2 extents", EXIT_USAGE),
    ("profile --kernel naive --size 999999999999", "too large", EXIT_USAGE),
    ("profile --kernel naive --dtype float8", "no dtype 'float8'", EXIT_USAGE),
    ("profile --kernel naive --param BLOCK", "--param 'BLOCK' is not NAME=INTEGER", EXIT_USAGE),
    (
        "profile --kernel naive,coalesced --param BLOCK=16",
        "--param needs exactly one --kernel",
        EXIT_USAGE,
    ),
    ("profile --kernel naive --timeout 0", "timeout", EXIT_USAGE),
    ("profile --no-such-option", "No such option", EXIT_USAGE),
    ("build --kernel nothing_like_it", "nothing_like_it", EXIT_USAGE),
    ("build --kernel naive --arch hopper", "hopper", EXIT_USAGE),
    ("build --kernel naive --param BLOCK=0", "naive does not take BLOCK = 0", EXIT_USAGE),
    ("static vectorized --param BM=-4", "vectorized does not take BM = -4", EXIT_USAGE),
    (
        "build --kernel naive --param BLOCK=99999",
        "block x is 99999, CUDA takes 1 to 1024",
        EXIT_USAGE,
    ),
    ("list --family nope", "'nope'", EXIT_USAGE),
    ("record --family gemm_fp32", "--output", EXIT_USAGE),
    ("profile --kernel register_blocked --param BM=--5", "is not NAME=INTEGER", EXIT_USAGE),
    ("profile --kernel register_blocked --param BM=²", "is not NAME=INTEGER", EXIT_USAGE),
    (f"build --kernel naive --param BLOCK={'9' * 5000}", "is not NAME=INTEGER", EXIT_USAGE),
    (f"profile --kernel naive --size {'9' * 5000}", "is too large for gemm_fp32", EXIT_USAGE),
    ("analyze x.ncu-rep -k a{99999999999999}", "is not a regular expression", EXIT_USAGE),
    (f"analyze x.ncu-rep -k {'(' * 5000}{')' * 5000}", "is not a regular expression", EXIT_USAGE),
    ("profile --kernel ( -- true", "--kernel '(' is not a regular", EXIT_USAGE),
    ("compare a b --fail-on change('nope')>1", "there is no function 'change'", EXIT_USAGE),
]


@pytest.mark.parametrize(
    "line",
    ["analyze x -k [[a]", "analyze x --needs [[a]:bytes=5", "profile -k [[a] -- true", "watch -k [[a] -- true"],
)  # fmt: skip
def test_an_odd_expression_is_taken_without_a_warning_of_python(
    run: Run, line: str, recwarn: pytest.WarningsRecorder
) -> None:
    re.purge()
    run(*line.split())
    assert FutureWarning not in {each.category for each in recwarn}


@pytest.mark.parametrize(("line", "says", "code"), BAD, ids=[line[:60] for line, _, _ in BAD])
def test_bad_input(run: Run, cupy: FakeCupy, line: str, says: str, code: int) -> None:
    ended = run(*line.split())
    assert says in ended.error
    assert ended.code == code
    assert not Path("reports").exists(), "nothing was made for a request that cannot be carried out"


@pytest.mark.parametrize(
    "line",
    [
        "profile --kernel naive --size 64",
        "bench --kernel naive --size 64",
        "record --family gemm_fp32 --output rec",
    ],
)
def test_no_cupy(run: Run, no_cupy: None, line: str) -> None:
    ended = run(*line.split())
    assert ended.code == EXIT_ENVIRONMENT
    assert "CuPy cannot be imported" in ended.error
    assert "[gpu]'`" in ended.error
    assert "`ncu-toolkit report` works without one" in ended.error


def test_bad_names_are_said_before_missing_tools(run: Run, no_cupy: None) -> None:
    assert run("profile", "--kernel", "vectorised").code == EXIT_USAGE


@pytest.mark.parametrize(
    "count", [0, RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")]
)
def test_no_gpu(run: Run, monkeypatch: pytest.MonkeyPatch, count: int | Exception) -> None:
    def ask() -> int:
        if isinstance(count, Exception):
            raise count
        return count

    module = SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=ask)))
    cuda.cupy.cache_clear()
    monkeypatch.setattr(cuda, "importlib", SimpleNamespace(import_module=lambda name: module))
    ended = run("profile", "--kernel", "naive", "--size", "64")
    cuda.cupy.cache_clear()
    assert ended.code == EXIT_ENVIRONMENT
    assert "GPU" in ended.error
    assert "ncu-toolkit report" in ended.error


def test_no_ncu(run: Run, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(collect.shutil, "which", lambda name: None)
    monkeypatch.delenv("NCU", raising=False)
    everywhere = collect.Path.glob
    monkeypatch.setattr(
        collect.Path,
        "glob",
        lambda self, pattern: iter(()) if "nsight" in str(self) else everywhere(self, pattern),
    )
    ended = run("profile", "--kernel", "naive", "--size", "64")
    assert ended.code == EXIT_ENVIRONMENT
    assert "ncu (Nsight Compute) is not on PATH" in ended.error
    assert "ncu-toolkit report" in ended.error


def test_an_ncu_variable_that_leads_nowhere(
    run: Run, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCU", "/nowhere/ncu")
    ended = run("profile", "--kernel", "naive", "--size", "64")
    assert ended.code == EXIT_ENVIRONMENT
    assert "$NCU names '/nowhere/ncu'" in ended.error


def test_no_nvcc(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "tool_folders", lambda: iter(()))
    ended = run("build", "--kernel", "naive", "--arch", "sm_90")
    assert ended.code == EXIT_ENVIRONMENT
    assert "nvcc was not found" in ended.error
    assert "[toolchain]'`" in ended.error


def test_a_problem_that_does_not_fit_in_memory(
    run: Run, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ncu_toolkit.kernel.gpu import runner, timing

    monkeypatch.setattr(runner, "build_all", lambda *arguments: None)
    monkeypatch.setattr(timing, "measure_ceilings", lambda: timing.Ceilings())
    cupy.free = 1000
    ended = run("bench", "--kernel", "naive", "--size", "64")
    assert ended.code == EXIT_ENVIRONMENT
    assert "'naive' at 64 needs" in ended.error
    assert "smaller --size" in ended.error


def test_a_wrong_kernel_ends_with_its_own_code(
    run: Run, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ncu_toolkit.kernel.gpu import runner, timing

    monkeypatch.setattr(runner, "build_all", lambda *arguments: None)
    monkeypatch.setattr(timing, "measure_ceilings", lambda: timing.Ceilings())
    cupy.behaviours["naive"] = fake_gpu.forgetful
    ended = run("bench", "--kernel", "naive", "--size", "8")
    assert ended.code == EXIT_KERNEL
    assert "'naive' computed a wrong result at 8" in ended.error


@pytest.fixture
def one_recording(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = recorded.small_recording(tmp_path / "recordings" / "small")
    monkeypatch.setattr(store, "recordings_root", lambda: folder.parent)
    return folder


def test_the_report_needs_neither_cupy_nor_a_gpu(
    run: Run, no_cupy: None, one_recording: Path
) -> None:
    ended = run("report", "--output", "here")
    assert ended.code == EXIT_OK, ended.err
    assert Path("here/index.html").is_file()
    assert "1 profiles" in ended.out
    again = run("report", "--output", "here")
    assert again.code == EXIT_OK, "a second time it overwrites its own pages and nothing else"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty (0 bytes)"),
        (None, "there is no file"),
        (b"NVR\0cut", "is damaged"),
        (b"just text in here", "is a text file"),
    ],
)
def test_runs_that_cannot_be_read_are_named_and_left_out(
    run: Run, no_cupy: None, one_recording: Path, content: bytes | None, says: str
) -> None:
    bad = recorded.small_recording(Path("here") / "20260101-000000-bad")
    if content is None:
        (bad / "profile.ncu-rep").unlink()
    else:
        (bad / "profile.ncu-rep").write_bytes(content)
    ended = run("report", "--output", "here")
    assert ended.code == EXIT_INPUT
    reported = " ".join(ended.out.split())
    assert "left out 20260101-000000-bad" in reported
    assert says in reported or "differs from what was recorded" in reported
    assert "1 run could not be read and is not in the report: 20260101-000000-bad" in ended.error
    assert Path("here/index.html").is_file(), "all others are shown"


def test_a_damaged_recording_is_an_input_problem(
    run: Run, no_cupy: None, one_recording: Path
) -> None:
    data = (one_recording / "profile.ncu-rep").read_bytes()
    (one_recording / "profile.ncu-rep").write_bytes(data[:-1])
    ended = run("report")
    assert ended.code == EXIT_INPUT
    assert "profile.ncu-rep" in ended.error


def test_an_installation_without_recordings_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(store, "recordings_root", lambda: tmp_path / "none")
    ended = run("report")
    assert ended.code == EXIT_ENVIRONMENT
    assert "no recordings" in ended.error


def test_a_folder_of_reports_that_is_a_file(run: Run, tmp_path: Path) -> None:
    Path("reports").write_text("")
    assert run("report").code == EXIT_USAGE


def test_a_recording_that_was_cut_off_can_be_finished(
    run: Run, no_cupy: None, tmp_path: Path
) -> None:
    folder = recorded.small_recording(tmp_path / "small")
    before = store.load_run(folder, live=False)
    for name in ("stock.ncu-rep", "stock-plan.json", "profile-plan.json", "profile.log"):
        (folder / name).write_text("at /home/somebody")
    ended = run("record", "--finish", "--output", str(folder))
    assert ended.code == EXIT_OK, ended.error
    assert {path.name for path in folder.iterdir()} <= {
        "profile.ncu-rep.xz",
        "profiles.msgpack.xz",
        "run.json",
        "timings.json",
        "rules.json",
        "curve.json",
    }
    after = store.load_run(folder, live=False)
    assert [p.readings for p in after.profiles] == [p.readings for p in before.profiles]
    assert [p.context for p in after.profiles] == [p.context for p in before.profiles]
    assert "Nsight Compute's own rules" in [skipped.what for skipped in after.skipped]
    again = run("record", "--finish", "--output", str(folder))
    assert (again.code, "finished already" in again.error) == (EXIT_USAGE, True)
    assert run("record", "--output", "new").code == EXIT_USAGE, "no family"
    assert run("record", "--finish", "--family", "gemm_fp32", "--output", "new").code == EXIT_USAGE


def test_a_recording_is_never_overwritten(run: Run, cupy: FakeCupy) -> None:
    Path("rec").mkdir()
    Path("rec/run.json").write_text("{}")
    ended = run("record", "--family", "gemm_fp32", "--output", "rec")
    assert ended.code == EXIT_USAGE
    assert "is not empty" in ended.error
    assert Path("rec/run.json").read_text() == "{}"


def test_an_interrupt_is_one_line_too(
    run: Run, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ncu_toolkit.kernel.gpu import runner

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "build_all", interrupt)
    ended = run("bench", "--kernel", "naive", "--size", "8")
    assert (ended.code, ended.error) == (130, "error: interrupted; what was finished is kept")


def test_control_characters_do_not_reach_the_terminal(run: Run) -> None:
    ended = run("list", "--family", "\x1b[31mred\x07")
    assert "\x1b" not in ended.err
    assert "\x07" not in ended.err


def child(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(recorded.ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


HEAVY = (
    "pandas",
    "plotly",
    "ncu_report",
    "_ncu_report",
    "cupy",
    "numpy",
    "jinja2",
    "rich",
    "pygments",
)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """Held by what is imported, which does not depend on how busy the machine is; 0.3 s of import
    time is the bound for a calm one."""
    script = (
        "import sys\nfrom ncu_toolkit.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "print('MODULES', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    ended = child("-c", script)
    modules = ended.stdout.partition("MODULES ")[2].split()
    assert modules, ended.stderr
    assert set(modules) & set(HEAVY) == set()


def test_errors_of_a_whole_process_have_no_traceback() -> None:
    ended = child("-m", "ncu_toolkit", "profile", "--kernel", "vectorised")
    assert ended.returncode == EXIT_USAGE
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.count("\n") == 1
    debug = child("-m", "ncu_toolkit", "profile", "--kernel", "vectorised", NCU_TOOLKIT_DEBUG="1")
    assert "Traceback" in debug.stderr
    assert debug.returncode != 0


@pytest.mark.parametrize(
    "line", ["list --format json", "list", "--version", "--help", "profile --help"]
)
def test_a_closed_pipe_is_no_error(line: str) -> None:
    ended = in_shell(f"set -o pipefail; NT {line} | true")
    assert ended.stderr == ""
    assert ended.returncode == EXIT_OK


@pytest.mark.parametrize("output", ["", "-o /dev/stdout"])
def test_a_gate_fails_whether_or_not_its_table_is_read(tmp_path: Path, output: str) -> None:
    report = tmp_path / "r.ncu-rep"
    report.write_bytes(report_files.first_launches(1))
    ended = in_shell(
        f"NT compare {report} {report} --fail-on 'time>=0' {output} | true; exit ${{PIPESTATUS[0]}}"
    )
    assert ended.returncode == EXIT_GATE
    assert ended.stderr.startswith("error: ")


def test_messages_that_cannot_be_written_change_no_exit_code() -> None:
    assert in_shell("NT lst 2> /dev/full").returncode == EXIT_USAGE
    assert in_shell("NT lst 2> >(true)").returncode == EXIT_USAGE
    ended = in_shell("NT list > /dev/full")
    assert ended.returncode == EXIT_ENVIRONMENT, "results are lost, and that is reported"
    assert ended.stderr.startswith("error: No space left on device")
    assert ended.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1:strict", "utf-8:strict"])
def test_any_encoding_of_the_output_will_do(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "na\udcffme.ncu-rep").write_bytes(report_files.first_launches(1))
    for form in ("text", "brief", "markdown"):
        line = f"PYTHONIOENCODING={encoding} NT analyze {tmp_path} --format {form}"
        ended = in_shell(f"{line} | iconv -c -t ascii; exit ${{PIPESTATUS[0]}}")
        assert (ended.returncode, ended.stderr) == (EXIT_OK, "")
        assert "naive" in ended.stdout


def test_sigterm_ends_a_command_in_order() -> None:
    """As CI and schedulers end what takes too long."""
    code = (
        "import os, signal, sys; from ncu_toolkit import cli; import ncu_toolkit.cli.list as l; "
        "l.load_families = lambda: os.kill(os.getpid(), signal.SIGTERM); cli.main(['list'])"
    )
    ended = child("-c", code)
    assert ended.returncode == 143
    assert ended.stderr.strip() == "error: interrupted"


def in_shell(line: str) -> subprocess.CompletedProcess[str]:
    """A shell's line, in which NT stands for the command."""
    path = os.pathsep.join([str(recorded.ROOT), os.environ.get("PYTHONPATH", "")])
    words = line.replace("NT", f"{sys.executable} -m ncu_toolkit")
    return subprocess.run(
        ["bash", "-c", words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.parametrize("line", ["list", "list --format json", "--version", "doctor"])
def test_a_closed_output_is_an_error_in_one_line(line: str) -> None:
    """What was asked for cannot be shown: no success, and no traceback."""
    ended = in_shell(f"NT {line} >&-")
    assert ended.returncode == EXIT_ENVIRONMENT
    assert ended.stderr.startswith("error: standard output is closed")
    assert ended.stderr.count("\n") == 1


def test_closed_streams_that_are_not_needed_do_no_harm(tmp_path: Path) -> None:
    ended = in_shell("NT list 2>&- <&-")
    assert (ended.returncode, ended.stderr) == (EXIT_OK, "")
    assert "gemm_fp32" in ended.stdout
    target = tmp_path / "kept.json"
    ladder = store.recordings_root() / "h200-transpose"
    ended = in_shell(f"NT analyze {ladder} --format json -o {target} >&- 2>&-")
    assert ended.returncode == EXIT_OK
    json.loads(target.read_text())


@pytest.mark.parametrize("group", [[], ["baseline"]])
def test_a_group_without_a_command_shows_its_help(run: Run, group: list[str]) -> None:
    ended = run(*group)
    assert ended.code == EXIT_USAGE
    assert ended.error == "error: no command was given"
    assert ended.err.startswith("Usage: ncu-toolkit"), "the help as it is, not in one line"
    assert len(ended.err.splitlines()) > 5


def test_an_interrupt_while_modules_load_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    ended = child("-m", "ncu_toolkit", "list", PYTHONPATH=f"{tmp_path}:{recorded.ROOT}")
    assert ended.returncode == 130
    assert ended.stderr == "error: interrupted\n"


def test_a_defect_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncu_toolkit.cli.list.load_families", lambda: 1 / 0)
    assert run("list").error.startswith("error: a bug in ncu-toolkit: ZeroDivisionError")


# completion, versions, and verbosity


def completed(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """What bash is offered for the last of `words`, which may be empty."""
    parts = words.split(" ")
    for name, value in (
        ("_NCU_TOOLKIT_COMPLETE", "bash_complete"),
        ("COMP_WORDS", words),
        ("COMP_CWORD", str(len(parts) - 1)),
    ):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main([])
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("ncu-toolkit prof", ["profile"]),
        ("ncu-toolkit profile --resu", ["--resume"]),
        ("ncu-toolkit profile --kernel vectoriz", ["vectorized"]),
        ("ncu-toolkit profile --kernel naive,vectoriz", ["naive,vectorized"]),
        ("ncu-toolkit tune -k gemm_fp32/vectoriz", ["gemm_fp32/vectorized"]),
        ("ncu-toolkit static vectoriz", ["vectorized"]),
        ("ncu-toolkit bench --family gemm_f", ["gemm_fp32"]),
        ("ncu-toolkit profile --resume 2026", ["20260101-000000-half"]),
    ],
)
def test_shells_complete(
    words: str,
    offered: list[str],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "reports" / "20260101-000000-half"
    folder.mkdir(parents=True)
    store.save(
        folder,
        RunValue(folder.name, "t", "2026-01-01T00:00:00Z", "0", asked=LadderOptions()),
    )
    assert completed(words, monkeypatch, capsys) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script(run: Run, shell: str) -> None:
    ended = run("completion", shell)
    assert ended.code == EXIT_OK
    assert "_NCU_TOOLKIT_COMPLETE" in ended.out


def test_versions_of_all_components(run: Run) -> None:
    lines = dict(
        line.strip().split(" ", 1)
        for line in run("--version").out.replace("CUDA compiler", "nvcc").splitlines()
    )
    assert {
        "ncu-toolkit",
        "Python",
        "ncu-report",
        "ncu",
        "nvcc",
        "driver",
        "plotly",
        "pandas",
    } <= lines.keys()
    assert lines["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert any(name.startswith("cupy") for name in lines)


def test_quiet_and_verbose(run: Run, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    from ncu_toolkit.kernel.gpu import runner, timing

    monkeypatch.setattr(
        runner,
        "build_all",
        lambda made, cases, reporter, *_: reporter.note("a note"),
    )
    monkeypatch.setattr(timing, "measure_ceilings", lambda: timing.Ceilings())
    cupy.free = 1000
    words = ("bench", "--kernel", "naive", "--size", "64")
    plain, quiet, after = run(*words), run("--quiet", *words), run(*words, "-q")
    assert "note: a note" in plain.err
    assert "Verify and time" in plain.err
    assert quiet.err == after.err == plain.error + "\n", "the error is still printed"
    assert run(*words).err == plain.err, "one call does not change the next"
    assert run("baseline", "list", "-q").code == EXIT_OK
    refused = run("-q", *words, "-v")
    assert (refused.code, "cannot be combined" in refused.error) == (EXIT_USAGE, True)


def test_the_log_for_a_bug_report(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ncu_toolkit.kernel.ladder import catalogue

    def defect() -> None:
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        raise RuntimeError("broken inside")

    monkeypatch.setattr("ncu_toolkit.cli.list.load_families", defect)
    assert catalogue.load_families()
    ended = run("list", "--log-file", "bug.log")
    assert ended.code == 70
    assert "a bug in ncu-toolkit: RuntimeError: broken inside" in ended.err
    assert "Log: bug.log" in ended.err
    text = Path("bug.log").read_text()
    for expected in (
        "This log may contain",
        "ncu-toolkit ",
        "ncu-report",
        f"run: {sys.executable} -c pass",
        "Traceback",
        "broken inside",
        "exit code 70",
    ):
        assert expected in text, expected
    run("--log-file", "bug.log", "list", "--family", "nope")
    assert Path("bug.log").read_text().startswith(text), "added to, never written over"
    ended = run("--log-file", "no/folder/bug.log", "list")
    assert (ended.code, "cannot be written" in ended.error) == (EXIT_ENVIRONMENT, True)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has a device that is full")
@pytest.mark.parametrize("place", [0, 1])
def test_a_log_that_cannot_be_written_ends_the_command_in_one_line(run: Run, place: int) -> None:
    words = [["--log-file", "/dev/full"], ["list"]]
    ended = run(*words[place], *words[1 - place])
    assert ended.code == EXIT_ENVIRONMENT
    assert "'/dev/full' cannot be written: No space left on device" in ended.error
    assert "Traceback" not in ended.error
    assert run("list").code == 0


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but text where NO_COLOR is set, even on a terminal."""
    import pty

    def shown(**environment: str) -> bytes:
        parent, terminal = pty.openpty()
        path = os.pathsep.join([str(recorded.ROOT), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [sys.executable, "-m", "ncu_toolkit", "doctor"],
            stdout=terminal, stderr=terminal, env={**os.environ, "PYTHONPATH": path, "TERM": "xterm-256color", **environment},
        )  # fmt: skip
        os.close(terminal)
        read = b""
        try:
            while chunk := os.read(parent, 4096):
                read += chunk
        except OSError:
            pass  # the terminal is closed when the process ends
        process.wait()
        os.close(parent)
        return read

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert b"\x1b[" in shown()
    assert b"\x1b[" not in shown(NO_COLOR="1")


def test_out_of_memory_and_out_of_disk_are_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: BaseException) -> Ended:
        def raising() -> None:
            raise error

        monkeypatch.setattr("ncu_toolkit.cli.list.load_families", raising)
        return run("list")

    ended = fail(MemoryError())
    assert (ended.code, "ran out of memory. End other programs" in ended.error) == (
        EXIT_ENVIRONMENT,
        True,
    )
    ended = fail(OSError(28, "No space left on device", "reports/x"))
    assert (ended.code, "No space left on device: reports/x. Free space" in ended.error) == (
        EXIT_ENVIRONMENT,
        True,
    )


@pytest.mark.parametrize("error", [EnvironmentProblem("the driver is gone"), KeyboardInterrupt()])
@pytest.mark.parametrize("command", ["bench", "profile"])
def test_a_run_that_cannot_begin_leaves_no_folder(
    run: Run, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, command: str, error: BaseException
) -> None:
    from ncu_toolkit.kernel.gpu import runner

    def start(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(runner, "start", start)
    monkeypatch.setattr(collect, "find_ncu", lambda: SimpleNamespace(version="2025.3.1"))
    ended = run(command, "--kernel", "naive", "--size", "64")
    assert (str(error) or "interrupted") in ended.error
    assert list(Path("reports").iterdir()) == []


def test_what_probe_lacks_costs_the_profile_nothing(
    run: Run, one_recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ncu_toolkit.cli import profile
    from ncu_toolkit.kernel.gpu.runner import Session
    from ncu_toolkit.program.recording import program_run

    def refuse(*_: object) -> None:
        raise EnvironmentProblem("cuda-bindings is not installed")

    made = Session(store.load_run(one_recording, live=True), one_recording, notes=["none after 20"])
    monkeypatch.setattr("ncu_toolkit.guests.probe.command.confirmations", refuse)
    monkeypatch.setattr(cuda, "gpu_uuid", lambda: "")
    monkeypatch.setattr(program_run, "profile", lambda *_, **__: made)
    monkeypatch.setattr(profile.RunHistory, "keep", lambda *_: None)
    ended = run("profile", "--probe", "--", "true")
    assert ended.code == EXIT_ENVIRONMENT
    assert "cuda-bindings is not installed" in ended.error
    assert "note: none after 20" in ended.out
    assert "Report: " in ended.out


def test_one_file_without_permission_hides_no_other(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To click a file that may not be read is a wrong request, whatever else was asked for."""
    (tmp_path / "r.ncu-rep").write_bytes(report_files.first_launches(1))
    monkeypatch.setattr("click.types.os.access", lambda *_: False)
    ended = run("analyze", "r.ncu-rep", "--format", "brief")
    assert ended.code == EXIT_OK, ended.err
    assert ended.out.startswith("1. naive")


INPUT = "is an input of this command. Name another file"
REPORT = "is an ncu report. Name another file"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("analyze r.ncu-rep --format json -o r.ncu-rep", INPUT),
        ("analyze r.ncu-rep --format json -qo link", INPUT),
        ("analyze r.ncu-rep --standalone -o other.ncu-rep", REPORT),
        ("analyze r.ncu-rep --log-file r.ncu-rep", INPUT),
        ("--log-file k.cu static k.cu", INPUT),
        ("list --log-file packed", REPORT),
        ("compare r.ncu-rep r.ncu-rep --format json -o r.ncu-rep", INPUT),
        ("compare r.ncu-rep r.ncu-rep --format html --output packed", REPORT),
        ("redact r.ncu-rep r.ncu-rep", "'r.ncu-rep' exists"),
    ],
)
def test_inputs_and_reports_are_not_written_over(run: Run, line: str, says: str) -> None:
    report = report_files.first_launches(1)
    held = {"r.ncu-rep": report, "other.ncu-rep": report, "packed": lzma.compress(report)}
    held["k.cu"] = b"__global__ void k() {}"
    for name, data in held.items():
        Path(name).write_bytes(data)
    Path("link").symlink_to("r.ncu-rep")
    ended = run(*line.split())
    assert (ended.code, says in ended.error) == (EXIT_USAGE, True), ended.err
    assert {name: Path(name).read_bytes() for name in held} == held


def test_results_of_before_are_written_over(run: Run, tmp_path: Path) -> None:
    Path("r.ncu-rep").write_bytes(report_files.first_launches(1))
    Path("out.json").write_text("old")
    for words in (("-qo", "out.json"), ("-o", "out.json"), ("--output=out.json",)):
        ended = run("analyze", "r.ncu-rep", "--format", "json", *words, "--log-file", "log")
        assert ended.code == EXIT_OK, ended.err
    assert Path("out.json").read_text().startswith("{")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("analyze r.ncu-rep -o no/x.txt", "there is no folder 'no'. Make it first, or name"),
        ("analyze r.ncu-rep -o .", "Is a directory. Name a file"),
        ("report -o /proc/x", "'/proc/x' cannot be made: No such file or directory. Name another"),
        ("analyze r.ncu-rep --standalone -o /proc/x/y.html", "'/proc/x' cannot be made: No such"),
    ],
)
def test_an_output_that_cannot_be_written_says_what_to_do(run: Run, line: str, says: str) -> None:
    Path("r.ncu-rep").write_bytes(report_files.first_launches(1))
    ended = run(*line.split())
    assert (ended.code, says in ended.error) == (EXIT_ENVIRONMENT, True), ended.err


def test_folders_that_cannot_be_read_are_named(run: Run, one_recording: Path) -> None:
    Path("here").mkdir()
    Path("here/round").symlink_to("round")
    ended = run("report", "--output", "here")
    assert ended.code == EXIT_INPUT
    assert "round: 'here/round' cannot be read: Too many levels" in ended.error


def test_names_in_runs_and_baselines_do_not_act_in_a_terminal(
    run: Run, one_recording: Path, tmp_path: Path
) -> None:
    evil = "\x1b]0;x\x07\u202egnp"
    manifest = store.load_manifest(one_recording)
    store.write_json(one_recording / "run.json", "run", replace(manifest, title=evil))
    ended = run("report", "--output", "here")
    assert "\\x1b]0;x\\x07\\u202egnp" in ended.out
    assert not set("\x1b\x07\u202e") & set(ended.out + ended.err)
    folder = tmp_path / ".ncu-toolkit" / "baselines" / "b"
    folder.mkdir(parents=True)
    store.save(folder, RunValue("b", "b", "2026-01-01T00:00:00Z", report_files=(evil,)))
    ended = run("baseline", "list")
    assert ended.code == EXIT_OK
    assert not set("\x1b\x07\u202e") & set(ended.out)
    assert "\\x1b" in ended.out


def test_a_broken_baseline_hides_no_other(run: Run, tmp_path: Path) -> None:
    for name in ("good", "deep", "fifo"):
        folder = tmp_path / ".ncu-toolkit" / "baselines" / name
        folder.mkdir(parents=True)
        store.save(folder, RunValue(name, name, "2026-01-01"))
    root = tmp_path / ".ncu-toolkit" / "baselines"
    (root / "deep" / "run.json").write_text("[" * 100_000)
    (root / "fifo" / "run.json").unlink()
    os.mkfifo(root / "fifo" / "run.json")
    ended = run("baseline", "list")
    assert ended.code == EXIT_INPUT
    assert ended.out.startswith("good ")
    assert "2 baselines cannot be read" in ended.error
    assert "nested too deeply" in ended.error


def test_without_a_home_only_what_needs_one_fails(
    run: Run, one_recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's user without HOME and without its own entry."""

    def nobody(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    for name in ("NCU_TOOLKIT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert run("report", "--output", "here").code == EXIT_OK
    ended = run("tune", "--kernel", "autotuned", "--size", "1024")
    assert ended.code == EXIT_ENVIRONMENT
