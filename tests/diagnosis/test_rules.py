"""Every bottleneck against its case file: found with the values that show it, not found once they
are fixed; and the rules' own form."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import diagnosis_cases as cases
import pytest

from ncu_toolkit.base.model import NoFinding
from ncu_toolkit.kernel.diagnosis import figures, time_model
from ncu_toolkit.kernel.diagnosis.engine import diagnose, outcome_of
from ncu_toolkit.kernel.diagnosis.rules import (
    bottleneck_ids,
    load_rules,
    reference,
    title,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", cases.names())
def test_case_is_found(name: str) -> None:
    case = cases.read(name)
    expected = case["expect"]
    diagnosis = diagnose(cases.build(case))
    found = [finding.bottleneck for finding in diagnosis.findings]
    assert expected["bottleneck"] in found, [
        r.reason for r in diagnosis.considered if r.bottleneck == expected["bottleneck"]
    ]
    if expected["first"]:
        assert found[0] == expected["bottleneck"], [
            (f.bottleneck, round(f.saved, 2)) for f in diagnosis.findings
        ]
    finding = next(f for f in diagnosis.findings if f.bottleneck == expected["bottleneck"])
    assert finding.good == expected["good"]
    assert expected.get("summary", "") in finding.summary
    low, high = expected.get("saved", (0.0, 1.0))
    assert low <= finding.saved <= high
    assert finding.arithmetic
    assert finding.advice
    assert finding.evidence


@pytest.mark.parametrize("name", cases.names())
def test_fixed_case_is_not(name: str) -> None:
    case = cases.read(name)
    fixed: dict[str, Any] = {
        **case,
        **case["fixed"],
        "metrics": {**case.get("metrics", {}), **case["fixed"].get("metrics", {})},
    }
    # A verdict by a full unit or a long wait alone has no figure: the rule itself found nothing.
    found = [f for f in diagnose(cases.build(fixed)).findings if f.speedup is not None]
    assert cases.bottleneck(name) not in [finding.bottleneck for finding in found]


def test_every_bottleneck_has_a_case() -> None:
    assert {cases.bottleneck(name) for name in cases.names()} == set(bottleneck_ids())


@pytest.mark.parametrize("name", bottleneck_ids())
def test_rule_is_well_formed(name: str) -> None:
    rule = load_rules()[name]
    assert rule.TITLE
    assert reference.page(name).summary.endswith(".")
    for wanted in (*rule.REQUIRES, *rule.OPTIONAL):
        if wanted not in ("opcodes", "stalls"):
            figures.describe(wanted)
    for _, threshold in reference.page(name).thresholds:
        assert len(threshold.source) > 10


@pytest.mark.parametrize("name", bottleneck_ids())
def test_rule_abstains_by_name_without_any_input(name: str) -> None:
    """Nothing collected: no rule may find anything, and those that abstain name what they need."""
    empty = cases.build({"metrics": dict.fromkeys(cases.METRICS), "stalls": {}, "opcodes": {}})
    outcome = outcome_of(load_rules()[name], empty, time_model.build(empty))
    assert isinstance(outcome, NoFinding)
    if outcome.outcome == "abstained":
        assert outcome.missing


@pytest.mark.parametrize(
    "gone",
    [
        name if at % 12 == 0 else pytest.param(name, marks=pytest.mark.slow)
        for at, name in enumerate(sorted(cases.METRICS))
    ],
)
def test_no_rule_needs_a_metric_that_is_not_there(gone: str) -> None:
    """Each metric missing in turn, from every case: a verdict all the same, and no exception."""
    for name in cases.names():
        case = cases.read(name)
        diagnosis = diagnose(
            cases.build({**case, "metrics": {**case.get("metrics", {}), gone: None}})
        )
        assert diagnosis.findings


def test_rules_do_not_look_at_names() -> None:
    for path in (ROOT / "ncu_toolkit" / "kernel" / "diagnosis" / "rules").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        for forbidden in ("launch.kernel", "launch.function", "context.rung", "context.family"):
            assert forbidden not in text, f"{path.name} looks at {forbidden}"


@pytest.mark.slow
def test_no_file_names_a_rule_of_another() -> None:
    """What others ask of a rule it declares. "unknown" is also an English word and goes unchecked;
    words for readers may say "see <title>". A switch names the causes that it is for: a rule does
    not know what can be tried (test_switches.py tests that those names exist). So does a cause
    of a step that their own kernels have too."""
    ids = set(bottleneck_ids()) - {"unknown"}
    titles = set(map(title, ids))
    for path in (ROOT / "ncu_toolkit").rglob("*.py"):
        own = path.stem.replace("_", "-") if path.parent.name == "rules" else ""
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        if path.parent.parts[-2:] == ("program", "rules"):
            continue
        assert not named & ids - {own}, f"{path.relative_to(ROOT)} names a rule"
        for words in (word for word in named if isinstance(word, str)):
            assert not set(re.findall(r"\bsee ([a-z0-9-]+)", words)) & ids, words
            if path.parent.name == "rules":
                for place in re.findall(r"\bsee ([A-Z].*?)(?:\.|$)", words):
                    assert place in titles, words
    for path in (ROOT / "ncu_toolkit").rglob("*.[hj]*"):
        quoted = re.findall(r"[\"'`]([a-z0-9-]+)[\"'`]", path.read_text(encoding="utf-8"))
        assert path.suffix == ".json" or not set(quoted) & ids, f"{path.name} names a rule"
