"""Steric sea level from temperature and salinity of an ocean model.

Uses the international equation of state EOS-80 (UNESCO 1983): density of sea
water from practical salinity, temperature (deg C) and pressure (bar).  For each
month the density anomaly against a standard ocean is integrated over depth.
"""
import json
import time

import cupy as cp
import numpy as np

LEVELS, NLAT, NLON = 50, 600, 1200
DEPTH = 5000.0
G_RHO0 = 9.81 * 1025.0
WARMUP, MONTHS, BLOCK = 6, 40, 5


def surface_density(s, t):
    """Sea water at atmospheric pressure."""
    pure = 999.842594 + t * (6.793952e-2 + t * (-9.095290e-3 + t * (
        1.001685e-4 + t * (-1.120083e-6 + t * 6.536332e-9))))
    a = 8.24493e-1 + t * (-4.0899e-3 + t * (7.6438e-5 + t * (-8.2467e-7 + t * 5.3875e-9)))
    b = -5.72466e-3 + t * (1.0227e-4 - t * 1.6546e-6)
    return pure + s * (a + b * cp.sqrt(s) + 4.8314e-4 * s)


def bulk_modulus(s, t, p):
    """Secant bulk modulus in bar."""
    root = cp.sqrt(s)
    kw = 19652.21 + t * (148.4206 + t * (-2.327105 + t * (1.360477e-2 - t * 5.155288e-5)))
    k0 = kw + s * (54.6746 + t * (-0.603459 + t * (1.09987e-2 - t * 6.1670e-5))
                   + root * (7.944e-2 + t * (1.6483e-2 - t * 5.3009e-4)))
    a = 3.239908 + t * (1.43713e-3 + t * (1.16092e-4 - t * 5.77905e-7))
    a = a + s * (2.2838e-3 + t * (-1.0981e-5 - t * 1.6078e-6) + 1.91075e-4 * root)
    b = 8.50935e-5 + t * (-6.12293e-6 + t * 5.2787e-8)
    b = b + s * (-9.9348e-7 + t * (2.0816e-8 + t * 9.1697e-10))
    return k0 + p * (a + p * b)


def density(s, t, p):
    return surface_density(s, t) / (1.0 - p / bulk_modulus(s, t, p))


class Ocean:
    """Climatology with a seasonal cycle that fades with depth."""

    def __init__(self):
        edges = DEPTH * (np.linspace(0, 1, LEVELS + 1) ** 1.8)
        depth = 0.5 * (edges[1:] + edges[:-1])
        self.thickness = cp.asarray(np.diff(edges), dtype=cp.float32)
        self.pressure = cp.asarray(depth * G_RHO0 / 1e5, dtype=cp.float32).reshape(-1, 1, 1)
        z = cp.asarray(depth, dtype=cp.float32).reshape(-1, 1, 1)
        lat = cp.linspace(-1.3, 1.3, NLAT, dtype=cp.float32).reshape(1, -1, 1)
        lon = cp.linspace(0, 2 * np.pi, NLON, dtype=cp.float32).reshape(1, 1, -1)
        eddies = cp.sin(5 * lon + 9 * lat) * cp.cos(7 * lat)
        self.temperature = 2.0 + (24.0 * cp.cos(lat) + 1.5 * eddies) * cp.exp(-z / 700.0)
        self.salinity = 34.7 + (1.2 * cp.cos(3 * lat) + 0.2 * eddies) * cp.exp(-z / 400.0)
        self.season = 4.0 * cp.sin(lat) * cp.exp(-z / 60.0) * cp.ones_like(lon)
        ref = density(cp.full_like(z, 35.0), cp.zeros_like(z), self.pressure)
        self.weights = self.thickness / ref.ravel()

    def month(self, k):
        phase = np.cos(2 * np.pi * k / 12.0)
        return self.temperature + float(phase) * self.season


def steric_height(ocean, k):
    t = ocean.month(k)
    rho = density(ocean.salinity, t, ocean.pressure)
    column = ocean.weights @ rho.reshape(LEVELS, -1)
    return DEPTH - column


def main():
    ocean = Ocean()
    mean_level = cp.zeros(NLAT * NLON, dtype=cp.float32)
    march = None
    steps = 0

    def advance():
        nonlocal steps, march
        height = steric_height(ocean, steps)
        cp.add(mean_level, height, out=mean_level)
        if steps == 15:
            march = height
        steps += 1

    for _ in range(WARMUP):
        advance()
    cp.cuda.Device().synchronize()
    times = []
    for _ in range(MONTHS // BLOCK):
        begin = time.perf_counter()
        for _ in range(BLOCK):
            advance()
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - begin) / BLOCK * 1e6)

    mean_level /= steps
    result = [float(mean_level.mean()), float(mean_level.max()), float(march.mean())]
    print(json.dumps({"program": "cupy_seawater", "steps": steps,
                      "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
