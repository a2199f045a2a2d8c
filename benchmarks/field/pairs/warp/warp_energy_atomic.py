"""Energy of 4 million springs, added up."""

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.warp._common import wp

COUNT, EACH = 1 << 22, 64
THREADS = COUNT // EACH


@wp.kernel(enable_backward=False)
def energy_each(length: wp.array(dtype=float), total: wp.array(dtype=float)):
    i = wp.tid()
    stretch = length[i] - 1.0
    wp.atomic_add(total, 0, 0.5 * stretch * stretch)


@wp.kernel(enable_backward=False)
def energy_gathered(length: wp.array(dtype=float), total: wp.array(dtype=float)):
    i = wp.tid()
    own = float(0.0)
    for k in range(EACH):
        stretch = length[i + k * THREADS] - 1.0
        own += 0.5 * stretch * stretch
    wp.atomic_add(total, 0, own)


def inputs():
    rng = numpy.random.default_rng(2)
    return (wp.array(rng.random(COUNT, dtype="float32"), dtype=float),)


def make(variant, length):
    total = wp.zeros(1, dtype=float)
    kernel, dim = (energy_each, COUNT) if variant == "before" else (energy_gathered, THREADS)

    def run():
        total.zero_()
        wp.launch(kernel, dim=dim, inputs=[length, total])

    return Work(run, total.numpy)


PAIR = Pair(
    inputs, make, Launch("energy_"), tolerance=1e-2
)  # a float sum of millions of terms in another order
