"""Reed-Xiaoli anomaly detection in hyperspectral imagery, block of scan lines by block."""

import json
import statistics
import time

import cupy as cp

LINES = 4096
SAMPLES = 640
BANDS = 128
BLOCK_LINES = 256
MATERIALS = 6
GAIN = 0.0125
OFFSET = 1.5
RIDGE = 1e-3
THRESHOLD = 190.0  # of a chi-square with BANDS degrees of freedom
WARMUP = 16
BLOCKS = 10
STEPS_PER_BLOCK = 40

PIXELS = BLOCK_LINES * SAMPLES


def simulate_scene(rng):
    """Counts of the sensor: mixed ground materials, noise, and a few odd pixels."""
    spectra = 40 + 30 * rng.random((MATERIALS, BANDS), dtype=cp.float32)
    scene = cp.empty((LINES // BLOCK_LINES, PIXELS, BANDS), dtype=cp.uint16)
    for block in range(len(scene)):
        share = rng.random((PIXELS, MATERIALS), dtype=cp.float32)
        share /= share.sum(axis=1, keepdims=True)
        radiance = share @ spectra
        radiance += 0.6 * rng.standard_normal((PIXELS, BANDS), dtype=cp.float32)
        odd = cp.arange(0, PIXELS, 2000)
        radiance[odd, 40:56] += 2.5
        scene[block] = cp.rint((radiance + OFFSET) / GAIN).astype(cp.uint16)
    return scene


def rx_scores(counts, weights):
    """Squared Mahalanobis distance of every pixel from its block's background."""
    radiance = counts.astype(cp.float32)
    radiance *= GAIN
    radiance -= OFFSET
    radiance -= weights @ radiance
    covariance = radiance.T @ radiance / PIXELS
    covariance += RIDGE * cp.eye(BANDS, dtype=cp.float32)
    factor = cp.linalg.cholesky(covariance)
    whitened = radiance @ cp.linalg.inv(factor).T
    return cp.square(whitened).sum(axis=1)


def process_block(counts, weights, totals):
    scores = rx_scores(counts, weights)
    alarms = scores > THRESHOLD
    totals[0] += cp.count_nonzero(alarms)
    totals[1] += scores.mean()
    totals[2] += scores.max()


def main():
    rng = cp.random.default_rng(11)
    scene = simulate_scene(rng)
    weights = cp.full(PIXELS, 1.0 / PIXELS, dtype=cp.float32)
    totals = cp.zeros(3, dtype=cp.float64)
    cp.get_default_memory_pool().free_all_blocks()

    done = 0
    times = []

    def step():
        nonlocal done
        process_block(scene[done % len(scene)], weights, totals)
        done += 1

    for _ in range(WARMUP):
        step()
    cp.cuda.Device().synchronize()
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    alarms, mean, top = (totals / done).get().tolist()
    us = statistics.median(times) * 1e6
    print(f"{BLOCK_LINES * 1e6 / us:.0f} scan lines/s, {alarms:.1f} alarms a block")
    print(
        json.dumps(
            {
                "program": "cupy_hyperspectral_rx",
                "steps": done,
                "us": us,
                "result": [alarms, mean, top],
            }
        )
    )


if __name__ == "__main__":
    main()
