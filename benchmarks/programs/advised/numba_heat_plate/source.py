"""Heat flow in a plate with sources, Numba CUDA."""

import json
import math
import statistics
import time

import numpy as np

np.row_stack = np.vstack  # gone from NumPy, still looked up by Numba

from numba import cuda, float32  # noqa: E402

SIZE = 1024
RATE = 0.2
SUBSTEPS = 5
WARMUP = 3
BLOCKS = 6
STEPS_PER_BLOCK = 6
THREADS_Y = 8
ROWS = 8  # rows a thread holds in registers
WIDE = 64  # columns of a tile with its halo, one per thread
TALL = THREADS_Y * ROWS
TILE_X = WIDE + 2
TILE_Y = TALL + 2
INNER_X = WIDE - 2 * SUBSTEPS
INNER_Y = TALL - 2 * SUBSTEPS
FLOW = np.float32(RATE)


@cuda.jit
def diffuse(fields, now):
    """All substeps of a step: a tile with a halo as wide as the number of substeps.

    fields holds both states of the plate and the source; now is the state to read. Cells at the
    rim of a tile go stale, one ring per substep, and only the cells inside the halo are stored.
    """
    tile = cuda.shared.array((2, TILE_Y, TILE_X), float32)
    value = cuda.local.array(ROWS, float32)
    heat = cuda.local.array(ROWS, float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    x = cuda.blockIdx.x * INNER_X + tx - SUBSTEPS
    top = cuda.blockIdx.y * INNER_Y + ty * ROWS - SUBSTEPS
    row = ty * ROWS + 1
    col = tx + 1
    inside = 0 < x and x < SIZE - 1
    for k in range(ROWS):
        y = top + k
        value[k] = float32(0)
        heat[k] = float32(0)
        # The plate's edge is zero and stays so, like what lies outside.
        if inside and 0 < y and y < SIZE - 1:
            value[k] = fields[now, y, x]
            heat[k] = fields[2, y, x]
    for s in range(SUBSTEPS):
        side = s & 1
        for k in range(ROWS):
            tile[side, row + k, col] = value[k]
        cuda.syncthreads()
        above = tile[side, row - 1, col]
        for k in range(ROWS):
            here = value[k]
            below = tile[side, row + k + 1, col]
            around = above + below + tile[side, row + k, col - 1] + tile[side, row + k, col + 1]
            above = here
            y = top + k
            if inside and 0 < y and y < SIZE - 1:
                value[k] = here + FLOW * (around - float32(4) * here) + heat[k]
    if inside and tx >= SUBSTEPS and tx < WIDE - SUBSTEPS:
        for k in range(ROWS):
            y = top + k
            j = ty * ROWS + k
            if 0 < y and y < SIZE - 1 and j >= SUBSTEPS and j < TALL - SUBSTEPS:
                fields[1 - now, y, x] = value[k]


def main():
    axis = np.linspace(-1, 1, SIZE, dtype=np.float32)
    source = np.exp(-40 * (axis[:, None] ** 2 + (axis[None, :] - 0.3) ** 2)) * np.float32(0.01)
    source = source.astype(np.float32)
    zero = np.zeros((SIZE, SIZE), dtype=np.float32)
    fields = cuda.to_device(np.stack([zero, zero, source]))  # one array: a cheaper launch
    block = (WIDE, THREADS_Y)
    grid = (math.ceil(SIZE / INNER_X), math.ceil(SIZE / INNER_Y))
    launch = diffuse[grid, block]
    now = 0

    def step(now):
        launch(fields, now)
        return 1 - now

    for _ in range(WARMUP):
        now = step(now)
    cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            now = step(now)
        cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    plate = fields.copy_to_host()[now]
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
