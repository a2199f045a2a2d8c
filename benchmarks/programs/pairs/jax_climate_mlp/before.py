"""Emulate a climate model's columns with a wide network, trained in bfloat16 with JAX."""

import functools
import json
import statistics
import time

import jax
import jax.numpy as jnp

WIDTH, LAYERS, BATCH = 8192, 4, 16384
RATE, MOMENTUM = 1e-3, 0.9
WARMUP, ROUNDS, EACH = 4, 6, 6


def init(key):
    keys = jax.random.split(key, LAYERS)
    scale = (2.0 / WIDTH) ** 0.5
    return [
        (scale * jax.random.normal(k, (WIDTH, WIDTH), jnp.float32)).astype(jnp.bfloat16)
        for k in keys
    ]


def loss_of(weights, columns, tendencies):
    h = columns
    for w in weights[:-1]:
        h = jax.nn.relu(h @ w)
    error = (h @ weights[-1]).astype(jnp.float32) - tendencies
    return jnp.mean(error * error)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(weights, velocity, columns, tendencies):
    loss, grads = jax.value_and_grad(loss_of)(weights, columns, tendencies)
    velocity = [MOMENTUM * v + g for v, g in zip(velocity, grads)]
    weights = [w - RATE * v for w, v in zip(weights, velocity)]
    return weights, velocity, loss


def main():
    k1, k2, k3 = jax.random.split(jax.random.key(14), 3)
    weights = init(k1)
    velocity = [jnp.zeros_like(w) for w in weights]
    columns = jax.random.normal(k2, (BATCH, WIDTH), jnp.bfloat16)
    tendencies = jax.random.normal(k3, (BATCH, WIDTH), jnp.bfloat16)
    losses, times = [], []
    for _ in range(WARMUP):
        weights, velocity, loss = train_step(weights, velocity, columns, tendencies)
        losses.append(loss)
    jax.block_until_ready(weights)
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(EACH):
            weights, velocity, loss = train_step(weights, velocity, columns, tendencies)
        jax.block_until_ready(weights)
        times.append((time.perf_counter() - start) / EACH)
    us = statistics.median(times) * 1e6
    result = [float(losses[0]), float(losses[2])]
    print(f"loss {result[0]:.4f}, then {float(loss):.4f}")
    steps = WARMUP + ROUNDS * EACH
    print(json.dumps({"program": "jax_climate_mlp", "steps": steps, "us": us, "result": result}))


if __name__ == "__main__":
    main()
