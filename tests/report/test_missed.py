"""What a capture missed: stated where the report states it, and never guessed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import diagnosis_cases as cases
import pytest
import recorded
import report_files
from click.testing import CliRunner

from ncu_toolkit.base.core.errors import EnvironmentProblem
from ncu_toolkit.base.model import Profile
from ncu_toolkit.cli import cli
from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, Options, analyze, judge
from ncu_toolkit.kernel.gpu import collect
from ncu_toolkit.kernel.report import framing, messages, reader
from ncu_toolkit.program.recording import program_run

SHARED = recorded.ROOT.parent / "shared"
NO_SHARE = "The report does not show what share of the program's GPU time"


@pytest.mark.parametrize(
    ("command", "launches", "says"),
    [
        ("ncu --set full -o out ./app -k foo -c 1 --launch-skip 3", 1, ""),
        ("ncu -f -o out --nvtx --call-stack ./app", 7, ""),
        ("ncu -c 10 ./app", 7, ""),
        ("ncu --launch-count 1000 --launch-skip 0 --profile-from-start 1 ./app", 7, ""),
        ("ncu -c 7 ./app", 7, "Profiled 7 launches (ncu --launch-count 7)."),
        ("ncu -k regex:foo -f ./app", 1, "Profiled 1 launch (ncu --kernel-name regex:foo)."),
        (
            "ncu --launch-skip 105 --launch-count=25 ./app", 25,
            "Profiled 25 of at least 130 launches (ncu --launch-skip 105 --launch-count 25).",
        ),
        (
            "ncu --nvtx --nvtx-include A/ --nvtx-include B/ ./app", 2,
            "Profiled 2 launches (ncu --nvtx-include A/ --nvtx-include B/).",
        ),
        (
            "ncu --filter-mode per-launch-config --launch-skip 1 -c 1 ./app", 2,
            "Profiled 2 launches (ncu --filter-mode per-launch-config --launch-skip 1 --launch-count 1).",
        ),
        ("ncu --profile-from-start off ./app", 2, "Profiled 2 launches (ncu --profile-from-start off)."),
        ("ncu -s x -c -5 ./app", 2, ""),
        ("", 2, ""),
        ("xxxx xx xxxx xxxxxx", 2, ""),
    ],
)  # fmt: skip
def test_filters_are_reported_and_a_programs_own_options_are_not(
    command: str, launches: int, says: str
) -> None:
    found = reader.by_command(command.split(), launches, one_process=True)
    these = "these launches take" if launches > 1 else "this launch takes"
    assert found == (f"{says} {NO_SHARE} {these}." if says else "")


def with_command(line: str) -> bytes:
    """A report of two launches with another command line instead of the redacted one."""
    data = report_files.first_launches(2)
    old = messages.command_line(framing.parse(data)).encode()
    assert old
    assert data.count(old) == 1
    return data.replace(old, line.encode().ljust(len(old)))


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("missed") / "filtered.ncu-rep"
    path.write_bytes(with_command("/opt/ncu --set full -s 3 -c 2 -k naive ./app -c 9"))
    return path


@pytest.mark.slow
def test_every_output_says_what_was_left_out(filtered: Path, tmp_path: Path) -> None:
    says = "Profiled 2 of at least 5 launches (ncu --kernel-name naive"

    def shown(*options: str) -> str:
        return CliRunner().invoke(cli, ["analyze", str(filtered), *options]).stdout

    (sentence,) = json.loads(shown("--format", "json"))["missed"]
    assert sentence.startswith(says)
    for form in ("text", "brief"):
        assert shown("--format", form).count(says) == 1
    assert "Profiled 2 of at least 5 launches" in shown("--format", "markdown")
    page = tmp_path / "page.html"
    shown("--standalone", "-o", str(page))
    assert says in page.read_text()
    shown("--standalone", "--redact", "-o", str(page))
    assert says not in page.read_text()
    whole = tmp_path / "whole.ncu-rep"
    whole.write_bytes(report_files.first_launches(2))
    several = analyze([filtered, whole], Options()).missed
    assert len(several) == 1
    assert several[0].startswith(f"{filtered}: ")


def judged(profile: Profile) -> Analysis:
    return Analysis((FileResult("f", (judge(profile, "f", Options()),)),))


def test_a_collective_that_was_not_finished_is_named() -> None:
    def profile(**launch: Any) -> Profile:
        return cases.build({"launch": launch})

    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)"
    stopped = "incomplete: profiling ended before this launch did"
    (sentence,) = judged(profile(kernel=name, status=stopped)).missed
    assert sentence.startswith("Not finished: launch 0.0 of f")
    assert "waits for other GPUs" in sentence
    assert judged(profile(kernel=name)).missed == (), "it was profiled: a single GPU, say"
    assert judged(profile(kernel="gemm", status=stopped)).missed == (), "its status says it"


@pytest.mark.parametrize("kernel", ["ncclDevKernel_AllReduce_Sum_f32_RING_LL", "gemm"])
def test_the_launch_at_which_profiling_was_cut_off_is_named(tmp_path: Path, kernel: str) -> None:
    log = tmp_path / "profile.log"
    log.write_text(
        "==PROF== Connected to process 7 (/usr/bin/python3)\n"
        '==PROF== Profiling "first" - 0: 0%....50%hello\n....100% - 12 passes\n'
        f'==PROF== Profiling "{kernel}" - 1: 0%'
    )
    words = ("ncu", "--launch-skip", "4", "--export", "p", "./app", "-c", "1")
    problem = EnvironmentProblem("ncu did not finish within 2 s", "")
    cut = collect.NcuOutcome(words, -9, 2.0, log, log, problem, passes=(12,))
    request = collect.Request(tmp_path / "p", ("./app",), (), ranges_only=False, launch_skip=4)
    notes = program_run._notes(request, cut, False)
    assert (
        notes[0]
        == f"Profiled 1 of at least 5 launches (ncu --launch-skip 4). {NO_SHARE} this launch takes."
    )
    assert notes[1].startswith(f"'{kernel}' was not finished")
    assert ("waits for other GPUs" in notes[1]) == kernel.startswith("nccl")
    whole = program_run._notes(request, replace(cut, problem=None), False)
    assert whole == notes[:1]


@pytest.mark.corpus
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real reports from other GPUs are not here")
def test_real_reports_say_no_more_than_their_command_lines() -> None:
    """Read by hand: 4 of 12 reports were filtered, and no counter of their complete launches is
    missing."""
    found = {
        path.name: reader.left_out(framing.parse(framing.read_bytes(path)))
        for folder in ("corpus", "refused")
        for path in sorted((SHARED / folder).glob("*.ncu-rep"))
    }
    assert {name for name, says in found.items() if says} == {
        "a100-cutlass-2024.1.ncu-rep", "a100-incomplete-launch.ncu-rep",
        "gh200-basic-2025.2.ncu-rep", "h100-triton-2023.2.ncu-rep",
    }  # fmt: skip
    assert "Profiled 1 of at least 6 launches" in found["h100-triton-2023.2.ncu-rep"]
