"""What a model gets of a program's trace: within its budget, with ids that `why` and `where` take."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import program_traces
import pytest
import report_files

from benchmarks.programs import advice, many_ranks
from ncu_toolkit.base.core.errors import InputProblem, UsageProblem
from ncu_toolkit.guests.mcp import digest, root, tools
from ncu_toolkit.guests.mcp.reports import Reports
from ncu_toolkit.guests.mcp.root import Root
from ncu_toolkit.kernel.diagnosis import achieved
from ncu_toolkit.program.traces.files import write_trace


@dataclass
class Served:
    folder: Path
    tools: tools.Tools

    def call(self, name: str, **arguments: Any) -> Any:
        """A tool's answer, as its schema says it."""
        found = json.loads(digest.encoded(self.tools.call(name, arguments)))
        jsonschema.validate(found, digest.schema(self.tools.all[name].gives))
        return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("root")
    write_trace(program_traces.gpt(), folder / "gpt.ncu-trace")
    write_trace(program_traces.healthy(), folder / "healthy.ncu-trace")
    write_trace(program_traces.no_kernels(), folder / "empty.ncu-trace")
    (folder / "torn.ncu-trace").write_bytes((folder / "gpt.ncu-trace").read_bytes()[:300])
    (folder / "one.ncu-rep").write_bytes(report_files.first_launches(1))
    (folder / "job").mkdir()
    many_ranks.write(folder / "job", 8, 4000)
    (folder / "both").mkdir()
    for name in ("gpt", "healthy"):
        (folder / "both" / f"{name}.ncu-trace").write_bytes(
            (folder / f"{name}.ncu-trace").read_bytes()
        )
    reports = Reports(Root(folder))
    yield Served(folder, tools.Tools(reports))
    reports.close()


def test_a_trace_is_answered_and_explained(served: Served) -> None:
    shown = served.call("analyze", report="gpt.ncu-trace")
    assert shown["report"] == "gpt.ncu-trace"
    assert shown["headline"].startswith("train.py · ")
    first = shown["launches"][0]
    assert first["cause"] == "fp32-matmul"
    assert first["gain"].startswith("fix saves about ")
    assert first["do"]
    assert shown["points"][0].startswith("where the step goes: ")
    assert any(point.startswith("fixing ") for point in shown["points"])
    assert shown["parts"][0]["title"] == "Kernels of the step"
    why = served.call("why", finding=first["finding"])
    assert why["launches"][0]["title"] == first["title"]
    assert why["points"], "how the ceiling is computed"
    where = served.call("where", launch=first["id"])
    assert len(where["launches"][0]["where"]) >= len(first["where"]) > 0
    text = json.dumps([shown, why, where])
    assert "/tmp" not in text
    assert str(served.folder) not in text


def test_a_model_gets_the_record_of_the_first_cause(served: Served) -> None:
    name = "torch_fraud_monitor.before.ncu-trace"
    shutil.copy(advice.RECORDINGS / name, served.folder)
    first, *others = served.call("analyze", report=name)["launches"]
    faster, programs = achieved.tested(first["cause"]) or (0, 0)
    assert f"made {faster} of {programs} short test programs faster" in first["tested"]
    assert not any("tested" in each for each in others)
    first = served.call("analyze", report="gpt.ncu-trace")["launches"][0]
    assert achieved.tested(first["cause"]) is None
    assert "tested" not in first


def test_a_folder_of_ranks_is_one_answer(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = served.call("analyze", report="job")
    assert shown["headline"].startswith("8 ranks · ")
    assert shown["launches"][0]["cause"] == "late-rank"
    assert "rank 5" in shown["headline"]
    why = served.call("why", finding=shown["launches"][0]["finding"])
    assert why["launches"][0]["title"].startswith("Rank 5 is late")
    assert str(served.folder) not in json.dumps(shown)
    assert "/tmp" not in json.dumps(shown)
    with pytest.raises(InputProblem, match="not of the ranks of one job"):
        served.tools.call("analyze", {"report": "both"})
    monkeypatch.setattr(root, "_RANKS", 7)
    with pytest.raises(InputProblem, match="'job' holds more than 7 traces"):
        served.tools.call("analyze", {"report": "job"})


@pytest.mark.parametrize("budget", [digest.LEAST, 1000, digest.DEFAULT])
def test_the_budget_is_kept(served: Served, budget: int) -> None:
    found = served.tools.call("analyze", {"report": "gpt.ncu-trace", "budget_tokens": budget})
    assert len(digest.encoded(found)) <= budget * digest.BYTES
    assert isinstance(found, digest.Digest)
    assert found.launches


def test_what_cannot_be_answered_is_one_line(served: Served) -> None:
    for name, message in (
        ("empty.ncu-trace", "has no kernel"),
        ("torn.ncu-trace", "'torn.ncu-trace'"),
    ):
        with pytest.raises(InputProblem, match=message) as refused:
            served.tools.call("analyze", {"report": name})
        assert "/tmp" not in tools.error_line(refused.value)
    with pytest.raises(InputProblem, match="is a trace, and `compare` takes reports"):
        served.tools.call("compare", {"a": "gpt.ncu-trace", "b": "one.ncu-rep"})
    first = served.call("analyze", report="gpt.ncu-trace")["report_id"]
    for wrong in (f"{first}/step.99/x", f"{first}/step.x/x", "0000000000/step.0/x"):
        with pytest.raises(UsageProblem):
            served.tools.call("why", {"finding": wrong})
