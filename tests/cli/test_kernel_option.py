"""--kernel means one thing: the kernels in whose demangled name a regular expression is found; without a
program or a report, a rung by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ncu_toolkit.base.model import Device
from ncu_toolkit.base.model.profile import Launch
from ncu_toolkit.base.model.trace import KernelTimes, KernelTrace
from ncu_toolkit.cli import _options, cli, commands, main
from ncu_toolkit.cli import profile as profile_command
from ncu_toolkit.guests.probe import command as probe_command
from ncu_toolkit.guests.probe import trace
from ncu_toolkit.kernel.gpu import collect


def test_every_command_says_the_same() -> None:
    said: dict[str, str] = {}
    for name in commands():
        command: Any = cli.get_command(None, name)  # type: ignore[arg-type]
        for option in command.params:
            if "-k" in option.opts:
                said[name] = option.help
    assert {"analyze", "view", "compare", "profile", "probe", "watch", "bench"} <= {*said}
    for name in ("analyze", "view", "compare"):
        assert said[name] == _options.MATCHES
    for name in ("profile", "probe", "watch"):
        assert said[name].startswith(_options.KERNEL)
    for name, text in said.items():
        assert re.search("demangled name|rung|kernel with a", text, re.IGNORECASE), name


def test_profile_takes_it_for_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[collect.Request] = []
    monkeypatch.setattr(
        profile_command, "_profile_program", lambda job, _: asked.append(job.request)
    )
    for words in (
        ["-k", "gemm.*<"],
        ["-k", "a,b", "-k", "c"],
        ["--kernel-filter", "gemm"],
        ["--launch-count", "20"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(["profile", *words, "--", "true"])
        assert not ended.value.code
    filters = [request.kernel_filter for request in asked]
    assert filters == ["gemm.*<", "(?:a,b)|(?:c)", "gemm", ""]
    words = collect.argv(collect.Ncu("ncu", "2025.3"), asked[0])
    assert words[words.index("--kernel-name-base") + 1] == "demangled"
    only = collect.argv(collect.Ncu("ncu", "2025.3"), collect.Request(kernel_function="k<1>"))
    assert "--kernel-name-base" not in only
    assert "regex:^k<1>$" in only


def test_probe_takes_it_for_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = tuple(
        KernelTrace(
            Launch(f"_Z{name}", f"void {name}<float>(float*)", (64, 1, 1), (256, 1, 1)),
            3,
            30.0,
            10.0,
            9.0,
            11.0,
        )
        for name in ("gemm", "copy", "gemm_2")
    )
    found = KernelTimes(Device("GPU", (9, 0), sm_count=132), kernels, 9, 90.0, 100.0)
    monkeypatch.setattr(trace, "run", lambda *_: 0)
    monkeypatch.setattr(trace, "read", lambda _: found)
    with pytest.raises(SystemExit) as ended:
        main(["probe", "-k", "gemm", "--", "true"])
    shown = capsys.readouterr().out
    assert not ended.value.code
    assert "gemm_2" in shown
    assert "copy" not in shown
    with pytest.raises(SystemExit) as ended:
        main(["probe", "-k", "none", "--", "true"])
    assert ended.value.code == 2
    assert "no kernel of the program matches --kernel 'none'" in capsys.readouterr().err


def test_the_header_of_probe_counts_every_kernel() -> None:
    from ncu_toolkit.guests.probe.probed import answer_of

    kernels = tuple(
        KernelTrace(
            Launch(f"k{at}", f"k{at}", (64, 1, 1), (256, 1, 1)), 2, 20.0 - at / 100, 10.0, 9.0, 11.0
        )
        for at in range(140)
    )
    found = KernelTimes(Device("GPU", (9, 0), sm_count=132), kernels, 280, 2800.0, 3000.0)
    verdicts, notes = probe_command.judged(found, 15)
    shown = answer_of(found, verdicts, top=15, notes=notes)
    assert shown.headline.startswith("280 launches of 140 kernels")
    assert "125 more kernels take" in shown.rest
    assert "--top 140" in shown.rest


def test_one_pattern_is_left_as_it_is(tmp_path: Path) -> None:
    assert _options.any_of(["a|b"]) == "a|b"
    assert re.search(_options.any_of(["a|b", "^c"]), "b")
