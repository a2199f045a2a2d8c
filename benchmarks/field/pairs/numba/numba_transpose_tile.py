"""Transpose of an 8192x4096 float32 matrix through shared memory."""

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.numba._common import cuda

ROWS, COLS = 8192, 4096


def kernel_of(width):
    @cuda.jit
    def transpose_tile(x, y):
        tile = cuda.shared.array((32, width), "float32")
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        column = cuda.blockIdx.x * 32 + tx
        row = cuda.blockIdx.y * 32 + ty
        for step in range(0, 32, 8):
            tile[ty + step, tx] = x[row + step, column]
        cuda.syncthreads()
        column = cuda.blockIdx.y * 32 + tx
        row = cuda.blockIdx.x * 32 + ty
        for step in range(0, 32, 8):
            y[row + step, column] = tile[tx, ty + step]

    return transpose_tile


def inputs():
    rng = numpy.random.default_rng(8)
    return (cuda.to_device(rng.random((ROWS, COLS), dtype="float32")),)


def make(variant, x):
    kernel = kernel_of(32 if variant == "before" else 33)
    y = cuda.device_array((COLS, ROWS), "float32")
    return Work(lambda: kernel[(COLS // 32, ROWS // 32), (32, 8)](x, y), y.copy_to_host)


PAIR = Pair(inputs, make, Launch("transpose_tile"), tolerance=1e-7)
