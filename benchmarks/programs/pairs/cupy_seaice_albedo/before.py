"""Surface energy of sea ice on a satellite grid.

For every cell: albedo from snow and melt ponds, absorbed short wave, net long
wave, turbulent fluxes, and the skin temperature moved towards balance.  One
step is one hour of the forcing; the grid stays on the GPU all the time.
"""
import json
import math
import statistics
import time

import cupy as cp

NAME = "cupy_seaice_albedo"
ROWS = 4096
COLUMNS = 6144
WARMUP = 6
BLOCKS = 8
PER_BLOCK = 4

STEFAN = 5.670e-8
EMISSIVITY = 0.97
ICE_ALBEDO = 0.58
SNOW_ALBEDO = 0.84
POND_ALBEDO = 0.27
EXCHANGE = 1.6e-3
AIR_HEAT = 1.29 * 1004.0
CONDUCT = 2.1
HEAT_CAPACITY = 6.0e5
FREEZING = 271.35
HOUR = 3600.0


def make_grid():
    """Snow depth, thickness, air temperature, wind and skin temperature."""
    rng = cp.random.default_rng(1893)
    shape = (ROWS, COLUMNS)
    grid = {
        "snow": 0.3 * rng.random(shape, dtype=cp.float32),
        "ice": 0.4 + 2.5 * rng.random(shape, dtype=cp.float32),
        "air": 258.0 + 14.0 * rng.random(shape, dtype=cp.float32),
        "wind": 2.0 + 9.0 * rng.random(shape, dtype=cp.float32),
        "skin": 262.0 + 6.0 * rng.random(shape, dtype=cp.float32),
    }
    return grid


def albedo_of(snow, skin):
    cover = 1.0 - cp.exp(-snow / 0.04)
    pond = 1.0 / (1.0 + cp.exp(-(skin - 272.5) / 0.5))
    bare = ICE_ALBEDO + (POND_ALBEDO - ICE_ALBEDO) * pond
    return cover * SNOW_ALBEDO + (1.0 - cover) * bare


def surface_step(skin, snow, ice, air, wind, sun, sky):
    """Skin temperature one hour later."""
    albedo = albedo_of(snow, skin)
    short = (1.0 - albedo) * sun
    squared = skin * skin
    long_out = EMISSIVITY * STEFAN * squared * squared
    air_squared = air * air
    long_in = sky * STEFAN * air_squared * air_squared
    sensible = AIR_HEAT * EXCHANGE * wind * (air - skin)
    conduction = CONDUCT * (FREEZING - skin) / (ice + 6.5 * snow)
    net = short + long_in - long_out + sensible + conduction
    warmed = skin + net * (HOUR / HEAT_CAPACITY)
    return cp.minimum(warmed, 273.15)


def forcing(hour):
    """Sun above the horizon and emissivity of the sky at an hour."""
    sun = max(0.0, 90.0 + 180.0 * math.sin(2.0 * math.pi * (hour - 6) / 24.0))
    sky = 0.74 + 0.08 * math.cos(2.0 * math.pi * hour / 24.0)
    return sun, sky


def advance(grid, hour):
    sun, sky = forcing(hour)
    grid["skin"] = surface_step(grid["skin"], grid["snow"], grid["ice"],
                                grid["air"], grid["wind"], sun, sky)


def main():
    grid = make_grid()
    hour = 0
    for _ in range(WARMUP):
        advance(grid, hour)
        hour += 1
    cp.cuda.Device().synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(PER_BLOCK):
            advance(grid, hour)
            hour += 1
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - begin) / PER_BLOCK)

    skin = grid["skin"]
    melting = float((skin > 273.0).mean())
    result = [float(skin.mean(dtype=cp.float64)), float(skin.std(dtype=cp.float64)), 1.0 + melting]
    print(json.dumps({"program": NAME, "steps": hour,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
