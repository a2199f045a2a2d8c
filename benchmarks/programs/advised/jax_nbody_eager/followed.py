"""Gravity of a small star cluster in JAX, leapfrog steps."""

import functools
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


def distances(pos):
    """Differences of all pairs by component, and the softened square of the distance."""
    dx, dy, dz = (pos[None, :, i] - pos[:, None, i] for i in range(3))
    return dx, dy, dz, dx * dx + dy * dy + dz * dz + SOFT**2


def acceleration(pos, mass):
    dx, dy, dz, r2 = distances(pos)
    inv = mass[None, :] / (r2 * jnp.sqrt(r2))
    return jnp.stack([jnp.sum(d * inv, axis=1) for d in (dx, dy, dz)], axis=-1)


def advance(pos, vel, mass):
    """A few leapfrog steps and the energy at their end."""
    acc = acceleration(pos, mass)
    for _ in range(SUBSTEPS):
        vel = vel + 0.5 * DT * acc
        pos = pos + DT * vel
        acc = acceleration(pos, mass)
        vel = vel + 0.5 * DT * acc
    r = jnp.sqrt(distances(pos)[3])
    kinetic = 0.5 * jnp.sum(mass * jnp.sum(vel * vel, axis=-1))
    potential = -0.5 * jnp.sum(mass[:, None] * mass[None, :] / r)
    return pos, vel, kinetic + potential


@functools.partial(jax.jit, static_argnames="steps")
def run(pos, vel, mass, steps):
    """So many steps, with the energy after each."""

    def body(state, _):
        pos, vel, energy = advance(*state, mass)
        return (pos, vel), energy

    (pos, vel), energies = jax.lax.scan(body, (pos, vel), length=steps)
    return pos, vel, energies


def main():
    k1, k2 = jax.random.split(jax.random.key(22))
    pos = jax.random.normal(k1, (STARS, 3))
    vel = 0.3 * jax.random.normal(k2, (STARS, 3))
    mass = jnp.full((STARS,), 1.0 / STARS)
    run_block = run.lower(pos, vel, mass, steps=STEPS_PER_BLOCK).compile()
    pos, vel, energies = run(pos, vel, mass, steps=WARMUP)
    first = float(energies[-1])
    times = []
    for block in range(BLOCKS):
        start = time.perf_counter()
        pos, vel, energies = run_block(pos, vel, mass)
        energies.block_until_ready()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        energy = energies[-1]
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
