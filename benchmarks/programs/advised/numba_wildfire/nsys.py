"""Spread of a wildfire over terrain, with wind that turns and humidity from an hourly forecast."""

import json
import math
import statistics
import time
import warnings

import numpy

numpy.row_stack = numpy.vstack
import numpy as np
from numba import cuda, float32, int8, int32

warnings.simplefilter("ignore")

SIZE = 2048
SUBSTEPS = 8
HOURS = 6
STEPS_PER_HOUR = 25
STARTS = 24
WARMUP = 10
BLOCKS = 10
STEPS_PER_BLOCK = 50

UNBURNT = 0
BURNING = 1
BURNT = 2
ZERO = np.float32(0.0)
ONE = np.float32(1.0)
IGNITION = np.float32(1.0)
COOLING = np.float32(0.995)
HEATING = np.float32(0.12)
WETNESS = np.float32(1.6)
CONSUMPTION = np.float32(0.02)
DRYING = np.float32(0.05)

TILE = 32
HALO = SUBSTEPS
EXTENT = TILE + 2 * HALO
ROWS = 8
THREADS = (EXTENT, ROWS)
GRID = (SIZE // TILE, SIZE // TILE)


@cuda.jit
def advance(
    state,
    new_state,
    heat,
    new_heat,
    fuel,
    new_fuel,
    moisture,
    new_moisture,
    humidity,
    slope_x,
    slope_y,
    wind_x,
    wind_y,
    history,
    row,
):
    """A whole step of one tile: moisture, all substeps (with a halo of as many cells), survey."""
    cells = cuda.shared.array((2, EXTENT, EXTENT), int8)
    warmth = cuda.shared.array((EXTENT, EXTENT), float32)
    stock = cuda.shared.array((EXTENT, EXTENT), float32)
    dry = cuda.shared.array((EXTENT, EXTENT), float32)
    tally = cuda.shared.array(3, int32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    x = cuda.blockIdx.x * TILE + tx - HALO
    top = cuda.blockIdx.y * TILE - HALO
    if ty == 0 and tx < 3:
        tally[tx] = 0
    cuda.syncthreads()

    found = 0
    for j in range(ty, EXTENT, ROWS):
        y = top + j
        cell = int8(0)
        if x >= 0 and x < SIZE and y >= 0 and y < SIZE:
            cell = state[y, x]
        cells[0, j, tx] = cell
        cells[1, j, tx] = cell
        if cell == BURNING:
            found = 1
    if found == 1:
        tally[2] = 1
    cuda.syncthreads()

    burning = 0
    burnt = 0
    own_column = tx >= HALO and tx < HALO + TILE
    if tally[2] == 0:
        # No fire can reach this tile within the step: it only cools.
        if own_column:
            for j in range(HALO + ty, HALO + TILE, ROWS):
                y = top + j
                damp = moisture[y, x]
                new_moisture[y, x] = damp + DRYING * (humidity[y, x] - damp)
                warm = heat[y, x]
                cell = cells[0, j, tx]
                if cell == UNBURNT:
                    for _ in range(SUBSTEPS):
                        warm = warm * COOLING
                elif cell == BURNT:
                    burnt += 1
                new_heat[y, x] = warm
                new_fuel[y, x] = fuel[y, x]
                new_state[y, x] = cell
    else:
        for j in range(ty, EXTENT, ROWS):
            y = top + j
            if x >= 0 and x < SIZE and y >= 0 and y < SIZE:
                damp = moisture[y, x]
                damp = damp + DRYING * (humidity[y, x] - damp)
                warmth[j, tx] = heat[y, x]
                stock[j, tx] = fuel[y, x]
                dry[j, tx] = max(ZERO, ONE - WETNESS * damp)
                if own_column and j >= HALO and j < HALO + TILE:
                    new_moisture[y, x] = damp
        for k in range(SUBSTEPS):
            a = k & 1
            b = 1 - a
            if tx >= 1 and tx < EXTENT - 1 and x >= 1 and x < SIZE - 1:
                for j in range(ty, EXTENT, ROWS):
                    y = top + j
                    if j >= 1 and j < EXTENT - 1 and y >= 1 and y < SIZE - 1:
                        now = int32(cells[a, j, tx])
                        then = now
                        if now == UNBURNT:
                            near = (
                                cells[a, j - 1, tx - 1]
                                | cells[a, j - 1, tx]
                                | cells[a, j - 1, tx + 1]
                                | cells[a, j, tx - 1]
                                | cells[a, j, tx + 1]
                                | cells[a, j + 1, tx - 1]
                                | cells[a, j + 1, tx]
                                | cells[a, j + 1, tx + 1]
                            )
                            gained = ZERO
                            if near & 1:
                                push_x = wind_x + slope_x[y, x]
                                push_y = wind_y + slope_y[y, x]
                                for dy in range(-1, 2):
                                    for dx in range(-1, 2):
                                        if cells[a, j + dy, tx + dx] == BURNING:
                                            gained += max(
                                                ZERO,
                                                ONE - float32(dx) * push_x - float32(dy) * push_y,
                                            )
                            warm = warmth[j, tx] * COOLING + HEATING * gained * dry[j, tx]
                            warmth[j, tx] = warm
                            if warm > IGNITION:
                                then = int32(BURNING)
                        elif now == BURNING:
                            left = stock[j, tx] - CONSUMPTION
                            stock[j, tx] = left
                            if left <= ZERO:
                                then = int32(BURNT)
                        cells[b, j, tx] = then
            cuda.syncthreads()
        # The number of substeps is even, so the last state lies in cells[0].
        if own_column:
            for j in range(HALO + ty, HALO + TILE, ROWS):
                y = top + j
                cell = cells[0, j, tx]
                if cell == BURNING:
                    burning += 1
                elif cell == BURNT:
                    burnt += 1
                new_heat[y, x] = warmth[j, tx]
                new_fuel[y, x] = stock[j, tx]
                new_state[y, x] = cell

    if burning > 0:
        cuda.atomic.add(tally, 0, int32(burning))
    if burnt > 0:
        cuda.atomic.add(tally, 1, int32(burnt))
    cuda.syncthreads()
    if ty == 0 and tx < 2:
        if tally[tx] > 0:
            cuda.atomic.add(history, 2 * row + tx, tally[tx])


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
    start = np.zeros((SIZE, SIZE), np.int8)
    for y, x in rng.integers(100, SIZE - 100, (STARTS, 2)):
        start[y - 2 : y + 3, x - 2 : x + 3] = BURNING

    state = cuda.to_device(start)
    new_state = cuda.to_device(start)
    heat = cuda.to_device(np.zeros((SIZE, SIZE), np.float32))
    new_heat = cuda.to_device(np.zeros((SIZE, SIZE), np.float32))
    fuel = cuda.to_device((0.4 + 0.6 * smooth_field(rng, 6)).astype(np.float32))
    new_fuel = cuda.device_array((SIZE, SIZE), np.float32)
    moisture = cuda.to_device(forecast[0])
    new_moisture = cuda.device_array((SIZE, SIZE), np.float32)
    forecast = [cuda.to_device(hour) for hour in forecast]
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
            state,
            new_state,
            heat,
            new_heat,
            fuel,
            new_fuel,
            moisture,
            new_moisture,
            humidity,
            slope_x,
            slope_y,
            wind_x,
            wind_y,
            history,
            done,
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
