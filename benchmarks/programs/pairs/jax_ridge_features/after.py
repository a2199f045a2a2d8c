"""Fit random-feature regression by gradient descent; the data set is a NumPy array."""

import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

ROWS = 40_000
COLUMNS = 256
FEATURES = 512
RATE = 0.005
WARMUP = 5
BLOCKS = 6
STEPS_PER_BLOCK = 8


@jax.jit
def step(weights, x, y, projection):
    def loss_fn(w):
        hidden = jnp.cos(x @ projection)
        return jnp.mean((hidden @ w - y) ** 2) + 1e-4 * jnp.sum(w * w)

    loss, grad = jax.value_and_grad(loss_fn)(weights)
    return weights - RATE * grad, loss


def main():
    rng = np.random.default_rng(23)
    x = rng.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    y = np.sin(x[:, 0]) + 0.1 * x[:, 1]
    projection = rng.standard_normal((COLUMNS, FEATURES), dtype=np.float32) * 0.1
    weights = jnp.zeros(FEATURES)
    x, y, projection = jax.device_put((x, y, projection))
    print(f"{x.nbytes / 1e6:.0f} MB of data")
    for _ in range(WARMUP):
        weights, loss = step(weights, x, y, projection)
    loss.block_until_ready()
    times = []
    for block in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            weights, loss = step(weights, x, y, projection)
        loss.block_until_ready()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"iteration {(block + 1) * STEPS_PER_BLOCK}: loss {float(loss):.5f}")
    out = {
        "program": "jax_ridge_features",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [float(loss), float(jnp.linalg.norm(weights))],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
