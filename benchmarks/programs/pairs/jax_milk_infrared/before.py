"""Trains a network that reads fat, protein, lactose and urea of milk from infrared spectra of a herd-book laboratory."""
import json
import os
import time
from functools import partial

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import jax
import jax.numpy as jnp
import numpy as np

NAME = "jax_milk_infrared"
SAMPLES_PER_BATCH = 65536
BATCHES = 12
WAVES = 256
HIDDEN = 768
TRAITS = 4
LEARNING_RATE = 3e-4
WARMUP = 24
BLOCKS = 10
BLOCK_STEPS = 24


class SpectraArchive:
    """Absorbance spectra with their reference analyses, cut into batches of one milk-control round each."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        waves = np.linspace(0.0, 1.0, WAVES, dtype=np.float32)
        centres = rng.uniform(0.1, 0.9, TRAITS).astype(np.float32)
        widths = rng.uniform(0.03, 0.12, TRAITS).astype(np.float32)
        bands = np.exp(-(((waves[None] - centres[:, None]) / widths[:, None]) ** 2))
        grain = rng.standard_normal((SAMPLES_PER_BATCH, WAVES), dtype=np.float32)
        self.rounds = []
        for number in range(BATCHES):
            traits = rng.standard_normal((SAMPLES_PER_BATCH, TRAITS), dtype=np.float32)
            absorbance = traits @ bands
            absorbance += 0.1 * np.roll(grain, 5419 * number, axis=0)
            self.rounds.append({"spectra": absorbance, "traits": traits})
        self.order = rng.permutation(BATCHES)

    def round_of(self, step):
        epoch, place = divmod(step, BATCHES)
        return self.rounds[self.order[(place + 5 * epoch) % BATCHES]]


def init_network(key):
    sizes = [WAVES, HIDDEN, HIDDEN, TRAITS]
    layers = []
    for rows, cols in zip(sizes[:-1], sizes[1:]):
        key, sub = jax.random.split(key)
        scale = np.sqrt(2.0 / rows).astype(np.float32)
        layers.append({"w": scale * jax.random.normal(sub, (rows, cols), jnp.float32),
                       "b": jnp.zeros((cols,), jnp.float32)})
    return layers


def predict(layers, spectra):
    """Scatter-corrected spectrum through the network, products in bfloat16."""
    spectra = spectra - spectra.mean(axis=1, keepdims=True)
    h = (2.0 * spectra).astype(jnp.bfloat16)
    for layer in layers[:-1]:
        h = jax.nn.relu(h @ layer["w"].astype(jnp.bfloat16) + layer["b"].astype(jnp.bfloat16))
    out = h @ layers[-1]["w"].astype(jnp.bfloat16)
    return out.astype(jnp.float32) + layers[-1]["b"]


def loss_of(layers, batch):
    miss = predict(layers, batch["spectra"]) - batch["traits"]
    return jnp.mean(jnp.where(jnp.abs(miss) < 1.0, 0.5 * miss * miss, jnp.abs(miss) - 0.5))


@partial(jax.jit, donate_argnums=(0,))
def train_step(state, batch):
    layers, first, second, count = state
    loss, grads = jax.value_and_grad(loss_of)(layers, batch)
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
    rate = LEARNING_RATE * jnp.sqrt(1.0 - 0.999 ** count) / (1.0 - 0.9 ** count)
    layers = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), layers, first, second)
    return (layers, first, second, count), loss


def main():
    archive = SpectraArchive(1873)
    layers = init_network(jax.random.key(11))
    state = (layers, jax.tree.map(jnp.zeros_like, layers), jax.tree.map(jnp.zeros_like, layers),
             jnp.zeros((), jnp.float32))

    step = 0
    for _ in range(WARMUP):
        state, loss = train_step(state, archive.round_of(step))
        step += 1
    jax.block_until_ready(state)

    times, history = [], []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            state, loss = train_step(state, archive.round_of(step))
            history.append(loss)
            step += 1
        jax.block_until_ready(state)
        times.append((time.perf_counter() - start) / BLOCK_STEPS)

    norm = jnp.sqrt(sum(jnp.sum(layer["w"] ** 2) for layer in state[0]))
    result = [float(jnp.mean(jnp.stack(history))), float(norm)]
    print(json.dumps({"program": NAME, "steps": BLOCKS * BLOCK_STEPS, "us": float(np.median(times)) * 1e6,
                      "result": result}))


if __name__ == "__main__":
    main()
