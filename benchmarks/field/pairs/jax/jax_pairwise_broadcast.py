"""Squared distances between two sets of 4096 vectors of 128 floats."""

from functools import partial

from benchmarks.field import Launch, Pair
from benchmarks.field.pairs.jax._common import jax, jnp, work

COUNT, DIM = 4096, 128
# XLA's fusion autotuner also tries Triton, whose tile of 64 x 128 x 128 elements takes LLVM minutes
NATIVE = {"xla_gpu_experimental_enable_fusion_autotuner": False}


@partial(jax.jit, compiler_options=NATIVE)
def by_difference(x, y):
    return jnp.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)


@jax.jit
def by_product(x, y):
    cross = jnp.matmul(x, y.T, precision=jax.lax.Precision.HIGHEST)
    return jnp.sum(x * x, axis=1)[:, None] + jnp.sum(y * y, axis=1)[None, :] - 2.0 * cross


def inputs():
    one, two = jax.random.split(jax.random.key(5))
    return tuple(jax.random.normal(key, (COUNT, DIM), "float32") for key in (one, two))


def make(variant, x, y):
    return work(by_difference if variant == "before" else by_product, x, y)


PAIR = Pair(
    inputs,
    make,
    {"before": Launch("reduce|fusion"), "after": Launch("gemm|dot|cutlass|xmma|nvjet")},
    tolerance=1e-3,
)
