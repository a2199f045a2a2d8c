"""Edge-preserving smoothing of a stereo depth map: robust energy, graduated non-convexity."""
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

HEIGHT, WIDTH = 2048, 2048
INNER = 60
SMOOTHNESS = 0.8
RATE = 0.08
QUADRATIC = 50.0          # from this scale on the penalty is as good as quadratic
WARMUP = 6
BLOCK = 4
BLOCKS = 5
STEPS = WARMUP + BLOCK * BLOCKS


def scene(seed=9):
    """Slanted planes at several depths, with matching noise and outliers."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    depth = 4.0 + 0.001 * x
    for _ in range(12):
        cy, cx = rng.uniform(0, HEIGHT), rng.uniform(0, WIDTH)
        ry, rx = rng.uniform(100, 400, size=2)
        inside = (np.abs(y - cy) < ry) & (np.abs(x - cx) < rx)
        depth = np.where(inside, rng.uniform(1.0, 6.0) + 0.0007 * y, depth)
    noise = 0.05 * rng.standard_normal((HEIGHT, WIDTH), dtype=np.float32)
    outlier = rng.random((HEIGHT, WIDTH), dtype=np.float32) < 0.03
    noise = np.where(outlier, 40.0 * noise, noise)
    return (depth + noise).astype(np.float32)


def influence(difference, scale):
    """Derivative of the Geman-McClure penalty, normalised to slope one at the origin."""
    ratio = jnp.where(scale >= QUADRATIC, 0.0, jnp.square(difference / scale))
    return difference / jnp.square(1.0 + ratio)


def neighbour_pull(depth, scale):
    down = influence(jnp.diff(depth, axis=0), scale)
    right = influence(jnp.diff(depth, axis=1), scale)
    pull = jnp.pad(down, ((0, 1), (0, 0))) - jnp.pad(down, ((1, 0), (0, 0)))
    return pull + jnp.pad(right, ((0, 0), (0, 1))) - jnp.pad(right, ((0, 0), (1, 0)))


@jax.jit
def refine(depth, measured, scale):
    """INNER descent iterations at one scale of the robust penalty."""

    def iteration(_, current):
        fidelity = influence(measured - current, scale)
        return current + RATE * (fidelity + SMOOTHNESS * neighbour_pull(current, scale))

    return jax.lax.fori_loop(0, INNER, iteration, depth)


class ScaleSchedule:
    """Starts nearly convex and tightens geometrically towards the noise level."""

    def __init__(self, start=8.0, decay=0.93):
        self.scale = start
        self.decay = decay

    def next(self):
        current = self.scale
        self.scale *= self.decay
        return current


def main():
    measured = jnp.asarray(scene())
    depth = measured
    schedule = ScaleSchedule()

    for _ in range(WARMUP):
        depth = refine(depth, measured, schedule.next())
    depth.block_until_ready()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(BLOCK):
            depth = refine(depth, measured, schedule.next())
        depth.block_until_ready()
        times.append((time.perf_counter() - start) / BLOCK)

    residual = jnp.abs(depth - measured)
    result = [float(depth.mean()), float(residual.mean()), float(jnp.abs(jnp.diff(depth, axis=1)).mean())]
    print(json.dumps({"program": "jax_depthmap", "steps": STEPS,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
