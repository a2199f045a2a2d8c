"""`profile -- PROGRAM` on programs that make it hard: recorded with a CUPTI that is none, profiled by
an ncu that writes a shipped report. Each ends with one line, and nothing that was recorded is lost."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import fake_programs
import pytest
from click.testing import CliRunner, Result

from ncu_toolkit.base.core.errors import EnvironmentProblem, KernelProblem, UsageProblem
from ncu_toolkit.cli import cli
from ncu_toolkit.kernel.gpu import cuda
from ncu_toolkit.program.recording import recorder

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
Profiled = Callable[..., Result]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_programs.build(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def profiled(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profiled:
    library = str(made / "libcupti.so.13")
    monkeypatch.setenv("FAKE_CUPTI", library)
    monkeypatch.setenv("NCU", str(fake_programs.write_ncu(tmp_path)))
    monkeypatch.setattr(recorder, "cupti_libraries", lambda command: (library,))
    monkeypatch.setattr(cuda, "gpu_uuid", lambda: "")
    monkeypatch.setattr(cuda, "driver_version", lambda: "580")

    def run(*program: str, options: tuple[str, ...] = ()) -> Result:
        words = program if "python" in program[0] else (str(made / "app"), *program)
        place = str(tmp_path / "reports")
        return CliRunner().invoke(cli, ["profile", "--output", place, *options, "--", *words])

    return run


def kept(tmp_path: Path) -> set[str]:
    """Names of the files in the run's folder; none where there is no run."""
    return {each.name for each in (tmp_path / "reports").glob("2*/*")}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("return", ""),
        ("fork", ""),
        ("fail", "ended with exit code 7 when it was recorded"),
        ("kill", "ended with exit code 137 when it was recorded"),
        ("unfinished", "had not ended"),
    ],
)
def test_how_it_ends(profiled: Profiled, tmp_path: Path, how: str, said: str) -> None:
    done = profiled("9", how)
    assert done.exit_code == 0, done.output
    assert "app · step of" in done.output
    assert "27 launches" not in done.output  # a step, not the run
    assert said in " ".join(done.output.split())
    assert {"program.ncu-trace", "profile.ncu-rep", "step.html", "index.html"} <= kept(tmp_path)


def test_minutes_before_its_first_step(profiled: Profiled, tmp_path: Path) -> None:
    """It runs until it is ended."""
    done = profiled("3", "wait", options=("--seconds", "1"))
    assert done.exit_code == 0, done.output
    assert "exit code" not in done.output
    assert "The recorded run was ended after 1 s, as was asked" in done.output
    assert {"program.ncu-trace", "step.html"} <= kept(tmp_path)


def test_enough_steps(profiled: Profiled, tmp_path: Path) -> None:
    done = profiled("3", "wait", options=("--steps", "4"))
    assert done.exit_code == 0, done.output
    assert "The recorded run was ended after 4 steady steps, as was asked" in done.output
    assert {"program.ncu-trace", "step.html"} <= kept(tmp_path)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print(1)", "did not use CUDA, or was killed before it did"),
        ("raise SystemExit(3)", "it ended with exit code 3"),
    ],
)
def test_no_kernels(profiled: Profiled, tmp_path: Path, code: str, said: str) -> None:
    done = profiled(sys.executable, "-c", code)
    assert isinstance(done.exception, UsageProblem)
    assert said in done.exception.message
    assert "printed" in done.exception.remedy or "3" not in code
    assert not kept(tmp_path)


def test_nothing_but_host_calls(profiled: Profiled, tmp_path: Path) -> None:
    done = profiled("0")
    assert isinstance(done.exception, UsageProblem)
    assert "launched no kernel" in str(done.exception)
    assert not kept(tmp_path)


def test_another_profiler_is_injected(
    profiled: Profiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/other.so")
    done = profiled("9")
    assert isinstance(done.exception, UsageProblem)
    assert "another profiler is injected" in str(done.exception)
    assert not kept(tmp_path)


def test_another_profiler_has_cupti(
    profiled: Profiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the first launches are profiled."""
    monkeypatch.setenv("FAKE_STATUS", "39")
    done = profiled("9")
    assert done.exit_code == 0, done.output
    assert "note: no step was recorded: another profiler" in done.output
    assert "profile.ncu-rep" in kept(tmp_path)


def test_no_cupti(profiled: Profiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "cupti_libraries", lambda command: (str(tmp_path / "none.so"),))
    done = profiled("9")
    assert done.exit_code == 0, done.output
    assert "note: no step was recorded: no CUPTI library was found" in done.output
    assert "profile.ncu-rep" in kept(tmp_path)


@pytest.mark.parametrize(
    ("says", "problem", "said"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM", EnvironmentProblem, "may not read the GPU's performance"),
        ("==WARNING== No kernels were profiled.", UsageProblem, "launched none of the"),
        ("==ERROR== The application returned an error code (139).", KernelProblem, "code 139"),
    ],
)
def test_no_counters(
    profiled: Profiled, tmp_path: Path, says: str, problem: type[Exception], said: str
) -> None:
    """The answer is given without causes by counters; the error says why."""
    (tmp_path / "says").write_text(f"{says}\n")
    done = profiled("9")
    assert isinstance(done.exception, problem)
    assert said in str(done.exception)
    assert "app · step of" in done.output
    assert {"program.ncu-trace", "step.html"} <= kept(tmp_path)


def test_a_time_out(profiled: Profiled, tmp_path: Path) -> None:
    """The remedy names the option of a step's launches."""
    ncu = tmp_path / "ncu"
    waits = "import subprocess; sys.exit(subprocess.call(['sleep', '60'])); shutil.copyfile"
    ncu.write_text(ncu.read_text().replace("shutil.copyfile", waits))
    done = profiled("9", options=("--timeout", "1"))
    assert isinstance(done.exception, EnvironmentProblem)
    assert "did not finish within 1 s" in done.exception.message
    assert "(--launches)" in done.exception.remedy
    assert "app · step of" in done.output
