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

CELLS = SIZE * SIZE
HEAT, FUEL, MOISTURE, SLOPE_X, SLOPE_Y = (n * CELLS for n in range(5))
THREADS = 1024  # one block of this size fits on each multiprocessor: all blocks run at once
COLUMNS = SIZE // THREADS
ROWS = 16
UNITS = COLUMNS * (SIZE // ROWS)


@cuda.jit(device=True)
def wait_for_grid(arrived, goal):
    """Barrier of all blocks; all of them are resident (one for each multiprocessor)."""
    cuda.threadfence()
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(arrived, 0, int32(1))
        while cuda.atomic.compare_and_swap(arrived, int32(-1), int32(-1)) < goal:
            pass
        cuda.threadfence()
    cuda.syncthreads()
    cuda.threadfence()


@cuda.jit(max_registers=64)
def advance(states, fields, forecast, hour, wind_x, wind_y, history, row, arrived):
    """Moisture, all substeps and the survey of a step.

    Each thread keeps its cells: columns of ROWS cells in the units of its block.
    """
    thread = cuda.threadIdx.x
    counts = cuda.shared.array(2, int32)
    if thread < 2:
        counts[thread] = 0
    cuda.syncthreads()

    # Fine fuel follows the humidity of the air.
    air = hour * CELLS
    for unit in range(cuda.blockIdx.x, UNITS, cuda.gridDim.x):
        x = unit % COLUMNS * THREADS + thread
        top = unit // COLUMNS * ROWS
        for y in range(top, top + ROWS):
            i = y * SIZE + x
            fields[MOISTURE + i] += DRYING * (forecast[air + i] - fields[MOISTURE + i])

    burning = 0
    burnt = 0
    goal = row * (SUBSTEPS - 1) * cuda.gridDim.x
    for k in range(SUBSTEPS):
        if k > 0:
            goal += cuda.gridDim.x
            wait_for_grid(arrived, goal)
        source = (k & 1) * CELLS
        target = CELLS - source
        last = k == SUBSTEPS - 1
        for unit in range(cuda.blockIdx.x, UNITS, cuda.gridDim.x):
            x = unit % COLUMNS * THREADS + thread
            top = max(unit // COLUMNS * ROWS, 1)
            bottom = min(unit // COLUMNS * ROWS + ROWS, SIZE - 1)
            if x >= 1 and x < SIZE - 1:
                # BURNING is the only odd state: bit 0 of three cells says if one burns.
                p = source + top * SIZE + x
                above = (states[p - SIZE - 1] | states[p - SIZE] | states[p - SIZE + 1]) & 1
                now = states[p]
                here = (states[p - 1] | now | states[p + 1]) & 1
                for y in range(top, bottom):
                    i = y * SIZE + x
                    p = source + i
                    following = states[p + SIZE]
                    warmth = fields[HEAT + i]
                    below = (states[p + SIZE - 1] | following | states[p + SIZE + 1]) & 1
                    then = int32(now)
                    if now == UNBURNT:
                        if (above | here | below) != 0:
                            push_x = wind_x + fields[SLOPE_X + i]
                            push_y = wind_y + fields[SLOPE_Y + i]
                            gained = ZERO
                            for dy in range(-1, 2):
                                for dx in range(-1, 2):
                                    if states[p + dy * SIZE + dx] == BURNING:
                                        gained += max(
                                            ZERO, ONE - float32(dx) * push_x - float32(dy) * push_y
                                        )
                            dryness = max(ZERO, ONE - WETNESS * fields[MOISTURE + i])
                            warm = warmth * COOLING + HEATING * gained * dryness
                            fields[HEAT + i] = warm
                            if warm > IGNITION:
                                then = int32(BURNING)
                        elif warmth != ZERO:
                            fields[HEAT + i] = warmth * COOLING
                    elif now == BURNING:
                        left = fields[FUEL + i] - CONSUMPTION
                        fields[FUEL + i] = left
                        if left <= ZERO:
                            then = int32(BURNT)
                    states[target + i] = then
                    if last:
                        if then == BURNING:
                            burning += 1
                        elif then == BURNT:
                            burnt += 1
                    above = here
                    here = below
                    now = following

    # Cells that burn, and cells burnt, into their place in the history (the border never burns).
    if burning > 0:
        cuda.atomic.add(counts, 0, int32(burning))
    if burnt > 0:
        cuda.atomic.add(counts, 1, int32(burnt))
    cuda.syncthreads()
    if thread < 2:
        cuda.atomic.add(history, 2 * row + thread, counts[thread])


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

    fuel = (0.4 + 0.6 * smooth_field(rng, 6)).astype(np.float32)
    heat = np.zeros((SIZE, SIZE), np.float32)
    states = cuda.to_device(np.concatenate([start.ravel(), start.ravel()]))
    fields = cuda.to_device(
        np.concatenate([f.ravel() for f in (heat, fuel, forecast[0], slope_x, slope_y)])
    )
    forecast = cuda.to_device(np.concatenate([f.ravel() for f in forecast]))
    steps = WARMUP + BLOCKS * STEPS_PER_BLOCK
    history = cuda.to_device(np.zeros(2 * steps, np.int32))
    arrived = cuda.to_device(np.zeros(1, np.int32))
    assert SUBSTEPS % 2 == 0  # a step ends in the first half of the states
    run = advance[cuda.get_current_device().MULTIPROCESSOR_COUNT, THREADS]

    done = 0

    def step():
        nonlocal done
        hour = done // STEPS_PER_HOUR % HOURS
        wind_x = np.float32(0.35 * math.cos(0.01 * done))
        wind_y = np.float32(0.35 * math.sin(0.01 * done))
        run(states, fields, forecast, hour, wind_x, wind_y, history, done, arrived)
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
    heat = fields.copy_to_host()[:CELLS]
    us = statistics.median(times) * 1e6
    print(f"{1e6 / us:.0f} steps/s, {burnt[-1] / SIZE**2:.1%} of the land burnt")
    result = [burning.mean(), burnt[-1], float(heat.mean(dtype=np.float64))]
    print(json.dumps({"program": "numba_wildfire", "steps": done, "us": us, "result": result}))


if __name__ == "__main__":
    main()
