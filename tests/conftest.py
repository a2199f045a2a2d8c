"""Tests neither use what an earlier run left on this machine nor leave anything behind."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest

from ncu_toolkit.core import cache
from ncu_toolkit.runs import history

_BEFORE = pytest.StashKey[str | None]()


def pytest_configure(config: pytest.Config) -> None:
    """One cache folder for a whole run: what one worker compiles, the others use."""
    if not hasattr(config, "workerinput"):
        config.stash[_BEFORE] = os.environ.get(cache.CACHE_VARIABLE)
        os.environ[cache.CACHE_VARIABLE] = tempfile.mkdtemp(prefix="ncu-toolkit-tests-")
        os.environ[history.VARIABLE] = f"{os.environ[cache.CACHE_VARIABLE]}/history"


def pytest_unconfigure(config: pytest.Config) -> None:
    if _BEFORE not in config.stash:
        return
    shutil.rmtree(os.environ.pop(cache.CACHE_VARIABLE), ignore_errors=True)
    if (before := config.stash[_BEFORE]) is not None:
        os.environ[cache.CACHE_VARIABLE] = before
