"""Squared length of each row of a ragged array: 4096 rows, the k-th of 1000000/k floats."""

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.numba._common import F32, cuda

ROWS, LONGEST, CHUNK = 4096, 1_000_000, 2048
ZERO = F32(0)


@cuda.jit
def squares(row_of, starts, ends, values, out):
    piece = cuda.blockIdx.x
    total = ZERO
    for k in range(starts[piece] + cuda.threadIdx.x, ends[piece], cuda.blockDim.x):
        total += values[k] * values[k]
    for step in (16, 8, 4, 2, 1):
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, step)
    if cuda.laneid == 0:
        cuda.atomic.add(out, row_of[piece], total)


@cuda.jit
def clear(out):
    out[cuda.grid(1)] = ZERO


def pieces(longest):
    """Row, start and end of each piece of a row, none longer than `longest`."""
    length = LONGEST // numpy.arange(1, ROWS + 1)
    end = numpy.cumsum(length)
    found = [
        (row, start, min(start + longest, end[row]))
        for row in range(ROWS)
        for start in range(end[row] - length[row], end[row], longest)
    ]
    return tuple(cuda.to_device(numpy.array(each, "int32")) for each in zip(*found, strict=True))


def inputs():
    count = int((LONGEST // numpy.arange(1, ROWS + 1)).sum())
    values = numpy.random.default_rng(11).random(count, dtype="float32")
    return (cuda.to_device(values),)


def make(variant, values):
    given = pieces(LONGEST if variant == "before" else CHUNK)
    out = cuda.device_array(ROWS, "float32")

    def run():
        clear[ROWS // 256, 256](out)
        squares[given[0].size, 128](*given, values, out)

    return Work(run, out.copy_to_host)


PAIR = Pair(inputs, make, Launch("squares"), tolerance=1e-4)
