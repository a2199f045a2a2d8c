"""Build a time-of-flight mass spectrum from digitised ion hits and smooth it."""
import json
import math
import time

import numpy

numpy.row_stack = numpy.vstack
import numpy as np
from numba import cuda, float32, int32

NAME = "numba_mass_spectrum"
HITS = 1 << 25
BINS = 2048
MZ_LOW, MZ_HIGH = 50.0, 1250.0
THREADS, GRID = 256, 132 * 8
HALF_WIDTH = 4
WARMUP, BLOCKS, PER_BLOCK = 5, 6, 6


@cuda.jit
def clear(spectrum):
    i = cuda.grid(1)
    if i < spectrum.shape[0]:
        spectrum[i] = 0


@cuda.jit
def accumulate(mz, charge, low, scale, spectrum):
    """Add the charge of every hit to its m/z bin."""
    n = mz.shape[0]
    bins = spectrum.shape[0]
    start = cuda.grid(1)
    stride = cuda.gridsize(1)
    for i in range(start, n, stride):
        b = int32((mz[i] - low) * scale)
        if b >= 0 and b < bins:
            cuda.atomic.add(spectrum, b, charge[i])


@cuda.jit
def smooth(spectrum, kernel, out):
    i = cuda.grid(1)
    n = spectrum.shape[0]
    if i < n:
        acc = float32(0.0)
        for k in range(-HALF_WIDTH, HALF_WIDTH + 1):
            j = min(max(i + k, 0), n - 1)
            acc += kernel[k + HALF_WIDTH] * float32(spectrum[j])
        out[i] = acc


def make_hits(rng):
    """A solvent peak, a handful of analytes and a chemical background."""
    masses = np.array([118.09, 322.05, 524.26, 609.28, 622.03, 922.01, 1121.99], dtype=np.float32)
    weights = np.array([0.42, 0.14, 0.12, 0.10, 0.09, 0.08, 0.05])
    peak = rng.choice(len(masses), size=HITS, p=weights).astype(np.int8)
    mz = masses[peak] + rng.standard_normal(HITS, dtype=np.float32) * np.float32(0.35)
    background = rng.random(HITS, dtype=np.float32) < 0.05
    count = int(background.sum())
    mz[background] = rng.uniform(MZ_LOW, MZ_HIGH, count).astype(np.float32)
    charge = rng.integers(1, 12, HITS, dtype=np.int32)
    return mz, charge


def smoothing_kernel():
    k = np.arange(-HALF_WIDTH, HALF_WIDTH + 1)
    w = np.exp(-0.5 * (k / 1.5) ** 2)
    return (w / w.sum()).astype(np.float32)


class Spectrometer:
    def __init__(self):
        self.spectrum = cuda.device_array(BINS, dtype=np.int32)
        self.smoothed = cuda.device_array(BINS, dtype=np.float32)
        self.kernel = cuda.to_device(smoothing_kernel())
        self.low = np.float32(MZ_LOW)
        self.scale = np.float32(BINS / (MZ_HIGH - MZ_LOW))
        self.small_grid = math.ceil(BINS / THREADS)

    def acquire(self, mz, charge):
        clear[self.small_grid, THREADS](self.spectrum)
        accumulate[GRID, THREADS](mz, charge, self.low, self.scale, self.spectrum)
        smooth[self.small_grid, THREADS](self.spectrum, self.kernel, self.smoothed)


def main():
    rng = np.random.default_rng(2024)
    mz, charge = (cuda.to_device(a) for a in make_hits(rng))
    device = Spectrometer()

    done = 0
    for _ in range(WARMUP):
        device.acquire(mz, charge)
        done += 1
    cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            device.acquire(mz, charge)
            done += 1
        cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)
    times.sort()

    spectrum = device.spectrum.copy_to_host()
    smoothed = device.smoothed.copy_to_host()
    print(json.dumps({
        "program": NAME,
        "steps": done,
        "us": times[len(times) // 2],
        "result": [
            float(spectrum.sum(dtype=np.int64)),
            float(spectrum.max()),
            float(smoothed.max()),
            float(np.dot(smoothed.astype(np.float64), np.arange(BINS)) / smoothed.sum()),
        ],
    }))


if __name__ == "__main__":
    main()
