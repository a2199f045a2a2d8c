"""A 7x7 filter over a picture of 4096x4096 floats."""

import cupy

from benchmarks.field import Launch, Pair, Work

SIZE, WIDTH = 4096, 4096 + 6
CODE = r"""
__constant__ float taps[49];

extern "C" __global__ void filter_one(const float* in, float* out, int size) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, width = size + 6;
  float sum = 0.0f;
#pragma unroll
  for (int dy = 0; dy < 7; ++dy)
#pragma unroll
    for (int dx = 0; dx < 7; ++dx) sum += taps[dy * 7 + dx] * in[(y + dy) * width + x + dx];
  out[y * size + x] = sum;
}

extern "C" __global__ void filter_eight(const float* in, float* out, int size) {
  int x = blockIdx.x * 32 + threadIdx.x, width = size + 6;
  int y = (blockIdx.y * 8 + threadIdx.y) * 8;
  float sum[8] = {};
#pragma unroll
  for (int row = 0; row < 14; ++row) {
#pragma unroll
    for (int dx = 0; dx < 7; ++dx) {
      float value = in[(y + row) * width + x + dx];
#pragma unroll
      for (int k = 0; k < 8; ++k)
        if (row - k >= 0 && row - k < 7) sum[k] += taps[(row - k) * 7 + dx] * value;
    }
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) out[(y + k) * size + x] = sum[k];
}
"""


def inputs():
    rng = cupy.random.default_rng(13)
    return rng.random((WIDTH, WIDTH), dtype="float32"), rng.random(49, dtype="float32")


def make(variant, picture, taps):
    module = cupy.RawModule(code=CODE)
    cupy.ndarray(49, "float32", module.get_global("taps"))[...] = taps
    name, rows = ("filter_one", 8) if variant == "before" else ("filter_eight", 64)
    kernel = module.get_function(name)
    out = cupy.empty((SIZE, SIZE), "float32")
    given = (picture, out, cupy.int32(SIZE))
    return Work(lambda: kernel((SIZE // 32, SIZE // rows), (32, 8), given), out.get)


PAIR = Pair(inputs, make, Launch("filter_"), tolerance=1e-5)
