"""Orthonormal orbitals: the polar factor of large coefficient matrices by Newton-Schulz iteration."""

import json
import statistics
import time

import cupy as cp

N = 8192
MATRICES = 4
ITERATIONS = 6
WARMUP = 3
BLOCKS = 6
STEPS_PER_BLOCK = 8

newton_schulz = cp.ElementwiseKernel(
    "float16 x, float16 cubed",
    "float16 z",
    "z = float16(1.5f * float(x) - 0.5f * float(cubed))",
    "newton_schulz",
)


def coefficients(rng):
    """Random coefficients, scaled so that every singular value lies below one."""
    return (rng.standard_normal((N, N), dtype=cp.float32) / 190).astype(cp.float16)


def polar_factor(x, spare):
    """X <- 1.5 X - 0.5 (X X^T) X; the products run in half precision with single precision sums."""
    current = x
    for i in range(ITERATIONS):
        gram = current @ current.T
        cubed = gram @ current
        current = newton_schulz(current, cubed, spare[i % 2])
    return current


def main():
    rng = cp.random.default_rng(29)
    matrices = [coefficients(rng) for _ in range(MATRICES)]
    spare = [cp.empty((N, N), dtype=cp.float16) for _ in range(2)]

    done = 0
    for _ in range(WARMUP):
        orbitals = polar_factor(matrices[done % MATRICES], spare)
        done += 1
    cp.cuda.Device().synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            orbitals = polar_factor(matrices[done % MATRICES], spare)
            done += 1
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    us = statistics.median(times) * 1e6
    tflops = ITERATIONS * 2 * 2 * N**3 / us / 1e6
    single = orbitals.astype(cp.float32)
    norm = float(cp.square(single).sum()) / N
    overlap = float((single * matrices[(done - 1) % MATRICES].astype(cp.float32)).sum()) / N
    print(f"{tflops:.0f} TFLOP/s")
    print(
        json.dumps(
            {"program": "cupy_polar_factor", "steps": done, "us": us, "result": [norm, overlap]}
        )
    )


if __name__ == "__main__":
    main()
