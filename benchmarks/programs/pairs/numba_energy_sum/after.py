"""Simulated spins with a global energy every sweep, Numba CUDA."""

import json
import math
import statistics
import time

import numpy as np

np.row_stack = np.vstack  # gone from NumPy, still looked up by Numba

from numba import cuda, float32  # noqa: E402

SIZE = 4096
THREADS = 256
WARMUP = 4
BLOCKS = 6
STEPS_PER_BLOCK = 8


@cuda.jit
def relax(angle, field):
    """One relaxation of one colour of a checkerboard of angles."""
    x, y = cuda.grid(2)
    n = angle.shape[0]
    if x < n and y < n:
        a = angle[y, x]
        around = angle[(y + 1) % n, x] + angle[y - 1, x] + angle[y, (x + 1) % n] + angle[y, x - 1]
        field[y, x] = a + float32(0.05) * (around * float32(0.25) - a)


@cuda.jit
def energy(angle, out):
    """Each thread sums many sites, each block sums its threads, one addition a block."""
    part = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    n = angle.shape[0]
    total = float32(0)
    for i in range(cuda.grid(1), n * n, cuda.gridsize(1)):
        y = i // n
        x = i - y * n
        d = angle[y, x] - angle[y, x - 1]
        e = angle[y, x] - angle[y - 1, x]
        total += d * d + e * e
    part[t] = total
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        cuda.atomic.add(out, 0, part[0])


def main():
    rng = np.random.default_rng(53)
    angle = cuda.to_device(rng.standard_normal((SIZE, SIZE), dtype=np.float32))
    field = cuda.device_array_like(angle)
    steps = WARMUP + BLOCKS * STEPS_PER_BLOCK
    energies = cuda.to_device(np.zeros((steps, 1), dtype=np.float32))
    block = (32, 8)
    grid = (math.ceil(SIZE / block[0]), math.ceil(SIZE / block[1]))
    count = 0

    def step():
        nonlocal angle, field, count
        relax[grid, block](angle, field)
        angle, field = field, angle
        energy[1056, THREADS](angle, energies[count])
        count += 1

    for _ in range(WARMUP):
        step()
    cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    values = energies.copy_to_host()[:, 0] / SIZE**2
    print("energy:", " ".join(f"{v:.4f}" for v in values[::10]))
    out = {
        "program": "numba_energy_sum",
        "steps": steps,
        "us": statistics.median(times) * 1e6,
        "result": [float(values[0]), float(values[10]), float(values[-1])],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
