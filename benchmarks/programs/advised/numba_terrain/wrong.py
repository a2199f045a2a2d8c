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
TILE = 16
THREADS = (32, 8)
BLOCKS = (SIDE // THREADS[0], SIDE // THREADS[1])


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


def reachable_heights(dem):
    """Per tile of TILE x TILE cells: an upper bound of every height a ray from it can meet."""
    side = dem.shape[0]
    tiles = dem.reshape(side // TILE, TILE, side // TILE, TILE).max(axis=(1, 3))
    around = -(-REACH // TILE) + 1  # one tile to spare for rounding
    for axis in (0, 1):
        n = tiles.shape[axis]
        pad = [(0, 0), (0, 0)]
        pad[axis] = (around, around)
        padded = np.pad(tiles, pad, mode="edge")
        tiles = np.take(padded, np.arange(n), axis=axis)
        for shift in range(1, 2 * around + 1):
            tiles = np.maximum(tiles, np.take(padded, np.arange(shift, shift + n), axis=axis))
    return np.ascontiguousarray(tiles, dtype=np.float32)


@cuda.jit
def insolation(dem, total, suns, day, tops):
    j, i = cuda.grid(2)  # neighbouring lanes: neighbouring columns
    side = dem.shape[0]
    if i < 1 or j < 1 or i >= side - 1 or j >= side - 1:
        return

    here = dem[i, j]
    cell = suns[day, 0, 6]
    gx = (dem[i, j + 1] - dem[i, j - 1]) / (cell + cell)
    gy = (dem[i - 1, j] - dem[i + 1, j]) / (cell + cell)
    norm = math.sqrt(gx * gx + gy * gy + np.float32(1.0))
    top = tops[i // TILE, j // TILE]
    share = total[i, j]
    for s in range(SUNS):
        facing = (suns[day, s, 5] - gx * suns[day, s, 3] - gy * suns[day, s, 4]) / norm
        if facing > np.float32(0.0):
            drow = suns[day, s, 0]
            dcol = suns[day, s, 1]
            climb = suns[day, s, 2]
            row = np.float32(i)
            col = np.float32(j)
            ray = here
            lit = True
            for _ in range(REACH):
                row += drow
                col += dcol
                ray += climb
                r = np.int32(row)
                c = np.int32(col)
                if ray > top or r < 0 or c < 0 or r >= side or c >= side:
                    break
                if dem[r, c] > ray:
                    lit = False
                    break
            if lit:
                share += facing
    total[i, j] = share


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
    dem = cuda.to_device(relief)
    total = cuda.to_device(np.zeros((SIDE, SIDE), dtype=np.float32))
    days = [sun_positions(day) for day in range(0, 365, 30)]
    suns = cuda.to_device(np.array(days, dtype=np.float32))
    tops = cuda.to_device(reachable_heights(relief))

    def step(k):
        insolation[BLOCKS, THREADS](dem, total, suns, k % len(days), tops)

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
