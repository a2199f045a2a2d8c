"""Find collision vertices: a density of track crossings along the beam, event by event."""

import json
import time

import jax
import jax.numpy as jnp
import numpy as np

CELLS = 16384
MIN_TRACKS, MAX_TRACKS = 180, 700
VERTICES = 12
ROUNDS = 2
WARMUP, EVENTS = 5, 48


def collision(rng):
    """Tracks of one event: position along the beam, its error, and slope."""
    count = int(rng.integers(MIN_TRACKS, MAX_TRACKS))
    vertex = rng.normal(0, 40, VERTICES)
    z = rng.choice(vertex, count) + rng.normal(0, 0.2, count)
    error = rng.uniform(0.1, 0.6, count)
    slope = rng.normal(0, 1, count)
    return [a.astype(np.float32) for a in (z, error, slope)]


@jax.jit
def vertex_density(z, error, slope):
    grid = jnp.linspace(-120, 120, CELLS)
    weight = jnp.ones_like(z)
    for _ in range(ROUNDS):
        pull = (grid[:, None] - z[None, :]) / error[None, :]
        shape = jnp.exp(-0.5 * pull**2) / error[None, :]
        density = jnp.sum(weight * shape, axis=1)
        tilt = jnp.sum(weight * shape * slope, axis=1) / (density + 1e-3)
        quality = jnp.sum(shape * density[:, None], axis=0) / jnp.sum(shape, axis=0)
        weight = quality / (quality + 2.0)
    return grid[jnp.argmax(density)], density.max(), jnp.abs(tilt).mean()


def main():
    rng = np.random.default_rng(61)
    found = []
    begin = time.perf_counter()
    for number in range(WARMUP + EVENTS):
        if number == WARMUP:
            begin = time.perf_counter()
        z, error, slope = collision(rng)
        place, height, tilt = vertex_density(z, error, slope)
        found.append((float(place), float(height), float(tilt)))
    us = (time.perf_counter() - begin) / EVENTS * 1e6
    places, heights, tilts = np.array(found).T
    print(f"{1e6 / us:.1f} events/s, mean height {heights.mean():.3f}")
    result = [float(np.abs(places).mean()), float(heights.mean()), float(tilts.mean())]
    out = {"program": "jax_vertex_density", "steps": len(found), "us": us, "result": result}
    print(json.dumps(out))


if __name__ == "__main__":
    main()
