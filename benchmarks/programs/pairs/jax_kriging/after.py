"""Hourly gap-free maps from a station network by simple kriging.

Every hour the residuals of several variables, measured at the stations, are
interpolated to a grid with a Matern covariance; maps are averaged in time.
"""

import json
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

STATIONS = 3000
GRID = (160, 192)
VARIABLES = 16
HOURS = 24
RANGE_KM = 35.0
NUGGET = 0.3


def distances(a, b):
    sq = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :]
    cross = jnp.matmul(a, b.T, precision="highest")
    return jnp.sqrt(jnp.maximum(sq - 2.0 * cross, 1e-6))


def matern32(dist):
    u = jnp.sqrt(3.0) * dist / RANGE_KM
    return (1.0 + u) * jnp.exp(-u)


@jax.jit
def factorise(stations):
    cov = matern32(distances(stations, stations))
    cov = cov + NUGGET * jnp.eye(STATIONS, dtype=cov.dtype)
    return jnp.linalg.cholesky(cov)


@jax.jit
def cross_covariance(grid, stations):
    return matern32(distances(grid, stations))


def krige(chol, cross, residuals):
    half = jax.scipy.linalg.solve_triangular(chol, residuals, lower=True)
    weights = jax.scipy.linalg.solve_triangular(chol, half, lower=True, trans=1)
    return jnp.matmul(cross, weights, precision="highest")


@partial(jax.jit, donate_argnums=0)
def assimilate(mean_map, hour, observed, climatology, chol, cross):
    residuals = jax.lax.dynamic_index_in_dim(observed, hour % HOURS, keepdims=False)
    residuals = residuals - climatology
    estimate = krige(chol, cross, residuals)
    return mean_map + (estimate - mean_map) / (hour + 1.0)


def make_network(seed):
    """Stations in a 400 km square, and smooth daily fields sampled with noise."""
    rng = np.random.default_rng(seed)
    stations = rng.uniform(0.0, 400.0, (STATIONS, 2)).astype(np.float32)
    gy, gx = np.meshgrid(
        np.linspace(0.0, 400.0, GRID[0]), np.linspace(0.0, 400.0, GRID[1]), indexing="ij"
    )
    grid = np.stack([gx.ravel(), gy.ravel()], axis=1).astype(np.float32)
    wave = rng.normal(0.0, 0.02, (VARIABLES, 2))
    phase = rng.uniform(0.0, 2.0 * np.pi, VARIABLES)
    hours = np.arange(HOURS)[:, None, None] * (2.0 * np.pi / HOURS)
    signal = 2.0 + np.sin(stations @ wave.T + phase + hours)
    noise = 0.3 * rng.standard_normal(signal.shape)
    climatology = np.full((1, VARIABLES), 0.5)
    return [
        jax.device_put(np.asarray(x, dtype=np.float32))
        for x in (signal + noise, climatology, stations, grid)
    ]


def main():
    observed, climatology, stations, grid = make_network(seed=12)
    chol = factorise(stations)
    cross = cross_covariance(grid, stations)
    mean_map = jnp.zeros((GRID[0] * GRID[1], VARIABLES), dtype=jnp.float32)
    hour = 0

    def step(mean_map):
        nonlocal hour
        mean_map = assimilate(mean_map, hour, observed, climatology, chol, cross)
        hour += 1
        return mean_map

    for _ in range(8):
        mean_map = step(mean_map)
    mean_map.block_until_ready()

    blocks, steps = 10, 16
    times = []
    for _ in range(blocks):
        start = time.perf_counter()
        for _ in range(steps):
            mean_map = step(mean_map)
        mean_map.block_until_ready()
        times.append((time.perf_counter() - start) / steps)

    field = np.asarray(mean_map, dtype=np.float64)
    checksum = float(np.sqrt((field**2).mean()) + field.std())
    print(
        json.dumps(
            {
                "program": "jax_kriging",
                "steps": hour,
                "us": 1e6 * float(np.median(times)),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
