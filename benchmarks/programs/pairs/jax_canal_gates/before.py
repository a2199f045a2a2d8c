"""Closed-loop control of the check gates of an irrigation canal.

Each control tick reads the pool gauges of the plant (simulated on the host),
filters them, plans gate moves by rolling an ensemble of schedules through a
learned surrogate, and sends the first move back to the plant.
"""
import json
import os
import time

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

NAME = "jax_canal_gates"
POOLS = 48
LATENT = 256
ENSEMBLE = 32768
HORIZON = 24
WARMUP = 40
BLOCKS = 8
BLOCK_STEPS = 10


class Canal:
    """Storage-balance plant with travel delays and offtakes."""

    def __init__(self, rng):
        self.level = 1.0 + 0.1 * rng.standard_normal(POOLS)
        self.offtake = 0.02 + 0.02 * rng.random(POOLS)
        self.noise = 0.01 * rng.standard_normal((512, POOLS))
        self.tick = 0

    def read(self):
        return (self.level + self.noise[self.tick % 512]).astype(np.float32)

    def apply(self, gates):
        head = np.maximum(self.level, 0.05)
        out = gates * np.sqrt(head) * 0.2
        inflow = np.concatenate(([0.12], out[:-1]))
        demand = self.offtake * (1.0 + 0.3 * np.sin(0.05 * self.tick))
        self.level = np.clip(self.level + inflow - out - demand * self.level, 0.05, 3.0)
        self.tick += 1


def make_model(key):
    ks = jax.random.split(key, 8)

    def weight(k, rows, cols, gain=1.0):
        return gain * jax.random.normal(k, (rows, cols), jnp.float32) / np.sqrt(rows)

    bf = jnp.bfloat16
    surrogate = {
        "encode": weight(ks[0], 3 * POOLS, LATENT),
        "gate": weight(ks[1], POOLS, LATENT, 0.7).astype(bf),
        "mix": weight(ks[2], LATENT, LATENT).astype(bf),
        "up": weight(ks[3], LATENT, LATENT).astype(bf),
        "down": weight(ks[4], LATENT, LATENT, 0.5).astype(bf),
        "level": weight(ks[5], LATENT, POOLS, 0.3).astype(bf),
    }
    observer = {
        "transition": 0.9 * jnp.eye(POOLS) + weight(ks[6], POOLS, POOLS, 0.02),
        "gate_effect": weight(ks[7], POOLS, POOLS, 0.05),
        "smooth": 0.5 * jnp.eye(POOLS) + 0.25 * jnp.eye(POOLS, k=1) + 0.25 * jnp.eye(POOLS, k=-1),
        "setpoint": jnp.linspace(0.9, 1.1, POOLS),
    }
    return surrogate, observer


def estimate(observer, filters, reading, gates):
    """Robust observer of the pool levels; returns its state and the features."""
    level, fast, slow, spread, integral = filters
    full = lax.Precision.HIGHEST
    predicted = (jnp.matmul(observer["transition"], level, precision=full)
                 + jnp.matmul(observer["gate_effect"], gates, precision=full))
    predicted = predicted + 0.1 * observer["setpoint"]
    innovation = reading - predicted
    scaled = jnp.abs(innovation) / (spread + 1e-3)
    trust = jnp.where(scaled > 3.0, 3.0 / (scaled + 1e-6), 1.0)
    innovation = innovation * trust
    spread = 0.95 * spread + 0.05 * jnp.abs(innovation)
    level = predicted + 0.4 * jnp.matmul(observer["smooth"], innovation, precision=full)
    fast = 0.7 * fast + 0.3 * level
    slow = 0.97 * slow + 0.03 * level
    trend = jnp.tanh(5.0 * (fast - slow))
    error = level - observer["setpoint"]
    dead = jnp.where(jnp.abs(error) < 0.01, 0.0, error)
    integral = jnp.clip(0.98 * integral + 0.1 * dead, -1.0, 1.0)
    features = jnp.concatenate([error, trend, integral])
    return (level, fast, slow, spread, integral), features


@jax.jit
def plan(surrogate, features, schedule, noise):
    """Cost-weighted mean of perturbed gate schedules."""
    bf = jnp.bfloat16
    latent0 = jnp.tanh(features @ surrogate["encode"]).astype(bf)
    latent0 = jnp.broadcast_to(latent0, (ENSEMBLE, LATENT))

    def roll(carry, inputs):
        latent, cost = carry
        mean, perturbation = inputs
        move = jnp.clip(mean.astype(bf) + perturbation, 0.0, 1.0).astype(bf)
        mixed = jnp.tanh(latent @ surrogate["mix"] + move @ surrogate["gate"])
        hidden = jax.nn.relu(mixed @ surrogate["up"])
        latent = jnp.tanh(mixed + hidden @ surrogate["down"])
        error = (latent @ surrogate["level"]).astype(jnp.float32)
        cost = cost + jnp.mean(error * error, axis=1)
        return (latent, cost), None

    start = (latent0, jnp.zeros((ENSEMBLE,), jnp.float32))
    (_, cost), _ = lax.scan(roll, start, (schedule, noise))
    share = jax.nn.softmax(-cost * 10.0)
    shift = jnp.einsum("s,hsp->hp", share.astype(bf), noise,
                       preferred_element_type=jnp.float32)
    schedule = jnp.clip(schedule + shift, 0.05, 0.95)
    return schedule[0], jnp.concatenate([schedule[1:], schedule[-1:]])


def main():
    rng = np.random.default_rng(314)
    surrogate, observer = make_model(jax.random.key(5))
    noise = (0.1 * jax.random.normal(jax.random.key(6), (HORIZON, ENSEMBLE, POOLS))).astype(jnp.bfloat16)
    canal = Canal(rng)
    gates = jnp.full((POOLS,), 0.5, jnp.float32)
    schedule = jnp.full((HORIZON, POOLS), 0.5, jnp.float32)
    first = jnp.asarray(canal.read())
    filters = (first, first, first, jnp.full((POOLS,), 0.05, jnp.float32),
               jnp.zeros((POOLS,), jnp.float32))

    def tick(filters, gates, schedule):
        reading = jnp.asarray(canal.read())
        filters, features = estimate(observer, filters, reading, gates)
        gates, schedule = plan(surrogate, features, schedule, noise)
        canal.apply(np.asarray(gates))
        return filters, gates, schedule

    for _ in range(WARMUP):
        filters, gates, schedule = tick(filters, gates, schedule)
    jax.block_until_ready(schedule)

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            filters, gates, schedule = tick(filters, gates, schedule)
        jax.block_until_ready(schedule)
        times.append((time.perf_counter() - start) / BLOCK_STEPS)

    result = [float(canal.level.mean()), float(jnp.mean(filters[0])),
              float(jnp.mean(filters[2])), float(jnp.mean(schedule))]
    print(json.dumps({"program": NAME, "steps": BLOCKS * BLOCK_STEPS,
                      "us": float(np.median(times)) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
