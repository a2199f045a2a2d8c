"""Spread of a wildfire over terrain, with wind that turns and humidity from an hourly forecast."""

import json
import math
import statistics
import time
import warnings

import numpy

numpy.row_stack = numpy.vstack
import numpy as np
from numba import cuda, float32, int32

warnings.simplefilter("ignore")

SIZE = 2048
SUBSTEPS = 8
HOURS = 6
STEPS_PER_HOUR = 25
STARTS = 24
WARMUP = 10
BLOCKS = 10
STEPS_PER_BLOCK = 50

UNBURNT = np.int32(0)
BURNING = np.int32(1)
BURNT = np.int32(2)
NO = np.int32(0)
YES = np.int32(1)
ZERO = np.float32(0.0)
ONE = np.float32(1.0)
IGNITION = np.float32(1.0)
COOLING = np.float32(0.995)
HEATING = np.float32(0.12)
WETNESS = np.float32(1.6)
CONSUMPTION = np.float32(0.02)
DRYING = np.float32(0.05)

TILE = 48  # cells along an edge that a block owns
OUTER = TILE + 2 * SUBSTEPS  # with the halo that the substeps of one step use up
THREADS = (OUTER, OUTER // 4)  # each thread holds four cells of a column
ROWS = OUTER // 4
GRID = ((SIZE + TILE - 1) // TILE, (SIZE + TILE - 1) // TILE)


@cuda.jit(device=True)
def fetch(state, heat, fuel, moisture, new_moisture, humidity, y, x, owned):
    """A cell, once its fine fuel has followed the humidity of the air."""
    now = NO
    warm = ZERO
    left = ZERO
    damp = ZERO
    if x >= 0 and y >= 0 and x < SIZE and y < SIZE:
        now = state[y, x]
        warm = heat[y, x]
        left = fuel[y, x]
        damp = moisture[y, x]
        damp += DRYING * (humidity[y, x] - damp)
        if owned:
            new_moisture[y, x] = damp
    return now, warm, left, damp


@cuda.jit(device=True)
def burn(cells, source, r, c, hot, now, warm, left, damp, slope_x, slope_y, y, x, wind_x, wind_y):
    """One substep of a cell: its state, heat and fuel."""
    then = now
    if now == UNBURNT:
        gained = ZERO
        if hot != NO:
            near = (
                cells[source, r - 1, c - 1]
                | cells[source, r - 1, c]
                | cells[source, r - 1, c + 1]
                | cells[source, r, c - 1]
                | cells[source, r, c + 1]
                | cells[source, r + 1, c - 1]
                | cells[source, r + 1, c]
                | cells[source, r + 1, c + 1]
            )
            if (near & BURNING) != NO:
                push_x = wind_x + slope_x[y, x]
                push_y = wind_y + slope_y[y, x]
                for dy in range(-1, 2):
                    for dx in range(-1, 2):
                        if cells[source, r + dy, c + dx] == BURNING:
                            gained += max(ZERO, ONE - float32(dx) * push_x - float32(dy) * push_y)
        dryness = max(ZERO, ONE - WETNESS * damp)
        warm = warm * COOLING + HEATING * gained * dryness
        if warm > IGNITION:
            then = BURNING
    elif now == BURNING:
        left = left - CONSUMPTION
        if left <= ZERO:
            then = BURNT
    return then, warm, left


@cuda.jit(max_registers=64)
def advance(
    state, new_state, heat, new_heat, fuel, new_fuel, moisture, new_moisture, humidity,
    slope_x, slope_y, wind_x, wind_y, history, row,
):
    """All substeps of a step for one tile, and its part of the survey."""
    cells = cuda.shared.array((2, OUTER, OUTER), int32)
    c = cuda.threadIdx.x
    r0 = cuda.threadIdx.y
    r1 = r0 + ROWS
    r2 = r1 + ROWS
    r3 = r2 + ROWS
    x = cuda.blockIdx.x * TILE + c - SUBSTEPS
    y0 = cuda.blockIdx.y * TILE + r0 - SUBSTEPS
    y1 = y0 + ROWS
    y2 = y1 + ROWS
    y3 = y2 + ROWS
    column = c >= SUBSTEPS and c < OUTER - SUBSTEPS and x < SIZE
    own0 = column and r0 >= SUBSTEPS and y0 < SIZE
    own1 = column and y1 < SIZE
    own2 = column and y2 < SIZE
    own3 = column and r3 < OUTER - SUBSTEPS and y3 < SIZE
    s0, h0, f0, m0 = fetch(state, heat, fuel, moisture, new_moisture, humidity, y0, x, own0)
    s1, h1, f1, m1 = fetch(state, heat, fuel, moisture, new_moisture, humidity, y1, x, own1)
    s2, h2, f2, m2 = fetch(state, heat, fuel, moisture, new_moisture, humidity, y2, x, own2)
    s3, h3, f3, m3 = fetch(state, heat, fuel, moisture, new_moisture, humidity, y3, x, own3)
    cells[0, r0, c] = s0
    cells[0, r1, c] = s1
    cells[0, r2, c] = s2
    cells[0, r3, c] = s3
    fire = NO
    if s0 == BURNING or s1 == BURNING or s2 == BURNING or s3 == BURNING:
        fire = YES
    hot = cuda.syncthreads_or(fire)
    inner = x >= 1 and x < SIZE - 1
    for s in range(1, SUBSTEPS + 1):
        # What is right shrinks by one cell at each side in each substep.
        source = (s + 1) & 1
        target = s & 1
        if inner and c >= s and c < OUTER - s:
            if r0 >= s and y0 >= 1 and y0 < SIZE - 1:
                s0, h0, f0 = burn(
                    cells, source, r0, c, hot, s0, h0, f0, m0, slope_x, slope_y, y0, x, wind_x, wind_y
                )
            if y1 >= 1 and y1 < SIZE - 1:
                s1, h1, f1 = burn(
                    cells, source, r1, c, hot, s1, h1, f1, m1, slope_x, slope_y, y1, x, wind_x, wind_y
                )
            if y2 >= 1 and y2 < SIZE - 1:
                s2, h2, f2 = burn(
                    cells, source, r2, c, hot, s2, h2, f2, m2, slope_x, slope_y, y2, x, wind_x, wind_y
                )
            if r3 < OUTER - s and y3 >= 1 and y3 < SIZE - 1:
                s3, h3, f3 = burn(
                    cells, source, r3, c, hot, s3, h3, f3, m3, slope_x, slope_y, y3, x, wind_x, wind_y
                )
        # Without a burning cell in the tile no state of it changes.
        if hot != NO:
            cells[target, r0, c] = s0
            cells[target, r1, c] = s1
            cells[target, r2, c] = s2
            cells[target, r3, c] = s3
            fire = NO
            if s0 == BURNING or s1 == BURNING or s2 == BURNING or s3 == BURNING:
                fire = YES
            hot = cuda.syncthreads_or(fire)
    if own0:
        new_state[y0, x] = s0
        new_heat[y0, x] = h0
        new_fuel[y0, x] = f0
    if own1:
        new_state[y1, x] = s1
        new_heat[y1, x] = h1
        new_fuel[y1, x] = f1
    if own2:
        new_state[y2, x] = s2
        new_heat[y2, x] = h2
        new_fuel[y2, x] = f2
    if own3:
        new_state[y3, x] = s3
        new_heat[y3, x] = h3
        new_fuel[y3, x] = f3
    # Cells that burn, and cells burnt, into their place in the history.
    b0 = NO
    b1 = NO
    b2 = NO
    b3 = NO
    e0 = NO
    e1 = NO
    e2 = NO
    e3 = NO
    if own0:
        if s0 == BURNING:
            b0 = YES
        elif s0 == BURNT:
            e0 = YES
    if own1:
        if s1 == BURNING:
            b1 = YES
        elif s1 == BURNT:
            e1 = YES
    if own2:
        if s2 == BURNING:
            b2 = YES
        elif s2 == BURNT:
            e2 = YES
    if own3:
        if s3 == BURNING:
            b3 = YES
        elif s3 == BURNT:
            e3 = YES
    burning = cuda.syncthreads_count(b0)
    burning += cuda.syncthreads_count(b1)
    burning += cuda.syncthreads_count(b2)
    burning += cuda.syncthreads_count(b3)
    burnt = cuda.syncthreads_count(e0)
    burnt += cuda.syncthreads_count(e1)
    burnt += cuda.syncthreads_count(e2)
    burnt += cuda.syncthreads_count(e3)
    if c == 0 and r0 == 0:
        if burning > 0:
            cuda.atomic.add(history, 2 * row, int32(burning))
        if burnt > 0:
            cuda.atomic.add(history, 2 * row + 1, int32(burnt))


def smooth_field(rng, waves):
    """A smooth random map with values about 0 .. 1."""
    y, x = np.meshgrid(
        np.linspace(0, 1, SIZE, dtype=np.float32),
        np.linspace(0, 1, SIZE, dtype=np.float32),
        indexing="ij",
    )
    field = np.zeros((SIZE, SIZE), np.float32)
    for _ in range(waves):
        a, b, phase = rng.uniform(-12, 12), rng.uniform(-12, 12), rng.uniform(0, 6.28)
        field += np.sin(np.float32(a) * x + np.float32(b) * y + np.float32(phase))
    return (0.5 + 0.25 * field / math.sqrt(waves)).astype(np.float32)


def main():
    rng = np.random.default_rng(7)
    height = smooth_field(rng, 5) * 60
    slope_y, slope_x = (np.ascontiguousarray(g, dtype=np.float32) for g in np.gradient(height))
    air = smooth_field(rng, 3)
    forecast = [
        (0.15 + 0.2 * air * (1 + 0.5 * math.sin(hour))).astype(np.float32) for hour in range(HOURS)
    ]
    start = np.zeros((SIZE, SIZE), np.int32)
    for y, x in rng.integers(100, SIZE - 100, (STARTS, 2)):
        start[y - 2 : y + 3, x - 2 : x + 3] = BURNING

    state = cuda.to_device(start)
    new_state = cuda.to_device(start)
    heat = cuda.to_device(np.zeros((SIZE, SIZE), np.float32))
    new_heat = cuda.device_array((SIZE, SIZE), np.float32)
    fuel = cuda.to_device((0.4 + 0.6 * smooth_field(rng, 6)).astype(np.float32))
    new_fuel = cuda.device_array((SIZE, SIZE), np.float32)
    moisture = cuda.to_device(forecast[0])
    new_moisture = cuda.device_array((SIZE, SIZE), np.float32)
    forecast = [cuda.to_device(humidity) for humidity in forecast]
    slope_x = cuda.to_device(slope_x)
    slope_y = cuda.to_device(slope_y)
    steps = WARMUP + BLOCKS * STEPS_PER_BLOCK
    history = cuda.to_device(np.zeros(2 * steps, np.int32))

    done = 0

    launch = advance[GRID, THREADS]

    def step():
        nonlocal state, new_state, heat, new_heat, fuel, new_fuel, moisture, new_moisture, done
        humidity = forecast[done // STEPS_PER_HOUR % HOURS]
        wind_x = np.float32(0.35 * math.cos(0.01 * done))
        wind_y = np.float32(0.35 * math.sin(0.01 * done))
        launch(
            state, new_state, heat, new_heat, fuel, new_fuel, moisture, new_moisture, humidity,
            slope_x, slope_y, wind_x, wind_y, history, done,
        )
        state, new_state = new_state, state
        heat, new_heat = new_heat, heat
        fuel, new_fuel = new_fuel, fuel
        moisture, new_moisture = new_moisture, moisture
        done += 1

    for _ in range(WARMUP):
        step()
    cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)
    burning, burnt = history.copy_to_host().reshape(steps, 2).T.astype(np.float64)
    us = statistics.median(times) * 1e6
    print(f"{1e6 / us:.0f} steps/s, {burnt[-1] / SIZE**2:.1%} of the land burnt")
    result = [burning.mean(), burnt[-1], float(heat.copy_to_host().mean(dtype=np.float64))]
    print(json.dumps({"program": "numba_wildfire", "steps": done, "us": us, "result": result}))


if __name__ == "__main__":
    main()
