"""Numba: a kernel with line information, one without, and one whose name is not ASCII."""

import numpy

numpy.row_stack = numpy.vstack  # numba-cuda asks for it; NumPy 2.5 has it no more
from gpu_range import gpu_range  # noqa: E402
from numba import cuda, float32  # noqa: E402


@cuda.jit(lineinfo=True)
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@cuda.jit
def block_sums(x, out):
    part = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    part[t] = x[i] if i < x.size else 0.0
    cuda.syncthreads()
    half = 128
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = part[0]


@cuda.jit(lineinfo=True)
def größe(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = (x[i] ** 2 + 1.0) ** 0.5


n = 1 << 20
x = cuda.to_device(numpy.linspace(0, 1, n, dtype=numpy.float32))
y = cuda.to_device(numpy.ones(n, dtype=numpy.float32))
out = cuda.device_array(n // 256, dtype=numpy.float32)


def work():
    axpy[n // 256, 256](numpy.float32(2), x, y)
    block_sums[n // 256, 256](y, out)
    größe[n // 256, 256](x, y)
    cuda.synchronize()


work()
with gpu_range():
    work()
print("numba", float(out.copy_to_host()[0]))
