"""Tsunami over an ocean basin: shallow water equations with a Rusanov scheme, and tide gauges."""

import json
import statistics
import time
import warnings

import numpy

numpy.row_stack = numpy.vstack
import numpy as np
from numba import cuda

warnings.simplefilter("ignore")

ROWS = 3072
COLUMNS = 4096
SUBSTEPS = 5
GAUGES = 64
WARMUP = 10
BLOCKS = 10
STEPS_PER_BLOCK = 40

HALF = np.float32(0.5)
TWO = np.float32(2.0)
GRAVITY = np.float32(9.81)
SPEED = np.float32(215.0)  # bound of the wave speed, m/s
DRAG = np.float32(0.9999)
RATIO = np.float32(1.0 / 500)  # time step over cell size, s/m

THREADS = (16, 16)


@cuda.jit
def advance(depth, eta, hu, hv, new_eta, new_hu, new_hv):
    j, i = cuda.grid(2)
    if i < 1 or j < 1 or i >= eta.shape[0] - 1 or j >= eta.shape[1] - 1:
        return
    e, w, n, s, c = eta[i, j + 1], eta[i, j - 1], eta[i + 1, j], eta[i - 1, j], eta[i, j]
    hu_e, hu_w, hu_n, hu_s, hu_c = hu[i, j + 1], hu[i, j - 1], hu[i + 1, j], hu[i - 1, j], hu[i, j]
    hv_e, hv_w, hv_n, hv_s, hv_c = hv[i, j + 1], hv[i, j - 1], hv[i + 1, j], hv[i - 1, j], hv[i, j]
    h_e = depth[i, j + 1] + e
    h_w = depth[i, j - 1] + w
    h_n = depth[i + 1, j] + n
    h_s = depth[i - 1, j] + s
    h_c = depth[i, j] + c

    mass = (hu_e - hu_w + hv_n - hv_s) * HALF
    along = (hu_e * hu_e / h_e - hu_w * hu_w / h_w + hu_n * hv_n / h_n - hu_s * hv_s / h_s) * HALF
    across = (hu_e * hv_e / h_e - hu_w * hv_w / h_w + hv_n * hv_n / h_n - hv_s * hv_s / h_s) * HALF
    along += GRAVITY * h_c * (e - w) * HALF
    across += GRAVITY * h_c * (n - s) * HALF
    blur = SPEED * HALF
    new_eta[i, j] = c - RATIO * (mass - blur * (e + w + n + s - TWO * TWO * c))
    new_hu[i, j] = DRAG * (
        hu_c - RATIO * (along - blur * (hu_e + hu_w + hu_n + hu_s - TWO * TWO * hu_c))
    )
    new_hv[i, j] = DRAG * (
        hv_c - RATIO * (across - blur * (hv_e + hv_w + hv_n + hv_s - TWO * TWO * hv_c))
    )


@cuda.jit
def read_gauges(eta, places, record, row):
    g = cuda.grid(1)
    if g < places.shape[0]:
        record[row, g] = eta[places[g, 0], places[g, 1]]


def basin():
    """Depth of the sea in metres: a deep plain, shelves and a ridge."""
    y = np.linspace(0, 1, ROWS, dtype=np.float32)[:, None]
    x = np.linspace(0, 1, COLUMNS, dtype=np.float32)[None, :]
    depth = (
        4200
        - 3000 * np.exp(-(((x - 0.95) / 0.08) ** 2))
        - 1800 * np.exp(-(((y - 0.4 - 0.1 * x) / 0.04) ** 2))
    )
    return np.maximum(depth, 80).astype(np.float32)


def uplift():
    """Lifted and sunken sea floor along a fault, carried over to the surface."""
    y = np.arange(ROWS, dtype=np.float32)[:, None] - ROWS * 0.5
    x = np.arange(COLUMNS, dtype=np.float32)[None, :] - COLUMNS * 0.45
    return (
        4 * np.exp(-((x / 60) ** 2) - (y / 260) ** 2)
        - 2 * np.exp(-(((x + 110) / 70) ** 2) - (y / 260) ** 2)
    ).astype(np.float32)


def main():
    rng = np.random.default_rng(3)
    depth = cuda.to_device(basin())
    start = uplift()
    still = np.zeros((ROWS, COLUMNS), np.float32)
    eta, hu, hv = cuda.to_device(start), cuda.to_device(still), cuda.to_device(still)
    new_eta, new_hu, new_hv = cuda.to_device(start), cuda.to_device(still), cuda.to_device(still)
    offsets = rng.integers(-500, 500, (GAUGES, 2))
    places = cuda.to_device((offsets + [ROWS // 2, int(COLUMNS * 0.45)]).astype(np.int32))
    steps = WARMUP + BLOCKS * STEPS_PER_BLOCK
    record = cuda.to_device(np.zeros((steps, GAUGES), np.float32))
    grid = ((COLUMNS + THREADS[0] - 1) // THREADS[0], (ROWS + THREADS[1] - 1) // THREADS[1])

    done = 0

    def step():
        nonlocal eta, hu, hv, new_eta, new_hu, new_hv, done
        for _ in range(SUBSTEPS):
            advance[grid, THREADS](depth, eta, hu, hv, new_eta, new_hu, new_hv)
            eta, new_eta = new_eta, eta
            hu, new_hu = new_hu, hu
            hv, new_hv = new_hv, hv
        read_gauges[1, GAUGES](eta, places, record, done)
        done += 1

    for _ in range(WARMUP):
        step()
    cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)
    us = statistics.median(times) * 1e6
    heights = record.copy_to_host().astype(np.float64)
    surface = eta.copy_to_host().astype(np.float64)
    print(f"{ROWS * COLUMNS * SUBSTEPS / us:.0f} M cells/s, highest gauge {heights.max():.2f} m")
    result = [
        float(np.square(heights).mean()),
        float(np.square(surface).mean()),
        float(heights.max()),
    ]
    print(json.dumps({"program": "numba_tsunami", "steps": done, "us": us, "result": result}))


if __name__ == "__main__":
    main()
