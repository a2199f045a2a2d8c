"""32768 walkers that follow links through 16 million nodes, 512 steps each."""

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.warp._common import wp

NODES, WALKERS, STEPS = 1 << 24, 1 << 15, 512


@wp.kernel(enable_backward=False)
def walk(
    follow: wp.array(dtype=int),
    value: wp.array(dtype=float),
    start: wp.array(dtype=int),
    total: wp.array(dtype=float),
):
    i = wp.tid()
    node = int(start[i])
    gathered = float(0.0)
    for _step in range(STEPS):
        gathered += value[node]
        node = follow[node]
    total[i] = gathered


def inputs():
    rng = numpy.random.default_rng(1)
    place = rng.permutation(NODES).astype("int32")  # where each node of the path lies
    value = rng.random(NODES, dtype="float32")
    start = rng.integers(0, NODES, WALKERS).astype("int32")
    shuffled, far = numpy.empty_like(value), numpy.empty_like(place)
    shuffled[place] = value
    far[place] = numpy.roll(place, -1)
    near = numpy.roll(numpy.arange(NODES, dtype="int32"), -1)

    def graph(follow, value, start):
        return (
            wp.array(follow, dtype=int),
            wp.array(value, dtype=float),
            wp.array(start, dtype=int),
        )

    return graph(far, shuffled, place[start]), graph(near, value, start)


def make(variant, as_made, in_order):
    graph = as_made if variant == "before" else in_order
    total = wp.zeros(WALKERS, dtype=float)

    def run():
        wp.launch(walk, dim=WALKERS, inputs=[*graph, total])

    return Work(run, total.numpy)


PAIR = Pair(inputs, make, Launch("walk"), tolerance=1e-4)
