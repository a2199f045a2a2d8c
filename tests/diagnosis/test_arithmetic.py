"""How a gain was computed, as the report says it: a learner can follow every line to the sum."""

from __future__ import annotations

import re

import diagnosis_cases as cases
import pytest

from ncu_toolkit.base.model import Finding
from ncu_toolkit.kernel.diagnosis import time_model
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.time_model import Removal

STALLS = {
    "selected": 1.0,
    "not_selected": 1.0,
    "mio_throttle": 4.0,
    "long_scoreboard": 2.0,
    "barrier": 1.5,
    "lg_throttle": 0.5,
}
ITEM = re.compile(r"([\d.]+) % of a warp's time, (?:which shrinks by ([\d.]+) %|unchanged)")


def told(removal: Removal, **metrics: float) -> tuple[str, ...]:
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
        Removal(
            "with fewer loads",
            stalls={"mio_throttle": 0.4},
            loads={"l1_data": 0.5},
            instructions=0.75,
        ),
        Removal("with more warps", parallelism=2.0),
        Removal("with barriers gone", stalls={"barrier": 0.0}),
        Removal("spread evenly", balance=0.6),
    ],
    ids=lambda removal: removal.what,
)
def test_items_add_up_to_what_stays(removal: Removal) -> None:
    lines = told(removal, l1_data_pipe_active=0.6)
    items = [
        (float(found[1]), float(found[2] or 0)) for line in lines if (found := ITEM.search(line))
    ]
    assert sum(share for share, _ in items) == pytest.approx(100, abs=0.5), (
        "every reason is in one of the lines"
    )
    stays = float(re.search(r"In total ([\d.]+)", " ".join(lines))[1])  # type: ignore[index]
    assert sum(share * (1 - gone / 100) for share, gone in items) == pytest.approx(stays, abs=0.5)


def test_each_item_says_why_it_goes() -> None:
    lines = told(
        Removal("x", stalls={"mio_throttle": 0.4}, loads={"l1_data": 0.5}, instructions=0.75),
        l1_data_pipe_active=0.8,
    )
    assert "removed by the change" in next(
        line for line in lines if line.startswith("MIO throttle")
    )
    queue = next(line for line in lines if line.startswith("long scoreboard"))
    assert "the queue for the data stage of L1 and shared memory" in queue
    assert "gets 50.0 % less work" in queue
    assert "which now waits less" in next(line for line in lines if line.startswith("barrier"))
    assert "25.0 % of them go" in next(
        line for line in lines if line.startswith("Issuing and per-instruction stalls")
    )
    assert any("of work (50.0 % less than now)" in line for line in lines)


def test_the_gain_is_told_for_one_cause_and_not_as_a_bound() -> None:
    last = told(Removal("x", stalls={"mio_throttle": 0.1}))[-1]
    assert "if only this is fixed" in last
    assert "at most" not in last


def test_where_the_size_of_a_change_comes_from_is_told() -> None:
    assert told(Removal("x", stalls={"mio_throttle": 0.1}, basis="Because."))[1] == "Because."
    finding = diagnose(cases.build(cases.read("shared-instruction-pressure"))).primary
    assert finding.bottleneck == "shared-instruction-pressure"
    fewer = re.search(r"With ([\d.]+ %) fewer", " ".join(finding.arithmetic))
    assert fewer is not None
    assert any(
        fewer[1] in line and line.startswith(("Accesses move", "Doubling", "A thread computes"))
        for line in finding.arithmetic
    )


def test_a_chain_of_launches_is_divided_in_view() -> None:
    chain = {
        "metrics": {"duration": 800.0},
        "context": {"launch_count": 8, "flops": None, "compulsory_bytes": None},
    }
    finding = next(
        f for f in diagnose(cases.build(chain)).findings if f.bottleneck == "launch-overhead"
    )
    assert isinstance(finding, Finding)
    line = next(line for line in finding.arithmetic if "/ 8 =" in line)
    useful, each = re.search(r"\(([\d.]+) µs \+", line), re.search(r"/ 8 = ([\d.]+)", line)
    assert useful is not None
    assert each is not None
    assert (float(useful[1]) + 1.2 + 2.2) / 8 == pytest.approx(float(each[1]), rel=0.01)
    kept = re.search(r"again take ([\d.]+)", finding.arithmetic[-2])
    assert kept is not None, "its arithmetic on floats takes longer than an eighth of the pass"
    assert float(kept[1]) > float(each[1])
    assert f"/ {kept[1]}" in finding.arithmetic[-1]
