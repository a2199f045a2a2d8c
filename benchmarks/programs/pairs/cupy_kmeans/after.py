"""k-means on many small sets of points: colour palettes of image tiles."""

import json
import statistics
import time

import cupy as cp

POINTS = 4096
CENTRES = 16
ITERATIONS = 15
WARMUP = 2
BLOCKS = 8
STEPS_PER_BLOCK = 4


def assign(points, centres):
    d = (points * points).sum(1)[:, None] - 2 * points @ centres.T + (centres * centres).sum(1)
    return d.argmin(1), d.min(1)


def kmeans(points, centres):
    """Lloyd's iterations until the sum of squares stands still."""
    for _ in range(ITERATIONS):
        label, distance = assign(points, centres)
        member = (label[:, None] == cp.arange(CENTRES)).astype(cp.float32)
        count = member.sum(0)[:, None]
        centres = cp.where(count > 0, (member.T @ points) / cp.maximum(count, 1), centres)
    return centres, distance.sum()


def main():
    rng = cp.random.default_rng(32)
    points = rng.random((POINTS, 3), dtype=cp.float32)
    points += cp.round(points * 3) * 0.5
    start_centres = points[:CENTRES].copy()
    for _ in range(WARMUP):
        kmeans(points, start_centres)
    cp.cuda.Device().synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            centres, inertia = kmeans(points, start_centres)
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    inertia = float(inertia)
    print(f"inertia {inertia:.3f}")
    print(cp.asnumpy(centres[:3]).round(3))
    out = {
        "program": "cupy_kmeans",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [inertia, float(centres.sum())],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
