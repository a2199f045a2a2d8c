"""Reference evapotranspiration (FAO-56 Penman-Monteith) on a raster of orchards, hour by hour.

Weather comes as coarse hourly values, adjusted with the height and the exposure of each raster cell.
"""
import json
import math
import statistics
import time

import cupy as cp
import numpy as np

NAME = "cupy_orchard_evaporation"
ROWS, COLS = 3072, 4096
WARMUP, BLOCKS, PER_BLOCK = 6, 6, 6


def terrain(seed=71):
    rng = np.random.default_rng(seed)
    y = cp.linspace(0, 9, ROWS, dtype=cp.float32)[:, None]
    x = cp.linspace(0, 12, COLS, dtype=cp.float32)[None, :]
    rough, exposure, shelter = (cp.asarray(rng.random((ROWS, COLS), dtype=np.float32)) for _ in range(3))
    height = 420 + 160 * cp.sin(y) * cp.cos(0.7 * x) + 8 * rough
    exposure = 0.85 + 0.3 * exposure     # of short-wave radiation
    shelter = 0.6 + 0.4 * shelter        # of wind, behind hedges
    return height, exposure, shelter


def weather(hour):
    """Air temperature (C), humidity (%), wind (m/s), short-wave (MJ/m2/h) at the station of 420 m."""
    day = math.sin((hour % 24 - 6) / 24 * 2 * math.pi)
    return (17.0 + 8.0 * day, 62.0 - 20.0 * day, 2.2 + 0.9 * day, 0.1 + 2.6 * max(day, 0.0))


def saturation(t):
    """Saturation vapour pressure over water, kPa."""
    return 0.6108 * cp.exp(17.27 * t / (t + 237.3))


def hourly_et0(height, exposure, shelter, t_air, humidity, wind, short_wave):
    t = t_air - 0.0065 * (height - 420.0)
    pressure = 101.3 * ((293.0 - 0.0065 * height) / 293.0) ** 5.26
    gamma = 0.000665 * pressure

    e_sat = saturation(t)
    e_act = e_sat * (humidity / 100.0)
    slope = 4098.0 * e_sat / ((t + 237.3) * (t + 237.3))

    kelvin = t + 273.16
    clear = (0.75 + 2e-5 * height) * (short_wave * 1.2 + 0.05)
    cloud = 1.35 * cp.minimum(short_wave * exposure / clear, 1.0) - 0.35
    long_wave = 2.043e-10 * kelvin ** 4 * (0.34 - 0.14 * cp.sqrt(e_act)) * cp.maximum(cloud, 0.05)
    net = 0.77 * short_wave * exposure - long_wave
    ground = 0.1 * net

    u2 = wind * shelter
    top = 0.408 * slope * (net - ground) + gamma * 37.0 / (t + 273.0) * u2 * (e_sat - e_act)
    return cp.maximum(top / (slope + gamma * (1.0 + 0.34 * u2)), 0.0)


class SoilWater:
    """Running deficit of the root zone, mm."""

    def __init__(self, shape):
        self.deficit = cp.full(shape, 12.0, dtype=cp.float32)

    def hour(self, et0, crop_factor, irrigation):
        self.deficit += crop_factor * et0
        self.deficit -= irrigation
        cp.clip(self.deficit, 0.0, 80.0, out=self.deficit)


def main():
    height, exposure, shelter = terrain()
    soil = SoilWater(height.shape)
    hour = 8

    def step():
        et0 = hourly_et0(height, exposure, shelter, *weather(hour))
        soil.hour(et0, crop_factor=0.95, irrigation=0.12)

    for _ in range(WARMUP):
        step()
        hour += 1
    cp.cuda.Device().synchronize()

    spans = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            step()
            hour += 1
        cp.cuda.Device().synchronize()
        spans.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    d = soil.deficit
    print(json.dumps({"program": NAME, "steps": WARMUP + BLOCKS * PER_BLOCK, "us": statistics.median(spans),
                      "result": [float(d.mean(dtype=cp.float64)), float(d.std(dtype=cp.float64)), float(d.max())]}))


if __name__ == "__main__":
    main()
