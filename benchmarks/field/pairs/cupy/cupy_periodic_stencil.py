"""Laplacian on a periodic grid of 352 x 352 x 352 floats."""

import cupy

from benchmarks.field import Launch, Pair, Work

SIZE = 352
CODE = r"""
extern "C" __global__ void laplace_modulo(const float* u, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n * n * n) return;
  int x = i % n, y = (i / n) % n, z = i / (n * n);
  int left = (x - 1 + n) % n, right = (x + 1) % n;
  int up = (y - 1 + n) % n, down = (y + 1) % n;
  int front = (z - 1 + n) % n, back = (z + 1) % n;
  out[i] = u[(z * n + y) * n + left] + u[(z * n + y) * n + right] + u[(z * n + up) * n + x] +
           u[(z * n + down) * n + x] + u[(front * n + y) * n + x] + u[(back * n + y) * n + x] -
           6.0f * u[i];
}

extern "C" __global__ void laplace_wrapped(const float* u, float* out, int n) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, z = blockIdx.z;
  int i = (z * n + y) * n + x, plane = n * n, all = plane * n;
  int left = x == 0 ? i + n - 1 : i - 1, right = x == n - 1 ? i - n + 1 : i + 1;
  int up = y == 0 ? i + plane - n : i - n, down = y == n - 1 ? i - plane + n : i + n;
  int front = z == 0 ? i + all - plane : i - plane, back = z == n - 1 ? i - all + plane : i + plane;
  out[i] = u[left] + u[right] + u[up] + u[down] + u[front] + u[back] - 6.0f * u[i];
}
"""


def inputs():
    return (cupy.random.default_rng(6).random((SIZE, SIZE, SIZE), dtype="float32"),)


def make(variant, u):
    out = cupy.empty_like(u)
    given = (u, out, cupy.int32(SIZE))
    if variant == "before":
        kernel, grid, block = "laplace_modulo", (-(-(SIZE**3) // 256),), (256,)
    else:
        kernel, grid, block = "laplace_wrapped", (SIZE // 32, SIZE // 8, SIZE), (32, 8)
    compiled = cupy.RawKernel(CODE, kernel)
    return Work(lambda: compiled(grid, block, given), lambda: out[::2].get())


PAIR = Pair(inputs, make, Launch("laplace_"), tolerance=1e-5)
