"""Predicts the stress-relaxation spectrum of a polymer melt from its architecture.

Residual MLP in plain JAX (parameters as nested dicts), AdamW written out so that
the weight decay can skip gains and biases.
"""
import json
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np

WIDTH = 256          # descriptor length = hidden width = spectrum bins
LAYERS = 12
BATCH = 512
LR, B1, B2, EPS, DECAY = 5e-4, 0.9, 0.98, 1e-7, 0.01
WARMUP, BLOCKS, PER_BLOCK = 5, 7, 3


def init_params(seed):
    rng = np.random.default_rng(seed)

    def dense(scale):
        w = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) * (scale / WIDTH ** 0.5)
        return {"w": jnp.asarray(w), "b": jnp.zeros(WIDTH, jnp.float32)}

    params = {"embed": dense(1.0), "readout": dense(0.5), "blocks": []}
    for _ in range(LAYERS):
        params["blocks"].append({
            "gain": jnp.ones(WIDTH, jnp.float32),
            "up": dense(1.0),
            "down": dense(0.2),
        })
    return params


def melt_batches(count, seed):
    """Random architectures; the target is a smooth nonlinear map of the descriptor."""
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH ** 0.5
    kernel = np.exp(-0.5 * ((np.arange(WIDTH)[:, None] - np.arange(WIDTH)[None]) / 6.0) ** 2)
    kernel = (kernel / kernel.sum(0)).astype(np.float32)
    out = []
    for _ in range(count):
        x = rng.standard_normal((BATCH, WIDTH)).astype(np.float32)
        y = np.tanh(x @ mix) @ kernel
        out.append((jnp.asarray(x), jnp.asarray(y)))
    return out


def dense(p, x):
    return x @ p["w"] + p["b"]


def rms_norm(gain, x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * gain


def residual_block(h, block):
    z = rms_norm(block["gain"], h)
    h = h + dense(block["down"], jax.nn.silu(dense(block["up"], z)))
    return h, None


def spectrum(params, x):
    # scan keeps the compile time of the trunk down
    trunk = jax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *params["blocks"])
    h, _ = jax.lax.scan(residual_block, dense(params["embed"], x), trunk)
    return dense(params["readout"], h)


def loss_fn(params, x, y):
    return jnp.mean((spectrum(params, x) - y) ** 2)


loss_and_grad = jax.jit(jax.value_and_grad(loss_fn))


def adamw_leaf(p, g, m, v, corr1, corr2):
    m = B1 * m + (1 - B1) * g
    v = B2 * v + (1 - B2) * (g * g)
    update = (m * corr1) / (jnp.sqrt(v * corr2) + EPS)
    if p.ndim > 1:
        update = update + DECAY * p
    return p - LR * update, m, v


def adamw(params, grads, state, corr1, corr2):
    leaves, treedef = jax.tree_util.tree_flatten(params)
    grads = treedef.flatten_up_to(grads)
    new = [adamw_leaf(p, g, m, v, corr1, corr2)
           for p, g, m, v in zip(leaves, grads, *state)]
    params = treedef.unflatten([n[0] for n in new])
    return params, ([n[1] for n in new], [n[2] for n in new])


def train_step(params, state, t, batch):
    loss, grads = loss_and_grad(params, *batch)
    corr1 = np.float32(1.0 / (1.0 - B1 ** t))
    corr2 = np.float32(1.0 / (1.0 - B2 ** t))
    params, state = adamw(params, grads, state, corr1, corr2)
    return params, state, loss


def main():
    params = init_params(seed=12)
    zeros = [jnp.zeros_like(p) for p in jax.tree_util.tree_leaves(params)]
    state = (zeros, list(zeros))
    batches = melt_batches(4, seed=21)
    losses = []
    t = 0

    def run(n):
        nonlocal params, state, t
        for _ in range(n):
            t += 1
            params, state, loss = train_step(params, state, t, batches[t % len(batches)])
            losses.append(loss)
        jax.block_until_ready((params, state))

    run(WARMUP)
    us = []
    for _ in range(BLOCKS):
        tic = time.perf_counter()
        run(PER_BLOCK)
        us.append((time.perf_counter() - tic) / PER_BLOCK * 1e6)

    curve = [float(v) for v in losses]
    print(f"loss {curve[0]:.4f} -> {curve[-1]:.4f}")
    print(json.dumps({"program": "jax_polymers", "steps": t, "us": float(np.median(us)),
                      "result": [float(np.mean(curve)), curve[-1]]}))


if __name__ == "__main__":
    main()
