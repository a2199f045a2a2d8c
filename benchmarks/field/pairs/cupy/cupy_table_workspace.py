"""Linear interpolation of 64 million values in a table of 512 floats."""

import cupy

from benchmarks.field import Launch, Pair, Work

COUNT, TABLE = 1 << 26, 512
CODE = r"""
extern "C" __global__ void interpolate(
    const float* x, const float* table, float* out, int count) {
  extern __shared__ float own[];
  for (int i = threadIdx.x; i < 512; i += blockDim.x) own[i] = table[i];
  __syncthreads();
#pragma unroll 1
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    float place = x[i] * 510.0f;
    int cell = (int)place;
    float part = place - cell;
    out[i] = own[cell] + part * (own[cell + 1] - own[cell]);
  }
}
"""


def inputs():
    rng = cupy.random.default_rng(10)
    return rng.random(COUNT, dtype="float32"), rng.random(TABLE, dtype="float32")


def make(variant, x, table):
    shared = 100_000 if variant == "before" else 4 * TABLE  # bytes a block
    kernel = cupy.RawKernel(CODE, "interpolate")
    kernel.max_dynamic_shared_size_bytes = 100_000  # both variants share the loaded function
    out = cupy.empty_like(x)
    given = (x, table, out, cupy.int32(COUNT))
    return Work(
        lambda: kernel((132 * 16,), (128,), given, shared_mem=shared), lambda: out[::5].get()
    )


PAIR = Pair(inputs, make, Launch("interpolate"), tolerance=1e-5)
