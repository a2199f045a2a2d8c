"""Night-time illuminance of a town from its street lamps (numba-cuda).

Every lamp has a mast height, a luminous flux and a beam shape; each pixel of
the ground map sums the light of all lamps of its district, dimmed by haze.
Over the evening the lamps are dimmed, and the map is recomputed for each hour.
"""
import json
import math
import statistics
import time

import numpy
numpy.row_stack = numpy.vstack
import numpy as np
from numba import cuda

SIDE = 1024                 # pixels along a side of the map
CELL = 0.5                  # metres
LAMPS = 512
THREADS = (32, 8)
HAZE = 0.004                # extinction, 1/m
ALBEDO = 0.18


@cuda.jit
def illuminate(lamp_x, lamp_y, height, flux, beam, dimming, cell, ground):
    """ground[row, col] += illuminance from all lamps, weighted with the hour's dimming."""
    col, row = cuda.grid(2)
    if row >= ground.shape[0] or col >= ground.shape[1]:
        return
    x = (col + 0.5) * cell
    y = (row + 0.5) * cell
    total = 0.0
    for k in range(lamp_x.shape[0]):
        dx = x - lamp_x[k]
        dy = y - lamp_y[k]
        h = height[k]
        dist2 = dx * dx + dy * dy + h * h
        dist = math.sqrt(dist2)
        cosine = h / dist
        # luminous intensity in the direction of the pixel, then the cosine law
        intensity = flux[k] * (beam[k] + 1.0) / 6.2831853 * math.pow(cosine, beam[k])
        total += dimming * intensity * cosine / dist2 * math.exp(-HAZE * dist)
    ground[row, col] = total * (1.0 + ALBEDO)


@cuda.jit
def accumulate(ground, dose, hours):
    """Adds the hour's light to the night's dose."""
    col, row = cuda.grid(2)
    if row < ground.shape[0] and col < ground.shape[1]:
        dose[row, col] += ground[row, col] * hours


class Town:
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        extent = SIDE * CELL
        f32 = np.float32
        self.lamp_x = cuda.to_device(rng.uniform(0, extent, LAMPS).astype(f32))
        self.lamp_y = cuda.to_device(rng.uniform(0, extent, LAMPS).astype(f32))
        self.height = cuda.to_device(rng.choice([4.5, 6.0, 9.0], LAMPS).astype(f32))
        self.flux = cuda.to_device(rng.uniform(2500, 12000, LAMPS).astype(f32))
        self.beam = cuda.to_device(rng.uniform(0.8, 3.5, LAMPS).astype(f32))
        self.ground = cuda.to_device(np.zeros((SIDE, SIDE), f32))
        self.dose = cuda.to_device(np.zeros((SIDE, SIDE), f32))
        self.grid = (SIDE // THREADS[0], SIDE // THREADS[1])
        self.evening = [1.0, 1.0, 0.9, 0.7, 0.5, 0.5, 0.4, 0.7]
        self.hour = 0

    def step(self):
        dimming = np.float32(self.evening[self.hour % len(self.evening)])
        illuminate[self.grid, THREADS](self.lamp_x, self.lamp_y, self.height, self.flux,
                                       self.beam, dimming, np.float32(CELL), self.ground)
        accumulate[self.grid, THREADS](self.ground, self.dose, np.float32(1.0))
        self.hour += 1

    def run(self, hours):
        cuda.synchronize()
        t0 = time.perf_counter()
        for _ in range(hours):
            self.step()
        cuda.synchronize()
        return (time.perf_counter() - t0) / hours * 1e6


town = Town(seed=8)
town.run(8)
spans = [town.run(5) for _ in range(7)]

dose = town.dose.copy_to_host() / town.hour
print("darkest pixel %.3f lx, brightest %.1f lx" % (dose.min(), dose.max()))
print(json.dumps({
    "program": "numba_streetlamps",
    "steps": town.hour,
    "us": statistics.median(spans),
    "result": [float(dose.mean(dtype=np.float64)), float(dose.std(dtype=np.float64)), float(dose.min())],
}))
