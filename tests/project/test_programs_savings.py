"""The table of predicted and achieved savings, on simulated traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import program_traces
import pytest

from benchmarks.programs import advice, savings, score
from ncu_toolkit.kernel.analysis.analyze import Analysis
from ncu_toolkit.program.analysis.program import judged


def recorded(name: str, cause: str, after: float) -> score.RecordedProgram:
    trace = program_traces.launch_bound()
    times = {"before": {"us": [100.0, 90.0, 110.0]}, "after": {"us": [after]}}
    label: dict[str, Any] = {"cause": cause}
    return score.RecordedProgram(name, label, times, judged(trace, name, Analysis(())))


def test_a_row_for_each_first_cause() -> None:
    first = recorded("cuda_a", "launch-bound", 70.0)
    other = recorded("cuda_b", "fp32-matmul", 70.0)
    *rows, _, reported = savings.table([first, other]).splitlines()[2:]
    assert len(rows) == 1
    cells = [each.strip() for each in rows[0].strip("|").split("|")]
    assert (cells[0], cells[2], cells[4], cells[5]) == tuple(
        each.replace(" us", " µs") for each in ("cuda_a", "100 us", "70.0 us", "30.0 us")
    )
    assert "Of 2 programs these are the 1" in reported
    assert "not so of cuda_b" in reported
    assert "1 of the 1 saved no more" in reported


def test_the_page_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "program.md"
    page.write_text("# A\n\n<!-- scores -->\n<!-- end of scores -->\nz\n")
    programs = [recorded("cuda_a", "launch-bound", 60.0)]
    # of one program it is asked for those whose causes are all fixed
    monkeypatch.setattr(savings, "read", lambda *at: (programs if len(at[1]) > 1 else [], []))
    assert savings.main([str(page)]) == 0
    assert "| cuda_a |" in page.read_text()
    assert page.read_text().endswith("<!-- end of scores -->\nz\n")


def test_all_fixes_at_once_are_compared_with_versions_that_have_them() -> None:
    text = savings.together(
        [
            savings.Together("b", "x and y", 0.2, 0.4, 0.6, "an algorithm"),
            savings.Together("a", "x and y", 0.5, 0.9, 0.8),
        ]
    )
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert rows == [
        "| a | x and y | 50% | 90% | 80% |  |",
        "| b | x and y | 20% | 40% | 60% | an algorithm |",
    ]
    assert "10.0 points of the step off in the mean, with a bias of +10.0; the first" in text
    assert "15.0 points of the step off in the mean, with a bias of -5.0; the first" in text


def test_a_version_with_all_fixes_counts_where_it_ran_and_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = savings.WRITTEN[0]
    program = recorded(name, "launch-bound", 70.0)
    times = tmp_path / "all.json"
    monkeypatch.setattr(savings, "ALL_TIMES", times)

    def saved(**of_all: Any) -> list[float]:
        ran = {"steps": 4, "result": [1.0], "us": [100.0]}
        times.write_text(json.dumps({name: {"before": ran, "all": {**ran, **of_all}}}))
        return [round(x.saved, 3) for x in savings.fixed([program]) if x.name == name]

    assert list(savings.fixed([program])) == list(savings.fixed([])), "it was not run yet"
    assert saved(us=[20.0]) == [0.8]
    assert saved(us=[20.0], result=[1.1]) == []
    assert saved(us=[], code=1, error="CUDA error") == []
    times.write_text(json.dumps({name: {"all": {"us": []}}}))
    assert list(savings.fixed([program])) == list(savings.fixed([]))


def test_every_program_with_all_fixes_has_its_version() -> None:
    versions = {path.parent.name for path in advice.ADVISED.glob("*/all.*[yu]")}
    assert versions == set(savings.WRITTEN)


def test_trials_of_several_settings_count_too() -> None:
    assert any("`tf32`" in each.causes for each in savings.fixed([]))
