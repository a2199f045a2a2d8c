"""Train a small transformer in JAX, bfloat16, one jitted step."""

import json
import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp

VOCAB = 4096
DIM = 1536
LAYERS = 6
HEADS = 12
SEQ = 256
BATCH = 16
WARMUP = 5
BLOCKS = 6
STEPS_PER_BLOCK = 6


def init(key):
    k = jax.random.split(key, 6)

    def normal(key, *shape):
        return (jax.random.normal(key, shape) * 0.02).astype(jnp.bfloat16)

    return {
        "embed": normal(k[0], VOCAB, DIM),
        "layers": {
            "qkv": normal(k[1], LAYERS, DIM, 3 * DIM),
            "out": normal(k[2], LAYERS, DIM, DIM),
            "up": normal(k[3], LAYERS, DIM, 4 * DIM),
            "down": normal(k[4], LAYERS, 4 * DIM, DIM),
        },
        "head": normal(k[5], DIM, VOCAB),
    }


def norm(x):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def layer(x, w):
    b, t, _ = x.shape
    q, k, v = jnp.split((norm(x) @ w["qkv"]).reshape(b, t, HEADS, -1), 3, axis=-1)
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    x = x + y.reshape(b, t, DIM) @ w["out"]
    return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"], None


def loss_fn(params, tokens):
    x = params["embed"][tokens[:, :-1]]
    x, _ = jax.lax.scan(layer, x, params["layers"])
    logits = (norm(x) @ params["head"]).astype(jnp.float32)
    logp = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(logp, tokens[:, 1:, None], axis=-1))


@partial(jax.jit, donate_argnums=0)
def train_step(params, tokens):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss


def main():
    key = jax.random.key(24)
    params = init(key)
    tokens = jax.random.randint(key, (BATCH, SEQ + 1), 0, VOCAB)
    params, first = train_step(params, tokens)
    for _ in range(WARMUP):
        params, loss = train_step(params, tokens)
    loss.block_until_ready()
    times = []
    for block in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            params, loss = train_step(params, tokens)
        loss.block_until_ready()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"block {block}: loss {float(loss):.4f}, {times[-1] * 1e3:.2f} ms a step")
    out = {
        "program": "jax_transformer_scan",
        "steps": 1 + WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [float(first)],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
