"""Potential of each of 33792 bodies in the field of those before it."""

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.warp._common import wp

BODIES = 132 * 256


@wp.func
def potential(dx: float, dy: float, dz: float):
    return 1.0 / (0.01 + dx * dx + dy * dy + dz * dz)


@wp.kernel(enable_backward=False)
def triangle(
    x: wp.array(dtype=float),
    y: wp.array(dtype=float),
    z: wp.array(dtype=float),
    out: wp.array(dtype=float),
):
    i = wp.tid()
    total = float(0.0)
    for j in range(i):
        total += potential(x[i] - x[j], y[i] - y[j], z[i] - z[j])
    out[i] = total


@wp.kernel(enable_backward=False)
def triangle_folded(
    x: wp.array(dtype=float),
    y: wp.array(dtype=float),
    z: wp.array(dtype=float),
    out: wp.array(dtype=float),
):
    t = wp.tid()
    part = t % 2
    low = t // 2
    high = BODIES - 1 - low
    total = float(0.0)
    for j in range(part, low, 2):
        total += potential(x[low] - x[j], y[low] - y[j], z[low] - z[j])
    wp.atomic_add(out, low, total)
    total = float(0.0)
    for j in range(part, high, 2):
        total += potential(x[high] - x[j], y[high] - y[j], z[high] - z[j])
    wp.atomic_add(out, high, total)


def inputs():
    rng = numpy.random.default_rng(4)
    return tuple(wp.array(rng.random(BODIES, dtype="float32"), dtype=float) for _ in range(3))


def make(variant, x, y, z):
    kernel = triangle if variant == "before" else triangle_folded
    out = wp.zeros(BODIES, dtype=float)

    def run():
        out.zero_()
        wp.launch(kernel, dim=BODIES, inputs=[x, y, z, out])

    return Work(run, out.numpy)


PAIR = Pair(inputs, make, Launch("triangle"), tolerance=1e-3)
