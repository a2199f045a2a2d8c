"""Primary mass of cosmic-ray air showers from the stations of a surface array.

A shower is a set of station hits (position, arrival time, signal traces).  A
set network embeds each hit, pools over the shower and regresses the depth of
the shower maximum and the logarithm of the primary mass.  The simulated
library comes in batches of one energy bin each.
"""
import json
import os
import statistics
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

FEATURES = 16
SHOWERS = 512
HIT_WIDTH = 512
BIN_HITS = (96, 224, 480, 1024)          # most hits of a shower, by energy bin
LIBRARY = (0, 1, 0, 2, 1, 0, 3, 1)       # energy bin of each batch
LEARNING_RATE = 3e-4
WARMUP_PASSES = 2
PASSES = 10


def simulate_bin(rng, energy_bin):
    """Showers of one energy bin: hits (showers, hits, features) and counts."""
    most = BIN_HITS[energy_bin]
    counts = rng.integers(most * 7 // 8, most + 1, size=SHOWERS)
    hits = rng.standard_normal((SHOWERS, most, FEATURES), dtype=np.float32)
    mass = rng.uniform(0.0, 4.0, size=SHOWERS).astype(np.float32)
    depth = (0.4 * energy_bin - 0.25 * mass + 0.1 * rng.standard_normal(SHOWERS)).astype(np.float32)
    hits[:, :, 0] = np.abs(hits[:, :, 0]) * (1.0 + 0.2 * energy_bin)
    hits[:, :, 1] += depth[:, None]
    hits[:, :, 2] += 0.3 * mass[:, None]
    hits[np.arange(most)[None, :] >= counts[:, None]] = 0.0
    target = np.stack([depth, mass], axis=1) + 0.3 * rng.standard_normal((SHOWERS, 2), dtype=np.float32)
    return hits, counts, target


def collate(hits, counts, target):
    """Device batch of showers with a mask of the real hits."""
    showers, most, features = hits.shape
    length = most
    padded = np.zeros((showers, length, features), np.float32)
    padded[:, :most] = hits
    mask = np.arange(length)[None, :] < counts[:, None]
    return (
        jnp.asarray(padded, dtype=jnp.bfloat16),
        jnp.asarray(mask),
        jnp.asarray(target),
    )


def dense_init(key, fan_in, fan_out):
    scale = (2.0 / fan_in) ** 0.5
    return {"w": scale * jax.random.normal(key, (fan_in, fan_out)), "b": jnp.zeros((fan_out,))}


def init_params(seed):
    keys = jax.random.split(jax.random.PRNGKey(seed), 6)
    return {
        "hit": [
            dense_init(keys[0], FEATURES, HIT_WIDTH),
            dense_init(keys[1], HIT_WIDTH, HIT_WIDTH),
            dense_init(keys[2], HIT_WIDTH, HIT_WIDTH),
            dense_init(keys[3], HIT_WIDTH, HIT_WIDTH),
        ],
        "shower": [
            dense_init(keys[4], HIT_WIDTH, 256),
            dense_init(keys[5], 256, 2),
        ],
    }


def dense(layer, x):
    return x @ layer["w"].astype(x.dtype) + layer["b"].astype(x.dtype)


def predict(params, hits, mask):
    x = hits
    for layer in params["hit"]:
        x = jax.nn.relu(dense(layer, x))
    x = jnp.where(mask[:, :, None], x, 0)
    pooled = x.sum(axis=1, dtype=jnp.float32) / mask.sum(axis=1, keepdims=True)
    hidden = jax.nn.relu(dense(params["shower"][0], pooled))
    return dense(params["shower"][1], hidden)


def loss_fn(params, hits, mask, target):
    error = predict(params, hits, mask) - target
    return jnp.mean(error ** 2)


@jax.jit
def train_step(state, hits, mask, target):
    params, first, second, count = state
    loss, grads = jax.value_and_grad(loss_fn)(params, hits, mask, target)
    count = count + 1
    first = jax.tree_util.tree_map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree_util.tree_map(lambda v, g: 0.99 * v + 0.01 * g * g, second, grads)
    unbias1 = 1.0 - 0.9 ** count
    unbias2 = 1.0 - 0.99 ** count
    params = jax.tree_util.tree_map(
        lambda p, m, v: p - LEARNING_RATE * (m / unbias1) / (jnp.sqrt(v / unbias2) + 1e-8),
        params, first, second,
    )
    return (params, first, second, count), loss


def main():
    rng = np.random.default_rng(1912)
    library = [collate(*simulate_bin(rng, energy_bin)) for energy_bin in LIBRARY]
    params = init_params(5)
    zeros = jax.tree_util.tree_map(jnp.zeros_like, params)
    state = (params, zeros, zeros, jnp.zeros((), jnp.float32))

    history = []
    for _ in range(WARMUP_PASSES):
        for batch in library:
            state, loss = train_step(state, *batch)
            history.append(loss)
    jax.block_until_ready(loss)

    times = []
    for _ in range(PASSES):
        start = time.perf_counter()
        for batch in library:
            state, loss = train_step(state, *batch)
            history.append(loss)
        jax.block_until_ready((state, loss))
        times.append((time.perf_counter() - start) / len(library) * 1e6)

    weight_norm = sum(float(jnp.sum(p ** 2)) for p in jax.tree_util.tree_leaves(state[0])) ** 0.5
    print(json.dumps({
        "program": "jax_airshower",
        "steps": (WARMUP_PASSES + PASSES) * len(library),
        "us": statistics.median(times),
        "result": [float(np.mean([float(v) for v in history])), weight_norm],
    }))


if __name__ == "__main__":
    main()
