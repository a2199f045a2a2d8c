"""Runs that stopped part-way: killed with -9, interrupted, on another machine, with another kernel;
what is kept, redone and refused."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ladder_runs
import pytest
from ladder_runs import Ncu, Quiet, chosen, marker, session_in

from ncu_toolkit.base.core.errors import (
    EXIT_ENVIRONMENT,
    EXIT_USAGE,
    EnvironmentProblem,
    UsageProblem,
)
from ncu_toolkit.base.model.run import LadderOptions, Run
from ncu_toolkit.kernel.gpu import runner
from ncu_toolkit.kernel.gpu.selection import Cases, settled
from ncu_toolkit.kernel.report import integrity
from ncu_toolkit.kernel.runs import store

pytestmark = pytest.mark.slow

RUNGS = ("naive", "coalesced", "b_transposed", "flat_index", "smem_tiled")
ARGUMENTS = ("profile", "--kernel", ",".join(RUNGS), "--size", "1024", "--alone")


@pytest.fixture
def ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ncu:
    (tmp_path / "code").mkdir()
    monkeypatch.chdir(tmp_path)
    return Ncu(monkeypatch, tmp_path / "ncu")


def start(*arguments: str, part: str = "0.15") -> subprocess.Popen[str]:
    """`ncu-toolkit` in its own process, on a GPU that is none. The stand-in for ncu takes 0.1
    s a case, so that a part has two."""
    words = [sys.executable, ladder_runs.__file__, "code", part, *arguments]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "it did not come to this"
        time.sleep(0.05)


def only_run() -> Path:
    (folder,) = (path for path in Path("reports").iterdir() if (path / store.MANIFEST).is_file())
    return folder


def states() -> dict[str, str]:
    return {case.rung: case.state for case in store.load_manifest(only_run()).cases}


def kill_at(ncu: Ncu, rung: str) -> dict[str, bytes]:
    """Begin the ladder and kill it with -9 while `rung` is profiled, which ends ncu too; returns what
    lies in the run's folder."""
    ncu.at(rung, "hang")
    process = start(*ARGUMENTS)
    wait_for(lambda: ncu.hangs or process.poll() is not None)
    assert ncu.hangs, process.communicate()
    process.kill()
    process.communicate()
    wait_for(lambda: not Path(f"/proc/{ncu.hangs}").exists())
    return {path.name: path.read_bytes() for path in only_run().iterdir()}


def test_kill_9_loses_nothing_that_was_finished(ncu: Ncu) -> None:
    before = kill_at(ncu, "b_transposed")
    assert list(states().values()) == ["profiled", "profiled", "not run", "not run", "not run"]
    assert ncu.ran == ["naive", "coalesced", "b_transposed"]
    ncu.behave()
    code, out, err = ended(start("profile", "--resume"))
    assert code == 0, err
    assert (
        "2 of 5 cases are profiled and 5 timed, and kept; 3 to collect: b_transposed at 1024, flat_index at 1024, smem_tiled at 1024"
        in err
    )
    assert ncu.ran == [
        "naive",
        "coalesced",
        "b_transposed",
        "b_transposed",
        "flat_index",
        "smem_tiled",
    ], "what was finished is not done again"
    folder = only_run()
    for name in ("profile.ncu-rep", store.TIMINGS):
        assert (folder / name).read_bytes() == before[name], f"{name} is as it was"
    run = store.load_run(folder, live=True)
    assert [profile.context.rung for profile in run.profiles if profile.context] == list(RUNGS)
    assert len(run.timings) == 5
    assert set(states().values()) == {"profiled"}
    text = (folder / "index.html").read_text()
    assert all(rung in text for rung in RUNGS), "one run, one page"
    assert "Report: " in out
    code, _, err = ended(start("profile", "--resume", folder.name))
    assert (code, "nothing is left to collect" in err) == (0, True)
    assert len(ncu.ran) == 6
    code, _, err = ended(start("profile", "--resume"))
    assert (code, "no run under 'reports' is unfinished" in err) == (EXIT_USAGE, True)


def test_a_report_that_was_being_written_when_it_was_killed(ncu: Ncu) -> None:
    """Whether ncu writes its report at the end or as it goes: what is whole of it is taken."""
    kill_at(ncu, "flat_index")
    folder = only_run()
    import ladder_report
    import recorded

    patch = pytest.MonkeyPatch()
    patch.setattr(recorded, "report_bytes", lambda: (ncu.folder / "base.ncu-rep").read_bytes())
    whole = ladder_report.report_of([marker("b_transposed"), marker("flat_index")])
    patch.undo()
    (folder / "profile-2.ncu-rep").write_bytes(whole[:-5000])
    ncu.behave()
    code, _, err = ended(start("profile", "--resume"))
    assert code == 0, err
    assert "profile-2.ncu-rep was cut off. Its 1 whole launches are kept" in " ".join(err.split())
    assert ncu.ran == [
        "naive",
        "coalesced",
        "b_transposed",
        "flat_index",
        "flat_index",
        "smem_tiled",
    ]
    assert len(store.load_run(folder, live=True).profiles) == 5


def test_a_report_that_was_damaged_since_is_collected_again(ncu: Ncu) -> None:
    kill_at(ncu, "b_transposed")
    folder = only_run()
    data = bytearray((folder / "profile.ncu-rep").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "profile.ncu-rep").write_bytes(data)
    ncu.behave()
    code, _, err = ended(start("profile", "--resume"))
    assert code == 0, err
    assert "differs from what was recorded" in err
    assert ncu.ran[3:] == list(RUNGS)
    assert (
        integrity.verify(folder / store.load_manifest(folder).report_files[0]).source == "run.json"
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_says_how_to_go_on(ncu: Ncu, how: signal.Signals) -> None:
    ncu.at("coalesced", "hang")
    process = start(*ARGUMENTS)
    wait_for(lambda: ncu.hangs or process.poll() is not None)
    process.send_signal(how)
    code, out, err = ended(process)
    assert code == 128 + how, err
    folder = only_run()
    assert f"3 cases are not profiled. The rest: ncu-toolkit profile --resume {folder.name}" in out
    assert (folder / "index.html").is_file()
    ncu.behave()
    assert ended(start("profile", "--resume", folder.name))[0] == 0
    assert ncu.ran == list(RUNGS)


def test_redaction_goes_on_where_it_was_asked_for(ncu: Ncu) -> None:
    ncu.at("b_transposed", "hang")
    process = start(*ARGUMENTS, "--redact-source")
    wait_for(lambda: ncu.hangs or process.poll() is not None)
    process.kill()
    process.communicate()
    wait_for(lambda: not Path(f"/proc/{ncu.hangs}").exists())
    ncu.behave()
    code, _, err = ended(start("profile", "--resume"))
    assert code == 0, err
    folder = only_run()
    manifest = store.load_manifest(folder)
    assert len(manifest.report_files) > 1
    assert not any(b"blockIdx" in (folder / name).read_bytes() for name in manifest.report_files)
    private = str(Path.cwd()).encode()
    held = [
        path.name for path in folder.iterdir() if path.is_file() and private in path.read_bytes()
    ]
    assert not held, "no folder of this machine is named in what is kept"
    assert not list(folder.glob("*-plan.json"))


def test_timings_are_kept_and_shown_where_profiling_is_refused(ncu: Ncu) -> None:
    ncu.at("naive", "say:==ERROR== Profiling failed because a driver resource was unavailable.")
    code, out, err = ended(start("profile", "--kernel", "naive", "--size", "1024", "--alone"))
    assert code == EXIT_ENVIRONMENT
    assert "another profiler holds the GPU's performance counters. End it" in err
    assert (only_run() / "index.html").is_file()
    assert "--resume" in out
    ncu.behave()
    assert ended(start("profile", "--resume"))[0] == 0
    assert ncu.ran == ["naive", "naive"]


@pytest.mark.parametrize("given", [("--size", "64"), ("--", "./app")])
def test_what_does_not_go_with_resume(
    given: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    from ncu_toolkit.cli import main

    with pytest.raises(SystemExit) as refused:
        main(["profile", "--resume", "x", *given])
    assert refused.value.code == EXIT_USAGE
    assert "cannot be combined with --resume" in capsys.readouterr().err


# what is refused by name, on folders made by hand


def begun(cases: Cases, tuned: bool = False) -> Cases:
    return settled(cases, tuned, runner.HERE.device(), runner.HERE.run)[0]


@pytest.fixture
def run(ncu: Ncu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    ladder_runs.install(monkeypatch, tmp_path / "code")
    made = session_in(store.new_run_folder(tmp_path / "reports", "by hand"))
    made.update(asked=LadderOptions(), environment={**made.run.environment, "ncu": "2025.3.1.0"})
    runner.time_all(made, begun(chosen("naive", sizes="8")), Quiet())
    made.record(*made.current(begun(chosen("naive", "coalesced", sizes="8"))))
    made.save()
    return made.folder


def changed(folder: Path, change: Callable[[Run], Run]) -> None:
    store.save_manifest(folder, change(store.load_manifest(folder)))


def test_parameters_are_those_the_run_was_begun_with(run: Path) -> None:
    changed(
        run,
        lambda m: replace(
            m, cases=tuple(replace(case, parameters={"BLOCK": 16}) for case in m.cases)
        ),
    )
    cases = runner.resume(run, Quiet()).run.cases
    assert begun(cases, tuned=True) == cases, "tuned since or not: as it was"
    assert [case.parameters for case in cases] == [{"BLOCK": 16}] * 2


@pytest.mark.parametrize("label", runner.SAME)
def test_another_machine_is_refused_by_name(run: Path, label: str) -> None:
    changed(run, lambda m: replace(m, environment={**m.environment, label: "another"}))
    with pytest.raises(
        EnvironmentProblem, match=f"another machine \\({re.escape(label)}: another then"
    ):
        runner.resume(run, Quiet())


def test_a_changed_kernel_is_refused_by_name(run: Path) -> None:
    changed(run, lambda m: replace(m, cases=(m.cases[0], replace(m.cases[1], source="0" * 16))))
    with pytest.raises(UsageProblem, match=r"^gemm_fp32/coalesced changed since") as refused:
        runner.resume(run, Quiet())
    assert "naive" not in str(refused.value)
    changed(run, lambda m: replace(m, cases=(m.cases[0], replace(m.cases[1], rung="is_gone"))))
    with pytest.raises(UsageProblem, match="gemm_fp32/is_gone changed since"):
        runner.resume(run, Quiet())


def test_runs_that_cannot_go_on(run: Path) -> None:
    reports = run.parent
    assert (
        runner.find("", reports)
        == runner.find(run.name, reports)
        == runner.find(str(run), Path("elsewhere"))
        == run
    )
    with pytest.raises(UsageProblem, match="there is no run 'other'") as refused:
        runner.find("other", reports)
    assert run.name in refused.value.remedy
    changed(run, lambda m: replace(m, asked=None))
    with pytest.raises(UsageProblem, match="is unfinished"):
        runner.find("", reports)
    with pytest.raises(UsageProblem, match="not made by `profile` on a ladder") as refused:
        runner.resume(run, Quiet())
    assert "--launch-skip" in refused.value.remedy


def test_one_session_at_a_time(run: Path) -> None:
    with (
        runner.locked(run),
        pytest.raises(UsageProblem, match="is still running"),
        runner.locked(run),
    ):
        pass
    with runner.locked(run):
        pass
