"""Squared distance of 2 million points with 16 features to the nearest of 256 centres."""

import cupy

from benchmarks.field import Launch, Pair, Work

COUNT, FEATURES, CENTRES = 1 << 21, 16, 256
CODE = r"""
extern "C" __global__ void nearest_difference(
    const float* points, const float* centres, float* out, int count) {
  __shared__ float own[256 * 16];
  for (int i = threadIdx.x; i < 256 * 16; i += blockDim.x) own[i] = centres[i];
  __syncthreads();
  int p = blockIdx.x * blockDim.x + threadIdx.x;
  float x[16];
#pragma unroll
  for (int f = 0; f < 16; ++f) x[f] = points[f * count + p];
  float best = 1e30f;
  for (int c = 0; c < 256; ++c) {
    float sum = 0.0f;
#pragma unroll
    for (int f = 0; f < 16; ++f) {
      float d = x[f] - own[c * 16 + f];
      sum += d * d;
    }
    best = fminf(best, sum);
  }
  out[p] = best;
}

extern "C" __global__ void nearest_product(
    const float* points, const float* centres, float* out, int count) {
  __shared__ float own[256 * 16];
  __shared__ float half[256];
  for (int i = threadIdx.x; i < 256 * 16; i += blockDim.x) own[i] = centres[i];
  __syncthreads();
  float norm = 0.0f;
  for (int f = 0; f < 16; ++f) norm += own[threadIdx.x * 16 + f] * own[threadIdx.x * 16 + f];
  half[threadIdx.x] = -0.5f * norm;
  __syncthreads();
  int p = blockIdx.x * blockDim.x + threadIdx.x;
  float x[16], length = 0.0f;
#pragma unroll
  for (int f = 0; f < 16; ++f) {
    x[f] = points[f * count + p];
    length += x[f] * x[f];
  }
  float best = -1e30f;
  for (int c = 0; c < 256; ++c) {
    float sum = half[c];
#pragma unroll
    for (int f = 0; f < 16; ++f) sum += x[f] * own[c * 16 + f];
    best = fmaxf(best, sum);
  }
  out[p] = length - 2.0f * best;
}
"""


def inputs():
    rng = cupy.random.default_rng(11)
    shapes = ((FEATURES, COUNT), (CENTRES, FEATURES))
    return tuple(rng.random(shape, dtype="float32") for shape in shapes)


def make(variant, points, centres):
    name = "nearest_difference" if variant == "before" else "nearest_product"
    kernel = cupy.RawKernel(CODE, name)
    out = cupy.empty(COUNT, "float32")
    given = (points, centres, out, cupy.int32(COUNT))
    return Work(lambda: kernel((COUNT // 256,), (256,), given), out.get)


PAIR = Pair(inputs, make, Launch("nearest_"), tolerance=1e-3)
