"""JAX: a compiled function with a product, a softmax and a reduction."""

import jax
import jax.numpy as jnp
from gpu_range import gpu_range


@jax.jit
def step(x, w):
    h = jnp.tanh(x @ w)
    return jax.nn.softmax(h, axis=-1).sum(axis=0) + h.mean()


x = jnp.linspace(0, 1, 512 * 512, dtype=jnp.float32).reshape(512, 512)
w = jnp.ones((512, 512), dtype=jnp.float32) * 0.01
step(x, w).block_until_ready()  # compiled, and its products tuned, before the range
with gpu_range():
    out = step(x, w).block_until_ready()
print("jax", float(out[0]))
