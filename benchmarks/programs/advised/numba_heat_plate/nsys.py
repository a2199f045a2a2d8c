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


# A block keeps a piece of the plate in shared memory for all substeps of a step; each substep
# makes the valid part one cell smaller on each side.
WIDE, HIGH, THREADS_Y = 64, 48, 8
LOOPS = HIGH // THREADS_Y
OUT_X, OUT_Y = WIDE - 2 * SUBSTEPS, HIGH - 2 * SUBSTEPS
RATE32 = np.float32(RATE)
FOUR = np.float32(4)


@cuda.jit
def diffuse(field, now):
    """field: two plates and the source; reads plate `now`, writes the other one."""
    a = cuda.shared.array((HIGH, WIDE), float32)
    b = cuda.shared.array((HIGH, WIDE), float32)
    heat = cuda.shared.array((HIGH, WIDE), float32)
    x = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    gx = cuda.blockIdx.x * OUT_X + x - SUBSTEPS
    top = cuda.blockIdx.y * OUT_Y - SUBSTEPS
    for i in range(LOOPS):
        y = ty + i * THREADS_Y
        gy = top + y
        value = float32(0)
        extra = float32(0)
        if 0 <= gx < SIZE and 0 <= gy < SIZE:
            value = field[now, gy, gx]
            extra = field[2, gy, gx]
        a[y, x] = value
        b[y, x] = value
        heat[y, x] = extra
    cuda.syncthreads()
    inside_x = 0 < gx < SIZE - 1 and 0 < x < WIDE - 1
    for k in range(SUBSTEPS):
        if inside_x:
            for i in range(LOOPS):
                y = ty + i * THREADS_Y
                gy = top + y
                if 0 < gy < SIZE - 1 and 0 < y < HIGH - 1:
                    if k % 2 == 0:
                        around = a[y - 1, x] + a[y + 1, x] + a[y, x - 1] + a[y, x + 1]
                        b[y, x] = a[y, x] + RATE32 * (around - FOUR * a[y, x]) + heat[y, x]
                    else:
                        around = b[y - 1, x] + b[y + 1, x] + b[y, x - 1] + b[y, x + 1]
                        a[y, x] = b[y, x] + RATE32 * (around - FOUR * b[y, x]) + heat[y, x]
        cuda.syncthreads()
    if 0 < gx < SIZE - 1 and SUBSTEPS <= x < WIDE - SUBSTEPS:
        for i in range(LOOPS):
            y = ty + i * THREADS_Y
            gy = top + y
            if 0 < gy < SIZE - 1 and SUBSTEPS <= y < HIGH - SUBSTEPS:
                if SUBSTEPS % 2 == 1:
                    field[1 - now, gy, gx] = b[y, x]
                else:
                    field[1 - now, gy, gx] = a[y, x]


def main():
    axis = np.linspace(-1, 1, SIZE, dtype=np.float32)
    source = np.exp(-40 * (axis[:, None] ** 2 + (axis[None, :] - 0.3) ** 2)) * np.float32(0.01)
    source = source.astype(np.float32)
    host = np.zeros((3, SIZE, SIZE), dtype=np.float32)
    host[2] = source
    field = cuda.to_device(host)
    grid = (math.ceil(SIZE / OUT_X), math.ceil(SIZE / OUT_Y))
    launch = diffuse[grid, (WIDE, THREADS_Y)]

    def step(now):
        launch(field, now)
        return 1 - now

    now = 0
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
    plate = field.copy_to_host()[now]
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
