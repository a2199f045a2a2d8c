"""Log-likelihood terms (log gamma) of 16 million counts."""

from benchmarks.field import Launch, Pair
from benchmarks.field.pairs.jax._common import jax, jnp, work

jax.config.update("jax_enable_x64", True)
COUNT = 1 << 24


def inputs():
    x = jax.random.uniform(jax.random.key(2), (COUNT,), "float32", 3.0, 30.0)
    return x, x.astype("float64")


def make(variant, single, double):
    x = double if variant == "before" else single
    return work(jax.jit(lambda x: jax.scipy.special.gammaln(x) - jnp.log(x)), x)


PAIR = Pair(inputs, make, Launch("."), tolerance=1e-3)
