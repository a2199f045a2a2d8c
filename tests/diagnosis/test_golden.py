"""No verdict on record changes unseen: `python tests/golden.py --update` writes those of today."""

from __future__ import annotations

import golden
import pytest


@pytest.mark.parametrize("name", sorted(golden.sets()))
def test_verdicts_on_record(name: str) -> None:
    found = golden.difference(name, golden.sets()[name])
    assert not found, "\n".join(["python tests/golden.py --update", *found[:60]])
