"""A ladder under ncu in parts: what is kept, what goes on and what ends when a part goes wrong."""

from __future__ import annotations

import re
from pathlib import Path

import fake_gpu
import ladder_runs
import pytest
from fake_gpu import FakeCupy
from ladder_runs import Ncu, Quiet, case_in, chosen, session_in

from ncu_toolkit.base.core.errors import EnvironmentProblem, KernelProblem
from ncu_toolkit.base.model.run import LadderOptions
from ncu_toolkit.kernel.gpu import collect, runner
from ncu_toolkit.kernel.gpu.runner import Session
from ncu_toolkit.kernel.gpu.target import read_plan
from ncu_toolkit.kernel.report import framing
from ncu_toolkit.kernel.runs import store

RUNGS = ("naive", "coalesced", "b_transposed", "flat_index")
#: Longer than the stand-in takes for all of them, and shorter than for two.
ALL, ONE = 60.0, 0.05


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCupy:
    (tmp_path / "code").mkdir()
    return ladder_runs.install(monkeypatch, tmp_path / "code")


@pytest.fixture
def ncu(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ncu:
    return Ncu(monkeypatch, tmp_path / "ncu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


def profile(
    folder: Path,
    *rungs: str,
    seconds: float | None = ALL,
    made: Session | None = None,
    timeout: float = 60,
) -> tuple[Session, Quiet]:
    made, reporter = made or session_in(folder), Quiet()
    options = runner.NcuOptions(timeout, part_seconds=seconds)
    runner.profile_all(made, chosen(*rungs, sizes="1024"), reporter, options)
    return made, reporter


def states(made: Session, *rungs: str) -> list[str]:
    return [case_in(made, rung).state for rung in rungs or RUNGS]


def launches(folder: Path, name: str) -> int:
    return framing.parse((folder / name).read_bytes()).declared_launches


def test_a_ladder_in_one_part(ncu: Ncu, folder: Path) -> None:
    made, reporter = profile(folder, *RUNGS)
    assert states(made) == ["profiled"] * 4
    assert list(made.run.report_files) == ["profile.ncu-rep"]
    assert launches(folder, "profile.ncu-rep") == 4
    assert reporter.lines == ["Profile 4", *(f"gemm_fp32/{rung} at 1024" for rung in RUNGS)]
    assert made.failures == []
    assert len(made.run.commands) == 1
    assert "--profile-from-start off" in made.run.commands[0]


def test_parts_have_reports_of_their_own_and_make_one_run(
    ncu: Ncu, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    save = Session.save

    def counting(made: Session) -> None:
        saved.append(len(made.run.report_files))
        save(made)

    monkeypatch.setattr(Session, "save", counting)
    made, _ = profile(folder, *RUNGS, seconds=ONE)
    assert states(made) == ["profiled"] * 4
    assert list(made.run.report_files) == [
        "profile.ncu-rep",
        *(f"profile-{n}.ncu-rep" for n in (2, 3, 4)),
    ]
    assert saved == [1, 2, 3, 4], "what there is is saved after each part"
    assert ncu.ran == list(RUNGS), "nothing is done twice"
    made.save()
    run = store.load_run(folder, live=True)
    assert [profile.context.rung for profile in run.profiles if profile.context] == list(RUNGS)
    assert [profile.origin.file for profile in run.profiles] == list(made.run.report_files)


@pytest.mark.parametrize("seconds", [ONE, ALL])
def test_a_crash_costs_the_case_that_crashed(ncu: Ncu, folder: Path, seconds: float) -> None:
    ncu.at("b_transposed", "crash")
    made, _ = profile(folder, *RUNGS, seconds=seconds)
    assert states(made) == ["profiled", "profiled", "failed", "profiled"]
    assert "ended during this case" in case_in(made, "b_transposed").message
    assert [type(error) for error in made.failures] == [KernelProblem]
    assert ncu.ran == list(RUNGS)


def test_an_ncu_that_is_killed_ends_the_ladder_and_keeps_what_was_finished(
    ncu: Ncu, folder: Path
) -> None:
    ncu.at("b_transposed", "kill")
    made, reporter = profile(folder, *RUNGS, seconds=ONE)
    assert states(made) == ["profiled", "profiled", "not run", "not run"]
    assert any("signal 9" in line and "are kept" in line for line in reporter.lines)
    assert [error.exit_code for error in made.failures] == [EnvironmentProblem.exit_code]


@pytest.mark.parametrize(
    ("says", "cause"),
    [("say:==ERROR== ERR_NVGPUCTRPERM", "ERR_NVGPUCTRPERM"), ("kill", "signal 9")],
)
def test_what_holds_for_every_case_ends_the_ladder(
    ncu: Ncu, folder: Path, says: str, cause: str
) -> None:
    ncu.at("naive", says)
    with pytest.raises(EnvironmentProblem, match=cause) as refused:
        profile(folder, *RUNGS, seconds=ONE)
    assert refused.value.remedy
    assert ncu.ran == ["naive"], "the others would fail alike"


def test_out_of_memory_costs_the_case_that_ran_out(ncu: Ncu, folder: Path) -> None:
    ncu.at("coalesced", "say:cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1 bytes")
    made, _ = profile(folder, *RUNGS, seconds=ONE)
    assert states(made) == ["profiled", "skipped", "profiled", "profiled"]
    assert "smaller --size" in case_in(made, "coalesced").message
    assert made.failures == []


def test_a_ladder_that_takes_too_long_keeps_what_was_finished(
    ncu: Ncu, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "GRACE_SECONDS", 20.0)
    ncu.at("coalesced", "hang")
    made, reporter = profile(folder, *RUNGS, timeout=4)
    assert states(made) == ["profiled", "profiled", "not run", "not run"], (
        "the case under way was finished when it was asked to stop"
    )
    assert any("not profiled within 4 s" in line for line in reporter.lines)
    assert "--resume" in made.failures[0].remedy


def test_an_interrupt_keeps_what_is_finished(ncu: Ncu, folder: Path) -> None:
    class Interrupting(Quiet):
        left = 1

        def doing(self, label: str) -> None:
            if "coalesced" in label and self.left:
                self.left -= 1
                raise KeyboardInterrupt

    ncu.at("coalesced", "hang")
    made = session_in(folder)
    options = runner.NcuOptions(part_seconds=ALL)
    runner.profile_all(made, chosen(*RUNGS, sizes="1024"), Interrupting(), options)
    assert made.interrupted
    assert states(made) == ["profiled", "profiled", "not run", "not run"]
    assert not list(folder.glob("*-stop"))


def test_a_report_that_was_cut_off_keeps_its_whole_launches(ncu: Ncu, folder: Path) -> None:
    ncu.at("coalesced", "cut")
    made, reporter = profile(folder, "naive", "coalesced")
    assert [case_in(made, rung).report for rung in ("naive", "coalesced")] == [
        "profile.ncu-rep",
        "profile-2.ncu-rep",
    ]
    assert ncu.ran == ["naive", "coalesced", "coalesced"], "only what was lost is done again"
    assert any("was cut off. Its 1 whole launches are kept" in line for line in reporter.lines)
    assert (folder / f"profile.ncu-rep{runner.CUT}").is_file()
    made.save()
    assert len(store.load_run(folder, live=True).profiles) == 2


def test_rungs_that_failed_while_timed_are_not_profiled(
    cupy: FakeCupy, ncu: Ncu, folder: Path
) -> None:
    cupy.behaviours["naive"] = fake_gpu.forgetful
    made = session_in(folder)
    runner.time_all(made, chosen("naive", "coalesced", sizes="1024"), Quiet())
    profile(folder, "naive", "coalesced", made=made)
    assert [case.rung for case in read_plan(folder / "profile-plan.json").cases] == ["coalesced"]
    assert states(made, "naive", "coalesced") == ["failed", "profiled"]


def test_a_launch_broken_off_and_collected_again_counts_once(ncu: Ncu, folder: Path) -> None:
    """A case of several launches can crash between them: what the first report holds of it is not
    counted with the second's."""
    made, _ = profile(folder, "naive", "coalesced")
    (folder / "profile-2.ncu-rep").write_bytes((folder / "profile.ncu-rep").read_bytes())
    made.update(report_files=("profile.ncu-rep", "profile-2.ncu-rep"))
    made.save()
    run = store.load_run(folder, live=True)
    assert [profile.origin.file for profile in run.profiles] == ["profile.ncu-rep"] * 2
    assert [profile.context.launch_count for profile in run.profiles if profile.context] == [1, 1]
    assert [(skipped.what, skipped.reason) for skipped in run.skipped] == [
        (f"gemm_fp32/{rung} at 1024 in profile-2.ncu-rep", "collected again in profile.ncu-rep")
        for rung in ("naive", "coalesced")
    ]


def test_the_kept_report_is_redacted(ncu: Ncu, folder: Path) -> None:
    made = session_in(folder)
    made.update(asked=LadderOptions(redact=True, redact_source=True))
    profile(folder, "naive", made=made)
    other = folder.parent / "other"
    plain, _ = profile(other, "naive")
    kept, raw = ((place / "profile.ncu-rep").read_bytes() for place in (folder, other))
    assert len(kept) == len(raw)
    assert b"blockIdx" in raw
    assert b"blockIdx" not in kept
    assert str(folder) in plain.run.commands[0].replace(str(other), str(folder))
    assert re.fullmatch(
        r"ncu .*--export profile\.ncu-rep python[\d.]* -P -m ncu_toolkit\.kernel\.gpu\.target profile-plan\.json",
        made.run.commands[0],
    ), "no command that is saved before the end names a folder"
    assert "/" not in made.run.commands[0]
