"""A million particles of six kinds, each moved by the law of its kind."""

import math

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.numba._common import F32, cuda

COUNT, STEPS = 1 << 20, 64
ONE, SMALL, RATE = F32(1), F32(0.01), F32(0.98)


@cuda.jit(fastmath=True)
def move(order, kind, start, end):
    i = order[cuda.grid(1)]
    x, law = start[i], kind[i]
    if law == 0:
        for _ in range(STEPS):
            x = x * RATE + SMALL
    elif law == 1:
        for _ in range(STEPS):
            x = x + SMALL * math.sin(x)
    elif law == 2:
        for _ in range(STEPS):
            x = math.sqrt(x * x + SMALL)
    elif law == 3:
        for _ in range(STEPS):
            x = x / (ONE + SMALL * x)
    elif law == 4:
        for _ in range(STEPS):
            x = x + SMALL * math.exp(-x)
    else:
        for _ in range(STEPS):
            x = x - SMALL * x * x
    end[i] = x


def inputs():
    rng = numpy.random.default_rng(9)
    kind = rng.integers(0, 6, COUNT).astype("int32")
    as_they_come = numpy.arange(COUNT, dtype="int32")
    sorted_by_kind = numpy.argsort(kind, kind="stable").astype("int32")
    start = rng.random(COUNT, dtype="float32") + F32(0.5)
    return tuple(cuda.to_device(each) for each in (as_they_come, sorted_by_kind, kind, start))


def make(variant, as_they_come, sorted_by_kind, kind, start):
    order = as_they_come if variant == "before" else sorted_by_kind
    end = cuda.device_array(COUNT, "float32")
    return Work(lambda: move[COUNT // 256, 256](order, kind, start, end), end.copy_to_host)


PAIR = Pair(inputs, make, Launch("move"), tolerance=1e-5)
