"""Training of a neural emulator of an atmospheric column parametrisation.

A residual multilayer perceptron maps column states to tendencies. Master
weights are float32, products run in bfloat16, the optimiser is SGD with
momentum and cosine decay; the data set lives on the device.
"""

import json
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

INPUTS = 512
HIDDEN = 4096
OUTPUTS = 256
DEPTH = 4
BATCH = 8192
COLUMNS = 1 << 17
PEAK_RATE = 0.02
MOMENTUM = 0.9
TOTAL_STEPS = 400


def dense(x, w, b):
    y = jnp.dot(x, w.astype(jnp.bfloat16), preferred_element_type=jnp.bfloat16)
    return y + b.astype(jnp.bfloat16)


def forward(params, x):
    h = jax.nn.relu(dense(x, *params["input"]))
    for w, b in params["hidden"]:
        h = h + jax.nn.relu(dense(h, w, b))
    return dense(h, *params["output"]).astype(jnp.float32)


def loss_fn(params, x, target):
    return jnp.mean((forward(params, x) - target.astype(jnp.float32)) ** 2)


@partial(jax.jit, donate_argnums=(0, 1, 2))
def train_step(params, velocity, count, columns, tendencies):
    start = (count * BATCH) % COLUMNS
    x = jax.lax.dynamic_slice_in_dim(columns, start, BATCH)
    target = jax.lax.dynamic_slice_in_dim(tendencies, start, BATCH)
    loss, grads = jax.value_and_grad(loss_fn)(params, x, target)
    rate = PEAK_RATE * 0.5 * (1.0 + jnp.cos(jnp.pi * count / TOTAL_STEPS))
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, grads)
    params = jax.tree.map(lambda p, v: p - rate * v, params, velocity)
    return params, velocity, count + 1, loss


@partial(jax.jit, static_argnums=1)
def make_layer(key, shape):
    scale = 1.0 / np.sqrt(shape[0])
    return scale * jax.random.normal(key, shape), jnp.zeros((shape[1],))


@jax.jit
def make_data(key):
    """Random column states and a smooth nonlinear response to be learned."""
    k1, k2, k3 = jax.random.split(key, 3)
    x = jax.random.normal(k1, (COLUMNS, INPUTS), dtype=jnp.bfloat16)
    a = (jax.random.normal(k2, (INPUTS, OUTPUTS)) / np.sqrt(INPUTS)).astype(jnp.bfloat16)
    b = (jax.random.normal(k3, (INPUTS, OUTPUTS)) / np.sqrt(INPUTS)).astype(jnp.bfloat16)
    return x, jnp.tanh(x @ a) * jnp.cos(x @ b)


def init_params(key):
    keys = jax.random.split(key, DEPTH + 2)
    params = {
        "input": make_layer(keys[0], (INPUTS, HIDDEN)),
        "hidden": [make_layer(k, (HIDDEN, HIDDEN)) for k in keys[1:-1]],
        "output": make_layer(keys[-1], (HIDDEN, OUTPUTS)),
    }
    params["hidden"] = [(0.3 * w, b) for w, b in params["hidden"]]
    return params


def main():
    key_data, key_params = jax.random.split(jax.random.key(2025))
    columns, tendencies = make_data(key_data)
    params = init_params(key_params)
    velocity = jax.tree.map(jnp.zeros_like, params)
    count = jnp.zeros((), dtype=jnp.int32)

    for _ in range(5):
        params, velocity, count, loss = train_step(params, velocity, count, columns, tendencies)
    loss.block_until_ready()

    blocks, steps = 10, 20
    times, losses = [], []
    for _ in range(blocks):
        start = time.perf_counter()
        for _ in range(steps):
            params, velocity, count, loss = train_step(params, velocity, count, columns, tendencies)
        loss.block_until_ready()
        times.append((time.perf_counter() - start) / steps)
        losses.append(loss)

    checksum = float(np.mean([float(x) for x in losses]))
    print(
        json.dumps(
            {
                "program": "jax_emulator",
                "steps": 5 + blocks * steps,
                "us": 1e6 * float(np.median(times)),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
