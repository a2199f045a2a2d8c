"""Roofs of a device: what it was measured to reach in the same run, beside what its data say it
could.

Device peaks come from clocks and widths that the report holds; figures per SM and cycle
are in hardware/specs.py. A GPU that is not there has no such roof: nothing is assumed for it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ncu_toolkit.diagnosis import figures
from ncu_toolkit.hardware.specs import spec
from ncu_toolkit.model import Device, Profile
from ncu_toolkit.model.run import Ceilings

#: Below this utilisation the peak implied by traffic over utilisation is too coarse to draw.
_LEAST_UTILISATION: Final = 0.05

RoofName = Literal["fp32", "tensor", "dram", "l2", "l1"]


@dataclass(frozen=True)
class Roof:
    """One ceiling. `rate` in FLOP/s (fp32, tensor) or B/s (dram, l2, l1); `measured` tells a
    measurement from a peak computed for the device."""

    name: RoofName
    label: str
    rate: float
    measured: bool
    how: str

    @property
    def words(self) -> str:
        """For a sentence: "the measured FP32 roof"."""
        names = {"fp32": "FP32", "tensor": "tensor", "dram": "DRAM", "l2": "L2", "l1": "L1"}
        return (
            f"the measured {names[self.name]} roof"
            if self.measured
            else f"the device's {names[self.name]} peak"
        )

    @property
    def unit(self) -> str:
        return "FLOP/s" if self.name in ("fp32", "tensor") else "B/s"


def roofs(device: Device, ceilings: Ceilings, profiles: Sequence[Profile] = ()) -> tuple[Roof, ...]:
    """Every roof that is known for a device, measured ones first. L2's comes from the profiles' own
    traffic and utilisation."""
    measured: tuple[tuple[RoofName, str, float | None, str], ...] = (
        (
            "fp32",
            "FP32, measured",
            ceilings.fp32,
            "a loop of independent FFMA instructions, in this run",
        ),
        (
            "tensor",
            "Tensor, measured",
            ceilings.tensor,
            "the library's largest 16-bit matrix product, in this run",
        ),
        (
            "dram",
            "DRAM, measured",
            ceilings.copy,
            "a large device-to-device copy in this run, bytes read and written",
        ),
    )
    found = [Roof(name, label, rate, True, how) for name, label, rate, how in measured if rate]
    clock = device.max_sm_hz
    where = f"{device.sm_count} SMs at {clock / 1e9:.2f} GHz"
    lanes, tensor, l1_bytes = (
        spec(device.cc, what) for what in ("fp32", "tensor_fp32", "l1_bytes")
    )
    if clock and device.sm_count and lanes:
        found.append(
            Roof(
                "fp32",
                "FP32, device peak",
                2.0 * lanes * device.sm_count * clock,
                False,
                f"2 x {lanes:.0f} a cycle, {where}",
            )
        )
    if clock and device.sm_count and tensor:
        found.append(
            Roof(
                "tensor",
                "Tensor (16-bit), device peak",
                tensor * device.sm_count * clock,
                False,
                f"{tensor:.0f} a cycle, {where}",
            )
        )
    if device.max_memory_hz and device.memory_bus_bits:
        rate = 2.0 * device.max_memory_hz * device.memory_bus_bits / 8
        found.append(
            Roof(
                "dram",
                "DRAM, device peak",
                rate,
                False,
                f"{device.memory_bus_bits} bits, twice a cycle, at {device.max_memory_hz / 1e9:.2f} GHz",
            )
        )
    l2 = _implied_l2(profiles)
    if l2:
        found.append(
            Roof(
                "l2",
                "L2, profiler's peak",
                l2,
                False,
                "sectors looked up, over the profiler's fraction of peak (median of the profiles)",
            )
        )
    if clock and device.sm_count and l1_bytes:
        found.append(
            Roof(
                "l1",
                "L1, device peak",
                l1_bytes * device.sm_count * clock,
                False,
                f"{l1_bytes:.0f} bytes a cycle, {where}",
            )
        )
    return tuple(found)


def best(known: Sequence[Roof], name: RoofName) -> Roof | None:
    """The roof to hold a figure against: the measured one where there is one."""
    return next((roof for roof in known if roof.name == name), None)


def _implied_l2(profiles: Sequence[Profile]) -> float | None:
    rates = []
    for profile in profiles:
        sectors, used, time_us = (
            profile.value("l2_sectors"),
            profile.value("l2_utilization"),
            profile.duration_us,
        )
        if sectors and time_us and used is not None and used >= _LEAST_UTILISATION:
            rates.append(sectors * figures.SECTOR_BYTES / (time_us * 1e-6) / used)
    return statistics.median(rates) if rates else None
