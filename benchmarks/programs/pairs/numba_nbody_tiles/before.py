"""All-pairs gravity with tiles in shared memory, Numba CUDA."""

import json
import math
import statistics
import time

import numpy as np

np.row_stack = np.vstack  # gone from NumPy, still looked up by Numba

from numba import cuda, float32  # noqa: E402

BODIES = 65536
TILE = 128
DT = np.float32(1e-3)
SOFT = np.float32(1e-3)
WARMUP = 3
BLOCKS = 6
STEPS_PER_BLOCK = 5


@cuda.jit(fastmath=True)
def accelerate(x, y, z, m, ax, ay, az):
    sx = cuda.shared.array(TILE, float32)
    sy = cuda.shared.array(TILE, float32)
    sz = cuda.shared.array(TILE, float32)
    sm = cuda.shared.array(TILE, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    xi, yi, zi = x[i], y[i], z[i]
    a = float32(0)
    b = float32(0)
    c = float32(0)
    for tile in range(0, x.shape[0], TILE):
        sx[t] = x[tile + t]
        sy[t] = y[tile + t]
        sz[t] = z[tile + t]
        sm[t] = m[tile + t]
        cuda.syncthreads()
        for j in range(TILE):
            dx = sx[j] - xi
            dy = sy[j] - yi
            dz = sz[j] - zi
            r2 = dx * dx + dy * dy + dz * dz + SOFT
            inv = float32(1) / math.sqrt(r2)
            f = sm[j] * inv * inv * inv
            a += f * dx
            b += f * dy
            c += f * dz
        cuda.syncthreads()
    ax[i] = a
    ay[i] = b
    az[i] = c


@cuda.jit
def move(p, v, a):
    i = cuda.grid(1)
    v[i] += DT * a[i]
    p[i] += DT * v[i]


def main():
    rng = np.random.default_rng(55)
    pos = [cuda.to_device(rng.standard_normal(BODIES, dtype=np.float32)) for _ in range(3)]
    vel = [cuda.to_device(np.zeros(BODIES, dtype=np.float32)) for _ in range(3)]
    acc = [cuda.device_array(BODIES, dtype=np.float32) for _ in range(3)]
    mass = cuda.to_device(np.full(BODIES, 1 / BODIES, dtype=np.float32))
    grid = BODIES // TILE

    def step():
        accelerate[grid, TILE](*pos, mass, *acc)
        for k in range(3):
            move[grid, TILE](pos[k], vel[k], acc[k])

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
    us = statistics.median(times) * 1e6
    print(f"{BODIES * BODIES / us / 1e3:.1f} G interactions/s")
    end = [p.copy_to_host().astype(np.float64) for p in pos]
    out = {
        "program": "numba_nbody_tiles",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": us,
        "result": [float(np.sqrt(sum((p * p).mean() for p in end)))],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
