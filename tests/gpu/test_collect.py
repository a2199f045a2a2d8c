"""Running ncu: its command line, what its sayings mean, and runs of a stand-in that succeeds,
hangs, crashes or writes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import EnvironmentProblem
from ncu_toolkit.kernel.gpu import collect, failures
from ncu_toolkit.kernel.gpu.collect import Ncu, NcuJob, Request, argv, classify, find_ncu, run
from ncu_toolkit.kernel.gpu.failures import KnownFailure
from ncu_toolkit.kernel.report import framing

Fake = Callable[[str], Path]
NCU = Ncu("ncu", "2025.3.1.0")
PLAIN = Request(
    Path("out/profile"),
    ("python3", "-m", "ncu_toolkit.kernel.gpu.target", "plan.json"),
    (Path("sections"),),
    ranges_only=True,
)


def test_the_command_line_of_a_ladder() -> None:
    assert " ".join(argv(NCU, PLAIN)) == (
        "ncu --set ladder --section-folder sections --clock-control none --cache-control all --nvtx --target-processes all --import-source yes "
        "--profile-from-start off --export out/profile.ncu-rep python3 -m ncu_toolkit.kernel.gpu.target plan.json"
    )


def test_mpirun_is_started_by_its_name() -> None:
    """By an absolute path it would take the its own programs folder, another Python among them."""
    words = argv(NCU, replace(PLAIN, command=("mpirun", "-np", "2", "./app")))
    assert words[-5:] == ["env", "mpirun", "-np", "2", "./app"]
    assert "env" not in argv(NCU, replace(PLAIN, command=("/opt/mpi/bin/mpirun", "./app")))


def test_the_command_line_with_everything() -> None:
    request = Request(
        Path("r"),
        ("./app", "--set", "x"),
        (Path("a"), Path("b")),
        "full",
        ranges_only=False,
        kernel_filter="^gemm",
        launch_skip=2,
        launch_count=3,
        nvtx_include=("step/",),
        cache_control="none",
        import_source=False,
        extra=("--kill", "yes"),
    )
    assert " ".join(argv(NCU, request)) == (
        "ncu --set full --section-folder a --section-folder b --clock-control none --cache-control none --nvtx --target-processes all "
        "--kernel-name-base demangled --kernel-name regex:^gemm --nvtx-include step/ "
        "--launch-skip 2 --launch-count 3 --kill yes --export r.ncu-rep ./app --set x"
    )


@pytest.mark.parametrize("known", failures.table().values(), ids=lambda known: known.id)
def test_each_known_failure_is_named_by_the_line_it_was_seen_in(known: KnownFailure) -> None:
    found = failures.read(f"==PROF== Connected to process 1 (/usr/bin/python3)\n{known.seen}\n")
    assert found.found[0].id == known.id
    assert not found.unknown
    assert "{" not in found.found[0].what
    assert known.remedy
    assert known.source.startswith("https://")
    cause, problem = classify(known.seen, 0 if known.kind == "environment" else 1)
    if known.rank != "warning" and not known.program:
        assert problem is not None
        assert problem.remedy
        assert problem.exit_code == {"environment": 3, "usage": 2, "kernel": 5}[known.kind], cause


#: Logs whose last lines say less than those before: the lines, ncu's exit code, the cause, a part of the message.
AFTER = "==PROF== Trying to shutdown target application\n==ERROR== The application returned an error code (9).\n"
LOGS = [
    (f'==ERROR== Failed to prepare kernel for profiling\n==ERROR== Unknown Error on device 0.\n==ERROR== Failed to profile "k<int>" in process 7\n'
     f"{AFTER}"
     "==ERROR== An error occurred while trying to profile.\n==WARNING== No kernels were profiled.", 9, "prepare", "(in 'k<int>')"),
    (f"==ERROR== An error was reported by the driver\n==ERROR== Something new happened.\n{AFTER}", 9, "unknown", "9: Something new happened"),
    (AFTER, 9, "unknown", "names no cause"),
    ("==ERROR== The application returned an error code (9).", 9, "crash", "ended with exit code 9"),
    ("==WARNING== No kernels were profiled.\n==ERROR== The application returned an error code (139).", 1, "crash", "SIGSEGV"),
    ("==ERROR== ERR_NVGPUCTRPERM\n==WARNING== No kernels were profiled.", 1, "permission", "ERR_NVGPUCTRPERM"),
    ("torch.OutOfMemoryError: CUDA out of memory.\n==ERROR== The application returned an error code (1).", 1, "memory", "ran out of memory"),
    ("Address already in use\n==ERROR== The application returned an error code (1).", 1, "crash", "ended with exit code 1"),
    ("==WARNING== Failed to load Nsight Compute CUDA modules.\n"
     "==ERROR== The application returned an error code (3221225477).", 9, "crash", "3221225477"),
    ("", -9, "signal", "signal 9 (SIGKILL)"), ("", 139, "crashed", "signal 11 (SIGSEGV)"), ("", -40, "signal", "signal 40"),
    ("", 3, "unknown", "exit code 3"),
    ("==PROF== fine", 0, "", ""), ("out of memory, trying less\n==PROF== fine", 0, "", ""),
    ("==WARNING== Backing up device memory in system memory.", 0, "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "cause", "says"), LOGS)
def test_what_ncu_says_comes_before_its_exit_code(
    text: str, code: int, cause: str, says: str
) -> None:
    found, problem = classify(text, code)
    assert found == cause
    assert says in (str(problem) if problem else "")


def test_a_collective_is_named_where_it_hangs(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "_COLLECTIVE_SECONDS", 0.3)
    hangs = fake('printf "==PROF== Profiling \\"ncclDevKernel_AllReduce\\" - 0: 0%%"; sleep 60')
    began = time.monotonic()
    outcome = start(hangs, tmp_path)
    assert time.monotonic() - began < 15
    assert outcome.cause == "timeout"
    assert "ncclDevKernel_AllReduce" in str(outcome.problem)
    assert "--exclude-kernel" in str(outcome.problem)


def test_remedies_in_wsl_are_those_of_windows() -> None:
    log = "==PROF== Connected to process 1 (/mnt/c/app)\n==ERROR== ERR_NVGPUCTRPERM - The user"
    assert "NVIDIA Control Panel" in failures.read(log).found[0].remedy
    assert (
        "NVIDIA Control Panel" not in failures.read(log.replace("/mnt/c", "/home")).found[0].remedy
    )


def test_ncu_has_a_temporary_folder_that_nobody_else_may_read(fake: Fake, tmp_path: Path) -> None:
    outcome = start(
        fake('stat -c "%a %n" "$TMPDIR"; touch "$TMPDIR/nsight-compute-lock"'), tmp_path
    )
    mode, folder = outcome.log.read_text().split()
    assert mode == "700"
    assert not Path(folder).exists()


def test_an_ncu_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot be started"):
        run(NcuJob(Ncu(str(tmp_path / "nothing"), ""), Request(tmp_path / "x"), 1))


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A stand-in for ncu: a shell script that knows its export path without `.ncu-rep` as $out."""
    monkeypatch.setattr(collect, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(collect, "_POLL_SECONDS", 0.02)

    def make(body: str) -> Path:
        path = tmp_path / "ncu"
        parse = 'while [ $# -gt 0 ]; do [ "$1" = --export ] && out=${2%.ncu-rep}; shift; done'
        path.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "Version 2025.3.1.0 (build 1)"; exit 0; }}\n{parse}\n{body}\n'
        )
        path.chmod(0o755)
        return path

    return make


def start(path: Path, folder: Path, timeout: float = 20, **others: object) -> collect.NcuOutcome:
    request = Request(folder / "profile", ("true",), (Path("sections"),))
    environment: Any = others.pop("environment", {})
    job = NcuJob(Ncu(str(path), "2025.3.1.0"), request, timeout, environment)
    return run(job, **others)  # type: ignore[arg-type]


def ended(pid_file: Path) -> bool:
    pid = int(pid_file.read_text())
    for _ in range(100):
        try:
            os.kill(pid, 0)
            if (Path("/proc") / str(pid) / "stat").read_text().split()[2] == "Z":
                return True  # killed, and not collected by init yet
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def test_a_run_that_succeeds(fake: Fake, tmp_path: Path) -> None:
    ticks: list[int] = []
    body = 'echo "==PROF== Profiling \\"naive\\": 0%....100% - 16 passes"; echo "$WHO"; sleep 0.1; echo x > "$out.ncu-rep"'
    outcome = start(fake(body), tmp_path, tick=lambda: ticks.append(1), environment={"WHO": "told"})
    assert outcome.problem is None
    assert outcome.report == tmp_path / "profile.ncu-rep"
    assert (outcome.returncode, outcome.passes, outcome.interrupted) == (0, (16,), False)
    assert "told" in outcome.log.read_text()
    assert len(ticks) > 1


def test_a_packed_report_is_found_and_unpacked(fake: Fake, tmp_path: Path) -> None:
    """ncu writes one since 2026.3 where the export has no suffix."""
    report = framing.MAGIC + bytes(100)
    (tmp_path / "base").write_bytes(files.packed(".ncu-repz", report))
    outcome = start(fake(f'cp {tmp_path}/base "$out.ncu-repz"'), tmp_path)
    assert outcome.report == tmp_path / "profile.ncu-rep"
    assert outcome.report.read_bytes() == report
    assert not (tmp_path / "profile.ncu-repz").exists()


def test_a_packed_report_that_was_cut_is_kept(fake: Fake, tmp_path: Path) -> None:
    whole = files.packed(".ncu-repz", framing.MAGIC + os.urandom(100))
    (tmp_path / "base").write_bytes(whole[:-9])
    outcome = start(fake(f'cp {tmp_path}/base "$out.ncu-repz"'), tmp_path)
    assert outcome.report == tmp_path / "profile.ncu-repz"
    assert outcome.report.read_bytes() == whole[:-9]


def test_a_run_that_hangs_is_asked_to_stop_and_its_report_kept(fake: Fake, tmp_path: Path) -> None:
    body = f'while [ ! -e "{tmp_path}/stop" ]; do sleep 0.02; done; echo x > "$out.ncu-rep"'
    outcome = start(fake(body), tmp_path, timeout=0.2, request_stop=(tmp_path / "stop").touch)
    assert outcome.report is not None
    assert outcome.problem is not None
    assert "did not finish within" in outcome.problem.message


def test_a_run_that_does_not_stop_is_killed_with_its_children(fake: Fake, tmp_path: Path) -> None:
    asked: list[float] = []
    body = f'sleep 60 & echo $! > "{tmp_path}/child"; trap "" TERM INT; wait; sleep 60'
    began = time.monotonic()
    outcome = start(
        fake(body), tmp_path, timeout=0.3, request_stop=lambda: asked.append(time.monotonic())
    )
    assert len(asked) == 1, "it is asked once, then killed"
    assert time.monotonic() - began < 10
    assert outcome.returncode == -9
    assert outcome.report is None
    assert ended(tmp_path / "child")


def test_a_crash_of_ncu_leaves_no_program_behind(fake: Fake, tmp_path: Path) -> None:
    outcome = start(fake(f'sleep 60 & echo $! > "{tmp_path}/child"; kill -SEGV $$'), tmp_path)
    assert outcome.problem is not None
    assert "signal 11" in outcome.problem.message
    assert ended(tmp_path / "child")


def test_an_interrupt_lets_it_finish_and_a_second_one_does_not(fake: Fake, tmp_path: Path) -> None:
    def interrupting(times: int) -> Callable[[], None]:
        left = [times]

        def tick() -> None:
            if left[0] and (tmp_path / "started").exists():
                left[0] -= 1
                raise KeyboardInterrupt

        return tick

    body = f'touch "{tmp_path}/started"; while [ ! -e "{tmp_path}/stop" ]; do sleep 0.02; done; echo x > "$out.ncu-rep"'
    outcome = start(
        fake(body), tmp_path, tick=interrupting(1), request_stop=(tmp_path / "stop").touch
    )
    assert (outcome.interrupted, outcome.problem) == (True, None)
    assert outcome.report is not None
    for name in ("started", "stop", "profile.ncu-rep"):
        (tmp_path / name).unlink()
    outcome = start(
        fake(f'touch "{tmp_path}/started"; sleep 60'),
        tmp_path,
        tick=interrupting(2),
        request_stop=lambda: None,
    )
    assert outcome.interrupted
    assert (outcome.returncode, outcome.report) == (-9, None)


def test_ncu_is_found_where_it_is_said_to_be(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fake("true")
    monkeypatch.setenv("NCU", str(path))
    assert find_ncu() == Ncu(str(path), "2025.3.1.0")
    monkeypatch.delenv("NCU")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find_ncu().path == str(path)
    (tmp_path / "cuda" / "bin").mkdir(parents=True)
    path.rename(tmp_path / "cuda" / "bin" / "ncu")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    assert find_ncu().path == str(tmp_path / "cuda" / "bin" / "ncu")


def test_an_ncu_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCU", str(tmp_path / "nothing"))
    with pytest.raises(EnvironmentProblem, match="is not an executable"):
        find_ncu()
    other = tmp_path / "nothing"
    other.write_text("#!/bin/sh\necho hello\n")
    other.chmod(0o755)
    with pytest.raises(EnvironmentProblem, match="does not answer like Nsight Compute"):
        find_ncu()


def test_stock_sections_are_found_beside_the_binary(tmp_path: Path) -> None:
    (tmp_path / "sections").mkdir()
    (tmp_path / "sections" / "SpeedOfLight.section").touch()
    (tmp_path / "target" / "bin").mkdir(parents=True)
    (tmp_path / "target" / "bin" / "ncu").touch()
    assert (
        Ncu(str(tmp_path / "target" / "bin" / "ncu"), "2099.9.9.0").stock_sections
        == tmp_path / "sections"
    )
