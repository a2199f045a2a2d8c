"""Forces among 8192 bodies, each against all."""

import math

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.numba._common import F32, cuda

BODIES = 8192
ZERO, ONE, SOFT = F32(0), F32(1), F32(0.01)


@cuda.jit(fastmath=True)
def forces(x, y, z, fx, fy, fz):
    i = cuda.grid(1)
    ax = ay = az = ZERO
    for j in range(BODIES):
        dx, dy, dz = x[j] - x[i], y[j] - y[i], z[j] - z[i]
        near = dx * dx + dy * dy + dz * dz + SOFT
        pull = ONE / (near * math.sqrt(near))
        ax += dx * pull
        ay += dy * pull
        az += dz * pull
    fx[i], fy[i], fz[i] = ax, ay, az


def inputs():
    rng = numpy.random.default_rng(10)
    return tuple(cuda.to_device(rng.random(BODIES, dtype="float32")) for _ in range(3))


def make(variant, x, y, z):
    block = 1024 if variant == "before" else 64
    f = tuple(cuda.device_array(BODIES, "float32") for _ in range(3))
    return Work(
        lambda: forces[BODIES // block, block](x, y, z, *f),
        lambda: tuple(each.copy_to_host() for each in f),
    )


PAIR = Pair(inputs, make, Launch("forces"), tolerance=1e-3)
