"""CuPy: a raw kernel, elementwise and reduction kernels, a fused one, and products by cuBLAS."""

import cupy as cp
from gpu_range import gpu_range

SOURCE = r"""
extern "C" __global__ void raw_mix(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaf(a, x[i], y[i]) + sinf(x[i]);
}
"""

n = 1 << 20
raw_mix = cp.RawKernel(SOURCE, "raw_mix", options=("-lineinfo",))
clamp = cp.ElementwiseKernel("float32 x, float32 top", "float32 y", "y = min(x, top)", "clamp_top")


@cp.fuse()
def fused(x, y):
    return cp.sqrt(x * x + y * y)


x = cp.linspace(0, 1, n, dtype=cp.float32)
y = cp.ones(n, dtype=cp.float32)
matrix = cp.ones((2048, 2048), dtype=cp.float32) * 0.5


def work():
    raw_mix((n // 256,), (256,), (x, y, cp.float32(2), n))
    z = clamp(x, cp.float32(0.5))
    z = fused(z, y)
    total = z.sum()
    product = matrix @ matrix
    return total, product


work()
with gpu_range():
    total, product = work()
print("cupy", float(total), float(product[0, 0]))
