"""Charged grains levitating above an asteroid patch: forces of charged spots, leapfrog motion, energy bookkeeping."""
import json
import math
import time

import numpy
import numpy as np

numpy.row_stack = numpy.vstack
from numba import cuda, float32

NAME = "numba_dust_charging"
GRAINS = 2 * 1024 * 1024
SPOTS = 1920
THREADS = 128
SOFTENING = np.float32(0.02)
DT = np.float32(0.002)
GRAVITY = np.float32(0.4)
WARMUP = 8
BLOCK = 8
BLOCKS = 8


@cuda.jit(fastmath=True)
def advance(place, speed, potential, spots, count, softening, gravity, dt):
    tile = cuda.shared.array((4, THREADS), float32)
    lane = cuda.threadIdx.x
    g = cuda.grid(1)
    x = place[0, g]
    y = place[1, g]
    z = place[2, g]
    ax = float32(0.0)
    ay = float32(0.0)
    az = float32(0.0)
    phi = float32(0.0)
    for start in range(0, count, THREADS):
        tile[0, lane] = spots[0, start + lane]
        tile[1, lane] = spots[1, start + lane]
        tile[2, lane] = spots[2, start + lane]
        tile[3, lane] = spots[3, start + lane]
        cuda.syncthreads()
        for k in range(THREADS):
            dx = x - tile[0, k]
            dy = y - tile[1, k]
            dz = z - tile[2, k]
            square = dx * dx + dy * dy + dz * dz + softening
            inverse = float32(1.0) / math.sqrt(square)
            pull = tile[3, k] * inverse
            phi += pull
            pull = pull * inverse * inverse
            ax += pull * dx
            ay += pull * dy
            az += pull * dz
        cuda.syncthreads()
    vx = speed[0, g] + dt * ax
    vy = speed[1, g] + dt * ay
    vz = speed[2, g] + dt * (az - gravity)
    z = z + dt * vz
    if z < float32(0.0):
        z = -z
        vz = -float32(0.5) * vz
    place[0, g] = x + dt * vx
    place[1, g] = y + dt * vy
    place[2, g] = z
    speed[0, g] = vx
    speed[1, g] = vy
    speed[2, g] = vz
    potential[g] = phi


@cuda.jit(fastmath=True)
def book_energy(place, speed, potential, gravity, ledger, row):
    g = cuda.grid(1)
    vx = speed[0, g]
    vy = speed[1, g]
    vz = speed[2, g]
    kinetic = float32(0.5) * (vx * vx + vy * vy + vz * vz)
    stored = potential[g] + gravity * place[2, g]
    sums = cuda.shared.array((2, THREADS), float32)
    lane = cuda.threadIdx.x
    sums[0, lane] = kinetic
    sums[1, lane] = stored
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if lane < half:
            sums[0, lane] += sums[0, lane + half]
            sums[1, lane] += sums[1, lane + half]
        cuda.syncthreads()
        half //= 2
    if lane == 0:
        cuda.atomic.add(ledger, (row, 0), sums[0, 0])
        cuda.atomic.add(ledger, (row, 1), sums[1, 0])


def starting_grains(seed):
    rng = np.random.default_rng(seed)
    place = rng.random((3, GRAINS), dtype=np.float32)
    place[2] = 0.05 + 0.5 * place[2]
    speed = 0.2 * (rng.random((3, GRAINS), dtype=np.float32) - np.float32(0.5))
    return place, speed


def charged_spots(seed):
    rng = np.random.default_rng(seed)
    spots = np.empty((4, SPOTS), np.float32)
    spots[0] = rng.random(SPOTS)
    spots[1] = rng.random(SPOTS)
    spots[2] = -0.02 - 0.1 * rng.random(SPOTS)
    spots[3] = rng.uniform(0.2, 1.0, SPOTS) / SPOTS
    return spots


def main():
    host_place, host_speed = starting_grains(8)
    place = cuda.to_device(host_place)
    speed = cuda.to_device(host_speed)
    spots = cuda.to_device(charged_spots(9))
    potential = cuda.device_array(GRAINS, dtype=np.float32)
    total = WARMUP + BLOCK * BLOCKS
    ledger = cuda.to_device(np.zeros((total, 2), np.float32))
    grid = GRAINS // THREADS
    step = 0

    def run_step():
        nonlocal step
        advance[grid, THREADS](place, speed, potential, spots, SPOTS, SOFTENING, GRAVITY, DT)
        book_energy[grid, THREADS](place, speed, potential, GRAVITY, ledger, step)
        step += 1

    for _ in range(WARMUP):
        run_step()
    cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            run_step()
        cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK * 1e6)
    energies = ledger.copy_to_host().astype(np.float64) / GRAINS
    result = [
        float(energies[0, 0]),
        float(energies[-1, 0]),
        float(energies[-1, 1]),
        float(energies[:, 1].mean()),
    ]
    print(json.dumps({"program": NAME, "steps": step, "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
