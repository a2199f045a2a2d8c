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
    if i < p.shape[1]:
        b = np.float32(1) + np.float32(0.1) * p[Z, i]
        q = p[CHARGE, i] * dt
        vx = p[VX, i] + q * (p[VY, i] * b - np.float32(0.2) * p[X, i])
        vy = p[VY, i] - q * (vx * b + np.float32(0.2) * p[Y, i])
        vz = p[VZ, i] - q * np.float32(0.2) * p[Z, i]
        p[VX, i] = vx
        p[VY, i] = vy
        p[VZ, i] = vz
        p[X, i] += dt * vx
        p[Y, i] += dt * vy
        p[Z, i] += dt * vz
        p[PATH, i] += dt * math.sqrt(vx * vx + vy * vy + vz * vz)


def main():
    rng = np.random.default_rng(52)
    start_values = rng.standard_normal((PARTICLES, 8), dtype=np.float32)
    start_values[:, CHARGE] = np.where(np.arange(PARTICLES) % 2, 1, -1)
    start_values[:, PATH] = 0
    p = cuda.to_device(np.ascontiguousarray(start_values.T))
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
    end = p.copy_to_host().T
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
