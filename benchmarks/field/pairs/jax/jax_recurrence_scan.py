"""Linear recurrence over 1024 steps of 4096 channels: h = a h + b."""

from benchmarks.field import Launch, Pair
from benchmarks.field.pairs.jax._common import jax, jnp, work

STEPS, CHANNELS = 1024, 4096


@jax.jit
def step_by_step(a, b):
    def step(h, given):
        h = given[0] * h + given[1]
        return h, h

    return jax.lax.scan(step, jnp.zeros(CHANNELS, "float32"), (a, b))[1]


@jax.jit
def in_tree(a, b):
    def join(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    return jax.lax.associative_scan(join, (a, b))[1]


def inputs():
    one, two = jax.random.split(jax.random.key(4))
    shape = (STEPS, CHANNELS)
    return jax.random.uniform(one, shape, "float32"), jax.random.uniform(two, shape, "float32")


def make(variant, a, b):
    return work(step_by_step if variant == "before" else in_tree, a, b)


PAIR = Pair(inputs, make, {"before": Launch(".", 500), "after": Launch(".", 2)}, tolerance=1e-4)
