"""Ending a program that this process started."""

from __future__ import annotations

import signal
import sys

from ncu_toolkit.base.core.children import Child

WORDS = (sys.executable, "-c", "import time; time.sleep(99)")


def test_ending_one_child_leaves_others_alone() -> None:
    with Child(WORDS) as mine, Child(WORDS) as other:
        try:
            mine.end(signal.SIGTERM)
            assert mine.returncode == -signal.SIGTERM
            assert other.poll() is None
        finally:
            other.end(signal.SIGKILL)
