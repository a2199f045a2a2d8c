"""Idle time of the GPU by what the host does in it."""

from __future__ import annotations

from typing import Final

from ncu_toolkit.diagnosis.thresholds import Threshold

#: Microseconds.
OTHER_WORK: Final = Threshold(
    200.0,
    "a framework takes 10 to 50 us for an operator, and up to 100 while it is recorded: a longer pause is other work",
)
