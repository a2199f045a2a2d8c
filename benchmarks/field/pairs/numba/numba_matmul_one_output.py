"""Product of two 2048-square float32 matrices through shared-memory tiles."""

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.numba._common import F32, cuda

SIZE = 2048
ZERO = F32(0)


@cuda.jit
def product_one(a, b, c):
    a_tile = cuda.shared.array((32, 32), "float32")
    b_tile = cuda.shared.array((32, 32), "float32")
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column = cuda.blockIdx.x * 32 + tx
    row = cuda.blockIdx.y * 32 + ty
    total = ZERO
    for start in range(0, a.shape[1], 32):
        a_tile[ty, tx] = a[row, start + tx]
        b_tile[ty, tx] = b[start + ty, column]
        cuda.syncthreads()
        for k in range(32):
            total += a_tile[ty, k] * b_tile[k, tx]
        cuda.syncthreads()
    c[row, column] = total


@cuda.jit
def product_eight(a, b, c):
    a_tile = cuda.shared.array((32, 32), "float32")
    b_tile = cuda.shared.array((32, 64), "float32")
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column = cuda.blockIdx.x * 64 + tx
    row = cuda.blockIdx.y * 32 + ty
    s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = ZERO
    for start in range(0, a.shape[1], 32):
        for step in range(0, 32, 8):
            a_tile[ty + step, tx] = a[row + step, start + tx]
            b_tile[ty + step, tx] = b[start + ty + step, column]
            b_tile[ty + step, tx + 32] = b[start + ty + step, column + 32]
        cuda.syncthreads()
        for k in range(32):
            left, right = b_tile[k, tx], b_tile[k, tx + 32]
            a0, a1 = a_tile[ty, k], a_tile[ty + 8, k]
            a2, a3 = a_tile[ty + 16, k], a_tile[ty + 24, k]
            s0 += a0 * left
            s1 += a1 * left
            s2 += a2 * left
            s3 += a3 * left
            t0 += a0 * right
            t1 += a1 * right
            t2 += a2 * right
            t3 += a3 * right
        cuda.syncthreads()
    c[row, column] = s0
    c[row + 8, column] = s1
    c[row + 16, column] = s2
    c[row + 24, column] = s3
    c[row, column + 32] = t0
    c[row + 8, column + 32] = t1
    c[row + 16, column + 32] = t2
    c[row + 24, column + 32] = t3


def inputs():
    rng = numpy.random.default_rng(2)
    return tuple(cuda.to_device(rng.random((SIZE, SIZE), dtype="float32")) for _ in range(2))


def make(variant, a, b):
    c = cuda.device_array((SIZE, SIZE), "float32")

    def run():
        if variant == "before":
            product_one[(SIZE // 32, SIZE // 32), (32, 32)](a, b, c)
        else:
            product_eight[(SIZE // 64, SIZE // 32), (32, 8)](a, b, c)

    return Work(run, c.copy_to_host)


PAIR = Pair(inputs, make, Launch("product_"), tolerance=1e-4)
