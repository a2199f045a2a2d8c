"""Product of two 1024-square float32 matrices, one thread an element."""

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.numba._common import F32, cuda

SIZE = 1024
ZERO = F32(0)


@cuda.jit
def product_row_first(a, b, c):
    row, column = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        total = ZERO
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total


@cuda.jit
def product_column_first(a, b, c):
    column, row = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        total = ZERO
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total


def inputs():
    rng = numpy.random.default_rng(1)
    return tuple(cuda.to_device(rng.random((SIZE, SIZE), dtype="float32")) for _ in range(2))


def make(variant, a, b):
    kernel = product_row_first if variant == "before" else product_column_first
    c = cuda.device_array((SIZE, SIZE), "float32")
    grid = (SIZE // 32, SIZE // 8)
    return Work(lambda: kernel[grid, (32, 8)](a, b, c), c.copy_to_host)


PAIR = Pair(inputs, make, Launch("product_"), tolerance=1e-4)
