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
    ("how", "shown"),
    [
        ("return", ""),
        ("kill", "ended with exit code 137 when it was recorded"),
        ("unfinished", "had not ended"),
    ],
)
def test_how_it_ends(profiled: Profiled, tmp_path: Path, how: str, shown: str) -> None:
    done = profiled("9", how)
    assert done.exit_code == 0, done.output
    assert "app · step of" in done.output
    assert "27 launches" not in done.output  # a step, not the run
    assert shown in " ".join(done.output.split())
    assert {"program.ncu-trace", "profile.ncu-rep", "step.html", "index.html"} <= kept(tmp_path)


@pytest.mark.parametrize(
    ("options", "after"), [(("--seconds", "1"), "1 s"), (("--steps", "4"), "4 steady steps")]
)
def test_a_program_that_does_not_end(
    profiled: Profiled, tmp_path: Path, options: tuple[str, str], after: str
) -> None:
    done = profiled("3", "wait", options=options)
    assert done.exit_code == 0, done.output
    assert "exit code" not in done.output
    assert f"The recorded run was ended after {after}, as requested" in done.output
    assert {"program.ncu-trace", "step.html"} <= kept(tmp_path)


@pytest.mark.parametrize(
    ("program", "injected", "shown"),
    [
        ((sys.executable, "-c", "print(1)"), "", "did not use CUDA, or was killed before it did"),
        ((sys.executable, "-c", "raise SystemExit(3)"), "", "it ended with exit code 3"),
        (("0",), "", "launched no kernel"),
        (("9",), "/opt/other.so", "another profiler is injected"),
    ],
)
def test_nothing_to_profile(
    profiled: Profiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    program: tuple[str, ...], injected: str, shown: str,
) -> None:  # fmt: skip
    if injected:
        monkeypatch.setenv("CUDA_INJECTION64_PATH", injected)
    done = profiled(*program)
    assert isinstance(done.exception, UsageProblem)
    assert shown in str(done.exception)
    assert not kept(tmp_path)


@pytest.mark.parametrize("shown", ["another profiler", "no CUPTI library was found"])
def test_without_a_recording_the_first_launches_are_profiled(
    profiled: Profiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    if shown == "another profiler":
        monkeypatch.setenv("FAKE_STATUS", "39")
    else:
        monkeypatch.setattr(
            recorder, "cupti_libraries", lambda command: (str(tmp_path / "none.so"),)
        )
    done = profiled("9")
    assert done.exit_code == 0, done.output
    assert f"note: no step was recorded: {shown}" in done.output
    assert "profile.ncu-rep" in kept(tmp_path)


@pytest.mark.parametrize(
    ("says", "problem", "shown"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM", EnvironmentProblem, "may not read the GPU's performance"),
        ("==WARNING== No kernels were profiled.", UsageProblem, "launched none of the"),
        ("==ERROR== The application returned an error code (139).", KernelProblem, "code 139"),
    ],
)
def test_no_counters(
    profiled: Profiled, tmp_path: Path, says: str, problem: type[Exception], shown: str
) -> None:
    """The answer is given without causes by counters; the error says why."""
    (tmp_path / "says").write_text(f"{says}\n")
    done = profiled("9")
    assert isinstance(done.exception, problem)
    assert shown in str(done.exception)
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
