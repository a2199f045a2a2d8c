"""Train a small text classifier in JAX on batches padded to their longest text."""

import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

VOCAB = 2000
DIM = 256
CLASSES = 20
BATCH = 256
MIN_LEN = 40
MAX_LEN = 128
WARMUP = 3
STEPS = 32
BLOCK = 4


def make_batches():
    """Texts of many lengths; a batch is as long as its longest text."""
    rng = np.random.default_rng(21)
    batches = []
    for _ in range(WARMUP + STEPS):
        longest = int(rng.integers(MIN_LEN, MAX_LEN + 1))
        lengths = rng.integers(MIN_LEN // 2, longest + 1, BATCH)
        lengths[0] = longest
        tokens = rng.integers(1, VOCAB, (BATCH, longest), dtype=np.int32)
        tokens[np.arange(longest)[None, :] >= lengths[:, None]] = 0
        batches.append(tokens)
    return batches


def init(key):
    k = jax.random.split(key, 2)
    return {
        "embed": jax.random.normal(k[0], (VOCAB, DIM)) * 0.1,
        "out": jax.random.normal(k[1], (DIM, CLASSES)) * 0.1,
    }


def loss_fn(params, tokens):
    """Classify a text by its mean embedding; its first word stands for its class."""
    mask = tokens > 0
    x = params["embed"][tokens] * mask[..., None]
    mean = jnp.sum(x, axis=1) / jnp.sum(mask, axis=1)[:, None]
    logp = jax.nn.log_softmax(jnp.tanh(mean) @ params["out"])
    label = tokens[:, 0] % CLASSES
    return -jnp.mean(jnp.take_along_axis(logp, label[:, None], axis=1))


@jax.jit
def train_step(params, tokens):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


def main():
    batches = make_batches()
    params = init(jax.random.key(21))
    losses = []
    for tokens in batches[:WARMUP]:
        params, loss = train_step(params, jnp.asarray(tokens))
        losses.append(loss)
    loss.block_until_ready()
    times = []
    for b in range(0, STEPS, BLOCK):
        start = time.perf_counter()
        for tokens in batches[WARMUP + b : WARMUP + b + BLOCK]:
            params, loss = train_step(params, jnp.asarray(tokens))
        loss.block_until_ready()
        times.append((time.perf_counter() - start) / BLOCK)
        print(f"step {b + BLOCK}: loss {float(loss):.4f}, {times[-1] * 1e3:.2f} ms")
    out = {
        "program": "jax_ragged_batches",
        "steps": WARMUP + STEPS,
        "us": statistics.median(times) * 1e6,
        "result": [float(x) for x in losses] + [float(loss)],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
