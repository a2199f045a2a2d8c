"""Defect segmentation of woven fabric by mean-field annealing of a binary label field.

Each frame of the line camera gives a defect score for every pixel. The labels are smoothed with a grid
coupling while the temperature is lowered from frame to frame of the same bolt.
"""
import json
import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

NAME = "jax_fabric_defects"
SIZE = 3072
SWEEPS = 60
COUPLING = 0.32
HOT, COLD = 2.4, 0.8
WARMUP, BLOCKS, PER_BLOCK = 5, 5, 4
STEPS = WARMUP + BLOCKS * PER_BLOCK


def camera_scores(seed=81):
    """Log-odds of a defect: weave pattern, noise, and some slubs and missing picks."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)
    scores = -0.6 + 0.2 * np.sin(xx * 0.8) * np.sin(yy * 0.8)
    scores += 0.9 * rng.standard_normal((SIZE, SIZE), dtype=np.float32)
    for _ in range(60):
        y, x = rng.integers(40, SIZE - 200, size=2)
        scores[y:y + rng.integers(4, 12), x:x + rng.integers(40, 180)] += 1.4
    return scores.astype(np.float32)


def neighbours(m):
    """Sum of the four neighbours, open edges."""
    p = jnp.pad(m, 1)
    return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]


@partial(jax.jit, static_argnames=("sweeps",), donate_argnames=("m",))
def relax(m, scores, temperature, sweeps):
    """Damped mean-field sweeps at one temperature; returns the magnetisations and a free-energy proxy."""

    def sweep(_, m):
        field = COUPLING * neighbours(m) + 0.5 * scores
        return 0.5 * m + 0.5 * jnp.tanh(field / temperature)

    m = jax.lax.fori_loop(0, sweeps, sweep, m)
    energy = -jnp.mean(m * (0.5 * COUPLING * neighbours(m) + 0.5 * scores))
    return m, energy


def temperatures():
    return [HOT * (COLD / HOT) ** (k / (STEPS - 1)) for k in range(STEPS)]


class Annealer:
    def __init__(self, scores):
        self.scores = jnp.asarray(scores)
        self.m = jnp.zeros_like(self.scores)
        self.energies = []

    def frame(self, temperature):
        self.m, energy = relax(self.m, self.scores, temperature, sweeps=SWEEPS)
        self.energies.append(energy)

    def finish(self):
        jax.block_until_ready(self.m)


def main():
    annealer = Annealer(camera_scores())
    schedule = iter(temperatures())
    for _ in range(WARMUP):
        annealer.frame(next(schedule))
    annealer.finish()

    spans = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            annealer.frame(next(schedule))
        annealer.finish()
        spans.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    defects = float(jnp.mean(annealer.m > 0.0))
    print(json.dumps({"program": NAME, "steps": STEPS, "us": statistics.median(spans),
                      "result": [float(jnp.stack(annealer.energies).mean()), float(annealer.energies[-1]), defects]}))


if __name__ == "__main__":
    main()
