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
SHIFT = 3
STRIDE = 1 << SHIFT  # cells that a ray may skip at once: also the edge of the small tiles
FAR_SHIFT = 5
FAR_TILE = 1 << FAR_SHIFT
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


def highest_ahead(relief, tile, tiles):
    """For the four quadrants of the sun and each tile: the highest cell of it and of the next tiles."""
    n = SIDE // tile
    own = relief.reshape(n, tile, n, tile).max(axis=(1, 3))
    out = np.empty((4, n, n), dtype=np.float32)
    for quadrant in range(4):
        best = own
        for axis, forward in ((0, quadrant & 2), (1, quadrant & 1)):
            source = best if forward else np.flip(best, axis)
            wide = source.copy()
            for shift in range(1, tiles + 1):
                to = [slice(None), slice(None)]
                of = [slice(None), slice(None)]
                to[axis] = slice(0, n - shift)
                of[axis] = slice(shift, n)
                wide[tuple(to)] = np.maximum(wide[tuple(to)], source[tuple(of)])
            best = wide if forward else np.flip(wide, axis)
        out[quadrant] = best
    return out


@cuda.jit
def insolation(dem, total, suns, near, far):
    """All suns of a day. suns: one row each of drow, dcol, climb, sun_e, sun_n, sun_z, cell."""
    j, i = cuda.grid(2)
    if i < 1 or j < 1 or i >= SIDE - 1 or j >= SIDE - 1:
        return

    here = dem[i, j]
    cell = suns[0, 6]
    gx = (dem[i, j + 1] - dem[i, j - 1]) / (cell + cell)
    gy = (dem[i - 1, j] - dem[i + 1, j]) / (cell + cell)
    slope = math.sqrt(gx * gx + gy * gy + np.float32(1.0))
    bound = np.uint32(SIDE)
    sum_ = total[i, j]

    for k in range(SUNS):
        facing = (suns[k, 5] - gx * suns[k, 3] - gy * suns[k, 4]) / slope
        if facing > np.float32(0.0):
            drow = suns[k, 0]
            dcol = suns[k, 1]
            climb = suns[k, 2]
            quadrant = 0
            if drow >= np.float32(0.0):
                quadrant += 2
            if dcol >= np.float32(0.0):
                quadrant += 1
            limit = far[quadrant, i >> FAR_SHIFT, j >> FAR_SHIFT]
            row = np.float32(i)
            col = np.float32(j)
            ray = here
            r = np.uint32(i)
            c = np.uint32(j)
            lit = True
            for _leg in range(REACH // STRIDE):
                if ray + climb > limit:
                    break
                if ray + climb > near[quadrant, r >> np.uint32(SHIFT), c >> np.uint32(SHIFT)]:
                    # Nothing within the next STRIDE cells reaches the ray.
                    row += np.float32(STRIDE) * drow
                    col += np.float32(STRIDE) * dcol
                    ray += np.float32(STRIDE) * climb
                    r = np.uint32(np.int32(row))
                    c = np.uint32(np.int32(col))
                else:
                    for _ in range(STRIDE):
                        row += drow
                        col += dcol
                        ray += climb
                        r = np.uint32(np.int32(row))
                        c = np.uint32(np.int32(col))
                        if r >= bound or c >= bound:
                            break
                        if dem[r, c] > ray:
                            lit = False
                            break
                # A negative row or column is a large unsigned number.
                if not lit or r >= bound or c >= bound:
                    break
            if lit:
                sum_ += facing
    total[i, j] = sum_


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
    near = cuda.to_device(highest_ahead(relief, STRIDE, 1))
    far = cuda.to_device(highest_ahead(relief, FAR_TILE, REACH // FAR_TILE + 1))
    days = [
        cuda.to_device(np.array(sun_positions(day), dtype=np.float32)) for day in range(0, 365, 30)
    ]

    def step(k):
        insolation[BLOCKS, THREADS](dem, total, days[k % len(days)], near, far)

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
