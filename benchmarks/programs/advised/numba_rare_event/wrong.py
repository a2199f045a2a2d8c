"""Monte Carlo of a bridge's failure: a few long random walks, Numba CUDA."""

import json
import statistics
import time

import numpy as np

np.row_stack = np.vstack  # gone from NumPy, still looked up by Numba

from numba import cuda, float32, uint32  # noqa: E402

WALKS = 262_144
STEPS_PER_WALK = 1024
THREADS = 256
WARMUP = 4
BLOCKS = 6
STEPS_PER_BLOCK = 8


@cuda.jit(device=True)
def draw(state):
    """A hash of the state, and from it a number between -0.5 and 0.5."""
    state ^= state << uint32(13)
    state ^= state >> uint32(17)
    state ^= state << uint32(5)
    return uint32(state)


@cuda.jit
def walk(seed, worst):
    """Each thread follows one walk and keeps its highest load."""
    w = cuda.grid(1)
    if w < worst.shape[0]:
        state = uint32(((w + 1) * 747796405 + seed * 289133645) & 0xFFFFFFFF)
        load = float32(0)
        high = float32(0)
        for _ in range(STEPS_PER_WALK):
            state = draw(state)
            kick = float32(uint32(state >> uint32(8))) * float32(5.9604645e-8) - float32(0.5)
            load = load * float32(0.99) + kick
            high = max(high, load)
        worst[w] = high


def main():
    worst = cuda.device_array(WALKS, dtype=np.float32)
    grid = -(-WALKS // THREADS)
    count = 0

    def step():
        nonlocal count
        walk[grid, THREADS](count, worst)
        count += 1

    for _ in range(WARMUP):
        step()
    cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    loads = worst.copy_to_host()
    print(f"mean worst load {loads.mean():.4f}, failures {(loads > 6).mean():.5f}")
    out = {
        "program": "numba_rare_event",
        "steps": count,
        "us": statistics.median(times) * 1e6,
        "result": [float(loads.mean(dtype=np.float64)), float((loads > 4).mean())],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
