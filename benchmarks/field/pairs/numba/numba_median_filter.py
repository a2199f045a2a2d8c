"""Median of 3x3 pixels over a picture of 4096x4096 floats."""

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.numba._common import cuda

SIZE = 4096


@cuda.jit
def median_sorted(image, out):
    x, y = cuda.grid(2)
    if 0 < x < SIZE - 1 and 0 < y < SIZE - 1:
        window = cuda.local.array(9, "float32")
        count = 0
        for dy in range(-1, 2):
            for dx in range(-1, 2):
                value = image[y + dy, x + dx]
                place = count
                while place > 0 and window[place - 1] > value:
                    window[place] = window[place - 1]
                    place -= 1
                window[place] = value
                count += 1
        out[y, x] = window[4]


@cuda.jit(device=True)
def middle(a, b, c):
    return max(min(a, b), min(max(a, b), c))


@cuda.jit
def median_network(image, out):
    x, y = cuda.grid(2)
    if 0 < x < SIZE - 1 and 0 < y < SIZE - 1:
        a, b, c = image[y - 1, x - 1], image[y, x - 1], image[y + 1, x - 1]
        d, e, f = image[y - 1, x], image[y, x], image[y + 1, x]
        g, h, i = image[y - 1, x + 1], image[y, x + 1], image[y + 1, x + 1]
        # the median is the middle of: the highest low, the middle middle, the lowest high
        low = max(min(a, min(b, c)), max(min(d, min(e, f)), min(g, min(h, i))))
        high = min(max(a, max(b, c)), min(max(d, max(e, f)), max(g, max(h, i))))
        centre = middle(middle(a, b, c), middle(d, e, f), middle(g, h, i))
        out[y, x] = middle(low, centre, high)


def inputs():
    rng = numpy.random.default_rng(5)
    return (cuda.to_device(rng.random((SIZE, SIZE), dtype="float32")),)


def make(variant, image):
    kernel = median_sorted if variant == "before" else median_network
    out = cuda.to_device(numpy.zeros((SIZE, SIZE), "float32"))
    return Work(lambda: kernel[(SIZE // 32, SIZE // 8), (32, 8)](image, out), out.copy_to_host)


PAIR = Pair(inputs, make, Launch("median_"), tolerance=1e-7)
