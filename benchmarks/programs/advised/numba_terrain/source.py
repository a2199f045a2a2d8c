"""Clear-sky insolation of a mountain terrain with cast shadows.

For a set of sun positions over a day, each cell of the elevation model marches
towards the sun until the ray leaves the relief, then adds its direct share.
"""

import numpy

numpy.row_stack = numpy.vstack

import json
import math
import time

import numpy as np
from numba import cuda

SIDE = 4096
CELL = 20.0
REACH = 96
SUNS = 6
THREADS = (32, 8)
BLOCKS = (SIDE // THREADS[0], SIDE // THREADS[1])

# Border around the relief (wider than a ray's reach), and the cells of a coarse block.
PAD = 104
PITCH = SIDE + 2 * PAD
COARSE = 4
TILES = PITCH // COARSE
CHUNKS = REACH // 8
HALF = REACH // 2

ZERO = np.float32(0.0)
ONE = np.float32(1.0)
TWO = np.float32(2.0)
THREE = np.float32(3.0)
FIVE = np.float32(5.0)
QUARTER = np.float32(1.0 / COARSE)
CHUNK_MIDDLE = np.float32(4.5)
RAY_MIDDLE = np.float32((REACH + 1) / 2)


def make_terrain(side, seed):
    """Fractal relief: octaves of randomly oriented, warped waves."""
    rng = np.random.default_rng(seed)
    y, x = np.meshgrid(
        np.linspace(0.0, 1.0, side, dtype=np.float32),
        np.linspace(0.0, 1.0, side, dtype=np.float32),
        indexing="ij",
    )
    dem = np.zeros((side, side), dtype=np.float32)
    for octave in range(7):
        freq = 2.0 ** (octave + 2.5)
        angle, phase = rng.uniform(0.0, 2.0 * math.pi, size=2)
        u = np.float32(freq * math.cos(angle)) * x + np.float32(freq * math.sin(angle)) * y
        v = np.float32(-freq * math.sin(angle)) * x + np.float32(freq * math.cos(angle)) * y
        wave = np.sin(u + np.float32(phase) + np.float32(0.7) * np.sin(v))
        dem += np.float32(900.0 * 0.55**octave) * (np.float32(1.0) - np.abs(wave))
    return dem


def dilate(blocks, radius):
    """Maximum over a square window of blocks, radius blocks to each side."""
    for axis in (0, 1):
        n = blocks.shape[axis]
        width = [(0, 0), (0, 0)]
        width[axis] = (radius, radius)
        padded = np.pad(blocks, width, constant_values=np.float32(-1e30))
        best = None
        for k in range(2 * radius + 1):
            part = padded[k : k + n] if axis == 0 else padded[:, k : k + n]
            best = part.copy() if best is None else np.maximum(best, part)
        blocks = best
    return np.ascontiguousarray(blocks)


def pyramid(relief):
    """Bordered relief, and its maxima around each coarse block (near: +-4, wide: +-48 cells)."""
    padded = np.full((PITCH, PITCH), np.float32(-1e30), dtype=np.float32)
    # Truncation to an integer maps (-1, 0) to cell 0: one more copy of the first row and column.
    padded[PAD - 1 : PAD + SIDE, PAD - 1 : PAD + SIDE] = np.pad(
        relief, ((1, 0), (1, 0)), mode="edge"
    )
    blocks = padded.reshape(TILES, COARSE, TILES, COARSE).max(axis=(1, 3))
    return padded, dilate(blocks, 1), dilate(blocks, HALF // COARSE)


@cuda.jit(device=True)
def above(dem, row, col, ray):
    """How far the relief is above the ray at a point."""
    return dem[np.uint32(np.int32(row) * PITCH + np.int32(col))] - ray


@cuda.jit(device=True)
def four(dem, k, row0, col0, ray0, drow, dcol, climb):
    """Largest height above the ray at its samples k .. k + 3, four independent loads."""
    k1 = k + ONE
    k2 = k + TWO
    k3 = k + THREE
    a = above(dem, row0 + k * drow, col0 + k * dcol, ray0 + k * climb)
    b = above(dem, row0 + k1 * drow, col0 + k1 * dcol, ray0 + k1 * climb)
    c = above(dem, row0 + k2 * drow, col0 + k2 * dcol, ray0 + k2 * climb)
    d = above(dem, row0 + k3 * drow, col0 + k3 * dcol, ray0 + k3 * climb)
    return max(max(a, b), max(c, d))


@cuda.jit(device=True)
def coarse(blocks, row, col):
    return blocks[np.uint32(np.int32(row * QUARTER) * TILES + np.int32(col * QUARTER))]


@cuda.jit
def insolation(dem, near, wide, total, suns, cell):
    j, i = cuda.grid(2)
    if i < 1 or j < 1 or i >= SIDE - 1 or j >= SIDE - 1:
        return

    at = (i + PAD) * PITCH + (j + PAD)
    here = dem[np.uint32(at)]
    gx = (dem[np.uint32(at + 1)] - dem[np.uint32(at - 1)]) / (cell + cell)
    gy = (dem[np.uint32(at - PITCH)] - dem[np.uint32(at + PITCH)]) / (cell + cell)
    slant = ONE / math.sqrt(gx * gx + gy * gy + ONE)
    row0 = np.float32(i + PAD)
    col0 = np.float32(j + PAD)

    cell_at = np.uint32(i * SIDE + j)
    share = total[cell_at]
    for s in range(SUNS):
        drow = suns[s, 0]
        dcol = suns[s, 1]
        climb = suns[s, 2]
        facing = (suns[s, 5] - gx * suns[s, 3] - gy * suns[s, 4]) * slant
        if facing > ZERO:
            # No relief that the whole ray can meet is higher than this.
            top = coarse(wide, row0 + RAY_MIDDLE * drow, col0 + RAY_MIDDLE * dcol)
            lit = True
            for q in range(CHUNKS):
                base = np.float32(8 * q)
                low = here + (base + ONE) * climb
                if low >= top:
                    break
                # The same for the eight samples of this chunk.
                mid = base + CHUNK_MIDDLE
                m = coarse(near, row0 + mid * drow, col0 + mid * dcol)
                if low < m:
                    if four(dem, base + ONE, row0, col0, here, drow, dcol, climb) > ZERO:
                        lit = False
                        break
                    if here + (base + FIVE) * climb < m:
                        if four(dem, base + FIVE, row0, col0, here, drow, dcol, climb) > ZERO:
                            lit = False
                            break
            if lit:
                share += facing
    total[cell_at] = share


def sun_positions(day):
    """Direction of the sun at SUNS moments of a day, as float32 arguments."""
    latitude = math.radians(46.5)
    declination = math.radians(23.44) * math.sin(2.0 * math.pi * (day - 80) / 365.0)
    result = []
    for k in range(SUNS):
        hour = math.radians(-60.0 + 120.0 * k / (SUNS - 1))
        up = math.sin(latitude) * math.sin(declination) + math.cos(latitude) * math.cos(
            declination
        ) * math.cos(hour)
        east = -math.cos(declination) * math.sin(hour)
        north = math.cos(latitude) * math.sin(declination) - math.sin(latitude) * math.cos(
            declination
        ) * math.cos(hour)
        up = max(up, 0.05)
        flat = math.hypot(east, north)
        climb = CELL * up / flat
        values = (-north / flat, east / flat, climb, east, north, up, CELL)
        result.append(tuple(np.float32(v) for v in values))
    return result


def main():
    relief = make_terrain(SIDE, seed=41)
    dem, near, wide = (cuda.to_device(part.reshape(-1)) for part in pyramid(relief))
    total = cuda.to_device(np.zeros(SIDE * SIDE, dtype=np.float32))
    days = [
        cuda.to_device(np.array([sun[:6] for sun in sun_positions(day)], dtype=np.float32))
        for day in range(0, 365, 30)
    ]
    cell = np.float32(CELL)

    launch = insolation[BLOCKS, THREADS]

    def step(k):
        launch(dem, near, wide, total, days[k % len(days)], cell)

    count = 0
    for _ in range(5):
        step(count)
        count += 1
    cuda.synchronize()

    times = []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(12):
            step(count)
            count += 1
        cuda.synchronize()
        times.append((time.perf_counter() - start) / 12)

    mean = float(total.copy_to_host().astype(np.float64).mean()) / count
    print(
        json.dumps(
            {
                "program": "numba_terrain",
                "steps": count,
                "us": 1e6 * float(np.median(times)),
                "result": [mean],
            }
        )
    )


if __name__ == "__main__":
    main()
