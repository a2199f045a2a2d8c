"""Sparse matrix (CSR, 64 entries a row near the diagonal) times a vector."""

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.numba._common import F32, cuda

ROWS, EACH = 1 << 18, 64
ZERO = F32(0)


@cuda.jit
def spmv_thread(starts, columns, values, x, y):
    row = cuda.grid(1)
    if row < y.size:
        total = ZERO
        for k in range(starts[row], starts[row + 1]):
            total += values[k] * x[columns[k]]
        y[row] = total


@cuda.jit
def spmv_warp(starts, columns, values, x, y):
    row, lane = cuda.grid(1) // 32, cuda.laneid
    if row < y.size:
        total = ZERO
        for k in range(starts[row] + lane, starts[row + 1], 32):
            total += values[k] * x[columns[k]]
        for step in (16, 8, 4, 2, 1):
            total += cuda.shfl_down_sync(0xFFFFFFFF, total, step)
        if lane == 0:
            y[row] = total


def inputs():
    rng = numpy.random.default_rng(7)
    near = rng.integers(-512, 512, (ROWS, EACH)) + numpy.arange(ROWS)[:, None]
    columns = numpy.sort(near.clip(0, ROWS - 1), axis=1).astype("int32").ravel()
    starts = (numpy.arange(ROWS + 1) * EACH).astype("int32")
    values = rng.random(ROWS * EACH, dtype="float32")
    x = rng.random(ROWS, dtype="float32")
    return tuple(cuda.to_device(each) for each in (starts, columns, values, x))


def make(variant, starts, columns, values, x):
    y = cuda.device_array(ROWS, "float32")

    def run():
        if variant == "before":
            spmv_thread[ROWS // 128, 128](starts, columns, values, x, y)
        else:
            spmv_warp[ROWS * 32 // 128, 128](starts, columns, values, x, y)

    return Work(run, y.copy_to_host)


PAIR = Pair(inputs, make, Launch("spmv_"), tolerance=1e-4)
