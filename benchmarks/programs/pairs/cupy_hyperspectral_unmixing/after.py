"""Unmix airborne hyperspectral flight lines into mineral abundances.

Raw counts arrive in page-locked memory from the frame grabber, chunk by chunk. Each
chunk is calibrated to reflectance, and the abundances under the library of mineral
spectra are found with multiplicative (non-negative) updates.
"""
import json
import os
import time

os.environ.setdefault("CUPY_TF32", "1")

import cupy as cp
import cupyx
import numpy as np

BANDS = 192
PIXELS = 262144                # pixels of a chunk
MINERALS = 32
CHUNKS = 4                     # chunks of a flight line
ITERATIONS = 30
WARMUP, BLOCKS, PER_BLOCK = 5, 6, 4

calibrate = cp.ElementwiseKernel(
    "uint16 counts, float32 dark, float32 gain", "float32 refl",
    "refl = fmaxf(0.0f, ((float)counts - dark) * gain)",
    "calibrate_counts")

multiply = cp.ElementwiseKernel(
    "float32 num, float32 den", "float32 a",
    "a = a * num / (den + 1e-6f)",
    "multiplicative_update")


def mineral_library(rng):
    """Smooth continua with two or three absorption features each."""
    wave = np.linspace(0.4, 2.5, BANDS)
    library = np.empty((MINERALS, BANDS), dtype=np.float32)
    for m in range(MINERALS):
        curve = 0.3 + 0.4 * rng.random() + 0.1 * rng.standard_normal() * (wave - 1.4)
        for _ in range(rng.integers(2, 4)):
            centre, width = rng.uniform(0.5, 2.4), rng.uniform(0.02, 0.15)
            curve -= rng.uniform(0.05, 0.25) * np.exp(-0.5 * ((wave - centre) / width) ** 2)
        library[m] = np.clip(curve, 0.02, 1.0)
    return library


class FlightLine:
    """Simulated frame-grabber buffers, page-locked."""

    def __init__(self, library, dark, gain, seed):
        rng = cp.random.default_rng(seed)
        self.chunks = []
        for _ in range(CHUNKS):
            share = rng.random((PIXELS, MINERALS), dtype=cp.float32) ** 6
            share /= share.sum(axis=1, keepdims=True)
            counts = share @ library / gain + dark
            counts += 4.0 * rng.random((PIXELS, BANDS), dtype=cp.float32)
            host = cupyx.empty_pinned((PIXELS, BANDS), dtype=np.uint16)
            cp.asarray(counts, dtype=cp.uint16).get(out=host)
            self.chunks.append(host)


class Unmixer:
    def __init__(self, library, dark, gain):
        self.spectra_t = cp.ascontiguousarray(library.T)
        self.gram = library @ library.T
        self.dark, self.gain = dark, gain
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.copier = cp.cuda.Stream(non_blocking=True)
        self.raw = [cp.empty((PIXELS, BANDS), dtype=cp.uint16) for _ in range(2)]
        self.filled = [cp.cuda.Event(disable_timing=True) for _ in range(2)]
        self.drained = [cp.cuda.Event(disable_timing=True) for _ in range(2)]
        self.slot = 0
        self.refl = cp.empty((PIXELS, BANDS), dtype=cp.float32)
        self.num = cp.empty((PIXELS, MINERALS), dtype=cp.float32)
        self.den = cp.empty_like(self.num)
        self.abundance = cp.empty_like(self.num)
        self.cover = cp.zeros(MINERALS, dtype=cp.float32)

    def unmix(self, raw):
        calibrate(raw, self.dark, self.gain, self.refl)
        cp.dot(self.refl, self.spectra_t, out=self.num)
        self.abundance.fill(1.0 / MINERALS)
        for _ in range(ITERATIONS):
            cp.dot(self.abundance, self.gram, out=self.den)
            multiply(self.num, self.den, self.abundance)
        self.cover += self.abundance.mean(axis=0)

    def flight_line(self, line):
        with self.stream:
            for chunk in line.chunks:
                slot, self.slot = self.slot, 1 - self.slot
                self.copier.wait_event(self.drained[slot])
                self.raw[slot].set(chunk, stream=self.copier)
                self.filled[slot].record(self.copier)
                self.stream.wait_event(self.filled[slot])
                self.unmix(self.raw[slot])
                self.drained[slot].record(self.stream)


def main():
    rng = np.random.default_rng(77)
    library = cp.asarray(mineral_library(rng))
    dark = cp.asarray(rng.uniform(90, 110, BANDS).astype(np.float32))
    gain = cp.asarray((1.0 / rng.uniform(3000, 9000, BANDS)).astype(np.float32))
    line = FlightLine(library, dark, gain, seed=5)
    unmixer = Unmixer(library, dark, gain)
    cp.cuda.Device().synchronize()

    for _ in range(WARMUP):
        unmixer.flight_line(line)
    cp.cuda.Device().synchronize()
    times = []
    for _ in range(BLOCKS):
        t0 = time.perf_counter()
        for _ in range(PER_BLOCK):
            unmixer.flight_line(line)
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - t0) / PER_BLOCK)
    steps = WARMUP + BLOCKS * PER_BLOCK
    us = 1e6 * sorted(times)[len(times) // 2]
    cover = cp.asnumpy(unmixer.cover) / (steps * CHUNKS)
    print(json.dumps({"program": "cupy_hyperspectral_unmixing", "steps": steps, "us": round(us, 1),
                      "result": [float(cover.sum()), float(np.sqrt((cover ** 2).sum()))]}))


if __name__ == "__main__":
    main()
