"""Next-minute prediction of thermocouple and gas readings during ceramic kiln firings.

Firings last different times; they are collated to rectangular batches with a mask and modelled
by causal convolution blocks with wide feed-forward layers in bfloat16.
"""
import functools
import json
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.13")

import jax
import jax.numpy as jnp
import numpy as np

PROGRAM = "jax_kiln_firings"
SENSORS = 16
WIDTH = 1024
HIDDEN = 4096
BLOCKS = 4
TAPS = 4
FIRINGS = 256
BATCH = 64
MAX_MINUTES = 640
LEARNING_RATE = 2e-5
WARMUP = 40
TIMED_BLOCKS = 8
PER_BLOCK = 5


def read_firings(rng):
    firings = []
    for _ in range(FIRINGS):
        minutes = int(rng.integers(440, 481))
        clock = np.arange(minutes)[:, None] / 480.0
        peak = rng.uniform(0.8, 1.2, SENSORS)
        ramp = rng.uniform(2.0, 5.0, SENSORS)
        curve = peak * np.tanh(ramp * clock) - 0.6 * np.maximum(clock - 0.7, 0.0)
        ripple = 0.05 * np.sin(2 * np.pi * clock * rng.uniform(5, 30, SENSORS))
        firings.append((curve + ripple + 0.01 * rng.standard_normal((minutes, SENSORS))).astype(np.float32))
    return firings


def collate(firings, minutes):
    readings = np.zeros((len(firings), minutes, SENSORS), dtype=np.float32)
    mask = np.zeros((len(firings), minutes), dtype=np.float32)
    for row, firing in enumerate(firings):
        readings[row, :len(firing)] = firing
        mask[row, :len(firing) - 1] = 1.0
    return jax.device_put(readings), jax.device_put(mask)


def initial_parameters(key):
    keys = jax.random.split(key, BLOCKS + 2)
    blocks = []
    for k in keys[2:]:
        taps, up, down = jax.random.split(k, 3)
        blocks.append({
            "gain": jnp.ones((WIDTH,)),
            "taps": jax.random.normal(taps, (TAPS, WIDTH)) / np.sqrt(TAPS),
            "up": jax.random.normal(up, (WIDTH, HIDDEN)) / np.sqrt(WIDTH),
            "down": jax.random.normal(down, (HIDDEN, WIDTH)) / np.sqrt(HIDDEN * BLOCKS),
        })
    return {
        "embed": jax.random.normal(keys[0], (SENSORS, WIDTH)) / np.sqrt(SENSORS),
        "readout": jax.random.normal(keys[1], (WIDTH, SENSORS)) / np.sqrt(WIDTH),
        "blocks": blocks,
    }


def rms_norm(x, gain):
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + 1e-6)
    return (wide * scale * gain).astype(jnp.bfloat16)


def causal_filter(x, taps):
    length = x.shape[1]
    padded = jnp.pad(x, ((0, 0), (TAPS - 1, 0), (0, 0)))
    return sum(padded[:, t:t + length] * taps[t] for t in range(TAPS))


def predict(parameters, readings):
    hidden = readings.astype(jnp.bfloat16) @ parameters["embed"].astype(jnp.bfloat16)
    for block in parameters["blocks"]:
        inner = causal_filter(rms_norm(hidden, block["gain"]), block["taps"].astype(jnp.bfloat16))
        inner = jax.nn.gelu(inner @ block["up"].astype(jnp.bfloat16), approximate=True)
        hidden = hidden + inner @ block["down"].astype(jnp.bfloat16)
    return (hidden @ parameters["readout"].astype(jnp.bfloat16)).astype(jnp.float32)


def firing_loss(parameters, readings, mask):
    upcoming = jnp.roll(readings, -1, axis=1)
    error = jnp.sum(jnp.square(predict(parameters, readings) - upcoming), axis=-1)
    return jnp.sum(error * mask) / jnp.sum(mask)


@functools.partial(jax.jit, donate_argnums=(0,))
def train_step(state, readings, mask):
    parameters, momentum = state
    loss, gradients = jax.value_and_grad(firing_loss)(parameters, readings, mask)
    momentum = jax.tree_util.tree_map(lambda m, g: 0.9 * m + g, momentum, gradients)
    parameters = jax.tree_util.tree_map(lambda p, m: p - LEARNING_RATE * m, parameters, momentum)
    return (parameters, momentum), loss


def main():
    firings = read_firings(np.random.default_rng(1280))
    minutes = MAX_MINUTES
    batches = [collate(firings[i:i + BATCH], minutes) for i in range(0, FIRINGS, BATCH)]
    parameters = initial_parameters(jax.random.PRNGKey(3))
    state = (parameters, jax.tree_util.tree_map(jnp.zeros_like, parameters))

    steps = 0
    for _ in range(WARMUP):
        state, loss = train_step(state, *batches[steps % len(batches)])
        steps += 1
    jax.block_until_ready((state, loss))

    times = []
    for _ in range(TIMED_BLOCKS):
        begin = time.perf_counter()
        for _ in range(PER_BLOCK):
            state, loss = train_step(state, *batches[steps % len(batches)])
            steps += 1
        jax.block_until_ready((state, loss))
        times.append((time.perf_counter() - begin) / PER_BLOCK * 1e6)

    norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree_util.tree_leaves(state[0])))
    result = [float(loss), float(norm)]
    print(json.dumps({"program": PROGRAM, "steps": steps, "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
