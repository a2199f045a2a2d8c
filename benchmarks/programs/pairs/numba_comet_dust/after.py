"""Dust tail of a comet: grains under solar gravity, radiation pressure and drag, seen on the sky plane.

Each step integrates every grain over one observing interval and exposes a frame of the tail.
"""
import json
import math
import time

import numpy
numpy.row_stack = numpy.vstack
import numpy as np
from numba import cuda

GRAINS = 2_000_000
SUBSTEPS = 64
IMAGE = 1024
WARMUP = 1500
BLOCKS = 10
STEPS_PER_BLOCK = 10

GRAIN_THREADS = 128
GRAIN_BLOCKS = (GRAINS + GRAIN_THREADS - 1) // GRAIN_THREADS
PIXEL_THREADS = (32, 8)
PIXEL_BLOCKS = (IMAGE // 32, IMAGE // 8)
SKY_THREADS = 256
SKY_BLOCKS = (GRAINS + SKY_THREADS - 1) // SKY_THREADS

ONE = np.float32(1.0)
SOFTENING = np.float32(1.0e-4)
DRAG = np.float32(2.0e-4)
DT = np.float32(2.0e-5)
PERSISTENCE = np.float32(0.9)
PIXELS_PER_AU = np.float32(IMAGE / 8.0)
CENTRE = np.float32(IMAGE / 2)


@cuda.jit(fastmath=True)
def advance_grains(px, py, pz, vx, vy, vz, beta):
    first = cuda.grid(1)
    stride = cuda.gridsize(1)
    for i in range(first, px.size, stride):
        x = px[i]
        y = py[i]
        z = pz[i]
        u = vx[i]
        v = vy[i]
        w = vz[i]
        pull = ONE - beta[i]
        drag = DRAG * beta[i]
        for _ in range(SUBSTEPS):
            r2 = x * x + y * y + z * z + SOFTENING
            inv = ONE / math.sqrt(r2)
            inv2 = inv * inv
            attraction = pull * inv2 * inv
            friction = drag * inv2
            u -= DT * (attraction * x + friction * u)
            v -= DT * (attraction * y + friction * v)
            w -= DT * (attraction * z + friction * w)
            x += DT * u
            y += DT * v
            z += DT * w
        px[i] = x
        py[i] = y
        pz[i] = z
        vx[i] = u
        vy[i] = v
        vz[i] = w


@cuda.jit
def fade_frame(frame):
    col, row = cuda.grid(2)
    if row < frame.shape[0] and col < frame.shape[1]:
        frame[row, col] *= PERSISTENCE


@cuda.jit
def expose_frame(px, py, pz, brightness, frame):
    i = cuda.grid(1)
    if i < px.size:
        col = int(px[i] * PIXELS_PER_AU + CENTRE)
        row = int(py[i] * PIXELS_PER_AU + CENTRE)
        if 0 <= col < IMAGE and 0 <= row < IMAGE:
            distance2 = px[i] * px[i] + py[i] * py[i] + pz[i] * pz[i] + SOFTENING
            cuda.atomic.add(frame, (row, col), brightness[i] / distance2)


def make_grains():
    rng = np.random.default_rng(1811)
    radius = rng.uniform(0.8, 4.0, GRAINS)
    angle = rng.uniform(0.0, 2.0 * np.pi, GRAINS)
    height = rng.normal(0.0, 0.05, GRAINS)
    speed = np.sqrt(1.0 / radius) * rng.uniform(0.9, 1.05, GRAINS)
    position = (radius * np.cos(angle), radius * np.sin(angle), height)
    velocity = (-speed * np.sin(angle), speed * np.cos(angle), 0.02 * rng.standard_normal(GRAINS))
    beta = rng.uniform(0.01, 0.6, GRAINS)
    brightness = rng.uniform(0.5, 1.5, GRAINS)
    columns = (*position, *velocity, beta, brightness)
    return [cuda.to_device(np.ascontiguousarray(c, dtype=np.float32)) for c in columns]


def main():
    px, py, pz, vx, vy, vz, beta, brightness = make_grains()
    frame = cuda.to_device(np.zeros((IMAGE, IMAGE), dtype=np.float32))

    def step():
        advance_grains[GRAIN_BLOCKS, GRAIN_THREADS](px, py, pz, vx, vy, vz, beta)
        fade_frame[PIXEL_BLOCKS, PIXEL_THREADS](frame)
        expose_frame[SKY_BLOCKS, SKY_THREADS](px, py, pz, brightness, frame)

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

    x, y, z = (a.copy_to_host().astype(np.float64) for a in (px, py, pz))
    u, v, w = (a.copy_to_host().astype(np.float64) for a in (vx, vy, vz))
    light = frame.copy_to_host().astype(np.float64)
    result = [float(np.sqrt(x * x + y * y + z * z).mean()), float((u * u + v * v + w * w).mean()),
              float(light.sum())]
    print(json.dumps({"program": "numba_comet_dust", "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
                      "us": float(np.median(times)) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
