"""Gradient descent on a network in JAX, compiled once."""

import jax
import jax.numpy as jnp
import steps

keys = jax.random.split(jax.random.key(0), 5)
weights = [jax.random.normal(key, (1024, 1024)) * 0.02 for key in keys[:4]]
given = jax.random.normal(keys[4], (512, 1024))


def loss(weights):
    x = given
    for each in weights:
        x = jax.nn.gelu(x @ each)
    return jnp.mean((x - given) ** 2)


@jax.jit
def update(weights):
    return [w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True)]


def step(_: int) -> None:
    global weights
    weights = update(weights)


steps.run(step, lambda: jax.block_until_ready(weights), 30, result=lambda: loss(weights))
