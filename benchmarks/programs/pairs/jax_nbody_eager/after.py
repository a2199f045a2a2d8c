"""Gravity of a small star cluster in JAX, leapfrog steps."""

import json
import statistics
import time

import jax
import jax.numpy as jnp

STARS = 1024
DT = 1e-3
SOFT = 1e-2
SUBSTEPS = 4
WARMUP = 3
BLOCKS = 8
STEPS_PER_BLOCK = 5


def acceleration(pos, mass):
    d = pos[None, :, :] - pos[:, None, :]
    r2 = jnp.sum(d * d, axis=-1) + SOFT**2
    inv = mass[None, :] / (r2 * jnp.sqrt(r2))
    return jnp.sum(d * inv[:, :, None], axis=1)


@jax.jit
def advance(pos, vel, mass):
    """A few leapfrog steps and the energy at their end."""
    acc = acceleration(pos, mass)
    for _ in range(SUBSTEPS):
        vel = vel + 0.5 * DT * acc
        pos = pos + DT * vel
        acc = acceleration(pos, mass)
        vel = vel + 0.5 * DT * acc
    d = pos[None, :, :] - pos[:, None, :]
    r = jnp.sqrt(jnp.sum(d * d, axis=-1) + SOFT**2)
    kinetic = 0.5 * jnp.sum(mass * jnp.sum(vel * vel, axis=-1))
    potential = -0.5 * jnp.sum(mass[:, None] * mass[None, :] / r)
    return pos, vel, kinetic + potential


def main():
    k1, k2 = jax.random.split(jax.random.key(22))
    pos = jax.random.normal(k1, (STARS, 3))
    vel = 0.3 * jax.random.normal(k2, (STARS, 3))
    mass = jnp.full((STARS,), 1.0 / STARS)
    for _ in range(WARMUP):
        pos, vel, energy = advance(pos, vel, mass)
    first = float(energy)
    times = []
    for block in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            pos, vel, energy = advance(pos, vel, mass)
        energy.block_until_ready()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"block {block}: energy {float(energy):.6f}")
    out = {
        "program": "jax_nbody_eager",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [first, float(energy), float(jnp.sqrt(jnp.mean(pos * pos)))],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
