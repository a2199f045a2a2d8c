"""Ensemble forecast of lava flow fields with a learned residual propagator."""
import json
import os
import statistics
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.12")

import jax
import jax.numpy as jnp
import numpy as np

MEMBERS = 2048
CELLS = 2048
HIDDEN = 8192
BLOCKS_PER_STEP = 6
SUBSTEPS = 4
HOURS = 24
WARMUP = 100
TIMED_BLOCKS = 10
BLOCK_STEPS = 10


def make_propagator(seed):
    keys = jax.random.split(jax.random.PRNGKey(seed), 2 * BLOCKS_PER_STEP)

    @jax.jit
    def draw(key_up, key_down):
        up = jax.random.normal(key_up, (CELLS, HIDDEN), jnp.float32) / CELLS ** 0.5
        down = jax.random.normal(key_down, (HIDDEN, CELLS), jnp.float32) / HIDDEN ** 0.5
        return {"up": up.astype(jnp.bfloat16), "down": down.astype(jnp.bfloat16)}

    return [draw(keys[2 * i], keys[2 * i + 1]) for i in range(BLOCKS_PER_STEP)]


def make_effusion(seed):
    rng = np.random.default_rng(seed)
    hours = np.arange(HOURS)[:, None]
    phase = rng.uniform(0, 2 * np.pi, (1, CELLS))
    return jnp.asarray(0.02 * np.cos(2 * np.pi * hours / HOURS + phase), jnp.float32)


def initial_fields(seed):
    rng = np.random.default_rng(seed)
    profile = np.sin(np.linspace(0, 6 * np.pi, CELLS))
    spread = rng.standard_normal((MEMBERS, CELLS))
    return (profile + 0.3 * spread).astype(np.float32)


def propagate(block, fields):
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(fields), axis=1, keepdims=True) + 1e-6)
    hidden = jax.nn.relu((fields * scale).astype(jnp.bfloat16) @ block["up"])
    return fields + 0.1 * (hidden @ block["down"]).astype(jnp.float32)


@jax.jit
def forecast_hour(propagator, effusion, fields, clock):
    supply = effusion[clock % HOURS]
    for _ in range(SUBSTEPS):
        for block in propagator:
            fields = propagate(block, fields)
        fields = 0.9 * fields + supply
    front = jnp.mean(jnp.abs(fields[:, CELLS // 2]))
    return fields, clock + 1, front


class Ensemble:
    """Current fields of all members and the record of the flow front."""

    def __init__(self, propagator, effusion, fields):
        self.propagator = propagator
        self.effusion = effusion
        self.fields = fields
        self.clock = jnp.asarray(0, jnp.int32)
        self.fronts = []

    def advance(self):
        fields, self.clock, front = forecast_hour(self.propagator, self.effusion, self.fields, self.clock)
        self.fields = fields
        self.fronts.append(front)

    def wait(self):
        jax.block_until_ready(self.fronts[-1])


def main():
    propagator = make_propagator(seed=3)
    effusion = make_effusion(seed=4)
    ensemble = Ensemble(propagator, effusion, jnp.asarray(initial_fields(seed=5)))

    for _ in range(WARMUP):
        ensemble.advance()
    ensemble.wait()

    times = []
    for _ in range(TIMED_BLOCKS):
        begin = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            ensemble.advance()
        ensemble.wait()
        times.append((time.perf_counter() - begin) / BLOCK_STEPS * 1e6)

    final = np.asarray(ensemble.fields, dtype=np.float64)
    fronts = np.array([float(f) for f in ensemble.fronts])
    result = [float(np.sqrt(np.mean(final ** 2))), float(np.mean(np.abs(final))), float(fronts.mean())]
    print(json.dumps({"program": "jax_lava_ensemble", "steps": WARMUP + TIMED_BLOCKS * BLOCK_STEPS,
                      "us": statistics.median(times), "result": result}))


if __name__ == "__main__":
    main()
