"""Phase retrieval of single-particle diffraction patterns.

Only the modulus of the far field is recorded.  For every shot the error
reduction algorithm (Gerchberg-Saxton with support and positivity) is started
from random phases; the R-factor of each sweep is kept for the beam-time logbook
and the best shots are averaged.
"""
import json
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

GRID = 256
SWEEPS = 60
WARMUP, SHOTS, BLOCK = 5, 40, 5


def particle(key):
    """A virus-like shell with a few bright capsid spots."""
    y, x = jnp.mgrid[-1:1:GRID * 1j, -1:1:GRID * 1j]
    r = jnp.hypot(x, y)
    shell = jnp.exp(-((r - 0.22) / 0.035) ** 2) + 0.4 * (r < 0.2)
    spots = jax.random.uniform(key, (12, 2), minval=-0.15, maxval=0.15)
    for cx, cy in np.asarray(spots):
        shell = shell + 0.8 * jnp.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 0.0008)
    return shell.astype(jnp.float32)


def make_support():
    y, x = np.mgrid[-1:1:GRID * 1j, -1:1:GRID * 1j]
    return jnp.asarray(np.hypot(x, y) < 0.34)


@jax.jit
def record(obj, key):
    """Photon-counting detector: modulus with noise."""
    far = jnp.fft.fft2(obj)
    counts = jnp.abs(far) ** 2
    noisy = counts + jnp.sqrt(counts) * jax.random.normal(key, counts.shape) * 0.05
    return jnp.sqrt(jnp.maximum(noisy, 0.0))


@jax.jit
def random_start(modulus, support, key):
    phase = jax.random.uniform(key, modulus.shape, maxval=2 * jnp.pi)
    guess = jnp.fft.ifft2(modulus * jnp.exp(1j * phase)).real
    return jnp.where(support, jnp.abs(guess), 0.0)


@partial(jax.jit, donate_argnums=0)
def sweep(obj, modulus, support):
    far = jnp.fft.fft2(obj)
    size = jnp.abs(far)
    r_factor = jnp.sum(jnp.abs(size - modulus)) / jnp.sum(modulus)
    far = far * (modulus / (size + 1e-6))
    update = jnp.fft.ifft2(far).real
    obj = jnp.where(support & (update > 0), update, 0.0)
    return obj, r_factor


@jax.jit
def blend(average, obj, weight):
    return average + weight * obj


class Logbook:
    """R-factors of all shots and sweeps."""

    def __init__(self, shots, sweeps):
        self.r = np.full((shots, sweeps), np.nan, dtype=np.float32)

    def summary(self, skip):
        last = self.r[skip:, -1]
        return [float(self.r[skip:, 0].mean()), float(last.mean()), float(last.min())]


def retrieve(modulus, support, key, log):
    """One shot; log is its row of the logbook."""
    obj = random_start(modulus, support, key)
    for k in range(SWEEPS):
        obj, log[k] = sweep(obj, modulus, support)
    return obj


def main():
    key = jax.random.key(2009)
    key, k_obj, k_noise = jax.random.split(key, 3)
    modulus = record(particle(k_obj), k_noise)
    support = make_support()
    total = WARMUP + SHOTS
    shot_keys = list(jax.random.split(key, total))
    logbook = Logbook(total, SWEEPS)
    average = jnp.zeros((GRID, GRID), jnp.float32)
    weight = jnp.float32(1.0 / total)

    def process(shot):
        nonlocal average
        obj = retrieve(modulus, support, shot_keys[shot], logbook.r[shot])
        average = blend(average, obj, weight)

    for shot in range(WARMUP):
        process(shot)
    average.block_until_ready()
    times = []
    for first in range(WARMUP, total, BLOCK):
        begin = time.perf_counter()
        for shot in range(first, first + BLOCK):
            process(shot)
        average.block_until_ready()
        times.append((time.perf_counter() - begin) / BLOCK * 1e6)

    result = logbook.summary(0) + [float(average.sum())]
    print(json.dumps({"program": "jax_diffraction", "steps": total,
                      "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
