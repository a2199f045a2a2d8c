"""Fireflies that synchronise their flashes: an ensemble of swarms, each of
oscillators that see the mean flash of their swarm (Kuramoto with inertia)."""
import json
import os
import statistics
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

PROGRAM = "jax_firefly_swarm"
SWARMS, FLIES = 1024, 128
SUBSTEPS = 8
DT = 0.01
WARMUP, BLOCKS, BLOCK = 5, 6, 5
SEED = 61


def rates(phase, speed, natural, coupling):
    """Time derivatives of the phase and of the phase speed."""
    c = jnp.cos(phase)
    s = jnp.sin(phase)
    mean_c = c.mean(axis=1, keepdims=True)
    mean_s = s.mean(axis=1, keepdims=True)
    pull = mean_s * c - mean_c * s
    inertia = 0.4
    return speed, (natural - speed + coupling * pull) / inertia


def rk4(phase, speed, natural, coupling):
    a1, b1 = rates(phase, speed, natural, coupling)
    a2, b2 = rates(phase + 0.5 * DT * a1, speed + 0.5 * DT * b1, natural, coupling)
    a3, b3 = rates(phase + 0.5 * DT * a2, speed + 0.5 * DT * b2, natural, coupling)
    a4, b4 = rates(phase + DT * a3, speed + DT * b3, natural, coupling)
    phase = phase + DT / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
    speed = speed + DT / 6 * (b1 + 2 * b2 + 2 * b3 + b4)
    return phase, speed


def advance(phase, speed, natural, coupling):
    """One frame of the film: some substeps, then the order parameter."""
    for _ in range(SUBSTEPS):
        phase, speed = rk4(phase, speed, natural, coupling)
    order = jnp.hypot(jnp.cos(phase).mean(axis=1), jnp.sin(phase).mean(axis=1))
    return phase, speed, order


def release(key):
    """Initial swarms; the coupling grows from swarm to swarm."""
    k1, k2 = jax.random.split(key)
    phase = jax.random.uniform(k1, (SWARMS, FLIES), maxval=2 * jnp.pi)
    natural = 6.0 + 0.5 * jax.random.normal(k2, (SWARMS, FLIES))
    coupling = jnp.linspace(0.2, 4.0, SWARMS)[:, None]
    return phase, natural, natural, coupling


def main():
    phase, speed, natural, coupling = release(jax.random.PRNGKey(SEED))
    orders = []

    def frame():
        nonlocal phase, speed
        phase, speed, order = advance(phase, speed, natural, coupling)
        orders.append(order)

    for _ in range(WARMUP):
        frame()
    jax.block_until_ready((phase, speed))
    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(BLOCK):
            frame()
        jax.block_until_ready((phase, speed))
        times.append((time.perf_counter() - begin) / BLOCK)

    film = jnp.stack(orders)
    weak, strong = float(film[-1, :200].mean()), float(film[-1, -200:].mean())
    print(f"order {weak:.3f} in weakly and {strong:.3f} in strongly coupled swarms")
    print(json.dumps({"program": PROGRAM, "steps": len(orders),
                      "us": statistics.median(times) * 1e6,
                      "result": [weak, strong, float(film.mean()), float(speed.mean())]}))


if __name__ == "__main__":
    main()
