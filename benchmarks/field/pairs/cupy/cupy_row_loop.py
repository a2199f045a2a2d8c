"""Each of 256 rows of 4096 floats divided by its sum."""

import cupy

from benchmarks.field import Launch, Pair, Work

ROWS, COLS = 256, 4096


def inputs():
    return (cupy.random.default_rng(9).random((ROWS, COLS), dtype="float32"),)


def make(variant, x):
    out = cupy.empty_like(x)

    def run():
        if variant == "before":
            for row in range(ROWS):
                cupy.divide(x[row], x[row].sum(), out=out[row])
        else:
            cupy.divide(x, x.sum(axis=1, keepdims=True), out=out)

    return Work(run, out.get)


PAIR = Pair(
    inputs,
    make,
    {"before": Launch("cupy_true_divide", 100), "after": Launch("cupy_true_divide")},
    tolerance=1e-5,
)
