"""A sum in blocks with Numba; each step copies its input from pageable memory."""

import numpy

if not hasattr(numpy, "row_stack"):  # Numba's CUDA asks for names that NumPy 2.5 no longer has
    numpy.row_stack = numpy.vstack
import steps
from numba import cuda

given = numpy.random.default_rng(0).random(1 << 22, dtype=numpy.float32)


@cuda.jit
def folded(x, out):
    at = cuda.grid(1)
    if at < x.size // 2:
        out[at] = x[at] + x[at + x.size // 2]


last = given


def step(_: int) -> None:
    global last
    x = cuda.to_device(given)
    while x.size > 256:
        out = cuda.device_array(x.size // 2, numpy.float32)
        folded[(x.size // 2 + 255) // 256, 256](x, out)
        x = out
    last = x.copy_to_host()


steps.run(step, cuda.synchronize, 20, result=lambda: last.sum())
