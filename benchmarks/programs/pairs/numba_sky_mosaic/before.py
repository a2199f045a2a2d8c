"""Keeps the running sky level and scatter of a wide mosaic camera and rejects pixels struck by cosmic rays."""
import json
import time

import numpy
import numpy as np

numpy.row_stack = numpy.vstack
from numba import cuda

PROGRAM = "numba_sky_mosaic"
PIXELS = 1 << 27
FRAMES = 4
THREADS = 256
WARMUP = 60
BLOCKS = 10
PER_BLOCK = 40

RATE = np.float32(0.03)
KEEP = np.float32(0.97)
LIMIT = np.float32(25.0)
FLOOR = np.float32(1.0)


@cuda.jit
def make_frame(raw, number):
    """Counts of one exposure: bias, sky, noise of four bytes of a hash, now and then a cosmic ray."""
    i = cuda.grid(1)
    if i >= PIXELS:
        return
    mixed = (i + number * 1640531527) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    mixed = mixed ^ (mixed >> 16)
    noise = (mixed & 0xFF) + ((mixed >> 8) & 0xFF) + ((mixed >> 16) & 0xFF) + ((mixed >> 24) & 0xFF)
    count = 1000 + (noise >> 2) + ((i >> 20) & 31)
    if (mixed & 0x3FFF) == 77:
        count += 9000
    raw[i] = count


@cuda.jit
def make_calibration(bias, gain):
    i = cuda.grid(1)
    if i >= PIXELS:
        return
    bias[i] = np.float32(900 + (i & 15))
    gain[i] = np.float32(1.4) + np.float32(0.001) * np.float32((i >> 7) & 127)


@cuda.jit
def update_sky(raw, bias, gain, level, scatter):
    """Exponentially weighted mean and variance, each pixel by itself; struck pixels only widen a little."""
    i = cuda.grid(1)
    if i >= PIXELS:
        return
    electrons = (np.float32(raw[i]) - bias[i]) * gain[i]
    mean = level[i]
    variance = scatter[i]
    miss = electrons - mean
    square = miss * miss
    bound = LIMIT * max(variance, FLOOR)
    weight = RATE
    if square > bound:
        square = bound
        weight = np.float32(0.0)
    level[i] = mean + weight * miss
    scatter[i] = KEEP * variance + RATE * square


class Mosaic:
    def __init__(self):
        self.grid = (PIXELS + THREADS - 1) // THREADS
        self.bias = cuda.device_array(PIXELS, dtype=np.float32)
        self.gain = cuda.device_array(PIXELS, dtype=np.float32)
        make_calibration[self.grid, THREADS](self.bias, self.gain)
        self.frames = []
        for number in range(FRAMES):
            raw = cuda.device_array(PIXELS, dtype=np.uint16)
            make_frame[self.grid, THREADS](raw, number)
            self.frames.append(raw)
        first = np.full(PIXELS, 300.0, dtype=np.float32)
        self.level = cuda.to_device(first)
        first.fill(10000.0)
        self.scatter = cuda.to_device(first)
        self.exposure = 0

    def expose(self):
        raw = self.frames[self.exposure % FRAMES]
        update_sky[self.grid, THREADS](raw, self.bias, self.gain, self.level, self.scatter)
        self.exposure += 1


def main():
    mosaic = Mosaic()
    for _ in range(WARMUP):
        mosaic.expose()
    cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            mosaic.expose()
        cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    level = mosaic.level.copy_to_host()
    scatter = mosaic.scatter.copy_to_host()
    result = [float(level.mean(dtype=np.float64)), float(scatter.mean(dtype=np.float64))]
    print(json.dumps({"program": PROGRAM, "steps": BLOCKS * PER_BLOCK, "us": float(np.median(times)),
                      "result": result}))


if __name__ == "__main__":
    main()
