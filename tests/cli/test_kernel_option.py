"""--kernel means one thing: the kernels in whose demangled name a regular expression is found; without a
program or a report, a rung by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ncu_toolkit.cli import _options, cli, commands, main
from ncu_toolkit.cli import profile as profile_command
from ncu_toolkit.kernel.gpu import collect


def test_every_command_says_the_same() -> None:
    said: dict[str, str] = {}
    for name in commands():
        command: Any = cli.get_command(None, name)  # type: ignore[arg-type]
        for option in command.params:
            if "-k" in option.opts:
                said[name] = option.help
    assert {"analyze", "view", "compare", "profile", "bench"} <= {*said}
    for name in ("analyze", "view", "compare"):
        assert said[name] == _options.MATCHES
    for name in {"profile", "probe", "watch"} & {*said}:
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


def test_one_pattern_is_left_as_it_is(tmp_path: Path) -> None:
    assert _options.any_of(["a|b"]) == "a|b"
    assert re.search(_options.any_of(["a|b", "^c"]), "b")
