"""No verdict on record, and no output, changes unseen: `python tests/golden.py --update` writes those
of today."""

from __future__ import annotations

import golden
import pytest


@pytest.mark.parametrize("name", sorted(golden.goldens()))
def test_goldens(name: str) -> None:
    found = golden.difference(name, golden.goldens()[name]())
    assert not found, "\n".join(["python tests/golden.py --update", *found[:60]])
