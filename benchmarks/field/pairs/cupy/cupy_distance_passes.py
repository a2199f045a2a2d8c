"""Euclidean distance of 65536 pairs of vectors of 1024 floats."""

import cupy

from benchmarks.field import Launch, Pair, Work

ROWS, COLS = 1 << 16, 1024


def inputs():
    rng = cupy.random.default_rng(4)
    return tuple(rng.random((ROWS, COLS), dtype="float32") for _ in range(2))


def make(variant, a, b):
    out = cupy.empty(ROWS, "float32")
    fused = cupy.ReductionKernel(
        "T x, T y", "T z", "(x - y) * (x - y)", "a + b", "z = sqrt(a)", "0", "distance"
    )

    def run():
        if variant == "before":
            out[...] = cupy.sqrt(((a - b) ** 2).sum(axis=1))
        else:
            fused(a, b, out, axis=1)

    return Work(run, out.get)


PAIR = Pair(inputs, make, {"before": Launch("cupy_subtract"), "after": Launch(".")}, tolerance=1e-5)
