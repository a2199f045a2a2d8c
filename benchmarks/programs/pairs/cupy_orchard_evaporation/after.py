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


hourly_deficit = cp.ElementwiseKernel(
    "float32 height, float32 exposure, float32 shelter, float32 t_air, float32 humidity, float32 wind, "
    "float32 short_wave, float32 crop_factor, float32 irrigation",
    "float32 deficit",
    """
    float t = t_air - 0.0065f * (height - 420.0f);
    float pressure = 101.3f * powf((293.0f - 0.0065f * height) / 293.0f, 5.26f);
    float gamma = 0.000665f * pressure;

    float e_sat = 0.6108f * expf(17.27f * t / (t + 237.3f));
    float e_act = e_sat * (humidity / 100.0f);
    float slope = 4098.0f * e_sat / ((t + 237.3f) * (t + 237.3f));

    float kelvin = t + 273.16f;
    float kelvin2 = kelvin * kelvin;
    float clear = (0.75f + 2e-5f * height) * (short_wave * 1.2f + 0.05f);
    float cloud = 1.35f * fminf(short_wave * exposure / clear, 1.0f) - 0.35f;
    float long_wave = 2.043e-10f * kelvin2 * kelvin2 * (0.34f - 0.14f * sqrtf(e_act)) * fmaxf(cloud, 0.05f);
    float net = 0.77f * short_wave * exposure - long_wave;
    float ground = 0.1f * net;

    float u2 = wind * shelter;
    float top = 0.408f * slope * (net - ground) + gamma * 37.0f / (t + 273.0f) * u2 * (e_sat - e_act);
    float et0 = fmaxf(top / (slope + gamma * (1.0f + 0.34f * u2)), 0.0f);
    deficit = fminf(fmaxf(deficit + crop_factor * et0 - irrigation, 0.0f), 80.0f);
    """,
    "hourly_deficit")


class SoilWater:
    """Running deficit of the root zone, mm."""

    def __init__(self, shape):
        self.deficit = cp.full(shape, 12.0, dtype=cp.float32)

    def hour(self, ground, air, crop_factor, irrigation):
        hourly_deficit(*ground, *air, crop_factor, irrigation, self.deficit)


def main():
    height, exposure, shelter = terrain()
    soil = SoilWater(height.shape)
    hour = 8

    def step():
        soil.hour((height, exposure, shelter), weather(hour), crop_factor=0.95, irrigation=0.12)

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
