"""The time model: its arithmetic, what it refuses to claim, and what it does without inputs."""

from __future__ import annotations

from dataclasses import replace

import diagnosis_cases as cases
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncu_toolkit.base.model import Profile
from ncu_toolkit.kernel.diagnosis import time_model
from ncu_toolkit.kernel.diagnosis.time_model import Removal, queue_share

FRACTIONS = st.floats(0.0, 1.0)


#: Nothing else near: each test makes one thing busy.
QUIET = {
    name: 0.01
    for name in cases.METRICS
    if name.endswith(("_active", "_utilization")) and name != "constant_cache_active"
}


#: What says that memory behind the SMs is used.
MEMORY_USE = (
    "l1_fill_active", "l2_to_sm_active", "l2_utilization", "l2_atomic_unit_active", "dram_utilization",
    "dram_bus_active",
)  # fmt: skip


def profile(stalls: dict[str, float] | None = None, **metrics: float | None) -> Profile:
    few = {"grid": (1056, 1, 1)}
    return cases.build(
        {
            "metrics": {**QUIET, **metrics},
            "stalls": cases.STALLS if stalls is None else stalls,
            "launch": few,
        }
    )


def test_blocks_need_the_time_in_which_the_gpu_starts_them() -> None:
    """As many blocks as a GPU starts in the launch's cycles keep it busy all the time."""
    started = {"launch": {"grid": (84_000, 1, 1)}, "metrics": {**QUIET, "sm_cycles": 100_000.0}}
    model = time_model.build(cases.build(started))
    assert model.utilization("blocks") == pytest.approx(1.0)
    assert model.least("blocks") == pytest.approx(100_000)
    assert model.least("issue") == pytest.approx(model.loads["issue"])


def test_a_stall_removed_is_amdahls_law() -> None:
    model = time_model.build(profile({"selected": 1.0, "long_scoreboard": 9.0}, issue_active=0.05))
    prediction = model.without(Removal("without loads", stalls={"long_scoreboard": 0.0}))
    assert prediction.limit == "waiting"
    assert prediction.speedup == pytest.approx(10.0)


def test_a_stall_is_not_time_when_schedulers_issue() -> None:
    """Half of each warp's time is a stall, but the issue slots are full: removing it gains
    nothing."""
    model = time_model.build(profile({"selected": 1.0, "long_scoreboard": 1.0}, issue_active=0.95))
    prediction = model.without(Removal("without loads", stalls={"long_scoreboard": 0.0}))
    assert prediction.speedup == 1.0
    assert prediction.limit == "issue"


def test_the_next_resource_takes_over() -> None:
    model = time_model.build(
        profile({"selected": 1.0, "long_scoreboard": 9.0}, issue_active=0.05, dram_utilization=0.6)
    )
    prediction = model.without(Removal("without loads", stalls={"long_scoreboard": 0.0}))
    assert prediction.limit == "dram"
    # Memory has nothing to do while a launch starts and ends, so all of its work falls into the
    # rest.
    assert prediction.speedup == pytest.approx(
        1 / (0.6 / model.reach("dram") + model.ramp), rel=1e-6
    )
    assert any("device memory" in line for line in prediction.arithmetic)


def test_relief_of_a_saturated_unit_shortens_every_queue_before_it() -> None:
    stalls = {"selected": 1.0, "mio_throttle": 5.0, "long_scoreboard": 4.0}
    busy = time_model.build(profile(stalls, l1_data_pipe_active=1.0, issue_active=0.1)).without(
        Removal("x", stalls={"mio_throttle": 0.2}, loads={"l1_data": 0.2})
    )
    idle = time_model.build(profile(stalls, l1_data_pipe_active=0.1, issue_active=0.1)).without(
        Removal("x", stalls={"mio_throttle": 0.2}, loads={"l1_data": 0.2})
    )
    assert busy.speedup > idle.speedup > 1


def test_queue_share_is_that_of_fixed_service() -> None:
    """M/D/1: waiting u / (2 (1 - u)) of service 1, so u / (2 - u) of the whole."""
    for u in (0.0, 0.3, 0.6, 0.9):
        waiting = u / (2 * (1 - u))
        assert queue_share(u) == pytest.approx(waiting / (waiting + 1))
    assert queue_share(1.0) == 1.0


def test_barriers_mirror_the_waiting_of_siblings() -> None:
    stalls = {"selected": 1.0, "long_scoreboard": 5.0, "barrier": 5.0}
    model = time_model.build(profile(stalls, issue_active=0.05))
    assert model.without(Removal("x", stalls={"long_scoreboard": 0.0})).speedup == pytest.approx(
        11.0
    )


def test_spreading_work_needs_no_stalls() -> None:
    model = time_model.build(profile({}, sm_active_cycles=170_000, issue_active=None))
    assert model.stalls == {}
    assert model.without(Removal("spread", balance=0.1)).speedup == pytest.approx(10.0, rel=0.02)


def test_without_stalls_nothing_is_claimed_for_a_unit_that_is_not_busy() -> None:
    model = time_model.build(profile({}, issue_active=None))
    prediction = model.without(Removal("x", loads={"lsu": 0.1}))
    assert prediction.speedup == 1.0
    assert prediction.limit == "unknown"


def test_without_stalls_a_busy_unit_bounds_the_time() -> None:
    model = time_model.build(profile({}, l1_data_pipe_active=0.95, issue_active=None))
    assert model.without(Removal("x", loads={"l1_data": 0.1})).speedup > 4


@pytest.mark.parametrize(
    ("blocks", "idle_us", "least"),
    [(1, 0.0, 3538 + 1 / 0.84), (1000, 0.0, 3538 + 1000 / 0.84), (1000, 2.9, 2.9 * 1700)],
)
def test_no_kernel_is_shorter_than_a_launch_without_work(
    blocks: int, idle_us: float, least: float
) -> None:
    """By the GPU and the grid (data/launches.toml), else as the file shows."""
    found = profile(
        {"selected": 0.01, "long_scoreboard": 9.0},
        duration=6.0,
        sm_cycles=10200,
        sm_active_cycles=10000,
        sm_active_cycles_max=10050,
        issue_active=0.01,
        global_load_sectors=4.0,
        **dict.fromkeys(MEMORY_USE, 0.0),
    )
    launch = replace(found.launch, grid=(blocks, 1, 1), idle_us=idle_us)
    model = time_model.build(replace(found, launch=launch))
    prediction = model.without(Removal("x", stalls={"long_scoreboard": 0.0}))
    assert prediction.limit == time_model.LAUNCH
    assert prediction.speedup == pytest.approx(10200 / least, rel=0.01)
    fewer = Removal("x", stalls={"long_scoreboard": 0.0}, loads={"blocks": 0.0})
    assert (model.without(fewer).speedup > 1.01 * prediction.speedup) == (blocks > 1)


@pytest.mark.parametrize("gone", ["sm_cycles", "sm_clock", "duration"])
def test_time_from_what_is_left(gone: str) -> None:
    whole, part = time_model.build(profile()), time_model.build(profile(**{gone: None}))
    assert part.bounds_us()["issue"] == pytest.approx(whole.bounds_us()["issue"], rel=0.01)


def test_no_time_at_all_still_gives_shares() -> None:
    model = time_model.build(
        profile(
            {"selected": 1.0, "long_scoreboard": 9.0},
            sm_cycles=None,
            sm_clock=None,
            duration=None,
            issue_active=0.05,
        )
    )
    assert model.bounds_us() == {}
    assert model.without(Removal("x", stalls={"long_scoreboard": 0.0})).speedup == pytest.approx(
        10.0
    )


@settings(deadline=None)
@given(
    long=FRACTIONS,
    mio=FRACTIONS,
    issue=FRACTIONS,
    dram=FRACTIONS,
    data=FRACTIONS,
    keep=FRACTIONS,
    instructions=FRACTIONS,
    balance=st.floats(0.01, 1.0),
)
def test_predictions_are_bounds(
    long: float,
    mio: float,
    issue: float,
    dram: float,
    data: float,
    keep: float,
    instructions: float,
    balance: float,
) -> None:
    """Never slower than now, never infinite, and never below what a resource needs at its peak."""
    stalls = {"selected": 1.0, "long_scoreboard": 20 * long, "mio_throttle": 20 * mio}
    model = time_model.build(
        profile(stalls, issue_active=issue, dram_utilization=dram, l1_data_pipe_active=data)
    )
    removal = Removal(
        "x",
        stalls={"long_scoreboard": keep, "mio_throttle": keep},
        loads={"l1_data": keep},
        instructions=instructions,
        balance=balance,
    )
    prediction = model.without(removal)
    assert 1.0 <= prediction.speedup < float("inf")
    assert prediction.saved <= 1 - dram * 0.999
    assert prediction.arithmetic


@settings(deadline=None)
@given(a=FRACTIONS, b=FRACTIONS)
def test_removing_more_never_saves_less(a: float, b: float) -> None:
    low, high = sorted((a, b))
    model = time_model.build(
        profile({"selected": 1.0, "long_scoreboard": 5.0, "wait": 2.0}, issue_active=0.1)
    )
    more, less = (
        model.without(Removal("x", stalls={"long_scoreboard": keep})).speedup
        for keep in (low, high)
    )
    assert more >= less
