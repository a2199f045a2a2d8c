"""3x3 blur of a picture of 4096x8192 floats."""

import numpy

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.warp._common import wp

HEIGHT, WIDTH = 4096, 8192


@wp.func
def blurred(image: wp.array2d(dtype=float), x: int, y: int):
    total = float(0.0)
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            total += image[wp.clamp(y + dy, 0, HEIGHT - 1), wp.clamp(x + dx, 0, WIDTH - 1)]
    return total / 9.0


@wp.kernel(enable_backward=False)
def blur_x_first(image: wp.array2d(dtype=float), out: wp.array2d(dtype=float)):
    x, y = wp.tid()
    out[y, x] = blurred(image, x, y)


@wp.kernel(enable_backward=False)
def blur_y_first(image: wp.array2d(dtype=float), out: wp.array2d(dtype=float)):
    y, x = wp.tid()
    out[y, x] = blurred(image, x, y)


def inputs():
    rng = numpy.random.default_rng(5)
    return (wp.array(rng.random((HEIGHT, WIDTH), dtype="float32"), dtype=float),)


def make(variant, image):
    out = wp.zeros((HEIGHT, WIDTH), dtype=float)
    if variant == "before":
        kernel, dim = blur_x_first, (WIDTH, HEIGHT)
    else:
        kernel, dim = blur_y_first, (HEIGHT, WIDTH)
    return Work(lambda: wp.launch(kernel, dim=dim, inputs=[image, out]), out.numpy)


PAIR = Pair(inputs, make, Launch("blur_"), tolerance=1e-5)
