"""Mixing of dye in a stirred vat: advection and diffusion on a periodic grid.

The paddle follows a start-up ramp, so that every control interval has its own stirring
speed.  One step integrates one control interval and records how well the bath is mixed.
"""
import json
import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

GRID = 2048
SUBSTEPS = 40
DIFFUSION = 0.15           # cells^2 per sub-step
WARMUP, BLOCKS, PER_BLOCK = 5, 5, 4


class Paddle:
    """Stirring speed (cells per sub-step at the rim of an eddy) over the intervals."""

    def __init__(self, slow=0.04, fast=0.22, intervals=25):
        self.slow = slow
        self.fast = fast
        self.intervals = intervals

    def speed(self, interval):
        progress = min(interval / self.intervals, 1.0)
        return self.slow + (self.fast - self.slow) * progress ** 1.5


def eddies():
    """Divergence-free velocity of unit strength: a row of counter-rotating eddies."""
    axis = np.arange(GRID, dtype=np.float32) * np.float32(2.0 * np.pi / GRID)
    yy, xx = axis[:, None], axis[None, :]
    ux = np.sin(3 * xx) * np.cos(3 * yy) + 0.3 * np.sin(xx + 2 * yy)
    uy = -np.cos(3 * xx) * np.sin(3 * yy) - 0.15 * np.sin(xx + 2 * yy)
    return jnp.asarray(ux), jnp.asarray(uy)


def pour(seed=61):
    """Initial concentration: a few splashes of dye in clear liquor."""
    rng = np.random.default_rng(seed)
    axis = np.arange(GRID, dtype=np.float32)
    bath = np.zeros((GRID, GRID), dtype=np.float32)
    for _ in range(24):
        cy, cx = rng.uniform(0, GRID, 2)
        width = rng.uniform(40, 140)
        gy = np.exp(-0.5 * ((axis - cy) / width) ** 2)
        gx = np.exp(-0.5 * ((axis - cx) / width) ** 2)
        bath += (rng.uniform(0.4, 1.0) * np.outer(gy, gx)).astype(np.float32)
    return jnp.asarray(bath)


@partial(jax.jit, static_argnames=("substeps",), donate_argnums=(0,))
def stir(bath, ux, uy, speed, substeps):
    """Integrates one control interval; returns the bath and its unevenness."""
    vx = 0.5 * speed * ux
    vy = 0.5 * speed * uy

    def substep(_, c):
        east, west = jnp.roll(c, -1, axis=1), jnp.roll(c, 1, axis=1)
        south, north = jnp.roll(c, -1, axis=0), jnp.roll(c, 1, axis=0)
        spread = DIFFUSION * (east + west + south + north - 4.0 * c)
        return c + spread - vx * (east - west) - vy * (south - north)

    bath = jax.lax.fori_loop(0, substeps, substep, bath)
    mean = jnp.mean(bath)
    unevenness = jnp.sqrt(jnp.mean(jnp.square(bath - mean))) / mean
    return bath, unevenness


class Run:
    def __init__(self):
        self.paddle = Paddle()
        self.ux, self.uy = eddies()
        self.bath = pour()
        self.record = []

    def interval(self):
        speed = self.paddle.speed(len(self.record))
        self.bath, unevenness = stir(self.bath, self.ux, self.uy, speed=speed, substeps=SUBSTEPS)
        self.record.append(unevenness)


def main():
    run = Run()
    for _ in range(WARMUP):
        run.interval()
    run.bath.block_until_ready()

    per_step = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            run.interval()
        run.bath.block_until_ready()
        per_step.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    record = [float(v) for v in run.record]
    print(f"unevenness {record[0]:.4f} -> {record[-1]:.4f}")
    print(json.dumps({
        "program": "jax_dyebath",
        "steps": len(record),
        "us": statistics.median(per_step),
        "result": [record[-1], float(run.bath.mean()), float(run.bath.max())],
    }))


if __name__ == "__main__":
    main()
