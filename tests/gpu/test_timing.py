"""Timing against each other, on a stopwatch that tells what it was given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ncu_toolkit.kernel.gpu import cuda, timing
from ncu_toolkit.kernel.ladder.problems import problem_for


class Watch:
    """Each run takes what its name says, in microseconds, in the order in which it was enqueued."""

    order: list[str] = []  # noqa: RUF012 (of one test)

    def __init__(self, cache: str) -> None:
        self.idle = True

    def enqueue(self, run: Any) -> float:
        assert self.idle, "the GPU is idle before every run"
        self.idle = False
        run()
        return float(TIMES[self.order[-1]])

    def elapsed_us(self, events: float) -> float:
        self.idle = True
        return events


TIMES = {"naive": 4000, "fast": 1000, "cublas": 900}


def runnable(name: str) -> Any:
    problem = problem_for("gemm_fp32")
    space = SimpleNamespace(problem=problem, case=problem.case("1024"))
    rung = SimpleNamespace(name=name, family="gemm_fp32")
    return SimpleNamespace(
        rung=rung,
        workspace=space,
        worst=0.25,
        parameters={"BM": 64},
        run=lambda: Watch.order.append(name),
    )


CAPPED = cuda.GpuState("580", 1900.0, 1980.0, 3201.0, 400.0, 50.0, "power cap")
FREE = cuda.GpuState("580", 1800.0)


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of each rest."""
    slept: list[float] = []
    monkeypatch.setattr(timing.time, "sleep", slept.append)
    return slept


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, rests: list[float]) -> Any:
    Watch.order = []
    monkeypatch.setattr(timing, "Stopwatch", Watch)
    monkeypatch.setattr(cuda, "sample", lambda: FREE)

    def measure(*names: str, **options: Any) -> dict[str, timing.Timing]:
        rungs = {name: runnable(name) for name in names}
        ticks: list[str] = []
        found = timing.measure_ladder(
            list(rungs.values()), rungs["cublas"], "warm", seconds=0.1, tick=ticks.append, **options
        )
        assert sorted(ticks) == sorted(names)
        return found

    return measure


def test_the_baseline_runs_beside_every_run(measured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "energy_mj", lambda: None)
    found = measured("naive", "fast", "cublas")
    assert {name: len(t.times_us) for name, t in found.items()} == {
        "naive": 25,
        "fast": 100,
        "cublas": 100,
    }
    assert {name: t.baseline_us for name, t in found.items()} == {
        "naive": 900,
        "fast": 900,
        "cublas": None,
    }
    assert {name: t.median_us for name, t in found.items()} == TIMES
    assert Watch.order[9:].count("naive") == 25  # after the warm-ups
    assert Watch.order[9:].count("cublas") == 25 + 100 + 100
    assert found["fast"].energy_mj is None
    assert found["fast"].pj_per_flop is None


@pytest.mark.usefixtures("measured")
def test_who_is_first_of_a_pair_changes_from_round_to_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda, "energy_mj", lambda: None)
    timing.measure_ladder([runnable("naive")], runnable("cublas"), "warm", seconds=0.1)
    pairs = "".join(name[0] for name in Watch.order[3:])  # after the warm-ups
    assert pairs == "nccn" * 12 + "nc"


def test_where_the_gpu_slows_itself_down_all_is_timed_again_with_rests(
    measured: Any, rests: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "energy_mj", lambda: None)
    states = iter([*[FREE] * 5, CAPPED, *[FREE] * 1000])
    monkeypatch.setattr(cuda, "sample", lambda: next(states))
    found = measured("naive", "cublas")
    assert {name: len(t.times_us) for name, t in found.items()} == {"naive": 25, "cublas": 100}
    assert all(t.rested and not t.throttle for t in found.values())
    assert rests[0] == timing.BREATHER
    assert sorted(set(rests[1:])) == pytest.approx([900e-6, 4000e-6])
    assert len(rests) == 1 + 2 * 25 + 100


def test_throttling_that_rests_do_not_end_is_kept_and_rests_are_bounded(
    measured: Any, rests: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "energy_mj", lambda: None)
    monkeypatch.setattr(cuda, "sample", lambda: CAPPED)
    monkeypatch.setitem(TIMES, "naive", 80_000)
    found = measured("naive", "cublas")
    assert {t.throttle for t in found.values()} == {"power cap"}
    assert len(found["naive"].times_us) == timing.SLOW_REPEATS
    assert max(rests[1:]) == timing.LONGEST_REST


def test_energy_is_measured_after_all_timing(
    measured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "energy_mj", lambda: 1.0)
    timed_runs = []

    def measure(run: Any, work_us: float) -> float | None:
        timed_runs.append(len(Watch.order))
        return 0.5 if work_us < 2000 else None

    monkeypatch.setattr(timing, "measure_energy", measure)
    found = measured("naive", "cublas")
    assert timed_runs == [len(Watch.order)] * 2
    assert found["cublas"].energy_mj == 500.0
    assert found["cublas"].pj_per_flop == pytest.approx(0.5e12 / (2 * 1024**3))
    assert found["cublas"].pj_per_byte == pytest.approx(0.5e12 / (3 * 4 * 1024**2))
    assert found["naive"].energy_mj is None
    timed_runs.clear()
    monkeypatch.setattr(cuda, "energy_mj", lambda: None)
    measured("naive", "cublas")
    assert timed_runs == []


def test_the_gpu_spins_longer_once_the_cpu_came_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    spun: list[int] = []
    event = SimpleNamespace(record=lambda: None, done=False)
    spin = SimpleNamespace(get_function=lambda _: lambda *launch: spun.append(int(launch[2][0])))
    monkeypatch.setattr(timing, "_tools", lambda: spin)
    monkeypatch.setattr(
        cuda, "cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(Event=lambda: event))
    )
    monkeypatch.setattr(cuda, "device", lambda: SimpleNamespace(sm_count=1, l2_bytes=16))
    watch = timing.Stopwatch("warm", 1_000_000)
    for late in (False, True, False, True, True):
        event.done = late
        watch.enqueue(lambda: None)
    assert spun == [1_000_000, 1_000_000, 2_000_000, 2_000_000, 3_200_000]
