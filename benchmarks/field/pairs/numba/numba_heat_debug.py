"""One step of heat on a 4096x4096 grid."""

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.numba._common import F32, cuda

SIZE = 4096
RATE, FOUR = F32(0.2), F32(4)


def heat_step(old, new):
    x, y = cuda.grid(2)
    if 0 < x < SIZE - 1 and 0 < y < SIZE - 1:
        beside = old[y, x - 1] + old[y, x + 1] + old[y - 1, x] + old[y + 1, x]
        new[y, x] = old[y, x] + RATE * (beside - FOUR * old[y, x])


def inputs():
    rng = numpy.random.default_rng(6)
    return (cuda.to_device(rng.random((SIZE, SIZE), dtype="float32")),)


def make(variant, old):
    kernel = cuda.jit(heat_step, debug=True, opt=False) if variant == "before" else None
    kernel = kernel or cuda.jit(heat_step)
    new = cuda.to_device(numpy.zeros((SIZE, SIZE), "float32"))
    return Work(lambda: kernel[(SIZE // 32, SIZE // 8), (32, 8)](old, new), new.copy_to_host)


PAIR = Pair(inputs, make, Launch("heat_step"), tolerance=1e-5)
