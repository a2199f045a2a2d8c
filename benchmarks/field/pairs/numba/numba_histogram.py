"""Histogram of the grey values of a picture of 32 million pixels."""

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.numba._common import cuda

COUNT = 1 << 25


@cuda.jit
def count_global(x, bins):
    start = cuda.grid(1)
    for i in range(start, x.size, cuda.gridsize(1)):
        cuda.atomic.add(bins, x[i], 1)


@cuda.jit
def count_shared(x, bins):
    own = cuda.shared.array(256, "int32")
    own[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    start = cuda.grid(1)
    for i in range(start, x.size, cuda.gridsize(1)):
        cuda.atomic.add(own, x[i], 1)
    cuda.syncthreads()
    cuda.atomic.add(bins, cuda.threadIdx.x, own[cuda.threadIdx.x])


@cuda.jit
def clear(bins):
    bins[cuda.threadIdx.x] = 0


def inputs():
    rng = numpy.random.default_rng(4)
    grey = rng.standard_normal(COUNT, dtype="float32") * 20 + 128
    return (cuda.to_device(grey.clip(0, 255).astype("uint8")),)


def make(variant, x):
    kernel = count_global if variant == "before" else count_shared
    bins = cuda.device_array(256, "int32")

    def run():
        clear[1, 256](bins)
        kernel[1056, 256](x, bins)

    return Work(run, bins.copy_to_host)


PAIR = Pair(inputs, make, Launch("count_(global|shared)"), tolerance=1e-9)
