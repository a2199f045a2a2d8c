"""Autoencoder of gene expression profiles, trained in mixed precision."""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.12")

import functools
import json
import statistics
import time

import jax
import jax.numpy as jnp

GENES = 16384
HIDDEN = 4096
LATENT = 1024
CELLS = 8192
BATCHES = 4
LEARNING_RATE = 1e-4
WARMUP = 5
BLOCKS = 8
STEPS_PER_BLOCK = 5
SIZES = (GENES, HIDDEN, HIDDEN, LATENT, HIDDEN, GENES)


def expression_batches(key):
    """Log-normalised profiles drawn from a few gene programmes, held on the device."""
    programmes = 48
    key, sub = jax.random.split(key)
    loadings = jax.random.gamma(sub, 0.5, (programmes, GENES), dtype=jnp.float32)

    @jax.jit
    def draw(sub):
        first, second = jax.random.split(sub)
        usage = jax.nn.softmax(3.0 * jax.random.normal(first, (CELLS, programmes)), axis=-1)
        noise = 0.1 * jax.random.normal(second, (CELLS, GENES))
        return (jnp.log1p(usage @ loadings) + noise).astype(jnp.bfloat16)

    return [draw(sub) for sub in jax.random.split(key, BATCHES)]


def initial_state(key):
    params = []
    for fan_in, fan_out in zip(SIZES[:-1], SIZES[1:]):
        key, sub = jax.random.split(key)
        weight = jax.random.normal(sub, (fan_in, fan_out), jnp.float32) * (1.5 / fan_in) ** 0.5
        params.append((weight, jnp.zeros((fan_out,), jnp.float32)))
    zeros = lambda tree: jax.tree.map(jnp.zeros_like, tree)
    return {"params": params, "mean": zeros(params), "square": zeros(params),
            "count": jnp.zeros((), jnp.int32)}


def reconstruct(params, profiles):
    x = profiles
    last = len(params) - 1
    for k, (weight, bias) in enumerate(params):
        x = x @ weight.astype(jnp.bfloat16) + bias.astype(jnp.bfloat16)
        if k < last:
            x = jax.nn.relu(x)
    return x


def loss_function(params, profiles):
    error = reconstruct(params, profiles).astype(jnp.float32) - profiles.astype(jnp.float32)
    return jnp.mean(jnp.square(error))


@functools.partial(jax.jit, donate_argnums=(0,))
def train_step(state, profiles):
    loss, grads = jax.value_and_grad(loss_function)(state["params"], profiles)
    count = state["count"] + 1
    fade1 = 1.0 - 0.9 ** count.astype(jnp.float32)
    fade2 = 1.0 - 0.999 ** count.astype(jnp.float32)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], grads)
    square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state["square"], grads)
    params = jax.tree.map(
        lambda p, m, v: p - LEARNING_RATE * (m / fade1) / (jnp.sqrt(v / fade2) + 1e-8),
        state["params"], mean, square)
    return {"params": params, "mean": mean, "square": square, "count": count}, loss


def main():
    key = jax.random.PRNGKey(8)
    data_key, model_key = jax.random.split(key)
    batches = expression_batches(data_key)
    state = initial_state(model_key)

    step = 0
    for _ in range(WARMUP):
        state, loss = train_step(state, batches[step % BATCHES])
        step += 1
    jax.block_until_ready(state)

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            state, loss = train_step(state, batches[step % BATCHES])
            step += 1
        jax.block_until_ready(state)
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK * 1e6)

    weights = float(jnp.sqrt(sum(jnp.sum(w * w) for w, _ in state["params"])))
    print(json.dumps({"program": "jax_transcriptome", "steps": step,
                      "us": statistics.median(times), "result": [float(loss), weights]}))


if __name__ == "__main__":
    main()
