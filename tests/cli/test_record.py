"""Making a recording: a second run for the profiler's own rules, scrubbing, packing; what is left
is a run that can be shipped."""

from __future__ import annotations

from pathlib import Path

import ladder_runs
import pytest
from ladder_runs import Ncu, Quiet, case_in, chosen, session_in

from benchmarks import record
from ncu_toolkit.kernel.gpu import runner
from ncu_toolkit.kernel.gpu.runner import Session
from ncu_toolkit.kernel.runs import store

RUNGS = ("naive", "coalesced")


@pytest.fixture
def ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ncu:
    (tmp_path / "code").mkdir()
    ladder_runs.install(monkeypatch, tmp_path / "code")
    ncu = Ncu(monkeypatch, tmp_path / "ncu")
    (ncu.folder / "sections").mkdir()
    (ncu.folder / "sections" / "SpeedOfLight.section").touch()
    return ncu


def recorded_into(folder: Path) -> Session:
    made, cases = session_in(folder), chosen(*RUNGS, sizes="1024")
    runner.time_all(made, cases, Quiet())
    runner.profile_all(made, cases, Quiet(), runner.NcuOptions(part_seconds=None))
    record._stock(made, cases, Quiet(), 60)  # type: ignore[arg-type]
    made.save()
    record._pack(folder)
    return made


def test_a_recording_is_one_report_with_the_rules_beside_it(ncu: Ncu, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    made = recorded_into(folder)
    assert made.failures == []
    assert {path.name for path in folder.iterdir()} == {
        store.MANIFEST,
        store.TIMINGS,
        store.RULES,
        store.PARSED,
        "profile.ncu-rep.xz",
    }
    run = store.load_run(folder, live=False)
    assert [profile.context.rung for profile in run.profiles if profile.context] == list(RUNGS)
    assert set(run.costs) >= {"profiling (ladder)", "profiling (full)"}
    assert len(run.commands) == 2
    assert not any(str(tmp_path) in command for command in run.commands)
    assert run.skipped == ()
    assert store.load_parsed(folder, run) == store.read_reports(folder, run)
    with (folder / "profile.ncu-rep.xz").open("ab") as report:
        report.write(b"\0" * 4)  # padding: the same launches in another file
    assert store.load_parsed(folder, run) is None
    (folder / store.PARSED).write_bytes(b"cut off")
    assert store.load_parsed(folder, run) is None


def test_a_crash_under_the_stock_rules_leaves_the_recording(
    ncu: Ncu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "recording"
    stock = record._stock

    def crashing(*arguments: object) -> None:
        ncu.at("coalesced", "crash")
        stock(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(record, "_stock", crashing)
    made = recorded_into(folder)
    assert len(made.failures) == 1
    assert {case.rung: case.state for case in store.load_manifest(folder).cases} == dict.fromkeys(
        RUNGS, "profiled"
    )
    assert case_in(made, "coalesced").report == "profile.ncu-rep"
