"""Energy of a launch, on a GPU that is a clock and a queue."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ncu_toolkit.kernel.gpu import cuda, timing


@dataclass
class Machine:
    """A GPU that draws `watts` while it works and `rest` else, whose counter moves every `step`
    seconds, and a host that pays for each launch."""

    work_us: float
    watts: float = 500.0
    rest: float = 100.0
    step: float = 0.025
    host_us: float = 2.0
    now: float = 0.3171
    busy_until: float = 0.3171
    busy: list[tuple[float, float]] = field(default_factory=list)

    def run(self) -> None:
        self.now += self.host_us * 1e-6
        start = max(self.busy_until, self.now)
        self.busy_until = start + self.work_us * 1e-6
        if self.busy and math.isclose(self.busy[-1][1], start):
            start, _ = self.busy.pop()
        self.busy.append((start, self.busy_until))

    def fence(self) -> Callable[[], bool]:
        end = self.busy_until

        def done() -> bool:
            self.now += 20e-6
            return self.now >= end

        return done

    def counter(self) -> float:
        self.now += 100e-6
        until = math.floor(self.now / self.step) * self.step
        worked = sum(max(0.0, min(end, until) - start) for start, end in self.busy)
        return round(1e3 * (self.rest * until + (self.watts - self.rest) * worked), 3)

    def clock(self) -> float:
        return self.now

    def wait(self, _what: str) -> None:
        self.now = max(self.now, self.busy_until)


def measured(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> float | None:
    monkeypatch.setattr(cuda, "synchronize", machine.wait)
    watch = {"counter": machine.counter, "fence": machine.fence, "clock": machine.clock}
    return timing.measure_energy(machine.run, machine.work_us, **watch)


@pytest.mark.parametrize(("work_us", "step"), [(20, 0.02), (3_000, 0.025), (250_000, 0.1)])
def test_power_between_two_steps_times_the_time_of_a_launch(
    work_us: float, step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(work_us, step=step)
    found = measured(machine, monkeypatch)
    assert found == pytest.approx(500 * work_us * 1e-6, rel=0.03)


def test_launches_that_leave_the_gpu_idle_have_no_energy_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert measured(Machine(3, host_us=8), monkeypatch) is None


def test_a_counter_that_stands_still_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(500, step=5.0)
    assert measured(machine, monkeypatch) is None
    assert machine.now < 2.5, "seconds"


def test_a_gpu_that_does_not_count_launches_nothing() -> None:
    def run() -> None:
        raise AssertionError("launched")

    assert timing.measure_energy(run, 10.0, counter=lambda: None) is None


def test_samples_are_combined() -> None:
    states = [
        cuda.GpuState("580", 1900.0, 1980.0, 3201.0, 300.0, 40.0, "power cap"),
        cuda.GpuState("580", 1700.0, 1980.0, 3201.0, 650.0, 45.0, ""),
        cuda.GpuState("580", 1800.0, 1980.0, None, 500.0, 44.0, "power cap, power brake"),
    ]
    found = cuda.combined(states)
    assert (found.sm_mhz, found.power_w, found.temperature_c, found.memory_mhz) == (
        1800.0,
        650.0,
        45.0,
        3201.0,
    )
    assert found.throttle == "power cap, power brake"
    assert cuda.combined([]) == cuda.GpuState()
