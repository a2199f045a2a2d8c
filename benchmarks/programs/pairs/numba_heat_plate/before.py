"""Heat flow in a plate with sources, Numba CUDA."""

import json
import math
import statistics
import time

import numpy as np

np.row_stack = np.vstack  # gone from NumPy, still looked up by Numba

from numba import cuda  # noqa: E402

SIZE = 1024
RATE = 0.2
SUBSTEPS = 5
WARMUP = 3
BLOCKS = 6
STEPS_PER_BLOCK = 6


@cuda.jit
def diffuse(old, new, source, rate):
    x, y = cuda.grid(2)
    h, w = old.shape
    if 0 < y < h - 1 and 0 < x < w - 1:
        around = old[y - 1, x] + old[y + 1, x] + old[y, x - 1] + old[y, x + 1]
        new[y, x] = old[y, x] + rate * (around - np.float32(4) * old[y, x]) + source[y, x]


def main():
    axis = np.linspace(-1, 1, SIZE, dtype=np.float32)
    source = np.exp(-40 * (axis[:, None] ** 2 + (axis[None, :] - 0.3) ** 2)) * np.float32(0.01)
    source = source.astype(np.float32)
    plate = np.zeros((SIZE, SIZE), dtype=np.float32)
    other = plate.copy()
    block = (32, 8)
    grid = (math.ceil(SIZE / block[0]), math.ceil(SIZE / block[1]))
    rate = np.float32(RATE)

    def step(plate, other):
        for _ in range(SUBSTEPS):
            diffuse[grid, block](plate, other, source, rate)
            plate, other = other, plate
        return plate, other

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
