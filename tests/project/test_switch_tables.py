"""Results of switches from a GPU get into the documents."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ncu_toolkit.program.model import ProgramTrial, Tried

sys.path.append(str(Path(__file__).resolve().parents[2] / "docs"))
import switch_tables

TRIED = Tried(
    switches=("tf32",), title="TF32", outcome="faster", description="46.6 → 17.9 ms.", causes=("fp32-matmul",),
    before_us=(46600.0,) * 5, after_us=(17900.0,) * 5, ceiling_us=28700.0, results="within", compared="0.1 % apart.",
)  # fmt: skip
IDLE = Tried(
    switches=("compile",), title="Compiled", outcome="not applied", description="No module."
)
TRIAL = ProgramTrial(
    program="a", gpu="H100", word="step", before_us=(46600.0,), tried=(TRIED, IDLE)
)


def row(name: str, trial: ProgramTrial = TRIAL) -> dict[str, Any]:
    return {"name": name, "switches": "tf32", "trial": msgspec.to_builtins(trial), "seconds": 3.0}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(switch_tables, "DATA", tmp_path / "try.json")
    return tmp_path / "try.json"


def test_new_results_are_taken(data: Path, tmp_path: Path) -> None:
    """They replace those of the same name."""
    data.write_text(json.dumps([row("gpt_train"), row("convnet")]))
    new = tmp_path / "new.json"
    slower = msgspec.structs.replace(TRIAL, gpu="H200")
    broken = {"name": "decode", "error": "UsageProblem: it fails"}
    new.write_text(json.dumps([row("gpt_train", slower), broken]))
    assert switch_tables.take(new, data) == ["decode: UsageProblem: it fails"]
    assert [(name, trial.gpu) for name, trial in switch_tables.trials()] == [
        ("gpt_train", "H200"),
        ("convnet", "H100"),
    ]
    new.write_text(json.dumps([{"name": "x", "trial": {}}]))
    with pytest.raises(msgspec.ValidationError):
        switch_tables.take(new, data)
    assert len(switch_tables.trials()) == 2


def test_cases_by_cause(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch_tables.score, "read", lambda *_: ([], []))
    several = msgspec.structs.replace(TRIED, switches=("compile",), causes=("a", "b"))
    data.write_text(
        json.dumps([row("gpt_train", msgspec.structs.replace(TRIAL, tried=(TRIED, several)))])
    )
    line = next(each for each in switch_tables.causes().splitlines() if "fp32-matmul" in each)
    assert line.split("|")[5:7] == [" 1 ", " 100 % "]
    assert "a + b" not in switch_tables.causes()
    assert switch_tables.spread([0.5, 0.5]).startswith(f"{switch_tables.spread([0.5])} (")
    assert switch_tables.spread([]) == ""


def test_the_table_tells_what_came_of_each(data: Path) -> None:
    data.write_text(json.dumps([row("gpt_train")]))
    lines = switch_tables.table().splitlines()
    assert "2.60×" in lines[2]
    assert "changes nothing" in lines[3]
    assert "1 program on an H100, 2 settings. 1 made" in switch_tables.sentence()


def test_generated_parts_are_replaced() -> None:
    text = "a\n<!-- generated: one -->\nold\n<!-- end: one -->\nb"
    assert switch_tables.put(text, {"one": "new \\1\n"}) == text.replace("old", "new \\1")
