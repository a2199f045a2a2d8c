"""What tests compile and read is kept in the cache folder, by content: workers share it, and so do
runs and checkouts. `make clean` deletes it."""

from __future__ import annotations

import os
import shutil
import signal
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import recorded
from browser import Browser, require_chromium

from ncu_toolkit.base.core import cache
from ncu_toolkit.base.core.guests import guest

_BEFORE = pytest.StashKey[str | None]()
#: Tests of a guest whose subject is another one as well: not collected where that is deleted.
collect_ignore = ["guests/cluster"] * (guest("tune.tune") is None)


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop("COLUMNS", None)  # of pytest's terminal; tables keep to it
    # a job in the background ignores these, and so would the children that tests signal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # child processes would compile the package again, a second each
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # the compiler that pyproject.toml names goes before any on this machine
    tools = sorted(Path(sysconfig.get_path("purelib"), "nvidia").glob("cu[0-9]*/bin"))[-1:]
    os.environ["PATH"] = os.pathsep.join([*map(str, tools), os.environ["PATH"]])
    if not hasattr(config, "workerinput"):
        config.stash[_BEFORE] = os.environ.get(cache.CACHE_VARIABLE)
        os.environ[cache.CACHE_VARIABLE] = str(recorded.CACHE)
        if history := guest("history.history"):
            os.environ[history.VARIABLE] = tempfile.mkdtemp(prefix="ncu-toolkit-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _BEFORE not in config.stash:
        return
    del os.environ[cache.CACHE_VARIABLE]
    if history := guest("history.history"):
        shutil.rmtree(os.environ.pop(history.VARIABLE), ignore_errors=True)
    if (before := config.stash[_BEFORE]) is not None:
        os.environ[cache.CACHE_VARIABLE] = before


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium for the tests of a module."""
    with Browser(require_chromium()) as opened:
        yield opened
