"""docs/notebook.ipynb runs, and shows what it showed."""

from __future__ import annotations

import json
import re

import execute
import pytest

pytestmark = pytest.mark.slow


def test_the_notebook_shows_what_it_showed() -> None:
    kept = json.loads(execute.NOTEBOOK.read_text(encoding="utf-8"))
    now = execute.executed()
    assert execute.texts(now) == execute.texts(kept), "run `make docs`"
    assert sum(map(len, execute.texts(kept))) >= 6, "a notebook without outputs tells nothing"
    assert not re.search(r"/(?:tmp|home|root|work|usr)/", json.dumps(now)), "a path of this machine"
