"""Kernel polynomial method: spectral density of a dense random Hamiltonian by Chebyshev moments."""

import json
import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp

SITES = 16384
VECTORS = 2048
BANDWIDTH = 0.95
WARMUP = 8
BLOCKS = 10
STEPS_PER_BLOCK = 40


@jax.jit
def hamiltonian(key):
    """Gaussian orthogonal ensemble with its semicircle scaled into (-1, 1)."""
    a = jax.random.normal(key, (SITES, SITES), dtype=jnp.float32)
    return ((a + a.T) * (0.5 * BANDWIDTH / (2 * SITES) ** 0.5)).astype(jnp.bfloat16)


@partial(jax.jit, donate_argnums=(1,))
def chebyshev(h, previous, current, start):
    """T_{k+1} v = 2 H T_k v - T_{k-1} v, and the moment <v, T_{k+1} v>."""
    product = jnp.matmul(h, current, preferred_element_type=jnp.float32)
    following = 2 * product - previous.astype(jnp.float32)
    moment = jnp.sum(following * start.astype(jnp.float32)) / (SITES * VECTORS)
    return following.astype(jnp.bfloat16), moment


def main():
    key_h, key_v = jax.random.split(jax.random.PRNGKey(61))
    h = hamiltonian(key_h)
    start = jax.random.rademacher(key_v, (SITES, VECTORS), dtype=jnp.bfloat16)
    previous = jnp.array(start)
    current = jnp.matmul(h, start, preferred_element_type=jnp.float32).astype(jnp.bfloat16)

    moments = []
    for _ in range(WARMUP):
        following, moment = chebyshev(h, previous, current, start)
        previous, current = current, following
        moments.append(moment)
    current.block_until_ready()
    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            following, moment = chebyshev(h, previous, current, start)
            previous, current = current, following
            moments.append(moment)
        current.block_until_ready()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)
        print(f"{len(moments)} moments, {2 * SITES**2 * VECTORS / times[-1] / 1e12:.0f} TFLOP/s")
    moments = jnp.stack(moments)
    out = {
        "program": "jax_density_of_states",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [float(moments[0]), float(jnp.mean(jnp.square(current.astype(jnp.float32))))],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
