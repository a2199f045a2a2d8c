"""Swish gate of 64 million activations."""

from benchmarks.field import Launch, Pair
from benchmarks.field.pairs.jax._common import jax, jnp, work

COUNT = 1 << 26


def gate(x, y):
    return x * (1.0 / (1.0 + jnp.exp(-x))) * y + x


def inputs():
    a, b = jax.random.split(jax.random.key(1))
    return jax.random.normal(a, (COUNT,), "float32"), jax.random.normal(b, (COUNT,), "float32")


def make(variant, x, y):
    return work(gate if variant == "before" else jax.jit(gate), x, y)


# the multiplications are launched as they are called: the third kernel adds 1
PAIR = Pair(inputs, make, {"before": Launch(".", 2), "after": Launch(".")}, tolerance=1e-4)
