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
TILE = 8  # side of a tile of the bounds, and steps of a ray between two looks at them
SHIFT = 3  # log2(TILE)
LEAPS = REACH // TILE
PAD = REACH + TILE  # cells of bottomless terrain around the relief
LEAP = np.float32(TILE)
ONE = np.float32(1.0)
ZERO = np.float32(0.0)


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


def dilate(tiles, reach):
    """Largest value within so many tiles, in both directions."""
    for axis in (0, 1):
        padding = [(0, 0), (0, 0)]
        padding[axis] = (reach, reach)
        wide = np.pad(tiles, padding, mode="edge")
        size = tiles.shape[axis]
        result = tiles
        for k in range(2 * reach + 1):
            part = wide[k : k + size] if axis == 0 else wide[:, k : k + size]
            result = np.maximum(result, part)
        tiles = result
    return np.ascontiguousarray(tiles)


def make_bounds(relief):
    """Padded relief; the highest cell near each tile, for a leap and for a whole ray."""
    padded = np.pad(relief, PAD, constant_values=np.float32(-1e30))
    count = padded.shape[0] // TILE
    tiles = padded.reshape(count, TILE, count, TILE).max(axis=(1, 3))
    return padded, dilate(tiles, 1), dilate(tiles, LEAPS)


@cuda.jit
def insolation(dem, near, far, total, suns, day):
    """All suns of a day; dem is padded by PAD cells, lanes run along its rows."""
    j, i = cuda.grid(2)
    side = total.shape[0]
    if i < 1 or j < 1 or i >= side - 1 or j >= side - 1:
        return

    pi = i + PAD
    pj = j + PAD
    here = dem[pi, pj]
    east = dem[pi, pj + 1] - dem[pi, pj - 1]
    north = dem[pi - 1, pj] - dem[pi + 1, pj]
    ceiling = far[pi >> SHIFT, pj >> SHIFT]
    light = total[i, j]
    for s in range(SUNS):
        drow = suns[day, s, 0]
        dcol = suns[day, s, 1]
        climb = suns[day, s, 2]
        cell = suns[day, s, 6]
        gx = east / (cell + cell)
        gy = north / (cell + cell)
        facing = (suns[day, s, 5] - gx * suns[day, s, 3] - gy * suns[day, s, 4]) / math.sqrt(
            gx * gx + gy * gy + ONE
        )
        if facing > ZERO:
            row = np.float32(i)
            col = np.float32(j)
            ray = here
            lit = True
            for _ in range(LEAPS):
                if ray > ceiling:
                    break
                tr = np.uint32((np.int32(row) + PAD) >> SHIFT)
                tc = np.uint32((np.int32(col) + PAD) >> SHIFT)
                if ray + climb > near[tr, tc]:
                    # Nothing within a leap is high enough to cast a shadow.
                    row += LEAP * drow
                    col += LEAP * dcol
                    ray += LEAP * climb
                else:
                    hit = False
                    for _k in range(TILE):
                        row += drow
                        col += dcol
                        ray += climb
                        r = np.uint32(np.int32(row) + PAD)
                        c = np.uint32(np.int32(col) + PAD)
                        if dem[r, c] > ray:
                            hit = True
                    if hit:
                        lit = False
                        break
            if lit:
                light += facing
    total[i, j] = light


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
    dem, near, far = (cuda.to_device(a) for a in make_bounds(relief))
    total = cuda.to_device(np.zeros((SIDE, SIDE), dtype=np.float32))
    days = [sun_positions(day) for day in range(0, 365, 30)]
    suns = cuda.to_device(np.array(days, dtype=np.float32))

    def step(k):
        insolation[BLOCKS, THREADS](dem, near, far, total, suns, k % len(days))

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
