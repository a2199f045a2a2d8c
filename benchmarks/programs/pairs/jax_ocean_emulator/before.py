"""Train a residual emulator of ocean column mixing in JAX.

Profiles of temperature, salinity and velocity on 128 levels go in, their
tendencies come out.  Weights are kept in float32, products run in bfloat16.
"""
import functools
import json
import os
import statistics
import time

# cuBLAS is the best choice for these shapes and compiles quickly.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false")

import jax
import jax.numpy as jnp
import numpy as np

SEED = 1000
LEVELS = 128
FIELDS = 4
WIDTH = 2048
HIDDEN = 8192
DEPTH = 3
BATCH = 8192
POOL = 4
LEARNING_RATE = 2e-4
BETA1, BETA2, EPS = 0.9, 0.98, 1e-8
WARMUP = 6
BLOCKS = 8
BLOCK_STEPS = 5


def init_params(key):
    keys = iter(jax.random.split(key, 2 + 2 * DEPTH))

    def dense(fan_in, fan_out, gain=1.0):
        return jax.random.normal(next(keys), (fan_in, fan_out)) * (gain / np.sqrt(fan_in))

    return {
        "embed": dense(FIELDS * LEVELS, WIDTH),
        "blocks": [
            {"scale": jnp.ones(WIDTH), "up": dense(WIDTH, HIDDEN), "down": dense(HIDDEN, WIDTH, 0.3)}
            for _ in range(DEPTH)
        ],
        "head": dense(WIDTH, FIELDS * LEVELS, 0.1),
    }


def rms_norm(x, scale):
    x32 = x.astype(jnp.float32)
    inv = jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + 1e-6)
    return (x32 * inv * scale).astype(x.dtype)


def emulate(params, profiles):
    half = functools.partial(jnp.asarray, dtype=jnp.bfloat16)
    x = half(profiles) @ half(params["embed"])
    for block in params["blocks"]:
        y = rms_norm(x, block["scale"])
        y = jax.nn.gelu(y @ half(block["up"]), approximate=True)
        x = x + y @ half(block["down"])
    return x @ half(params["head"])


def loss_fn(params, profiles, tendencies):
    error = emulate(params, profiles).astype(jnp.float32) - tendencies
    return jnp.mean(error * error)


@functools.partial(jax.jit, donate_argnums=(0,))
def train_step(state, profiles, tendencies):
    params, first, second, count, total = state
    loss, grads = jax.value_and_grad(loss_fn)(params, profiles, tendencies)
    count = count + 1
    rate = LEARNING_RATE * jnp.sqrt(1 - BETA2 ** count) / (1 - BETA1 ** count)
    first = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, first, grads)
    second = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, second, grads)
    params = jax.tree.map(
        lambda p, m, v: p - rate * m / (jnp.sqrt(v) + EPS), params, first, second)
    return params, first, second, count, total + loss


@jax.jit
def make_columns(key):
    """Smooth random profiles and the tendencies of a diffusive closure."""
    noise = jax.random.normal(key, (BATCH, FIELDS, LEVELS))
    profile = jnp.cumsum(noise, axis=-1) / jnp.sqrt(LEVELS)
    gradient = jnp.diff(profile, axis=-1, append=profile[..., -1:])
    shear = jnp.sum(gradient[:, 2:] ** 2, axis=1, keepdims=True)
    mixing = 1.0 / (1.0 + jnp.exp(4.0 - 200.0 * shear))
    flux = mixing * gradient
    tendency = jnp.diff(flux, axis=-1, prepend=0.0) * 10.0
    return (profile.reshape(BATCH, -1).astype(jnp.bfloat16),
            tendency.reshape(BATCH, -1).astype(jnp.float32))


def main():
    key = jax.random.key(SEED)
    pool = [make_columns(k) for k in jax.random.split(jax.random.fold_in(key, 1), POOL)]
    params = jax.jit(init_params)(key)
    state = (params, jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params),
             jnp.zeros((), jnp.float32), jnp.zeros((), jnp.float32))
    step = 0

    def run(state, count):
        nonlocal step
        for _ in range(count):
            state = train_step(state, *pool[step % POOL])
            step += 1
        return jax.block_until_ready(state)

    state = run(state, WARMUP)
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        state = run(state, BLOCK_STEPS)
        times.append((time.perf_counter() - start) / BLOCK_STEPS * 1e6)

    print(json.dumps({
        "program": "jax_ocean_emulator",
        "steps": step,
        "us": statistics.median(times),
        "result": [float(state[-1]) / step],
    }))


if __name__ == "__main__":
    main()
