"""Surrogate of an anaerobic digestion model: feed and operating conditions to gas yields.

A residual network is trained on large batches of simulated digester states.
"""
import json
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.13")

import jax
import jax.numpy as jnp
import numpy as np

PROGRAM = "jax_biogas_digester"
FEATURES = 64
TARGETS = 16
WIDTH = 192
BLOCKS = 6
BATCH = 131072
BATCHES = 4
LEARNING_RATE = 2e-4
WARMUP = 100
TIMED_BLOCKS = 10
PER_BLOCK = 10
PRECISION = jax.lax.Precision.DEFAULT


def initial_parameters(key):
    keys = jax.random.split(key, BLOCKS + 2)
    parameters = {
        "embed": jax.random.normal(keys[0], (FEATURES, WIDTH)) / np.sqrt(FEATURES),
        "readout": jax.random.normal(keys[1], (WIDTH, TARGETS)) / np.sqrt(WIDTH),
        "blocks": [],
    }
    for k in keys[2:]:
        parameters["blocks"].append({
            "scale": jnp.ones((WIDTH,)),
            "shift": jnp.zeros((WIDTH,)),
            "weight": jax.random.normal(k, (WIDTH, WIDTH)) / np.sqrt(WIDTH),
            "bias": jnp.zeros((WIDTH,)),
        })
    return parameters


def layer_norm(x, scale, shift):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift


def predict(parameters, features):
    hidden = jnp.matmul(features, parameters["embed"], precision=PRECISION)
    for block in parameters["blocks"]:
        inner = layer_norm(hidden, block["scale"], block["shift"])
        inner = jnp.matmul(inner, block["weight"], precision=PRECISION) + block["bias"]
        hidden = hidden + jax.nn.gelu(inner)
    return jnp.matmul(hidden, parameters["readout"], precision=PRECISION)


def yield_loss(parameters, features, yields):
    error = predict(parameters, features) - yields
    return jnp.mean(jnp.square(error))


def adam(parameters, moments, gradients, count):
    first, second = moments
    first = jax.tree_util.tree_map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree_util.tree_map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)
    c1 = 1.0 - 0.9 ** count
    c2 = 1.0 - 0.99 ** count
    parameters = jax.tree_util.tree_map(
        lambda p, m, v: p - LEARNING_RATE * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), parameters, first, second)
    return parameters, (first, second)


@jax.jit
def train_step(state, features, yields):
    parameters, moments, count = state
    count = count + 1.0
    loss, gradients = jax.value_and_grad(yield_loss)(parameters, features, yields)
    parameters, moments = adam(parameters, moments, gradients, count)
    return (parameters, moments, count), loss


@jax.jit
def digester_batch(key):
    """Monod-like response of gas yields to random operating conditions."""
    k1, k2 = jax.random.split(key)
    features = jax.random.normal(k1, (BATCH, FEATURES))
    substrate = jax.nn.softplus(features[:, :TARGETS])
    inhibitor = jax.nn.softplus(features[:, TARGETS:2 * TARGETS])
    warmth = jnp.tanh(features[:, 2 * TARGETS:3 * TARGETS])
    yields = substrate / (0.5 + substrate + 0.3 * jnp.square(inhibitor)) * (1.0 + 0.5 * warmth)
    return features, yields + 0.02 * jax.random.normal(k2, yields.shape)


def main():
    key = jax.random.PRNGKey(12)
    key, start = jax.random.split(key)
    parameters = initial_parameters(start)
    zeros = jax.tree_util.tree_map(jnp.zeros_like, parameters)
    state = (parameters, (zeros, zeros), jnp.float32(0.0))
    batches = [digester_batch(k) for k in jax.random.split(key, BATCHES)]

    steps = 0
    for _ in range(WARMUP):
        state, loss = train_step(state, *batches[steps % BATCHES])
        steps += 1
    jax.block_until_ready((state, loss))

    times = []
    for _ in range(TIMED_BLOCKS):
        begin = time.perf_counter()
        for _ in range(PER_BLOCK):
            state, loss = train_step(state, *batches[steps % BATCHES])
            steps += 1
        jax.block_until_ready((state, loss))
        times.append((time.perf_counter() - begin) / PER_BLOCK * 1e6)

    norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree_util.tree_leaves(state[0])))
    result = [float(loss), float(norm)]
    print(json.dumps({"program": PROGRAM, "steps": steps, "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
