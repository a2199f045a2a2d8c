"""Heat flow in a plate with sources, Numba CUDA."""

import json
import math
import statistics
import time

import numpy as np

np.row_stack = np.vstack  # gone from NumPy, still looked up by Numba

import numba  # noqa: E402
from numba import cuda  # noqa: E402

SIZE = 1024
RATE = 0.2
SUBSTEPS = 5
WARMUP = 3
BLOCKS = 6
STEPS_PER_BLOCK = 6


# A block of threads advances a tile by all substeps in shared memory. The outermost HALO cells of
# the tile are right for fewer substeps only, and are not written back.
HALO = SUBSTEPS
TILE_X, TILE_Y = 64, 48
THREADS_Y = 8
OUT_X, OUT_Y = TILE_X - 2 * HALO, TILE_Y - 2 * HALO


@cuda.jit
def diffuse(old, new, source, rate):
    tile = cuda.shared.array((2, TILE_Y, TILE_X), numba.float32)
    heat = cuda.shared.array((TILE_Y, TILE_X), numba.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    h, w = old.shape
    x = cuda.blockIdx.x * OUT_X + tx - HALO
    top = cuda.blockIdx.y * OUT_Y - HALO
    for ly in range(ty, TILE_Y, THREADS_Y):
        y = top + ly
        value = np.float32(0)
        added = np.float32(0)
        if 0 <= y < h and 0 <= x < w:
            value = old[y, x]
            added = source[y, x]
        tile[0, ly, tx] = value
        heat[ly, tx] = added
    cuda.syncthreads()
    inside = 0 < tx < TILE_X - 1 and 0 < x < w - 1
    for k in range(SUBSTEPS):
        now = k % 2
        for ly in range(ty, TILE_Y, THREADS_Y):
            y = top + ly
            value = tile[now, ly, tx]
            if inside and 0 < ly < TILE_Y - 1 and 0 < y < h - 1:
                around = (
                    tile[now, ly - 1, tx]
                    + tile[now, ly + 1, tx]
                    + tile[now, ly, tx - 1]
                    + tile[now, ly, tx + 1]
                )
                value = value + rate * (around - np.float32(4) * value) + heat[ly, tx]
            tile[1 - now, ly, tx] = value
        cuda.syncthreads()
    if HALO <= tx < TILE_X - HALO and x < w:
        for ly in range(ty, TILE_Y, THREADS_Y):
            y = top + ly
            if HALO <= ly < TILE_Y - HALO and y < h:
                new[y, x] = tile[SUBSTEPS % 2, ly, tx]


def main():
    axis = np.linspace(-1, 1, SIZE, dtype=np.float32)
    source = np.exp(-40 * (axis[:, None] ** 2 + (axis[None, :] - 0.3) ** 2)) * np.float32(0.01)
    source = source.astype(np.float32)
    source = cuda.to_device(source)
    plate = cuda.to_device(np.zeros((SIZE, SIZE), dtype=np.float32))
    other = cuda.to_device(np.zeros((SIZE, SIZE), dtype=np.float32))
    block = (TILE_X, THREADS_Y)
    grid = (math.ceil(SIZE / OUT_X), math.ceil(SIZE / OUT_Y))
    rate = np.float32(RATE)
    launch = diffuse[grid, block]

    def step(plate, other):
        launch(plate, other, source, rate)
        return other, plate

    for _ in range(WARMUP):
        plate, other = step(plate, other)
    cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            plate, other = step(plate, other)
        cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    plate = plate.copy_to_host()
    print(f"hottest {plate.max():.4f}, mean {plate.mean():.6f}")
    out = {
        "program": "numba_heat_plate",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [float(plate.max()), float(plate.mean(dtype=np.float64))],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
