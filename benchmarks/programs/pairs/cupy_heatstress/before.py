"""Heat-stress indices on a reanalysis grid with CuPy.

Per time slice: wet-bulb temperature (Stull 2011), vapour pressure, the apparent
temperature of Steadman and a simplified WBGT, then area-weighted means.
"""
import json
import time

import cupy as cp
import numpy as np

NLAT, NLON = 3600, 7200
WARMUP, BLOCKS, PER_BLOCK = 5, 8, 4


class Reanalysis:
    """A made-up atmosphere with plausible ranges; fields live on the GPU."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)

        def field(low, span):
            return cp.asarray(low + span * rng.random((NLAT, NLON), dtype=np.float32))

        lat = cp.linspace(-90, 90, NLAT, dtype=cp.float32)[:, None]
        self.t2m = 30.0 * cp.cos(lat * np.float32(np.pi / 180)) ** 2 + field(0.0, 6.0)
        self.rh = field(20.0, 75.0)
        self.wind = field(0.5, 9.0)
        weights = cp.cos(lat * np.float32(np.pi / 180))
        self.area = (weights / (weights.sum() * NLON))[:, 0]

    def slice_at(self, hour):
        # the diurnal shift is a scalar here; fields are reused
        return self.t2m, self.rh, self.wind, np.float32(3.0 * np.sin(2 * np.pi * hour / 24))


def wet_bulb(t, rh):
    """Stull's regression, degrees C, rh in percent."""
    return (t * cp.arctan(0.151977 * cp.sqrt(rh + 8.313659))
            + cp.arctan(t + rh)
            - cp.arctan(rh - 1.676331)
            + 0.00391838 * rh * cp.sqrt(rh) * cp.arctan(0.023101 * rh)
            - 4.686035)


def vapour_pressure(t, rh):
    return rh / 100.0 * 6.105 * cp.exp(17.27 * t / (237.7 + t))


def apparent_temperature(t, e, wind):
    return t + 0.33 * e - 0.70 * wind - 4.0


def wbgt_shade(t, e):
    return 0.567 * t + 0.393 * e + 3.94


def heat_indices(t2m, rh, wind, shift):
    t = t2m + shift
    tw = wet_bulb(t, rh)
    e = vapour_pressure(t, rh)
    at = apparent_temperature(t, e, wind)
    wbgt = wbgt_shade(t, e)
    stress = cp.maximum(at, wbgt) * 0.5 + tw * 0.5
    return tw, stress


def area_mean(field, area):
    return (field.sum(axis=1) * area).sum()


def process_hour(atmosphere, hour):
    t2m, rh, wind, shift = atmosphere.slice_at(hour)
    tw, stress = heat_indices(t2m, rh, wind, shift)
    return area_mean(tw, atmosphere.area), area_mean(stress, atmosphere.area)


def main():
    atmosphere = Reanalysis(seed=2003)
    stream = cp.cuda.get_current_stream()
    daily_tw, daily_stress = [], []
    hour = 0
    block_us = []
    for block in range(BLOCKS + 1):
        n = WARMUP if block == 0 else PER_BLOCK
        t0 = time.perf_counter()
        for _ in range(n):
            tw, stress = process_hour(atmosphere, hour)
            daily_tw.append(tw)
            daily_stress.append(stress)
            hour += 1
        stream.synchronize()
        if block > 0:
            block_us.append((time.perf_counter() - t0) / n * 1e6)

    mean_tw = float(np.mean([float(v) for v in daily_tw]))
    mean_stress = float(np.mean([float(v) for v in daily_stress]))
    print(f"{hour} hours: wet bulb {mean_tw:.3f} C, stress {mean_stress:.3f} C")
    print(json.dumps({"program": "cupy_heatstress", "steps": hour,
                      "us": float(np.median(block_us)), "result": [mean_tw, mean_stress]}))


if __name__ == "__main__":
    main()
