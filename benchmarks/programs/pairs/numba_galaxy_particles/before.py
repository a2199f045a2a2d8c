"""Move charged particles through a field and remember each one's path length, Numba CUDA."""

import json
import math
import statistics
import time

import numpy as np

np.row_stack = np.vstack  # gone from NumPy, still looked up by Numba

from numba import cuda  # noqa: E402

PARTICLES = 4_000_000
DT = 0.01
SUBSTEPS = 4
WARMUP = 4
BLOCKS = 6
STEPS_PER_BLOCK = 8
X, Y, Z, VX, VY, VZ, CHARGE, PATH = range(8)


@cuda.jit
def push(p, dt):
    i = cuda.grid(1)
    if i < p.shape[0]:
        b = np.float32(1) + np.float32(0.1) * p[i, Z]
        q = p[i, CHARGE] * dt
        vx = p[i, VX] + q * (p[i, VY] * b - np.float32(0.2) * p[i, X])
        vy = p[i, VY] - q * (vx * b + np.float32(0.2) * p[i, Y])
        vz = p[i, VZ] - q * np.float32(0.2) * p[i, Z]
        p[i, VX] = vx
        p[i, VY] = vy
        p[i, VZ] = vz
        p[i, X] += dt * vx
        p[i, Y] += dt * vy
        p[i, Z] += dt * vz
        p[i, PATH] += dt * math.sqrt(vx * vx + vy * vy + vz * vz)


def main():
    rng = np.random.default_rng(52)
    start_values = rng.standard_normal((PARTICLES, 8), dtype=np.float32)
    start_values[:, CHARGE] = np.where(np.arange(PARTICLES) % 2, 1, -1)
    start_values[:, PATH] = 0
    p = cuda.to_device(start_values)
    threads = 256
    grid = math.ceil(PARTICLES / threads)
    dt = np.float32(DT)

    def step():
        for _ in range(SUBSTEPS):
            push[grid, threads](p, dt)

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
    end = p.copy_to_host()
    path = end[:, PATH].mean(dtype=np.float64)
    spread = np.abs(end[:, X]).mean(dtype=np.float64)
    print(f"mean path {path:.4f}, spread {spread:.4f}")
    out = {
        "program": "numba_galaxy_particles",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [float(path), float(spread)],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
