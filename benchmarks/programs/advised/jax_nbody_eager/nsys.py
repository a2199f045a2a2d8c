"""Gravity of a small star cluster in JAX, leapfrog steps."""

import json
import statistics
import time

import jax
import jax.numpy as jnp
from jax import lax

STARS = 1024
DT = 1e-3
SOFT = 1e-2
SUBSTEPS = 4
WARMUP = 3
BLOCKS = 8
STEPS_PER_BLOCK = 5


def pair_sums(pos, mass, with_potential=False):
    """Acceleration by component (and sum of mass / distance), one pass over all pairs."""
    dx, dy, dz = (c[None, :] - c[:, None] for c in pos)
    inv = lax.rsqrt(dx * dx + dy * dy + dz * dz + SOFT**2)
    near = mass[None, :] * inv
    pull = near * inv * inv
    terms = (dx * pull, dy * pull, dz * pull)
    if with_potential:
        terms += (near,)
    zeros = (jnp.float32(0),) * len(terms)
    return lax.reduce(terms, zeros, lambda a, b: tuple(x + y for x, y in zip(a, b)), (1,))


@jax.jit
def start_state(pos, vel, mass):
    """Rows: position, velocity, acceleration by component."""
    acc = jnp.stack(pair_sums(tuple(pos.T), mass))
    return jnp.concatenate([pos.T, vel.T, acc])


@jax.jit
def advance(state, mass):
    """A few leapfrog steps and the energy at their end.

    The acceleration at the end of a call is the one at the start of the next."""
    pos, vel, acc = tuple(state[0:3]), tuple(state[3:6]), tuple(state[6:9])
    for k in range(SUBSTEPS):
        vel = tuple(v + 0.5 * DT * a for v, a in zip(vel, acc))
        pos = tuple(p + DT * v for p, v in zip(pos, vel))
        sums = pair_sums(pos, mass, with_potential=k == SUBSTEPS - 1)
        acc = sums[:3]
        vel = tuple(v + 0.5 * DT * a for v, a in zip(vel, acc))
    near = sums[3]
    square = vel[0] * vel[0] + vel[1] * vel[1] + vel[2] * vel[2]
    energy = jnp.sum(0.5 * mass * (square - near))
    return jnp.stack(pos + vel + tuple(acc)), energy


def main():
    k1, k2 = jax.random.split(jax.random.key(22))
    pos = jax.random.normal(k1, (STARS, 3))
    vel = 0.3 * jax.random.normal(k2, (STARS, 3))
    mass = jnp.full((STARS,), 1.0 / STARS)
    state = start_state(pos, vel, mass)
    for _ in range(WARMUP):
        state, energy = advance(state, mass)
    first = float(energy)
    times = []
    for block in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            state, energy = advance(state, mass)
        energy.block_until_ready()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"block {block}: energy {float(energy):.6f}")
    pos = state[0:3]
    out = {
        "program": "jax_nbody_eager",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [first, float(energy), float(jnp.sqrt(jnp.mean(pos * pos)))],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
