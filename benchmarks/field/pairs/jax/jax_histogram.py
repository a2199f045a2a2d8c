"""Histogram of 16 million labels in 16 classes."""

from benchmarks.field import Launch, Pair
from benchmarks.field.pairs.jax._common import jax, jnp, work

COUNT, CLASSES = 1 << 24, 16


@jax.jit
def scattered(labels):
    return jnp.zeros(CLASSES, "int32").at[labels].add(1)


@jax.jit
def compared(labels):
    parts = labels.reshape(-1, 4096)
    found = [jnp.sum(parts == c, axis=1, dtype="int32") for c in range(CLASSES)]
    return jnp.stack([jnp.sum(each) for each in found])


def inputs():
    return (jax.random.randint(jax.random.key(3), (COUNT,), 0, CLASSES, "int32"),)


def make(variant, labels):
    return work(scattered if variant == "before" else compared, labels)


PAIR = Pair(
    inputs,
    make,
    {"before": Launch("scatter"), "after": Launch("reduce|fusion")},
    tolerance=1e-9,
)
