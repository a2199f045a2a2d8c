"""Charts of the geomagnetic main field over many epochs: spherical harmonic synthesis of north, east and down components."""
import json
import math
import time

import cupy as cp
import numpy as np
from scipy.special import gammaln

NAME = "cupy_magnetic_chart"
SEED = 1839
DEGREE = 13
EARTH_RADIUS = 6371.2
ALTITUDE = 35.0
N_LAT = 90
N_LON = 180
EPOCHS_PER_BLOCK = 64
BLOCKS = 6


def schmidt_legendre(degree, colatitude):
    """Schmidt semi-normalised P_n^m and dP/dtheta by recursion on the standard functions."""
    c, s = np.cos(colatitude), np.sin(colatitude)
    p = {(0, 0): np.ones_like(c)}
    for m in range(1, degree + 2):
        p[m, m] = (2 * m - 1) * s * p[m - 1, m - 1]
    for m in range(degree + 1):
        p[m + 1, m] = (2 * m + 1) * c * p[m, m]
        for n in range(m + 2, degree + 1):
            p[n, m] = ((2 * n - 1) * c * p[n - 1, m] - (n + m - 1) * p[n - 2, m]) / (n - m)
    value, slope = {}, {}
    for n in range(1, degree + 1):
        for m in range(n + 1):
            scale = math.sqrt((1 if m == 0 else 2) * math.exp(gammaln(n - m + 1) - gammaln(n + m + 1)))
            below = p[n - 1, m] if m <= n - 1 else np.zeros_like(c)
            value[n, m] = scale * p[n, m]
            slope[n, m] = scale * (n * c * p[n, m] - (n + m) * below) / s
    return value, slope


def design_matrices():
    """Rows are chart points, columns the Gauss coefficients g(n,m), h(n,m)."""
    colat = np.deg2rad(np.linspace(3.0, 177.0, N_LAT))
    lon = np.deg2rad(np.linspace(-180.0, 178.0, N_LON))
    theta = np.repeat(colat, N_LON)
    phi = np.tile(lon, N_LAT)
    value, slope = schmidt_legendre(DEGREE, theta)
    ratio = EARTH_RADIUS / (EARTH_RADIUS + ALTITUDE)
    north, east, down = [], [], []
    for n in range(1, DEGREE + 1):
        r = ratio ** (n + 2)
        for m in range(n + 1):
            cos_m, sin_m = np.cos(m * phi), np.sin(m * phi)
            north.append(r * slope[n, m] * cos_m)
            east.append(r * m * value[n, m] * sin_m / np.sin(theta))
            down.append(-(n + 1) * r * value[n, m] * cos_m)
            if m > 0:
                north.append(r * slope[n, m] * sin_m)
                east.append(-r * m * value[n, m] * cos_m / np.sin(theta))
                down.append(-(n + 1) * r * value[n, m] * sin_m)
    stack = [np.ascontiguousarray(np.stack(k, axis=1), dtype=np.float32) for k in (north, east, down)]
    area = np.sin(theta) / np.sin(theta).sum()
    return [cp.asarray(k) for k in stack], cp.asarray(area.astype(np.float32))


def coefficient_histories(rng, n_coeff):
    """Gauss coefficients in nT with secular variation, for all epochs."""
    degrees = np.concatenate([np.full(2 * n + 1, n) for n in range(1, DEGREE + 1)])
    spread = 3.0e4 * 0.35 ** (degrees - 1) + 2.0
    start = rng.standard_normal(n_coeff) * spread * 0.1
    start[0] = -29400.0
    walk = rng.standard_normal((EPOCHS_PER_BLOCK * BLOCKS, n_coeff)) * spread * 2e-3
    return (start + np.cumsum(walk, axis=0)).astype(np.float32)


chart_elements = cp.ElementwiseKernel(
    "float32 x, float32 y, float32 z",
    "float32 total, float32 inclination, float32 declination",
    """
    float h2 = x * x + y * y;
    total = sqrtf(h2 + z * z);
    inclination = atan2f(z, sqrtf(h2));
    declination = atan2f(y, x);
    """,
    "chart_elements",
)


def synthesise(design, gauss):
    """Field component at every epoch of the block and every chart point."""
    return cp.sum(gauss[:, None, :] * design[None, :, :], axis=2)


def chart_block(designs, area, gauss, summary):
    x, y, z = (synthesise(d, gauss) for d in designs)
    total, inclination, declination = chart_elements(x, y, z)
    summary[0] += cp.dot(total, area).mean()
    summary[1] += cp.dot(cp.abs(inclination), area).mean()
    summary[2] += cp.dot(cp.abs(declination), area).mean()
    return total


def main():
    rng = np.random.default_rng(SEED)
    designs, area = design_matrices()
    histories = cp.asarray(coefficient_histories(rng, designs[0].shape[1]))
    blocks = [histories[i * EPOCHS_PER_BLOCK:(i + 1) * EPOCHS_PER_BLOCK] for i in range(BLOCKS)]

    warm = cp.zeros(3, dtype=cp.float32)
    for gauss in blocks:
        chart_block(designs, area, gauss, warm)
    cp.cuda.Device().synchronize()

    summary = cp.zeros(3, dtype=cp.float32)
    times, steps = [], 0
    for _ in range(10):
        start = time.perf_counter()
        for gauss in blocks:
            total = chart_block(designs, area, gauss, summary)
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / BLOCKS)
        steps += BLOCKS

    means = (cp.asnumpy(summary) / steps).tolist()
    result = means + [float(total.max())]
    print(json.dumps({"program": NAME, "steps": steps, "us": float(np.median(times)) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
