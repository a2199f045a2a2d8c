"""Ensemble Kalman filter for a tracer in an ocean basin: CuPy forecast, then analysis."""

import json
import time

import cupy as cp
import numpy as np

NY, NX = 168, 168
MEMBERS = 80
OBS = 256
SUBSTEPS = 12
WARMUP, CYCLES = 4, 36
NOISE = 0.05

forecast = cp.ElementwiseKernel(
    "raw float32 c, raw float32 u, raw float32 v, int32 ny, int32 nx, float32 dt",
    "float32 out",
    """
    int cells = ny * nx, m = i / cells, k = i % cells, y = k / nx, x = k % nx;
    int base = m * cells, west = base + y * nx + (x + nx - 1) % nx;
    int east = base + y * nx + (x + 1) % nx;
    int north = base + ((y + ny - 1) % ny) * nx + x, south = base + ((y + 1) % ny) * nx + x;
    float here = c[i];
    float drift = u[k] * (c[east] - c[west]) + v[k] * (c[south] - c[north]);
    out = here + dt * (0.8f * (c[east] + c[west] + c[north] + c[south] - 4 * here) - 0.5f * drift);
    """,
    "tracer_forecast",
)


def currents():
    y, x = np.mgrid[0:NY, 0:NX].astype(np.float32)
    u = np.sin(2 * np.pi * y / NY)
    v = np.cos(2 * np.pi * x / NX)
    return cp.asarray(u.ravel(), dtype=cp.float32), cp.asarray(v.ravel(), dtype=cp.float32)


def taper(sites):
    """Weight of each observation on each cell, falling off with distance."""
    cell = np.arange(NY * NX)
    dy = np.abs(cell[:, None] // NX - sites[None, :] // NX)
    dx = np.abs(cell[:, None] % NX - sites[None, :] % NX)
    d2 = np.minimum(dy, NY - dy) ** 2 + np.minimum(dx, NX - dx) ** 2
    return np.exp(-d2 / 800.0).astype(np.float32)


def analyse(states, values, noise, sites, weight):
    """Stochastic analysis with a localised gain."""
    anomalies = states - states.mean(axis=0)
    seen = states[:, sites]
    seen_anomalies = anomalies[:, sites]
    near = weight[sites]
    spread = near * (seen_anomalies.T @ seen_anomalies) / (MEMBERS - 1)
    spread += NOISE**2 * cp.eye(OBS, dtype=cp.float32)
    cross = weight * (anomalies.T @ seen_anomalies) / (MEMBERS - 1)
    innovation = values[None, :] + noise - seen
    return states + (cross @ cp.linalg.solve(spread, innovation.T)).T


def main():
    rng = np.random.default_rng(41)
    u, v = currents()
    sites = rng.choice(NY * NX, OBS, replace=False)
    weight = cp.asarray(taper(sites))
    sites = cp.asarray(sites)
    coarse = rng.standard_normal((MEMBERS + 1, 14, 14)).astype(np.float32)
    fields = coarse.repeat(NY // 14, axis=1).repeat(NX // 14, axis=2).reshape(MEMBERS + 1, -1)
    truth, states = cp.asarray(fields[:1]), cp.asarray(fields[1:])
    ny, nx, dt = np.int32(NY), np.int32(NX), np.float32(0.2)

    def cycle(truth, states):
        for _ in range(SUBSTEPS):
            truth = forecast(truth, u, v, ny, nx, dt, size=truth.size).reshape(truth.shape)
            states = forecast(states, u, v, ny, nx, dt, size=states.size).reshape(states.shape)
        noise = cp.asarray(NOISE * rng.standard_normal((MEMBERS, OBS)).astype(np.float32))
        return truth, analyse(states, truth[0, sites], noise, sites, weight)

    laps = []
    early = 0.0
    for n in range(WARMUP + CYCLES):
        start = time.perf_counter()
        truth, states = cycle(truth, states)
        cp.cuda.Device().synchronize()
        laps.append(time.perf_counter() - start)
        if n == 1:
            early = float(cp.sqrt(cp.mean((states.mean(axis=0) - truth[0]) ** 2)))
    spread = float(states.std(axis=0).mean())
    print(f"error after two cycles {early:.5f}, spread {spread:.5f}")
    us = float(np.median(laps[WARMUP:])) * 1e6
    out = {"program": "cupy_ocean_ensemble", "steps": len(laps), "us": us}
    print(json.dumps(out | {"result": [early, spread]}))


if __name__ == "__main__":
    main()
