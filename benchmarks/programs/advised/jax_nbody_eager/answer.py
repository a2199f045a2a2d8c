"""Gravity of a small star cluster in JAX, leapfrog steps."""

import json
import statistics
import time

from functools import partial

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
    """Acceleration and potential of each star; pos is a tuple of x, y and z."""
    dx, dy, dz = (p[None, :] - p[:, None] for p in pos)
    inv = jax.lax.rsqrt(dx * dx + dy * dy + dz * dz + SOFT**2)
    weight = mass[None, :] * inv
    cube = weight * inv * inv
    acc = tuple(jnp.sum(d * cube, axis=1) for d in (dx, dy, dz))
    return acc, jnp.sum(weight, axis=1)


@partial(jax.jit, static_argnums=3, donate_argnums=(0, 1))
def advance(pos, vel, mass, steps):
    """Steps of a few leapfrog steps each, and the energy at the end of each."""
    pos = tuple(pos[:, k] for k in range(3))
    vel = tuple(vel[:, k] for k in range(3))
    acc, phi = acceleration(pos, mass)
    energies = []
    for _ in range(steps):
        for _ in range(SUBSTEPS):
            vel = tuple(v + 0.5 * DT * a for v, a in zip(vel, acc))
            pos = tuple(p + DT * v for p, v in zip(pos, vel))
            acc, phi = acceleration(pos, mass)
            vel = tuple(v + 0.5 * DT * a for v, a in zip(vel, acc))
        square = vel[0] * vel[0] + vel[1] * vel[1] + vel[2] * vel[2]
        energies.append(0.5 * jnp.sum(mass * (square - phi)))
    return jnp.stack(pos, axis=1), jnp.stack(vel, axis=1), energies


def main():
    k1, k2 = jax.random.split(jax.random.key(22))
    pos = jax.random.normal(k1, (STARS, 3))
    vel = 0.3 * jax.random.normal(k2, (STARS, 3))
    mass = jnp.full((STARS,), 1.0 / STARS)
    for _ in range(WARMUP):
        pos, vel, energies = advance(pos, vel, mass, 1)
    first = float(energies[-1])
    run_block = advance.lower(pos, vel, mass, STEPS_PER_BLOCK).compile()
    times = []
    for block in range(BLOCKS):
        start = time.perf_counter()
        pos, vel, energies = run_block(pos, vel, mass)
        energy = energies[-1]
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
