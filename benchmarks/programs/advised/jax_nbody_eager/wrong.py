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


def pairs(pos):
    """Differences by component and the inverse distance of all pairs."""
    d = [pos[k][None, :] - pos[k][:, None] for k in range(3)]
    return d, jax.lax.rsqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + SOFT**2)


def acceleration(pos, mass):
    d, rinv = pairs(pos)
    inv = mass[None, :] * (rinv * rinv * rinv)
    return [jnp.sum(c * inv, axis=1) for c in d]


@jax.jit
def advance(pos, vel, mass):
    """A few leapfrog steps and the energy at their end."""
    pos = [pos[:, k] for k in range(3)]
    vel = [vel[:, k] for k in range(3)]
    acc = acceleration(pos, mass)
    for _ in range(SUBSTEPS):
        vel = [v + 0.5 * DT * a for v, a in zip(vel, acc)]
        pos = [p + DT * v for p, v in zip(pos, vel)]
        acc = acceleration(pos, mass)
        vel = [v + 0.5 * DT * a for v, a in zip(vel, acc)]
    _, rinv = pairs(pos)
    kinetic = 0.5 * jnp.sum(mass * (vel[0] * vel[0] + vel[1] * vel[1] + vel[2] * vel[2]))
    potential = -0.5 * jnp.sum(mass * jnp.sum(mass[None, :] * rinv, axis=1))
    return jnp.stack(pos, axis=1), jnp.stack(vel, axis=1), kinetic + potential


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
