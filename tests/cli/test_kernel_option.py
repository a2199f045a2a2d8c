"""--kernel means one thing: the kernels whose demangled name matches a regular expression; without a
program or a report, a rung by name."""

from __future__ import annotations

import pytest

from ncu_toolkit.cli import main
from ncu_toolkit.cli import profile as profile_command
from ncu_toolkit.kernel.gpu import collect


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
