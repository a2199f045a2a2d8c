"""Light climate of lichens below a tree canopy.

For a lattice of trunk positions the diffuse and direct light is followed down
through 96 thin leaf layers; the lichen's net photosynthesis at the bottom and
the sum over the layers are kept.  The sun moves from step to step.
"""
import json
import math
import statistics
import time

import numpy
numpy.row_stack = numpy.vstack
import numpy as np
from numba import cuda

NAME = "numba_lichen_light"
PLACES = 4 * 1024 * 1024
LAYERS = 96
THREADS = 256
WARMUP = 6
BLOCKS = 8
PER_BLOCK = 4


@cuda.jit
def light_below(leaf, clump, top, sun_height, bottom, carbon):
    """One thread a place: walk down the layers."""
    i = cuda.grid(1)
    if i >= leaf.size:
        return
    area = leaf[i] / LAYERS
    clumping = clump[i]
    sine = math.sin(sun_height)
    direct = top[i] * (0.4 + 0.5 * sine)
    diffuse = top[i] - direct
    gain = 0.0
    for layer in range(LAYERS):
        depth = layer * (1.0 / LAYERS)
        density = area * (0.6 + 1.6 * depth * (1.0 - depth))
        through = math.exp(-0.5 * clumping * density / sine)
        spread = math.exp(-0.72 * clumping * density)
        scattered = direct * (1.0 - through) * 0.12
        direct = direct * through
        diffuse = diffuse * spread + 0.5 * scattered
        light = direct + diffuse
        gain += 14.0 * light / (light + 210.0) - 0.9
    bottom[i] = direct + diffuse
    carbon[i] = gain


def make_forest():
    rng = np.random.default_rng(66)
    leaf = rng.random(PLACES, dtype=np.float32) * np.float32(4.0) + np.float32(1.0)
    clump = rng.random(PLACES, dtype=np.float32) * np.float32(0.4) + np.float32(0.5)
    top = rng.random(PLACES, dtype=np.float32) * np.float32(300.0) + np.float32(900.0)
    return leaf, clump, top


def sun_at(step):
    """Height of the sun in radians, late morning."""
    return np.float32(0.6 + 0.01 * step)


def main():
    leaf, clump, top = (cuda.to_device(a) for a in make_forest())
    bottom = cuda.device_array(PLACES, dtype=np.float32)
    carbon = cuda.device_array(PLACES, dtype=np.float32)
    grid = (PLACES + THREADS - 1) // THREADS

    steps = 0
    for _ in range(WARMUP):
        light_below[grid, THREADS](leaf, clump, top, sun_at(steps), bottom, carbon)
        steps += 1
    cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(PER_BLOCK):
            light_below[grid, THREADS](leaf, clump, top, sun_at(steps), bottom, carbon)
            steps += 1
        cuda.synchronize()
        times.append((time.perf_counter() - begin) / PER_BLOCK)

    below = bottom.copy_to_host()
    fixed = carbon.copy_to_host()
    result = [float(below.mean(dtype=np.float64)), float(fixed.mean(dtype=np.float64)),
              float(fixed.max())]
    print(json.dumps({"program": NAME, "steps": steps,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
