"""No verdict on record, and no output, changes unseen: `python tests/golden.py --update` writes those
of today."""

from __future__ import annotations

import golden
import pytest

from ncu_toolkit.base.metrics import registry


@pytest.mark.parametrize("name", sorted(golden.goldens()))
def test_goldens(name: str) -> None:
    found = golden.difference(name, golden.goldens()[name]())
    assert not found, "\n".join(["python tests/golden.py --update", *found[:60]])


def test_a_new_metric_is_a_column_that_its_golden_may_lack() -> None:
    name = sorted(registry.REGISTRY)[0]
    unit = registry.REGISTRY[name].unit
    now = [f'kernel,"{name} ({unit})",other', '"f(int, int)",1,2']
    assert golden.without_new_columns("kernel,other", now) == ["kernel,other", '"f(int, int)",2']
    assert golden.without_new_columns(now[0].replace('"', ""), now) == now
    assert golden.without_new_columns(f"kernel,{name} ({unit})", now) == now, "no metric's column"


def test_a_rule_that_rules_out_otherwise_is_named() -> None:
    before = ["low-occupancy tail-effect", "one.ncu-rep 0.0 r1a0", "one.ncu-rep 0.1 r1--"]
    now = [*before[:2], "one.ncu-rep 0.1 r1a7"]
    assert [line for line in golden.in_words(now) if line not in golden.in_words(before)] == [
        "one.ncu-rep 0.1 tail-effect: abstained (7)"
    ]
    assert golden.in_words([]) == []
