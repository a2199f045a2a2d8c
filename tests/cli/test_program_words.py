"""Commands that run a program: its words are its own, and ncu's options are taken or named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ncu_toolkit.cli import _program, cli, commands
from ncu_toolkit.cli import profile as profile_command
from ncu_toolkit.kernel.gpu import collect

WORDS = ["python", "train.py", "--steps", "100", "--help", "-k", "x", "--", "-q"]
#: What comes before the program, by command.
COMMAND_WORDS = {
    "profile": ["--launches", "3", "-v", "-kgemm"],
    "probe": ["--top", "3", "-k", "gemm"],
    "watch": ["--size=5", "-k", "gemm"],
    "try": ["--runs", "2", "tf32", "-k", "gemm", "channels-last"],
}
COMMAND_WORDS = {name: words for name, words in COMMAND_WORDS.items() if name in commands()}


def test_each_command_that_runs_a_program_is_tested() -> None:
    runs = {
        name
        for name in commands()
        if any("PROGRAM" in (each.metavar or "") for each in cli.get_command(None, name).params)  # type: ignore[arg-type,union-attr]
    }
    assert runs == {*COMMAND_WORDS}


@pytest.mark.parametrize("separator", [[], ["--"]], ids=["bare", "separated"])
@pytest.mark.parametrize("name", COMMAND_WORDS)
def test_what_follows_the_program_is_its_own(name: str, separator: list[str]) -> None:
    command: Any = cli.get_command(None, name)  # type: ignore[arg-type]
    given = command.make_context(name, [*COMMAND_WORDS[name], *separator, *WORDS]).params
    program = given.get("program") or given["words"]
    assert list(program) == ([] if name != "try" else ["tf32", "channels-last"]) + WORDS
    assert "gemm" in (given.get("kernel"), *given.get("kernels", ()))


def asked(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[collect.Request | None, Any]:
    """What `profile` asks of ncu."""
    found: list[collect.Request] = []
    take = lambda job, *_: found.append(job.request)  # noqa: E731
    monkeypatch.setattr(profile_command, "_profile_program", take)
    monkeypatch.setattr(profile_command, "_profile_step", take)
    done = CliRunner().invoke(cli, ["profile", *words])
    return (found[0] if found else None), done


def test_the_habits_of_ncu_do_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = (
        "-f --nvtx --nvtx-include A/ -k regex:gemm -s 5 -c 2 --set full --target-processes all --import-source yes "
        "--clock-control none --replay-mode kernel --profile-from-start off true -c 9"
    )
    request, _ = asked(monkeypatch, *typed.split())
    assert request == collect.Request(
        command=("true", "-c", "9"), set_name="full", kernel_filter="gemm", launch_skip=5,
        launch_count=2, nvtx_include=("A/",), ranges_only=True,
    )  # fmt: skip
    request, _ = asked(monkeypatch, "--kernel-name=regex:a", "--exclude-kernel", "nccl", "true")
    assert request is not None
    assert request.kernel_filter == "^(?!.*(?:nccl)).*(?:a)"


@pytest.mark.parametrize(
    "name",
    [name for name, each in _program.habits().items() if "says" in each and "as" not in each],
)
def test_an_option_of_ncu_that_is_none_here_is_named(name: str) -> None:
    command: Any = cli.get_command(None, "try")  # type: ignore[arg-type]
    with pytest.raises(Exception, match=name) as refused:
        command.make_context("try", ["tf32", name, "nonsense", "true"])
    assert refused.value.remedy  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], r"nothing to profile\. Name a program: ncu-toolkit profile -- "),
        (["-o", "out.ncu-rep", "true"], "names a folder here"),
        (["--section", "X", "true"], "--set full"),
        (["--clock-control", "base", "true"], "lock-gpu-clocks"),
    ],
)
def test_what_profile_does_not_do_is_said_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    request, done = asked(monkeypatch, *words)
    assert request is None
    assert done.exception.exit_code == 2
    with pytest.raises(type(done.exception), match=says):
        raise done.exception


def test_a_log_says_why(tmp_path: Path) -> None:
    def why(text: str, *words: str) -> tuple[int, str]:
        (tmp_path / "log").write_text(text)
        done = CliRunner().invoke(
            cli, ["why", str(tmp_path / "log"), *words], standalone_mode=False
        )
        return done.return_value, done.output

    dcgm = '==ERROR== Profiling failed because a driver resource was unavailable.\n==ERROR== Failed to profile "k" in process 7\n'
    code, message = why(dcgm)
    assert (code, "dcgmi profile --pause" in message, "in 'k'" in message) == (0, True, True)
    found = json.loads(why(f"{dcgm}==ERROR== Brand new\n", "--format", "json")[1])
    assert [each["id"] for each in found["failures"]] == ["counters"]
    assert found["unknown"] == ["Brand new"]
    code, message = why("==ERROR== Brand new\n")
    assert (code, message.startswith("not known: Brand new")) == (4, True)
    from_stdin = CliRunner().invoke(cli, ["why", "-"], input=dcgm)
    assert "dcgmi profile --pause" in from_stdin.output
    fine = '==PROF== Profiling "k": 0%....100% - 9 passes\nout of memory, trying less\n==PROF== Disconnected from process 1\n'
    assert why(fine) == (
        0,
        "no known error of ncu is in it. Pass what ncu printed: ncu ... 2>&1 | tee LOG\n",
    )
    assert CliRunner().invoke(cli, ["why", str(tmp_path / "none")]).exception.exit_code == 4  # type: ignore[union-attr]
