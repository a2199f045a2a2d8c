"""Determinant of a million 8x8 matrices I + f f', each by Cholesky's method in one thread."""

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.warp._common import wp

COUNT = 1 << 20
SIZE = 8
matrix = wp.types.matrix(shape=(8, 8), dtype=float)


@wp.kernel(enable_backward=False)
def factor_any_size(f: wp.array2d(dtype=float), size: int, out: wp.array(dtype=float)):
    i = wp.tid()
    low = matrix()
    found = float(1.0)
    for row in range(size):
        for column in range(row + 1):
            rest = float(f[row, i] * f[column, i])
            if row == column:
                rest += 1.0
            for k in range(column):
                rest -= low[row, k] * low[column, k]
            if row == column:
                found *= rest
                low[row, column] = wp.sqrt(rest)
            else:
                low[row, column] = rest / low[column, column]
    out[i] = found


@wp.kernel(enable_backward=False)
def factor_eight(f: wp.array2d(dtype=float), size: int, out: wp.array(dtype=float)):
    i = wp.tid()
    low = matrix()
    found = float(1.0)
    for row in range(8):
        for column in range(row + 1):
            rest = float(f[row, i] * f[column, i])
            if row == column:
                rest += 1.0
            for k in range(column):
                rest -= low[row, k] * low[column, k]
            if row == column:
                found *= rest
                low[row, column] = wp.sqrt(rest)
            else:
                low[row, column] = rest / low[column, column]
    out[i] = found


def inputs():
    rng = numpy.random.default_rng(3)
    return (wp.array(rng.random((SIZE, COUNT), dtype="float32"), dtype=float),)


def make(variant, f):
    kernel = factor_any_size if variant == "before" else factor_eight
    out = wp.zeros(COUNT, dtype=float)
    return Work(lambda: wp.launch(kernel, dim=COUNT, inputs=[f, SIZE, out]), out.numpy)


PAIR = Pair(inputs, make, Launch("factor_"), tolerance=1e-3)
