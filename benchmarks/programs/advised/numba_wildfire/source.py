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

TILE = 32  # cells along the edge of a block's tile
HALO = SUBSTEPS  # fire gets no further than this in a step
WIDE = TILE + 2 * HALO
THREADS = (32, 8)
GRID = (SIZE // TILE, SIZE // TILE)

# Planes of the one array of fields; pairs are read and written in turns.
HEAT = 0
FUEL = 2
MOISTURE = 4
SLOPE_X = 6
SLOPE_Y = 7
FORECAST = 8


@cuda.jit
def advance(fields, states, active, history, wind_x, wind_y, done):
    """A whole step on a tile: moisture, SUBSTEPS of spread (with a halo, in shared memory), survey."""
    now_s = cuda.shared.array((2, WIDE, WIDE), int8)
    heat_s = cuda.shared.array((WIDE, WIDE), float32)
    fuel_s = cuda.shared.array((WIDE, WIDE), float32)
    dry_s = cuda.shared.array((WIDE, WIDE), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    x0 = cuda.blockIdx.x * TILE
    y0 = cuda.blockIdx.y * TILE
    old = done & 1
    new = 1 - old
    air = FORECAST + done // STEPS_PER_HOUR % HOURS

    # State of tile and halo; does anything burn there?
    fire = int32(0)
    for ly in range(ty, WIDE, 8):
        gy = y0 + ly - HALO
        for lx in range(tx, WIDE, 32):
            gx = x0 + lx - HALO
            s = int8(UNBURNT)
            if gx >= 0 and gy >= 0 and gx < SIZE and gy < SIZE:
                s = states[old, gy, gx]
            now_s[0, ly, lx] = s
            if s == BURNING:
                fire = int32(1)

    # Fine fuel follows the humidity of the air (own cells; four rows a thread).
    x = x0 + tx
    y = y0 + ty
    m0 = fields[MOISTURE + old, y, x]
    m1 = fields[MOISTURE + old, y + 8, x]
    m2 = fields[MOISTURE + old, y + 16, x]
    m3 = fields[MOISTURE + old, y + 24, x]
    a0 = fields[air, y, x]
    a1 = fields[air, y + 8, x]
    a2 = fields[air, y + 16, x]
    a3 = fields[air, y + 24, x]
    fields[MOISTURE + new, y, x] = m0 + DRYING * (a0 - m0)
    fields[MOISTURE + new, y + 8, x] = m1 + DRYING * (a1 - m1)
    fields[MOISTURE + new, y + 16, x] = m2 + DRYING * (a2 - m2)
    fields[MOISTURE + new, y + 24, x] = m3 + DRYING * (a3 - m3)

    was_active = active[cuda.blockIdx.y, cuda.blockIdx.x]
    anything = cuda.syncthreads_or(fire)
    burning = 0
    burnt = 0

    if anything == 0:
        # No fire can reach the tile in this step: warm cells cool, all else stays. The other buffers
        # already hold the same unless the last step changed them.
        for r in range(0, TILE, 8):
            s = now_s[0, HALO + ty + r, HALO + tx]
            burnt += cuda.syncthreads_count(int32(s == BURNT))
            if was_active != 0:
                states[new, y + r, x] = s
                fields[FUEL + new, y + r, x] = fields[FUEL + old, y + r, x]
            if s == UNBURNT or was_active != 0:
                warm = fields[HEAT + old, y + r, x]
                if s == UNBURNT and warm > ZERO:
                    for _ in range(SUBSTEPS):
                        warm = warm * COOLING
                    fields[HEAT + new, y + r, x] = warm
                elif was_active != 0:
                    fields[HEAT + new, y + r, x] = warm
        if was_active != 0 and tx == 0 and ty == 0:
            active[cuda.blockIdx.y, cuda.blockIdx.x] = 0
    else:
        for ly in range(ty, WIDE, 8):
            gy = y0 + ly - HALO
            for lx in range(tx, WIDE, 32):
                gx = x0 + lx - HALO
                if gx >= 0 and gy >= 0 and gx < SIZE and gy < SIZE:
                    heat_s[ly, lx] = fields[HEAT + old, gy, gx]
                    fuel_s[ly, lx] = fields[FUEL + old, gy, gx]
                    m = fields[MOISTURE + old, gy, gx]
                    m = m + DRYING * (fields[air, gy, gx] - m)
                    dry_s[ly, lx] = max(ZERO, ONE - WETNESS * m)
        cuda.syncthreads()
        for k in range(SUBSTEPS):
            p = k & 1
            q = 1 - p
            # Cells nearer the edge than this are no longer known, nor needed.
            low = k + 1
            high = WIDE - 1 - k
            for ly in range(low + ty, high, 8):
                gy = y0 + ly - HALO
                for lx in range(low + tx, high, 32):
                    gx = x0 + lx - HALO
                    now = now_s[p, ly, lx]
                    then = now
                    if gx >= 1 and gy >= 1 and gx < SIZE - 1 and gy < SIZE - 1:
                        if now == UNBURNT:
                            # Burning is the only state with the lowest bit set.
                            near = (
                                now_s[p, ly - 1, lx - 1]
                                | now_s[p, ly - 1, lx]
                                | now_s[p, ly - 1, lx + 1]
                                | now_s[p, ly, lx - 1]
                                | now_s[p, ly, lx + 1]
                                | now_s[p, ly + 1, lx - 1]
                                | now_s[p, ly + 1, lx]
                                | now_s[p, ly + 1, lx + 1]
                            ) & 1
                            if near != 0:
                                push_x = wind_x + fields[SLOPE_X, gy, gx]
                                push_y = wind_y + fields[SLOPE_Y, gy, gx]
                                gained = ZERO
                                for dy in range(-1, 2):
                                    for dx in range(-1, 2):
                                        if now_s[p, ly + dy, lx + dx] == BURNING:
                                            gained += max(
                                                ZERO,
                                                ONE - float32(dx) * push_x - float32(dy) * push_y,
                                            )
                                dryness = dry_s[ly, lx]
                                warm = heat_s[ly, lx] * COOLING + HEATING * gained * dryness
                                heat_s[ly, lx] = warm
                                if warm > IGNITION:
                                    then = int8(BURNING)
                            else:
                                heat_s[ly, lx] = heat_s[ly, lx] * COOLING
                        elif now == BURNING:
                            left = fuel_s[ly, lx] - CONSUMPTION
                            fuel_s[ly, lx] = left
                            if left <= ZERO:
                                then = int8(BURNT)
                    now_s[q, ly, lx] = then
            cuda.syncthreads()
        last = SUBSTEPS & 1
        for r in range(0, TILE, 8):
            s = now_s[last, HALO + ty + r, HALO + tx]
            states[new, y + r, x] = s
            fields[HEAT + new, y + r, x] = heat_s[HALO + ty + r, HALO + tx]
            fields[FUEL + new, y + r, x] = fuel_s[HALO + ty + r, HALO + tx]
            burning += cuda.syncthreads_count(int32(s == BURNING))
            burnt += cuda.syncthreads_count(int32(s == BURNT))
        if was_active == 0 and tx == 0 and ty == 0:
            active[cuda.blockIdx.y, cuda.blockIdx.x] = 1

    # Cells that burn, and cells burnt, into their place in the history.
    if tx == 0 and ty == 0:
        if burning > 0:
            cuda.atomic.add(history, 2 * done, int32(burning))
        if burnt > 0:
            cuda.atomic.add(history, 2 * done + 1, int32(burnt))


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

    fields = np.zeros((FORECAST + HOURS, SIZE, SIZE), np.float32)
    fields[FUEL : FUEL + 2] = (0.4 + 0.6 * smooth_field(rng, 6)).astype(np.float32)
    fields[MOISTURE : MOISTURE + 2] = forecast[0]
    fields[SLOPE_X] = slope_x
    fields[SLOPE_Y] = slope_y
    for hour in range(HOURS):
        fields[FORECAST + hour] = forecast[hour]
    fields = cuda.to_device(fields)
    states = cuda.to_device(np.stack([start, start]))
    active = cuda.to_device(np.zeros((SIZE // TILE, SIZE // TILE), np.int32))
    steps = WARMUP + BLOCKS * STEPS_PER_BLOCK
    history = cuda.to_device(np.zeros(2 * steps, np.int32))
    launch = advance[GRID, THREADS]

    done = 0

    def step():
        nonlocal done
        wind_x = np.float32(0.35 * math.cos(0.01 * done))
        wind_y = np.float32(0.35 * math.sin(0.01 * done))
        launch(fields, states, active, history, wind_x, wind_y, done)
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
    heat = fields.copy_to_host()[HEAT + (done & 1)]
    result = [burning.mean(), burnt[-1], float(heat.mean(dtype=np.float64))]
    print(json.dumps({"program": "numba_wildfire", "steps": done, "us": us, "result": result}))


if __name__ == "__main__":
    main()
