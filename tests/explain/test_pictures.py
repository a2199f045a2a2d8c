"""What pictures of launches show."""

from __future__ import annotations

from dataclasses import replace

import pytest
import render_fixture

from ncu_toolkit.base.model import Series
from ncu_toolkit.kernel.explain.sections import over_time


def test_loads_lie_on_one_axis_of_time() -> None:
    """A series of half the time takes half the places, and short peaks are in the figures."""
    profile = render_fixture.profile("naive", 1024, 0)
    busy = (1.0,) * 500 + (0.5,) * 500
    half = (0.25,) * 249 + (0.75,)
    sampled = (
        Series("issue slots", 1.0, busy),
        Series("L2", 2.0, half),
        Series("DRAM", 1.0, (0.1,)),
    )
    found = over_time(replace(profile, timeline=sampled))
    assert found
    assert [row[0].text for row in found.rows] == ["issue slots", "L2"]
    assert found.columns[1].label == "0 to 1.00 ms"
    first, second = (row[1].course for row in found.rows)
    assert first
    assert second
    assert (len(first.values), len(second.values), first.places) == (240, 120, 240)
    assert (first.values[0], first.values[-1]) == (1.0, 0.5)
    assert sum(second.values) / 120 == pytest.approx(sum(half) / 250, abs=0.01)
    assert [row[3].text for row in found.rows] == ["100 %", "75 %"]
    assert found.note.endswith("Too few samples: DRAM.")


def test_a_tail_is_reported() -> None:
    """Of the unit that is busiest on average; a short end is none."""
    profile = render_fixture.profile("naive", 1024, 0)

    def note(end: int) -> str:
        busy = Series("issue slots", 1.0, (0.9,) * (1000 - end) + (0.1,) * end)
        made = over_time(replace(profile, timeline=(busy, Series("L2", 1.0, (0.2,) * 1000))))
        assert made
        return made.note

    assert "Tail: issue slots below half of the mean for the last 50.0 µs (5.0 %)." in note(50)
    assert "Tail" not in note(10)
    assert "Tail" not in note(0)
