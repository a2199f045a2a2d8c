"""How a gain was computed, as the report says it: a learner can follow every line to the sum."""

from __future__ import annotations

import re

import diagnosis_cases as cases
import pytest

from ncu_toolkit.kernel.diagnosis import time_model
from ncu_toolkit.kernel.diagnosis.time_model import Removal

STALLS = {
    "selected": 1.0, "not_selected": 1.0, "mio_throttle": 4.0, "long_scoreboard": 2.0, "barrier": 1.5,
    "lg_throttle": 0.5,
}  # fmt: skip
ITEM = re.compile(r"([\d.]+) % of a warp's time, (?:which shrinks by ([\d.]+) %|unchanged)")


def prediction_lines(removal: Removal, **metrics: float) -> tuple[str, ...]:
    quiet = {
        name: 0.01
        for name in cases.METRICS
        if name.endswith(("_active", "_utilization")) and name != "constant_cache_active"
    }
    return (
        time_model.build(cases.build({"metrics": {**quiet, **metrics}, "stalls": STALLS}))
        .without(removal)
        .arithmetic
    )


@pytest.mark.parametrize(
    "removal",
    [
        Removal("with fewer loads", stalls={"mio_throttle": 0.4}, loads={"l1_data": 0.5}, instructions=0.75,),
        Removal("with more warps", parallelism=2.0),
        Removal("with barriers gone", stalls={"barrier": 0.0}),
        Removal("spread evenly", balance=0.6),
    ],
    ids=lambda removal: removal.what,
)  # fmt: skip
def test_items_add_up_to_what_stays(removal: Removal) -> None:
    lines = prediction_lines(removal, l1_data_pipe_active=0.6)
    items = [
        (float(found[1]), float(found[2] or 0)) for line in lines if (found := ITEM.search(line))
    ]
    assert sum(share for share, _ in items) == pytest.approx(100, abs=0.5), (
        "every reason is in one of the lines"
    )
    stays = float(re.search(r"In total ([\d.]+)", " ".join(lines))[1])  # type: ignore[index]
    assert sum(share * (1 - gone / 100) for share, gone in items) == pytest.approx(stays, abs=0.5)
