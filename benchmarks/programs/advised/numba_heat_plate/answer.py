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

REGION = 64  # side of what a block holds: its tile, and a rim of SUBSTEPS cells
TILE = REGION - 2 * SUBSTEPS
ROWS = 8  # of a thread
SOURCE = 2


@cuda.jit("void(float32[:,:,::1], int32)")
def diffuse(state, old):
    """All substeps of a step. state: two plates and the source; reads plate old, writes the other."""
    held = cuda.shared.array((2, REGION, REGION), float32)
    h = state.shape[1]
    w = state.shape[2]
    column = cuda.threadIdx.x
    top = cuda.threadIdx.y * ROWS
    x = cuda.blockIdx.x * TILE - SUBSTEPS + column
    y0 = cuda.blockIdx.y * TILE - SUBSTEPS + top
    for j in range(ROWS):
        y = y0 + j
        value = np.float32(0)
        if 0 <= y < h and 0 <= x < w:
            value = state[old, y, x]
        held[0, top + j, column] = value
        held[1, top + j, column] = value
    cuda.syncthreads()
    # The outermost cells of the region go stale, a cell further in with each substep; the tile does not.
    inside = 0 < x < w - 1 and 0 < column < REGION - 1
    for substep in range(SUBSTEPS):
        now = substep & 1
        then = 1 - now
        if inside:
            above = held[now, max(top - 1, 0), column]
            here = held[now, top, column]
            for j in range(ROWS):
                y = y0 + j
                row = top + j
                below = held[now, min(row + 1, REGION - 1), column]
                if 0 < y < h - 1:
                    around = above + below + held[now, row, column - 1] + held[now, row, column + 1]
                    held[then, row, column] = (
                        here + np.float32(RATE) * (around - np.float32(4) * here) + state[SOURCE, y, x]
                    )
                above = here
                here = below
        cuda.syncthreads()
    if 0 < x < w - 1 and SUBSTEPS <= column < REGION - SUBSTEPS:
        for j in range(ROWS):
            y = y0 + j
            row = top + j
            if 0 < y < h - 1 and SUBSTEPS <= row < REGION - SUBSTEPS:
                state[1 - old, y, x] = held[SUBSTEPS & 1, row, column]


def main():
    axis = np.linspace(-1, 1, SIZE, dtype=np.float32)
    source = np.exp(-40 * (axis[:, None] ** 2 + (axis[None, :] - 0.3) ** 2)) * np.float32(0.01)
    source = source.astype(np.float32)
    plate = np.zeros((SIZE, SIZE), dtype=np.float32)
    other = plate.copy()
    # On the GPU once: the plates stay there from step to step.
    state = cuda.to_device(np.stack([plate, other, source]))
    block = (REGION, REGION // ROWS)
    grid = (math.ceil(SIZE / TILE), math.ceil(SIZE / TILE))
    launch = diffuse[grid, block]

    def step(old):
        launch(state, old)
        return 1 - old

    old = 0
    for _ in range(WARMUP):
        old = step(old)
    cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            old = step(old)
        cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    plate = state.copy_to_host()[old]
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
