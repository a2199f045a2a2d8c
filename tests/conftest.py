"""Nothing that a test does depends on what was read on this machine before, or is left behind for
what is read after it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from ncu_toolkit.core import cache


@pytest.fixture(scope="session", autouse=True)
def own_cache() -> Iterator[None]:
    """A cache folder for these tests alone."""
    before = os.environ.get(cache.CACHE_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-tests-") as folder:
        os.environ[cache.CACHE_VARIABLE] = folder
        yield
    if before is None:
        del os.environ[cache.CACHE_VARIABLE]
    else:
        os.environ[cache.CACHE_VARIABLE] = before
