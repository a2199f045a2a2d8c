"""What fixes achieved: the cases on record, and the table in the package that is made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.programs import cases, score
from benchmarks.programs.cases import Achieved


def _published(*pairs: tuple[str, float]) -> str:
    return json.dumps(
        [
            {"cause": "host-work", "program": name, "before_ms": 100, "most_ms": 40, "after_ms": after}
            for name, after in pairs
        ]
    )  # fmt: skip


def _tried(name: str, switch: str = "tf32", after: float = 50.0, **more: Any) -> dict[str, Any]:
    tried = {
        "switches": [switch], "title": "", "outcome": "faster", "said": "", "results": "within",
        "before_us": [100.0], "after_us": [after], "ceiling_us": 60.0, **more,
    }  # fmt: skip
    trial = {"program": "p", "gpu": "g", "word": "step", "before_us": [100.0], "tried": [tried]}
    return {"name": name, "trial": trial}


def test_a_program_counts_once_for_a_cause(tmp_path: Path) -> None:
    published, trials = tmp_path / "published.json", tmp_path / "try.json"
    published.write_text(_published(("a", 60), ("a", 80), ("a", 70), ("b", 90)))
    rows = (
        _tried("gpt_train.py 10"),
        _tried("gpt_train.py 20", "bf16-autocast", 90.0),
        _tried("loader.py", results="differ"),
        _tried("short.py", outcome="broke"),
        {"name": "decode.py", "error": "no GPU"},
        _tried("decode.py 40", "cuda-graphs"),
    )
    trials.write_text(json.dumps(rows))
    found = cases.cases([], published, trials)
    assert [(c.cause, c.program, round(c.share, 3), c.source) for c in found] == [
        ("fp32-matmul", "gpt_train", 0.833, "tried"),
        ("host-work", "a", 0.75, "published"),
        ("host-work", "b", 0.25, "published"),
    ]


def test_cases_that_agree_predict_each_other() -> None:
    given = [Achieved("host-sync", f"p{i}", 0.1 + i / 20, 0.09 + i / 22, "") for i in range(10)]
    found = cases.evaluate(given)
    assert found is not None
    assert found.programs == 10
    assert found.skill > 0.9
    assert found.covered == pytest.approx(0.8)
    assert cases.evaluate(given[:8]) is None
    assert "too few" in cases.table(given[:8])[-1]
    assert "10 programs" in cases.table(given)[-1]


@pytest.mark.slow  # it reads the reports of 57 programs
def test_the_table_in_the_package_is_of_the_cases_on_record() -> None:
    programs = score.development(score.FOLDER / "recordings", score.read_labels(score.FOLDER))
    assert cases.SHIPPED.read_text() == cases.written(cases.cases(programs)), (
        "run python -m benchmarks.programs.cases --write"
    )
