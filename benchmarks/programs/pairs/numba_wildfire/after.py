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

THREADS = (32, 8)
GRID = (SIZE // 32, SIZE // 8)


@cuda.jit
def exchange_moisture(moisture, humidity):
    """Fine fuel follows the humidity of the air."""
    x, y = cuda.grid(2)
    if x < moisture.shape[1] and y < moisture.shape[0]:
        moisture[y, x] += DRYING * (humidity[y, x] - moisture[y, x])


@cuda.jit
def spread(state, new_state, heat, fuel, moisture, slope_x, slope_y, wind_x, wind_y):
    x, y = cuda.grid(2)
    if x < 1 or y < 1 or x >= state.shape[1] - 1 or y >= state.shape[0] - 1:
        return
    now = state[y, x]
    then = now
    if now == UNBURNT:
        push_x = wind_x + slope_x[y, x]
        push_y = wind_y + slope_y[y, x]
        gained = ZERO
        for dy in range(-1, 2):
            for dx in range(-1, 2):
                if state[y + dy, x + dx] == BURNING:
                    gained += max(ZERO, ONE - float32(dx) * push_x - float32(dy) * push_y)
        dryness = max(ZERO, ONE - WETNESS * moisture[y, x])
        warm = heat[y, x] * COOLING + HEATING * gained * dryness
        heat[y, x] = warm
        if warm > IGNITION:
            then = BURNING
    elif now == BURNING:
        left = fuel[y, x] - CONSUMPTION
        fuel[y, x] = left
        if left <= ZERO:
            then = BURNT
    new_state[y, x] = then


@cuda.jit
def survey(state, history, row):
    """Cells that burn, and cells burnt, into their place in the history."""
    counts = cuda.shared.array(2, int32)
    if cuda.threadIdx.x < 2:
        counts[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    burning = 0
    burnt = 0
    for y in range(cuda.blockIdx.x, state.shape[0], cuda.gridDim.x):
        for x in range(cuda.threadIdx.x, state.shape[1], cuda.blockDim.x):
            if state[y, x] == BURNING:
                burning += 1
            elif state[y, x] == BURNT:
                burnt += 1
    cuda.atomic.add(counts, 0, int32(burning))
    cuda.atomic.add(counts, 1, int32(burnt))
    cuda.syncthreads()
    if cuda.threadIdx.x < 2:
        cuda.atomic.add(history, 2 * row + cuda.threadIdx.x, counts[cuda.threadIdx.x])


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
    fuel = cuda.to_device((0.4 + 0.6 * smooth_field(rng, 6)).astype(np.float32))
    moisture = cuda.to_device(forecast[0])
    slope_x = cuda.to_device(slope_x)
    slope_y = cuda.to_device(slope_y)
    hourly_humidity = [cuda.to_device(hour) for hour in forecast]
    steps = WARMUP + BLOCKS * STEPS_PER_BLOCK
    history = cuda.to_device(np.zeros(2 * steps, np.int32))

    done = 0

    def step():
        nonlocal state, new_state, done
        humidity = hourly_humidity[done // STEPS_PER_HOUR % HOURS]
        exchange_moisture[GRID, THREADS](moisture, humidity)
        wind_x = np.float32(0.35 * math.cos(0.01 * done))
        wind_y = np.float32(0.35 * math.sin(0.01 * done))
        for _ in range(SUBSTEPS):
            spread[GRID, THREADS](
                state, new_state, heat, fuel, moisture, slope_x, slope_y, wind_x, wind_y
            )
            state, new_state = new_state, state
        survey[256, 256](state, history, done)
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
