"""Regression of enzyme turnover from sequence descriptors with a wide residual network in bfloat16."""
import functools
import json
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.13")

import jax
import jax.numpy as jnp
import numpy as np

PROGRAM = "jax_enzyme_surrogate"
DESCRIPTORS = 1024
TARGETS = 64
WIDTH = 2048
HIDDEN = 8192
BLOCKS = 4
BATCH = 16384
BATCHES = 4
LEARNING_RATE = 2e-4
WARMUP = 40
TIMED_BLOCKS = 8
PER_BLOCK = 5


def initial_parameters(key):
    keys = jax.random.split(key, BLOCKS + 2)
    blocks = []
    for k in keys[2:]:
        up, down = jax.random.split(k)
        blocks.append({
            "gain": jnp.ones((WIDTH,)),
            "up": jax.random.normal(up, (WIDTH, HIDDEN)) / np.sqrt(WIDTH),
            "down": jax.random.normal(down, (HIDDEN, WIDTH)) / np.sqrt(HIDDEN * BLOCKS),
        })
    return {
        "embed": jax.random.normal(keys[0], (DESCRIPTORS, WIDTH)) / np.sqrt(DESCRIPTORS),
        "readout": jax.random.normal(keys[1], (WIDTH, TARGETS)) / np.sqrt(WIDTH),
        "blocks": blocks,
    }


def rms_norm(x, gain):
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + 1e-6)
    return (wide * scale * gain).astype(jnp.bfloat16)


def predict(parameters, descriptors):
    hidden = descriptors @ parameters["embed"].astype(jnp.bfloat16)
    for block in parameters["blocks"]:
        inner = rms_norm(hidden, block["gain"]) @ block["up"].astype(jnp.bfloat16)
        inner = jax.nn.gelu(inner, approximate=True)
        hidden = hidden + inner @ block["down"].astype(jnp.bfloat16)
    return (hidden @ parameters["readout"].astype(jnp.bfloat16)).astype(jnp.float32)


def turnover_loss(parameters, descriptors, turnover):
    return jnp.mean(jnp.square(predict(parameters, descriptors) - turnover))


@functools.partial(jax.jit, donate_argnums=(0,))
def train_step(state, descriptors, turnover):
    parameters, first, second, count = state
    count = count + 1.0
    loss, gradients = jax.value_and_grad(turnover_loss)(parameters, descriptors, turnover)
    first = jax.tree_util.tree_map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree_util.tree_map(lambda v, g: 0.98 * v + 0.02 * g * g, second, gradients)
    c1 = 1.0 - 0.9 ** count
    c2 = 1.0 - 0.98 ** count
    parameters = jax.tree_util.tree_map(
        lambda p, m, v: p - LEARNING_RATE * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), parameters, first, second)
    return (parameters, first, second, count), loss


@jax.jit
def assay_batch(key, mixing):
    noise, draw = jax.random.split(key)
    descriptors = jax.random.normal(draw, (BATCH, DESCRIPTORS), dtype=jnp.bfloat16)
    latent = descriptors @ mixing.astype(jnp.bfloat16)
    turnover = jnp.tanh(latent.astype(jnp.float32)) + 0.05 * jax.random.normal(noise, (BATCH, TARGETS))
    return descriptors, turnover


def main():
    key = jax.random.PRNGKey(314)
    key, start, mix = jax.random.split(key, 3)
    parameters = initial_parameters(start)
    first = jax.tree_util.tree_map(jnp.zeros_like, parameters)
    second = jax.tree_util.tree_map(jnp.zeros_like, parameters)
    state = (parameters, first, second, jnp.float32(0.0))
    mixing = jax.random.normal(mix, (DESCRIPTORS, TARGETS)) / np.sqrt(DESCRIPTORS)
    batches = [assay_batch(k, mixing) for k in jax.random.split(key, BATCHES)]

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
