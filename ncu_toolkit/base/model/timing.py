"""Unprofiled timings of one rung at one size."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Timing:
    """Unprofiled timing of one rung at one size by CUDA events, in microseconds a repeat."""

    family: str
    rung: str
    size: str
    dtype: str
    dims: Mapping[str, int]
    parameters: Mapping[str, int]
    times_us: tuple[float, ...]
    cache: Literal["flushed", "warm"]
    flops: float
    compulsory_bytes: float
    verified_worst: float
    """max |out - ref| / bound of the verification that preceded the timing (<= 1)."""
    baseline_us: float | None = None
    """Median of the baseline interleaved with these repeats, in microseconds."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: str = ""
    energy_mj: float | None = None
    """Millijoules of one run, of runs back to back, where the GPU reports energy."""
    kernels: tuple[str, ...] = ()
    """Names of the kernels a library launched, where known."""
    rested: bool = False
    """Whether the GPU rested between runs, to avoid throttling (timing.measure_ladder)."""

    @property
    def median_us(self) -> float:
        ordered = sorted(self.times_us)
        n = len(ordered)
        return ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2

    def quantile_us(self, q: float) -> float:
        """The q-quantile (0-1) of the repeats by linear interpolation, in microseconds."""
        ordered = sorted(self.times_us)
        position = q * (len(ordered) - 1)
        low = math.floor(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (position - low)

    @property
    def spread(self) -> float:
        """(p90 - p10) / median."""
        return (self.quantile_us(0.9) - self.quantile_us(0.1)) / self.median_us

    @property
    def flop_rate(self) -> float:
        """Useful FLOP/s at the median."""
        return self.flops / (self.median_us * 1e-6)

    @property
    def byte_rate(self) -> float:
        """Compulsory bytes/s at the median."""
        return self.compulsory_bytes / (self.median_us * 1e-6)

    @property
    def pj_per_flop(self) -> float | None:
        """Picojoules for each useful operation; None without energy or operations."""
        return (
            self.energy_mj * 1e9 / self.flops if self.energy_mj is not None and self.flops else None
        )

    @property
    def pj_per_byte(self) -> float | None:
        """Picojoules for each compulsory byte."""
        return (
            self.energy_mj * 1e9 / self.compulsory_bytes
            if self.energy_mj is not None and self.compulsory_bytes
            else None
        )
