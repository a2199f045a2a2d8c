"""doctor: each check sees what is there, and one that breaks does not stop the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ncu_toolkit.base.core.errors import EXIT_ENVIRONMENT, EnvironmentProblem
from ncu_toolkit.cli.doctor import command
from ncu_toolkit.kernel.build import toolchain
from ncu_toolkit.kernel.gpu import collect
from ncu_toolkit.program import doctor


def by_name(checks: tuple[doctor.MachineCheck, ...]) -> dict[str, doctor.MachineCheck]:
    return {check.name: check for check in checks}


def test_every_check_that_fails_has_a_remedy_or_a_reason() -> None:
    checks = doctor.examine()
    assert [check.name for check in checks] == list(doctor._CHECKS)
    for check in checks:
        assert check.found
        if check.state == "missing":
            assert check.remedy, check.name
            assert check.needed_for, check.name
    assert by_name(checks)["report module"].state == "ok"


@pytest.mark.parametrize(
    ("text", "root", "state"),
    [
        ("RmProfilingAdminOnly: 0\n", False, "ok"),
        ("X: 1\nRmProfilingAdminOnly: 1\n", False, "missing"),
        ("RmProfilingAdminOnly: 1\n", True, "ok"),
        ("X: 1\n", False, "warning"),
    ],
)
def test_permission_for_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, root: bool, state: str
) -> None:
    parameters = tmp_path / "params"
    parameters.write_text(text)
    monkeypatch.setattr(doctor, "_PARAMETERS", parameters)
    monkeypatch.setattr(doctor, "may_profile", lambda: root)
    check = doctor._counters()
    assert check.state == state
    assert bool(check.remedy) == (state != "ok")


@pytest.mark.parametrize(
    ("capabilities", "driver", "may"),
    [(1 << 38, "565.57.01", True), (1 << 38, "550.54.14", False), (1 << 21, "550.54.14", True)],
)
def test_capabilities_that_suffice_for_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capabilities: int, driver: str, may: bool
) -> None:
    status, version = tmp_path / "status", tmp_path / "version"
    status.write_text(f"Name:\tpython\nCapEff:\t{capabilities:016x}\n")
    if driver:
        version.write_text(
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Thu Oct 10\n"
        )
    monkeypatch.setattr(doctor, "_STATUS", status)
    monkeypatch.setattr(doctor, "_DRIVER", version)
    assert doctor.may_profile() == may


def test_driver_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version: gcc 12.3.0\n"
    )
    monkeypatch.setattr(doctor, "_DRIVER", version)
    assert (doctor._driver().state, doctor._driver().found) == ("ok", "580.65.06")
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n")
    assert doctor._driver().found == "535.183.01"


def test_an_ncu_newer_than_the_module_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "find_ncu", lambda: collect.Ncu("/x/ncu", "2031.1.0.0"))
    check = doctor._versions()
    assert check.state == "warning"
    assert "upgrade" in check.remedy
    monkeypatch.setattr(collect, "find_ncu", lambda: collect.Ncu("/x/ncu", "2022.1.0.0"))
    assert doctor._versions().state == "ok"


def test_a_check_that_breaks_is_reported_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> collect.Ncu:
        raise ValueError("odd")

    def absent(name: str) -> toolchain.Tool:
        raise EnvironmentProblem(f"{name} was not found", "Install it")

    monkeypatch.setattr(collect, "find_ncu", broken)
    monkeypatch.setattr(toolchain, "find_tool", absent)
    checks = by_name(doctor.examine())
    assert (checks["ncu"].state, "ValueError: odd" in checks["ncu"].found) == ("warning", True)
    assert (checks["compiler"].state, checks["compiler"].remedy) == ("missing", "Install it")


def test_every_command_works_where_all_checks_are_ok() -> None:
    checks = tuple(doctor.MachineCheck(name, "ok", "x") for name in doctor._CHECKS)
    assert all(doctor.works(checks).values()), "it asks for checks that exist"
    without = tuple(check for check in checks if check.name != "recorder")
    assert [name for name, able in doctor.works(without).items() if not able] == ["probe"]


def test_text_and_json_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor,
        "examine",
        lambda: (
            doctor.MachineCheck("report module", "ok", "x"),
            doctor.MachineCheck("ncu", "missing", "none\x1b[31m", "profile", "Install it"),
        ),
    )
    text = CliRunner().invoke(command, [], standalone_mode=False)
    assert text.return_value == EXIT_ENVIRONMENT
    assert "Install it" in text.output
    assert "\x1b" not in text.output
    document = json.loads(
        CliRunner().invoke(command, ["--format", "json"], standalone_mode=False).output
    )
    assert document["checks"][1]["remedy"] == "Install it"
    assert document["works"]["analyze"] is True
    assert document["works"]["profile a program"] is False
