"""Microlensing of a quasar by the stars of a foreground galaxy: deflection maps per epoch.

Every ray of the image plane sums the deflection of all stars (slightly softened discs).
The stars drift between the epochs; one step makes the maps of one epoch and adds them to
the light-curve statistics.
"""
import json
import math
import statistics
import time

import numpy as np

np.row_stack = np.vstack
from numba import cuda, float32  # noqa: E402

RAYS = 1024                # the map is RAYS x RAYS
STARS = 1024
FIELD = 12.0               # Einstein radii
PITCH = FIELD / RAYS
DISC = 0.004               # squared radius of a star's softened disc
KAPPA_SMOOTH, SHEAR = 0.12, 0.18
# single-precision constants for the kernel: a Python float would promote the arithmetic
HALF, ONE, TINY = np.float32(0.5), np.float32(1.0), np.float32(1e-6)
PITCH32, FIELD32, PER_DISC = np.float32(PITCH), np.float32(FIELD), np.float32(1.0 / DISC)
STRETCH_X = np.float32(1.0 - KAPPA_SMOOTH - SHEAR)
STRETCH_Y = np.float32(1.0 - KAPPA_SMOOTH + SHEAR)
WARMUP, BLOCKS, PER_BLOCK = 5, 8, 4


@cuda.jit
def deflection_map(star_x, star_y, mass, epoch, source_x, source_y):
    """Source-plane position of every ray at one epoch."""
    col, row = cuda.grid(2)
    if row >= RAYS or col >= RAYS:
        return
    x = (float32(col) + HALF) * PITCH32 - HALF * FIELD32
    y = (float32(row) + HALF) * PITCH32 - HALF * FIELD32
    ax = float32(0.0)
    ay = float32(0.0)
    for j in range(STARS):
        dx = x - star_x[epoch, j]
        dy = y - star_y[epoch, j]
        r2 = dx * dx + dy * dy + TINY
        pull = mass[j] * (ONE - math.exp(-r2 * PER_DISC)) / r2
        ax += pull * dx
        ay += pull * dy
    source_x[row, col] = x * STRETCH_X - ax
    source_y[row, col] = y * STRETCH_Y - ay


@cuda.jit
def accumulate(source_x, source_y, area, shift):
    """Adds the inverse magnification (Jacobian by differences) and the displacement."""
    col, row = cuda.grid(2)
    if row >= RAYS - 1 or col >= RAYS - 1:
        return
    sx, sy = source_x[row, col], source_y[row, col]
    xx = source_x[row, col + 1] - sx
    xy = source_x[row + 1, col] - sx
    yx = source_y[row, col + 1] - sy
    yy = source_y[row + 1, col] - sy
    area[row, col] += abs(xx * yy - xy * yx)
    shift[row, col] += math.sqrt(sx * sx + sy * sy)


def synth_stars(epochs, seed=53):
    """Positions [epoch, star] and masses; a Salpeter-like mass function."""
    rng = np.random.default_rng(seed)
    start = rng.uniform(-0.7 * FIELD, 0.7 * FIELD, (2, STARS))
    velocity = rng.normal(0.0, 0.02, (2, STARS))
    time_axis = np.arange(epochs)[:, None]
    x = (start[0] + velocity[0] * time_axis).astype(np.float32)
    y = (start[1] + velocity[1] * time_axis).astype(np.float32)
    mass = (0.1 * (1.0 - rng.random(STARS)) ** (-1.0 / 1.35)).clip(0.1, 1.5)
    mass *= 0.45 * (1.4 * FIELD) ** 2 / math.pi / mass.sum()
    return cuda.to_device(x), cuda.to_device(y), cuda.to_device(mass.astype(np.float32))


def main():
    steps = WARMUP + BLOCKS * PER_BLOCK
    star_x, star_y, mass = synth_stars(steps)
    zeros = np.zeros((RAYS, RAYS), dtype=np.float32)
    source_x, source_y = cuda.to_device(zeros), cuda.to_device(zeros)
    area, shift = cuda.to_device(zeros), cuda.to_device(zeros)
    threads = (32, 8)
    blocks = (RAYS // threads[0], RAYS // threads[1])

    def epoch_step(epoch):
        deflection_map[blocks, threads](star_x, star_y, mass, epoch, source_x, source_y)
        accumulate[blocks, threads](source_x, source_y, area, shift)

    done = 0
    for _ in range(WARMUP):
        epoch_step(done)
        done += 1
    cuda.synchronize()

    per_step = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            epoch_step(done)
            done += 1
        cuda.synchronize()
        per_step.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    mean_area = area.copy_to_host()[:-1, :-1].astype(np.float64) / done / PITCH ** 2
    mean_shift = shift.copy_to_host()[:-1, :-1].astype(np.float64) / done
    print(f"{done} epochs, {STARS} stars")
    print(json.dumps({
        "program": "numba_microlensing",
        "steps": done,
        "us": statistics.median(per_step),
        "result": [float(np.median(mean_area)), float(mean_shift.mean()), float(mean_shift.std())],
    }))


if __name__ == "__main__":
    main()
