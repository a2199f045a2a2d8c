"""JAX as it is timed and profiled here: memory taken as it is needed, one launch a kernel."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# without command buffers each kernel is a launch of its own, which ncu can pick
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_enable_command_buffer=")

import jax
import jax.numpy as jnp
import numpy

from benchmarks.field import Work

__all__ = ["jax", "jnp", "work"]


def work(function, *given):
    """Work that calls `function(*given)`, which gives one array."""
    kept = [None]

    def run():
        kept[0] = function(*given)
        return kept[0]

    return Work(run, lambda: numpy.asarray(kept[0]))
